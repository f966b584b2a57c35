"""Exercises of chapter 4 on distributions: a joint table, Bayes' rule, sampling, independence."""

from __future__ import annotations

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Number, Several, Tolerance, Written
from labsupport.ops.probability import conditional, marginal, posterior

#: The filter of section 4.4: P(bad), P(good), and P(flag | bad), P(flag | good).
FLAG_PRIOR, FLAG_LIKELIHOOD = (0.01, 0.99), (0.90, 0.05)
TABLE = np.array([[0.20, 0.10, 0.10], [0.30, 0.20, 0.10]])

joint_table = Several(
    id="joint-table",
    chapter=4,
    section="4.2",
    title="Reading a joint table",
    checklist=(8,),
    prompt="$p(x, y)$ has rows $x = 0, 1$ and columns $y = 0, 1, 2$: `[[0.20, 0.10, 0.10], [0.30, 0.20, 0.10]]`.",
    contract="Answer `{'p_x0': ..., 'p_y1': ..., 'x1_given_y1': ..., 'y1_given_x1': ...}`.",
    hints=(
        "A marginal is the sum of a row or of a column.",
        "A conditional divides an entry by the marginal of what is given, after the bar.",
    ),
    parts={
        "p_x0": Number(
            prompt="$p(x=0)$",
            expected=float(marginal(TABLE, 0)[0]),
            mistakes=(
                Mistake(name="column", answer=0.5, message="You summed a column; $x$ is the row here."),
                Mistake(name="entry", answer=0.2, message="That is one entry of the row; sum over all $y$."),
            ),
        ),
        "p_y1": Number(
            prompt="$p(y=1)$",
            expected=float(marginal(TABLE, 1)[1]),
            mistakes=(Mistake(name="row", answer=0.6, message="You summed a row; $y$ is the column here."),),
        ),
        "x1_given_y1": Number(
            prompt="$p(x=1 \\mid y=1)$",
            expected=float(conditional(TABLE, 1)[1, 1]),
            mistakes=(
                Mistake(
                    name="turned-around",
                    answer=float(conditional(TABLE, 0)[1, 1]),
                    message="That is $p(y=1 \\mid x=1)$. Divide by the marginal of what stands after the bar.",
                ),
                Mistake(name="joint", answer=0.2, message="That is the joint; divide it by $p(y=1)$."),
            ),
        ),
        "y1_given_x1": Number(
            prompt="$p(y=1 \\mid x=1)$",
            expected=float(conditional(TABLE, 0)[1, 1]),
            mistakes=(
                Mistake(
                    name="turned-around",
                    answer=float(conditional(TABLE, 1)[1, 1]),
                    message="That is $p(x=1 \\mid y=1)$. Divide by the marginal of what stands after the bar.",
                ),
                Mistake(name="joint", answer=0.2, message="That is the joint; divide it by $p(x=1)$."),
            ),
        ),
    },
)


def _posterior_cases(rng: np.random.Generator) -> list[Case]:
    cases = [
        Case(args=(np.array([0.5, 0.5]), np.array([0.2, 0.6])), label="two hypotheses"),
        Case(args=(np.array(FLAG_PRIOR), np.array(FLAG_LIKELIHOOD)), label="a rare hypothesis"),
        Case(args=(np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.0, 0.1])), label="a hypothesis ruled out"),
    ]
    for k in (1, 3, 6):
        args = (rng.dirichlet(np.ones(k)), rng.uniform(0.05, 1, k))
        cases.append(Case(args=args, label=f"{k} hypotheses, drawn"))
    return cases


bayes_posterior = Function(
    id="bayes-posterior",
    chapter=4,
    section="4.4",
    title="A posterior",
    checklist=(8,),
    level="medium",
    prompt="Write `posterior(prior, likelihood)`: the posterior over $k$ hypotheses.",
    contract="Both arguments are float64 arrays of shape (k,); the prior sums to 1; at least one hypothesis allows "
    "the data. Returns an array of shape (k,).",
    hints=("Multiply hypothesis by hypothesis.", "The result must sum to 1: divide by $p(D)$."),
    oracle=posterior,
    cases=_posterior_cases,
    tolerance=Tolerance(c=16),
    mistakes=(
        Mistake(
            name="not-normalised",
            answer=lambda prior, likelihood: prior * likelihood,
            message="That is the joint $p(D, \\theta)$. Divide by its sum.",
        ),
        Mistake(
            name="no-prior",
            answer=lambda prior, likelihood: likelihood / likelihood.sum(),
            message="You normalised the likelihood and forgot the prior.",
        ),
        Mistake(
            name="added",
            answer=lambda prior, likelihood: (prior + likelihood) / (prior + likelihood).sum(),
            message="You added prior and likelihood; Bayes' rule multiplies them.",
        ),
        Mistake(
            name="divided-by-likelihood",
            answer=lambda prior, likelihood: prior * likelihood / likelihood.sum(),
            message="You divided by the sum of the likelihoods. $p(D)$ weighs each of them with its prior.",
        ),
    ),
    diagnose=lambda case, result: None if np.allclose(np.sum(result), 1) else "your posterior does not sum to 1.",
    accept=(lambda prior, likelihood: prior * likelihood / (prior @ likelihood),),
)


def _running(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    return (u[:, None] >= np.cumsum(p, axis=1, dtype=np.float64)).sum(axis=1)


def _sample(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    """One category a row of ``p`` (B, V), from one uniform number a row, ``u`` (B,)."""
    last = p.shape[1] - 1 - np.argmax(p[:, ::-1] > 0, axis=1)
    return np.minimum(_running(p, u), last)


def _sample_row_by_row(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The same by a binary search in each row."""
    found = [np.searchsorted(np.cumsum(row, dtype=np.float64), x, side="right") for row, x in zip(p, u, strict=True)]
    return np.array([min(k, np.flatnonzero(row)[-1]) for k, row in zip(found, p, strict=True)])


def _sample_on_the_edge(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    return (u[:, None] > np.cumsum(p, axis=1, dtype=np.float64)).sum(axis=1)


def _sample_in_a_narrow_sum(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    found = (u[:, None] >= np.cumsum(p, axis=1)).sum(axis=1)
    return np.minimum(found, p.shape[1] - 1 - np.argmax(p[:, ::-1] > 0, axis=1))


def _sampling_cases(rng: np.random.Generator) -> list[Case]:
    quarter = np.array([0.25, 0.5, 0.25])
    tenths = np.full((1, 10), 0.1)
    below_one = np.array([np.nextafter(1.0, 0.0)])
    even = np.full((3, 50_000), 1 / 50_000, dtype=np.float32)
    narrow = np.array([[0.1, 0.2, 0.3, 0.4]], dtype=np.float32)  # sums to a little more than 1
    below_edge = np.nextafter(np.cumsum(narrow[0], dtype=np.float64)[1:2], 0)
    rows = np.array([[0.5, 0.25, 0.25], [0.125, 0.25, 0.625]])
    return [
        Case(args=(rows, np.array([0.6, 0.1])), label="2 rows of 3 categories"),
        Case(args=(np.tile(quarter, (5, 1)), np.array([0.0, 0.25, 0.5, 0.75, 0.875])), label="u on the edges"),
        Case(
            args=(np.tile([0.0, 0.5, 0.0, 0.5], (3, 1)), np.array([0.0, 0.5, 0.75])),
            label="categories of probability 0",
        ),
        Case(args=(np.ones((4, 1)), rng.random(4)), label="one category"),
        Case(args=(rng.dirichlet(np.ones(6), 40), 0.999 * rng.random(40)), label="40 rows of 6, drawn"),
        Case(args=(tenths, below_one), label="rounding leaves u at the last sum"),
        Case(args=(np.pad(tenths, ((0, 0), (0, 2))), below_one), label="the same, with two zeros at the end"),
        Case(args=(even, np.array([0.3, 0.7, 0.9])), label="float32, 50,000 categories"),
        Case(args=(narrow, below_edge), label="float32, u just below an edge"),
    ]


sample_categorical = Function(
    id="sample-categorical",
    chapter=4,
    section="4.1",
    title="A sampler from uniform numbers",
    checklist=(8,),
    level="hard",
    points=2,
    prompt="Write `sample(p, u)`: for each row of `p` one category by the sampler of section 4.1, the smallest $k$ "
    "with $u < p_0 + \\dots + p_k$, where $u$ is the uniform number of that row.",
    contract="`p`: float32 or float64 (B, V), not negative, each row sums to 1 up to rounding; `u`: float64 (B,) in "
    "$[0, 1)$. Add up in float64. Where rounding leaves $u$ at or above the last sum: the last category of positive "
    "probability. Returns integers of shape (B,).",
    hints=(
        "`np.cumsum` has the arguments `axis` and `dtype`.",
        "The answer is the number of sums that $u$ has reached: compare a column with rows and count.",
        "Then bound it: which index has the last positive entry of a row?",
    ),
    oracle=_sample,
    cases=_sampling_cases,
    mistakes=(
        Mistake(
            name="edge",
            answer=_sample_on_the_edge,
            message="On an edge you return the category that ends there. The sum must be strictly larger than $u$.",
        ),
        Mistake(
            name="sums-rescaled",
            answer=lambda p, u: _sample(np.cumsum(p, axis=1, dtype=float)[:, -1:] ** -1 * p, u),
            message="You divided by the row's sum, which moves every edge a little. The sums are taken as they are.",
        ),
        Mistake(
            name="no-cumsum",
            answer=lambda p, u: np.argmax(u[:, None] < p, axis=1),
            message="You compared $u$ with the probabilities themselves. Compare it with their running sums.",
        ),
        Mistake(
            name="greedy",
            answer=lambda p, u: p.argmax(axis=1),
            message="You always return the most probable category: that is greedy decoding, not sampling.",
        ),
        Mistake(
            name="uniform",
            answer=lambda p, u: (u * p.shape[1]).astype(np.int64),
            message="That makes all categories equally likely; `p` plays no part.",
        ),
        Mistake(
            name="first-row",
            answer=lambda p, u: _sample(np.broadcast_to(p[:1], p.shape), u),
            message="You used the first row for all. Each row is a distribution of its own.",
        ),
        Mistake(
            name="unbounded",
            answer=_running,
            message="Where rounding leaves $u$ at the last sum, you return an index past the end.",
        ),
        Mistake(
            name="last-index",
            answer=lambda p, u: np.minimum(_running(p, u), p.shape[1] - 1),
            message="You bounded the index by the last category, which may have probability 0.",
        ),
        Mistake(
            name="narrow-sum",
            answer=_sample_in_a_narrow_sum,
            message="You added 50,000 float32 numbers in float32: the sums drift. Add up in float64.",
        ),
    ),
    accept=(_sample_row_by_row,),
)

explain_iid = Written(
    id="explain-iid",
    chapter=4,
    section="4.3",
    title="An error bar that is too small",
    checklist=(8,),
    level="medium",
    prompt="An evaluation reports a mean over 10,000 tokens from 20 documents with the error $s/\\sqrt{10000}$. "
    "Explain what is wrong with it and how to do better.",
    hints=("Are two tokens of one document independent?", "How many independent things were drawn?"),
    rubric=(
        "says that tokens of one document are correlated, so they are not i.i.d.",
        "says that the true spread of the mean is larger than reported",
        "treats the document as the unit, for example the spread of the 20 document means",
        "weights documents by their tokens, or says why not",
    ),
    model="Tokens of one document resemble each other, so 10,000 tokens carry less information than 10,000 "
    "independent ones and the true spread of the mean is larger. Take the 20 documents as the unit, weighted by their "
    "tokens, and estimate the spread from their means, or resample whole documents.",
)

EXERCISES: tuple[Exercise, ...] = (
    joint_table,
    bayes_posterior,
    explain_iid,
    sample_categorical,
)

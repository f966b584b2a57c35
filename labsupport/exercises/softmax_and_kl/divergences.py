"""Exercises of chapter 5 on entropy, KL divergence and perplexity."""

import math
from typing import Any

import numpy as np

from labsupport.exercises.softmax_and_kl.logits import row_length
from labsupport.grading import Case, Choice, Exercise, Function, Mistake, Option, Tolerance, Written
from labsupport.grading.shorthand import quiet
from labsupport.ops import softmax as ops

Array = np.ndarray


def _distributions(rng: np.random.Generator) -> list[tuple[str, Array]]:
    with_zeros = np.array([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    return [
        ("float64 (3, 5)", rng.dirichlet(np.ones(5), 3)),
        ("float64 (6,), one axis", rng.dirichlet(np.ones(6))),
        ("float32 (2, 4)", rng.dirichlet(np.ones(4), 2).astype(np.float32)),
        ("float64 (3, 4), some probabilities 0", with_zeros),
        ("float64 (2, 3, 4)", rng.dirichlet(np.ones(4), (2, 3))),
        ("float64 (2,), almost certain", np.array([1 - 1e-9, 1e-9])),
    ]


def _plogp(p: Array, log: Any = np.log2) -> Array:
    with np.errstate(all="ignore"):
        return np.where(p > 0, p * log(p), 0)


ENTROPY_BITS = Function(
    id="entropy-bits",
    chapter=5,
    section="5.6",
    title="Entropy in bits",
    prompt="Write `entropy_bits(p)`: the entropy of each row of `p`, over the last axis, in **bits**.",
    contract="`p`: probabilities, float32 or float64, any leading axes, rows sum to 1, entries may be exactly 0. "
    "Result: `p.shape[:-1]`.",
    hints=(
        "An outcome that never happens adds nothing: $0 \\log 0$ counts as 0, which floats do not know.",
        "`np.where(p > 0, p * np.log2(p), 0)` chooses after computing; the warning is harmless, the value right.",
    ),
    checklist=(10,),
    level="easy",
    oracle=lambda p: ops.entropy(p, base=2),
    cases=lambda rng: [Case(args=(p,), label=label) for label, p in _distributions(rng)],
    tolerance=Tolerance(c=4, depth=row_length, scale=lambda p: 1 + math.log2(p.shape[-1])),
    mistakes=(
        Mistake(
            name="nats",
            answer=lambda p: -_plogp(p, np.log).sum(-1),
            message="This is the entropy in nats. Bits take the logarithm to base 2.",
        ),
        Mistake(
            name="zero-times-inf",
            answer=quiet(lambda p: -(p * np.log2(p)).sum(-1)),
            message="0 times log 0 is 0 times -inf, which floats turn into NaN. Outcomes of probability 0 add nothing.",
        ),
        Mistake(
            name="epsilon",
            answer=lambda p: -(p * np.log2(p + 1e-6)).sum(-1),
            message="Adding a small number inside the logarithm hides the NaN and changes every value. Treat zeros as "
            "a case of their own.",
        ),
        Mistake(
            name="sign",
            answer=lambda p: _plogp(p).sum(-1),
            message="Your entropy is negative. The logarithm of a probability is; entropy turns the sign.",
        ),
        Mistake(
            name="whole-array",
            answer=lambda p: -_plogp(p).sum(),
            message="You summed over the whole array. One entropy per row is due.",
        ),
        Mistake(
            name="mean",
            answer=lambda p: -_plogp(p).mean(-1),
            message="You averaged over the outcomes. The weights $p_i$ already make the sum a mean.",
        ),
    ),
    accept=(
        lambda p: -_plogp(p, np.log).sum(-1) / np.log(2),
        lambda p: ops.entropy(p.astype(np.float64), base=2),
    ),
)


def _pairs(rng: np.random.Generator) -> list[Case]:
    p, q = rng.dirichlet(np.ones(5), (2, 3))
    zero = np.array([0.5, 0.5, 0.0])
    return [
        Case(args=(p, q), label="float64 (3, 5)"),
        Case(args=(p[0], q[0]), label="float64 (5,)"),
        Case(args=(p.astype(np.float32), q.astype(np.float32)), label="float32 (3, 5)"),
        Case(args=(zero, np.array([0.25, 0.25, 0.5])), label="float64 (3,), p is 0 somewhere"),
        Case(args=(np.array([0.25, 0.25, 0.5]), zero), label="float64 (3,), q is 0 where p is not"),
        Case(args=(p, p.copy()), label="float64 (3, 5), equal distributions"),
        Case(args=tuple(rng.dirichlet(np.ones(4), (2, 2, 3))), label="float64 (2, 3, 4)"),
    ]


def _kl_terms(p: Array, q: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(p > 0, p * (np.log(p) - np.log(q)), 0)


KL_DIVERGENCE = Function(
    id="kl-divergence",
    chapter=5,
    section="5.7",
    title="KL divergence, the right way round",
    prompt="Write `kl(p, q)`: $\\mathrm{KL}(p\\|q)$ over the last axis, in nats, `p` first.",
    contract="`p`, `q`: probabilities of one shape, float32 or float64, any leading axes. Where `p` is 0 the term is "
    "0; where `q` is 0 and `p` is not, the result is `inf`. Result: `p.shape[:-1]`.",
    hints=(
        "The expectation is over the first argument: its probabilities are the weights.",
        "Deal with `p == 0` by choosing, not by adding a small number.",
        "The case `q == 0` needs no special treatment: what is `p * (np.log(p) - np.log(q))` there?",
    ),
    checklist=(10,),
    level="medium",
    oracle=ops.kl_divergence,
    cases=_pairs,
    tolerance=Tolerance(
        c=4, depth=row_length, scale=lambda p, q: 1 + float(np.abs(np.log(np.concatenate([p[p > 0], q[q > 0]]))).max())
    ),
    mistakes=(
        Mistake(
            name="reversed",
            answer=lambda p, q: _kl_terms(q, p).sum(-1),
            message="This is the divergence the other way round. KL is not symmetric: weights come from the first "
            "argument.",
        ),
        Mistake(
            name="cross-entropy",
            answer=quiet(lambda p, q: -np.where(p > 0, p * np.log(q), 0).sum(-1)),
            message="This is the cross-entropy H(p, q). It is larger than KL by the entropy of p, and not 0 for equal "
            "distributions.",
        ),
        Mistake(
            name="zero-times-inf",
            answer=quiet(lambda p, q: (p * np.log(p / q)).sum(-1)),
            message="Where p is 0 your term is NaN (0 times -inf). Such a term counts as 0.",
        ),
        Mistake(
            name="epsilon",
            answer=lambda p, q: (p * (np.log(p + 1e-6) - np.log(q + 1e-6))).sum(-1),
            message="The small number inside your logarithms turns an infinite divergence into a finite one and moves "
            "every other value.",
        ),
        Mistake(
            name="mean",
            answer=lambda p, q: _kl_terms(p, q).mean(-1),
            message="You averaged over the vocabulary. The weights $p_i$ already make the sum a mean; torch's default "
            'reduction="mean" makes the same slip.',
        ),
        Mistake(
            name="bits",
            answer=lambda p, q: _kl_terms(p, q).sum(-1) / np.log(2),
            message="You used base 2. Nats are asked for.",
            section="5.6",
        ),
        Mistake(
            name="absolute",
            answer=lambda p, q: np.abs(_kl_terms(p, q)).sum(-1),
            message="You made every term positive. Single terms may be negative; only the sum never is.",
        ),
    ),
    accept=(
        quiet(lambda p, q: np.where(p > 0, p * np.log(p / q), 0).sum(-1)),
        lambda p, q: ops.kl_divergence(p.astype(np.float64), q.astype(np.float64)),
    ),
)

KL_TORCH_CALL = Choice(
    id="kl-torch-call",
    chapter=5,
    section="5.7",
    title="Which torch call is KL(p‖q)?",
    prompt=(
        "`p` and `q` are tensors of probabilities of shape (V,) and `F` is `torch.nn.functional`. "
        "Which call gives $\\mathrm{KL}(p\\|q)$ in nats?"
    ),
    hints=(
        "Read the pointwise formula in the documentation: target · (log target − input).",
        "Which of the two does the formula weight with, and which does it expect as a logarithm?",
    ),
    checklist=(10,),
    options={
        "a": Option(
            "`F.kl_div(p, q)`",
            "The first argument must be a logarithm, and this puts the weights on q. It runs, and the number means "
            "nothing.",
        ),
        "b": Option(
            '`F.kl_div(q.log(), p, reduction="sum")`',
            "The input is the logarithm of q, the target p gives the weights, and the terms are summed.",
            correct=True,
        ),
        "c": Option(
            '`F.kl_div(p.log(), q, reduction="sum")`',
            "The weights come from the target, which is q here: this is the divergence the other way round.",
        ),
        "d": Option(
            "`F.kl_div(q.log(), p)`",
            'The order is right, but the default reduction="mean" divides by the number of entries, V.',
        ),
    },
)

PERPLEXITY = Function(
    id="perplexity",
    chapter=5,
    section="5.8",
    title="Perplexity of a text",
    prompt=(
        "Write `perplexity(log_p)`: `log_p` holds the natural log-probability that a model gave to each token of a "
        "text that really came next."
    ),
    contract="`log_p`: (N,) float64, N ≥ 1, entries ≤ 0; N may be several thousand. Result: a scalar, in tokens.",
    hints=(
        "Perplexity is the exponential of one number: the mean negative log-likelihood.",
        "Stay in the logarithm until the very end; a product of thousands of probabilities is 0 in floating point.",
    ),
    checklist=(10,),
    level="easy",
    oracle=lambda log_p: ops.perplexity(-np.mean(log_p)),
    cases=lambda rng: [
        Case(args=(np.log(rng.uniform(0.05, 0.9, 7)),), label="float64 (7,)"),
        Case(args=(np.log(rng.uniform(0.05, 0.9, 5000)),), label="float64 (5000,), a long text"),
        Case(args=(np.log([0.125]),), label="float64 (1,), one token"),
    ],
    tolerance=Tolerance(c=8, depth=16),
    mistakes=(
        Mistake(
            name="total",
            answer=quiet(lambda log_p: np.exp(-np.sum(log_p))),
            message="You exponentiated the total, not the mean: a longer text would look worse than a short one.",
        ),
        Mistake(
            name="mean-of-inverses",
            answer=lambda log_p: np.mean(np.exp(-log_p)),
            message="You averaged the per-token perplexities. The mean is taken of the NLL, before the exponential; "
            "one very unlikely token would rule your number.",
        ),
        Mistake(
            name="sign",
            answer=lambda log_p: np.exp(np.mean(log_p)),
            message="Your perplexity is below 1. Turn the sign of the log-likelihood first.",
        ),
        Mistake(
            name="base-2",
            answer=lambda log_p: 2.0 ** (-np.mean(log_p)),
            message="You raised 2 to a mean in nats. Natural logarithms go with e.",
        ),
        Mistake(
            name="product",
            answer=quiet(lambda log_p: np.prod(np.exp(log_p)) ** (-1 / len(log_p))),
            message="Right for a short text. In a long one the product of the probabilities underflows to 0. Stay in "
            "the logarithm.",
        ),
    ),
    accept=(
        lambda log_p: float(np.exp(-log_p.sum() / len(log_p))),
        lambda log_p: math.exp(-sum(log_p) / len(log_p)),
        lambda log_p: 2.0 ** (-np.mean(log_p / np.log(2))),
    ),
)

EXPLAIN_CE_KL = Written(
    id="explain-ce-kl",
    chapter=5,
    section="5.7",
    title="Why training on cross-entropy is fitting by KL",
    prompt=(
        "In three to six sentences: why does minimising the cross-entropy H(p, q) over the model q also minimise "
        "KL(p‖q), and what would change if one minimised KL(q‖p) instead?"
    ),
    hints=(
        "Write H(p, q) as a sum of two terms and ask which of them the model can change.",
        "In KL(p‖q) the weights come from the data. Where does that force q to have mass?",
    ),
    checklist=(10,),
    level="medium",
    rubric=(
        "States H(p, q) = H(p) + KL(p‖q).",
        "Says that H(p) does not depend on the model, so both have the same minimiser and the same gradient.",
        "Says that KL(p‖q) punishes q near 0 where p is not (it must cover); KL(q‖p) lets q pick one mode.",
        "Notes that KL(q‖p) needs samples or probabilities of the model and log p, which data alone do not give.",
    ),
    model=(
        "H(p, q) = H(p) + KL(p‖q), and H(p) is a property of the data that no parameter changes. So both have the "
        "same gradient and the same minimiser. KL(p‖q) is an expectation under the data: it is infinite where p has "
        "mass and q has none, so q must cover all of p. KL(q‖p) is an expectation under the model: q may leave out a "
        "mode of p and concentrate on another, and one needs log p itself, not only samples of p."
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    ENTROPY_BITS,
    KL_DIVERGENCE,
    KL_TORCH_CALL,
    EXPLAIN_CE_KL,
    PERPLEXITY,
)

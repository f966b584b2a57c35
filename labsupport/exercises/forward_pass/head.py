"""Exercises of chapter 11 on the LM head: its product, its bytes, and what logits say."""

import numpy as np

from labsupport.grading import Case, Exercise, Formula, Function, Mistake, Number, Tolerance
from labsupport.ops.softmax import softmax


def _head_cases(rng: np.random.Generator) -> list[Case]:
    shapes = [((2,), (2, 7)), ((4, 3), (3, 5)), ((2, 5, 6), (6, 11)), ((3, 3), (3, 3)), ((1, 4, 4), (4, 4))]
    cases = [Case(args=(rng.normal(size=a), rng.normal(size=b)), label=f"h {a}, U {b}") for a, b in shapes]
    h, U = rng.normal(size=(2, 3, 8)).astype(np.float32), rng.normal(size=(8, 6)).astype(np.float32)
    return [*cases, Case(args=(h, U), label="float32, h (2, 3, 8), U (8, 6)")]


LM_HEAD = Function(
    id="lm-head",
    chapter=11,
    section="11.3",
    title="From vectors to scores",
    prompt="Write `logits(h, U)`: one score for each token at every position.",
    contract="`h`: (..., d), any leading axes, also none; `U`: (d, V); float32 or float64. Result: (..., V).",
    hints=(
        "Each logit is a dot product of `h` with one column of `U`.",
        "A matrix product broadcasts over the leading axes of its left factor.",
    ),
    checklist=(1,),
    level="easy",
    oracle=lambda h, U: h @ U,
    cases=_head_cases,
    tolerance=Tolerance(c=4, depth=lambda h, U: h.shape[-1]),
    mistakes=(
        Mistake(
            name="transposed",
            answer=lambda h, U: h @ U.T,
            message="You multiplied by the transpose: `U` has shape (d, V) here. For a square `U` this runs, and every "
            "score is wrong.",
        ),
        Mistake(
            name="softmax",
            answer=lambda h, U: softmax(h @ U),
            message="You returned probabilities. Logits are the scores before the softmax.",
            section="11.6",
        ),
        Mistake(
            name="mean",
            answer=lambda h, U: h @ U / h.shape[-1],
            message="You averaged over the width; a dot product sums.",
        ),
    ),
    accept=(lambda h, U: np.einsum("...d,dv->...v", h, U),),
)

LM_HEAD_BYTES = Number(
    id="lm-head-bytes",
    chapter=11,
    section="11.3",
    title="The largest tensor of the pass",
    prompt=(
        "B = 4 blocks of T = 4096 tokens, V = 128256, logits in bfloat16. How many bytes do the logits take? Answer "
        "with "
        'a unit, such as `"1.5 GiB"`.'
    ),
    hints=("Shape first: one score for each token of the vocabulary at every position.", "bfloat16 takes 2 bytes."),
    checklist=(1,),
    level="easy",
    expected=4 * 4096 * 128256 * 2,
    unit="B",
    rtol=5e-3,
    mistakes=(
        Mistake(
            name="elements", answer=f"{4 * 4096 * 128256} B", message="This is the number of scores, not of bytes."
        ),
        Mistake(name="one-block", answer=f"{4096 * 128256 * 2} B", message="This is one block; the batch has several."),
        Mistake(
            name="last-position",
            answer=f"{4 * 128256 * 2} B",
            message="This is one position a block. Training needs scores at every position.",
            section="11.10",
        ),
    ),
)

LOGITS_ODDS = Formula(
    id="logits-odds",
    chapter=11,
    section="11.6",
    title="What a difference of logits means",
    prompt=(
        "Two logits of one row are $z_i$ and $z_j$. Give, as a function `odds(z_i, z_j)`, how many times as probable "
        "token $i$ is as token $j$."
    ),
    contract="`z_i`, `z_j`: floats between -5 and 5. Result: the quotient of the two probabilities.",
    hints=(
        "Write both probabilities with the softmax formula and divide. What cancels?",
        "Only the difference of the two logits is left.",
    ),
    level="easy",
    oracle=lambda z_i, z_j: np.exp(z_i - z_j),
    sample=lambda rng: tuple(float(v) for v in rng.uniform(-5, 5, 2)),
    mistakes=(
        Mistake(
            name="ratio-of-logits",
            answer=lambda z_i, z_j: z_i / z_j,
            message="You divided the logits. A quotient of logits changes when a constant is added to the row; "
            "probabilities do not.",
        ),
        Mistake(
            name="other-way",
            answer=lambda z_i, z_j: np.exp(z_j - z_i),
            message="This says how many times as probable j is as i.",
        ),
        Mistake(
            name="difference",
            answer=lambda z_i, z_j: z_i - z_j,
            message="This is the logarithm of the odds.",
        ),
        Mistake(
            name="share",
            answer=lambda z_i, z_j: 1 / (1 + np.exp(z_j - z_i)),
            message="This is the probability of i among the two, not the quotient of their probabilities.",
        ),
    ),
    accept=(lambda z_i, z_j: np.exp(z_i) / np.exp(z_j),),
)

EXERCISES: tuple[Exercise, ...] = (
    LM_HEAD,
    LM_HEAD_BYTES,
    LOGITS_ODDS,
)

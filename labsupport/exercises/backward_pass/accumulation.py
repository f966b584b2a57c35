"""Exercises of chapter 12 on accumulation, on the guard before a step, and on what gradients can say."""

import math

import numpy as np

from labsupport.grading import Case, Choice, Exercise, Function, Mistake, Option, Tolerance, Written
from labsupport.ops.optim import global_norm

Array = np.ndarray


def _accumulate(grads: list[Array], counts: list[int]) -> Array:
    used = [(g.astype(np.float64), n) for g, n in zip(grads, counts, strict=True) if n]
    return sum((n * g for g, n in used), np.zeros(grads[0].shape)) / sum(counts)


def _accumulate_cases(rng: np.random.Generator) -> list[Case]:
    def one(shape: tuple[int, ...], counts: list[int], label: str) -> Case:
        grads = [rng.normal(size=shape) if n else np.full(shape, np.nan) for n in counts]
        return Case(args=(grads, counts), label=label)

    return [
        one((2, 3), [3, 1], "3 tokens and 1 token"),
        one((4,), [5, 5], "equal counts"),
        one((2, 2), [7], "one micro-batch"),
        one((3, 2), [2, 0, 9], "one micro-batch without counted tokens"),
        one((5,), [1, 2, 3, 4], "four micro-batches"),
    ]


ACCUMULATE = Function(
    id="accumulate-gradients",
    chapter=12,
    section="12.9",
    title="Accumulate micro-batches",
    prompt=(
        "Write `accumulate(grads, counts)`: the gradient of the mean loss over all counted tokens, from the gradients "
        "of each "
        "micro-batch's own mean."
    ),
    contract=(
        "`grads`: list of K ≥ 1 float64 arrays of one shape; `counts`: list of K integers ≥ 0, not all 0. A "
        "micro-batch with "
        "count 0 has a gradient of NaN. Result: an array of that shape, never NaN. Inputs stay as they are."
    ),
    hints=(
        "Turn each mean back into a sum first: multiply by its count.",
        "Divide once, by the number of all counted tokens.",
        "0 times NaN is NaN: leave empty micro-batches out.",
    ),
    level="medium",
    points=2,
    oracle=_accumulate,
    cases=_accumulate_cases,
    tolerance=Tolerance(c=8, depth=lambda grads, counts: len(counts), scale=lambda *a: 4.0),
    mistakes=(
        Mistake(
            name="mean-of-means",
            answer=lambda g, n: sum(a for a, k in zip(g, n, strict=True) if k) / sum(k > 0 for k in n),
            message="You averaged the micro-batches, whatever their token counts. Weight each by its count.",
        ),
        Mistake(
            name="sum",
            answer=lambda g, n: sum(a for a, k in zip(g, n, strict=True) if k) + 0.0,
            message="You added the gradients and divided by nothing: the step grows with the number of micro-batches.",
        ),
        Mistake(
            name="not-divided",
            answer=lambda g, n: _accumulate(g, n) * sum(n),
            message="This is the gradient of the summed loss; divide by the number of counted tokens.",
        ),
        Mistake(
            name="divided-by-batches",
            answer=lambda g, n: _accumulate(g, n) * sum(n) / len(n),
            message="You divided by the number of micro-batches; the loss is a mean over tokens.",
        ),
        Mistake(
            name="nan",
            answer=lambda g, n: sum(a * k for a, k in zip(g, n, strict=True)) / sum(n),
            message="An empty micro-batch made everything NaN: 0 times NaN is NaN. Leave it out.",
        ),
    ),
    accept=(lambda g, n: np.average([a for a, k in zip(g, n, strict=True) if k], axis=0, weights=[k for k in n if k]),),
)

EXPLAIN_ACCUMULATION = Written(
    id="explain-accumulation",
    chapter=12,
    section="12.9",
    title="Why dividing by the number of micro-batches can be wrong",
    prompt=(
        "In three to six sentences: when does accumulating `loss / K` over K micro-batches give the gradient of the "
        "big batch, "
        "when not, and what would you change in the loop?"
    ),
    hints=("What does the mean of each micro-batch divide by?", "Write both sums out for counts 3 and 1."),
    level="medium",
    rubric=(
        "right when all micro-batches have equally many counted tokens",
        "wrong otherwise: tokens of a short micro-batch count more",
        "remedy: divide summed losses by the token count of the whole batch",
        "on several ranks: counts are summed over ranks too",
    ),
    model=(
        "It is right only when every micro-batch has the same number of counted tokens: then the mean of means is the "
        "mean. "
        "With padding or packing the counts differ, and each token of a short micro-batch weighs more than one of a "
        "long one. "
        "I would sum the losses, divide by the counted tokens of the whole batch (over all ranks), and call backward "
        "on each "
        "part; torch adds the gradients up."
    ),
)


def _scale(grads: list[Array], max_norm: float) -> float:
    norm = global_norm(grads)
    if not math.isfinite(norm):
        return 0.0
    return min(1.0, max_norm / norm) if norm else 1.0


def _scale_cases(rng: np.random.Generator) -> list[Case]:
    big = [3.0 * rng.normal(size=(2, 3)), 3.0 * rng.normal(size=4)]
    bad = [np.ones(3), np.array([1.0, np.nan])]
    return [
        Case(args=(big, 1.0), label="a norm above the limit"),
        Case(args=([0.01 * g for g in big], 1.0), label="a norm below the limit"),
        Case(args=(bad, 1.0), label="a NaN in the second tensor"),
        Case(args=(bad[::-1], 1.0), label="a NaN in the first tensor"),
        Case(args=([np.array([np.inf]), np.ones(2)], 1.0), label="an infinity in the first tensor"),
        Case(args=([np.ones(2), np.array([-np.inf, 1.0])], 5.0), label="a negative infinity"),
        Case(args=([np.array([3.0]), np.array([4.0])], 4.5), label="norms 3 and 4, limit 4.5"),
        Case(args=([np.zeros(3)], 1.0), label="a gradient of 0"),
    ]


def _quiet_norm(grads: list[Array]) -> float:
    with np.errstate(all="ignore"):
        return float(np.sqrt(sum(float(np.sum(g * g)) for g in grads)))


def _unguarded(grads: list[Array], max_norm: float) -> float:
    norm = _quiet_norm(grads)
    return max_norm / norm if norm else 1.0


STEP_SCALE = Function(
    id="step-scale",
    chapter=12,
    section="12.10",
    title="Guard and clip",
    prompt=(
        "Write `step_scale(grads, max_norm)`: the factor for all gradients before the update. 0.0 when any entry of "
        "any "
        "gradient is NaN or infinite (the step is skipped), else the factor of clipping by the global norm."
    ),
    contract="`grads`: list of float64 arrays; `max_norm` > 0. Result: a float in [0, 1]. For a norm of 0 the factor "
    "is 1.",
    hints=(
        "One number sees every entry: the global norm.",
        "Ask `math.isfinite(norm)` before anything else.",
        "Then min(1, max_norm / norm), with care for a norm of 0.",
    ),
    level="medium",
    oracle=_scale,
    cases=_scale_cases,
    tolerance=Tolerance(c=16, depth=4),
    mistakes=(
        Mistake(
            name="python-min",
            answer=lambda g, m: min(1.0, _unguarded(g, m)),
            message="Python's min(1.0, NaN) is 1.0, since no comparison with NaN is true: the bad step goes through in "
            "full.",
        ),
        Mistake(
            name="nan-factor",
            answer=lambda g, m: float(np.minimum(1.0, _unguarded(g, m))),
            message="Your factor is NaN where a gradient holds one, and would spread it to every tensor. Check first, "
            "clip then.",
        ),
        Mistake(
            name="first-tensor",
            answer=lambda g, m: min(1.0, _unguarded(g, m)) if np.isfinite(g[0]).all() else 0.0,
            message="You checked the first tensor only.",
        ),
        Mistake(
            name="grows",
            answer=lambda g, m: (
                0.0 if not math.isfinite(global_norm(g)) else m / global_norm(g) if global_norm(g) else 1.0
            ),
            message="Clipping never enlarges: where the norm is below the limit the factor is 1.",
        ),
        Mistake(
            name="largest-tensor",
            answer=lambda g, m: (
                0.0
                if not math.isfinite(global_norm(g))
                else min(1.0, m / max(*(float(np.linalg.norm(a)) for a in g), 1e-300))
            ),
            message="You used the norm of the largest tensor. The global norm takes all of them together.",
        ),
    ),
    accept=(lambda g, m: 1.0 if _quiet_norm(g) <= m else m / _quiet_norm(g) if np.isfinite(_quiet_norm(g)) else 0.0,),
)

GRADIENT_LIMITS = Choice(
    id="gradient-limits",
    chapter=12,
    section="12.11",
    title="The same function, another gradient",
    prompt=(
        "A weight w is replaced by w = 10·v: the model computes the same function, with v as parameter. How does the "
        "gradient "
        "with respect to v compare with that with respect to w, at the same function?"
    ),
    hints=(
        "Chain rule: $\\partial L/\\partial v = \\partial L/\\partial w \\cdot \\partial w/\\partial v$.",
        "Nudge $v$ by a small number. How far does that move $w$, and by how much does the loss change then?",
    ),
    checklist=(11,),
    level="medium",
    options={
        "a": Option(
            "equal: the function is the same",
            "The function is the same, but a change of 1 in v moves the function ten times as far as a change of 1 in "
            "w.",
        ),
        "b": Option(
            "ten times as large",
            "The chain rule brings the factor 10. The size of a gradient depends on the units of its parameter, so it "
            "is no "
            "measure of importance.",
            correct=True,
        ),
        "c": Option(
            "a tenth",
            "It is v itself that is a tenth of w; its gradient goes the other way.",
        ),
        "d": Option(
            "cannot be said without the data",
            "The ratio follows from the chain rule alone, for any data.",
        ),
    },
)

EXERCISES: tuple[Exercise, ...] = (
    ACCUMULATE,
    EXPLAIN_ACCUMULATION,
    STEP_SCALE,
    GRADIENT_LIMITS,
)

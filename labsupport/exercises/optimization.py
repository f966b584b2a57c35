"""Exercises of chapter 8: batches, momentum, Adam, memory, depth, initialisation, normalisation, clipping.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and
must never contain the expected value. The last part holds the questions inside the chapter's text.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.cost import tensor_bytes, training_memory
from labsupport.grading import (
    Case,
    Choice,
    Exercise,
    Function,
    Mistake,
    Number,
    Option,
    Several,
    Shape,
    Tolerance,
    Written,
)
from labsupport.ops import normalization as norms
from labsupport.ops import optim

Array = np.ndarray


def _quiet(f: Any) -> Any:
    """Run a deliberately bad implementation without NumPy's warnings."""

    def quiet(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args, **kwargs)

    return quiet


# ---------------------------------------------------------------- batches

_SAMPLE_VARIANCE, _BATCH = 12.0, 48

GRADIENT_VARIANCE = Number(
    id="gradient-variance",
    chapter=8,
    section="8.1",
    title="Variance of a mini-batch gradient",
    prompt=(
        "The gradient of one sample has a variance of 12 (summed over its components). What is the variance of the "
        "mean gradient of a batch of 48, drawn with replacement?"
    ),
    contract="A number without unit.",
    hints=(
        "Draws are independent: variances of a sum add up.",
        "The mean is the sum times $1/B$, and a factor enters a variance squared.",
    ),
    checklist=(8,),
    expected=_SAMPLE_VARIANCE / _BATCH,
    mistakes=(
        Mistake(
            name="standard-deviation",
            answer=math.sqrt(_SAMPLE_VARIANCE / _BATCH),
            message="This is the standard deviation of the batch gradient. The variance is its square.",
        ),
        Mistake(
            name="root-of-the-batch",
            answer=_SAMPLE_VARIANCE / math.sqrt(_BATCH),
            message="The root of the batch size divides the standard deviation. Which power divides the variance?",
        ),
        Mistake(
            name="sum",
            answer=_SAMPLE_VARIANCE * _BATCH,
            message="This is the variance of the summed gradient. The mean carries a factor of one over the batch.",
        ),
        Mistake(
            name="unchanged",
            answer=_SAMPLE_VARIANCE,
            message="This is the variance of a single sample. A mean of many is quieter.",
        ),
        Mistake(
            name="squared",
            answer=_SAMPLE_VARIANCE / _BATCH**2,
            message="You squared the factor and forgot that the variances of all samples in the batch add up.",
        ),
    ),
)


def _combine(means: list[Array], counts: list[int]) -> Array:
    """Mean gradient of all samples from the micro-batches' means and sizes."""
    total = np.sum([m * n for m, n in zip(means, counts, strict=True)], axis=0)
    return np.asarray(total / sum(counts))


def _micro_cases(rng: np.random.Generator) -> list[Case]:
    def parts(shape: tuple[int, ...], number: int, dtype: Any = np.float64) -> list[Array]:
        return [rng.normal(size=shape).astype(dtype) for _ in range(number)]

    return [
        Case(args=(parts((4,), 2), [32, 8]), label="two micro-batches of 32 and 8"),
        Case(args=(parts((2, 3), 3), [1, 5, 2]), label="three of 1, 5 and 2, gradients (2, 3)"),
        Case(args=(parts((3,), 2), [16, 16]), label="two of 16"),
        Case(args=(parts((3,), 1), [7]), label="one micro-batch"),
        Case(args=(parts((5,), 3, np.float32), [64, 64, 1]), label="float32, sizes 64, 64 and 1"),
    ]


MICRO_BATCHES = Function(
    id="micro-batches",
    chapter=8,
    section="8.1",
    title="Gradient accumulation over unequal micro-batches",
    prompt=(
        "Write `combine(means, counts)`: the mean gradient of all samples together, from the mean gradient of each "
        "micro-batch and the number of its samples."
    ),
    contract=(
        "`means`: list of arrays of one shape, float32 or float64; `counts`: list of as many whole numbers, each at "
        "least 1. Result: an array of that shape."
    ),
    hints=(
        "A mean times its count is the sum over that micro-batch.",
        "Add the sums, then divide once by the number of all samples.",
    ),
    checklist=(8,),
    oracle=_combine,
    cases=_micro_cases,
    tolerance=Tolerance(c=4, depth=4, scale=lambda means, counts: max(float(np.abs(m).max()) for m in means)),
    mistakes=(
        Mistake(
            name="mean-of-means",
            answer=lambda means, counts: np.mean(means, axis=0),
            message="You averaged the means: a micro-batch with few samples counts as much as a full one.",
        ),
        Mistake(
            name="sum-of-means",
            answer=lambda means, counts: np.sum(means, axis=0),
            message="You added the means, so the gradient grows with the number of micro-batches.",
        ),
        Mistake(
            name="sum-of-all",
            answer=lambda means, counts: _combine(means, counts) * sum(counts),
            message="This is the summed gradient of all samples. The division by their number is missing.",
        ),
        Mistake(
            name="divided-by-parts",
            answer=lambda means, counts: _combine(means, counts) * sum(counts) / len(counts),
            message="You divided by the number of micro-batches. The number of samples is due.",
        ),
    ),
    accept=(
        lambda means, counts: np.average(means, axis=0, weights=counts),
        lambda means, counts: np.tensordot(np.array(counts) / sum(counts), np.stack(means), axes=1),
    ),
)


# ---------------------------------------------------------------- momentum and Adam


def _momentum(theta: Array, grad: Array, velocity: Array, lr: float, beta: float) -> tuple[Array, Array]:
    return optim.momentum_step(theta, grad, velocity, lr, beta)


def _momentum_cases(rng: np.random.Generator) -> list[Case]:
    def draw(shape: tuple[int, ...], dtype: Any = np.float64) -> tuple[Array, Array, Array]:
        theta, grad, velocity = (rng.normal(size=shape).astype(dtype) for _ in range(3))
        return theta, grad, velocity

    theta, grad, _ = draw((4,))
    return [
        Case(args=(*draw((4,)), 0.1, 0.9), label="float64 (4,)"),
        Case(args=(*draw((2, 3)), 0.5, 0.5), label="float64 (2, 3), lr 0.5, beta 0.5"),
        Case(args=(*draw((3,), np.float32), 0.01, 0.99), label="float32 (3,)"),
        Case(args=(theta, grad, np.zeros(4), 0.1, 0.9), label="first step, velocity 0"),
        Case(args=(theta, grad, np.ones(4), 0.1, 0.0), label="beta 0: plain SGD"),
    ]


def _after(velocity_of: Callable[..., Array]) -> Any:
    """A momentum step whose new velocity is computed by a given rule."""

    def step(theta: Array, grad: Array, velocity: Array, lr: float, beta: float) -> tuple[Array, Array]:
        v = velocity_of(grad, velocity, lr, beta)
        return theta - lr * v, v

    return step


_STATE = Tolerance(c=8, depth=4, scale=lambda theta, *rest: 1 + max(float(np.abs(a).max()) for a in (theta, *rest[:2])))

MOMENTUM_STEP = Function(
    id="momentum-step",
    chapter=8,
    section="8.2",
    title="A momentum step as torch takes it",
    prompt=(
        "Write `momentum_step(theta, grad, velocity, lr, beta)`: one step in the **sum** convention of torch. "
        "Return the new parameters and the new velocity."
    ),
    contract=(
        "`theta`, `grad`, `velocity`: arrays of one shape, float32 or float64; `lr`, `beta`: floats. Result: the tuple "
        "`(theta, velocity)`, same shape and dtype. The inputs stay as they are."
    ),
    hints=(
        "First the velocity, then the parameters: the step uses the **new** velocity.",
        "$v \\leftarrow \\beta v + g$, then $\\theta \\leftarrow \\theta - \\eta v$.",
    ),
    oracle=_momentum,
    cases=_momentum_cases,
    tolerance=_STATE,
    dtype="exact",
    mistakes=(
        Mistake(
            name="average",
            answer=_after(lambda g, v, lr, beta: beta * v + (1 - beta) * g),
            message="This is the average convention: your new gradient has the weight 1 - beta. torch adds it whole.",
        ),
        Mistake(
            name="old-velocity",
            answer=lambda theta, g, v, lr, beta: (theta - lr * v, beta * v + g),
            message="You moved with the old velocity. The new gradient takes part in this very step.",
        ),
        Mistake(
            name="rate-inside",
            answer=lambda theta, g, v, lr, beta: (theta - (beta * v + lr * g), beta * v + lr * g),
            message="You put the learning rate into the velocity. Then a change of the rate acts late; torch keeps it "
            "outside.",
        ),
        Mistake(
            name="ascent",
            answer=lambda theta, g, v, lr, beta: (theta + lr * (beta * v + g), beta * v + g),
            message="Your step goes up: it is added, where a descent step is subtracted.",
        ),
        Mistake(
            name="nesterov",
            answer=lambda theta, g, v, lr, beta: (theta - lr * (g + beta * (beta * v + g)), beta * v + g),
            message="This is Nesterov's variant, which looks one step ahead. Plain momentum is asked for.",
        ),
        Mistake(
            name="no-memory",
            answer=lambda theta, g, v, lr, beta: (theta - lr * g, g),
            message="The old velocity plays no part in your step: this is plain SGD.",
        ),
    ),
    accept=(_after(lambda g, v, lr, beta: g + v * beta),),
)


def _adam_parts(grad: Array, m: Array, v: Array, beta1: float, beta2: float) -> tuple[Array, Array]:
    return beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad * grad


def _adam(
    theta: Array, grad: Array, m: Array, v: Array, t: int, lr: float, beta1: float, beta2: float, eps: float
) -> Any:
    return optim.adam_step(theta, grad, m, v, t, lr, beta1, beta2, eps)


def _adam_variant(rule: Callable[..., Array]) -> Any:
    """Adam with the right averages and another step; the rule gets (m, v, t, beta1, beta2, eps)."""

    def step(
        theta: Array, grad: Array, m: Array, v: Array, t: int, lr: float, beta1: float, beta2: float, eps: float
    ) -> Any:
        m, v = _adam_parts(grad, m, v, beta1, beta2)
        return theta - lr * rule(m, v, t, beta1, beta2, eps), m, v

    return step


def _adam_averages(averages: Callable[..., tuple[Array, Array]]) -> Any:
    """Adam with other averages and the right step; the rule gets (grad, m, v, beta1, beta2)."""

    def step(
        theta: Array, grad: Array, m: Array, v: Array, t: int, lr: float, beta1: float, beta2: float, eps: float
    ) -> Any:
        m, v = averages(grad, m, v, beta1, beta2)
        return theta - lr * _corrected(m, v, t, beta1, beta2, eps), m, v

    return step


def _corrected(m: Array, v: Array, t: int, beta1: float, beta2: float, eps: float) -> Array:
    return (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)


def _adam_inputs(rng: np.random.Generator) -> list[tuple[str, tuple[Any, ...]]]:
    def draw(shape: tuple[int, ...], dtype: Any = np.float64, size: float = 1.0) -> tuple[Array, ...]:
        theta, grad, m = rng.normal(size=(3, *shape))
        return tuple(a.astype(dtype) for a in (theta, size * grad, size * m, size**2 * rng.uniform(0.5, 2, shape)))

    theta, grad, m, v = draw((4,))
    usual = (1e-3, 0.9, 0.999, 1e-8)
    return [
        ("float64 (4,), step 7", (theta, grad, m, v, 7, *usual)),
        ("float64 (4,), first step", (theta, grad, np.zeros(4), np.zeros(4), 1, 0.1, 0.9, 0.999, 1e-8)),
        ("float32 (2, 3), step 2", (*draw((2, 3), np.float32), 2, 0.01, 0.9, 0.95, 1e-8)),
        ("small gradients, eps 1e-3", (*draw((3,), size=1e-3), 3, 0.1, 0.8, 0.9, 1e-3)),
        ("gradient 0, state 0", (theta, np.zeros(4), np.zeros(4), np.zeros(4), 1, 0.1, 0.9, 0.999, 1e-8)),
        ("a single number, step 1000", (*draw((1,)), 1000, *usual)),
    ]


_ADAM_CONTRACT = (
    "`theta`, `grad`, `m`, `v`: arrays of one shape, float32 or float64; `t` starts at 1; the rest are floats. "
    "Result: the tuple `(theta, m, v)` of new arrays, same shape and dtype, `m` and `v` **without** bias correction."
)

ADAM_STEP = Function(
    id="adam-step",
    chapter=8,
    section="8.3",
    title="One step of Adam",
    prompt="Write `adam_step(theta, grad, m, v, t, lr, beta1, beta2, eps)`: one step of Adam with bias correction.",
    contract=_ADAM_CONTRACT,
    hints=(
        "Update `m` with the gradient and `v` with its square, each as an average with weights beta and 1 - beta.",
        "Correct copies of them for this step only: divide by $1 - \\beta_1^t$ and $1 - \\beta_2^t$.",
        "$\\varepsilon$ is added to the root, not under it. Return the uncorrected `m` and `v`.",
    ),
    points=2,
    level="medium",
    oracle=_adam,
    cases=lambda rng: [Case(args=args, label=label) for label, args in _adam_inputs(rng)],
    tolerance=_STATE,
    dtype="exact",
    mistakes=(
        Mistake(
            name="no-bias-correction",
            answer=_quiet(_adam_variant(lambda m, v, t, b1, b2, eps: m / (np.sqrt(v) + eps))),
            message="The bias correction is missing: both averages start at 0 and are too small in the first steps.",
        ),
        Mistake(
            name="only-m-corrected",
            answer=_adam_variant(lambda m, v, t, b1, b2, eps: m / (1 - b1**t) / (np.sqrt(v) + eps)),
            message="You corrected the first moment only. The second starts at 0 as well.",
        ),
        Mistake(
            name="eps-under-the-root",
            answer=_adam_variant(
                lambda m, v, t, b1, b2, eps: (m / (1 - b1**t)) / np.sqrt(v / (1 - b2**t) + eps),
            ),
            message="You added eps under the root, where it weighs far more for small gradients. It is added to the "
            "root.",
        ),
        Mistake(
            name="t-from-zero",
            answer=_adam_variant(lambda m, v, t, b1, b2, eps: _corrected(m, v, t + 1, b1, b2, eps)),
            message="Your correction is one step ahead: here t starts at 1, so the first power is beta itself.",
        ),
        Mistake(
            name="no-root",
            answer=_adam_variant(lambda m, v, t, b1, b2, eps: (m / (1 - b1**t)) / (v / (1 - b2**t) + eps)),
            message="You divided by the second moment itself. Its root has the unit of the gradient.",
        ),
        Mistake(
            name="corrected-moments-returned",
            answer=lambda theta, grad, m, v, t, lr, b1, b2, eps: (
                _adam(theta, grad, m, v, t, lr, b1, b2, eps)[0],
                _adam_parts(grad, m, v, b1, b2)[0] / (1 - b1**t),
                _adam_parts(grad, m, v, b1, b2)[1] / (1 - b2**t),
            ),
            message="You returned the corrected moments as state. The next step would correct them a second time.",
        ),
        Mistake(
            name="v-without-square",
            answer=_quiet(
                _adam_averages(lambda g, m, v, b1, b2: (b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * np.abs(g)))
            ),
            message="The second moment averages the **square** of the gradient.",
        ),
        Mistake(
            name="sums-instead-of-averages",
            answer=_adam_averages(lambda g, m, v, b1, b2: (b1 * m + g, b2 * v + g * g)),
            message="The new gradient is added with its full weight. In an average it carries 1 - beta.",
        ),
        Mistake(
            name="betas-swapped",
            answer=_adam_averages(lambda g, m, v, b1, b2: _adam_parts(g, m, v, b2, b1)),
            message="You used beta1 and beta2 the other way round in the averages.",
        ),
        Mistake(
            name="ascent",
            answer=lambda theta, grad, m, v, t, lr, b1, b2, eps: (
                2 * theta - _adam(theta, grad, m, v, t, lr, b1, b2, eps)[0],
                *_adam_parts(grad, m, v, b1, b2),
            ),
            message="Your step goes up: it is added, where a descent step is subtracted.",
        ),
    ),
    accept=(
        _adam_variant(_corrected),
        _adam_variant(
            lambda m, v, t, b1, b2, eps: (
                math.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + eps * math.sqrt(1 - b2**t))
            )
        ),
    ),
)


def _adamw(*args: Any) -> Any:
    return optim.adamw_step(*args)


def _decayed_after(
    theta: Array, g: Array, m: Array, v: Array, t: int, lr: float, b1: float, b2: float, eps: float, decay: float
) -> Any:
    new, m, v = _adam(theta, g, m, v, t, lr, b1, b2, eps)
    return new * (1 - lr * decay), m, v


ADAMW_STEP = Function(
    id="adamw-step",
    chapter=8,
    section="8.3",
    title="Decoupled weight decay",
    prompt=(
        "Write `adamw_step(theta, grad, m, v, t, lr, beta1, beta2, eps, weight_decay)`: one step of AdamW, in which "
        "the decay takes no part in the moments. Torch's order: first the decay, then Adam's step."
    ),
    contract=_ADAM_CONTRACT,
    hints=(
        "Adam's step itself stays as it is, with the plain gradient.",
        "Before it, every weight shrinks by the factor $1 - \\eta\\lambda$.",
    ),
    level="medium",
    oracle=_adamw,
    cases=lambda rng: (
        [Case(args=(*args, 0.1), label=f"{label}, decay 0.1") for label, args in _adam_inputs(rng)]
        + [Case(args=(*_adam_inputs(rng)[0][1], 0.0), label="decay 0")]
    ),
    tolerance=_STATE,
    dtype="exact",
    mistakes=(
        Mistake(
            name="decay-in-the-gradient",
            answer=lambda theta, g, *rest: _adam(theta, g + rest[-1] * theta, *rest[:-1]),
            message="You added the decay to the gradient, so it is divided by the root of v as well: Adam with L2, "
            "not AdamW.",
        ),
        Mistake(
            name="no-learning-rate",
            answer=lambda theta, g, *rest: _adam(theta * (1 - rest[-1]), g, *rest[:-1]),
            message="The decay of one step is the learning rate times lambda. Yours lacks the learning rate.",
        ),
        Mistake(
            name="no-decay",
            answer=lambda theta, g, *rest: _adam(theta, g, *rest[:-1]),
            message="This is plain Adam: the weights are not decayed.",
        ),
        Mistake(
            name="decay-after",
            answer=_decayed_after,
            message="You decayed the weights after Adam's step, so the step shrinks, too. The decay comes first.",
        ),
        Mistake(
            name="growth",
            answer=lambda theta, g, *rest: _adam(theta * (1 + rest[3] * rest[-1]), g, *rest[:-1]),
            message="Your weights grow: the sign of the decay is turned.",
        ),
    ),
    accept=(
        lambda theta, g, m, v, t, lr, b1, b2, eps, decay: (
            theta - lr * (_corrected(*_adam_parts(g, m, v, b1, b2), t, b1, b2, eps) + decay * theta),
            *_adam_parts(g, m, v, b1, b2),
        ),
    ),
)

_P, _RANKS = 7_000_000_000, 8

TRAINING_BYTES = Several(
    id="training-bytes",
    chapter=8,
    section="8.3",
    title="What seven billion parameters hold",
    prompt=(
        "A model of 7 billion parameters trains with Adam in mixed precision: 2-byte weights and gradients, fp32 "
        "master weights and moments. Answer two parts, each with a unit: `one_rank` and `zero_1`."
    ),
    contract=(
        "`one_rank`: memory of weights, gradients, master weights and moments on a single GPU. `zero_1`: the same on "
        "each of 8 ranks when ZeRO stage 1 shards the fp32 state. Activations do not count."
    ),
    hints=(
        "Write down the bytes of one parameter, kind by kind, and multiply.",
        "Stage 1 divides master weights and both moments by the number of ranks, and nothing else.",
    ),
    level="medium",
    parts={
        "one_rank": Number(
            prompt="Memory on one GPU without sharding.",
            expected=float(training_memory(_P).total),
            unit="B",
            mistakes=(
                Mistake(
                    name="state-only",
                    answer=(8 * _P, "B"),
                    message="This is m and v alone. Weights, gradients and master weights come on top.",
                ),
                Mistake(
                    name="no-master",
                    answer=(12 * _P, "B"),
                    message="You left out the fp32 master weights.",
                ),
                Mistake(name="weights-only", answer=(2 * _P, "B"), message="These are the 2-byte weights alone."),
                Mistake(
                    name="fp32-gradients",
                    answer=(18 * _P, "B"),
                    message="You took 4-byte gradients. Some systems do; here the gradients have 2 bytes.",
                ),
            ),
        ),
        "zero_1": Number(
            prompt="Memory on each of 8 ranks with ZeRO stage 1.",
            expected=float(training_memory(_P, ranks=_RANKS, zero_stage=1).total),
            unit="B",
            mistakes=(
                Mistake(
                    name="all-sharded",
                    answer=(16 * _P / _RANKS, "B"),
                    message="You divided everything by the ranks. That is stage 3; stage 1 keeps whole weights and "
                    "gradients.",
                ),
                Mistake(
                    name="stage-2",
                    answer=(float(training_memory(_P, ranks=_RANKS, zero_stage=2).total), "B"),
                    message="You sharded the gradients as well. That is stage 2.",
                ),
                Mistake(
                    name="moments-only",
                    answer=((2 + 2 + 4) * _P + 8 * _P / _RANKS, "B"),
                    message="You left the master weights whole. They belong to the fp32 state that stage 1 shards.",
                ),
            ),
        ),
    },
)


# ---------------------------------------------------------------- depth


def _first(test: Callable[[int], bool]) -> int:
    """The least n from 1 on that passes."""
    return next(n for n in range(1, 100_000) if test(n))


LAYERS_UNTIL_ZERO = Number(
    id="layers-until-zero",
    chapter=8,
    section="8.4",
    title="When the gradient is gone",
    prompt=(
        "A gradient of 1 passes layers that each scale it by 0.9. After how many layers is it 0 when the exact value "
        "$0.9^n$ is stored in float16?"
    ),
    contract="The least whole number n for which `np.float16(0.9**n)` is 0. Write a loop, or take logarithms.",
    hints=(
        "The smallest positive float16 is $2^{-24}$. What does rounding to nearest do with a number below it?",
        "Numbers down to half of the smallest one round up to it. Look for the first at or below that half.",
    ),
    checklist=(15,),
    level="medium",
    expected=_first(lambda n: np.float16(0.9**n) == 0),
    exact=True,
    mistakes=(
        Mistake(
            name="below-the-smallest",
            answer=_first(lambda n: 0.9**n < 2.0**-24),
            message="Here the value falls below the smallest float16. Rounding to nearest still rounds it up.",
        ),
        Mistake(
            name="normal-numbers",
            answer=_first(lambda n: 0.9**n < float(np.finfo(np.float16).tiny)),
            message="Here the normal numbers end. The subnormal ones below reach further, with fewer digits.",
        ),
        Mistake(
            name="float32",
            answer=_first(lambda n: np.float32(0.9**n) == 0),
            message="This is right for float32, whose exponents reach much further down.",
        ),
        Mistake(
            name="one-early",
            answer=_first(lambda n: np.float16(0.9**n) == 0) - 1,
            message="One layer too few: print the float16 of your n and of the next.",
        ),
    ),
)


def _residual_backward(x: Array, W: Array, dy: Array) -> tuple[Array, Array]:
    """Gradients of y = x + tanh(x W)."""
    da = dy * (1 - np.tanh(x @ W) ** 2)
    return dy + da @ W.T, x.T @ da


def _residual_cases(rng: np.random.Generator) -> list[Case]:
    def draw(rows: int, width: int, dtype: Any = np.float64, size: float = 0.7) -> tuple[Array, Array, Array]:
        shapes = ((rows, width), (width, width), (rows, width))
        x, W, dy = (rng.normal(0, s, shape).astype(dtype) for shape, s in zip(shapes, (1, size, 1), strict=True))
        return x, W, dy

    return [
        Case(args=draw(3, 4), label="float64, x (3, 4)"),
        Case(args=draw(4, 4), label="float64, x (4, 4), square"),
        Case(args=draw(2, 3, np.float32), label="float32, x (2, 3)"),
        Case(args=draw(1, 5), label="float64, one row"),
        Case(args=draw(3, 4, size=4.0), label="float64, large weights, saturated"),
    ]


def _residual(dx: Callable[..., Array], dW: Callable[..., Array]) -> Any:
    """A backward pass from rules that get (x, W, dy, slope)."""

    def backward(x: Array, W: Array, dy: Array) -> tuple[Array, Array]:
        slope = 1 - np.tanh(x @ W) ** 2
        return dx(x, W, dy, slope), dW(x, W, dy, slope)

    return backward


RESIDUAL_BACKWARD = Function(
    id="residual-backward",
    chapter=8,
    section="8.5",
    title="Backward through a residual block",
    prompt=(
        "The block is $y = x + \\tanh(xW)$. Write `backward(x, W, dy)`: the gradients with respect to `x` and `W` for "
        "the incoming gradient `dy`."
    ),
    contract=(
        "`x`, `dy`: (B, n), `W`: (n, n), float32 or float64. Result: the tuple `(dx, dW)`, shapes of `x` and `W`, "
        "same dtype."
    ),
    hints=(
        "Name the parts: $a = xW$, $t = \\tanh(a)$, $y = x + t$. Start at $y$: where does `dy` go?",
        "Both terms of the sum receive `dy`. The branch multiplies it by the slope $1 - t^2$.",
        "With `da = dy * (1 - t**2)`: `dW = x.T @ da`, and `dx` is the sum of two paths.",
    ),
    checklist=(11, 14),
    points=2,
    level="medium",
    oracle=_residual_backward,
    cases=_residual_cases,
    tolerance=Tolerance(
        c=8,
        depth=lambda x, W, dy: sum(x.shape) + 4,
        scale=lambda x, W, dy: (1 + np.abs(x).max()) * (1 + np.abs(W).max()) * (1 + np.abs(dy).max()),
    ),
    dtype="exact",
    mistakes=(
        Mistake(
            name="no-identity",
            answer=_residual(lambda x, W, dy, s: (dy * s) @ W.T, lambda x, W, dy, s: x.T @ (dy * s)),
            message="The shortcut is missing from dx: x reaches y on two paths, and gradients of both add up.",
        ),
        Mistake(
            name="identity-only",
            answer=_residual(lambda x, W, dy, s: dy.copy(), lambda x, W, dy, s: x.T @ (dy * s)),
            message="Your dx has the shortcut alone. The branch sends a gradient back to x as well.",
        ),
        Mistake(
            name="no-slope",
            answer=_residual(lambda x, W, dy, s: dy + dy @ W.T, lambda x, W, dy, s: x.T @ dy),
            message="The slope of tanh is missing: the gradient passes the activation unchanged.",
        ),
        Mistake(
            name="not-transposed",
            answer=_residual(lambda x, W, dy, s: dy + (dy * s) @ W, lambda x, W, dy, s: x.T @ (dy * s)),
            message="In dx the weight is not transposed. Backward, the product runs from outputs to inputs.",
        ),
        Mistake(
            name="slope-on-both-paths",
            answer=_residual(lambda x, W, dy, s: dy * s + (dy * s) @ W.T, lambda x, W, dy, s: x.T @ (dy * s)),
            message="You multiplied the shortcut by the slope of tanh. Nothing stands on that path.",
        ),
        Mistake(
            name="slope-of-a-square",
            answer=_residual(
                lambda x, W, dy, s: dy + (dy * (1 - np.tanh(x @ W))) @ W.T,
                lambda x, W, dy, s: x.T @ (dy * (1 - np.tanh(x @ W))),
            ),
            message="The derivative of tanh is one minus its square. Your square is missing.",
        ),
    ),
    accept=(
        lambda x, W, dy: (dy @ np.eye(x.shape[1], dtype=x.dtype) + (dy / np.cosh(x @ W) ** 2) @ W.T,
                          np.einsum("bi,bj->ij", x, dy / np.cosh(x @ W) ** 2)),
    ),
)  # fmt: skip

EXPLAIN_RESIDUAL = Written(
    id="explain-residual",
    chapter=8,
    section="8.5",
    title="Why a residual connection helps the gradient",
    prompt=(
        "In three to six sentences: why does $y = x + F(x)$ help a gradient through a hundred layers, and what does "
        "it not promise?"
    ),
    hints=(
        "Write the Jacobian of one block, then multiply out the product of several.",
        "What happens to the size of the signal when each block adds a term of the same size?",
    ),
    checklist=(14,),
    level="medium",
    rubric=(
        "States the Jacobian I + ∂F/∂x of a block.",
        "Says that the product over blocks contains a term (path) that passes through no weight, so the gradient does "
        "not vanish with the product of the branches.",
        "Says that it is no guarantee: the product may still grow, or shrink where I and ∂F/∂x cancel.",
        "Names a remedy for the growth: a scaled branch, or a normalised input of the branch.",
    ),
    model=(
        "The Jacobian of a block is I + ∂F/∂x, so the gradient arrives at x once unchanged, once through the branch. "
        "Multiplied out over all blocks, the product holds a term I that meets no weight: even if every branch "
        "shrinks the gradient, this path brings it to the first layer. It promises no bound. If each block adds a term "
        "of the size of its input, signal and gradient grow exponentially with depth, and where ∂F/∂x is near -I a "
        "block still loses the gradient. So the branch is scaled down at the start, or reads a normalised input."
    ),
)


# ---------------------------------------------------------------- initialisation


def _init_std(shape: tuple[int, int], activation: str) -> float:
    d_in, d_out = shape
    return optim.kaiming_std(d_in) if activation == "relu" else optim.xavier_std(d_in, d_out)


INIT_STD = Function(
    id="init-std",
    chapter=8,
    section="8.6",
    title="An initial standard deviation",
    prompt=(
        "Write `init_std(shape, activation)`: the standard deviation of a weight `W` of that shape, by Xavier's rule "
        "for `'tanh'` and by Kaiming's for `'relu'`."
    ),
    contract=(
        "`shape`: the tuple (d_in, d_out), as the book stores weights; `activation`: `'tanh'` or `'relu'`. Result: "
        "a float."
    ),
    hints=(
        "Both rules state a **variance**.",
        "Xavier looks at both directions, Kaiming at the inputs only. Which axis holds the inputs?",
    ),
    oracle=_init_std,
    cases=lambda rng: [
        Case(args=((512, 512), "tanh"), label="(512, 512), tanh"),
        Case(args=((512, 512), "relu"), label="(512, 512), relu"),
        Case(args=((1024, 4096), "tanh"), label="(1024, 4096), tanh"),
        Case(args=((1024, 4096), "relu"), label="(1024, 4096), relu"),
        Case(args=((int(rng.integers(2, 900)), 1), "relu"), label="one output, relu"),
        Case(args=((3, int(rng.integers(2, 900))), "tanh"), label="three inputs, tanh"),
    ],
    tolerance=Tolerance(c=8),
    mistakes=(
        Mistake(
            name="variance",
            answer=lambda shape, activation: _init_std(shape, activation) ** 2,
            message="This is the variance. The standard deviation is its root.",
        ),
        Mistake(
            name="axes-swapped",
            answer=lambda shape, activation: _init_std(shape[::-1], activation),
            message="You took the fan-in from the last axis, where torch keeps it. The book's weights are "
            "(d_in, d_out).",
        ),
        Mistake(
            name="relu-without-gain",
            answer=lambda shape, activation: shape[0] ** -0.5 if activation == "relu" else _init_std(shape, activation),
            message="For ReLU you kept the variance of the inputs and forgot the half that ReLU sets to 0.",
        ),
        Mistake(
            name="xavier-for-all",
            answer=lambda shape, activation: optim.xavier_std(*shape),
            message="You used Xavier's rule for both. For ReLU, Kaiming's looks at the inputs only.",
        ),
        Mistake(
            name="kaiming-for-all",
            answer=lambda shape, activation: optim.kaiming_std(shape[0]),
            message="You used Kaiming's rule for both. Tanh keeps both signs, so Xavier's is due.",
        ),
        Mistake(
            name="uniform-bound",
            answer=lambda shape, activation: math.sqrt(3) * _init_std(shape, activation),
            message="This is the bound of a uniform distribution with the right variance. The standard deviation is "
            "smaller by the root of 3.",
        ),
    ),
    accept=(lambda shape, activation: np.sqrt(2 / (shape[0] if activation == "relu" else shape[0] + shape[1])),),
)


# ---------------------------------------------------------------- normalisation


def _norm_scale(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> float:
    """Rounding of x, carried through the division by the smallest deviation of a row."""
    r = 1 / np.sqrt(np.var(np.asarray(x, np.float64), axis=-1) + eps)
    return float(np.abs(gamma).max() * max(1.0, np.abs(x).max() * r.max()) + np.abs(beta).max())


def _layer_norm_cases(rng: np.random.Generator) -> list[Case]:
    def draw(shape: tuple[int, ...], dtype: Any = np.float64, mean: float = 1.0) -> tuple[Array, Array, Array]:
        x, gamma, beta = 2 * rng.normal(size=shape) + mean, 1 + rng.normal(size=shape[-1]), rng.normal(size=shape[-1])
        return x.astype(dtype), gamma.astype(dtype), beta.astype(dtype)

    _, gamma, beta = draw((2, 4))
    flat = np.array([[7.0, 7.0, 7.0, 7.0], [1.0, 2.0, 3.0, 4.0]])
    return [
        Case(args=draw((3, 5)), label="float64 (3, 5)"),
        Case(args=draw((4, 4)), label="float64 (4, 4), square"),
        Case(args=draw((2, 3, 8), np.float32), label="float32 (2, 3, 8)"),
        Case(args=draw((6,)), label="float64 (6,), one axis"),
        Case(args=(*draw((3, 4)), 0.5), label="float64 (3, 4), eps 0.5"),
        Case(args=(flat, gamma, beta), label="a row of equal numbers"),
        Case(args=draw((2, 8), np.float32, mean=10_000.0), label="float32 (2, 8), mean 10,000"),
    ]


def _ln(mean: Any = None, spread: Any = None, affine: Any = None) -> Any:
    """A LayerNorm with one part replaced."""

    def norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
        with np.errstate(all="ignore"):
            centred = x - (mean(x) if mean else x.mean(axis=-1, keepdims=True))
            below = spread(x, eps) if spread else np.sqrt(x.var(axis=-1, keepdims=True) + x.dtype.type(eps))
            normalised = (centred / below).astype(x.dtype)
            return affine(normalised, gamma, beta) if affine else normalised * gamma + beta

    return norm


LAYER_NORM = Function(
    id="layer-norm",
    chapter=8,
    section="8.7",
    title="LayerNorm",
    prompt="Write `layer_norm(x, gamma, beta, eps=1e-5)` over the **last** axis, for any leading axes.",
    contract=(
        "`x`: float32 or float64, H ≥ 2 entries in the last axis; `gamma`, `beta`: (H,), same dtype. Result: shape and "
        "dtype of `x`. A row of equal numbers gives `beta`; a large mean must not spoil the variance."
    ),
    hints=(
        "Subtract the mean first; the variance is the mean of the squares of what is left.",
        "The variance divides by H. `eps` is added to the variance, under the root.",
        "`keepdims=True` keeps one statistic for each row, so that it lines up with the row.",
    ),
    points=2,
    level="medium",
    oracle=norms.layer_norm,
    cases=_layer_norm_cases,
    tolerance=Tolerance(c=4, depth=lambda x, *rest: x.shape[-1], scale=_norm_scale),
    dtype="exact",
    mistakes=(
        Mistake(
            name="divided-by-h-minus-1",
            answer=_ln(spread=lambda x, eps: np.sqrt(x.var(axis=-1, ddof=1, keepdims=True) + x.dtype.type(eps))),
            message="Your variance divides by H - 1 (as torch.var does by default). LayerNorm divides by H.",
        ),
        Mistake(
            name="eps-outside",
            answer=_ln(spread=lambda x, eps: x.std(axis=-1, keepdims=True) + x.dtype.type(eps)),
            message="You added eps to the standard deviation. It belongs under the root, to the variance.",
        ),
        Mistake(
            name="no-eps",
            answer=_ln(spread=lambda x, eps: x.std(axis=-1, keepdims=True)),
            message="Without eps a row of equal numbers is 0/0.",
        ),
        Mistake(
            name="no-root",
            answer=_ln(spread=lambda x, eps: x.var(axis=-1, keepdims=True) + x.dtype.type(eps)),
            message="You divided by the variance. Its root has the unit of x.",
        ),
        Mistake(
            name="axis-0",
            answer=_ln(
                mean=lambda x: x.mean(axis=0, keepdims=True),
                spread=lambda x, eps: np.sqrt(x.var(axis=0, keepdims=True) + x.dtype.type(eps)),
            ),
            message="Your statistics run over axis 0, the batch. LayerNorm looks at the last axis of one token only.",
        ),
        Mistake(
            name="whole-array",
            answer=_ln(mean=lambda x: x.mean(), spread=lambda x, eps: np.sqrt(x.var() + x.dtype.type(eps))),
            message="You used one mean and one variance for the whole array. Each row has its own.",
        ),
        Mistake(
            name="mean-not-subtracted",
            answer=_ln(
                mean=lambda x: x.dtype.type(0),
                spread=lambda x, eps: np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps)),
            ),
            message="This is RMSNorm: the mean is not taken out.",
            section="8.8",
        ),
        Mistake(
            name="short-variance",
            answer=_ln(
                spread=lambda x, eps: np.sqrt(
                    (x * x).mean(axis=-1, keepdims=True) - x.mean(axis=-1, keepdims=True) ** 2 + x.dtype.type(eps)
                )
            ),
            message="You computed the variance as mean of squares minus square of mean. With a large mean, two large "
            "numbers cancel and little is left, or less than nothing.",
        ),
        Mistake(
            name="no-gamma",
            answer=_ln(affine=lambda n, gamma, beta: n + beta),
            message="The scale gamma is not applied.",
        ),
        Mistake(
            name="no-beta",
            answer=_ln(affine=lambda n, gamma, beta: n * gamma),
            message="The shift beta is not added.",
        ),
        Mistake(
            name="beta-scaled",
            answer=_ln(affine=lambda n, gamma, beta: (n + beta) * gamma),
            message="You scaled beta with gamma. The shift comes after the scale.",
        ),
    ),
    accept=(
        _ln(),
        lambda x, gamma, beta, eps=1e-5: np.apply_along_axis(
            lambda row: (row - row.mean()) / math.sqrt(row.var() + eps) * gamma + beta, -1, x
        ).astype(x.dtype),
    ),
)


def _passes(launches: list[norms.Kernel], size: int) -> int:
    """How often a tensor of the size of x is read or written."""
    return sum(kernel.reads // size + kernel.writes // size for kernel in launches)


_ROWS, _WIDTH = np.ones((64, 128)), np.ones(128)
_NAIVE = _passes(norms.rms_norm_naive(_ROWS, _WIDTH)[1], _ROWS.size)
_FUSED = _passes(norms.rms_norm_fused(_ROWS, _WIDTH)[1], _ROWS.size)
_TENSOR = int(tensor_bytes((8, 2048, 4096), "bfloat16"))

NORM_TRAFFIC = Number(
    id="norm-traffic",
    chapter=8,
    section="8.7",
    title="What fusing a norm saves",
    prompt=(
        "RMSNorm of x (8, 2048, 4096) in bfloat16 runs as five kernels: square, mean, inverse root, multiply by it, "
        "multiply by gamma. How many bytes less does one fused kernel move? Answer with a unit."
    ),
    contract="Count tensors of the size of x only, read or written; gamma and one number a row do not count.",
    hints=(
        "Go through the kernels: which read a whole tensor, which write one?",
        "A fused kernel reads x once and writes y once.",
        "Multiply the difference in passes by the bytes of one tensor.",
    ),
    level="medium",
    expected=float((_NAIVE - _FUSED) * _TENSOR),
    unit="B",
    mistakes=(
        Mistake(
            name="naive-total",
            answer=(_NAIVE * _TENSOR, "B"),
            message="This is all that the five kernels move. What remains with one kernel must be taken off.",
        ),
        Mistake(
            name="writes-forgotten",
            answer=(3 * _TENSOR, "B"),
            message="You counted only reads (or only writes). Every intermediate is written and read back.",
        ),
        Mistake(
            name="layer-norm",
            answer=(10 * _TENSOR, "B"),
            message="This is the saving for LayerNorm, which has more steps.",
        ),
        Mistake(
            name="elements",
            answer=((_NAIVE - _FUSED) * _TENSOR / 2, "B"),
            message="This is the number of elements. Each has two bytes.",
        ),
        Mistake(
            name="fused-total",
            answer=(_FUSED * _TENSOR, "B"),
            message="This is what the fused kernel moves. The question is what it saves.",
        ),
    ),
)


def _rms_backward_cases(rng: np.random.Generator) -> list[Case]:
    def draw(shape: tuple[int, ...], dtype: Any = np.float64) -> tuple[Array, Array, Array]:
        x, gamma, dy = rng.normal(size=shape), 1 + rng.normal(size=shape[-1]), rng.normal(size=shape)
        return x.astype(dtype), gamma.astype(dtype), dy.astype(dtype)

    return [
        Case(args=(*draw((3, 5)), 1e-5), label="float64 (3, 5)"),
        Case(args=(*draw((4, 4)), 1e-5), label="float64 (4, 4), square"),
        Case(args=(*draw((2, 3, 4)), 1e-5), label="float64 (2, 3, 4)"),
        Case(args=(*draw((2, 6), np.float32), 1e-5), label="float32 (2, 6)"),
        Case(args=(*draw((1, 5)), 0.5), label="float64 (1, 5), eps 0.5"),
    ]


def _rms(dx: Callable[..., Array], dgamma: Callable[..., Array] | None = None) -> Any:
    """A backward pass from rules that get (x, gamma, dy, x̂, r)."""

    def backward(x: Array, gamma: Array, dy: Array, eps: float) -> tuple[Array, Array]:
        r = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps))
        n = x * r
        leading = tuple(range(x.ndim - 1))
        return dx(x, gamma, dy, n, r), dgamma(x, gamma, dy, n, r) if dgamma else (dy * n).sum(axis=leading)

    return backward


def _mean(a: Array) -> Array:
    return np.asarray(a.mean(axis=-1, keepdims=True))


def _rms_dx(x: Array, gamma: Array, dy: Array, n: Array, r: Array) -> Array:
    return np.asarray(r * (dy * gamma - n * _mean(dy * gamma * n)))


RMS_NORM_BACKWARD = Function(
    id="rms-norm-backward",
    chapter=8,
    section="8.8",
    title="The backward pass of RMSNorm",
    prompt=(
        "Write `backward(x, gamma, dy, eps)`: the gradients of $y = \\gamma \\odot x / \\sqrt{\\mathrm{mean}(x^2) + "
        "\\varepsilon}$ with respect to `x` and `gamma`. Derive them before you write."
    ),
    contract=(
        "`x`, `dy`: (..., H), any number of leading axes, at least one; `gamma`: (H,); one dtype, float32 or float64. "
        "Result: the tuple `(dx, dgamma)`, shapes (..., H) and (H,), same dtype."
    ),
    hints=(
        "Let $r$ be one over the root and $\\hat x = r x$. First $g = dy \\odot \\gamma$, the gradient of $\\hat x$.",
        "$x_j$ acts on every $\\hat x_i$ of its row through $r$: $\\partial r / \\partial x_j = -r^3 x_j / H$.",
        "What is left is a projection: $g$ minus $\\hat x$ times a mean over the row, all times $r$.",
    ),
    checklist=(11,),
    points=3,
    level="hard",
    oracle=norms.rms_norm_backward,
    cases=_rms_backward_cases,
    tolerance=Tolerance(
        c=8,
        depth=lambda x, *rest: x.size,
        scale=lambda x, gamma, dy, eps: float(
            np.abs(dy).max()
            * (1 + np.abs(gamma).max())
            * max(1.0, (1 / np.sqrt((np.asarray(x, np.float64) ** 2).mean(-1) + eps)).max()) ** 2
        ),
    ),
    dtype="exact",
    mistakes=(
        Mistake(
            name="root-held-fixed",
            answer=_rms(lambda x, gamma, dy, n, r: dy * gamma * r),
            message="You treated the root mean square as a constant. It depends on every entry of the row.",
        ),
        Mistake(
            name="sum-for-mean",
            answer=_rms(lambda x, gamma, dy, n, r: r * (dy * gamma - n * (dy * gamma * n).sum(-1, keepdims=True))),
            message="In the term that is subtracted you summed over the row, where the mean is due: the derivative of "
            "a mean carries 1/H.",
        ),
        Mistake(
            name="gamma-too-late",
            answer=_rms(lambda x, gamma, dy, n, r: r * (dy - n * _mean(dy * n)) * gamma),
            message="You multiplied by gamma at the end. It belongs to the gradient before the mean is taken.",
        ),
        Mistake(
            name="no-gamma",
            answer=_rms(lambda x, gamma, dy, n, r: r * (dy - n * _mean(dy * n))),
            message="The scale is missing from dx: the gradient of the normalised row is dy times gamma.",
        ),
        Mistake(
            name="layer-norm",
            answer=_rms(lambda x, gamma, dy, n, r: _rms_dx(x, gamma, dy, n, r) - r * _mean(dy * gamma)),
            message="You also took out the mean of the gradient. That term belongs to LayerNorm.",
            section="8.7",
        ),
        Mistake(
            name="no-outer-r",
            answer=_rms(lambda x, gamma, dy, n, r: dy * gamma - n * _mean(dy * gamma * n)),
            message="The factor r in front is missing.",
        ),
        Mistake(
            name="dgamma-of-x",
            answer=_rms(_rms_dx, lambda x, gamma, dy, n, r: (dy * x).sum(axis=tuple(range(x.ndim - 1)))),
            message="For dgamma you multiplied by x. gamma multiplies the normalised row.",
        ),
        Mistake(
            name="dgamma-mean",
            answer=_rms(_rms_dx, lambda x, gamma, dy, n, r: (dy * n).mean(axis=tuple(range(x.ndim - 1)))),
            message="You averaged dgamma over the tokens. Every token uses the same gamma, so its gradients add up.",
        ),
        Mistake(
            name="dgamma-one-axis",
            answer=_rms(_rms_dx, lambda x, gamma, dy, n, r: (dy * n).sum(axis=0)),
            message="Your dgamma is summed over the first axis only. All leading axes are tokens.",
        ),
    ),
    accept=(_rms(_rms_dx), _rms(lambda x, gamma, dy, n, r: r * dy * gamma - r**3 * x * _mean(dy * gamma * x))),
)


# ---------------------------------------------------------------- clipping


def _clip(grads: list[Array], max_norm: float) -> list[Array]:
    return optim.clip_by_global_norm(grads, max_norm)[0]


def _clip_cases(rng: np.random.Generator) -> list[Case]:
    def draw(*shapes: tuple[int, ...], dtype: Any = np.float64, size: float = 1.0) -> list[Array]:
        return [(size * rng.normal(size=shape)).astype(dtype) for shape in shapes]

    return [
        Case(args=([np.array([3.0]), np.array([4.0])], 1.0), label="[3] and [4], limit 1"),
        Case(args=(draw((2, 3), (4,), (1, 2, 2)), 0.5), label="three shapes, limit 0.5"),
        Case(args=(draw((3,), (2,), size=0.01), 1.0), label="norm below the limit"),
        Case(args=(draw((5,), (2, 2), dtype=np.float32, size=50.0), 2.0), label="float32, limit 2"),
        Case(args=([np.full(3, 300, np.float16), np.full((2, 2), -200, np.float16)], 5.0), label="float16, near 300"),
        Case(args=([np.zeros(3), np.zeros((2, 2))], 1.0), label="all zero"),
        Case(args=(draw((6,)), 0.1), label="one tensor"),
    ]


def _scaled(factor: Callable[..., float]) -> Any:
    """Clipping with another factor for all tensors; the rule gets (norm, limit, grads)."""

    def clip(grads: list[Array], max_norm: float) -> list[Array]:
        with np.errstate(all="ignore"):
            f = factor(optim.global_norm(grads), max_norm, grads)
            return [g * g.dtype.type(f) for g in grads]

    return clip


def _least(norm: float, c: float) -> float:
    return min(1.0, c / norm) if norm else 1.0


def _quiet_clip(clip: Callable[[list[Array], float], list[Array]]) -> Any:
    """A wrong clipping whose squares overflow in float16, without NumPy's warning; dtypes are kept."""

    def quiet(grads: list[Array], c: float) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(v, g.dtype) for v, g in zip(clip(grads, c), grads, strict=True)]

    return quiet


def _by_concatenation(grads: list[Array], c: float) -> list[Array]:
    """Another right way: one long float64 vector, its norm, then the pieces again."""
    norm = float(np.linalg.norm(np.concatenate([g.astype(np.float64).ravel() for g in grads])))
    return [(g.astype(np.float64) * _least(norm, c)).astype(g.dtype) for g in grads]


CLIP_GLOBAL_NORM = Function(
    id="clip-global-norm",
    chapter=8,
    section="8.9",
    title="Clipping by the global norm",
    prompt=(
        "Write `clip(grads, max_norm)`: the list of gradients, all scaled by $\\min(1, c/\\lVert g \\rVert)$, where "
        "the norm is that of all of them together."
    ),
    contract=(
        "`grads`: list of arrays of any shapes, float16, float32 or float64, finite; `max_norm`: a positive float. "
        "Result: a list of new arrays, same shapes and dtypes. If all are 0 they stay 0. Squares are summed in float64."
    ),
    hints=(
        "Sum the squares over all arrays before you take one root.",
        "One factor for every array, and never above 1. What if the norm is 0?",
        "`np.sum(g.astype(np.float64) ** 2)` does not overflow where float16 does.",
    ),
    checklist=(4,),
    points=2,
    level="medium",
    oracle=_clip,
    cases=_clip_cases,
    tolerance=Tolerance(c=4, depth=lambda grads, c: sum(g.size for g in grads)),
    dtype="exact",
    mistakes=(
        Mistake(
            name="tensor-by-tensor",
            answer=lambda grads, c: [_clip([g], c)[0] for g in grads],
            message="You clipped every tensor by its own norm, which turns the common direction. One factor is "
            "used for all.",
        ),
        Mistake(
            name="tensor-by-tensor-narrow",
            answer=_quiet_clip(
                lambda grads, c: [g * min(1.0, c / max(float(np.linalg.norm(g)), 1e-30)) for g in grads]
            ),
            message="You clipped every tensor by its own norm, which turns the common direction. One factor is "
            "used for all, from squares that are summed in float64.",
        ),
        Mistake(
            name="by-value",
            answer=lambda grads, c: [np.clip(g, -c, c).astype(g.dtype) for g in grads],
            message="You clipped every number by itself. That changes the direction of the step.",
        ),
        Mistake(
            name="always-scaled",
            answer=_scaled(lambda norm, c, grads: c / norm if norm else 1.0),
            message="You also scale gradients **up** to the limit. The factor is never above 1.",
        ),
        Mistake(
            name="sum-of-norms",
            answer=_scaled(lambda norm, c, grads: _least(sum(optim.global_norm([g]) for g in grads), c)),
            message="You added the norms of the tensors. Norms do not add; their squares do.",
        ),
        Mistake(
            name="no-root",
            answer=_scaled(lambda norm, c, grads: _least(norm**2, c)),
            message="You compared the sum of squares with the limit. The norm is its root.",
        ),
        Mistake(
            name="to-length-one",
            answer=_scaled(lambda norm, c, grads: 1 / norm if norm > c else 1.0),
            message="You scaled to length 1. The limit is the length that a clipped gradient has.",
        ),
        Mistake(
            name="zero-by-zero",
            answer=_scaled(lambda norm, c, grads: float(np.minimum(1.0, np.float64(c) / norm)) if norm else math.nan),
            message="With a norm of 0 your factor is no number. A gradient of 0 stays 0.",
        ),
        Mistake(
            name="squares-overflow",
            answer=_scaled(
                lambda norm, c, grads: float(
                    min(1.0, c / max(1e-30, float(np.sqrt(sum(np.sum(g * g, dtype=g.dtype) for g in grads)))))
                )
            ),
            message="Your squares overflow in float16, so the norm is infinite and every gradient becomes 0. Sum them "
            "in a wider dtype.",
        ),
        Mistake(
            name="epsilon-in-the-divisor",
            answer=_scaled(lambda norm, c, grads: min(1.0, c / (norm + 1e-6))),
            message="You added a small number to the norm, as torch does. The contract here is the plain formula.",
        ),
        Mistake(
            name="mean-of-squares",
            answer=_scaled(lambda norm, c, grads: _least(norm / math.sqrt(sum(g.size for g in grads)), c)),
            message="You took the mean of the squares. The norm has their sum.",
        ),
    ),
    accept=(
        _scaled(lambda norm, c, grads: _least(norm, c)),
        lambda grads, c: _by_concatenation(grads, c),
    ),
)


class _WaitsForOthers(Exception):
    """Raised by the recording all-reduce once it knows a rank's contribution."""


def _on_all_ranks(clip_on_rank: Any, shards: list[list[Array]], max_norm: float) -> list[Any]:
    """Call a reader's function once a rank, with an all-reduce that adds what every rank contributes.

    A rank that never calls the collective leaves all others without a result, which shows as NaN.
    """
    contributions: list[float] = []

    def record(value: Any) -> Any:
        contributions.append(float(value))
        raise _WaitsForOthers

    for mine in shards:
        try:
            clip_on_rank(mine, record, max_norm)
        except _WaitsForOthers:
            continue
    total = math.fsum(contributions) if len(contributions) == len(shards) else math.nan
    return [clip_on_rank(mine, lambda value: total, max_norm) for mine in shards]


def _clip_on_rank(mine: list[Array], all_reduce: Any, max_norm: float) -> list[Array]:
    norm = math.sqrt(all_reduce(optim.global_norm(mine) ** 2))
    return [g * g.dtype.type(_least(norm, max_norm)) for g in mine]


def _rank_variant(sent: Callable[..., float], norm_of: Callable[[float], float] = math.sqrt) -> Any:
    """Clipping on a rank that contributes something else, or reads the sum in another way."""

    def clip(mine: list[Array], all_reduce: Any, max_norm: float) -> list[Array]:
        norm = norm_of(all_reduce(sent(mine)))
        return [g * g.dtype.type(_least(norm, max_norm)) for g in mine]

    return clip


def _sharded_cases(rng: np.random.Generator) -> list[Case]:
    def draw(*shapes: list[tuple[int, ...]], dtype: Any = np.float64, size: float = 1.0) -> list[list[Array]]:
        return [[(size * rng.normal(size=s)).astype(dtype) for s in rank] for rank in shapes]

    return [
        Case(args=([[np.array([3.0])], [np.array([4.0])]], 1.0), label="two ranks, [3] and [4], limit 1"),
        Case(args=(draw([(2, 3), (4,)], [(5,)], [(1, 2)]), 0.5), label="three ranks, limit 0.5"),
        Case(args=(draw([(3,)], [], [(2, 2), (2,)]), 0.7), label="three ranks, the second holds nothing"),
        Case(args=(draw([(3,)], [(2,)], size=0.01), 1.0), label="two ranks, norm below the limit"),
        Case(args=(draw([(4,)], [(3, 2)], dtype=np.float32, size=20.0), 2.0), label="float32, two ranks"),
    ]


SHARDED_CLIP = Function(
    id="sharded-clip",
    chapter=8,
    section="8.9",
    title="Clipping when every rank holds a shard",
    prompt=(
        "Write `clip_on_rank(mine, all_reduce, max_norm)`, which every rank calls with its own gradients. "
        "`all_reduce(value)` takes one number and returns its sum over all ranks; use it exactly once."
    ),
    contract=(
        "`mine`: list of arrays, float32 or float64, maybe empty. Result: the list of this rank's gradients, clipped "
        "by the global norm, shapes and dtypes kept. If one rank does not call `all_reduce`, the judge gives NaN to "
        "the others; in reality they would wait for ever."
    ),
    hints=(
        "Which number of each rank adds up to something from which the global norm follows?",
        "Sum the squares of your own gradients, reduce that number, and take the root after.",
        "A rank without gradients contributes 0, and must still make the call.",
    ),
    checklist=(4,),
    points=3,
    level="hard",
    oracle=_clip_on_rank,
    call=_on_all_ranks,
    cases=_sharded_cases,
    tolerance=Tolerance(c=8, depth=lambda shards, c: sum(g.size for rank in shards for g in rank)),
    dtype="exact",
    mistakes=(
        Mistake(
            name="own-norm",
            answer=lambda mine, all_reduce, c: (all_reduce(0.0), _clip(mine, c) if mine else [])[1],
            message="Every rank clipped by its own norm, so the shards are scaled differently and the direction turns.",
        ),
        Mistake(
            name="sum-of-norms",
            answer=_rank_variant(lambda mine: optim.global_norm(mine), lambda total: total),
            message="You added the norms of the ranks. Norms do not add; their squares do.",
        ),
        Mistake(
            name="root-before-the-sum",
            answer=_rank_variant(lambda mine: optim.global_norm(mine)),
            message="You took the root before the all-reduce and again after it. Reduce the sum of squares.",
        ),
        Mistake(
            name="no-root",
            answer=_rank_variant(lambda mine: optim.global_norm(mine) ** 2, lambda total: total),
            message="You compared the sum of squares with the limit. The norm is its root.",
        ),
        Mistake(
            name="empty-rank-leaves",
            answer=lambda mine, all_reduce, c: _clip_on_rank(mine, all_reduce, c) if mine else [],
            message="A rank without gradients returns before the collective. The others would wait for ever.",
        ),
        Mistake(
            name="scaled-up",
            answer=lambda mine, all_reduce, c: [
                g * g.dtype.type(c / math.sqrt(total))
                for total in [all_reduce(optim.global_norm(mine) ** 2)]
                for g in mine
            ],
            message="You also scale gradients up to the limit. The factor is never above 1.",
        ),
    ),
    accept=(
        _rank_variant(lambda mine: sum(float(np.sum(g.astype(np.float64) ** 2)) for g in mine)),
        _rank_variant(lambda mine: float(sum(np.vdot(g.astype(float), g.astype(float)) for g in mine))),
    ),
)


# ---------------------------------------------------------------- questions inside the chapter


def _chapter(section: str, **rest: Any) -> dict[str, Any]:
    return {"chapter": 8, "section": section, "place": "chapter", **rest}


BATCH_FOUR_TIMES = Number(
    **_chapter("8.1"),
    id="batch-four-times",
    title="Predict: four times the batch",
    prompt="The batch grows from 64 to 256. By which factor does the **standard deviation** of its gradient shrink?",
    hints=("The variance is divided by four.", "The standard deviation is the root of the variance."),
    checklist=(8,),
    expected=math.sqrt(256 / 64),
    mistakes=(
        Mistake(name="variance", answer=4.0, message="This is the factor of the variance. Take its root."),
        Mistake(
            name="inverse", answer=0.5, message="You gave what is left. The question is by which factor it shrinks."
        ),
        Mistake(name="none", answer=1.0, message="More samples give a quieter mean."),
    ),
)

TERMINAL_VELOCITY = Number(
    **_chapter("8.2"),
    id="momentum-terminal-velocity",
    title="Predict: a constant gradient",
    prompt="Every gradient is 1 and $\\beta = 0.9$. Which velocity does the sum convention approach?",
    hints=("At the end the velocity no longer changes: $v = 0.9 v + 1$.", "Solve this equation for v."),
    expected=1 / (1 - 0.9),
    mistakes=(
        Mistake(name="average", answer=1.0, message="This is the limit of the average convention."),
        Mistake(name="two-terms", answer=1.9, message="This is the second step. The sum goes on."),
        Mistake(
            name="beta-sum", answer=0.9 / (1 - 0.9), message="You left out the newest gradient, whose weight is 1."
        ),
    ),
)

ADAM_FIRST_STEP = Number(
    **_chapter("8.3"),
    id="adam-first-step",
    title="Predict: Adam's first step",
    prompt=(
        "One weight, moments 0, $t = 1$, learning rate 0.1, and a gradient of 1000. How far does Adam move the weight?"
    ),
    hints=(
        "After the correction, the first moment is the gradient, and the second is its square.",
        "What is the quotient of the gradient and the root of its square?",
    ),
    expected=0.1,
    rtol=1e-3,
    mistakes=(
        Mistake(name="sgd", answer=100.0, message="This is SGD's step. Adam divides by the size of the gradient."),
        Mistake(
            name="uncorrected",
            answer=0.1 * 0.1 / math.sqrt(0.001),
            message="You left out the bias correction of both moments.",
        ),
        Mistake(name="only-v", answer=0.01, message="You corrected the second moment and not the first."),
    ),
)

BYTES_PER_PARAMETER = Number(
    **_chapter("8.3"),
    id="bytes-per-parameter",
    title="Predict: bytes a parameter",
    prompt=(
        "Adam in mixed precision: 2-byte weights, 2-byte gradients, fp32 master weights, and both moments in fp32. "
        "How many bytes does one parameter take? The unit is B."
    ),
    hints=("A float32 has four bytes.", "Add up five numbers."),
    expected=float(training_memory(1).total),
    unit="B",
    default_unit="B",
    exact=True,
    mistakes=(
        Mistake(name="state", answer=(8, "B"), message="These are the two moments alone."),
        Mistake(name="no-master", answer=(12, "B"), message="One of the five is missing: the master weights."),
        Mistake(
            name="half-state", answer=(10, "B"), message="Master weights and moments are float32, not 2 bytes each."
        ),
        Mistake(name="weights", answer=(4, "B"), message="These are weights and gradients alone."),
    ),
)

HUNDRED_LAYERS = Choice(
    **_chapter("8.4"),
    id="hundred-layers",
    title="Predict: a hundred factors of 0.9",
    prompt="Each of 100 layers scales the gradient by 0.9. Roughly what is left?",
    hints=(
        "Ten layers leave about a third: $0.9^{10} \\approx 0.35$.",
        "A hundred layers are ten times ten: $0.35^{10}$.",
    ),
    checklist=(11,),
    options={
        "a": Option("a tenth", "That is left after about 22 layers."),
        "b": Option("a thousandth", "That is left after about 66 layers."),
        "c": Option(
            "some 3 in 100,000", "Ten factors leave about 0.35, and its tenth power is about that.", correct=True
        ),
        "d": Option("nothing: it underflows in float32", "float32 reaches down to about $10^{-45}$, far below."),
    },
)

RESIDUAL_PROMISE = Choice(
    **_chapter("8.5"),
    id="residual-promise",
    title="Predict: what the identity path promises",
    prompt="Every block has the Jacobian $I + J_l$. What does this say of the gradient at the first block?",
    hints=(
        "Multiply out two blocks: $(I + J_1)(I + J_2)$.",
        "One term of the product holds no $J$ at all. Do the others have a bound?",
    ),
    checklist=(14,),
    options={
        "a": Option(
            "It always has the size it has at the last block",
            "Only if all $J_l$ were 0. The other terms are there, and they may grow.",
        ),
        "b": Option(
            "It does not hang on the product of the branches alone, but it may still grow",
            "One path has no factor. The sum of the others is not bounded by it.",
            correct=True,
        ),
        "c": Option(
            "It can neither vanish nor explode",
            "With $J_l$ near $-I$ it can vanish, and with large $J_l$ it explodes.",
        ),
        "d": Option(
            "Nothing: a sum of matrices can be anything",
            "True of one block in the worst case; at a usual initial scale the branches are small beside the identity.",
        ),
    },
)

VARIANCE_OF_A_LAYER = Number(
    **_chapter("8.6"),
    id="variance-of-a-layer",
    title="Predict: the variance after a layer",
    prompt=(
        "Inputs of variance 1, 4096 of them a unit, and weights of standard deviation 0.02. What is the variance of "
        "the outputs?"
    ),
    hints=("The variance of a weight is the square of 0.02.", "4096 products add up, each with the same variance."),
    checklist=(8,),
    expected=4096 * 0.02**2,
    mistakes=(
        Mistake(
            name="standard-deviation",
            answer=4096 * 0.02,
            message="You used the standard deviation of the weights. Their variance is its square.",
        ),
        Mistake(
            name="root",
            answer=math.sqrt(4096 * 0.02**2),
            message="This is the standard deviation of the outputs.",
        ),
        Mistake(name="one-product", answer=0.02**2, message="This is the variance of one product. Thousands add up."),
    ),
)

MEAN_SHAPE = Shape(
    **_chapter("8.7"),
    id="layer-norm-mean-shape",
    title="Predict: the shape of the means",
    prompt="x has shape (B, S, H) = (8, 2048, 4096). Which shape have LayerNorm's means, taken with `keepdims=True`?",
    hints=("Each token has one mean.", "`keepdims=True` leaves a 1 where the axis was."),
    checklist=(1,),
    expected=np.broadcast_to(0.0, (8, 2048, 4096)).max(axis=-1, keepdims=True).shape,
    mistakes=(
        Mistake(name="batch-norm", answer=(1, 1, 4096), message="One mean for each feature: that is BatchNorm."),
        Mistake(name="dropped", answer=(8, 2048), message="This is the shape without keepdims."),
        Mistake(
            name="per-sequence", answer=(8, 1, 1), message="You gave one mean for each sequence. Each token has one."
        ),
        Mistake(name="per-sequence-kept", answer=(8, 1, 4096), message="You reduced over the tokens."),
    ),
)

RMS_SPEED = Choice(
    **_chapter("8.8"),
    id="rms-norm-speed",
    title="Predict: what RMSNorm saves",
    prompt=(
        "Both norms are fused kernels. RMSNorm does about half of the arithmetic. How much faster does a model become "
        "whose norms take 5 % of a step?"
    ),
    hints=(
        "Is a fused norm limited by arithmetic or by memory?",
        "Both read x once and write y once. And what is the most that 5 % can give?",
    ),
    checklist=(7,),
    options={
        "a": Option("twice as fast", "Half of the arithmetic of 5 % of a step cannot halve the step."),
        "b": Option(
            "2.5 % faster", "That is if the kernel's time were its arithmetic. What does a fused norm wait for?"
        ),
        "c": Option("hardly at all", "Both kernels move the same bytes, and wait for them.", correct=True),
        "d": Option("5 % faster", "That is the gain from a norm that takes no time at all."),
    },
)

CLIP_BY_HAND = Number(
    **_chapter("8.9"),
    id="clip-by-hand",
    title="Predict: two tensors, one norm",
    prompt="$g_1 = (3)$, $g_2 = (4)$, limit 1. What is $g_1$ after clipping by the global norm?",
    hints=("The norm of both together is that of the vector (3, 4).", "Both are scaled by one over this norm."),
    checklist=(4,),
    expected=3 / 5,
    mistakes=(
        Mistake(name="own-norm", answer=1.0, message="You clipped the tensor by its own norm."),
        Mistake(name="sum", answer=3 / 7, message="You added the two norms. The norm of both is the root of a sum."),
        Mistake(name="squares", answer=3 / 25, message="You divided by the sum of squares. Its root is the norm."),
        Mistake(name="unclipped", answer=3.0, message="The norm is above the limit, so the gradient is scaled."),
    ),
)

NORM_OF_TWO_RANKS = Number(
    **_chapter("8.9"),
    id="norm-of-two-ranks",
    title="Predict: the norm of two shards",
    prompt="The shard of rank 0 has norm 3, that of rank 1 has norm 4. What is the global norm?",
    hints=("The gradient is one long vector, cut in two.", "Squares add up over the ranks."),
    checklist=(4,),
    expected=math.hypot(3, 4),
    mistakes=(
        Mistake(name="sum", answer=7.0, message="Norms do not add up; their squares do."),
        Mistake(name="squares", answer=25.0, message="This is the sum of squares. The norm is its root."),
        Mistake(name="maximum", answer=4.0, message="This is the larger of the two norms, as with the infinity norm."),
        Mistake(name="mean", answer=3.5, message="You averaged the norms. A norm of shards is no average."),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    GRADIENT_VARIANCE,
    MICRO_BATCHES,
    MOMENTUM_STEP,
    ADAM_STEP,
    ADAMW_STEP,
    TRAINING_BYTES,
    LAYERS_UNTIL_ZERO,
    RESIDUAL_BACKWARD,
    EXPLAIN_RESIDUAL,
    INIT_STD,
    LAYER_NORM,
    NORM_TRAFFIC,
    RMS_NORM_BACKWARD,
    CLIP_GLOBAL_NORM,
    SHARDED_CLIP,
    BATCH_FOUR_TIMES,
    TERMINAL_VELOCITY,
    ADAM_FIRST_STEP,
    BYTES_PER_PARAMETER,
    HUNDRED_LAYERS,
    RESIDUAL_PROMISE,
    VARIANCE_OF_A_LAYER,
    MEAN_SHAPE,
    RMS_SPEED,
    CLIP_BY_HAND,
    NORM_OF_TWO_RANKS,
)

"""Exercises of chapter 8 on momentum, Adam and AdamW, and on the bytes that training keeps."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.cost import training_memory
from labsupport.grading import Case, Exercise, Function, Mistake, Number, Several, Tolerance
from labsupport.grading.shorthand import quiet
from labsupport.ops import optim

Array = np.ndarray


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
    fresh=True,
    cases=lambda rng: [Case(args=args, label=label) for label, args in _adam_inputs(rng)],
    tolerance=_STATE,
    dtype="exact",
    mistakes=(
        Mistake(
            name="no-bias-correction",
            answer=quiet(_adam_variant(lambda m, v, t, b1, b2, eps: m / (np.sqrt(v) + eps))),
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
            answer=quiet(
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
    fresh=True,
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

EXERCISES: tuple[Exercise, ...] = (
    MOMENTUM_STEP,
    ADAM_STEP,
    ADAMW_STEP,
    TRAINING_BYTES,
)

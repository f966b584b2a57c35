"""Exercises of chapter 12 on the whole model: norms by layer, checkpointing, FLOPs of a step."""

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Number, Tolerance
from labsupport.ops.optim import global_norm

Array = np.ndarray


def _norms(grads: dict[str, Array], layers: int) -> Array:
    return np.array(
        [
            global_norm([g for name, g in grads.items() if name.startswith(f"layers.{layer}.")])
            for layer in range(layers)
        ]
    )


def _norm_cases(rng: np.random.Generator) -> list[Case]:
    def one(layers: int, label: str, scale: float = 1.0) -> Case:
        grads = {"embedding": rng.normal(size=(5, 3)), "head": rng.normal(size=(3, 5))}
        for layer in range(layers):
            grads[f"layers.{layer}.query"] = scale * rng.normal(size=(3, 3))
            grads[f"layers.{layer}.down"] = scale * rng.normal(size=(4, 3))
        return Case(args=(grads, layers), label=label)

    large = {f"layers.{i}.query": np.full((2, 2), 300 + i, np.float16) for i in range(2)}
    zero = {"layers.0.query": np.zeros((2, 2)), "layers.1.query": np.ones((2, 2)), "head": np.ones((2, 3))}
    return [
        one(2, "two layers"),
        one(12, "twelve layers"),
        one(1, "one layer"),
        Case(args=(zero, 2), label="a layer whose gradient is 0"),
        Case(args=(large, 2), label="float16, gradients near 300"),
    ]


def _narrow_norms(grads: dict[str, Array], layers: int) -> Array:
    with np.errstate(over="ignore"):
        own = [[g for name, g in grads.items() if name.startswith(f"layers.{i}.")] for i in range(layers)]
        return np.sqrt(np.array([np.sum([np.sum(g**2) for g in layer], dtype=np.float64) for layer in own]))


NORMS_BY_LAYER = Function(
    id="norms-by-layer",
    chapter=12,
    section="12.7",
    title="One norm for each layer",
    prompt="Write `norms(grads, layers)`: the gradient norm of each layer, over all its tensors together.",
    contract=(
        "`grads`: dict from names such as `layers.3.query`, `embedding`, `head` to arrays of float16, float32 or "
        "float64; `layers`: L ≥ 1, each layer has at least one tensor. Result: (L,) float64, entry l for layer l."
    ),
    hints=(
        "Square, sum over all tensors of the layer, root at the end.",
        "Which names start with `layers.1`? Try it with twelve layers.",
    ),
    level="medium",
    oracle=_norms,
    cases=_norm_cases,
    tolerance=Tolerance(c=16, depth=4),
    dtype="exact",
    lists=True,
    mistakes=(
        Mistake(
            name="squares-overflow",
            answer=_narrow_norms,
            message="Your squares are taken in the dtype of the gradients: in float16 the square of 300 is infinite. "
            "Raise to float64 first.",
            section="9.1",
        ),
        Mistake(
            name="prefix",
            answer=lambda g, L: np.array(
                [global_norm([v for k, v in g.items() if k.startswith(f"layers.{i}")]) for i in range(L)]
            ),
            message="Layer 1 swallowed layers 10 and 11: end the prefix with a dot.",
        ),
        Mistake(
            name="sum-of-norms",
            answer=lambda g, L: np.array(
                [sum(np.linalg.norm(v) for k, v in g.items() if k.startswith(f"layers.{i}.")) for i in range(L)]
            ),
            message="You added the norms of the tensors. Squares add, norms do not.",
        ),
        Mistake(
            name="no-root",
            answer=lambda g, L: _norms(g, L) ** 2,
            message="The root is missing: this is the squared norm.",
        ),
        Mistake(
            name="mean",
            answer=lambda g, L: np.array(
                [
                    np.sqrt(np.mean([np.mean(v**2) for k, v in g.items() if k.startswith(f"layers.{i}.")]))
                    for i in range(L)
                ]
            ),
            message="You averaged. A norm sums the squares.",
        ),
    ),
    accept=(lambda g, L: [float(v) for v in _norms(g, L)],),
)

# ---------------------------------------------------------------- checkpointing
_CP = {"L": 32, "B": 8, "T": 2048, "d": 4096}
_CP_BYTES = _CP["L"] * _CP["B"] * _CP["T"] * _CP["d"] * 2

CHECKPOINT_BYTES = Number(
    id="checkpoint-bytes",
    chapter=12,
    section="12.8",
    title="What checkpointing still holds",
    prompt=(
        "32 layers, B = 8, T = 2048, d = 4096, bfloat16, every layer checkpointed. How many bytes do the saved layer "
        "inputs "
        'take? Answer with a unit, such as `"1.5 GiB"`.'
    ),
    hints=("One tensor a layer. Which shape?", "bfloat16 has 2 bytes."),
    checklist=(18,),
    level="easy",
    expected=_CP_BYTES,
    unit="B",
    rtol=5e-3,
    mistakes=(
        Mistake(
            name="one-layer", answer=f"{_CP_BYTES // 32} B", message="This is one layer; each layer's input is kept."
        ),
        Mistake(name="elements", answer=f"{_CP_BYTES // 2} B", message="You counted elements, not bytes."),
        Mistake(name="one-block", answer=f"{_CP_BYTES // 8} B", message="The batch axis is missing."),
    ),
)


def _step_flops(forward: int, mode: str) -> int:
    return forward * {"inference": 1, "training": 3, "checkpointing": 4}[mode]


STEP_FLOPS = Function(
    id="step-flops",
    chapter=12,
    section="12.8",
    title="FLOPs of a step",
    prompt=(
        "Write `step_flops(forward, mode)`: the FLOPs of one step, where `forward` counts the matrix products of one "
        "forward "
        "pass and `mode` is `inference`, `training`, or `checkpointing` (every layer computed again in full)."
    ),
    contract="`forward`: an integer ≥ 0; `mode`: one of the three strings. Result: an integer. No update is counted.",
    hints=(
        "A product has two backward products, one for each factor.",
        "Checkpointing adds a whole forward pass to the backward pass.",
    ),
    checklist=(7,),
    level="easy",
    oracle=_step_flops,
    cases=lambda rng: [
        Case(args=(n, mode), label=f"forward {n}, {mode}")
        for n in (1000, int(rng.integers(1, 10**9)))
        for mode in ("inference", "training", "checkpointing")
    ],
    tolerance=Tolerance(c=1, depth=1),
    mistakes=(
        Mistake(
            name="backward-once",
            answer=lambda f, mode: f * {"inference": 1, "training": 2, "checkpointing": 3}[mode],
            message="You gave the backward pass the price of one forward pass. Each product has two backward products.",
        ),
        Mistake(
            name="free-recompute",
            answer=lambda f, mode: f * {"inference": 1, "training": 3, "checkpointing": 3}[mode],
            message="Recomputation is not free: every layer runs forward twice.",
        ),
        Mistake(
            name="backward-only",
            answer=lambda f, mode: f * {"inference": 1, "training": 2, "checkpointing": 4}[mode],
            message="For training you counted the backward pass alone; the step has a forward pass too.",
        ),
        Mistake(
            name="double",
            answer=lambda f, mode: f * {"inference": 1, "training": 3, "checkpointing": 6}[mode],
            message="Checkpointing repeats the forward pass only, not the whole step.",
        ),
    ),
    accept=(lambda f, mode: f + (mode != "inference") * 2 * f + (mode == "checkpointing") * f,),
)

EXERCISES: tuple[Exercise, ...] = (
    NORMS_BY_LAYER,
    CHECKPOINT_BYTES,
    STEP_FLOPS,
)

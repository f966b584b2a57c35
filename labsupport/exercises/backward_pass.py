"""Exercises of chapter 12: gradients by hand, nudging, norms by layer, checkpointing, accumulation, guarding a step.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and must never
contain the expected value. The last part holds the questions inside the chapter's text.
"""

import math
from typing import Any

import numpy as np

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
from labsupport.ops.attention import attention_backward
from labsupport.ops.optim import global_norm
from labsupport.ops.softmax import softmax

Array = np.ndarray

# ---------------------------------------------------------------- one weight

_W, _X, _Y, _ETA = 1.0, 4.0, 10.0, 0.02
_SLOPE = 2 * (_W * _X - _Y) * _X
_NEW = _W - _ETA * _SLOPE

QUADRATIC_STEP = Several(
    id="quadratic-step",
    chapter=12,
    section="12.2",
    title="One step by hand",
    prompt=(
        "$L = (wx - y)^2$ with w = 1, x = 4, y = 10 and learning rate 0.02. Give four parts: `loss`, `gradient` "
        "(dL/dw), "
        "`new_w` and `new_loss` after one step of gradient descent."
    ),
    hints=(
        "Guess the sign first: is the product too small or too large, and what would a larger w do?",
        "The chain rule gives $2(wx - y)x$.",
        "The step goes against the gradient.",
    ),
    checklist=(11,),
    level="easy",
    parts={
        "loss": Number(
            prompt="The loss before the step.",
            expected=(_W * _X - _Y) ** 2,
            unit="1",
            rtol=1e-6,
            mistakes=(
                Mistake(name="not-squared", answer=_W * _X - _Y, message="This is the error; the loss squares it."),
            ),
        ),
        "gradient": Number(
            prompt="dL/dw.",
            expected=_SLOPE,
            unit="1",
            rtol=1e-6,
            mistakes=(
                Mistake(
                    name="no-inner",
                    answer=2 * (_W * _X - _Y),
                    message="This is the derivative with respect to the error. The chain rule brings a second factor.",
                ),
                Mistake(name="sign", answer=-_SLOPE, message="The sign is wrong. Would a larger w raise the loss?"),
                Mistake(
                    name="no-two",
                    answer=_SLOPE / 2,
                    message="The factor from the square is missing.",
                ),
            ),
        ),
        "new_w": Number(
            prompt="w after the step.",
            expected=_NEW,
            unit="1",
            rtol=1e-6,
            mistakes=(
                Mistake(name="uphill", answer=_W + _ETA * _SLOPE, message="You went up the slope, along the gradient."),
                Mistake(name="whole", answer=_W - _SLOPE, message="You left the learning rate out."),
            ),
        ),
        "new_loss": Number(
            prompt="The loss after the step.",
            expected=(_NEW * _X - _Y) ** 2,
            unit="1",
            rtol=1e-6,
            mistakes=(
                Mistake(
                    name="tangent",
                    answer=(_W * _X - _Y) ** 2 - _ETA * _SLOPE**2,
                    message="This is what the tangent promises. Put the new w into the loss itself.",
                ),
            ),
        ),
    },
)

# ---------------------------------------------------------------- the head


def _head_backward(h: Array, U: Array, y: Array, *, mean: bool = True, sign: float = 1.0, onehot: bool = True) -> Any:
    dz = softmax(h @ U)
    if onehot:
        dz[np.arange(len(y)), y] -= 1
    dz = sign * dz / (len(y) if mean else 1)
    return dz @ U.T, h.T @ dz


def _head_cases(rng: np.random.Generator) -> list[Case]:
    def one(N: int, d: int, V: int, dtype: Any = np.float64) -> Case:
        h, U = rng.normal(size=(N, d)).astype(dtype), rng.normal(size=(d, V)).astype(dtype)
        return Case(args=(h, U, rng.integers(0, V, N)), label=f"{np.dtype(dtype).name}, h ({N}, {d}), U ({d}, {V})")

    return [one(1, 2, 7), one(5, 3, 4), one(4, 6, 6), one(8, 4, 11, np.float32), one(3, 1, 2)]


def _swapped(h: Array, U: Array, y: Array) -> Any:
    dh, dU = _head_backward(h, U, y)
    return dU, dh


def _one_softmax(h: Array, U: Array, y: Array) -> Any:
    """One softmax over all rows together."""
    dz = softmax((h @ U).ravel()).reshape(len(h), -1)
    dz[np.arange(len(y)), y] -= 1
    dz = dz / len(y)
    return dz @ U.T, h.T @ dz


def _square_slip(h: Array, U: Array, y: Array) -> Any:
    """U where its transpose is due; for other shapes the product does not exist."""
    dz = softmax(h @ U)
    dz[np.arange(len(y)), y] -= 1
    dz = dz / len(y)
    return (dz @ U if U.shape[0] == U.shape[1] else dz @ U.T), h.T @ dz


LM_HEAD_BACKWARD = Function(
    id="lm-head-backward",
    chapter=12,
    section="12.4",
    title="From the loss through the LM head",
    prompt=(
        "Write `backward(h, U, y)` → `(dh, dU)`: gradients of the **mean** cross-entropy of the logits `h @ U` against "
        "the "
        "labels `y`."
    ),
    contract=(
        "`h`: (N, d), `U`: (d, V), float32 or float64; `y`: (N,) integers in [0, V). Result: a tuple, `dh` (N, d) and "
        "`dU` "
        "(d, V). Inputs stay as they are."
    ),
    hints=(
        "First dz: softmax of each row, minus 1 at the label, divided by N.",
        "Write the shapes beside the two products; only one order of factors gives each result its shape.",
        "dh sums over the tokens of the vocabulary, dU sums over the N positions.",
    ),
    checklist=(12, 13),
    level="medium",
    points=2,
    oracle=_head_backward,
    cases=_head_cases,
    tolerance=Tolerance(c=8, depth=lambda h, U, y: U.shape[1] + h.shape[0], scale=lambda *a: 1.0),
    mistakes=(
        Mistake(
            name="sum",
            answer=lambda h, U, y: _head_backward(h, U, y, mean=False),
            message="This is the gradient of the sum of the losses. The contract asks for their mean.",
            section="12.9",
        ),
        Mistake(
            name="sign",
            answer=lambda h, U, y: _head_backward(h, U, y, sign=-1.0),
            message="All signs are turned: only the label's column may be negative in dz.",
            section="12.3",
        ),
        Mistake(
            name="no-onehot",
            answer=lambda h, U, y: _head_backward(h, U, y, onehot=False),
            message="You sent the probabilities themselves back. The label's entry is reduced by 1.",
            section="12.3",
        ),
        Mistake(
            name="one-softmax",
            answer=_one_softmax,
            message="Your probabilities sum to 1 over the whole batch. Each row of logits has a softmax of its own.",
            section="12.3",
        ),
        Mistake(name="swapped", answer=_swapped, message="The two results are in the wrong order: dh first, then dU."),
        Mistake(
            name="not-transposed",
            answer=_square_slip,
            message="For a square U you multiplied by U instead of its transpose. No shape warns you there.",
        ),
    ),
    accept=(
        lambda h, U, y: (
            np.einsum("nv,dv->nd", (softmax(h @ U) - np.eye(U.shape[1])[y]) / len(y), U),
            np.einsum("nd,nv->dv", h, (softmax(h @ U) - np.eye(U.shape[1])[y]) / len(y)),
        ),
    ),
)

_Z = np.array([0.2, 0.7, 0.1, 0.2, 0.6, 0.1, 0.7])
_DZ = softmax(_Z) - np.eye(7)[4]

NUDGE_PREDICTION = Number(
    id="nudge-prediction",
    chapter=12,
    section="12.5",
    title="Predict a nudge",
    prompt=(
        "In the worked example (h = [1, 2], gradient of the logit of fish -0.8265) the entry of U in row 1, column "
        "fish is "
        "**raised** by 0.002. By how much does the loss change, to first order? Give the signed number."
    ),
    hints=("Which entry of h meets row 1? That gives dU there.", "First order: gradient times nudge."),
    checklist=(11,),
    level="easy",
    expected=float(2 * _DZ[4] * 0.002),
    unit="1",
    rtol=5e-3,
    mistakes=(
        Mistake(
            name="row-0",
            answer=float(_DZ[4] * 0.002),
            message="This is row 0, where h is 1. Row 1 meets the other entry of h.",
        ),
        Mistake(
            name="sign",
            answer=float(-2 * _DZ[4] * 0.002),
            message="The sign is turned: the gradient there is negative and the nudge goes up.",
        ),
        Mistake(
            name="gradient",
            answer=float(2 * _DZ[4]),
            message="This is the gradient itself; multiply it by the nudge.",
        ),
    ),
)

# ---------------------------------------------------------------- embedding and gate


def _embedding_backward(ids: Array, dx: Array, V: int) -> Array:
    dE = np.zeros((V, dx.shape[-1]), dx.dtype)
    np.add.at(dE, ids, dx)
    return dE


def _embedding_last(ids: Array, dx: Array, V: int) -> Array:
    dE = np.zeros((V, dx.shape[-1]), dx.dtype)
    for i, row in zip(ids.ravel(), dx.reshape(-1, dx.shape[-1]), strict=True):
        dE[i] = row
    return dE


def _embedding_mean(ids: Array, dx: Array, V: int) -> Array:
    count = np.bincount(ids.ravel(), minlength=V)
    return (_embedding_backward(ids, dx, V) / np.maximum(count, 1)[:, None]).astype(dx.dtype)


def _embedding_cases(rng: np.random.Generator) -> list[Case]:
    def one(ids: Array, V: int, d: int, label: str, dtype: Any = np.float64) -> Case:
        return Case(args=(ids, rng.normal(size=(*ids.shape, d)).astype(dtype), V), label=label)

    return [
        one(np.array([[0, 2, 3]]), 5, 2, "three different tokens"),
        one(np.array([[1, 3, 1]]), 5, 3, "one token twice"),
        one(rng.integers(0, 4, (3, 6)), 4, 5, "ids (3, 6) from 4 tokens"),
        one(np.full((2, 4), 6), 7, 2, "one token everywhere"),
        one(rng.integers(0, 9, (2, 5)), 9, 4, "float32, ids (2, 5)", np.float32),
    ]


EMBEDDING_BACKWARD = Function(
    id="embedding-backward",
    chapter=12,
    section="12.6",
    title="Backwards through a look-up",
    prompt="Write `backward(ids, dx, V)`: the gradient of the embedding table E, where the forward pass was `E[ids]`.",
    contract=(
        "`ids`: (B, T) integers in [0, V), tokens may repeat; `dx`: (B, T, d), float32 or float64; result: (V, d) in "
        "dx's "
        "dtype, rows of absent tokens 0."
    ),
    hints=(
        "The row of a token that stands at two places gets two gradients. What happens with them?",
        "`dE[ids] += dx` adds only once for a repeated id. Look for the method of `np.add` that adds every time.",
    ),
    checklist=(11,),
    level="medium",
    oracle=_embedding_backward,
    cases=_embedding_cases,
    tolerance=Tolerance(c=4, depth=lambda ids, dx, V: ids.size),
    mistakes=(
        Mistake(
            name="last-wins",
            answer=_embedding_last,
            message="A repeated token kept the gradient of one place only. Gradients of a value that is used twice add "
            "up.",
        ),
        Mistake(
            name="mean",
            answer=_embedding_mean,
            message="You averaged over the places of a token. They add up; the loss has done its averaging before.",
        ),
        Mistake(
            name="first-block",
            answer=lambda ids, dx, V: _embedding_backward(ids[:1], dx[:1], V),
            message="You went through the first block of the batch only.",
        ),
    ),
    accept=(
        lambda ids, dx, V: np.einsum("btv,btd->vd", np.eye(V, dtype=dx.dtype)[ids], dx),
        lambda ids, dx, V: np.eye(V, dtype=dx.dtype)[ids.ravel()].T @ dx.reshape(-1, dx.shape[-1]),
    ),
)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _gate_backward(dh: Array, gate: Array, up: Array) -> Any:
    s = _sigmoid(gate)
    return dh * up * s * (1 + gate * (1 - s)), dh * gate * s


GATE_BACKWARD = Function(
    id="gate-backward",
    chapter=12,
    section="12.6",
    title="Backwards through a gate",
    prompt=(
        "The forward pass was h = silu(gate) · up, elementwise, with silu(x) = x · sigmoid(x). Write `backward(dh, "
        "gate, up)` "
        "→ `(dgate, dup)`."
    ),
    contract="All three: one shape, float32 or float64, entries between -20 and 20. Result: a tuple of two of that "
    "shape.",
    hints=(
        "A product hands each factor the gradient times the other factor.",
        "silu is itself a product: its derivative has two terms.",
        "The derivative of the sigmoid $s$ is $s(1 - s)$; put it into the product rule for $x \\cdot s$.",
    ),
    checklist=(11,),
    level="medium",
    oracle=_gate_backward,
    cases=lambda rng: [
        Case(args=tuple(rng.normal(0, 2, (3, 4)) for _ in range(3)), label="float64 (3, 4)"),
        Case(args=tuple(rng.normal(0, 2, (2, 3, 5)).astype(np.float32) for _ in range(3)), label="float32 (2, 3, 5)"),
        Case(args=(rng.normal(size=4), np.zeros(4), rng.normal(size=4)), label="gate 0"),
        Case(args=(rng.normal(size=3), np.array([-20.0, 20.0, 1.0]), rng.normal(size=3)), label="gate -20 and 20"),
    ],
    tolerance=Tolerance(c=16, depth=1),
    mistakes=(
        Mistake(
            name="sigmoid-slope",
            answer=lambda dh, g, u: (dh * u * _sigmoid(g) * (1 - _sigmoid(g)), dh * g * _sigmoid(g)),
            message="You took the derivative of the sigmoid. silu is x times the sigmoid, and a product has two terms.",
        ),
        Mistake(
            name="one-term",
            answer=lambda dh, g, u: (dh * u * _sigmoid(g), dh * g * _sigmoid(g)),
            message="The derivative of silu has two terms; you kept the sigmoid and dropped the other.",
        ),
        Mistake(
            name="no-silu-on-up",
            answer=lambda dh, g, u: (_gate_backward(dh, g, u)[0], dh * g),
            message="The other factor of `up` is silu(gate), not the gate itself.",
        ),
        Mistake(
            name="no-up",
            answer=lambda dh, g, u: (_gate_backward(dh, g, np.ones_like(u))[0], _gate_backward(dh, g, u)[1]),
            message="The gradient of the gate lacks the factor `up`: a product hands on the other factor.",
        ),
        Mistake(
            name="swapped",
            answer=lambda dh, g, u: _gate_backward(dh, g, u)[::-1],
            message="The two results are in the wrong order: the gate's gradient first.",
        ),
    ),
    accept=(lambda dh, g, u: (dh * u * (_sigmoid(g) + g * _sigmoid(g) * _sigmoid(-g)), dh * (g * _sigmoid(g))),),
)

# ---------------------------------------------------------------- attention


def _attention_back(
    Q: Array, K: Array, V: Array, dO: Array, *, scaled: bool = True, centred: bool = True, transposed: bool = True
) -> Any:
    root = math.sqrt(Q.shape[-1])
    T = Q.shape[0]
    P = softmax(np.where(np.tri(T, dtype=bool), Q @ K.T / root, -np.inf))
    dP = dO @ V.T
    dS = P * (dP - (dP * P).sum(-1, keepdims=True) if centred else dP)
    dS = dS / root if scaled else dS
    return dS @ K, (dS.T if transposed else dS) @ Q, P.T @ dO


def _attention_cases(rng: np.random.Generator) -> list[Case]:
    def one(T: int, d: int, dtype: Any = np.float64) -> Case:
        args = tuple(rng.normal(size=(T, d)).astype(dtype) for _ in range(4))
        return Case(args=args, label=f"{np.dtype(dtype).name}, T = {T}, D_h = {d}")

    return [one(4, 3), one(6, 2), one(1, 4), one(5, 8, np.float32), one(4, 4)]


CAUSAL_ATTENTION_BACKWARD = Function(
    id="causal-attention-backward",
    chapter=12,
    section="12.6",
    title="Causal attention, backwards",
    prompt="Write `backward(Q, K, V, dO)` → `(dQ, dK, dV)` for one head of causal attention.",
    contract=(
        "All four: (T, D_h), float32 or float64. Forward: scores QKᵀ/√D_h, keys after the query masked, softmax over "
        "keys, "
        "times V. Result: a tuple of three (T, D_h)."
    ),
    hints=(
        "Compute P again: it is not handed to you.",
        "Go back through three operations: O = PV, the softmax of each row, and the scaled product QKᵀ.",
        "Softmax of a row: $dS = P \\odot (dP - \\sum dP \\odot P)$. The mask needs no line of its own: P is 0 there.",
    ),
    checklist=(11, 18),
    level="hard",
    points=3,
    oracle=lambda Q, K, V, dO: attention_backward(Q, K, V, dO, causal=True),
    cases=_attention_cases,
    tolerance=Tolerance(c=16, depth=lambda Q, K, V, dO: sum(Q.shape), scale=lambda *a: 4.0),
    mistakes=(
        Mistake(
            name="no-mask",
            answer=lambda Q, K, V, dO: attention_backward(Q, K, V, dO, causal=False),
            message="Your probabilities include later keys: the causal mask is missing in P.",
        ),
        Mistake(
            name="no-scale",
            answer=lambda Q, K, V, dO: _attention_back(Q, K, V, dO, scaled=False),
            message="The scores were divided by the root of the head's width; so are dQ and dK.",
        ),
        Mistake(
            name="not-centred",
            answer=lambda Q, K, V, dO: _attention_back(Q, K, V, dO, centred=False),
            message="In the softmax's backward rule a term is missing: each row of dP is first reduced by its mean "
            "under P.",
        ),
        Mistake(
            name="dK-not-transposed",
            answer=lambda Q, K, V, dO: _attention_back(Q, K, V, dO, transposed=False),
            message="For dK the sum runs over queries, so dS must be transposed. Both orders have the same shape here.",
        ),
        Mistake(
            name="dV-not-transposed",
            answer=lambda Q, K, V, dO: (
                *_attention_back(Q, K, V, dO)[:2],
                softmax(np.where(np.tri(len(Q), dtype=bool), Q @ K.T / math.sqrt(Q.shape[-1]), -np.inf)) @ dO,
            ),
            message="For dV the sum runs over queries: the transpose of P times dO.",
        ),
    ),
    accept=(_attention_back,),
)

# ---------------------------------------------------------------- norms by layer


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

    zero = {"layers.0.query": np.zeros((2, 2)), "layers.1.query": np.ones((2, 2)), "head": np.ones((2, 3))}
    return [
        one(2, "two layers"),
        one(12, "twelve layers"),
        one(1, "one layer"),
        Case(args=(zero, 2), label="a layer whose gradient is 0"),
    ]


NORMS_BY_LAYER = Function(
    id="norms-by-layer",
    chapter=12,
    section="12.7",
    title="One norm for each layer",
    prompt="Write `norms(grads, layers)`: the gradient norm of each layer, over all its tensors together.",
    contract=(
        "`grads`: dict from names such as `layers.3.query`, `embedding`, `head` to arrays; `layers`: L ≥ 1, each layer "
        "has at "
        "least one tensor. Result: (L,) float64, entry l for layer l."
    ),
    hints=(
        "Square, sum over all tensors of the layer, root at the end.",
        "Which names start with `layers.1`? Try it with twelve layers.",
    ),
    level="medium",
    oracle=_norms,
    cases=_norm_cases,
    tolerance=Tolerance(c=16, depth=4),
    lists=True,
    mistakes=(
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

# ---------------------------------------------------------------- accumulation and the guard


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
    hints=("Chain rule: $\\partial L/\\partial v = \\partial L/\\partial w \\cdot \\partial w/\\partial v$.",),
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

# ---------------------------------------------------------------- questions inside the chapter

BACKWARD_FIRST = Choice(
    id="backward-first-gradient",
    chapter=12,
    section="12.1",
    title="Which gradient is known first?",
    prompt="Which parameter's gradient is complete first?",
    hints=("Which parameter stands nearest to the loss?",),
    checklist=(11,),
    level="easy",
    place="chapter",
    options={
        "a": Option(
            "the embedding's", "It stands at the far end: the gradient has passed all layers before it gets there."
        ),
        "b": Option("the first layer's", "The walk starts at the loss, and the first layer is nearly at its end."),
        "c": Option("the LM head's", "It is the last operation with a weight before the loss.", correct=True),
        "d": Option(
            "all at the same time", "Each step needs the gradient that the step after it in the forward pass gives."
        ),
    },
)

GRADIENT_OF_SQUARE = Number(
    id="gradient-of-the-square",
    chapter=12,
    section="12.2",
    title="dL/dw",
    prompt="What is dL/dw?",
    hints=("Two factors: the derivative of the square, and that of wx by w.",),
    checklist=(11,),
    level="easy",
    place="chapter",
    expected=2 * (2 * 3 - 4) * 3,
    unit="1",
    exact=True,
    mistakes=(
        Mistake(name="no-inner", answer=4, message="This is the derivative by wx - y. A factor is missing."),
        Mistake(name="sign", answer=-12, message="A larger w makes wx - y larger, and it is positive already."),
        Mistake(name="no-two", answer=6, message="The factor 2 of the square is missing."),
    ),
)

SIGN_OF_ANSWER = Choice(
    id="sign-of-answer-column",
    chapter=12,
    section="12.3",
    title="Signs of the gradient",
    prompt="Which entries of the gradient of the logits are negative?",
    hints=("Which logit should grow for the loss to fall?", "p - 1 for one entry, p for the others."),
    checklist=(13,),
    level="easy",
    place="chapter",
    options={
        "a": Option("all", "Then a common rise of all logits would lower the loss; it changes nothing."),
        "b": Option("that of the right answer only", "There it is p - 1, elsewhere p.", correct=True),
        "c": Option("those of the two tokens ahead of the answer", "Raising these makes the answer less likely."),
        "d": Option("all but that of the right answer", "It is the other way round: the gradient points uphill."),
    },
)

HEAD_GRADIENT_SHAPE = Shape(
    id="head-gradient-shape",
    chapter=12,
    section="12.4",
    title="Shape of dU",
    prompt="Which shape has dU?",
    hints=("A gradient has the shape of its tensor.",),
    checklist=(12,),
    level="easy",
    place="chapter",
    expected=(16, 77),
    mistakes=(
        Mistake(name="per-position", answer=(4, 32, 16, 77), message="The outer products of all positions are summed."),
        Mistake(name="logits", answer=(4, 32, 77), message="This is the shape of the logits' gradient."),
        Mistake(name="transposed", answer=(77, 16), message="U is (d, V) in this book."),
    ),
)

NUDGE_CHANGES_LOSS = Number(
    id="nudge-changes-loss",
    chapter=12,
    section="12.5",
    title="The loss after a nudge",
    prompt="The change of the loss, with its sign.",
    hints=("Gradient times nudge.",),
    level="easy",
    place="chapter",
    expected=float(_DZ[4] * 0.001),
    unit="1",
    rtol=6e-3,
    mistakes=(
        Mistake(
            name="sign", answer=float(-_DZ[4] * 0.001), message="The gradient is negative: raising the entry helps."
        ),
        Mistake(name="gradient", answer=float(_DZ[4]), message="This is the gradient; the nudge is a thousandth."),
        Mistake(name="row-1", answer=float(2 * _DZ[4] * 0.001), message="This is row 1; row 0 meets the 1 of h."),
    ),
)

REPEATED_TOKEN = Choice(
    id="repeated-token-gradient",
    chapter=12,
    section="12.6",
    title="A token that occurs twice",
    prompt="Which gradient does the row of `cat` get?",
    hints=("The row was used twice in the forward pass.",),
    checklist=(11,),
    level="easy",
    place="chapter",
    options={
        "a": Option("that of the last place", "Then the first place would have no influence, although it was read."),
        "b": Option("the mean of both", "The chain rule adds the paths. No averaging happens here."),
        "c": Option("the sum of both", "A value that is used twice collects both gradients.", correct=True),
        "d": Option("two rows, one for each place", "There is one row of E for the token, so one gradient."),
    },
)

DEAD_DOWN = Choice(
    id="dead-down-matrix",
    chapter=12,
    section="12.7",
    title="A matrix of zeros",
    prompt="Which gradients of this layer are exactly 0?",
    hints=("What does the gradient pass on its way to gate and up?", "What does the gradient of down itself need?"),
    checklist=(11, 14),
    level="medium",
    place="chapter",
    options={
        "a": Option("all seven", "Attention gets its gradient along the residual road."),
        "b": Option("that of down", "It is h transposed times the gradient from above, and neither of them is 0."),
        "c": Option(
            "those of gate and up", "Their gradient passes through down, and there it becomes 0.", correct=True
        ),
        "d": Option("none", "A product with a zero matrix gives zeros, backwards as well."),
    },
)

CHECKPOINT_PRICE = Number(
    id="checkpoint-price",
    chapter=12,
    section="12.8",
    title="Price of checkpointing",
    prompt="FLOPs of a step with checkpointing, divided by those of a step without it; a ratio such as 1.5.",
    hints=(
        "Count passes, in units of one forward pass: how many has a step without checkpointing?",
        "Only the forward pass is run again, the backward pass is not.",
    ),
    checklist=(7,),
    level="easy",
    place="chapter",
    expected=4 / 3,
    unit="1",
    rtol=1e-2,
    mistakes=(
        Mistake(
            name="backward-once", answer=3 / 2, message="You gave the backward pass the price of one forward pass."
        ),
        Mistake(name="double", answer=2, message="The forward pass runs twice, the backward pass once."),
        Mistake(
            name="passes", answer=4, message="This counts passes; divide by those of a step without checkpointing."
        ),
        Mistake(name="upside-down", answer=3 / 4, message="You divided the other way round: the step gets dearer."),
    ),
)

MEAN_OF_TWO = Number(
    id="mean-of-two-micro-batches",
    chapter=12,
    section="12.9",
    title="Mean loss per token",
    prompt="The mean loss per token over both, in nats.",
    hints=("Sums first: 3 times 2.0, and 1 times 4.0.",),
    level="easy",
    place="chapter",
    expected=(3 * 2.0 + 1 * 4.0) / 4,
    unit="1",
    rtol=1e-6,
    mistakes=(
        Mistake(
            name="mean-of-means", answer=3.0, message="This is the mean of the two means: B's token counts too much."
        ),
        Mistake(name="sum", answer=10.0, message="This is the sum over tokens; divide by their number."),
        Mistake(name="by-batches", answer=5.0, message="You divided by the number of micro-batches, not of tokens."),
    ),
)

NAN_INTO_ADAM = Choice(
    id="nan-into-adam",
    chapter=12,
    section="12.10",
    title="A NaN meets the optimizer",
    prompt="What is lost after that step?",
    hints=("Adam keeps running means of each gradient.", "What does that weight do in the next forward pass?"),
    level="medium",
    place="chapter",
    options={
        "a": Option("nothing, the next step repairs it", "A running mean that has taken in a NaN stays NaN for ever."),
        "b": Option(
            "that weight and its two moments, and from the next forward pass on everything",
            "m and v become NaN and with them the weight. The next forward pass carries it into every logit that the "
            "weight "
            "touches, and the backward pass into every gradient.",
            correct=True,
        ),
        "c": Option("that one step", "The state of the optimizer remembers."),
        "d": Option("only the learning rate schedule", "The schedule does not look at gradients."),
    },
)

GRADIENT_CONCLUDE = Choice(
    id="gradient-conclude",
    chapter=12,
    section="12.11",
    title="What may be concluded",
    prompt='Which statements follow from a gradient? Several may; answer such as `"a, c"`.',
    hints=("A gradient belongs to one point and one batch.",),
    level="medium",
    place="chapter",
    options={
        "a": Option(
            "a small enough step against the gradient lowers this batch's loss",
            "That is what the derivative says, where the gradient is not 0.",
            correct=True,
        ),
        "b": Option("a step of length 1 lowers the loss", "The bend decides, and the gradient does not know it."),
        "c": Option(
            "the weight with the largest gradient is the most important one",
            "The size depends on the batch, and on the unit in which the weight is written.",
        ),
        "d": Option(
            "a weight with gradient 0 can be removed",
            "At a minimum every gradient is 0. Removing a weight is a long step, not a small one.",
        ),
        "e": Option(
            "if one entry is -0.8, raising that weight by 0.001 changes the loss by about -0.0008",
            "First order: gradient times a small change.",
            correct=True,
        ),
    },
)

EXERCISES: tuple[Exercise, ...] = (
    QUADRATIC_STEP,
    LM_HEAD_BACKWARD,
    NUDGE_PREDICTION,
    EMBEDDING_BACKWARD,
    GATE_BACKWARD,
    CAUSAL_ATTENTION_BACKWARD,
    NORMS_BY_LAYER,
    CHECKPOINT_BYTES,
    STEP_FLOPS,
    ACCUMULATE,
    EXPLAIN_ACCUMULATION,
    STEP_SCALE,
    GRADIENT_LIMITS,
    BACKWARD_FIRST,
    GRADIENT_OF_SQUARE,
    SIGN_OF_ANSWER,
    HEAD_GRADIENT_SHAPE,
    NUDGE_CHANGES_LOSS,
    REPEATED_TOKEN,
    DEAD_DOWN,
    CHECKPOINT_PRICE,
    MEAN_OF_TWO,
    NAN_INTO_ADAM,
    GRADIENT_CONCLUDE,
)

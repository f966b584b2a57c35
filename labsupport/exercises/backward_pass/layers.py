"""Exercises of chapter 12 on the backward pass of embedding, gate and causal attention."""

import math
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Tolerance
from labsupport.ops.attention import attention_backward
from labsupport.ops.softmax import softmax

Array = np.ndarray


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
    dtype="exact",
    mistakes=(
        Mistake(
            name="float64-table",
            answer=lambda ids, dx, V: _embedding_backward(ids, dx, V).astype(np.float64),
            message="Your table is float64, as `np.zeros` makes it where no dtype is given. The contract keeps that of "
            "`dx`.",
        ),
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

EXERCISES: tuple[Exercise, ...] = (
    EMBEDDING_BACKWARD,
    GATE_BACKWARD,
    CAUSAL_ATTENTION_BACKWARD,
)

"""A right card for every operator of the exercise's list passes: no operator on the list is impossible to answer."""

import numpy as np
import pytest

from labsupport.operator_card import CARDS, OPERATORS, CardExercise, OperatorCard, review
from labsupport.ops.softmax import logsumexp, online_merge, online_state

TOLERANCE = {"float32": 1e-5, "float16": 2e-3}
COMMON = {"tolerance": TOLERANCE, "matmul_flops": lambda **sizes: 0, "tail": "masked", "sensitive": "the sums"}
SUM = {"merge": lambda a, b: a + b, "finish": lambda state, **inputs: state}
LONG = "long reduction"


def pairs(a, b):
    return tuple(p + q for p, q in zip(a, b, strict=True))


def in_float64(f):
    return lambda **inputs: f(**{name: x.astype(np.float64) for name, x in inputs.items()})


def cosine(x, y):
    norms = np.sqrt((x * x).sum(-1)) * np.sqrt((y * y).sum(-1))
    return np.where(norms > 0, (x * y).sum(-1) / np.where(norms > 0, norms, 1), 0)


def cosine_of(state, x, y):
    dot, xx, yy = state
    norms = np.sqrt(xx * yy)
    return np.where(norms > 0, dot / np.where(norms > 0, norms, 1), 0)


def kl(p, q):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p / q), 0).sum(-1)


def zero_row(x, y):
    x = x.copy()
    x[0] = 0
    return {"x": x, "y": y}


def tiny(p, q):
    q = q.copy()
    q[:, 0] = 1e-9
    return {"p": p, "q": q}


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def swiglu(gate, up):
    return gate * np.exp(-np.logaddexp(0, -gate)) * up


RIGHT = {
    "linear": {
        "inputs": {"X": ("N", "D_in"), "W": ("D_in", "D_out"), "b": ("D_out",)},
        "output": ("N", "D_out"),
        "intermediates": {"product": ("N", "D_out")},
        "kept": ("N", "D_out"),
        "reduced": ("D_in",),
        "tile_axis": "D_in",
        "state": lambda start, X, W, b: X @ W,
        "merge": lambda a, b: a + b,
        "finish": lambda state, X, W, b: state + b,
        "matmul_flops": lambda N, D_in, D_out: 2 * N * D_in * D_out,
        "other_flops": lambda N, D_in, D_out: N * D_out,
        "min_bytes": lambda e, N, D_in, D_out: e * (N * D_in + D_in * D_out + D_out + N * D_out),
        "broadcast": {"b": ("N",)},
        "risks": ("overflow", LONG),
        "fused": ("product",),
        "padding": {"X": 0.0, "W": 0.0},
        "reference": in_float64(lambda X, W, b: X @ W + b),
        "extreme": lambda X, W, b: {"X": X * 300, "W": W * 300, "b": b},
    },
    "batched_matmul": {
        "inputs": {"A": ("G", "M", "K"), "B": ("G", "K", "N")},
        "output": ("G", "M", "N"),
        "kept": ("G", "M", "N"),
        "reduced": ("K",),
        "tile_axis": "K",
        "state": lambda start, A, B: A @ B,
        **SUM,
        "matmul_flops": lambda G, M, N, K: 2 * G * M * N * K,
        "other_flops": lambda G, M, N, K: 0,
        "min_bytes": lambda e, G, M, N, K: e * G * (M * K + K * N + M * N),
        "risks": ("overflow", LONG),
        "padding": {"A": 0, "B": 0},
        "reference": in_float64(lambda A, B: np.einsum("gmk,gkn->gmn", A, B)),
        "extreme": lambda A, B: {"A": A * 300, "B": B * 300},
    },
    "rms_norm": {
        "inputs": {"x": ("N", "H"), "gamma": ("H",)},
        "output": ("N", "H"),
        "intermediates": {"mean_square": ("N", "1"), "normalised": ("N", "H")},
        "kept": ("N",),
        "reduced": ("H",),
        "tile_axis": "H",
        "state": lambda start, x, gamma: [x.shape[1], (x**2).sum(-1)],
        "merge": pairs,
        "finish": lambda s, x, gamma: x / np.sqrt(s[1] / s[0] + 1e-5)[:, None] * gamma,
        "other_flops": lambda N, H: 3 * N * H,
        "min_bytes": lambda e, N, H: 2 * e * N * H,
        "broadcast": {"gamma": ("N",)},
        "risks": ("overflow", "zero", LONG),
        "fused": ("normalised",),
        "reference": in_float64(lambda x, gamma: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gamma),
        "extreme": lambda x, gamma: {"x": x * 1000, "gamma": gamma},
    },
    "logsumexp": {
        "inputs": {"x": ("N", "V")},
        "output": ("N",),
        "intermediates": {"exponentials": ("N", "V"), "total": ("N",)},
        "kept": ("N",),
        "reduced": ("V",),
        "tile_axis": "V",
        "state": lambda start, x: online_state(x),
        "merge": online_merge,
        "finish": lambda s, x: s[0] + np.log(s[1]),
        "other_flops": lambda N, V: 4 * N * V,
        "min_bytes": lambda e, N, V: e * (N * V + N),
        "risks": ("overflow", "zero", LONG),
        "fused": ("exponentials", "total"),
        "padding": {"x": -np.inf},
        "reference": in_float64(lambda x: logsumexp(x)),
        "extreme": lambda x: {"x": x - 1000},
    },
    "gelu": {
        "inputs": {"x": ("N", "H")},
        "output": ("N", "H"),
        "intermediates": {"inner": ("N", "H")},
        "kept": ("N", "H"),
        "reduced": (),
        "tile_axis": "",
        "other_flops": lambda N, H: 9 * N * H,
        "min_bytes": lambda e, N, H: 2 * e * N * H,
        "risks": ("overflow",),
        "fused": ("inner",),
        "reference": in_float64(gelu),
        "extreme": lambda x: {"x": x * 300},
    },
    "swiglu": {
        "inputs": {"gate": ("N", "H"), "up": ("N", "H")},
        "output": ("N", "H"),
        "intermediates": {"exponentials": ("N", "H"), "activated": ("N", "H")},
        "kept": ("N", "H"),
        "reduced": (),
        "tile_axis": "",
        "other_flops": lambda N, H: 5 * N * H,
        "min_bytes": lambda e, N, H: 3 * e * N * H,
        "risks": ("overflow",),
        "fused": ("exponentials", "activated"),
        "reference": in_float64(swiglu),
        "extreme": lambda gate, up: {"gate": gate * 100, "up": up},
    },
    "mse": {
        "inputs": {"x": ("N", "H"), "y": ("N", "H")},
        "output": (),
        "intermediates": {"difference": ("N", "H"), "squares": ("N", "H")},
        "kept": (),
        "reduced": ("N", "H"),
        "tile_axis": "N",
        "state": lambda start, x, y: (x.size, ((x - y) ** 2).sum()),
        "merge": pairs,
        "finish": lambda s, x, y: s[1] / s[0],
        "other_flops": lambda N, H: 3 * N * H,
        "min_bytes": lambda e, N, H: 2 * e * N * H,
        "risks": ("overflow", "cancellation", LONG),
        "fused": ("difference", "squares"),
        "reference": in_float64(lambda x, y: ((x - y) ** 2).mean()),
        "extreme": lambda x, y: {"x": x * 300, "y": y},
    },
    "kl_divergence": {
        "inputs": {"p": ("N", "V"), "q": ("N", "V")},
        "output": ("N",),
        "intermediates": {"terms": ("N", "V")},
        "kept": ("N",),
        "reduced": ("V",),
        "tile_axis": "V",
        "state": lambda start, p, q: kl(p, q),
        **SUM,
        "other_flops": lambda N, V: 5 * N * V,
        "min_bytes": lambda e, N, V: e * (2 * N * V + N),
        "risks": ("zero", "cancellation", LONG),
        "fused": ("terms",),
        "padding": {"p": 0.0, "q": 1.0},
        "reference": in_float64(kl),
        "tolerance": {"float32": 1e-5, "float16": 2e-3},
        "extreme": tiny,
    },
    "cosine_similarity": {
        "inputs": {"x": ("N", "H"), "y": ("N", "H")},
        "output": ("N",),
        "intermediates": {"dot": ("N",), "norms": ("N",)},
        "kept": ("N",),
        "reduced": ("H",),
        "tile_axis": "H",
        "state": lambda start, x, y: ((x * y).sum(-1), (x * x).sum(-1), (y * y).sum(-1)),
        "merge": pairs,
        "finish": cosine_of,
        "other_flops": lambda N, H: 6 * N * H,
        "min_bytes": lambda e, N, H: e * (2 * N * H + N),
        "risks": ("overflow", "zero", LONG),
        "fused": ("dot", "norms"),
        "padding": {"x": 0.0, "y": 0.0},
        "reference": in_float64(cosine),
        "extreme": zero_row,
    },
}


def test_every_operator_of_the_list_has_a_right_card_here():
    assert set(RIGHT) == set(OPERATORS) - set(CARDS)


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", [0, 1, 2, 20_231_117])
def test_a_right_card_passes(name, seed):
    card = OperatorCard(operator=name, **{**COMMON, **RIGHT[name]})
    assert review(card, seed) == []
    exercise = CardExercise(
        id="a-card", chapter=10, section="10.8", title="A card", prompt="Fill it in.", hints=("Run it.",), model=card
    )
    assert exercise.judge(lambda: card, seed).passed

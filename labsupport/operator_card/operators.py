"""The operators that a card may describe: their inputs, their textbook steps, a safe reference and torch's own form.

The steps are the formula as a book prints it, unsafe where the formula is: they show what an implementer meets. The
reference is the safe one. An operator must never hold an answer of its card that a run of it could give.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labsupport.ops import attention as attention_ops
from labsupport.ops import linalg, normalization
from labsupport.ops import softmax as softmax_ops

Array = np.ndarray
Arrays = dict[str, Array]
Axes = tuple[str, ...]
EPS = 1e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator:
    """One operator, as code that runs.

    Args:
        name, title, formula: how it is called, in code, in words and as LaTeX.
        sizes: a small size for each axis letter, all different, so that a shape names its axes.
        inputs: name → axes of each input; ``output`` the axes of the result.
        steps: ``steps(**inputs)`` → every intermediate by name and the result as ``"out"``; the textbook formula.
        reference: ``reference(**inputs)`` → the result, numerically safe, any floating dtype.
        torch: ``torch(**tensors)`` → the result by torch's own operator, for the FLOP counter.
        shows: risk → inputs on which the steps in float16 break while the reference does not.
        excluded: risk → why it cannot occur.
        draw: ``draw(rng, sizes)`` → inputs; normal numbers unless given.
        integers: inputs that hold indices.
    """

    name: str
    title: str
    formula: str
    sizes: Mapping[str, int]
    inputs: Mapping[str, Axes]
    output: Axes
    steps: Callable[..., Arrays]
    reference: Callable[..., Array]
    torch: Callable[..., Any]
    shows: Mapping[str, Callable[[Arrays], Arrays]] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    draw: Callable[[np.random.Generator, Mapping[str, int]], Arrays] | None = None
    integers: tuple[str, ...] = ()

    def example(self, rng: np.random.Generator, sizes: Mapping[str, int] | None = None) -> Arrays:
        """Inputs in float64 (indices in int64) of the given sizes, the small ones by default."""
        sizes = self.sizes if sizes is None else sizes
        if self.draw:
            return self.draw(rng, sizes)
        return {name: rng.normal(size=tuple(sizes[a] for a in axes)) for name, axes in self.inputs.items()}

    def cast(self, inputs: Arrays, dtype: Any) -> Arrays:
        """The same inputs with every floating one in ``dtype``."""
        return {name: x if name in self.integers else x.astype(dtype) for name, x in inputs.items()}


def _times(factor: float, *names: str) -> Callable[[Arrays], Arrays]:
    """Inputs with the named ones multiplied."""
    return lambda inputs: {name: x * factor if name in names else x for name, x in inputs.items()}


def _minus_100(name: str) -> Callable[[Arrays], Arrays]:
    """Logits so low that every exponential is 0 in half precision, and their sum too."""
    return lambda inputs: {**inputs, name: inputs[name] - 100}


_NO_DIVISION = {"zero": "it divides by nothing and takes no logarithm"}


def _softmax_steps(x: Array) -> Arrays:
    exponentials = np.exp(x)
    total = exponentials.sum(axis=-1, keepdims=True)
    return {"exponentials": exponentials, "total": total, "out": exponentials / total}


def _layer_norm_steps(x: Array, gamma: Array, beta: Array) -> Arrays:
    mean = x.mean(axis=-1, keepdims=True)
    variance = (x * x).mean(axis=-1, keepdims=True) - mean * mean
    normalised = (x - mean) / np.sqrt(variance + x.dtype.type(EPS))
    return {"mean": mean, "variance": variance, "normalised": normalised, "out": normalised * gamma + beta}


def _attention_steps(Q: Array, K: Array, V: Array) -> Arrays:
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.dtype.type(Q.shape[-1]))
    exponentials = np.exp(scores)
    total = exponentials.sum(axis=-1, keepdims=True)
    probabilities = exponentials / total
    return {
        "scores": scores, "exponentials": exponentials, "total": total,
        "probabilities": probabilities, "out": probabilities @ V,
    }  # fmt: skip


def _cross_entropy_steps(logits: Array, targets: Array) -> Arrays:
    exponentials = np.exp(logits)
    total = exponentials.sum(axis=-1, keepdims=True)
    log_p = np.log(exponentials / total)
    losses = -log_p[np.arange(len(targets)), targets]
    return {"exponentials": exponentials, "total": total, "log_p": log_p, "losses": losses, "out": losses.mean()}


def _logits_and_targets(rng: np.random.Generator, sizes: Mapping[str, int]) -> Arrays:
    """Targets leave out the last class, so that the last column may be cut off."""
    N, V = sizes["N"], sizes["V"]
    return {"logits": rng.normal(size=(N, V)), "targets": rng.integers(V - 1, size=N)}


def _rms_norm_steps(x: Array, gamma: Array) -> Arrays:
    mean_square = (x * x).mean(axis=-1, keepdims=True)
    normalised = x / np.sqrt(mean_square + x.dtype.type(EPS))
    return {"mean_square": mean_square, "normalised": normalised, "out": normalised * gamma}


def _logsumexp_steps(x: Array) -> Arrays:
    exponentials = np.exp(x)
    total = exponentials.sum(axis=-1)
    return {"exponentials": exponentials, "total": total, "out": np.log(total)}


_GELU = float(np.sqrt(2 / np.pi))


def _gelu_steps(x: Array) -> Arrays:
    inner = x.dtype.type(_GELU) * (x + x.dtype.type(0.044715) * x * x * x)
    return {"inner": inner, "out": x.dtype.type(0.5) * x * (1 + np.tanh(inner))}


def _swiglu_steps(gate: Array, up: Array) -> Arrays:
    exponentials = np.exp(-gate)
    activated = gate / (1 + exponentials)
    return {"exponentials": exponentials, "activated": activated, "out": activated * up}


def _swiglu(gate: Array, up: Array) -> Array:
    e = np.exp(-np.abs(gate))
    return gate * np.where(gate >= 0, 1 / (1 + e), e / (1 + e)).astype(gate.dtype) * up


def _mse_steps(x: Array, y: Array) -> Arrays:
    difference = x - y
    squares = difference * difference
    return {"difference": difference, "squares": squares, "out": squares.mean()}


def _kl_steps(p: Array, q: Array) -> Arrays:
    terms = p * (np.log(p) - np.log(q))
    return {"terms": terms, "out": terms.sum(axis=-1)}


def _kl(p: Array, q: Array) -> Array:
    """Σ p log(p/q) with 0·log 0 = 0; p and q need not sum to 1, as a block of them does not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * (np.log(p) - np.log(q)), 0).sum(axis=-1)


def _two_distributions(rng: np.random.Generator, sizes: Mapping[str, int]) -> Arrays:
    shape = sizes["N"], sizes["V"]
    return {name: softmax_ops.softmax(rng.normal(size=shape)) for name in ("p", "q")}


def _tiny_q(inputs: Arrays) -> Arrays:
    q = inputs["q"].copy()
    q[:, 0] = 1e-9
    return {**inputs, "q": q}


def _cosine_steps(x: Array, y: Array) -> Arrays:
    dot = (x * y).sum(axis=-1)
    norms = np.sqrt((x * x).sum(axis=-1)) * np.sqrt((y * y).sum(axis=-1))
    return {"dot": dot, "norms": norms, "out": dot / norms}


def _zero_row(inputs: Arrays) -> Arrays:
    x = inputs["x"].copy()
    x[0] = 0
    return {**inputs, "x": x}


def _functional() -> Any:
    import torch

    return torch.nn.functional


_ALL = (
    Operator(
        name="matmul", title="Matrix product", formula=r"C = A B",
        sizes={"M": 3, "N": 5, "K": 7}, inputs={"A": ("M", "K"), "B": ("K", "N")}, output=("M", "N"),
        steps=lambda A, B: {"out": A @ B}, reference=lambda A, B: A @ B, torch=lambda A, B: A @ B,
        shows={"overflow": _times(300, "A", "B")}, excluded=_NO_DIVISION,
    ),
    Operator(
        name="softmax", title="Softmax", formula=r"p_{nv} = e^{x_{nv}} / \sum_j e^{x_{nj}}",
        sizes={"N": 3, "V": 7}, inputs={"x": ("N", "V")}, output=("N", "V"),
        steps=_softmax_steps, reference=lambda x: softmax_ops.softmax(x), torch=lambda x: x.softmax(-1),
        shows={"overflow": _times(2000, "x"), "zero": _minus_100("x")},
        excluded={"cancellation": "no two large numbers are subtracted to leave "
        "a small one that counts: after the shift the largest term is exactly 1"},
    ),
    Operator(
        name="layer_norm", title="LayerNorm",
        formula=r"y = \gamma \odot (x - \mu) / \sqrt{\sigma^2 + \varepsilon} + \beta",
        sizes={"N": 3, "H": 7}, inputs={"x": ("N", "H"), "gamma": ("H",), "beta": ("H",)}, output=("N", "H"),
        steps=_layer_norm_steps, reference=normalization.layer_norm,
        torch=lambda x, gamma, beta: _functional().layer_norm(x, x.shape[-1:], gamma, beta, EPS),
        shows={"overflow": _times(300, "x"), "cancellation": lambda inputs: {**inputs, "x": inputs["x"] + 100}},
    ),
    Operator(
        name="attention", title="Attention", formula=r"O = \mathrm{softmax}(Q K^\top / \sqrt{D_h})\, V",
        sizes={"G": 2, "S_q": 3, "S_k": 5, "D_h": 7, "D_v": 11},
        inputs={"Q": ("G", "S_q", "D_h"), "K": ("G", "S_k", "D_h"), "V": ("G", "S_k", "D_v")},
        output=("G", "S_q", "D_v"), steps=_attention_steps, reference=attention_ops.attention,
        torch=lambda Q, K, V: _functional().scaled_dot_product_attention(Q[None], K[None], V[None])[0],
        shows={"overflow": _times(2000, "Q")},
    ),
    Operator(
        name="cross_entropy", title="Cross-entropy, mean over tokens",
        formula=r"L = \frac{1}{N} \sum_n \bigl(\mathrm{LSE}(z_n) - z_{n, y_n}\bigr)",
        sizes={"N": 3, "V": 7}, inputs={"logits": ("N", "V"), "targets": ("N",)}, output=(),
        steps=_cross_entropy_steps, reference=lambda logits, targets: softmax_ops.cross_entropy(logits, targets),
        torch=lambda logits, targets: _functional().cross_entropy(logits, targets), draw=_logits_and_targets,
        integers=("targets",), shows={"overflow": _times(2000, "logits"), "zero": _minus_100("logits")},
    ),
    Operator(
        name="linear", title="Linear layer with bias", formula=r"Y = X W + b",
        sizes={"N": 3, "D_in": 7, "D_out": 5},
        inputs={"X": ("N", "D_in"), "W": ("D_in", "D_out"), "b": ("D_out",)}, output=("N", "D_out"),
        steps=lambda X, W, b: (lambda product: {"product": product, "out": product + b})(X @ W),
        reference=lambda X, W, b: X @ W + b, torch=lambda X, W, b: _functional().linear(X, W.T, b),
        shows={"overflow": _times(300, "X", "W")}, excluded=_NO_DIVISION,
    ),
    Operator(
        name="batched_matmul", title="Batched matrix product", formula=r"C_g = A_g B_g",
        sizes={"G": 2, "M": 3, "N": 5, "K": 7}, inputs={"A": ("G", "M", "K"), "B": ("G", "K", "N")},
        output=("G", "M", "N"), steps=lambda A, B: {"out": A @ B}, reference=lambda A, B: A @ B,
        torch=lambda A, B: A @ B, shows={"overflow": _times(300, "A", "B")}, excluded=_NO_DIVISION,
    ),
    Operator(
        name="rms_norm", title="RMSNorm", formula=r"y = \gamma \odot x / \sqrt{\tfrac1H \sum_h x_h^2 + \varepsilon}",
        sizes={"N": 3, "H": 7}, inputs={"x": ("N", "H"), "gamma": ("H",)}, output=("N", "H"),
        steps=_rms_norm_steps, reference=normalization.rms_norm,
        torch=lambda x, gamma: _functional().rms_norm(x, x.shape[-1:], gamma, EPS),
        shows={"overflow": _times(300, "x")},
        excluded={"cancellation": "it adds squares only, and nothing is subtracted"},
    ),
    Operator(
        name="logsumexp", title="LogSumExp", formula=r"y_n = \log \sum_v e^{x_{nv}}",
        sizes={"N": 3, "V": 7}, inputs={"x": ("N", "V")}, output=("N",),
        steps=_logsumexp_steps, reference=lambda x: softmax_ops.logsumexp(x), torch=lambda x: x.logsumexp(-1),
        shows={"overflow": _times(2000, "x"), "zero": _minus_100("x")},
    ),
    Operator(
        name="gelu", title="GELU, tanh form",
        formula=r"y = \tfrac{x}{2} \bigl(1 + \tanh(\sqrt{2/\pi}\,(x + 0.044715 x^3))\bigr)",
        sizes={"N": 3, "H": 7}, inputs={"x": ("N", "H")}, output=("N", "H"),
        steps=_gelu_steps, reference=lambda x: _gelu_steps(x)["out"],
        torch=lambda x: _functional().gelu(x, approximate="tanh"), shows={"overflow": _times(300, "x")},
        excluded={"zero": "it divides by no input and takes no logarithm", "long reduction": "it adds up no axis"},
    ),
    Operator(
        name="swiglu", title="SwiGLU gate", formula=r"y = \frac{g}{1 + e^{-g}} \odot u",
        sizes={"N": 3, "H": 7}, inputs={"gate": ("N", "H"), "up": ("N", "H")}, output=("N", "H"),
        steps=_swiglu_steps, reference=_swiglu, torch=lambda gate, up: _functional().silu(gate) * up,
        shows={"overflow": _times(2000, "gate")},
        excluded={"zero": "the denominator is at least 1", "long reduction": "it adds up no axis"},
    ),
    Operator(
        name="mse", title="Mean squared error", formula=r"L = \frac{1}{N H} \sum_{n,h} (x_{nh} - y_{nh})^2",
        sizes={"N": 3, "H": 7}, inputs={"x": ("N", "H"), "y": ("N", "H")}, output=(),
        steps=_mse_steps, reference=lambda x, y: ((x - y) * (x - y)).mean(),
        torch=lambda x, y: _functional().mse_loss(x, y), shows={"overflow": _times(300, "x")},
        excluded={"zero": "the only divisor is the number of elements"},
    ),
    Operator(
        name="kl_divergence", title="KL divergence", formula=r"y_n = \sum_v p_{nv} (\log p_{nv} - \log q_{nv})",
        sizes={"N": 3, "V": 7}, inputs={"p": ("N", "V"), "q": ("N", "V")}, output=("N",),
        steps=_kl_steps, reference=_kl, torch=lambda p, q: (p * (p.log() - q.log())).sum(-1),
        draw=_two_distributions, shows={"zero": _tiny_q},
        excluded={"overflow": "probabilities lie in [0, 1], and no exponential is taken"},
    ),
    Operator(
        name="cosine_similarity", title="Cosine similarity", formula=r"y_n = x_n \cdot y_n / (\|x_n\| \|y_n\|)",
        sizes={"N": 3, "H": 7}, inputs={"x": ("N", "H"), "y": ("N", "H")}, output=("N",),
        steps=_cosine_steps, reference=lambda x, y: linalg.cosine_similarity(x, y),
        torch=lambda x, y: _functional().cosine_similarity(x, y),
        shows={"overflow": _times(300, "x", "y"), "zero": _zero_row},
    ),
)  # fmt: skip

#: Every operator that a card may describe, by name.
OPERATORS: Mapping[str, Operator] = {operator.name: operator for operator in _ALL}


def brief(name: str) -> str:
    """What a card of this operator may refer to: formula, inputs, output, and the steps of the textbook formula."""
    if name not in OPERATORS:
        raise ValueError(f"no operator {name!r}; a card may describe {', '.join(OPERATORS)}")
    operator = OPERATORS[name]
    taken = ", ".join(f"{name} ({', '.join(axes)})" for name, axes in operator.inputs.items())
    steps = operator.steps(**operator.example(np.random.default_rng(0)))
    between = [step for step in steps if step != "out"]
    return "\n".join([
        f"{operator.name}: {operator.title}",
        f"  formula        {operator.formula}",
        f"  inputs         {taken}",
        f"  output         out ({', '.join(operator.output)})",
        f"  intermediates  {', '.join(between) or 'none'}",
    ])  # fmt: skip

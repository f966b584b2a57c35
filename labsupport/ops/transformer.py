"""A whole small transformer in NumPy: forward, loss, backward by hand, and generation with a cache.

The model is pre-norm, without biases and without parameters in its norms: embedding, L layers of
[RMSNorm, causal attention, residual, RMSNorm, gated MLP, residual], RMSNorm, LM head. It holds
exactly P = 2nd + L(4d² + 3dm) parameters. Nothing here may call an autograd.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from labsupport.ops.attention import attention, attention_backward
from labsupport.ops.normalization import rms_norm, rms_norm_backward
from labsupport.ops.softmax import log_softmax

__all__ = [
    "Config",
    "KVCache",
    "backward",
    "check_ids",
    "check_parameters",
    "count_parameters",
    "forward",
    "generate",
    "init",
    "loss",
    "positions",
    "shapes",
]

Array = npt.NDArray[Any]
Parameters = dict[str, Array]
#: A label that does not count: padding.
IGNORE = -100


@dataclass(frozen=True)
class Config:
    """Sizes of the model.

    Args:
        vocab: n, number of tokens.
        width: d, the residual stream.
        layers: L.
        hidden: m, width of the gated MLP.
        heads: N_h; d must be a multiple, D_h = d / N_h.
    """

    vocab: int
    width: int
    layers: int
    hidden: int
    heads: int = 1

    def __post_init__(self) -> None:
        for name in ("vocab", "width", "layers", "hidden", "heads"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < (0 if name == "layers" else 1):
                raise ValueError(f"{name} is {value!r}; it must be a whole number, 1 or more (layers: 0 or more)")
        if self.width % self.heads:
            raise ValueError(
                f"width {self.width} is not a multiple of heads {self.heads}; D_h = width / heads is whole"
            )


def shapes(config: Config) -> dict[str, tuple[int, int]]:
    """Name and shape of every parameter, in the order of the forward pass."""
    d, m = config.width, config.hidden
    found: dict[str, tuple[int, int]] = {"embedding": (config.vocab, d)}
    for layer in range(config.layers):
        for name in ("query", "key", "value", "output"):
            found[f"layers.{layer}.{name}"] = (d, d)
        found |= {f"layers.{layer}.{name}": (d, m) for name in ("gate", "up")}
        found[f"layers.{layer}.down"] = (m, d)
    found["head"] = (d, config.vocab)
    return found


def count_parameters(config: Config) -> int:
    """P = 2nd + L(4d² + 3dm): embedding and head, then four attention and three MLP matrices a layer."""
    n, d, m = config.vocab, config.width, config.hidden
    return 2 * n * d + config.layers * (4 * d * d + 3 * d * m)


def init(config: Config, rng: np.random.Generator, dtype: npt.DTypeLike = np.float64) -> Parameters:
    """Fresh parameters: normal numbers with standard deviation 1/√fan_in, residual outputs scaled down.

    Args:
        config: the sizes.
        rng: where the random numbers come from.
        dtype: floating dtype of every parameter.

    Returns:
        Name → array of the shapes of ``shapes(config)``.

    Source: the scale 1/√(2L) of the matrices that write to the residual stream is GPT-2's
    (Radford et al., 2019, section 2.3).
    """
    parameters: Parameters = {}
    for name, shape in shapes(config).items():
        std = 1 / math.sqrt(shape[1] if name == "embedding" else shape[0])
        if name.endswith((".output", ".down")):
            std /= math.sqrt(2 * config.layers)
        parameters[name] = (rng.normal(size=shape) * std).astype(dtype)
    return parameters


def positions(start: int, count: int, width: int) -> Array:
    """Sinusoidal position vectors (count, d) from position ``start``: sin and cos of falling frequencies.

    Source: Vaswani et al. (2017), section 3.5.
    """
    place = np.arange(start, start + count)[:, None]
    frequency = 10000.0 ** (-np.arange(0, width, 2) / width)[None, :]
    vectors = np.empty((count, width))
    vectors[:, 0::2] = np.sin(place * frequency)
    vectors[:, 1::2] = np.cos(place * frequency)[:, : width // 2]
    return vectors


@dataclass
class KVCache:
    """Keys and values of the tokens already read, so that decoding computes each of them once.

    ``keys[layer]`` and ``values[layer]`` are (B, N_h, length, D_h); empty at the start.
    Size in bytes: 2 · L · B · length · d · itemsize.
    """

    config: Config
    keys: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Number of tokens held."""
        return int(self.keys[0].shape[-2]) if self.keys else 0

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(array.nbytes for array in (*self.keys, *self.values))

    def extend(self, layer: int, key: Array, value: Array) -> tuple[Array, Array]:
        """Append the new tokens' keys and values (B, N_h, T, D_h); returns those of all tokens."""
        if layer == len(self.keys):
            self.keys.append(key)
            self.values.append(value)
        else:
            if self.keys[layer].shape[0] != key.shape[0]:
                raise ValueError(f"the cache holds batch size {self.keys[layer].shape[0]}, not {key.shape[0]}")
            self.keys[layer] = np.concatenate([self.keys[layer], key], axis=-2)
            self.values[layer] = np.concatenate([self.values[layer], value], axis=-2)
        return self.keys[layer], self.values[layer]


# -- forward --------------------------------------------------------------------------------


def forward(
    config: Config, parameters: Parameters, ids: npt.ArrayLike, cache: KVCache | None = None
) -> tuple[Array, dict[str, Any]]:
    """Logits of every position, and what the backward pass needs.

    Args:
        config: the sizes.
        parameters: of ``init``.
        ids: (B, T) integers in [0, n). With a cache: the tokens after those it holds.
        cache: keys and values so far; it grows by T. No backward pass through a cache.

    Returns:
        logits (B, T, n); logits at t depend on tokens ≤ t only. And the saved activations.

    Raises:
        ValueError: ids outside [0, n), not (B, T), or parameters of another configuration.
        TypeError: ids that are not integers.
    """
    ids = check_ids(config, ids)
    check_parameters(config, parameters)
    start = cache.length if cache else 0
    x = parameters["embedding"][ids]
    x = x + positions(start, ids.shape[1], config.width).astype(x.dtype)
    saved: dict[str, Any] = {"ids": ids, "layers": [], "cached": cache is not None}
    for layer in range(config.layers):
        x, kept = _layer_forward(config, parameters, layer, x, cache)
        saved["layers"].append(kept)
    saved["x"] = x
    saved["normed"] = rms_norm(x, _ones(x))
    return saved["normed"] @ parameters["head"], saved


def _layer_forward(
    config: Config, parameters: Parameters, layer: int, x: Array, cache: KVCache | None
) -> tuple[Array, dict[str, Array]]:
    W, heads = _of_layer(parameters, layer), config.heads
    a = rms_norm(x, _ones(x))
    Q, K, V = (_split(a @ W[k], heads) for k in ("query", "key", "value"))
    if cache is not None:
        K, V = cache.extend(layer, K, V)
    o = _merge(attention(Q, K, V, causal=True))
    y = x + o @ W["output"]
    b = rms_norm(y, _ones(y))
    gate, up = b @ W["gate"], b @ W["up"]
    h = _silu(gate) * up
    kept = {"x": x, "a": a, "Q": Q, "K": K, "V": V, "o": o, "y": y, "b": b, "gate": gate, "up": up, "h": h}
    return y + h @ W["down"], kept


def loss(
    config: Config, parameters: Parameters, ids: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[float, dict[str, Any]]:
    """Mean cross-entropy over the labels that count, in nats, and what ``backward`` needs.

    Args:
        config, parameters, ids: as in ``forward``.
        labels: (B, T) integers: the token that follows each position, or −100 where none counts.

    Raises:
        ValueError: labels of another shape than ``ids``, outside [0, n), or none that counts.
    """
    logits, saved = forward(config, parameters, ids)
    labels = np.asarray(labels)
    if labels.shape != saved["ids"].shape:
        raise ValueError(f"labels have shape {labels.shape} but ids have shape {saved['ids'].shape}")
    counted = labels != IGNORE
    if not counted.any():
        raise ValueError("no label counts: every one is -100, and the mean of no losses is not defined")
    if labels[counted].min() < 0 or labels[counted].max() >= config.vocab:
        raise ValueError(f"labels lie outside [0, {config.vocab}); only -100 marks a label that does not count")
    log_p = log_softmax(logits)
    picked = np.take_along_axis(log_p, np.where(counted, labels, 0)[..., None], axis=-1)[..., 0]
    saved |= {"log_p": log_p, "labels": labels, "counted": counted}
    return float(-picked[counted].mean()), saved


# -- backward -------------------------------------------------------------------------------


def backward(config: Config, parameters: Parameters, saved: dict[str, Any]) -> Parameters:
    """Gradient of the mean loss by every parameter, in the reverse order of the forward pass.

    Args:
        config, parameters: as in ``loss``.
        saved: what ``loss`` returned.

    Returns:
        Name → gradient, shapes of the parameters.

    Raises:
        ValueError: ``saved`` comes from ``forward`` alone.
    """
    if "labels" not in saved:
        raise ValueError("saved has no labels: call loss(...), not forward(...), before backward(...)")
    grads: Parameters = {}
    dlogits = np.exp(saved["log_p"])
    labels = np.where(saved["counted"], saved["labels"], 0)[..., None]
    np.put_along_axis(dlogits, labels, np.take_along_axis(dlogits, labels, -1) - 1, -1)
    dlogits = np.where(saved["counted"][..., None], dlogits, 0) / dlogits.dtype.type(saved["counted"].sum())
    grads["head"] = _weight_gradient(saved["normed"], dlogits)
    dx = _norm_backward(saved["x"], dlogits @ parameters["head"].T)
    for layer in reversed(range(config.layers)):
        dx = _layer_backward(config, parameters, layer, saved["layers"][layer], dx, grads)
    grads["embedding"] = np.zeros_like(parameters["embedding"])
    np.add.at(grads["embedding"], saved["ids"], dx)  # a token that occurs twice adds both gradients
    return {name: grads[name] for name in parameters}


def _layer_backward(
    config: Config, parameters: Parameters, layer: int, kept: dict[str, Array], dx: Array, grads: Parameters
) -> Array:
    W = _of_layer(parameters, layer)
    name = f"layers.{layer}."
    grads[name + "down"] = _weight_gradient(kept["h"], dx)
    dh = dx @ W["down"].T
    dgate = dh * kept["up"] * _silu_slope(kept["gate"])
    dup = dh * _silu(kept["gate"])
    grads[name + "gate"] = _weight_gradient(kept["b"], dgate)
    grads[name + "up"] = _weight_gradient(kept["b"], dup)
    dy = dx + _norm_backward(kept["y"], dgate @ W["gate"].T + dup @ W["up"].T)  # residual + branch
    grads[name + "output"] = _weight_gradient(kept["o"], dy)
    do = _split(dy @ W["output"].T, config.heads)
    dQ, dK, dV = map(_merge, attention_backward(kept["Q"], kept["K"], kept["V"], do, causal=True))
    da = np.zeros_like(kept["a"])
    for part, gradient in (("query", dQ), ("key", dK), ("value", dV)):
        grads[name + part] = _weight_gradient(kept["a"], gradient)
        da = da + gradient @ W[part].T  # a is used three times: its gradients add up
    return dy + _norm_backward(kept["x"], da)


# -- generation -----------------------------------------------------------------------------


def generate(
    config: Config,
    parameters: Parameters,
    prompt: npt.ArrayLike,
    steps: int,
    choose: Callable[[Array], Array] | None = None,
    use_cache: bool = True,
) -> Array:
    """Continue each row of the prompt by ``steps`` tokens.

    Args:
        config, parameters: the model.
        prompt: (B, T) token ids, T ≥ 1.
        steps: how many tokens to add, 0 or more.
        choose: logits (B, n) → token ids (B,); by default the largest logit (greedy).
        use_cache: compute keys and values of each token once (a prefill, then one token a step)
            instead of the whole sequence again at every step. Both give the same tokens.

    Returns:
        (B, T + steps) ids.

    Raises:
        ValueError: an empty prompt, negative ``steps``.
    """
    ids = check_ids(config, prompt)
    if ids.shape[1] == 0:
        raise ValueError("the prompt is empty: give at least one token for each row")
    if steps < 0:
        raise ValueError(f"steps is {steps}; it counts tokens to add, 0 or more")
    choose = choose or (lambda logits: logits.argmax(axis=-1))
    for logits in _next_logits(config, parameters, ids, steps, use_cache, chosen := []):
        chosen.append(np.asarray(choose(logits)))
    return np.concatenate([ids, *(token[:, None] for token in chosen)], axis=1)


def _next_logits(
    config: Config, parameters: Parameters, ids: Array, steps: int, use_cache: bool, chosen: list[Array]
) -> Iterator[Array]:
    cache = KVCache(config) if use_cache else None
    for step in range(steps):
        if cache is None:
            unread = np.concatenate([ids, *(token[:, None] for token in chosen)], axis=1)
        else:
            unread = ids if step == 0 else chosen[-1][:, None]
        logits, _ = forward(config, parameters, unread, cache)
        yield logits[:, -1]


# -- small parts ----------------------------------------------------------------------------


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _silu_slope(x: Array) -> Array:
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))  # never above 1, so it cannot overflow
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _ones(x: Array) -> Array:
    return np.ones(x.shape[-1], x.dtype)


def _norm_backward(x: Array, dy: Array) -> Array:
    return rms_norm_backward(x, _ones(x), dy)[0]


def _weight_gradient(x: Array, dy: Array) -> Array:
    """Xᵀ dY with batch and positions as the rows."""
    return x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])


def _split(x: Array, heads: int) -> Array:
    """(B, T, d) → (B, N_h, T, D_h)."""
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def _merge(x: Array) -> Array:
    """(B, N_h, T, D_h) → (B, T, d)."""
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def _of_layer(parameters: Parameters, layer: int) -> Parameters:
    names = ("query", "key", "value", "output", "gate", "up", "down")
    return {name: parameters[f"layers.{layer}.{name}"] for name in names}


def check_ids(config: Config, ids: npt.ArrayLike) -> Array:
    """The ids as an array.

    Raises:
        TypeError: no integers.
        ValueError: not (B, T), or outside [0, n).
    """
    array = np.asarray(ids)
    if array.dtype.kind not in "iu":
        raise TypeError(f"ids have dtype {array.dtype}; token ids are integers")
    if array.ndim != 2:
        raise ValueError(f"ids have shape {array.shape}; they must be (B, T)")
    if array.size and (array.min() < 0 or array.max() >= config.vocab):
        raise ValueError(
            f"ids lie in [{array.min()}, {array.max()}]; with a vocabulary of {config.vocab} they are 0..n-1"
        )
    return array


def check_parameters(config: Config, parameters: Parameters) -> None:
    """Nothing, if the names and shapes are those of ``shapes(config)``.

    Raises:
        ValueError: a parameter is missing, left over, or of another shape; it is named.
    """
    wanted = shapes(config)
    if missing := sorted(set(wanted) ^ set(parameters)):
        raise ValueError(f"the parameters do not belong to this configuration: {missing[0]} is missing or left over")
    for name, shape in wanted.items():
        if parameters[name].shape != shape:
            raise ValueError(f"{name} has shape {parameters[name].shape}; this configuration needs {shape}")

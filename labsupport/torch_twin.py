"""The small transformer of ``ops.transformer`` once more, as a torch module with the same parameters by the same names.

It is the second opinion on the NumPy model: same loss, same gradients, tensor by tensor, and it gives what only torch
has: autograd, checkpointing, mixed precision and a profiler. It must never add a parameter or change the arithmetic.
"""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from labsupport.ops import transformer
from labsupport.ops.transformer import Config, Parameters

__all__ = ["gradients", "loss", "module", "to_numpy"]

#: ε under the root of the RMSNorm, the default of ``ops.normalization.rms_norm``.
EPS = 1e-5
ATTENTION = ("explicit", "fused")


def module(
    config: Config,
    parameters: Parameters,
    *,
    attention: str = "explicit",
    checkpoint: bool = False,
    device: str = "cpu",
) -> Any:
    """A ``torch.nn.Module`` that computes what ``ops.transformer.forward`` computes.

    Args:
        config: the sizes.
        parameters: of ``ops.transformer.init``; they are copied, and keep their dtype.
        attention: "explicit" writes the score matrix out; "fused" calls torch's scaled_dot_product_attention.
        checkpoint: save the input of each layer only, and compute the layer again in the backward pass.
        device: where the parameters live.

    Returns:
        A module: ids (B, T) → logits (B, T, n). ``named_parameters()`` has the names of ``parameters``, and so has
        ``state_dict()``. Its parts are ``layers.0.norm_attention``, ``.attention``, ``.attention.core``,
        ``.norm_mlp``, ``.mlp``, and ``norm``: modules without parameters, for hooks and profilers.

    Raises:
        ValueError: parameters of another configuration, or an unknown kind of attention.
    """
    if attention not in ATTENTION:
        raise ValueError(f"attention is {attention!r}; choose one of {', '.join(ATTENTION)}")
    transformer.check_parameters(config, parameters)
    return _classes().Twin(config, parameters, attention, checkpoint).to(device)


def loss(model: Any, ids: npt.ArrayLike, labels: npt.ArrayLike) -> Any:
    """Mean cross-entropy over the labels that count, in nats: a torch scalar to call ``backward()`` on.

    Args:
        model: of ``module``.
        ids, labels: (B, T) integers, arrays or tensors; a label of −100 does not count.

    Raises:
        ValueError: labels of another shape than ``ids``, or none that counts.
    """
    import torch

    logits = model(ids)
    targets = torch.as_tensor(np.asarray(labels) if not torch.is_tensor(labels) else labels).to(logits.device).long()
    if targets.shape != logits.shape[:2]:
        raise ValueError(f"labels have shape {tuple(targets.shape)} but ids have shape {tuple(logits.shape[:2])}")
    if not bool((targets != transformer.IGNORE).any()):
        raise ValueError("no label counts: every one is -100, and the mean of no losses is not defined")
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=transformer.IGNORE)


def to_numpy(model: Any) -> Parameters:
    """Name → array: a copy of the model's parameters in the form of ``ops.transformer``."""
    tensors = dict(model.named_parameters())
    return {name: tensors[name].detach().cpu().numpy().copy() for name in transformer.shapes(model.config)}


def gradients(model: Any) -> Parameters:
    """Name → array: a copy of the gradients that ``backward()`` has left.

    Raises:
        ValueError: a parameter has none yet.
    """
    tensors = dict(model.named_parameters())
    found: Parameters = {}
    for name in transformer.shapes(model.config):
        grad = tensors[name].grad
        if grad is None:
            raise ValueError(f"{name} has no gradient yet: call loss(...).backward() first")
        found[name] = grad.detach().cpu().numpy().copy()
    return found


@cache
def _classes() -> SimpleNamespace:
    """The module classes; they are made on first use, because torch is imported here and not before."""
    import torch
    from torch import Tensor, nn

    class Norm(nn.Module):
        """x / √(mean(x²) + ε) over the last axis."""

        def forward(self, x: Tensor) -> Tensor:
            return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS)

    class Core(nn.Module):
        """softmax(Q Kᵀ / √D_h) V under the causal mask; Q, K, V: (B, N_h, T, D_h)."""

        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind = kind

        def forward(self, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
            if self.kind == "fused":
                return nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=True)
            T = Q.shape[-2]
            scores = Q @ K.transpose(-1, -2) / Q.shape[-1] ** 0.5
            allowed = torch.ones(T, T, dtype=torch.bool, device=Q.device).tril()
            return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ V

    class Attention(nn.Module):
        """Projections, heads, core, output projection; a and the result: (B, T, d)."""

        def __init__(self, heads: int, kind: str) -> None:
            super().__init__()
            self.heads = heads
            self.core = Core(kind)

        def forward(self, a: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> Tensor:
            B, T, _ = a.shape
            Q, K, V = ((a @ W).view(B, T, self.heads, -1).transpose(1, 2) for W in (query, key, value))
            return self.core(Q, K, V).transpose(1, 2).reshape(B, T, -1) @ output

    class MLP(nn.Module):
        """(silu(b W_gate) ⊙ b W_up) W_down; b and the result: (B, T, d)."""

        def forward(self, b: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
            return (nn.functional.silu(b @ gate) * (b @ up)) @ down

    class Layer(nn.Module):
        """x + attention(norm(x)), then y + MLP(norm(y)); it owns the layer's seven matrices."""

        def __init__(self, heads: int, kind: str, weights: dict[str, Tensor]) -> None:
            super().__init__()
            for name, tensor in weights.items():
                self.register_parameter(name, nn.Parameter(tensor))
            self.norm_attention, self.norm_mlp = Norm(), Norm()
            self.attention, self.mlp = Attention(heads, kind), MLP()

        def forward(self, x: Tensor) -> Tensor:
            y = x + self.attention(self.norm_attention(x), self.query, self.key, self.value, self.output)
            return y + self.mlp(self.norm_mlp(y), self.gate, self.up, self.down)

    class Twin(nn.Module):
        """Embedding and positions, the layers, the last norm, the LM head."""

        def __init__(self, config: Config, parameters: Parameters, kind: str, checkpoint: bool) -> None:
            super().__init__()
            self.config, self.checkpoint = config, checkpoint
            tensors = {name: torch.tensor(array) for name, array in parameters.items()}
            self.embedding = nn.Parameter(tensors["embedding"])
            self.layers = nn.ModuleList(
                Layer(config.heads, kind, _of_layer(tensors, layer)) for layer in range(config.layers)
            )
            self.norm = Norm()
            self.head = nn.Parameter(tensors["head"])

        def forward(self, ids: Any) -> Tensor:
            ids = _checked(self.config, ids).to(self.embedding.device)
            places = transformer.positions(0, ids.shape[1], self.config.width)
            x = self.embedding[ids] + torch.from_numpy(places).to(self.embedding)
            for layer in self.layers:
                x = _recomputed(layer, x) if self.checkpoint and torch.is_grad_enabled() else layer(x)
            return self.norm(x) @ self.head

    return SimpleNamespace(Twin=Twin)


def _recomputed(layer: Callable[[Any], Any], x: Any) -> Any:
    """The layer under activation checkpointing: only x is kept for the backward pass."""
    from torch.utils.checkpoint import checkpoint

    return checkpoint(layer, x, use_reentrant=False)


def _of_layer(tensors: dict[str, Any], layer: int) -> dict[str, Any]:
    start = f"layers.{layer}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def _checked(config: Config, ids: Any) -> Any:
    """Token ids (B, T) as an int64 tensor, with the complaints of the NumPy model."""
    import torch

    array = ids.detach().cpu().numpy() if torch.is_tensor(ids) else ids
    transformer.check_ids(config, array)
    return ids.long() if torch.is_tensor(ids) else torch.as_tensor(np.asarray(ids)).long()

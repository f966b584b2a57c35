"""Memory of a whole transformer, part by part, from its published sizes: weights, training state, activations, cache.

Everything is counted from shapes, and each model names where its sizes were published. This file must never hold a
total: a total is the sum of its parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labsupport.cost import Bytes, TrainingMemory, itemsize, training_memory

__all__ = ["MODELS", "Model", "activation_bytes", "kv_cache_bytes", "layer_activations", "train"]


@dataclass(frozen=True, kw_only=True)
class Model:
    """The sizes of a decoder-only transformer.

    Args:
        name, source: how it is called, and where its sizes were published.
        vocabulary, width, layers, heads: V, H, L, N_h.
        kv_heads: heads of K and V; fewer than ``heads`` where several query heads share one.
        hidden: width of the MLP.
        positions: rows of a learned position table; 0 where positions are rotations, which have no parameters.
        gated: whether the MLP has a third matrix, the gate.
        bias: whether linear layers have a bias.
        norm_tensors: parameters of a normalisation per unit of width: 2 for LayerNorm (γ, β), 1 for RMSNorm (γ).
        tied: whether the LM head is the embedding, transposed.
        published: the number of parameters that its authors' files hold.
    """

    name: str
    source: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    positions: int = 0
    gated: bool = False
    bias: bool = False
    norm_tensors: int = 1
    tied: bool = False
    published: int = 0

    def __post_init__(self) -> None:
        if min(self.vocabulary, self.width, self.layers, self.heads, self.kv_heads, self.hidden) < 1:
            raise ValueError(f"{self.name}: every size is at least 1")
        if self.width % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"{self.name}: width {self.width} must be a multiple of {self.heads} heads, and these a multiple of "
                f"{self.kv_heads} heads of K and V"
            )

    @property
    def head_width(self) -> int:
        """D_h = H / N_h."""
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        """Width of K and of V of one token in one layer, kv_heads · D_h."""
        return self.kv_heads * self.head_width

    def layer(self) -> dict[str, int]:
        """Parameters of one layer, by part."""
        H, m, kv = self.width, self.hidden, self.kv_width
        attention = H * (H + 2 * kv) + H * H + self.bias * (H + 2 * kv + H)
        mlp = (3 if self.gated else 2) * H * m + self.bias * (m + H)
        return {"attention": attention, "MLP": mlp, "norms": 2 * self.norm_tensors * H}

    def parts(self) -> dict[str, int]:
        """Parameters of the whole model, by part; their sum is ``parameters``."""
        layers = {name: self.layers * count for name, count in self.layer().items()}
        return {
            "embedding": self.vocabulary * self.width,
            "positions": self.positions * self.width,
            **layers,
            "final norm": self.norm_tensors * self.width,
            "LM head": 0 if self.tied else self.vocabulary * self.width,
        }

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(self.parts().values())


#: Two public models, with the sizes that their authors published.
MODELS: Mapping[str, Model] = {
    "GPT-2 small": Model(
        name="GPT-2 small",
        source="Radford et al. (2019), table 2; released weights (n_vocab 50257, n_ctx 1024, n_embd 768)",
        vocabulary=50_257,
        width=768,
        layers=12,
        heads=12,
        kv_heads=12,
        hidden=4 * 768,
        positions=1024,
        bias=True,
        norm_tensors=2,
        tied=True,
        published=124_439_808,
    ),
    "Llama 3 8B": Model(
        name="Llama 3 8B",
        source="Dubey et al. (2024), table 3; released configuration (vocab_size 128256, intermediate_size 14336)",
        vocabulary=128_256,
        width=4096,
        layers=32,
        heads=32,
        kv_heads=8,
        hidden=14_336,
        gated=True,
        published=8_030_261_248,
    ),
}


def kv_cache_bytes(model: Model, B: int, S: int, dtype: Any = "bfloat16") -> Bytes:
    """Bytes of the keys and values of B sequences of S tokens: 2 · L · B · S · kv_heads · D_h elements."""
    _positive(B=B, S=S)
    return Bytes(2 * model.layers * B * S * model.kv_width * itemsize(dtype))


def layer_activations(model: Model, B: int, S: int, dtype: Any = "bfloat16", *, fused: bool = True) -> dict[str, Bytes]:
    """What one layer keeps for its backward pass, by part: the inputs of every operation that needs them.

    No dropout. ``fused`` attention keeps its output and one float32 LogSumExp for each query and head; otherwise the
    probabilities, B · N_h · S², are kept. Mean and 1/σ of a norm are float32, one (RMSNorm) or two a token. A gated
    MLP keeps gate, up, the activated gate and their product. Source: counting as in Korthikanti et al. (2022),
    "Reducing Activation Recomputation in Large Transformer Models", section 4.1.
    """
    _positive(B=B, S=S)
    e, tokens, H, m = itemsize(dtype), B * S, model.width, model.hidden
    statistics = 4 * tokens * model.norm_tensors
    core = 4 * tokens * model.heads if fused else e * B * model.heads * S * S
    return {
        "norms": Bytes(2 * (e * tokens * H + statistics)),
        "linear inputs": Bytes(e * tokens * 2 * H),
        "Q, K, V": Bytes(e * tokens * (H + 2 * model.kv_width)),
        "attention core": Bytes(core),
        "attention output": Bytes(e * tokens * H),
        "MLP": Bytes(e * tokens * m * (4 if model.gated else 2)),
    }


def activation_bytes(
    model: Model, B: int, S: int, dtype: Any = "bfloat16", *, fused: bool = True, checkpointing: bool = False
) -> Bytes:
    """Bytes kept from the forward pass at its peak: layers, final norm, LM head input, and float32 log-probabilities.

    With ``checkpointing`` each layer keeps its input only, and the one layer that is computed again keeps all of its
    own. The loss keeps the logits' log-softmax (B, S, V) in float32, as an unfused cross-entropy does.
    """
    e, tokens = itemsize(dtype), B * S
    layer = sum(layer_activations(model, B, S, dtype, fused=fused).values())
    layers = model.layers * e * tokens * model.width + layer if checkpointing else model.layers * layer
    end = 2 * e * tokens * model.width + 4 * tokens * model.norm_tensors + 4 * tokens * model.vocabulary
    return Bytes(layers + end)


def train(
    model: Model,
    B: int,
    S: int,
    dtype: Any = "bfloat16",
    *,
    fused: bool = True,
    checkpointing: bool = False,
    **settings: Any,
) -> TrainingMemory:
    """Training memory of the model; ``settings`` are those of ``cost.training_memory`` (optimizer, ranks, …)."""
    kept = activation_bytes(model, B, S, dtype, fused=fused, checkpointing=checkpointing)
    return training_memory(model.parameters, dtype=dtype, activations=kept, **settings)


def _positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; it must be at least 1")

"""What each kernel must return, in float64, and by how much a correct float32 kernel may miss it.

Torch tensors in, on any device; each function returns (truth, bound), both float64 and elementwise.
The bounds are computed from the data by the usual rules of rounding (Higham 2002, ch. 2-3), never
fitted to a kernel, so that a narrower accumulator or a forgotten term lies outside of them.
"""

import math
from typing import Any

__all__ = ["UNIT", "cross_entropy", "flash_attention", "layer_norm", "matmul", "rms_norm", "softmax"]

#: Unit roundoff: half the distance from 1 to the next number.
UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
#: What may become 0: float32 below the normal numbers on a GPU, half the smallest float16.
TINY = {"float32": 2.0**-126, "float16": 2.0**-25, "bfloat16": 2.0**-126}
U = UNIT["float32"]
U_TF32 = 2.0**-11


def depth(n: int) -> int:
    """Roundings on the way of one term into a sum of ``n``: a thread's or a vector lane's own run, then a tree."""
    return 80 + n // 1024


def _dtype(t: Any) -> str:
    return str(t.dtype).removeprefix("torch.")


def matmul(a: Any, b: Any, precision: str = "ieee") -> tuple[Any, Any]:
    """A @ B. |error| ≤ K·u·|A||B|, 2·2⁻¹¹·|A||B| for rounded factors, and the result's own rounding."""
    x, y = a.double(), b.double()
    truth = x @ y
    factors = 2 * U_TF32 if precision == "tf32" else 0.0
    bound = (a.shape[1] * U + factors) * (x.abs() @ y.abs()) + UNIT[_dtype(a)] * truth.abs() + TINY[_dtype(a)]
    return truth, bound


def _softmax(x: Any) -> tuple[Any, Any]:
    """Softmax in float64, and how far (relative) rounding of exponents, sum and quotient takes a float32 one."""
    shifted = x - x.amax(-1, keepdim=True)
    p = shifted.exp()
    p = p / p.sum(-1, keepdim=True)
    return p, (4 * shifted.abs().clamp(max=1e4) + depth(x.shape[-1]) + 8) * U


def softmax(x: Any) -> tuple[Any, Any]:
    """Softmax over the last axis."""
    truth, relative = _softmax(x.double())
    return truth, truth * (relative + UNIT[_dtype(x)]) + TINY[_dtype(x)]


def layer_norm(x: Any, weight: Any, bias: Any, eps: float = 1e-5) -> tuple[Any, Any]:
    """LayerNorm over the last axis; the mean's error grows with |x|, however small the variance is."""
    z, w, b = x.double(), weight.double(), bias.double()
    centred = z - z.mean(-1, keepdim=True)
    r = 1 / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    scaled = centred * r * w
    truth = scaled + b
    steps = depth(x.shape[-1]) + 8
    of_mean = steps * U * (z.abs().mean(-1, keepdim=True) + z.abs()) * r
    # An error of the mean adds its square to the variance: second order, but not when |x| is far above σ.
    of_scale = steps * U + of_mean.amax(-1, keepdim=True).square()
    bound = of_mean * w.abs() + scaled.abs() * of_scale + U * (b.abs() + truth.abs())
    return truth, bound + UNIT[_dtype(x)] * truth.abs() + TINY[_dtype(x)]


def rms_norm(x: Any, weight: Any, eps: float = 1e-6) -> tuple[Any, Any]:
    """RMSNorm over the last axis."""
    z = x.double()
    truth = z / (z.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()
    return truth, truth.abs() * ((depth(x.shape[-1]) + 8) * U + UNIT[_dtype(x)]) + TINY[_dtype(x)]


def cross_entropy(logits: Any, targets: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """((losses, gradient of their mean), (bounds of each))."""
    z = logits.double()
    rows = z.shape[0]
    m = z.amax(-1, keepdim=True)
    lse = (z - m).exp().sum(-1).log()
    right = z.gather(-1, targets[:, None])[:, 0] - m[:, 0]
    loss = lse - right
    p, relative = _softmax(z)
    of_loss = (p * relative).sum(-1) + 3 * U * (lse.abs() + right.abs() + loss.abs())
    onehot = p.new_zeros(p.shape).scatter_(-1, targets[:, None], 1.0)
    gradient = (p - onehot) / rows
    of_gradient = (p * relative + 2 * U * (p + onehot)) / rows + UNIT[_dtype(logits)] * gradient.abs()
    return (loss, gradient), (of_loss, of_gradient + TINY[_dtype(logits)])


def flash_attention(q: Any, k: Any, v: Any, causal: bool = False, precision: str = "ieee") -> tuple[Any, Any]:
    """Attention; the weights may be rounded to the values' dtype, their sum may not."""
    import torch

    x, y, z = q.double(), k.double(), v.double()
    D, keys = q.shape[-1], k.shape[-2]
    scale = 1 / math.sqrt(D)
    s = x @ y.mT * scale
    factors = 2 * U_TF32 if precision == "tf32" else 0.0
    of_score = ((D + 8) * U + factors) * (x.abs() @ y.abs().mT) * scale
    if causal:
        hidden = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1)
        s, of_score = s.masked_fill(hidden, -math.inf), of_score.masked_fill(hidden, 0.0)
    p, relative = _softmax(s)
    truth = p @ z
    weighted = p @ z.abs()
    of_weight = 2 * of_score.amax(-1, keepdim=True) + (p * relative).sum(-1, keepdim=True) + depth(keys) * U
    of_weight = of_weight + (factors or (UNIT[_dtype(q)] if _dtype(q) != "float32" else 0.0))
    return truth, of_weight * weighted + UNIT[_dtype(q)] * truth.abs() + TINY[_dtype(q)]

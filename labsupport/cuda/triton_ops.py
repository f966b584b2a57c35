"""The Triton kernels as functions of torch tensors: what they accept, how they are launched, which tiles they try.

Tensors are on a CUDA GPU, or on the CPU in a process with Triton's interpreter
(``labsupport.cuda.triton_interpreter``). Torch and Triton load when a function is first called. No
function may launch a kernel on an input that its sentence excludes.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

__all__ = [
    "CONFIGS",
    "ONE_BLOCK",
    "Tile",
    "cross_entropy",
    "flash_attention",
    "flash_tile",
    "layer_norm",
    "matmul",
    "rms_norm",
    "row_launch",
    "softmax",
    "tuned_tile",
]

#: The longest row that one program holds in its registers, by operation; a longer one is read twice.
ONE_BLOCK = {"softmax": 32768, "rms_norm": 32768, "cross_entropy": 32768, "layer_norm": 16384}
#: Elements of a block of a longer row.
LONG_BLOCK = 8192
FLOATS = ("float32", "float16", "bfloat16")
#: The largest head dimension of flash attention whose tiles fit registers and shared memory.
MAX_HEAD = {"half": 256, "tf32": 128, "ieee": 64}


@dataclass(frozen=True)
class Tile:
    """Sizes of a program's tile of C (BM×BN, in steps of BK), and how it is spread and pipelined."""

    BM: int
    BN: int
    BK: int
    num_warps: int
    num_stages: int
    GROUP: int = 8


#: What autotuning tries on a GPU, the first being the one taken where nothing can be timed.
#: Every tile here compiles for sm_90 without spills: a test asserts it.
CONFIGS: dict[str, tuple[Tile, ...]] = {
    "half": (Tile(128, 256, 64, 8, 4), Tile(128, 256, 64, 8, 3), Tile(128, 128, 64, 4, 4), Tile(64, 128, 64, 4, 4)),
    "tf32": (Tile(128, 256, 32, 8, 4), Tile(128, 128, 32, 8, 4), Tile(128, 128, 32, 4, 4), Tile(64, 64, 32, 4, 4)),
    "ieee": (Tile(128, 128, 16, 8, 3), Tile(64, 128, 16, 4, 4), Tile(64, 64, 16, 4, 4)),
}


def matmul(a: Any, b: Any, *, precision: str | None = None, tile: Tile | None = None) -> Any:
    """C = A @ B with float32 accumulation.

    Args:
        a: (M, K) float32, float16 or bfloat16, any strides.
        b: (K, N) of the same dtype.
        precision: for float32 only, and then required: ``"ieee"`` multiplies in float32,
            ``"tf32"`` rounds the factors to 10 bits of fraction, as tensor cores do.
        tile: sizes to use; default: timed on the GPU and remembered by shape.

    Returns:
        (M, N) of the same dtype.
    """
    import torch
    import triton

    _floating("matmul", a=a, b=b)
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"matmul takes two matrices; a has {a.ndim} axes and b has {b.ndim}")
    (M, K), (K2, N) = a.shape, b.shape
    if K != K2:
        raise ValueError(f"matmul: axis 1 of a has {K} elements and axis 0 of b has {K2}; they must be equal")
    _same_dtype("matmul", a=a, b=b)
    precision = _precision("matmul", a, precision)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    kind = _kind(a, precision)
    strides = (*a.stride(), *b.stride(), *c.stride())

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)

    if tile is None:
        _tuned(kind)[grid](a, b, c, M, N, K, *strides, PRECISION=precision)
    else:
        from labsupport.cuda.kernels.triton_kernels import matmul_kernel

        matmul_kernel[grid](
            a, b, c, M, N, K, *strides, tile.BM, tile.BN, tile.BK, tile.GROUP, K % tile.BK == 0, precision,
            num_warps=tile.num_warps, num_stages=tile.num_stages,
        )  # fmt: skip
    return c


@cache
def _tuned(kind: str) -> Any:
    """Return the product that times the tiles of ``kind`` once for each shape."""
    import triton

    from labsupport.cuda.kernels.triton_kernels import matmul_kernel

    configs = [
        triton.Config(
            {"BM": t.BM, "BN": t.BN, "BK": t.BK, "GROUP": t.GROUP}, num_warps=t.num_warps, num_stages=t.num_stages
        )
        for t in CONFIGS[kind]
    ]
    even = triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BK"] == 0})
    return triton.autotune(configs=configs, key=["M", "N", "K"])(even(matmul_kernel))


def tuned_tile(dtype: str, precision: str = "ieee") -> Tile | None:
    """Return the tile that autotuning chose in the latest product of this kind, None before one."""
    best = getattr(_tuned("half" if dtype != "float32" else precision), "best_config", None)
    if best is None:
        return None
    return Tile(num_warps=best.num_warps, num_stages=best.num_stages, **best.kwargs)


def row_launch(operation: str, columns: int) -> tuple[int, int, bool]:
    """Return (BLOCK, num_warps, long) for rows of ``columns`` elements; ``long`` rows are read twice."""
    if columns > ONE_BLOCK[operation]:
        return LONG_BLOCK, 8, True
    block = 1 << max(0, columns - 1).bit_length()
    return block, min(32, max(1, block // 512)), False


def softmax(x: Any) -> Any:
    """Softmax over the last axis of ``x`` (rows, columns); the dtype is kept, the arithmetic is float32.

    A row of at most ``ONE_BLOCK["softmax"]`` elements is read once and written once; a longer one is read twice.
    """
    import torch

    from labsupport.cuda.kernels import triton_kernels as k

    rows, columns = _rows("softmax", x)
    y = torch.empty((rows, columns), device=x.device, dtype=x.dtype)
    block, warps, long = row_launch("softmax", columns)
    kernel = k.softmax_long_kernel if long else k.softmax_kernel
    kernel[(rows,)](y, x, x.stride(0), columns, block, num_warps=warps)
    return y


def layer_norm(x: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Any:
    """LayerNorm over the last axis of ``x`` (rows, columns) with ``weight`` and ``bias`` (columns,)."""
    import torch

    from labsupport.cuda.kernels import triton_kernels as k

    rows, columns = _rows("layer_norm", x)
    _vector("layer_norm", columns, weight=weight, bias=bias)
    y = torch.empty((rows, columns), device=x.device, dtype=x.dtype)
    block, warps, long = row_launch("layer_norm", columns)
    kernel = k.layer_norm_long_kernel if long else k.layer_norm_kernel
    kernel[(rows,)](y, x, weight, bias, x.stride(0), columns, eps, block, num_warps=warps)
    return y


def rms_norm(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    """RMSNorm over the last axis of ``x`` (rows, columns) with ``weight`` (columns,)."""
    import torch

    from labsupport.cuda.kernels import triton_kernels as k

    rows, columns = _rows("rms_norm", x)
    _vector("rms_norm", columns, weight=weight)
    y = torch.empty((rows, columns), device=x.device, dtype=x.dtype)
    block, warps, long = row_launch("rms_norm", columns)
    kernel = k.rms_norm_long_kernel if long else k.rms_norm_kernel
    kernel[(rows,)](y, x, weight, x.stride(0), columns, eps, block, num_warps=warps)
    return y


def cross_entropy(logits: Any, targets: Any, *, checked: bool = False) -> tuple[Any, Any]:
    """Losses of the rows, and the gradient of their mean with respect to the logits, in one launch.

    Args:
        logits: (rows, vocabulary) float32, float16 or bfloat16; the last axis contiguous.
        targets: (rows,) int64, each in [0, vocabulary).
        checked: say that the targets are known to be in range, which saves reading them back.

    Returns:
        Losses (rows,) in float32 and the gradient (rows, vocabulary) in the logits' dtype. A
        vocabulary of at most ``ONE_BLOCK["cross_entropy"]`` is read once: one pass. A longer one is read twice, since
        no gradient can be written before the sum of the whole row is known.
    """
    import torch

    from labsupport.cuda.kernels import triton_kernels as k

    rows, columns = _rows("cross_entropy", logits)
    if str(targets.dtype) != "torch.int64" or tuple(targets.shape) != (rows,) or not targets.is_contiguous():
        raise ValueError(
            f"cross_entropy: targets must be a contiguous int64 vector with one class for each of the {rows} rows; "
            f"they are {_name(targets)} of shape {tuple(targets.shape)}"
        )
    _same_device("cross_entropy", logits=logits, targets=targets)
    if not checked:
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= columns:
            raise ValueError(f"cross_entropy: a target is {low if low < 0 else high}; classes are 0 to {columns - 1}")
    loss = torch.empty((rows,), device=logits.device, dtype=torch.float32)
    d = torch.empty((rows, columns), device=logits.device, dtype=logits.dtype)
    block, warps, long = row_launch("cross_entropy", columns)
    kernel = k.cross_entropy_long_kernel if long else k.cross_entropy_kernel
    kernel[(rows,)](loss, d, logits, targets, logits.stride(0), columns, 1.0 / rows, block, num_warps=warps)
    return loss, d


def flash_tile(dim: int, kind: str) -> tuple[int, int, int, int]:
    """Return (BM, BN, num_warps, num_stages) of flash attention for a head of ``dim`` elements.

    ``kind`` is "half", "tf32" or "ieee"; none of these spills on sm_90, which a test asserts.
    """
    if kind == "ieee":
        return (64, 32, 4, 2) if dim <= 32 else (64, 32, 8, 2)
    if kind == "tf32":
        return (128, 64, 8, 2) if dim <= 64 else (64, 64, 8, 2)
    if dim <= 64:
        return 128, 64, 4, 3
    return (128, 64, 8, 3) if dim <= 128 else (64, 64, 8, 2)


def flash_attention(q: Any, k: Any, v: Any, *, causal: bool = False, precision: str | None = None) -> Any:
    """softmax(Q Kᵀ / √D) V without the score matrix in memory.

    Args:
        q: (batch, heads, queries, D) float32, float16 or bfloat16, contiguous; D a power of two,
            16 to 256 (to 128 in TF32, to 64 in float32).
        k: (batch, heads, keys, D) of the same dtype, contiguous; v likewise.
        causal: query i sees keys 0 to i; then there are as many queries as keys.
        precision: as in ``matmul``, for float32 only.

    Returns:
        (batch, heads, queries, D) of the same dtype.
    """
    import torch
    import triton

    from labsupport.cuda.kernels.triton_kernels import flash_kernel

    _floating("flash_attention", q=q, k=k, v=v)
    _same_dtype("flash_attention", q=q, k=k, v=v)
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.ndim != 4:
            raise ValueError(f"flash_attention: {name} has {t.ndim} axes; due are (batch, heads, length, D)")
        if not t.is_contiguous():
            raise ValueError(f"flash_attention: {name} is not contiguous; pass {name}.contiguous()")
    batch, heads, queries, D = q.shape
    if k.shape != v.shape or (k.shape[0], k.shape[1], k.shape[3]) != (batch, heads, D):
        raise ValueError(
            f"flash_attention: k {tuple(k.shape)} and v {tuple(v.shape)} must be alike, and agree with q "
            f"{tuple(q.shape)} in batch, heads and D"
        )
    keys = k.shape[2]
    if causal and queries != keys:
        raise ValueError(f"flash_attention: a causal mask needs as many queries as keys, got {queries} and {keys}")
    precision = _precision("flash_attention", q, precision)
    kind = _kind(q, precision)
    if D < 16 or MAX_HEAD[kind] < D or D & (D - 1):
        raise ValueError(
            f"flash_attention: the head dimension D is {D}; it must be a power of two from 16 to {MAX_HEAD[kind]}"
        )
    BM, BN, warps, stages = flash_tile(D, kind)
    o = torch.empty_like(q)
    scale = math.log2(math.e) / math.sqrt(D)
    flash_kernel[(triton.cdiv(queries, BM), batch * heads)](
        o, q, k, v, queries, keys, scale, D, BM, BN, causal, precision, num_warps=warps, num_stages=stages
    )
    return o


# -- what is accepted -----------------------------------------------------------------------


def _name(t: Any) -> str:
    return str(t.dtype).removeprefix("torch.")


def _floating(what: str, **tensors: Any) -> None:
    for name, t in tensors.items():
        if not hasattr(t, "data_ptr"):
            raise TypeError(f"{what}: {name} must be a torch tensor, got {type(t).__name__}")
        if _name(t) not in FLOATS:
            raise TypeError(f"{what}: {name} is {_name(t)}; the kernel takes {', '.join(FLOATS)}")
        if 0 in t.shape:
            raise ValueError(f"{what}: {name} has shape {tuple(t.shape)}; axis {list(t.shape).index(0)} is empty")
    _same_device(what, **tensors)


def _same_device(what: str, **tensors: Any) -> None:
    devices = {name: str(t.device) for name, t in tensors.items()}
    if len(set(devices.values())) > 1:
        raise ValueError(f"{what}: the tensors are on different devices: {devices}")
    if "cpu" in devices.values() and not _interpreted():
        raise ValueError(
            f"{what}: the tensors are on the CPU. Compiled kernels take CUDA tensors; on a CPU use "
            "labsupport.cuda.triton_interpreter"
        )


@cache
def _interpreted() -> bool:
    import triton

    return bool(triton.knobs.runtime.interpret)


def _same_dtype(what: str, **tensors: Any) -> None:
    dtypes = {name: _name(t) for name, t in tensors.items()}
    if len(set(dtypes.values())) > 1:
        raise TypeError(f"{what}: one dtype for all, got {', '.join(f'{n} {d}' for n, d in dtypes.items())}")


def _precision(what: str, t: Any, precision: str | None) -> str:
    if _name(t) != "float32":
        if precision is not None:
            raise ValueError(
                f"{what}: precision is a choice for float32 only; {_name(t)} factors are exact as they are"
            )
        return "ieee"
    if precision not in ("ieee", "tf32"):
        raise ValueError(f'{what}: for float32 say precision="ieee" or precision="tf32", got {precision!r}')
    return precision


def _kind(t: Any, precision: str) -> str:
    return "half" if _name(t) != "float32" else precision


def _rows(what: str, x: Any) -> tuple[int, int]:
    _floating(what, x=x)
    if x.ndim != 2:
        raise ValueError(f"{what}: x has {x.ndim} axes; due are (rows, columns): reshape it first")
    if x.stride(1) != 1:
        raise ValueError(
            f"{what}: the last axis of x has stride {x.stride(1)}; it must be contiguous: pass x.contiguous()"
        )
    return int(x.shape[0]), int(x.shape[1])


def _vector(what: str, columns: int, **vectors: Any) -> None:
    _floating(what, **vectors)
    for name, t in vectors.items():
        if tuple(t.shape) != (columns,) or t.stride(0) != 1:
            raise ValueError(
                f"{what}: {name} has shape {tuple(t.shape)}; due is a contiguous vector of {columns}, one a column of x"
            )

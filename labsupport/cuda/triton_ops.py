"""The Triton kernels as functions of torch tensors: what they accept, how they are launched, which tiles they try.

Tensors are on a CUDA GPU, or on the CPU in a process with Triton's interpreter
(``labsupport.cuda.triton_interpreter``). Torch and Triton load when a function is first called. No
function may launch a kernel on an input that its sentence excludes.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from labsupport.cuda import tuning

__all__ = [
    "CONFIGS",
    "ONE_BLOCK",
    "Flash",
    "Rows",
    "Tile",
    "cross_entropy",
    "flash_attention",
    "flash_tile",
    "flash_ways",
    "latest_launch",
    "layer_norm",
    "matmul",
    "rms_norm",
    "row_launch",
    "row_ways",
    "softmax",
]

#: The longest row that one program holds in its registers, by operation; a longer one is read twice.
ONE_BLOCK = {"softmax": 32768, "rms_norm": 32768, "cross_entropy": 32768, "layer_norm": 16384}
#: Elements of a block of a longer row.
LONG_BLOCK = 8192
FLOATS = ("float32", "float16", "bfloat16")
#: Blocks of a grid along y, and z (CUDA C++ Programming Guide, table of limits).
MAX_GRID_Y = 65535
#: The largest head dimension of flash attention whose tiles fit registers and shared memory.
MAX_HEAD = {"half": 256, "tf32": 128, "ieee": 64}


@dataclass(frozen=True)
class Tile:
    """Sizes of a program's tile of C (BM×BN, in steps of BK), and how it is spread and pipelined.

    ``TMA`` is 1 where Hopper's copy engine fetches the tiles of A and B, and 0 where threads do.
    """

    BM: int
    BN: int
    BK: int
    num_warps: int
    num_stages: int
    GROUP: int = 8
    TMA: int = 0


@dataclass(frozen=True)
class Rows:
    """Elements of a block of a row, warps of a program, and whether a row is read twice, block by block (1) or not."""

    BLOCK: int
    num_warps: int
    TWICE: int = 0


@dataclass(frozen=True)
class Flash:
    """Queries of a program, keys of a step, warps, and blocks of keys on their way at once."""

    BM: int
    BN: int
    num_warps: int
    num_stages: int


#: What is tried on a GPU, the first being the one taken where nothing can be timed.
#: Everything here compiles for sm_90 without spills: a test asserts it.
CONFIGS: dict[str, tuple[Tile, ...]] = {
    "half": (
        Tile(128, 256, 64, 8, 4),
        Tile(128, 256, 64, 8, 3),
        Tile(128, 128, 64, 4, 4),
        Tile(64, 128, 64, 4, 4),
        Tile(128, 256, 64, 8, 3, TMA=1),
        Tile(128, 256, 64, 8, 4, TMA=1),
        Tile(256, 128, 64, 8, 4, TMA=1),
        Tile(128, 128, 64, 4, 3, TMA=1),
        Tile(128, 128, 64, 8, 4, TMA=1),
    ),
    "tf32": (
        Tile(128, 256, 32, 8, 4),
        Tile(128, 128, 32, 8, 4),
        Tile(128, 128, 32, 4, 4),
        Tile(64, 64, 32, 4, 4),
        Tile(128, 256, 32, 8, 3, TMA=1),
        Tile(128, 256, 32, 8, 4, TMA=1),
        Tile(128, 128, 32, 4, 3, TMA=1),
        Tile(128, 128, 32, 8, 4, TMA=1),
    ),
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
    if tile is not None:
        _multiply(tile, a, b, c, precision)
        return c
    engine = _has_copy_engine(a) and _suit_copy_engine(a, b)
    tiles = [t for t in CONFIGS[kind] if engine or not t.TMA]
    key = (kind, a.dtype, M, N, K, a.stride(), b.stride(), engine)
    _launch("matmul", key, tiles, a, lambda t: _multiply(t, a, b, c, precision))
    return c


def _multiply(tile: Tile, a: Any, b: Any, c: Any, precision: str) -> None:
    """Launch a product with one tile."""
    import triton

    from labsupport.cuda.kernels.triton_kernels import matmul_kernel, matmul_tma_kernel

    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, tile.BM) * triton.cdiv(N, tile.BN),)
    options = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
    if not tile.TMA:
        matmul_kernel[grid](
            a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(),
            tile.BM, tile.BN, tile.BK, tile.GROUP, K % tile.BK == 0, precision, **options,
        )  # fmt: skip
        return
    from triton.tools.tensor_descriptor import TensorDescriptor

    if not _suit_copy_engine(a, b):
        raise ValueError("matmul: the copy engine takes factors whose rows are contiguous and begin at 16 bytes")
    rows = _in_rows_of_k(b)
    right = b if rows else b.t() if b.stride(0) == 1 else b.t().contiguous()
    matmul_tma_kernel[grid](
        TensorDescriptor.from_tensor(a, [tile.BM, tile.BK]),
        TensorDescriptor.from_tensor(right, [tile.BK, tile.BN] if rows else [tile.BN, tile.BK]),
        c, M, N, K, *c.stride(), tile.BM, tile.BN, tile.BK, tile.GROUP, rows, precision, **options,
    )  # fmt: skip


def _in_rows_of_k(b: Any) -> bool:
    """Whether the copy engine fetches B as it is, (K, N).

    TF32 tensor cores want B in rows of n, (N, K). Where it is not, it is copied into that before: the copy is part of
    the product and of its time.
    """
    return bool(b.element_size() == 2 and b.stride(1) == 1)


def _suit_copy_engine(a: Any, b: Any) -> bool:
    """Whether the rows of both factors are contiguous and begin at multiples of 16 bytes, or B's will once copied."""

    def suits(t: Any) -> bool:
        aligned = t.stride(0) * t.element_size() % 16 == 0 and t.data_ptr() % 16 == 0
        return bool(t.stride(1) == 1 and t.stride(0) >= t.shape[1] and aligned)

    if _in_rows_of_k(b):
        return suits(a) and suits(b)
    return suits(a) and (suits(b.t()) if b.stride(0) == 1 else b.shape[0] * b.element_size() % 16 == 0)


@cache
def _copy_engine_of(device: str) -> bool:
    from importlib.util import find_spec

    import torch

    return torch.cuda.get_device_capability(device)[0] >= 9 and find_spec("triton.tools.tensor_descriptor") is not None


def _has_copy_engine(t: Any) -> bool:
    """Whether tiles can be fetched by Hopper's copy engine."""
    return t.is_cuda and _copy_engine_of(str(t.device))


def _launch(name: str, key: Hashable, ways: Sequence[Any], tensor: Any, launch: Callable[[Any], Any]) -> None:
    """Launch in the way that is fastest for this key, timing them all the first time."""
    launch(tuning.choose(name, key, ways, launch, _milliseconds if tensor.is_cuda else None))


def _milliseconds(call: Callable[[], Any]) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def latest_launch(operation: str) -> dict[str, int] | None:
    """Return the sizes that ``operation`` was launched with last, None before a launch."""
    way = tuning.latest(operation)
    return None if way is None else asdict(way)


def row_launch(operation: str, columns: int) -> tuple[int, int, bool]:
    """Return (BLOCK, num_warps, long) for rows of ``columns`` elements; ``long`` rows are read twice."""
    if columns > ONE_BLOCK[operation]:
        return LONG_BLOCK, 8, True
    block = 1 << max(0, columns - 1).bit_length()
    return block, min(32, max(1, block // 512)), False


def row_ways(operation: str, columns: int) -> tuple[Rows, ...]:
    """Return the launches that are tried for rows of ``columns`` elements, that of ``row_launch`` first.

    A row that one program holds in registers fills a multiprocessor when it is long: nothing is loaded then while it
    is computed. Reading it block by block lets several programs take turns, and the second reading finds the row in the
    L2 cache.
    """
    block, warps, long = row_launch(operation, columns)
    first = Rows(block, warps, int(long))
    others = [Rows(4096, 8, 1), Rows(8192, 8, 1), Rows(8192, 16, 1), Rows(4096, 4, 1)] if columns > LONG_BLOCK else []
    if not long:
        # At least 8 elements a thread, which are loaded at once, and at most 64, which still find registers.
        fitting = [w for w in (warps // 2, warps * 2) if 1 <= w <= 32 and 8 <= block // (32 * w) <= 64]
        others = [*(replace(first, num_warps=w) for w in fitting), *others]
    return tuple(dict.fromkeys((first, *others)))


def softmax(x: Any) -> Any:
    """Softmax over the last axis of ``x`` (rows, columns); the dtype is kept, the arithmetic is float32.

    A row of at most ``ONE_BLOCK["softmax"]`` elements can be read once; a longer one is read twice. See ``row_ways``.
    """
    import torch

    from labsupport.cuda.kernels import triton_kernels as k

    rows, columns = _rows("softmax", x)
    y = torch.empty((rows, columns), device=x.device, dtype=x.dtype)

    def launch(way: Rows) -> None:
        kernel = k.softmax_long_kernel if way.TWICE else k.softmax_kernel
        kernel[(rows,)](y, x, x.stride(0), columns, way.BLOCK, num_warps=way.num_warps)

    _launch("softmax", (x.dtype, x.shape, x.stride(0)), row_ways("softmax", columns), x, launch)
    return y


def layer_norm(x: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Any:
    """LayerNorm over the last axis of ``x`` (rows, columns) with ``weight`` and ``bias`` (columns,)."""
    import torch

    from labsupport.cuda.kernels import triton_kernels as k

    rows, columns = _rows("layer_norm", x)
    _vector("layer_norm", columns, weight=weight, bias=bias)
    y = torch.empty((rows, columns), device=x.device, dtype=x.dtype)

    def launch(way: Rows) -> None:
        kernel = k.layer_norm_long_kernel if way.TWICE else k.layer_norm_kernel
        kernel[(rows,)](y, x, weight, bias, x.stride(0), columns, eps, way.BLOCK, num_warps=way.num_warps)

    _launch("layer_norm", (x.dtype, x.shape, x.stride(0)), row_ways("layer_norm", columns), x, launch)
    return y


def rms_norm(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    """RMSNorm over the last axis of ``x`` (rows, columns) with ``weight`` (columns,)."""
    import torch

    from labsupport.cuda.kernels import triton_kernels as k

    rows, columns = _rows("rms_norm", x)
    _vector("rms_norm", columns, weight=weight)
    y = torch.empty((rows, columns), device=x.device, dtype=x.dtype)

    def launch(way: Rows) -> None:
        kernel = k.rms_norm_long_kernel if way.TWICE else k.rms_norm_kernel
        kernel[(rows,)](y, x, weight, x.stride(0), columns, eps, way.BLOCK, num_warps=way.num_warps)

    _launch("rms_norm", (x.dtype, x.shape, x.stride(0)), row_ways("rms_norm", columns), x, launch)
    return y


def cross_entropy(logits: Any, targets: Any, *, checked: bool = False) -> tuple[Any, Any]:
    """Losses of the rows, and the gradient of their mean with respect to the logits, in one launch.

    Args:
        logits: (rows, vocabulary) float32, float16 or bfloat16; the last axis contiguous.
        targets: (rows,) int64, each in [0, vocabulary).
        checked: say that the targets are known to be in range, which saves reading them back.

    Returns:
        Losses (rows,) in float32 and the gradient (rows, vocabulary) in the logits' dtype. A
        vocabulary of at most ``ONE_BLOCK["cross_entropy"]`` can be held in registers and read once; whether that or
        reading it twice is faster, the second time from the L2 cache, is timed. A longer one is read twice, since
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

    def launch(way: Rows) -> None:
        kernel = k.cross_entropy_long_kernel if way.TWICE else k.cross_entropy_kernel
        kernel[(rows,)](
            loss, d, logits, targets, logits.stride(0), columns, 1.0 / rows, way.BLOCK, num_warps=way.num_warps
        )

    ways = row_ways("cross_entropy", columns)
    _launch("cross_entropy", (logits.dtype, logits.shape, logits.stride(0)), ways, logits, launch)
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


def flash_ways(dim: int, kind: str) -> tuple[Flash, ...]:
    """Return the launches of flash attention that are tried, that of ``flash_tile`` first."""
    first = Flash(*flash_tile(dim, kind))
    if kind != "half" or dim not in (64, 128):
        return (first,)
    others = [Flash(128, 64, 8, 2), Flash(128, 128, 8, 2), Flash(64, 64, 4, 2), Flash(64, 64, 4, 3)]
    return tuple(dict.fromkeys((first, *others)))


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
    if batch * heads > MAX_GRID_Y:
        raise ValueError(
            f"flash_attention: batch × heads is {batch * heads}; a launch takes {MAX_GRID_Y} at most: split the batch"
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
    o = torch.empty_like(q)
    scale = math.log2(math.e) / math.sqrt(D)

    def launch(way: Flash) -> None:
        flash_kernel[(triton.cdiv(queries, way.BM), batch * heads)](
            o, q, k, v, queries, keys, scale, D, way.BM, way.BN, causal, precision,
            num_warps=way.num_warps, num_stages=way.num_stages,
        )  # fmt: skip

    _launch("flash_attention", (kind, q.dtype, q.shape, keys, causal), flash_ways(D, kind), q, launch)
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

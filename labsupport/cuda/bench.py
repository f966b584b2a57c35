"""What a run needs: its inputs, the kernel and its baselines as calls without arguments, and the truth.

``prepare`` works on any device that torch has, so that a test can check it where kernels are
interpreted; the clock and the ceilings need a GPU. No call of a baseline may take another precision
than the record says.
"""

import gc
import math
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from labsupport.cuda.catalogue import Run

__all__ = [
    "Bench",
    "CudaBench",
    "Mismatch",
    "Prepared",
    "compare",
    "inputs_of",
    "kept_precision",
    "launch_of",
    "prepare",
    "simt_arguments",
]

#: Bytes read before a timed call, several times any GPU's L2 cache, and how often: meanwhile the call is queued.
FLUSH_BYTES = 1 << 29
FLUSHES = 4
#: Elements that are compared in float64 at once.
CHUNK = 1 << 26


class Mismatch(AssertionError):
    """A result that misses the float64 truth by more than rounding explains: nothing is measured then."""


@dataclass(frozen=True)
class Prepared:
    """One run, ready: ``calls`` by name with "kernel" first; ``check()`` -> (largest error, share of the bound)."""

    calls: dict[str, Callable[[], Any]]
    check: Callable[[], tuple[float, float]]
    tile: Callable[[], dict[str, int] | None]


class Bench:
    """What measuring asks of a machine. A test brings its own; ``CudaBench`` is the real one."""

    def prepare(self, run: Run, seed: int) -> Prepared:
        """Make the inputs and the calls of a run."""
        raise NotImplementedError

    def milliseconds(self, call: Callable[[], Any]) -> float:
        """Run one call with a cold L2 cache and return its time on the device."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait for the device."""
        raise NotImplementedError

    def release(self) -> None:
        """Give back the memory of a run that is over; raise where the device no longer answers."""
        raise NotImplementedError

    def ceilings(self) -> dict[str, Any]:
        """Measure the bandwidth of a copy and the speed of the vendor's products."""
        raise NotImplementedError

    def device(self) -> dict[str, Any]:
        """Describe the device as it is now."""
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        """Return the versions of what takes part."""
        raise NotImplementedError


@contextmanager
def kept_precision() -> Iterator[None]:
    """Set back afterwards in which precision torch multiplies float32: a run sets it as its record says."""
    import torch

    before = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# -- inputs, calls and truth -----------------------------------------------------------------


def prepare(run: Run, seed: int, device: str = "cuda") -> Prepared:
    """Make the inputs of ``run`` on ``device`` from ``seed``, and everything that is timed or compared."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    # Products of float32 in the record's own precision, for torch as for the kernel.
    torch.set_float32_matmul_precision("high" if run.precision == "tf32" else "highest")
    builder = _simt if run.family == "simt" else _triton
    return builder(run, inputs_of(run, generator, device))


def inputs_of(run: Run, generator: Any, device: str) -> tuple[Any, ...]:
    """Return the tensors that a run takes, standard normal, in the run's dtype."""
    import torch

    s, dtype = run.shape, getattr(torch, run.dtype)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(dtype)

    if run.operation == "matmul":
        return normal(s["M"], s["K"]), normal(s["K"], s["N"])
    if run.operation == "flash_attention":
        return tuple(normal(s["batch"], s["heads"], s["length"], s["D"]) for _ in range(3))
    if run.operation in ("add", "sum"):
        return tuple(normal(s["N"]) for _ in range(2 if run.operation == "add" else 1))
    x = normal(s["rows"], s["columns"])
    if run.operation == "layer_norm":
        return x, normal(s["columns"]), normal(s["columns"])
    if run.operation == "rms_norm":
        return x, normal(s["columns"])
    if run.operation == "cross_entropy":
        return x, torch.randint(s["columns"], (s["rows"],), generator=generator, device=device)
    return (x,)


def _triton(run: Run, inputs: tuple[Any, ...]) -> Prepared:
    from labsupport.cuda import triton_ops

    options: dict[str, Any] = {}
    if run.operation in ("matmul", "flash_attention") and run.dtype == "float32":
        options["precision"] = run.precision
    if run.operation == "flash_attention":
        options["causal"] = bool(run.shape["causal"])
    if run.operation == "cross_entropy":
        options["checked"] = True
    kernel = partial(getattr(triton_ops, run.operation), *inputs, **options)
    return Prepared(
        {"kernel": kernel, **_baselines(run, inputs)}, partial(compare, run, inputs, kernel), partial(_tile, run)
    )


def _tile(run: Run) -> dict[str, int] | None:
    """Return the sizes that the run was launched with."""
    from labsupport.cuda import triton_ops

    return triton_ops.latest_launch(run.operation)


def _baselines(run: Run, inputs: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """Return the calls of torch that the kernel is held against."""
    import torch
    import torch.nn.functional as F

    x = inputs[0]
    makers: dict[str, Callable[[], Callable[[], Any]]] = {
        "torch.matmul": lambda: partial(torch.matmul, *inputs),
        "torch.add": lambda: partial(torch.add, *inputs),
        "torch.sum": lambda: partial(torch.sum, x),
        "torch copy": lambda: lambda: x.t().contiguous(),
        "SDPA flash": lambda: partial(_sdpa_flash, bool(run.shape["causal"]), *inputs),
    }
    wide = (run.shape.get("columns", 0),)
    eager: dict[str, Callable[..., Any]] = {
        "softmax": lambda x: F.softmax(x, -1),
        "layer_norm": lambda x, w, b: F.layer_norm(x, wide, w, b),
        "rms_norm": lambda x, w: F.rms_norm(x, wide, w, 1e-6),
        "cross_entropy": F.cross_entropy,
    }
    if run.operation in eager:
        function = eager[run.operation]
        compiled = _compiled_when_called(function)
        if run.operation == "cross_entropy":
            makers["eager"] = lambda: partial(_loss_and_gradient, function, *inputs)
            makers["compiled"] = lambda: partial(_loss_and_gradient, compiled, *inputs)
        else:
            makers["eager"] = lambda: partial(function, *inputs)
            makers["compiled"] = lambda: partial(compiled, *inputs)
    return {name: makers[name]() for name in run.baselines}


def _compiled_when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.compile`` for these very shapes, at the first call: where it fails, only this baseline is lost."""

    @cache
    def compiled() -> Callable[..., Any]:
        import torch

        made: Callable[..., Any] = torch.compile(function, dynamic=False)
        return made

    return lambda *inputs: compiled()(*inputs)


def _loss_and_gradient(loss: Callable[..., Any], logits: Any, targets: Any) -> tuple[Any, Any]:
    import torch

    leaf = logits.detach().requires_grad_()
    value = loss(leaf, targets)
    return value, torch.autograd.grad(value, leaf)[0]


def _sdpa_flash(causal: bool, q: Any, k: Any, v: Any) -> Any:
    """Attention by the flash backend or by none: another backend would be another baseline."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=causal)


# -- the SIMT ladder through numba-cuda -------------------------------------------------------


def launch_of(run: Run) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Return (kernel, grid, block) of a run of the ladder."""
    from labsupport.cuda.kernels import ladder

    s, up = run.shape, lambda n, d: -(-n // d)
    if run.operation == "matmul":
        M, N = s["M"], s["N"]
        kernel, grid, block = {
            "naive": (lambda: ladder.matmul_naive, (up(M, 32), up(N, 8)), (32, 8)),
            "coalesced": (lambda: ladder.matmul_coalesced, (up(N, 32), up(M, 8)), (32, 8)),
            "shared": (lambda: ladder.make_matmul_shared(32), (up(N, 32), up(M, 32)), (32, 32)),
            "register": (
                lambda: ladder.make_matmul_register(128, 128, 16, 8, 8),
                (up(N, 128), up(M, 128)),
                (16, 16),
            ),
        }[run.rung]
        return kernel(), grid, block
    kernel = getattr(ladder, run.rung.replace("-", "_"))
    if run.operation == "transpose":
        return kernel, (up(s["columns"], 32), up(s["rows"], 32)), (32, 32)
    if run.operation in ("add", "sum"):
        return kernel, (up(s["N"], ladder.THREADS),), (ladder.THREADS,)
    return kernel, (s["rows"],), (ladder.THREADS,)


def simt_arguments(run: Run, inputs: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """Return the kernel's arguments in order, and the one of them that it writes."""
    import torch

    x = inputs[0]
    if run.operation == "matmul":
        out = torch.empty((run.shape["M"], run.shape["N"]), device=x.device)
    elif run.operation == "transpose":
        out = torch.empty(x.shape[::-1], device=x.device)
    elif run.operation == "sum":
        out = torch.empty(launch_of(run)[1][0], device=x.device)
    else:
        out = torch.empty_like(x)
    tail = [1e-5] if run.operation == "layer_norm" else []
    return [*inputs, out, *tail], out


def _simt(run: Run, inputs: tuple[Any, ...]) -> Prepared:
    from numba import cuda

    from labsupport.cuda.numba_backend import for_gpu

    kernel, grid, block = launch_of(run)
    arguments, out = simt_arguments(run, inputs)
    on_device = [cuda.as_cuda_array(a) if hasattr(a, "data_ptr") else a for a in arguments]
    launcher = for_gpu(kernel)[grid, block]

    def call() -> Any:
        launcher(*on_device)
        return out

    tile = dict(zip(("block_x", "block_y"), (*block, 1), strict=False))
    return Prepared({"kernel": call, **_baselines(run, inputs)}, partial(compare, run, inputs, call), lambda: tile)


# -- comparison with float64 -------------------------------------------------------------------


def compare(run: Run, inputs: tuple[Any, ...], call: Callable[[], Any]) -> tuple[float, float]:
    """Return the largest error of ``call()`` and its largest share of the bound; ``Mismatch`` beyond the bound."""
    results = call()
    results = results if isinstance(results, tuple) else (results,)
    largest, share = 0.0, 0.0
    for part, exact, bound in _truths(run, inputs):
        for result, due, allowed in zip(results, exact, bound, strict=True):
            error = (result[part].double() - due).abs()
            here = float((error / allowed).max())
            if not math.isfinite(here) or here > 1:
                raise Mismatch(
                    f"{run.name} misses float64 by {float(error.max()):.3g}, {here:.3g} times what rounding explains; "
                    "it was not measured"
                )
            largest, share = max(largest, float(error.max())), max(share, here)
    return largest, share


def _truths(run: Run, inputs: tuple[Any, ...]) -> Iterator[tuple[slice, tuple[Any, ...], tuple[Any, ...]]]:
    """Yield (rows, truths, bounds) piece by piece, as float64 of everything may not fit."""
    from labsupport.cuda import truth

    first = inputs[0]
    width = first[0].numel() * (run.shape["length"] // run.shape["D"] if run.operation == "flash_attention" else 1)
    step = max(1, CHUNK // max(1, width))
    if run.operation in ("add", "sum", "transpose"):
        yield slice(None), *_plain_truth(run, inputs)
        return
    for start in range(0, first.shape[0], step):
        part = slice(start, start + step)
        if run.operation == "matmul":
            exact, bound = truth.matmul(first[part], inputs[1], run.precision or "ieee")
        elif run.operation == "flash_attention":
            q, k, v = (t[part] for t in inputs)
            exact, bound = truth.flash_attention(q, k, v, bool(run.shape["causal"]), run.precision or "ieee")
        elif run.operation == "cross_entropy":
            exact, bound = truth.cross_entropy(first[part], inputs[1][part])
            # The truth divides by the rows of the piece, the kernel by all of them.
            share = first[part].shape[0] / first.shape[0]
            yield part, (exact[0], exact[1] * share), (bound[0], bound[1] * share + truth.TINY[run.dtype])
            continue
        else:
            exact, bound = getattr(truth, run.operation)(first[part], *inputs[1:])
        yield part, (exact,), (bound,)


def _plain_truth(run: Run, inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    from labsupport.cuda.kernels.ladder import THREADS
    from labsupport.cuda.truth import TINY, U

    x = inputs[0].double()
    if run.operation == "transpose":
        return (x.t(),), (x.t().abs() * 0 + TINY["float32"],)
    if run.operation == "add":
        due = x + inputs[1].double()
        return (due,), (due.abs() * U + TINY["float32"],)
    import torch

    blocks = torch.nn.functional.pad(x, (0, -len(x) % THREADS)).reshape(-1, THREADS)
    return (blocks.sum(1),), (blocks.abs().sum(1) * THREADS * U + TINY["float32"],)


# -- the GPU -----------------------------------------------------------------------------------


class CudaBench(Bench):
    """CUDA events around each call, with the L2 cache full of something else before it."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._scratch = torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")

    def prepare(self, run: Run, seed: int) -> Prepared:
        """Make the inputs and the calls of a run on the GPU."""
        return prepare(run, seed, "cuda")

    def milliseconds(self, call: Callable[[], Any]) -> float:
        """Time one call by events; while the GPU fills the cache, the CPU is already queueing the call.

        The cache is filled by reading: what had been written there would have to be written back during the call.
        """
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(FLUSHES):
            self._scratch.sum()
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    def finish(self) -> None:
        """Wait for the GPU."""
        self._torch.cuda.synchronize()

    def release(self) -> None:
        """Give back the memory of a run that is over; raise where the GPU no longer answers."""
        gc.collect()
        self._torch.cuda.synchronize()
        self._torch.cuda.empty_cache()

    def ceilings(self) -> dict[str, Any]:
        """Measure a copy of 1 GiB and products of 8192³: the median, as of the runs that are held against them."""
        torch = self._torch
        source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        copied = torch.empty_like(source)
        copied.copy_(source)
        seconds = median(self.milliseconds(lambda: copied.copy_(source)) for _ in range(21)) / 1e3
        products = {}
        for name, dtype, precision in (
            ("bfloat16", torch.bfloat16, "highest"),
            ("float16", torch.float16, "highest"),
            ("tf32", torch.float32, "high"),
            ("float32", torch.float32, "highest"),
        ):
            torch.set_float32_matmul_precision(precision)
            a, b = (torch.randn(8192, 8192, device="cuda").to(dtype) for _ in range(2))
            a @ b
            usual = median(self.milliseconds(partial(torch.matmul, a, b)) for _ in range(11)) / 1e3
            products[name] = 2 * 8192**3 / usual
        return {"copy_bytes_per_s": 2 * source.numel() / seconds, "gemm_flop_per_s": products}

    def device(self) -> dict[str, Any]:
        """Describe the GPU as it is now."""
        from labsupport.cuda.device import describe

        return describe()

    def versions(self) -> dict[str, str]:
        """Return the versions of Python and of the packages that take part."""
        found = {"python": platform.python_version(), "cuda": str(self._torch.version.cuda)}
        for package in ("torch", "triton", "numba-cuda", "numba", "numpy", "nvidia-cublas", "nvidia-cudnn-cu13"):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found

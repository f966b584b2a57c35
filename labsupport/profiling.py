"""Measure a torch model part by part: time with percentiles, bytes kept, FLOPs, and what a training step saves.

The profiler is torch's own; this file only names the parts and keeps the conditions beside the numbers. It must never
give a time without them, and leaves no hook behind.
"""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labsupport import torch_twin

__all__ = ["Part", "Profile", "StepCounts", "percentiles", "profile", "training_step"]

#: Percentiles that a measurement reports.
PERCENTILES = (50, 95, 99)


def percentiles(times: Sequence[float], ranks: Sequence[float] = PERCENTILES) -> tuple[float, ...]:
    """Nearest-rank percentiles: the p-th is the smallest value that at least p % of the values do not exceed.

    Args:
        times: one number or more, in any order and unit.
        ranks: each in (0, 100].

    Returns:
        One of the measured values for each rank; never a value between two of them.

    Raises:
        ValueError: no values, or a rank outside (0, 100].
    """
    if not len(times):
        raise ValueError("percentiles of no measurements are not defined; measure at least once")
    if bad := [rank for rank in ranks if not 0 < rank <= 100]:
        raise ValueError(f"rank {bad[0]} lies outside (0, 100]")
    ordered = sorted(float(t) for t in times)
    return tuple(ordered[int(np.ceil(rank / 100 * len(ordered) - 1e-9)) - 1] for rank in ranks)


@dataclass(frozen=True)
class Part:
    """One part of the model, as the profiler saw it.

    Args:
        name: the module's name, "model" for the whole.
        times: seconds of each measured run.
        kept: bytes that the part allocated and did not free before it ended (one run).
        flops: FLOPs as torch's profiler counts them: products, elementwise additions and multiplications (one run).
    """

    name: str
    times: tuple[float, ...]
    kept: int
    flops: int


@dataclass(frozen=True)
class Profile:
    """The parts in the order in which they first ran, and the conditions of the measurement."""

    parts: tuple[Part, ...]
    conditions: dict[str, Any]

    def __getitem__(self, name: str) -> Part:
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(f"no part {name!r}; measured were {', '.join(part.name for part in self.parts)}")

    def table(self) -> str:
        """Conditions, then a line a part: p50, p95, p99 in microseconds, bytes kept, FLOPs."""
        lines = ["; ".join(f"{name} {value}" for name, value in self.conditions.items())]
        lines.append(f"{'part':26}{'p50':>9}{'p95':>9}{'p99':>9} µs{'kept':>12} B{'FLOPs':>14}")
        for part in self.parts:
            p50, p95, p99 = (1e6 * t for t in percentiles(part.times))
            lines.append(f"{part.name:26}{p50:9.1f}{p95:9.1f}{p99:9.1f}   {part.kept:12,}  {part.flops:14,}")
        return "\n".join(lines)


def profile(model: Any, ids: npt.ArrayLike, *, repeats: int = 50, warmup: int = 5, train: bool = True) -> Profile:
    """Run the forward pass and measure every module of the model with torch's profiler.

    Args:
        model: a module of ``torch_twin``, or any ``torch.nn.Module`` that is called with ``ids``.
        ids: the input.
        repeats: measured runs, at least 1.
        warmup: runs before, which are not measured: the first calls allocate buffers and load code.
        train: with gradients, so that activations are kept; without, as in inference.

    Returns:
        A ``Profile``. Times include the profiler's own overhead, a few microseconds for each operation.

    Raises:
        ValueError: fewer than 1 repeat.
    """
    import torch
    from torch.profiler import ProfilerActivity

    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; measure at least once")
    if next(model.parameters()).is_cuda:
        raise ValueError("this profile reads CPU times, and a GPU runs behind them: move the model to the CPU first")
    # The tracer below torch's profiler logs lines with the time of day, which would land in a notebook's output;
    # 6 stands above all its levels. Its failures still come as exceptions of torch.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with torch.set_grad_enabled(train), _named_ranges(model) as names:
        for _ in range(warmup):
            model(ids)
        with torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_flops=True) as seen:
            for _ in range(repeats):
                kept_alive = model(ids)
                del kept_alive
    events = [event for event in seen.events() if event.name in names]
    parts = []
    for name in dict.fromkeys(event.name for event in sorted(events, key=lambda event: event.time_range.start)):
        own = [event for event in events if event.name == name]
        times = tuple(event.time_range.elapsed_us() * 1e-6 for event in own)
        kept = sorted(int(event.cpu_memory_usage) for event in own)[len(own) // 2]
        parts.append(Part(name, times, kept, sum(_flops(event) for event in own) // len(own)))
    return Profile(tuple(parts), _conditions(model, ids, repeats, warmup, train))


def _conditions(model: Any, ids: npt.ArrayLike, repeats: int, warmup: int, train: bool) -> dict[str, Any]:
    import torch

    parameter = next(model.parameters())
    return {
        "input": tuple(np.shape(ids)),
        "dtype": str(parameter.dtype).removeprefix("torch."),
        "device": f"{parameter.device.type} ({platform.machine()})",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__.split("+")[0],
        "gradients": train,
        "runs": f"{repeats} after {warmup}",
    }


def _flops(event: Any) -> int:
    """FLOPs that the profiler counted inside an event."""
    return int(event.flops or 0) + sum(_flops(child) for child in event.cpu_children)


@contextmanager
def _named_ranges(model: Any) -> Iterator[set[str]]:
    """While it lasts, each module's forward is a range of the profiler with the module's name."""
    from torch.profiler import record_function

    names: set[str] = set()
    with ExitStack() as hooks:
        for path, module in model.named_modules():
            name = path or "model"
            ranges: list[Any] = []

            def enter(_module: Any, _args: Any, name: str = name, ranges: list[Any] = ranges) -> None:
                ranges.append(record_function(name))
                ranges[-1].__enter__()

            def leave(_module: Any, _args: Any, _output: Any, ranges: list[Any] = ranges) -> None:
                ranges.pop().__exit__(None, None, None)

            names.add(name)
            hooks.callback(module.register_forward_pre_hook(enter).remove)
            hooks.callback(module.register_forward_hook(leave).remove)
        yield names


@dataclass(frozen=True)
class StepCounts:
    """What one forward and backward pass needs; counts, not times, so they are the same on every machine.

    Args:
        saved_bytes: activations held between forward and backward, each storage once, parameters not counted.
        saved_tensors: how many different storages they are.
        layer_runs: how often a layer's forward ran, in both passes together.
        forward_flops: FLOPs of the matrix products of the forward pass.
        backward_flops: those of the backward pass, recomputation included.
    """

    saved_bytes: int
    saved_tensors: int
    layer_runs: int
    forward_flops: int
    backward_flops: int


def training_step(model: Any, ids: npt.ArrayLike, labels: npt.ArrayLike) -> StepCounts:
    """Run loss and backward once and count what is saved and what is computed.

    Args:
        model: of ``torch_twin.module``. Its gradients are set anew.
        ids, labels: (B, T), as in ``torch_twin.loss``.

    Saved tensors are those that pass torch's ``saved_tensors_hooks``. Under checkpointing these are the inputs of
    the layers; what the recomputation saves for one layer at a time is not among them.
    """
    from torch.utils.flop_counter import FlopCounterMode

    parameters = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}
    runs = [0]
    handles = [layer.register_forward_pre_hook(_counter(runs)) for layer in model.layers]
    model.zero_grad(set_to_none=True)
    try:
        with _collected() as held, FlopCounterMode(display=False) as forward:
            value = torch_twin.loss(model, ids, labels)
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in held}
        with FlopCounterMode(display=False) as backward:
            value.backward()
    finally:
        for handle in handles:
            handle.remove()
    activations = [size for place, size in storages.items() if place not in parameters]
    return StepCounts(
        sum(activations), len(activations), runs[0], forward.get_total_flops(), backward.get_total_flops()
    )


def _counter(runs: list[int]) -> Callable[..., None]:
    def count(*_: Any) -> None:
        runs[0] += 1

    return count


@contextmanager
def _collected() -> Iterator[list[Any]]:
    """The tensors that autograd saves while it lasts; they stay alive, so that no storage is counted twice."""
    from torch.autograd.graph import saved_tensors_hooks

    held: list[Any] = []

    def pack(tensor: Any) -> Any:
        held.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        yield held

"""Measure kernels on a GPU: right first, then timed, with every baseline interleaved in the same run.

Times are percentiles of single calls with a cold cache. Where there is no GPU the answer is
``NoGPUError``; nothing here may return a figure that was not measured, nor store one of a wrong result.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from labsupport.cuda.bench import Bench, CudaBench, Mismatch, kept_precision
from labsupport.cuda.catalogue import Run, find, source_hash
from labsupport.cuda.device import NoGPUError, require_gpu
from labsupport.cuda.records import VERSION, Record, validate
from labsupport.cuda.showing import Recorded

__all__ = ["Mismatch", "NoGPUError", "interleave", "measure", "measure_run", "percentiles"]

WARM_UP = 3
#: Seconds that the timed calls of one run may take together, and the fewest and most rounds of them.
SECONDS = 4.0
ROUNDS = (5, 60)
SEED = 0
#: How much faster than a copy bytes can be moved: reading alone is a little faster than reading and writing.
FASTER_THAN_A_COPY = 1.5


def interleave(
    calls: dict[str, Callable[[], Any]], milliseconds: Callable[[Callable[[], Any]], float], rounds: int
) -> dict[str, list[float]]:
    """Time every call once a round, each round beginning with the next one.

    Kernel and baselines thus see the same clocks and temperatures, and none always follows the same other.
    """
    names = list(calls)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            times[name].append(milliseconds(calls[name]))
    return times


def percentiles(times: Sequence[float]) -> dict[str, float]:
    """Return the 5th, 50th and 95th percentile of times in ms, and how many there are."""
    p5, p50, p95 = np.percentile(np.asarray(times, np.float64), [5, 50, 95])
    return {"p5": float(p5), "p50": float(p50), "p95": float(p95), "runs": len(times)}


def rounds_for(once: float) -> int:
    """Return how many rounds of ``once`` milliseconds fit into ``SECONDS``, within ``ROUNDS``."""
    return int(np.clip(1e3 * SECONDS / max(once, 1e-6), *ROUNDS))


def measure_run(run: Run, bench: Bench, ceilings: dict[str, Any], now: Callable[[], datetime] | None = None) -> Record:
    """Check ``run`` against float64, time it with its baselines, and return the record.

    A baseline that does not run here is left out, and the record says why: it must not cost the kernel's own time.

    Raises:
        Mismatch: the result misses the truth, and nothing was timed; or a time is too short to be one.
    """
    prepared = bench.prepare(run, SEED)
    largest, share = prepared.check()
    calls: dict[str, Callable[[], Any]] = {}
    left_out: dict[str, str] = {}
    for name, call in prepared.calls.items():
        try:
            for _ in range(WARM_UP):
                call()
            bench.finish()
        except Exception as error:  # a missing compiler, a backend that refuses, too little memory
            if name == "kernel":
                raise
            left_out[name] = f"{type(error).__name__}: {str(error)[:300]}"
        else:
            calls[name] = call
    bench.finish()  # raises where the failure of a baseline has spoilt the device
    once = sum(bench.milliseconds(call) for call in calls.values())
    times = interleave(calls, bench.milliseconds, rounds_for(once))
    for name, values in times.items():
        rate = run.traffic / (percentiles(values)["p50"] / 1e3)
        if rate > FASTER_THAN_A_COPY * ceilings["copy_bytes_per_s"]:
            raise Mismatch(
                f"{name} of {run.name} was timed as if it moved {rate / 1e9:.0f} GB/s, which the memory cannot: "
                "the clock does not see its work"
            )
    moment = (now or (lambda: datetime.now(UTC)))()
    return validate(
        {
            "version": VERSION,
            "kernel": run.name,
            "date": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "source_hash": source_hash(run),
            "device": bench.device(),
            "versions": bench.versions(),
            "shape": dict(run.shape),
            "dtype": run.dtype,
            "precision": run.precision,
            "tile": prepared.tile(),
            "seed": SEED,
            "error": {"largest": largest, "share_of_bound": share},
            "times_ms": {name: percentiles(values) for name, values in times.items()},
            "left_out": left_out,
            "ceilings": ceilings,
        },
        f"the new run of {run.name}",
    )


def measure(kernel: str) -> Recorded:
    """Measure one kernel of the catalogue on this machine's GPU and show the run, without storing it.

    Raises:
        NoGPUError: there is no usable CUDA GPU; the message says what is missing and what to do instead.
        ValueError: no kernel has that name.
    """
    run = find(kernel)
    instead = f"check({kernel!r}) judges it on this CPU, and recorded({kernel!r}) shows the run that is stored."
    require_gpu(f"measure({kernel!r})", instead, run.family)
    with kept_precision():
        bench = CudaBench()
        return Recorded(run, measure_run(run, bench, bench.ceilings()))

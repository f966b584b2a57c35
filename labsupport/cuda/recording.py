"""Records many runs in one go, so that neither a crash, nor an endless kernel, nor an interruption costs what is done.

A worker process measures; this process only watches it. What spoils a CUDA context spoils it for good, so
a worker that failed badly or hangs is ended, and another goes on. A run that ended its worker is tried once
more, in the first way of launching it alone. Nothing here touches the GPU.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labsupport.cuda.bench import Bench
from labsupport.cuda.catalogue import Run, find
from labsupport.cuda.records import FOLDER, RecordError, load

__all__ = ["EACH", "SECONDS", "Outcome", "by_need", "record_all", "still_to_do", "work"]

#: Seconds for everything, and for one run, the first of which also starts the worker and measures the ceilings.
SECONDS = 440.0
EACH = 120.0
START = 120.0


@dataclass
class Outcome:
    """What came of it: names that were stored, reasons for the others, and what each family of kernels lacked."""

    stored: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, tuple[str, ...]] = field(default_factory=dict)


def by_need(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with those first that have a target: what is cut off by the time matters least."""
    return sorted(runs, key=lambda run: not run.targets)


def still_to_do(runs: Sequence[Run], folder: Path = FOLDER) -> list[Run]:
    """Return the runs without a record that speaks of the kernel as it is."""

    def done(run: Run) -> bool:
        try:
            record = load(run.name, folder)
        except RecordError:
            return False
        return record is not None and record.stale is None and not record.left_out

    return [run for run in runs if not done(run)]


def record_all(
    runs: Sequence[Run],
    folder: Path = FOLDER,
    tell: Callable[[str], None] = print,
    seconds: float = SECONDS,
    each: float = EACH,
    start: float = START,
    worker: Callable[..., None] | None = None,
    stored: Callable[[str], None] = lambda name: None,
) -> Outcome:
    """Measure ``runs`` in worker processes and store each as soon as it is done.

    Args:
        runs: in the order in which they are done.
        folder: where the records go.
        tell: is called with a line for whatever happens.
        seconds: for everything; what has not ended by then is stopped or left out, and named.
        each: seconds for one run.
        start: seconds until a worker is ready.
        worker: the function of the worker process; see ``work``.
        stored: is called with the name of each run that was stored.
    """
    watch = _Watch(list(runs), folder, tell, time.monotonic() + seconds, each, start, worker or work, stored)
    why = "the time was over"
    try:
        while watch.left and time.monotonic() < watch.ends and watch.fruitless < 2:
            watch.one_worker()
        if watch.fruitless:
            why = "the process that measures did not come so far"
    except KeyboardInterrupt:
        why = "interrupted"
    for run in watch.left:
        lacking = watch.outcome.lacking.get(run.family)
        watch.outcome.failed[run.name] = f"not measured: {'; '.join(lacking) if lacking else why}"
    return watch.outcome


@dataclass
class _Watch:
    """Starts workers and hears what they say; ``left`` are the runs that nothing is decided about."""

    left: list[Run]
    folder: Path
    tell: Callable[[str], None]
    ends: float
    each: float
    start: float
    worker: Callable[..., None]
    stored: Callable[[str], None]
    outcome: Outcome = field(default_factory=Outcome)
    ceilings: Mapping[str, Any] | None = None
    careful: set[str] = field(default_factory=set)
    fruitless: int = 0
    current: str = ""
    began: float = 0.0

    def one_worker(self) -> None:
        """Let one worker do as much as it can."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        names = [run.name for run in self.left]
        arguments = (there, names, self.folder, self.ceilings, sorted(self.careful))
        process = context.Process(target=self.worker, args=arguments, daemon=False)
        self.fruitless += 1
        process.start()
        there.close()
        try:
            self._listen(here, process)
            process.join(2)
        finally:
            if process.is_alive():
                process.kill()
                process.join()
            here.close()

    def _listen(self, here: Any, process: Any) -> None:
        self.current, limit, began = "", self.start, time.monotonic()
        while True:
            if not here.poll(max(0.0, min(began + limit, self.ends) - time.monotonic())):
                process.kill()
                process.join()
                while here.poll(0):  # what it had still said
                    try:
                        self._hear(*here.recv())
                    except (EOFError, ConnectionError):
                        break
                over = time.monotonic() >= self.ends
                self._failed(
                    self.current, "the time was over" if over else f"not done after {limit:.0f} s, and stopped"
                )
                return
            try:
                message = here.recv()
            except (EOFError, ConnectionError):
                process.join(10)
                self._spoilt(self.current, f"the process that measured ended with code {process.exitcode}")
                return
            if message[0] == "end":
                return
            if message[0] in ("begin", "ceilings"):
                limit, began = self.each if message[0] == "begin" else limit, time.monotonic()
            self._hear(*message)
            if message[0] == "spoilt":
                return

    def _hear(self, kind: str, *rest: Any) -> None:
        """Take in one message of a worker; see ``work``."""
        if kind == "begin":
            self.current, self.began = rest[0], time.monotonic()
            self.tell(f"{self.current} …")
        elif kind == "stored":
            name, told = rest
            self._done(name)
            self.outcome.stored.append(name)
            self.tell(f"{name}: stored after {time.monotonic() - self.began:.0f} s: {told}")
            self.stored(name)
        elif kind == "failed":
            self._failed(*rest)
        elif kind == "spoilt":
            self._spoilt(*rest)
        elif kind == "ceilings":
            self.ceilings = rest[0]
        elif kind == "lacking":
            self.outcome.lacking.update(rest[0])
        elif kind == "note":
            self.tell(f"  {rest[0]}")

    def _done(self, name: str) -> None:
        self.left[:] = [run for run in self.left if run.name != name]
        self.current, self.fruitless = "", 0

    def _failed(self, name: str, reason: str) -> None:
        """Note why a run failed; without a name nothing had begun, and nothing is decided."""
        self.tell(f"{name or 'the process that measures'}: {reason}")
        if name:
            self._done(name)
            self.outcome.failed[name] = reason

    def _spoilt(self, name: str, reason: str) -> None:
        """Let a run that ended its worker be tried once more, with care."""
        if name and name not in self.careful:
            self.careful.add(name)
            self.current, self.fruitless = "", 0
            self.tell(f"{name}: {reason}; once more, in the first way of launching alone")
        else:
            self._failed(name, reason)


def work(
    connection: Any,
    names: Sequence[str],
    folder: Path,
    ceilings: Mapping[str, Any] | None,
    careful: Sequence[str],
) -> None:
    """Measure the runs called ``names`` in this process and tell the one that waits what happens.

    Messages: ("lacking", {family: clauses}), ("ceilings", …), ("note", text), ("begin", name), ("stored", name, text),
    ("failed", name, reason), ("end",), and ("spoilt", name, reason) where the GPU no longer answers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that watches ends this one
    # The compiled baselines are small: starting processes to compile them in would take longer.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    from labsupport.cuda import tuning
    from labsupport.cuda.bench import CudaBench
    from labsupport.cuda.device import status

    runs = [find(name) for name in names]
    # A GPU may be usable for one family of kernels only, where the other's compiler is missing.
    families = {family: status(family) for family in dict.fromkeys(run.family for run in runs)}
    lacking = {family: found.missing for family, found in families.items() if not found}
    connection.send(("lacking", lacking))
    runs = [run for run in runs if run.family not in lacking]
    if not runs:
        connection.send(("end",))
        return
    tuning.on_failure(lambda text: connection.send(("note", text)))
    serve(connection, runs, CudaBench(), folder, ceilings, careful)


def serve(
    connection: Any,
    runs: Sequence[Run],
    bench: Bench,
    folder: Path,
    ceilings: Mapping[str, Any] | None,
    careful: Sequence[str] = (),
) -> None:
    """Measure ``runs`` with ``bench``, storing each, until the end or until the device no longer answers."""
    from labsupport.cuda import tuning
    from labsupport.cuda.measuring import measure_run
    from labsupport.cuda.records import save
    from labsupport.cuda.showing import in_short

    if ceilings is None:
        ceilings = bench.ceilings()
        rates = ", ".join(f"{name} {speed / 1e12:.0f}" for name, speed in ceilings["gemm_flop_per_s"].items())
        copied = ceilings["copy_bytes_per_s"] / 1e9
        connection.send(("note", f"ceilings: a copy {copied:.0f} GB/s; the vendor's products in TFLOP/s: {rates}"))
    connection.send(("ceilings", dict(ceilings)))
    for run in runs:
        connection.send(("begin", run.name))
        reason = ""
        try:
            with tuning.first_only(run.name in careful):
                record = measure_run(run, bench, dict(ceilings))
            save(record, folder)
        except Exception as error:  # one run's fault must not cost the others
            reason = f"{type(error).__name__}: {str(error)[:600]}"
        try:
            bench.release()
        except Exception as error:
            connection.send(("spoilt", run.name, reason or f"{type(error).__name__}: {str(error)[:600]}"))
            return
        connection.send(("failed", run.name, reason) if reason else ("stored", run.name, in_short(record)))
    connection.send(("end",))

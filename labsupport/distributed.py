"""The same function on N ranks of torch.distributed, each rank a real process.

It exists so that a notebook can show a collective as it really runs: the function's source
travels to one fresh process per rank, the ranks meet through a file or a loopback port, and
results come back in rank order. It must never leave a process behind, hide a rank's
traceback, or wait longer than it was told to.
"""

import ast
import builtins
import contextlib
import inspect
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from urllib.parse import urlsplit

__all__ = ["RankError", "run_ranks"]

#: Seconds a rank may take to end by itself once another rank has failed.
GRACE = 2.0
POLL = 0.02


class RankError(RuntimeError):
    """A rank failed, died or did not finish; ``rank`` says which, the text says why."""

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


def run_ranks(
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    backend: str = "gloo",
    timeout: float = 60.0,
    init_method: str | None = None,
) -> list[Any]:
    """Run ``function(rank, world_size, *args)`` on every rank and return the results in rank order.

    Args:
        function: a plain function, also one defined in a notebook cell. The process group is
            initialised before it is called and destroyed after. Modules and functions that it
            uses by name travel with it; other global values are pickled. A class must live in a
            module, or inside the function.
        world_size: number of ranks (processes), at least 1.
        args: passed to every rank; must pickle.
        backend: ``"gloo"`` (CPU) or ``"nccl"`` (one GPU a rank).
        timeout: seconds after which every rank is stopped.
        init_method: where the ranks meet; by default a fresh file. ``"file:///…"`` must not
            exist yet and ``"tcp://127.0.0.1:port"`` must be free.

    Returns:
        One result per rank; each must pickle.

    Raises:
        ValueError: a bad ``world_size``, ``init_method`` or function, or something that cannot travel.
        RankError: a rank raised (its traceback is in the message), died, or ran out of time.

    Source: torch.distributed documentation, "Initialization"; ranks run one thread each.
    """
    if not isinstance(world_size, int) or isinstance(world_size, bool) or world_size < 1:
        raise ValueError(f"world_size is {world_size!r}; give the number of ranks as an integer, 1 or more")
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise ValueError("run_ranks needs a function written with def, since its source is sent to the ranks")
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)
        meeting = _meeting_point(init_method, folder)
        (folder / "job.py").write_text(_program(function), encoding="utf-8")
        (folder / "args.pickle").write_bytes(_pickled(args, "the arguments"))
        (folder / "globals.pickle").write_bytes(_pickled(_plain_globals(function), "a global value"))
        ranks = [_start(folder, rank, world_size, backend, meeting, timeout) for rank in range(world_size)]
        try:
            _wait(ranks, folder, timeout)
        finally:
            _stop(ranks)
        return [pickle.loads((folder / f"result-{rank}.pickle").read_bytes()) for rank in range(world_size)]


# -- what travels ---------------------------------------------------------------------------


def _program(function: FunctionType) -> str:
    """Source of a module that holds the function and everything it names, ready to import."""
    lines: list[str] = []
    _collect(function, lines, seen=set())
    return "\n".join([*lines, f"function = {function.__name__}", ""])


def _collect(function: FunctionType, lines: list[str], seen: set[str]) -> None:
    seen.add(function.__name__)
    if function.__closure__:
        raise ValueError(
            f"{function.__name__} uses {', '.join(function.__code__.co_freevars)} of an enclosing function; "
            "pass it as an argument instead, so that every rank receives it"
        )
    for name, value in _globals_of(function).items():
        if name in seen:
            continue
        if isinstance(value, ModuleType):
            seen.add(name)
            lines.append(f"import {value.__name__} as {name}")
        elif isinstance(value, FunctionType | type) and _importable(value):
            seen.add(name)
            lines.append(f"from {value.__module__} import {value.__name__} as {name}")
        elif isinstance(value, FunctionType):
            _collect(value, lines, seen)
        elif isinstance(value, type):
            raise ValueError(
                f"{function.__name__} uses the class {name}, which no module holds, so that a rank could not import "
                "it; put it into a file, or define it inside the function"
            )
    lines.append(_source(function))


def _source(function: FunctionType) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise ValueError(
            f"the source of {function.__name__} cannot be read ({error}); define it in a cell or a file"
        ) from error


def _globals_of(function: FunctionType) -> dict[str, Any]:
    """Global names that the function's code reads, nested functions included, with their values."""
    tree = ast.parse(_source(function))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return {
        name: function.__globals__[name]
        for name in sorted(names)
        if name in function.__globals__ and not hasattr(builtins, name) and name != function.__name__
    }


def _plain_globals(function: FunctionType) -> dict[str, Any]:
    """Global values that are neither modules nor functions: numbers, arrays, settings."""
    found: dict[str, Any] = {}
    queue, seen = [function], {function.__name__}
    while queue:
        for name, value in _globals_of(queue.pop()).items():
            if isinstance(value, FunctionType) and not _importable(value):
                if name not in seen:
                    seen.add(name)
                    queue.append(value)
            elif not isinstance(value, ModuleType | FunctionType | type):
                found[name] = value
    return found


def _importable(value: Any) -> bool:
    """Whether a rank finds the object by importing its module (not so for a notebook's own names)."""
    module = sys.modules.get(value.__module__)
    installed = module is not None and value.__module__ != "__main__" and getattr(module, "__spec__", None)
    return bool(installed) and getattr(module, value.__name__, None) is value


def _pickled(value: Any, what: str) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise ValueError(f"{what} cannot be sent to the ranks: {error}") from error


# -- where the ranks meet -------------------------------------------------------------------


def _meeting_point(init_method: str | None, folder: Path) -> str:
    if init_method is None:
        return (folder / "meeting").as_uri()
    parts = urlsplit(init_method)
    if parts.scheme == "file":
        if Path(parts.path).exists():
            raise ValueError(
                f"the meeting file {parts.path} is already there, from another run; delete it or name another"
            )
        return init_method
    if parts.scheme == "tcp" and parts.hostname and parts.port:
        with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
            try:
                probe.bind((parts.hostname, parts.port))
            except OSError as error:
                raise ValueError(
                    f"port {parts.port} on {parts.hostname} is not free: {error.strerror}; choose another, "
                    "or leave init_method out to meet through a file"
                ) from error
        return init_method
    raise ValueError(f"init_method is {init_method!r}; use 'file:///path/of/a/new/file' or 'tcp://127.0.0.1:port'")


# -- the processes --------------------------------------------------------------------------


def _start(
    folder: Path, rank: int, world_size: int, backend: str, meeting: str, timeout: float
) -> subprocess.Popen[bytes]:
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    if sys.platform.startswith("linux"):
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    settings = [str(folder), str(rank), str(world_size), backend, meeting, str(timeout)]
    with (folder / f"output-{rank}.txt").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-c", "from labsupport.distributed import _rank_main; _rank_main()", *settings],
            stdin=subprocess.PIPE,  # closes when this process ends, for whatever reason: so does the rank
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )


def _wait(ranks: list[subprocess.Popen[bytes]], folder: Path, timeout: float) -> None:
    """Return when every rank has succeeded; raise for the first that failed."""
    deadline = time.monotonic() + timeout
    while True:
        codes = [process.poll() for process in ranks]
        if any(code not in (None, 0) for code in codes):
            time.sleep(min(GRACE, 0.2))
            raise _failure(ranks, folder)
        if all(code == 0 for code in codes):
            return
        if time.monotonic() > deadline:
            late = [str(rank) for rank, code in enumerate(codes) if code is None]
            raise RankError(
                f"rank {', '.join(late)} did not finish within {timeout:g} s and was stopped; a rank that "
                "waits for a collective which another rank never calls looks like this",
                rank=int(late[0]),
            )
        time.sleep(POLL)


def _failure(ranks: list[subprocess.Popen[bytes]], folder: Path) -> RankError:
    """The earliest traceback: the other ranks fail later, because their partner is gone."""
    tracebacks = sorted(folder.glob("error-*.pickle"), key=lambda path: path.stat().st_mtime_ns)
    if tracebacks:
        rank, text = pickle.loads(tracebacks[0].read_bytes())
        return RankError(f"rank {rank} raised an exception:\n{text}", rank=rank)
    rank, code = next((r, p.poll()) for r, p in enumerate(ranks) if p.poll() not in (None, 0))
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    output = (folder / f"output-{rank}.txt").read_text(errors="replace").strip()
    said = f"; its last output:\n{output[-2000:]}" if output else " and said nothing"
    return RankError(f"rank {rank} {how}{said}", rank=rank)


def _stop(ranks: list[subprocess.Popen[bytes]]) -> None:
    for process in ranks:
        if process.poll() is None:
            process.kill()
    for process in ranks:
        process.wait()
        if process.stdin:
            process.stdin.close()


def _rank_main() -> None:
    """Body of one rank's process: meet the others, call the function, write result or traceback."""
    import threading
    import traceback

    folder, rank, world_size, backend, meeting, timeout = sys.argv[1:]
    place = Path(folder)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        result = _call(place, int(rank), int(world_size), backend, meeting, float(timeout))
        _write(place / f"result-{rank}.pickle", pickle.dumps(result))
    except BaseException:
        _write(place / f"error-{rank}.pickle", pickle.dumps((int(rank), traceback.format_exc())))
        sys.stdout.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def _call(place: Path, rank: int, world_size: int, backend: str, meeting: str, timeout: float) -> Any:
    from datetime import timedelta
    from importlib.util import module_from_spec, spec_from_file_location

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    spec = spec_from_file_location("job", place / "job.py")
    if spec is None or spec.loader is None:
        raise ImportError("the function's source could not be loaded")
    job = module_from_spec(spec)
    sys.modules["job"] = job
    vars(job).update(pickle.loads((place / "globals.pickle").read_bytes()))
    spec.loader.exec_module(job)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend, init_method=meeting, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout)
    )
    result = job.function(rank, world_size, *pickle.loads((place / "args.pickle").read_bytes()))
    if dist.is_initialized():
        # Only after success: a failing rank first writes its traceback, then lets go of the others,
        # so that theirs ("connection reset") is always the later one.
        dist.destroy_process_group()
    return result


def _write(path: Path, data: bytes) -> None:
    partial = path.with_suffix(".part")
    partial.write_bytes(data)
    partial.replace(path)


def _end_with_parent() -> None:
    """Leave when the process that started this rank is gone (its end of the pipe closes)."""
    sys.stdin.buffer.read()
    os._exit(1)

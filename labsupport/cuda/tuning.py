"""Which of several ways of launching a kernel is the fastest here: each is tried once for a shape, then it is known.

A way that does not compile or does not fit is left out and said, so that it costs no other. Nothing
here may decide without having timed, except where nothing can be timed: then the first way is taken.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, TypeVar

__all__ = ["choose", "first_only", "forget", "latest", "on_failure"]

Way = TypeVar("Way")
#: Timed launches of one way.
LAUNCHES = 7

_best: dict[Hashable, Any] = {}
_latest: dict[str, Any] = {}
_tell: list[Callable[[str], None]] = []
_first_only: list[bool] = []


def choose(
    name: str,
    key: Hashable,
    ways: Sequence[Way],
    launch: Callable[[Way], Any],
    milliseconds: Callable[[Callable[[], Any]], float] | None,
) -> Way:
    """Return the fastest of ``ways`` for kernel ``name`` at ``key``.

    Args:
        name: of the kernel.
        key: what the time depends on: shapes, dtypes, strides.
        ways: at least one; with one alone nothing is timed.
        launch: launches the kernel in one way.
        milliseconds: times one call; None where nothing can be timed, as in an interpreter.

    Raises:
        RuntimeError: no way works; the message names each with its error.
    """
    if (name, key) not in _best:
        if milliseconds is None or len(ways) == 1 or _first_only:
            _best[name, key] = ways[0]
        else:
            _best[name, key] = _fastest(ways, launch, milliseconds)
    _latest[name] = _best[name, key]
    return _best[name, key]


def _fastest(
    ways: Sequence[Way], launch: Callable[[Way], Any], milliseconds: Callable[[Callable[[], Any]], float]
) -> Way:
    times: list[tuple[float, int]] = []
    failed: dict[str, Exception] = {}
    for number, way in enumerate(ways):

        def once(way: Way = way) -> Any:
            return launch(way)

        try:
            milliseconds(once)  # compiles
            times.append((median(milliseconds(once) for _ in range(LAUNCHES)), number))
        except Exception as error:  # of whatever kind a compiler or a driver raises
            failed[str(way)] = error
            for tell in _tell:
                tell(f"left out: {way}: {type(error).__name__}: {str(error)[:300]}")
    if not times:
        told = "; ".join(f"{way}: {type(error).__name__}: {error}" for way, error in failed.items())
        raise RuntimeError(f"no way of launching works: {told}") from next(iter(failed.values()))
    return ways[min(times)[1]]


def latest(name: str) -> Any:
    """Return the way that kernel ``name`` was launched last, None before a launch."""
    return _latest.get(name)


@contextmanager
def first_only(wanted: bool = True) -> Iterator[None]:
    """Take the first way without trying others, where ``wanted``: one of them may have ended a process before."""
    if wanted:
        _first_only.append(True)
    try:
        yield
    finally:
        if wanted:
            _first_only.pop()


def forget() -> None:
    """Forget every choice."""
    _best.clear()
    _latest.clear()


def on_failure(tell: Callable[[str], None]) -> None:
    """Have ``tell`` called with a sentence for every way that is left out."""
    _tell.append(tell)

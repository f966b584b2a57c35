"""Runs a reader's function so that whatever it does, the kernel and later checks go on as before.

Time, output, interpreter exits and the process-wide settings an answer may change are held here.
It limits damage from mistakes; it is no security boundary. An endless loop inside one call of
compiled code cannot be stopped, and ``KeyboardInterrupt`` always belongs to the reader.
"""

import io
import os
import random
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, process_time
from typing import Any

import numpy as np

from labsupport.grading import pristine

#: Characters of output kept of one run; the rest is counted and dropped.
OUTPUT_LIMIT = 10_000
#: After the time is up the timer repeats: first calmly, then so fast that even a bare
#: ``except:`` inside an endless loop meets a second exception within its own handler.
_CALM, _FAST, _CALM_TICKS = 0.02, 0.00005, 3
#: The timer itself: while an answer runs, the functions of ``signal`` leave it alone.
_set_timer = getattr(signal, "setitimer", None)
#: How long imports inside an answer are waited for.
_IMPORT_SECONDS = 120.0
NO_TIMER = "there is no timer here, so an endless loop would have to be interrupted by hand."


class TimeUp(BaseException):
    """Raised inside an answer whose time is up."""


class Exited(BaseException):
    """Raised in place of ending or copying the process at once; carries the name of what was called."""


class Forbidden(BaseException):
    """Raised when an answer calls what the exercise does not allow; carries the name."""


@dataclass(frozen=True)
class Outcome:
    """How one call ended: with a value, or with what it raised."""

    value: Any = None
    raised: BaseException | None = None
    replaced: tuple[str, ...] = ()


class _Capped(io.TextIOBase):
    """A text stream that keeps the first characters and drops the rest."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.room = OUTPUT_LIMIT

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if type(text) is not str:
            raise TypeError("write() argument must be str")
        if self.room > 0:
            self.kept.append(text[: self.room])
            self.room -= len(self.kept[-1])
        return len(text)


def has_timer() -> bool:
    """Return whether an endless loop can be stopped here: a POSIX system, in the main thread."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


def _invoke(call: Callable[[], Any]) -> Any:
    return call()


def run(
    call: Callable[[], Any],
    find: Callable[[], list[tuple[types.ModuleType, str]]] = pristine.replaced,
    restore: Callable[[], object] = pristine.restore,
) -> Outcome:
    """Run ``call`` inside a ``session``. Raises nothing but the reader's KeyboardInterrupt.

    ``find`` and ``restore`` are bound here, so that an answer that replaces them meets the originals.
    """
    try:
        outcome = Outcome(value=_invoke(call))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        outcome = Outcome(raised=error)
    changed = find()
    if not changed:
        return outcome
    restore()
    names = tuple(f"{module.__name__}.{name}" for module, name in changed)
    return Outcome(outcome.value, outcome.raised, names)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the floating-point and other warnings of the grader's own computations."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def session(seconds: float) -> Iterator[tuple[str, ...]]:
    """Hold time, output, exits and settings while answers run; yield notes on what cannot be held here.

    ``seconds`` is the time for all calls together.
    """
    with pristine.modules(), _settings(), _streams(), _no_exit(), _deadline(seconds) as timed, _signals():
        yield () if timed else (NO_TIMER,)


class _Clock:
    """Time that counts against an answer: its own computing time, or the clock on the wall four times over.

    A machine that is busy with something else must not make a right answer late.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.restart()

    def restart(self) -> None:
        self.computing, self.wall = process_time(), monotonic()

    def is_up(self) -> bool:
        return process_time() - self.computing >= self.seconds or monotonic() - self.wall >= 4 * self.seconds


@contextmanager
def _deadline(seconds: float) -> Iterator[bool]:
    """Raise ``TimeUp`` inside the guarded call once the time is up, again and again until it ends.

    An import is never cut short, because half a module would stay loaded: it is waited for, and the
    time starts anew after it.
    """
    if _set_timer is None or not has_timer():
        yield False
        return
    clock, ticks, importing, looking = _Clock(seconds), 0, False, False
    patience = monotonic() + _IMPORT_SECONDS

    def ring(number: int, frame: types.FrameType | None) -> None:
        nonlocal looking
        if looking:
            return  # a deep stack takes longer to look through than the next tick takes to come
        looking = True
        try:
            look(frame)
        finally:
            looking = False

    def look(frame: types.FrameType | None) -> None:
        nonlocal ticks, importing
        was_importing, importing = importing, False
        while frame is not None and frame.f_code is not _invoke.__code__:
            importing = importing or frame.f_code.co_filename == "<frozen importlib._bootstrap>"
            frame = frame.f_back
        if frame is None:
            return  # the call is over: nothing to stop
        if (importing or was_importing) and monotonic() < patience:
            clock.restart()
            return
        if not clock.is_up():
            return
        ticks += 1
        if ticks == _CALM_TICKS:
            _set_timer(signal.ITIMER_REAL, _FAST, _FAST)
        raise TimeUp

    def unraisable(told: Any) -> None:
        if told.exc_type is not TimeUp:  # in a callback of the interpreter it is lost, and the next tick brings another
            report(told)

    handler, report = signal.signal(signal.SIGALRM, ring), sys.unraisablehook
    sys.unraisablehook = unraisable
    timer = _set_timer(signal.ITIMER_REAL, max(seconds, 0.001), _CALM)
    try:
        yield True
    finally:
        _set_timer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        sys.unraisablehook = report
        if timer[0]:
            _set_timer(signal.ITIMER_REAL, *timer)


@contextmanager
def _signals() -> Iterator[None]:
    """Keep the timer in the judge's hands, and put back what an answer does when it is interrupted or ended."""
    if not has_timer():
        yield
        return
    kept = (signal.signal, signal.setitimer, signal.alarm)
    set_handler, set_timer, _ = kept
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, handler: Any) -> Any:
        return signal.getsignal(number) if number == signal.SIGALRM else set_handler(number, handler)

    def start(which: int, seconds: float, interval: float = 0.0) -> tuple[float, float]:
        return (0.0, 0.0) if which == signal.ITIMER_REAL else set_timer(which, seconds, interval)

    for name, stand_in in {"signal": handle, "setitimer": start, "alarm": lambda seconds: 0}.items():
        setattr(signal, name, stand_in)
    try:
        yield
    finally:
        signal.signal, signal.setitimer, signal.alarm = kept
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


@contextmanager
def _streams() -> Iterator[None]:
    """Keep a bounded part of what is printed, and show none of it."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Capped(), _Capped()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


#: Calls that would end the process, or copy it together with the notebook's connections.
_ENDINGS = ("_exit", "abort", "kill", "killpg", "fork", "forkpty", "execv", "execve")


def _refusing(name: str) -> Callable[..., None]:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise Exited(f"os.{name}")

    return refuse


@contextmanager
def _no_exit() -> Iterator[None]:
    """Turn ways to end the process, or to lift the recursion limit, into something that is told."""
    originals = {name: getattr(os, name) for name in _ENDINGS if hasattr(os, name)}
    limit, set_limit = sys.getrecursionlimit(), sys.setrecursionlimit
    for name in originals:
        setattr(os, name, _refusing(name))
    sys.setrecursionlimit = lambda wanted: set_limit(min(wanted, max(limit, 10_000)))
    try:
        yield
    finally:
        sys.setrecursionlimit = set_limit
        sys.setrecursionlimit(limit)
        for name, original in originals.items():
            setattr(os, name, original)


@contextmanager
def _settings() -> Iterator[None]:
    """Put every process-wide setting back that an answer may change."""
    errors = np.geterr()
    numpy_random, python_random = np.random.get_state(), random.getstate()
    printing = np.get_printoptions()
    trace, profile = sys.gettrace(), sys.getprofile()
    folder, environment = _folder(), dict(os.environ)
    try:
        with quiet():
            yield
    finally:
        if sys.gettrace() is not trace:
            sys.settrace(trace)
        if sys.getprofile() is not profile:
            sys.setprofile(profile)
        np.seterr(**errors)
        np.random.set_state(numpy_random)
        random.setstate(python_random)
        np.set_printoptions(**printing)
        if folder is not None and _folder() != folder:
            os.chdir(folder)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None

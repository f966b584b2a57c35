"""Runs a kernel: blocks one after the other, the threads of a block as greenlets that stop at barriers.

One ``Machine`` is one launch. It must stay deterministic: the seed alone decides the order of
blocks and threads, and no verdict depends on that order.
"""

import itertools
import math
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from types import FrameType, FunctionType
from typing import Any

import numpy as np

try:
    from greenlet import getcurrent, greenlet
except ModuleNotFoundError:  # a machine that only measures compiles the same kernels without it
    greenlet = Any

    def getcurrent() -> Any:
        """Say what is missing, once something is to be simulated."""
        raise ModuleNotFoundError("the simulator needs the package greenlet: pip install greenlet")


from labsupport.cuda.simt.analysis import (
    WARP,
    Access,
    Accesses,
    BlockOrder,
    Count,
    Segments,
    count_traffic,
    race_in_phase,
)
from labsupport.cuda.simt.errors import (
    BarrierError,
    DataRaceError,
    EndlessLoopError,
    KernelFault,
    LaunchError,
    SimtError,
    UninitializedError,
    UnsupportedError,
    WarpError,
)
from labsupport.cuda.simt.memory import GLOBAL, LOCAL, SHARED, STEP, Array, elements, make_array
from labsupport.cuda.simt.transform import SITES

# Limits of compute capability 9.0 (CUDA C++ Programming Guide, table "Technical Specifications per
# Compute Capability"); 48 KiB is what a kernel gets without asking for more.
MAX_THREADS, MAX_BLOCK_DIM, MAX_GRID_DIM = 1024, (1024, 1024, 64), (2**31 - 1, 65535, 65535)
MAX_SHARED_BYTES = 48 * 1024
MAX_LOCAL_BYTES = 512 * 1024
#: Turns of one while loop in one thread after which it counts as endless.
MAX_TURNS = 200_000
#: The same for all for loops of one thread together.
MAX_FOR_TURNS = 50_000_000
MAX_ARRAYS = 64
FULL_MASK = 0xFFFFFFFF
#: Accesses that are judged and counted at a time.
BATCH = 300_000

UNINITIALIZED_VALUE = {"f": np.nan, "b": False}


@dataclass(frozen=True)
class Dim3:
    """Three sizes or indices, ``.x`` running fastest."""

    x: int = 1
    y: int = 1
    z: int = 1

    def __iter__(self) -> Iterator[int]:
        raise no_such_name("an index or a size of the launch has .x, .y and .z, and cannot be taken apart")

    def __getitem__(self, axis: int) -> int:
        raise no_such_name("an index or a size of the launch has .x, .y and .z, and no numbered axes")

    def __str__(self) -> str:
        return str(self.triple)

    def __getattr__(self, name: str) -> int:
        raise no_such_name(f"an index or a size of the launch has .x, .y and .z, not .{name}")

    @property
    def triple(self) -> tuple[int, int, int]:
        """(x, y, z)."""
        return self.x, self.y, self.z

    @property
    def size(self) -> int:
        """x · y · z."""
        return self.x * self.y * self.z


@dataclass(slots=True)
class SimThread:
    """One thread of the running block.

    While it waits, ``frame`` is the kernel's frame that called the operation and ``place`` the way that led
    there, so that two calls in one line, or one device function called from two places, are told apart.
    """

    index: Dim3
    number: int
    lane: int
    greenlet: Any = None
    warp_phase: int = 0
    waits_for: str = ""
    frame: Any = None
    place: Any = None
    mask: int = 0  # of the warp operation at which it waits, otherwise 0
    payload: Any = None
    turns: int = 0
    for_turns: int = 0
    done: bool = False

    @property
    def warp(self) -> int:
        return self.number // WARP

    @property
    def line(self) -> int:
        """Line at which it waits."""
        line: int = self.frame.f_lineno
        return line


@dataclass
class Report:
    """What a launch did.

    Attributes:
        blocks, threads: how many ran.
        barriers: block-wide barriers passed, summed over the blocks.
        warp_operations: warp barriers, shuffles and votes, summed over the warps.
        shared_bytes: shared memory of one block.
        counts: (line, array, space, "load" | "store" | "atomic") → ``Count``.
        float64_lines: lines that round a float64 into a narrower array.
        float64_arrays: shared and local arrays of float64.
        trace: with ``trace=True`` the phases of the first block.
    """

    blocks: int = 0
    threads: int = 0
    barriers: int = 0
    warp_operations: int = 0
    shared_bytes: int = 0
    counts: dict[tuple[int, str, str, str], Count] = field(default_factory=dict)
    float64_lines: tuple[int, ...] = ()
    float64_arrays: tuple[str, ...] = ()
    trace: list["Phase"] = field(default_factory=list)

    def total(self, name: str, space: str | None = None, kind: str | None = None, array: str | None = None) -> int:
        """Sum of a counter (``"accesses"``, ``"sectors"``, …) over the places that match."""
        chosen = [
            count
            for (_, of_array, of_space, of_kind), count in self.counts.items()
            if space in (None, of_space) and kind in (None, of_kind) and array in (None, of_array)
        ]
        return sum(getattr(count, name) for count in chosen)

    def __str__(self) -> str:
        head = (
            f"{self.blocks} blocks, {self.threads} threads, {self.barriers} barriers, "
            f"{self.warp_operations} warp operations, {self.shared_bytes} B shared memory a block"
        )
        rows = ["line  array      kind           accesses  requests  sectors/request  passes/request"]
        for (line, array, space, kind), c in sorted(self.counts.items()):
            per_request = f"{c.sectors / c.requests:.2f}" if space == GLOBAL else ""
            wavefronts = f"{c.wavefronts / c.requests:.2f}" if space == SHARED else ""
            place = f"{space} {kind}"
            rows.append(
                f"{line:<5} {array:<10} {place:<13} {c.accesses:>9} {c.requests:>9}"
                f"  {per_request:>15}  {wavefronts:>14}"
            )
        return "\n".join([head, *rows])


@dataclass(frozen=True)
class Step:
    """One access in a trace: which thread did what to which element, and on which line."""

    thread: int
    line: int
    array: str
    space: str
    kind: str
    index: tuple[int, ...]


@dataclass(frozen=True)
class Phase:
    """What the first block did up to a barrier (or to its end, when ``barrier_line`` is 0).

    ``shared`` holds its shared arrays as they are then, by name; None stands where nothing was written.
    """

    steps: tuple[Step, ...]
    barrier_line: int
    shared: dict[str, tuple[Any, ...]] = field(default_factory=dict)


KINDS = ("load", "store", "atomic")
#: A global name that the frames of rewritten kernels have and no others.
MARK = "__simt_divide"


@dataclass(frozen=True)
class Unwritten:
    """A read of an element that holds nothing; judged once it is known whether it was a race."""

    phase: int
    offset: int
    thread: int
    block: int
    site: int
    array: Array


class _Idle(threading.local):
    """Greenlets that wait for a thread to run: making one costs more than all that most threads do."""

    def __init__(self) -> None:
        self.greenlets: list[greenlet] = []

    def take(self, hub: greenlet) -> greenlet:
        """An idle greenlet, or a new one, that comes back to the hub."""
        if self.greenlets:
            found = self.greenlets.pop()
            found.parent = hub
            return found
        made = greenlet(_work, hub)
        made.gr_context = copy_context()  # NumPy's error state lives in the context
        return made


_idle = _Idle()


def _work(function: FunctionType, arguments: Sequence[Any]) -> None:
    """What a greenlet does: one thread of a kernel after the other."""
    own = getcurrent()
    while True:
        result = function(*arguments)
        del function, arguments  # nothing of a launch stays alive while the greenlet is idle
        assert own.parent is not None
        function, arguments = own.parent.switch(result)


class Machine:
    """One launch of one kernel."""

    def __init__(
        self,
        grid: Any,
        block: Any,
        shared_bytes: int,
        seed: int | None,
        profile: bool,
        trace: bool,
        seconds: float | None = None,
    ) -> None:
        self.grid_dim, self.grid_axes = as_dim3(grid, "grid", MAX_GRID_DIM), _axes(grid)
        self.block_dim, self.block_axes = as_dim3(block, "block", MAX_BLOCK_DIM), _axes(block)
        check_block(self.block_dim)
        self.dynamic_bytes = shared_bytes
        self.order = None if seed is None else np.random.default_rng(seed)
        self.profile, self.tracing = profile, trace
        self.log: list[int] = []
        self.segments = Segments()
        self.phase = 0
        self.phase_start = (0, 0)  # lengths of log and segments when the phase began
        self.phase_blocks: list[int] = []
        self.phase_lines: list[int] = []
        self.arrays: list[Array] = []
        self.dynamic: Array | None = None
        self.shared: dict[int | None, Array] = {}  # by the place in the source where it is made
        self.shared_bytes = 0
        self.unwritten: list[Unwritten] = []
        self.float64_sites: set[int] = set()
        self.block_order = BlockOrder()
        self.counts: dict[tuple[int, int], Count] = {}
        self.report = Report()
        self.current: SimThread = SimThread(Dim3(0, 0, 0), 0, 0)
        self.block_index = Dim3(0, 0, 0)
        self.block_number = 0
        sizes = reversed(self.block_dim.triple)
        self.thread_indices = [Dim3(x, y, z) for z, y, x in itertools.product(*(range(n) for n in sizes))]
        #: The bits of the lanes that each warp has; the last one may be short.
        count = len(self.thread_indices)
        self.lanes = [(1 << min(WARP, count - first)) - 1 for first in range(0, count, WARP)]
        #: Threads at an operation of a warp, by warp, place and mask; and the groups that have all come.
        self.meeting: dict[tuple[int, Any, int], list[SimThread]] = {}
        self.complete: list[list[SimThread]] = []
        self.loops = 0
        self.snapshots: dict[int, dict[str, tuple[Any, ...]]] = {}
        self.float64_arrays: set[str] = set()
        self.deadline = None if seconds is None else time.process_time() + seconds

    # -- launch -------------------------------------------------------------------------------

    def run(self, function: FunctionType, names: Sequence[str], arguments: Sequence[Any]) -> Report:
        """Run the kernel over the whole grid and write the results back to the arrays."""
        given = [self._argument(name, value) for name, value in zip(names, arguments, strict=True)]
        indices = list(itertools.product(*(range(n) for n in reversed(self.grid_dim.triple))))
        with np.errstate(all="ignore"):
            try:
                for k in self._shuffled(range(len(indices))):
                    self._run_block(Dim3(*reversed(indices[k])), k, function, given)
            except SimtError:
                self._forget_open_phase()
                self._analyse()  # a race in an earlier phase is the cause of what came later
                raise
            self._analyse()
        for value, array in zip(arguments, given, strict=True):
            if isinstance(array, Array):
                value.reshape(-1)[...] = np.array(array.data, dtype=value.dtype)
        return self._finished()

    def _argument(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "fiub":
                raise LaunchError(f"{name} has dtype {value.dtype}; a kernel takes floats, integers and booleans")
            if not value.flags.c_contiguous:
                raise LaunchError(
                    f"{name} is not contiguous (strides {value.strides}); pass np.ascontiguousarray({name})"
                )
            if value.ndim == 0:
                raise LaunchError(f"{name} is an array without axes; pass the number itself")
            return self._new_array(name, GLOBAL, value.shape, value.dtype, elements(value))
        if isinstance(value, np.integer | np.bool_):
            return value.item()
        if isinstance(value, int | float | np.floating):
            return np.float64(value) if isinstance(value, float) and not isinstance(value, np.floating) else value
        raise LaunchError(f"{name} is a {type(value).__name__}; a kernel takes NumPy arrays and numbers")

    def _new_array(self, name: str, space: str, shape: tuple[int, ...], dtype: np.dtype[Any], data: list[Any]) -> Array:
        if space is not LOCAL and len(self.arrays) == MAX_ARRAYS:
            raise LaunchError(f"more than {MAX_ARRAYS} arrays in one launch")
        array = make_array(self, len(self.arrays), name, space, shape, dtype, data)
        if space is not GLOBAL and dtype == np.float64:
            self.float64_arrays.add(name)
        if space is not LOCAL:
            self.arrays.append(array)
        return array

    def _shuffled(self, items: Sequence[Any]) -> Sequence[Any]:
        return items if self.order is None else [items[k] for k in self.order.permutation(len(items))]

    def _finished(self) -> Report:
        report, grid_blocks = self.report, self.grid_dim.size
        report.blocks, report.threads = grid_blocks, grid_blocks * self.block_dim.size
        report.float64_lines = tuple(sorted({SITES.table[site].line for site in self.float64_sites}))
        report.float64_arrays = tuple(sorted(self.float64_arrays))
        for (site, number), count in self.counts.items():
            place, array = SITES.table[site], self.arrays[number]
            key = (place.line, array.name, array.space, KINDS[place.kind])
            total = report.counts.setdefault(key, Count())
            for name in vars(count):
                setattr(total, name, getattr(total, name) + getattr(count, name))
        return report

    # -- one block ----------------------------------------------------------------------------

    def _run_block(self, index: Dim3, number: int, function: FunctionType, arguments: list[Any]) -> None:
        self.block_index, self.block_number = index, number
        self.code = function.__code__
        self.hub = getcurrent()
        threads = [SimThread(place, k, k % WARP) for k, place in enumerate(self.thread_indices)]
        for array in self.shared.values():  # shared memory holds nothing at the start of a block
            array.data[:] = [None] * array.size
        self.threads = threads
        self.meeting.clear()
        self.complete.clear()
        try:
            for thread in threads:
                thread.greenlet = _idle.take(self.hub)
            self._resume([(thread, (function, arguments)) for thread in threads])
            while True:
                while self.complete:
                    self._warp_operation(self.complete.pop())
                waiting = [thread for thread in threads if not thread.done]
                if not waiting:
                    break
                self._block_barrier(threads, waiting)
            self._end_phase(0)
        finally:
            for thread in threads:
                if thread.done or (thread.place is None and thread is not self.current):  # ended, or never began
                    _idle.greenlets.append(thread.greenlet)
                elif not thread.greenlet.dead:
                    thread.greenlet.throw()  # unwinds the thread, so that nothing stays behind

    def _resume(self, threads: Sequence[tuple[SimThread, Sequence[Any]]]) -> None:
        """Let threads run to where they wait next, each with what it is handed."""
        note, log, phase = self.segments.rows.extend, self.log, self.phase
        for thread, arguments in self._shuffled(threads):
            note((len(log), thread.number, thread.warp_phase, phase))
            self.current, thread.waits_for = thread, ""
            try:
                result = thread.greenlet.switch(*arguments)
            except SimtError:
                raise
            except Exception as error:
                line = _innermost_line(error)
                raise self._error(KernelFault, line or 0, _explained(error), thread) from error
            if not thread.waits_for:
                thread.done = True
                if result is not None:
                    raise self._error(
                        UnsupportedError, self.code.co_firstlineno,
                        f"the kernel returns {result!r}; a kernel returns nothing, so write the result into an array",
                        thread,
                    )  # fmt: skip

    def wait(self, kind: str, frame: FrameType, payload: Any = None) -> Any:
        """Called from a thread: wait at a barrier of the block."""
        thread = self.current
        thread.waits_for, thread.frame, thread.mask, thread.payload = kind, frame, 0, payload
        thread.place = frame.f_lasti if frame.f_code is self.code else _way(frame)
        return self.hub.switch()

    def meet(self, kind: str, frame: FrameType, mask: int, payload: Any = None) -> Any:
        """Called from a thread: wait at an operation of the warp until the lanes of the mask have come."""
        thread = self.current
        if not isinstance(mask, int | np.integer):
            raise self.refused(
                f"the mask of {kind} is a whole number, a bit for each lane, not a {type(mask).__name__}"
            )
        mask = int(mask) & FULL_MASK
        if not mask >> thread.lane & 1:
            raise self._error(
                WarpError,
                frame.f_lineno,
                f"lane {thread.lane} calls {kind} although its own bit is not in the mask {mask:#010x}",
                thread,
            )
        thread.waits_for, thread.frame, thread.mask, thread.payload = kind, frame, mask, payload
        thread.place = place = frame.f_lasti if frame.f_code is self.code else _way(frame)
        warp = thread.number // WARP
        group = self.meeting.setdefault((warp, place, mask), [])
        group.append(thread)
        if len(group) == (mask & self.lanes[warp]).bit_count():
            del self.meeting[warp, place, mask]
            self.complete.append(group)
        return self.hub.switch()

    # -- barriers -----------------------------------------------------------------------------

    def _block_barrier(self, threads: list[SimThread], waiting: list[SimThread]) -> None:
        stuck = next((thread for thread in waiting if thread.mask), None)
        if stuck is not None:
            raise self._stuck_warp(stuck)
        first = waiting[0]
        if any(thread.place != first.place for thread in waiting):
            raise self._different_barriers(waiting)
        if len(waiting) < len(threads):
            gone = next(thread for thread in threads if thread.done)
            raise self._error(
                BarrierError, first.line,
                f"{len(waiting)} of {len(threads)} threads wait at the barrier of line {first.line}, but thread "
                f"{self._thread(gone.index)} has already ended; move syncthreads() out of the condition, or let every "
                "thread run to the end", first,
            )  # fmt: skip
        self._end_phase(first.line)
        self.report.barriers += 1
        answer = self._vote(first.waits_for, waiting)
        for thread in waiting:
            thread.warp_phase = 0
        self._resume([(thread, answer) for thread in waiting])

    def _different_barriers(self, waiting: list[SimThread]) -> SimtError:
        first = waiting[0]
        other = next(thread for thread in waiting if thread.place != first.place)
        lines = sorted({thread.line for thread in waiting})
        if len(lines) > 1:
            where = f"lines {', '.join(map(str, lines[:-1]))} and {lines[-1]}"
        else:
            where = f"both in line {lines[0]}, reached by different calls"
        return self._error(
            BarrierError, first.line,
            f"the threads of the block wait at different barriers, {where}: thread {self._thread(first.index)} at the "
            f"one, thread {self._thread(other.index)} at the other; every thread has to reach the same syncthreads()",
            first,
        )  # fmt: skip

    @staticmethod
    def _vote(kind: str, waiting: list[SimThread]) -> tuple[Any, ...]:
        """What a barrier hands to every thread."""
        if kind == "syncthreads":
            return (None,)
        votes = [bool(thread.payload) for thread in waiting]
        every = {"syncthreads_count": sum(votes), "syncthreads_and": int(all(votes)), "syncthreads_or": int(any(votes))}
        return (every[kind],)

    def _warp_operation(self, group: list[SimThread]) -> None:
        self.report.warp_operations += 1
        kind = group[0].waits_for
        results = self._results(kind, group)
        for thread in group:
            thread.warp_phase += 1
        self._resume([(thread, (result,)) for thread, result in zip(group, results, strict=True)])

    def _results(self, kind: str, group: list[SimThread]) -> list[Any]:
        if kind == "syncwarp":
            return [None] * len(group)
        if kind.startswith("shfl"):
            by_lane = {thread.lane: thread.payload[0] for thread in group}
            return [self._shuffled_value(thread, by_lane) for thread in group]
        votes = {thread.lane: bool(thread.payload) for thread in group}
        ballot = sum(1 << lane for lane, vote in votes.items() if vote)
        answer: Any = {"ballot_sync": ballot, "all_sync": all(votes.values()), "any_sync": any(votes.values())}[kind]
        return [answer] * len(group)

    def _shuffled_value(self, thread: SimThread, by_lane: dict[int, Any]) -> Any:
        value, source = thread.payload
        if not 0 <= source < WARP:
            return value  # beyond the warp a lane keeps its own value
        if source in by_lane:
            return by_lane[source]
        raise self._error(
            WarpError, thread.line,
            f"lane {thread.lane} reads from lane {source}, which does not take part in this shuffle; what it gets is "
            "not defined. Use whole warps, or a mask and a width that fit", thread,
        )  # fmt: skip

    def _stuck_warp(self, thread: SimThread) -> SimtError:
        lanes = [t for t in self.threads if t.warp == thread.warp]
        named = [t for t in lanes if thread.mask >> t.lane & 1]
        absent = [t for t in named if t.done or t.place != thread.place or t.mask != thread.mask]
        other = absent[0] if absent else thread
        if other.done:
            state = "has already ended"
        elif other.mask and other.place != thread.place and other.line == thread.line:
            state = "is at another call in the same line, or came there from another call"
        elif other.mask not in (0, thread.mask):
            state = f"names the mask {other.mask:#010x}"
        elif other.waits_for.startswith("syncthreads"):
            state = f"waits at the barrier of line {other.line}"
        else:
            state = f"waits at {other.waits_for} of line {other.line}"
        return self._error(
            WarpError, thread.line,
            f"{thread.waits_for} of line {thread.line} names lane {other.lane} in its mask {thread.mask:#010x}, but "
            f"that lane {state}; every named lane has to reach the same operation", thread,
        )  # fmt: skip

    # -- phases -------------------------------------------------------------------------------

    def _end_phase(self, barrier_line: int) -> None:
        self.phase_blocks.append(self.block_number)
        self.phase_lines.append(barrier_line)
        if self.tracing and self.block_number == 0:
            self.snapshots[self.phase] = {a.name: tuple(a.data) for a in self.shared.values()}
        self.phase += 1
        if len(self.log) > BATCH:
            self._analyse()
        self.phase_start = (len(self.log), len(self.segments.rows))

    def _forget_open_phase(self) -> None:
        """Drop what the phase that failed has logged: its own fault is the better explanation."""
        log, segments = self.phase_start
        del self.log[log:]
        del self.segments.rows[segments:]
        self.unwritten = [found for found in self.unwritten if found.phase < self.phase]

    def _analyse(self) -> None:
        """Judge and count all phases in the log, then clear it."""
        accesses = Accesses.of(self.log, self.segments)
        self.log.clear()
        self.segments.rows.clear()
        self.phase_start = (0, 0)
        race = race_in_phase(accesses, self.arrays)
        unwritten = min(self.unwritten, key=lambda found: (found.phase, found.offset, found.thread), default=None)
        if race and not (unwritten and unwritten.phase < race[0]):
            block = self.phase_blocks[race[0]]
            passed = self.phase_blocks[: race[0]].count(block)
            self._raise_race(race[1], replace(race[2], block=block), replace(race[3], block=block), passed)
        if unwritten:
            raise self._unwritten_error(unwritten)
        blocks = np.array(self.phase_blocks, np.int64)[accesses.phase] if accesses.phase.size else accesses.phase
        if self.grid_dim.size > 1:  # blocks run one after the other, so each has one stretch of the log
            bounds = [0, *(np.flatnonzero(np.diff(blocks)) + 1), blocks.size] if blocks.size else []
            for start, end in itertools.pairwise(bounds):
                across = self.block_order.race(int(blocks[start]), accesses.where(slice(start, end)), self.arrays)
                if across:
                    self._raise_race(*across)
        if self.profile:
            count_traffic(accesses, self.arrays, self.counts)
        if self.tracing:
            for phase in np.unique(accesses.phase[blocks == 0]):
                steps = self._steps(accesses.where(accesses.phase == phase))
                shared = self.snapshots.get(int(phase), {})
                self.report.trace.append(Phase(steps, self.phase_lines[phase], shared))

    def _steps(self, accesses: Accesses) -> tuple[Step, ...]:
        steps: list[Step] = []
        for address, site, thread in zip(accesses.offset, accesses.site, accesses.thread, strict=True):
            place = SITES.table[site]
            array = self.arrays[accesses.array[len(steps)]]
            index = tuple(int(i) for i in np.unravel_index(int(address), array.shape))
            steps.append(Step(int(thread), place.line, array.name, array.space, KINDS[place.kind], index))
        return tuple(steps)

    def _raise_race(self, address: int, first: Access, second: Access, barriers: int = 0) -> None:
        array = self.arrays[address % MAX_ARRAYS]
        index = ", ".join(str(i) for i in np.unravel_index(address // MAX_ARRAYS, array.shape))
        across = first.block != second.block
        advice = (
            "blocks run in any order and no barrier orders them: give each element to one block, or use an atomic"
            if across
            else "nothing orders these two: a syncthreads() between them is missing, or two threads share an element"
        )
        error = self._error(
            DataRaceError,
            SITES.table[first.site].line,
            f"data race on {array.name}[{index}] ({array.space} memory): {self._described(first, across)} and "
            f"{self._described(second, across)}; {advice}",
            self._thread_index(first.thread),
            self._block(first.block),
        )
        error.array, error.space, error.across, error.barriers = array.name, array.space, across, barriers
        error.kinds = tuple(sorted(KINDS[SITES.table[access.site].kind] for access in (first, second)))
        raise error from None

    def _described(self, access: Access, with_block: bool) -> str:
        place = SITES.table[access.site]
        did = ("reads it", "writes it", "changes it atomically")[place.kind]
        block = f" of block {_shown(self._block(access.block), self.grid_axes)}" if with_block else ""
        thread = self._thread(self._thread_index(access.thread))
        return f"thread {thread}{block} {did} in line {place.line} ({place.text})"

    def _block(self, number: int) -> Dim3:
        x, rest = number % self.grid_dim.x, number // self.grid_dim.x
        return Dim3(x, rest % self.grid_dim.y, rest // self.grid_dim.y)

    def _thread(self, index: Dim3) -> str:
        return _shown(index, self.block_axes)

    def _thread_index(self, number: int) -> Dim3:
        x, rest = number % self.block_dim.x, number // self.block_dim.x
        return Dim3(x, rest % self.block_dim.y, rest // self.block_dim.y)

    # -- what threads report ------------------------------------------------------------------

    def uninitialized(self, array: Array, site: int, offset: int) -> Any:
        """Called for an element that holds nothing yet; the verdict waits for the end of the phase.

        If another thread writes the element in the same phase the fault is a race, and is told so.
        """
        found = Unwritten(self.phase, offset, self.current.number, self.block_number, site, array.root)
        if array.space is LOCAL:
            raise self._unwritten_error(found)
        self.unwritten.append(found)
        return array.convert(UNINITIALIZED_VALUE.get(array.dtype.kind, 0))

    def _unwritten_error(self, found: "Unwritten") -> SimtError:
        index = ", ".join(str(i) for i in np.unravel_index(found.offset, found.array.shape))
        error = self._error(
            UninitializedError,
            SITES.table[found.site].line,
            f"{found.array.name}[{index}] ({found.array.space} memory) is read before any thread has written it; "
            "fill it first, edges and tails included",
            self._thread_index(found.thread),
            self._block(found.block),
        )
        error.array, error.space = found.array.name, found.array.space
        error.barriers = self.phase_blocks[: found.phase].count(found.block)
        return error

    def fault(self, kind: type[SimtError], site: int, text: str, array: Array) -> SimtError:
        """The error for a fault of the running thread at a site."""
        error = self._error(kind, SITES.table[site].line, text, self.current)
        error.array, error.space = array.name, array.space
        return error

    def refused(self, text: str) -> SimtError:
        """The error for something outside the dialect, at the line of the kernel that is running."""
        return self.fault_here(UnsupportedError, text)

    def fault_here(self, kind: type[SimtError], text: str) -> SimtError:
        """The error for a fault of the running thread, at the line where it is."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and MARK not in frame.f_globals:
            frame = frame.f_back
        return self._error(kind, frame.f_lineno if frame else 0, text, self.current)

    def tick(self, line: int) -> None:
        """Called once a turn of each while loop."""
        self.current.turns += 1
        if self.current.turns > MAX_TURNS:
            raise self._error(
                EndlessLoopError, line,
                f"the while loop of line {line} has run {MAX_TURNS} turns in one thread; a loop that waits for another "
                "thread need not end, since nothing says when that thread runs or when its writes become visible",
                self.current,
            )  # fmt: skip
        self.loops += 1
        if not self.loops % 256:
            self._look_at_the_clock(line)

    def loop(self, line: int, items: Any) -> Any:
        """Called once for each for loop, with what it runs over."""
        thread = self.current
        thread.for_turns += len(items) if items.__class__ is range else 1
        if thread.for_turns > MAX_FOR_TURNS:
            raise self._error(
                EndlessLoopError, line,
                f"the for loops of one thread, the last of them in line {line}, make {thread.for_turns} turns; "
                "divide the work among the threads, and look at the bounds of range()", thread,
            )  # fmt: skip
        self.loops += 1
        if not self.loops % 256:
            self._look_at_the_clock(line)
        return items

    def _look_at_the_clock(self, line: int) -> None:
        if self.deadline is not None and time.process_time() > self.deadline:
            raise self._error(
                EndlessLoopError, line, "the launch takes longer than it may; look for a loop that never ends",
                self.current,
            )  # fmt: skip

    def shared_array(self, shape: tuple[int, ...], dtype: np.dtype[Any], place: int) -> Array:
        """The block's shared array of a place in the source; all threads of a block get the same one."""
        dynamic = shape == (0,)
        if dynamic:
            if self.dynamic is not None and self.dynamic.dtype == dtype:
                return self.dynamic
            if self.dynamic is not None:
                raise self.refused(
                    f"{SITES.declared[place].name} would begin where {self.dynamic.name} does: all dynamic shared "
                    "memory is one; make one array of shape 0 and name parts of it, a = s[:n] and b = s[n:]"
                )
            shape = (self.dynamic_bytes // dtype.itemsize,)
        else:
            self.shared_bytes += math.prod(shape) * dtype.itemsize
        total = self.shared_bytes + self.dynamic_bytes
        self.report.shared_bytes = total
        declared = SITES.declared[place]
        if total > MAX_SHARED_BYTES:
            raise self._error(
                LaunchError, declared.line,
                f"with {declared.name} the block uses {total} B of shared memory; the limit is {MAX_SHARED_BYTES} B "
                "(48 KiB). Take a smaller tile", self.current,
            )  # fmt: skip
        name = declared.name
        if any(array.name == name for array in self.shared.values()):  # a kernel and its device function may agree
            name = f"{name}_{declared.line}"
        array = self._new_array(name, SHARED, shape, dtype, [None] * math.prod(shape))
        self.shared[place] = array
        if dynamic:
            self.dynamic = array
        return array

    def local_array(self, shape: tuple[int, ...], dtype: np.dtype[Any], place: int) -> Array:
        """A private array of the running thread."""
        size = math.prod(shape)
        declared = SITES.declared[place]
        if size * dtype.itemsize > MAX_LOCAL_BYTES:
            raise self._error(
                LaunchError, declared.line,
                f"{declared.name} takes {size * dtype.itemsize} B in every thread; the limit of local memory is "
                f"{MAX_LOCAL_BYTES} B (512 KiB). Keep few elements, as fit into registers", self.current,
            )  # fmt: skip
        return self._new_array(declared.name, LOCAL, shape, dtype, [None] * size)

    def log_atomic(self, array: Array, site: int, offset: int) -> None:
        """Note an atomic access."""
        if array.space is not LOCAL:
            self.log.append(offset * STEP + array.base + site)

    def _error(
        self, kind: type[SimtError], line: int, text: str, thread: "SimThread | Dim3", block: Dim3 | None = None
    ) -> SimtError:
        index = thread.index if isinstance(thread, SimThread) else thread
        where = block or self.block_index
        place = f"Line {line}, thread {self._thread(index)}, block {_shown(where, self.grid_axes)}."
        error = kind(f"{text}. {place}", line, index.triple, where.triple)
        error.barriers = self.phase_blocks.count(self.block_number)
        return error


def _shown(index: Dim3, axes: int) -> str:
    """An index with as many coordinates as the launch gave sizes."""
    return f"({', '.join(map(str, index.triple[:axes]))})"


def _way(frame: FrameType | None) -> tuple[int, ...]:
    """The places of the calls that led to a frame, which tell two calls of one device function apart."""
    places = []
    while frame is not None:
        places.append(frame.f_lasti)
        frame = frame.f_back
    return tuple(places)


def _explained(error: Exception) -> str:
    """What Python says, or what it means where an element is asked of something that is no array."""
    if isinstance(error, AttributeError) and error.name in ("ld", "ld1", "ld2", "st", "st1", "st2", "part"):
        return f"a {type(error.obj).__name__} is indexed here; only an array has elements"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _innermost_line(error: BaseException) -> int | None:
    """Line of the kernel's own code where an exception was raised."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if MARK in trace.tb_frame.f_globals:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def as_dim3(value: Any, what: str, limits: tuple[int, int, int]) -> Dim3:
    """Grid or block dimensions from a number or a tuple of up to three."""
    sizes = (value,) if isinstance(value, int | np.integer) else tuple(value) if isinstance(value, tuple | list) else ()
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in sizes)
    if not 1 <= len(sizes) <= 3 or not whole:
        raise LaunchError(f"the {what} is {value!r}; give a whole number or a tuple of up to three")
    dims = Dim3(*(int(n) for n in sizes))
    for axis, n, limit in zip("xyz", dims.triple, limits, strict=True):
        if n < 1:
            raise LaunchError(f"the {what} has {n} along {axis}; a launch needs at least 1")
        if n > limit:
            raise LaunchError(f"the {what} has {n} along {axis}; the limit is {limit}")
    return dims


#: The launch that is running; kernels have no other way to reach it than this list.
RUNNING: list[Machine] = []


def running() -> Machine:
    """The launch that is running."""
    if not RUNNING:
        raise LaunchError(
            "this name of cuda means something inside a running kernel only; launch it with [grid, block]"
        )
    return RUNNING[-1]


def no_such_name(text: str) -> Exception:
    """The error for a name that means nothing in a kernel; outside of one it is Python's own."""
    return RUNNING[-1].refused(text) if RUNNING else AttributeError(text)


def _axes(value: Any) -> int:
    """How many sizes of a grid or a block were given."""
    return len(value) if isinstance(value, tuple | list) else 1


def check_block(block: Dim3) -> None:
    """Raise LaunchError for more threads than a block may have."""
    if block.size > MAX_THREADS:
        raise LaunchError(
            f"{block.size} threads in a block ({block.x} × {block.y} × {block.z}); the limit is {MAX_THREADS}"
        )


__all__ = ["Dim3", "Machine", "Phase", "Report", "Step", "UnsupportedError"]

"""Finds data races and counts memory traffic in the log of a launch, many phases at a time.

A phase is what one block runs between two barriers. Within it, two accesses to the same
element by different threads are a race if one of them writes, unless both are atomic or a warp
barrier lies between. The result depends on what the threads accessed, never on the order in
which the simulator ran them.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np

from labsupport.cuda.simt.memory import ARRAY_BITS, GLOBAL, SHARED, SITE_BITS, Array
from labsupport.cuda.simt.transform import ATOMIC, LOAD, SITES, STORE

WARP, SECTOR_BYTES, BANKS, BANK_BYTES = 32, 32, 32, 4
#: Entries of a table over elements and phases; beyond it the keys are numbered anew.
MAX_TABLE = 1 << 22

Numbers = np.ndarray


@dataclass
class Segments:
    """Which thread wrote which part of the log.

    Four numbers for each time a thread was resumed, one after the other: where its part starts, its number,
    how many warp operations it had passed in this phase, and the number of the phase.
    """

    rows: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Accesses:
    """A part of the log, taken apart: one row an access, in the order of execution."""

    address: Numbers  # offset · 2**ARRAY_BITS + array
    site: Numbers
    thread: Numbers
    warp_phase: Numbers  # how many warp operations the thread had passed in this phase
    phase: Numbers  # number of the phase, counted over the launch

    @classmethod
    def of(cls, log: list[int], segments: "Segments") -> "Accesses":
        """From the raw log and its segments: entries from a row's start on belong to its thread."""
        entries = np.array(log, np.int64)
        starts, threads, warp_phases, phases = np.array(segments.rows, np.int64).reshape(-1, 4).T
        lengths: Numbers = np.diff(np.append(starts, len(log)))
        return cls(
            entries >> SITE_BITS,
            entries & ((1 << SITE_BITS) - 1),
            np.repeat(threads, lengths),
            np.repeat(warp_phases, lengths),
            np.repeat(phases, lengths),
        )

    @property
    def array(self) -> Numbers:
        """Number of the array of each access."""
        return self.address & ((1 << ARRAY_BITS) - 1)

    @property
    def offset(self) -> Numbers:
        """Element offset of each access."""
        return self.address >> ARRAY_BITS

    @property
    def kind(self) -> Numbers:
        """LOAD, STORE or ATOMIC of each access."""
        return SITES.kinds[self.site]

    def where(self, chosen: Numbers | slice) -> "Accesses":
        """The accesses that a mask, an index array or a slice picks."""
        columns = (self.address, self.site, self.thread, self.warp_phase, self.phase)
        return Accesses(*(column[chosen] for column in columns))


@dataclass(frozen=True)
class Access:
    """One side of a race."""

    thread: int
    site: int
    block: int = 0


def race_in_phase(accesses: Accesses, arrays: list[Array]) -> tuple[int, int, Access, Access] | None:
    """The first race as (phase, address, writer, other), or None."""
    kinds = accesses.kind
    writes = kinds != LOAD
    if not writes.any():
        return None
    key, size = _elements_of_phases(accesses, arrays)
    contended = _several(key, size, accesses.thread // WARP)
    steps = int(accesses.warp_phase.max()) + 1
    contended |= _several(*_numbered(key * steps + accesses.warp_phase, size * steps), accesses.thread)
    if not contended.any():
        return None
    suspect = np.zeros(size, bool)
    suspect[key[contended]] = True
    suspect &= _marked(key[writes], size) & _marked(key[kinds != ATOMIC], size)
    candidates = np.flatnonzero(suspect[key])
    if not candidates.size:
        return None
    key = _pack(accesses.phase[candidates], accesses.address[candidates])
    order = np.lexsort((accesses.thread[candidates], key))
    a, key = accesses.where(candidates[order]), key[order]
    starts = np.flatnonzero(_new(key))
    for start, end in itertools.pairwise([*starts, key.size]):
        pair = _conflict(a.where(slice(start, end)))
        if pair:
            return int(a.phase[start]), int(a.address[start]), *pair
    return None


def _elements_of_phases(accesses: Accesses, arrays: list[Array]) -> tuple[Numbers, int]:
    """A small number for each access, the same where phase and element are the same, and how many there may be."""
    sizes = np.array([array.size for array in arrays])
    element = (np.cumsum(sizes) - sizes)[accesses.array] + accesses.offset
    first = int(accesses.phase[0])
    total = int(sizes.sum())
    return _numbered((accesses.phase - first) * total + element, (int(accesses.phase[-1]) - first + 1) * total)


def _numbered(key: Numbers, size: int) -> tuple[Numbers, int]:
    """The same keys, or others in their place where a table with an entry for each would be too long."""
    if size <= MAX_TABLE:
        return key, size
    values, key = np.unique(key, return_inverse=True)
    return key, values.size


def _several(key: Numbers, size: int, user: Numbers) -> Numbers:
    """True at accesses, at least one for each key that several users have."""
    last = np.zeros(size, user.dtype)
    last[key] = user
    return last[key] != user


def _marked(key: Numbers, size: int) -> Numbers:
    marks = np.zeros(size, bool)
    marks[key] = True
    return marks


def _new(ordered: Numbers) -> Numbers:
    """True where a row of a sorted column differs from the one before it."""
    return np.r_[True, ordered[1:] != ordered[:-1]]


def _conflict(group: Accesses) -> tuple[Access, Access] | None:
    """A pair of accesses to one element that nothing orders, the first of them a write."""
    kinds, warps = group.kind, group.thread // WARP
    for i in np.flatnonzero(kinds != LOAD):
        unordered = (warps != warps[i]) | (group.warp_phase == group.warp_phase[i])
        both_atomic = (kinds == ATOMIC) & (kinds[i] == ATOMIC)
        others = np.flatnonzero((group.thread != group.thread[i]) & unordered & ~both_atomic)
        if others.size:
            j = others[0]
            return Access(int(group.thread[i]), int(group.site[i])), Access(int(group.thread[j]), int(group.site[j]))
    return None


class BlockOrder:
    """Remembers which block touched each element of global memory: blocks run in no order at all."""

    def __init__(self) -> None:
        self.readers: list[Numbers] = []
        self.writers: list[Numbers] = []
        self.atomics: list[Numbers] = []

    def race(self, block: int, accesses: Accesses, arrays: list[Array]) -> tuple[int, Access, Access] | None:
        """A conflict of this block's accesses with an earlier block, as (address, earlier, this block's)."""
        sizes = np.array([array.size if array.space is GLOBAL else 0 for array in arrays])
        own = accesses.where((sizes > 0)[accesses.array])
        element = (np.cumsum(sizes) - sizes)[own.array] + own.offset
        tables = [self._table(table, int(sizes.sum())) for table in (self.readers, self.writers, self.atomics)]
        readers, writers, atomics = tables
        chosen = {kind: np.flatnonzero(own.kind == kind) for kind in (LOAD, STORE, ATOMIC)}
        for kind, rivals in ((LOAD, (writers, atomics)), (ATOMIC, (writers, readers)), (STORE, tables)):
            mine = chosen[kind]
            for table in rivals if mine.size else ():
                rows = table[element[mine]]
                clash = np.flatnonzero((rows[:, 0] >= 0) & (rows[:, 0] != block))
                if clash.size:
                    i = clash[np.argmin(element[mine[clash]])]
                    earlier, k = Access(int(rows[i, 1]), int(rows[i, 2]), int(rows[i, 0])), mine[i]
                    return int(own.address[k]), earlier, Access(int(own.thread[k]), int(own.site[k]), block)
        for kind, table in ((LOAD, readers), (STORE, writers), (ATOMIC, atomics)):
            mine = chosen[kind]
            if mine.size:
                columns = (np.full(mine.size, block), own.thread[mine], own.site[mine])
                table[element[mine]] = np.stack(columns, axis=1)
        return None

    @staticmethod
    def _table(made: list[Numbers], size: int) -> Numbers:
        """Per element of the global arrays: block, thread and site of the last access, or −1."""
        if not made:
            made.append(np.full((size, 3), -1, np.int64))
        return made[0]


@dataclass
class Count:
    """Traffic of one place in the source.

    Attributes:
        accesses: single elements, over all threads.
        requests: warp-wide requests (one for each time a warp executes the place).
        sectors: 32-byte sectors of global memory touched, summed over the requests.
        wavefronts: passes through shared memory; one a request where no two lanes need different
            words of the same bank.
    """

    accesses: int = 0
    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0


def count_traffic(accesses: Accesses, arrays: list[Array], counts: dict[tuple[int, int], Count]) -> None:
    """Add the traffic of whole phases to ``counts``, whose keys are (site, array number).

    The n-th execution of a place by the lanes of a warp within a phase is one request.
    """
    if not accesses.address.size:
        return
    number, itemsize = accesses.array, np.array([array.itemsize for array in arrays])
    shared = np.array([array.space is SHARED for array in arrays])[number]
    byte = accesses.offset * itemsize[number]
    turn = _occurrence(_pack(accesses.phase, accesses.site, accesses.thread))
    request = _pack(accesses.site, number, accesses.phase, accesses.thread // WARP, turn)
    word = byte // BANK_BYTES
    words = int(word.max()) + 1
    # 32 lanes need several passes even without a conflict where their elements are wider than a bank.
    half = accesses.thread % WARP * np.maximum(itemsize, BANK_BYTES)[number] // (WARP * BANK_BYTES)
    unit = np.where(shared, (half * BANKS + word % BANKS) * words + word, byte // SECTOR_BYTES)
    order = np.argsort(_pack(request, unit))
    request, unit, shared = request[order], unit[order], shared[order]
    new_request = _new(request)
    new_unit = new_request | _new(unit)
    place = _pack(accesses.site[order], number[order])
    place = np.cumsum(_new(place)) - 1
    first = np.flatnonzero(_new(place))
    # In shared memory: different words of each bank, of these the most in a pass, and the sum of the passes.
    at = np.flatnonzero(new_unit & shared)
    bank = unit[at] // words
    banks = np.flatnonzero(new_request[at] | _new(bank)) if at.size else at
    in_bank = np.diff(np.r_[banks, at.size])
    passes = np.flatnonzero(new_request[at[banks]] | _new(bank[banks] // BANKS)) if at.size else at
    most = np.maximum.reduceat(in_bank, passes) if at.size else at
    totals = {
        "accesses": np.bincount(place),
        "requests": np.bincount(place[new_request], minlength=first.size),
        "sectors": np.bincount(place[new_unit & ~shared], minlength=first.size),
        "wavefronts": np.bincount(place[at[banks[passes]]], most, minlength=first.size),
    }
    for k, row in enumerate(order[first]):
        count = counts.setdefault((int(accesses.site[row]), int(number[row])), Count())
        for name, amounts in totals.items():
            setattr(count, name, getattr(count, name) + int(amounts[k]))


def _occurrence(key: Numbers) -> Numbers:
    """How many earlier rows have the same key, for each row."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, ordered.size])
    turn = np.empty_like(order)
    turn[order] = np.arange(ordered.size) - np.repeat(starts, lengths)
    return turn


def _pack(*columns: Numbers) -> Numbers:
    """One number for each row, equal where all columns are equal, ordered by the first column first."""
    key, largest = np.zeros(columns[0].size, np.int64), 0
    for column in columns:
        width = int(column.max(initial=0)) + 1
        if (largest + 1) * width >= 1 << 62:
            key = np.unique(key, return_inverse=True)[1]
            largest = int(key.max(initial=0))
        if (largest + 1) * width >= 1 << 62:
            column = np.unique(column, return_inverse=True)[1]
            width = int(column.max(initial=0)) + 1
        key = key * width + column
        largest = largest * width + width - 1
    return key

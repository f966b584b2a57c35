"""Finds data races and counts memory traffic in the log of a launch, many phases at a time.

A phase is what one block runs between two barriers. Within it, two accesses to the same
element by different threads are a race if one of them writes, unless both are atomic or a warp
barrier lies between. The result depends on what the threads accessed, never on the order in
which the simulator ran them.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labsupport.cuda.simt.memory import ARRAY_BITS, GLOBAL, SHARED, SITE_BITS, Array
from labsupport.cuda.simt.transform import ATOMIC, LOAD, SITES

WARP, SECTOR_BYTES, BANKS, BANK_BYTES = 32, 32, 32, 4

Numbers = np.ndarray


@dataclass
class Segments:
    """Which thread wrote which part of the log.

    One row for each time a thread was resumed: where its part starts, its number, how many warp
    operations it had passed in this phase, and the number of the phase.
    """

    rows: list[tuple[int, int, int, int]] = field(default_factory=list)


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

    def where(self, chosen: Numbers) -> "Accesses":
        """The accesses that a mask or an index array picks."""
        columns = (self.address, self.site, self.thread, self.warp_phase, self.phase)
        return Accesses(*(column[chosen] for column in columns))


@dataclass(frozen=True)
class Access:
    """One side of a race."""

    thread: int
    site: int
    block: int = 0


def race_in_phase(accesses: Accesses) -> tuple[int, int, Access, Access] | None:
    """The first race as (phase, address, writer, other), or None."""
    writes = accesses.kind != LOAD
    if not writes.any():
        return None
    key = _pack(accesses.phase, accesses.address)
    candidates = np.flatnonzero(np.isin(key, np.unique(key[writes])))
    order = candidates[np.lexsort((accesses.thread[candidates], key[candidates]))]
    a, key = accesses.where(order), key[order]
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    several = np.minimum.reduceat(a.thread, starts) != np.maximum.reduceat(a.thread, starts)
    plain = np.maximum.reduceat((a.kind != ATOMIC).astype(np.int8), starts).astype(bool)
    ends = np.r_[starts[1:], key.size]
    for k in np.flatnonzero(several & plain):
        pair = _conflict(a.where(np.arange(starts[k], ends[k])))
        if pair:
            return int(a.phase[starts[k]]), int(a.address[starts[k]]), *pair
    return None


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
        self.readers: dict[int, Numbers] = {}
        self.writers: dict[int, Numbers] = {}
        self.atomics: dict[int, Numbers] = {}

    def race(self, block: int, accesses: Accesses, arrays: list[Array]) -> tuple[int, Access, Access] | None:
        """A conflict of this block's phase with an earlier block, as (address, earlier, this block's)."""
        for number in np.unique(accesses.array):
            array = arrays[number]
            if array.space is not GLOBAL:
                continue
            own = accesses.where(accesses.array == number)
            found = self._race_on(block, int(number), array.size, own)
            if found:
                return found
        return None

    def _race_on(self, block: int, number: int, size: int, own: Accesses) -> tuple[int, Access, Access] | None:
        tables = [self._table(table, number, size) for table in (self.readers, self.writers, self.atomics)]
        readers, writers, atomics = tables
        for kind, rivals in ((LOAD, (writers, atomics)), (ATOMIC, (writers, readers)), (1, tables)):
            mine = own.where(own.kind == kind)
            for table in rivals:
                rows = table[mine.offset]
                clash = np.flatnonzero((rows[:, 0] >= 0) & (rows[:, 0] != block))
                if clash.size:
                    i = clash[np.argmin(mine.offset[clash])]
                    earlier = Access(int(rows[i, 1]), int(rows[i, 2]), int(rows[i, 0]))
                    return int(mine.address[i]), earlier, Access(int(mine.thread[i]), int(mine.site[i]), block)
        for kind, table in ((LOAD, readers), (1, writers), (ATOMIC, atomics)):
            mine = own.where(own.kind == kind)
            table[mine.offset] = np.stack([np.full(mine.offset.size, block), mine.thread, mine.site], axis=1)
        return None

    @staticmethod
    def _table(tables: dict[int, Numbers], number: int, size: int) -> Numbers:
        """Per element: block, thread and site of the last access, or −1."""
        if number not in tables:
            tables[number] = np.full((size, 3), -1, np.int64)
        return tables[number]


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
    turn = _occurrence(_pack(accesses.phase, accesses.site, accesses.thread))
    request_of = _pack(accesses.phase, accesses.site, accesses.thread // WARP, turn)
    for number in np.unique(accesses.array):
        array, chosen = arrays[number], accesses.array == number
        half = accesses.thread[chosen] % WARP * max(array.itemsize, BANK_BYTES) // (WARP * BANK_BYTES)
        request = np.unique(request_of[chosen], return_inverse=True)[1]
        byte = accesses.offset[chosen] * array.itemsize
        site = accesses.site[chosen]
        first = np.unique(request, return_index=True)[1]
        _tally(counts, site, number, "accesses", np.ones_like(site))
        _tally(counts, site[first], number, "requests", np.ones_like(first))
        if array.space is GLOBAL:
            _, at = np.unique(_pack(request, byte // SECTOR_BYTES), return_index=True)
            _tally(counts, site[at], number, "sectors", np.ones_like(at))
        elif array.space is SHARED:
            passes, at = _passes(_pack(request, half), byte // BANK_BYTES)
            _tally(counts, site[at], number, "wavefronts", passes)


def _passes(request: Numbers, word: Numbers) -> tuple[Numbers, Numbers]:
    """For each request the largest number of different words in one bank, and one row of the request."""
    _, at = np.unique(_pack(request, word), return_index=True)
    bank = _pack(request[at], word[at] % BANKS)
    _, first, per_bank = np.unique(bank, return_index=True, return_counts=True)
    owner = request[at][first]
    order = np.lexsort((-per_bank, owner))
    lead = np.flatnonzero(np.r_[True, owner[order][1:] != owner[order][:-1]])
    return per_bank[order][lead], at[first][order][lead]


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


def _tally(counts: dict[tuple[int, int], Count], site: Numbers, number: Any, name: str, amount: Numbers) -> None:
    totals: dict[int, int] = defaultdict(int)
    values, inverse = np.unique(site, return_inverse=True)
    for value, total in zip(values, np.bincount(inverse, weights=amount), strict=True):
        totals[int(value)] += int(total)
    for value, total in totals.items():
        count = counts.setdefault((value, int(number)), Count())
        setattr(count, name, getattr(count, name) + total)

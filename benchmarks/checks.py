"""How long a check takes: the median over the book's NumPy exercises, which is to stay within 50 ms.

Each right answer is judged several times after a first run, which computes the truth of the cases and is
shown apart. It never touches a reader's progress.
"""

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial

from labsupport.exercises import all_exercises
from labsupport.grading.judge import judge

LIMIT_MS = 50.0
REPEATS = 5


def milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - start)


def main() -> int:
    """Print the medians by kind and the slowest checks; return 1 where running code takes more than the limit."""
    first: dict[str, list[float]] = defaultdict(list)
    later: dict[str, dict[str, float]] = defaultdict(dict)
    for record in all_exercises():
        check = partial(judge, record, record.right_answer())
        first[record.kind].append(milliseconds(check))
        later[record.kind][record.id] = statistics.median(milliseconds(check) for _ in range(REPEATS))
    for kind, costs in sorted(later.items()):
        again, once = statistics.median(costs.values()), statistics.median(first[kind])
        print(f"{kind:10s} {len(costs):4d} exercises: median check {again:6.2f} ms, first check {once:6.2f} ms")
    running = later["function"] | later["formula"]
    print("The slowest:")
    for name, cost in sorted(running.items(), key=lambda item: -item[1])[:8]:
        print(f"  {name:36s} {cost:7.2f} ms")
    median = statistics.median(running.values())
    print(f"Functions and formulas: median {median:.2f} ms, limit {LIMIT_MS:g} ms")
    return int(median > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())

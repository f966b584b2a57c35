"""How long a check takes: the median over the book's NumPy exercises, which is to stay within 50 ms.

Each right answer is judged several times after a first run, which computes the truth of the cases and is
shown apart. It never touches a reader's progress.
"""

import statistics
import sys
import time

from labsupport.exercises import all_exercises
from labsupport.grading.judge import judge

LIMIT_MS = 50.0
REPEATS = 5


def milliseconds(run) -> float:
    start = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - start)


def main() -> int:
    """Print the table of the slowest checks; return 1 where the median is above the limit."""
    first, later = [], {}
    for record in all_exercises():
        answer = record.right_answer()
        first.append(milliseconds(lambda: judge(record, answer)))  # noqa: B023
        later[record.id] = statistics.median(milliseconds(lambda: judge(record, answer)) for _ in range(REPEATS))  # noqa: B023
    median = statistics.median(later.values())
    print(f"{len(later)} exercises: median check {median:.2f} ms (limit {LIMIT_MS:g} ms),")
    print(f"median first check {statistics.median(first):.2f} ms. The slowest:")
    for name, cost in sorted(later.items(), key=lambda item: -item[1])[:10]:
        print(f"  {name:40s} {cost:8.2f} ms")
    return int(median > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())

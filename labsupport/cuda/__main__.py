"""``python -m labsupport.cuda``: ``record`` measures and stores every run, ``page`` writes the tables of the book.

``record`` ends with a code other than 0 where no GPU is usable or a run failed; what was measured until
then is kept.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from labsupport.cuda.catalogue import RUNS, find
from labsupport.cuda.device import NoGPUError, require_gpu
from labsupport.cuda.showing import record_table, target_table

PAGE = Path(__file__).parents[2] / "book" / "measured-runs.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m labsupport.cuda", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="measure on this machine's GPU and store the runs")
    record.add_argument("kernel", nargs="*", help="names of kernels; default: all")
    commands.add_parser("page", help="write the tables of the page Measured runs from the stored runs")
    chosen = parser.parse_args(arguments)
    return _page() if chosen.command == "page" else _record(chosen.kernel)


def _record(names: Sequence[str]) -> int:
    from tqdm import tqdm

    from labsupport.cuda.measuring import record_all

    try:
        runs = [find(name) for name in names] or list(RUNS)
        instead = 'recorded("…") shows what is stored, and check("…") judges a kernel on this CPU.'
        require_gpu("make record", instead, "triton")
    except (NoGPUError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    with tqdm(total=len(runs), unit="run") as bar:

        def progress(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        stored, failed = record_all(runs, progress=progress)
    print(f"stored {len(stored)} of {len(runs)} runs")
    for name, reason in failed.items():
        print(f"{name}: {reason}", file=sys.stderr)
    _page()
    return 1 if failed else 0


def filled(text: str) -> str:
    """Return the page's text with the tables between its marks made anew."""
    for name, table in (("targets", target_table), ("records", record_table)):
        pattern = re.compile(rf"(<!-- {name} begin -->\n).*?(<!-- {name} end -->)", re.DOTALL)
        text, count = pattern.subn(lambda found, t=table: f"{found[1]}{t()}\n{found[2]}", text)  # type: ignore[misc]
        if count != 1:
            raise ValueError(
                f"{PAGE.name} must hold the marks of the table {name!r} once, and holds them {count} times"
            )
    return text


def _page() -> int:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m labsupport.cuda``: ``record`` measures and stores runs, ``adopt`` brings in what another machine stored.

``page`` writes the tables of the book. ``record`` ends with a code other than 0 where no GPU is usable or
a run failed; what was measured until then is kept, also when it is interrupted.
"""

import argparse
import json
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from labsupport.cuda import recording
from labsupport.cuda.catalogue import RUNS, find
from labsupport.cuda.device import NoGPUError, driver_missing, refuse, require_gpu
from labsupport.cuda.records import FOLDER, RecordError, load, save, validate
from labsupport.cuda.showing import record_table, target_table

PAGE = Path(__file__).parents[2] / "book" / "measured-runs.md"
INSTEAD = 'recorded("…") shows what is stored, and check("…") judges a kernel on this CPU.'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m labsupport.cuda", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="measure on this machine's GPU and store the runs")
    record.add_argument("kernel", nargs="*", help="names of kernels; default: all")
    record.add_argument("--missing", action="store_true", help="only those without a record of the kernel as it is")
    record.add_argument("--seconds", type=float, default=recording.SECONDS, help="time for everything (%(default)s)")
    record.add_argument("--each", type=float, default=recording.EACH, help="time for one run (%(default)s)")
    record.add_argument("--also", type=Path, metavar="FILE", help="keep what this command stores in one file, too")
    adopt = commands.add_parser("adopt", help="store the runs that record kept in a file on another machine")
    adopt.add_argument("file", type=Path)
    commands.add_parser("page", help="write the tables of the page Measured runs from the stored runs")
    chosen = parser.parse_args(arguments)
    if chosen.command == "page":
        return _page()
    return _adopt(chosen.file) if chosen.command == "adopt" else _record(chosen)


def _record(chosen: argparse.Namespace) -> int:
    try:
        runs = recording.by_need([find(name) for name in dict.fromkeys(chosen.kernel)] or RUNS)
        if driver_missing():
            require_gpu("make record", INSTEAD, runs[0].family)
    except (NoGPUError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if chosen.missing:
        runs = recording.still_to_do(runs)
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {text}", flush=True)

    def keep(name: str) -> None:
        if chosen.also is not None:
            kept.append(name)
            records = [record.data for record in map(load, kept) if record is not None]
            chosen.also.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    kept: list[str] = []
    tell(f"{len(runs)} runs, at most {chosen.seconds:.0f} s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcome = recording.record_all(runs, tell=tell, seconds=chosen.seconds, each=chosen.each, stored=keep)
    if outcome.lacking and not outcome.stored and all(run.family in outcome.lacking for run in runs):
        missing = dict.fromkeys(clause for clauses in outcome.lacking.values() for clause in clauses)
        print(refuse("make record", INSTEAD, list(missing)), file=sys.stderr)
        return 2
    for name, reason in outcome.failed.items():
        print(f"{name}: {reason}", file=sys.stderr)
    tell(f"stored {len(outcome.stored)} of {len(runs)} runs in {FOLDER}")
    _page()
    return 1 if outcome.failed else 0


def _adopt(file: Path) -> int:
    """Store every record of a file; nothing is stored where one of them is malformed."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, list):
            raise RecordError(f"{file.name} holds no list of records")
        records = [validate(record, f"{file.name}, record {number}") for number, record in enumerate(data, 1)]
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for record in records:
        save(record)
        print(f"{record.run.name}: {record.badge}")
    return _page()


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

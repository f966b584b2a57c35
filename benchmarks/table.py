"""One way to print a figure beside its target, the same in every benchmark."""

from collections.abc import Iterable

Row = tuple[str, float, float | None]


def show(rows: Iterable[Row]) -> int:
    """Print each (what, value, most it may be or None); returns 1 where a value is above its target."""
    missed = 0
    for what, value, target in rows:
        verdict = ""
        if target is not None:
            late = value > target
            missed |= late
            verdict = f"  (at most {target:g}){'  MISSED' if late else ''}"
        print(f"{what:<62} {value:7.2f}{verdict}", flush=True)
    return int(missed)

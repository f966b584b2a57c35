"""Show what was measured: one stored run with its badge, or all of them as the tables of the page.

A kernel without a record is shown as not yet measured. Nothing here may fill a gap with an estimate.
"""

from dataclasses import dataclass
from html import escape

from labsupport.cuda.catalogue import RUNS, Run, Target, find
from labsupport.cuda.records import Record, load, load_all

__all__ = ["NOT_YET", "Recorded", "in_short", "record_table", "recorded", "target_table"]

NOT_YET = "not yet measured"
H200 = "NVIDIA H200"


@dataclass(frozen=True)
class Recorded:
    """What is known of one kernel; prints as text, and in a notebook as a table."""

    run: Run
    record: Record | None

    @property
    def badge(self) -> str:
        """Device and date of the run, or that there is none."""
        return self.record.badge if self.record else NOT_YET

    def rows(self) -> list[tuple[str, str]]:
        """Return what is shown, name by name; all but the times and the error is computed now."""
        shape = ", ".join(f"{name} {size}" for name, size in self.run.shape.items())
        rows = [("kernel", self.run.title), ("shape", shape), ("dtype", spell_dtype(self.run)), ("run", self.badge)]
        if self.record is None:
            return rows
        for name, times in self.record.data["times_ms"].items():
            rows.append(
                (f"{name}, p50 (p5 to p95)", f"{times['p50']:.3f} ms ({times['p5']:.3f} to {times['p95']:.3f})")
            )
        rows.append(("speed", speed(self.record)))
        rows += [(f"share of {name}", spell_share(self.record, name)) for name in self.run.baselines]
        if not self.run.flop:
            rows.append(("share of a copy's bandwidth", f"{self.record.share('copy'):.0%}"))
        error = self.record.data["error"]
        rows.append(("error against float64", f"{error['largest']:.2g}, {error['share_of_bound']:.0%} of the bound"))
        return rows

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join([self.run.name, *(f"  {name:<{width}}  {value}" for name, value in self.rows())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = "".join(f"<tr><th>{escape(n)}</th><td>{escape(v)}</td></tr>" for n, v in self.rows())
        return f"<table><caption>{escape(self.run.name)}: {escape(self.badge)}</caption>{cells}</table>"


def recorded(kernel: str) -> Recorded:
    """Return the stored run of a kernel, to be printed or shown; it says so where none was measured yet.

    Raises:
        ValueError: no kernel has that name; ``RecordError`` where its file is malformed.
    """
    return Recorded(find(kernel), load(kernel))


def spell_dtype(run: Run) -> str:
    """Return the dtype with the precision of the products where there is a choice."""
    if run.dtype == "float32" and run.precision:
        return "float32 (TF32 products)" if run.precision == "tf32" else "float32 (IEEE products)"
    return run.dtype


def spell_shape(run: Run) -> str:
    """Return the sizes in short: 8192³, 131072 × 4096."""
    sizes = [size for name, size in run.shape.items() if name != "causal"]
    if len(sizes) == 3 and len(set(sizes)) == 1:
        return f"{sizes[0]}³"
    return " × ".join(map(str, sizes))


def speed(record: Record) -> str:
    """Return operations per second of what computes, bytes per second of what copies."""
    if record.run.flop:
        return f"{record.flop_per_s / 1e12:.1f} TFLOP/s"
    return f"{record.bytes_per_s / 1e9:.0f} GB/s"


def spell_share(record: Record, name: str) -> str:
    """Return the share of a baseline's speed, or why there is none."""
    reason = record.left_out.get(name)
    return f"{record.share(name):.0%}" if reason is None else f"not known, it did not run ({reason.partition(':')[0]})"


def in_short(record: Record) -> str:
    """Return the speed and the shares of a run in one line."""
    against = [f"{spell_share(record, name)} of {name}" for name in record.run.baselines]
    against += [] if record.run.flop else [f"{record.share('copy'):.0%} of a copy"]
    tile = ", ".join(f"{name} {size}" for name, size in (record.data["tile"] or {}).items())
    return f"{record.seconds * 1e3:.3f} ms, {speed(record)}, {', '.join(against)} ({tile})"


def spell_target(target: Target) -> str:
    """Return a target as words."""
    if target.against == "copy":
        return f"≥ {target.share:.0%} of a copy's bandwidth"
    return f"≥ {target.share:g} × {target.against}" if target.share > 1 else f"≥ {target.share:.0%} of {target.against}"


def target_table(records: dict[str, Record] | None = None) -> str:
    """Return the targets on an H200, each with what was measured there, as a Markdown table."""
    records = load_all() if records is None else records
    lines = ["| Kernel | dtype | Target on an H200 | Measured |", "|---|---|---|---|"]
    for run in RUNS:
        record = records.get(run.name)
        on_it = record if record is not None and H200 in record.data["device"]["name"] else None
        for target in run.targets:
            told = NOT_YET
            if on_it is not None and target.against in on_it.left_out:
                told = f"{target.against} did not run ({on_it.badge})"
            elif on_it is not None:
                told = f"{on_it.share(target.against):.2f}, {'met' if on_it.meets(target) else 'missed'}"
                told += f" ({on_it.badge})"
            lines.append(f"| {run.title} | {spell_dtype(run)} | {spell_target(target)} | {told} |")
    return "\n".join(lines)


def record_table(records: dict[str, Record] | None = None) -> str:
    """Return every kernel of the catalogue with its stored run as a Markdown table."""
    records = load_all() if records is None else records
    lines = ["| Kernel | Shape | Run | Median | Speed | Against |", "|---|---|---|---|---|---|"]
    for run in RUNS:
        shape = spell_shape(run)
        record = records.get(run.name)
        if record is None:
            lines.append(f"| {run.name} | {shape} | {NOT_YET} | – | – | – |")
            continue
        measured = [name for name in run.baselines if name not in record.left_out]
        against = ", ".join(f"{record.share(name):.0%} of {name}" for name in measured) or "–"
        median = f"{record.seconds * 1e3:.3f} ms"
        lines.append(f"| {run.name} | {shape} | {record.badge} | {median} | {speed(record)} | {against} |")
    return "\n".join(lines)

"""Runs that were measured: one JSON file each, validated, flagged when stale, derived figures computed anew.

What can be computed from the stored times and the shape is never stored. A malformed file is an
error with its name and the place in it; nothing here may show a figure that was not measured.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labsupport.cuda.catalogue import RUNS, Run, Target, find, source_hash

__all__ = ["FOLDER", "Record", "RecordError", "load", "load_all", "save", "validate"]

FOLDER = Path(__file__).with_name("records")
VERSION = 1


class RecordError(ValueError):
    """A stored run that cannot be read as one: which file, where in it, and why."""


def _object(properties: Mapping[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


_TEXT = {"type": "string", "minLength": 1}
_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
_COUNT = {"type": "integer", "minimum": 1}
_PERHAPS = {"type": ["number", "null"]}
_TIMES = _object({"p5": _POSITIVE, "p50": _POSITIVE, "p95": _POSITIVE, "runs": _COUNT})

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A run of one kernel on one GPU, with its baselines interleaved",
    **_object(
        {
            "version": {"const": VERSION},
            "kernel": _TEXT,
            "date": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"},
            "source_hash": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
            "device": _object(
                {
                    "name": _TEXT,
                    "capability": {"type": "string", "pattern": r"^\d+\.\d+$"},
                    "memory_bytes": _COUNT,
                    "multiprocessors": _COUNT,
                    "driver": _TEXT,
                    "clocks": _object(
                        {"sm_mhz": _PERHAPS, "memory_mhz": _PERHAPS, "sm_max_mhz": _PERHAPS, "power_limit_w": _PERHAPS}
                    ),
                }
            ),
            "versions": {"type": "object", "additionalProperties": _TEXT, "minProperties": 1, "required": ["torch"]},
            "shape": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}, "minProperties": 1},
            "dtype": {"enum": ["float32", "float16", "bfloat16"]},
            "precision": {"enum": ["ieee", "tf32", None]},
            "tile": {"type": ["object", "null"], "additionalProperties": {"type": "integer"}},
            "seed": {"type": "integer", "minimum": 0},
            "error": _object(
                {
                    "largest": {"type": "number", "minimum": 0},
                    "share_of_bound": {"type": "number", "minimum": 0, "maximum": 1},
                }
            ),
            "times_ms": {"type": "object", "additionalProperties": _TIMES, "required": ["kernel"]},
            "left_out": {"type": "object", "additionalProperties": _TEXT},
            "ceilings": _object(
                {
                    "copy_bytes_per_s": _POSITIVE,
                    "gemm_flop_per_s": {"type": "object", "additionalProperties": _POSITIVE},
                }
            ),
        }
    ),
}


@dataclass(frozen=True)
class Record:
    """A stored run; everything derived is computed from ``data`` and the catalogue when asked for."""

    data: Mapping[str, Any]

    @property
    def run(self) -> Run:
        """The catalogue's entry."""
        return find(self.data["kernel"])

    @property
    def seconds(self) -> float:
        """Median time of the kernel."""
        return float(self.data["times_ms"]["kernel"]["p50"]) / 1e3

    @property
    def flop_per_s(self) -> float:
        """Operations that the shape needs, per second."""
        return self.run.flop / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Bytes that must be moved at least, per second."""
        return self.run.traffic / self.seconds

    @property
    def left_out(self) -> Mapping[str, str]:
        """Baselines that did not run, with the reason."""
        return dict(self.data["left_out"])

    def share(self, against: str) -> float:
        """Speed as a share of a baseline's, or of a copy's bandwidth ("copy"); NaN for a baseline that did not run."""
        if against in self.left_out:
            return math.nan
        if against == "copy":
            return self.bytes_per_s / float(self.data["ceilings"]["copy_bytes_per_s"])
        return float(self.data["times_ms"][against]["p50"]) / (self.seconds * 1e3)

    def meets(self, target: Target) -> bool:
        """Whether the run reaches a target of the catalogue."""
        return self.share(target.against) >= target.share

    @property
    def stale(self) -> str | None:
        """Why the run no longer speaks of the kernel as it is, None where it does."""
        if self.data["source_hash"] != source_hash(self.run):
            return "the kernel's source changed after this run"
        if dict(self.data["shape"]) != dict(self.run.shape):
            return "the run was made at another shape"
        return None

    @property
    def badge(self) -> str:
        """Device and date, and whether the run is stale."""
        said = f"{self.data['device']['name']}, {self.data['date'][:10]}"
        return f"{said} (stale: {self.stale})" if self.stale else said


def validate(data: Any, where: str = "the record") -> Record:
    """Return ``data`` as a record; ``RecordError`` names what does not fit."""
    _hold_against_the_schema(data, where)
    for name, times in data["times_ms"].items():
        if not times["p5"] <= times["p50"] <= times["p95"]:
            raise RecordError(f"{where} is malformed at times_ms.{name}: p5, p50 and p95 are not in order")
    if data["kernel"] not in {run.name for run in RUNS}:
        raise RecordError(f"{where} is malformed at kernel: no kernel is called {data['kernel']!r}")
    run = find(data["kernel"])
    absent = [name for name in run.baselines if name not in data["times_ms"] and name not in data["left_out"]]
    if absent:
        raise RecordError(f"{where} is malformed at times_ms: the baseline {absent[0]!r} of {run.name} is missing")
    return Record(data)


def _hold_against_the_schema(data: Any, where: str) -> None:
    """Raise ``RecordError`` where the form is not that of the schema.

    A machine that measures may lack jsonschema: there only the names at the top are held against it, and the rest
    when the book reads the record.
    """
    try:
        import jsonschema
    except ModuleNotFoundError:
        wrong = set(SCHEMA["properties"]) ^ set(data)
        if wrong:
            raise RecordError(f"{where} is malformed at its top level: {', '.join(sorted(wrong))}") from None
        return
    validator = jsonschema.Draft202012Validator(SCHEMA)
    problem = min(validator.iter_errors(data), key=lambda e: list(map(str, e.absolute_path)), default=None)
    if problem is not None:
        path = ".".join(map(str, problem.absolute_path)) or "its top level"
        raise RecordError(f"{where} is malformed at {path}: {problem.message}")


def load(name: str, folder: Path = FOLDER) -> Record | None:
    """Return the stored run of a kernel, None where there is none; ``RecordError`` for a malformed file."""
    path = folder / f"{find(name).name}.json"
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RecordError(f"{path.name} is no JSON: {error}") from error
    record = validate(data, path.name)
    if data["kernel"] != name:
        raise RecordError(f"{path.name} is malformed at kernel: it holds the run of {data['kernel']}")
    return record


def load_all(folder: Path = FOLDER) -> dict[str, Record]:
    """Return every stored run by name; a file that belongs to no kernel is an error."""
    known = {f"{run.name}.json" for run in RUNS}
    strangers = sorted(path.name for path in folder.glob("*.json") if path.name not in known)
    if strangers:
        raise RecordError(f"{strangers[0]} belongs to no kernel of the catalogue")
    found = ((run.name, load(run.name, folder)) for run in RUNS)
    return {name: record for name, record in found if record is not None}


def save(record: Record, folder: Path = FOLDER) -> Path:
    """Write a validated run, wholly or not at all, and return its path."""
    validate(record.data)
    folder.mkdir(exist_ok=True)
    path = folder / f"{record.run.name}.json"
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(record.data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(draft, path)
    return path

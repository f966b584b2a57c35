"""Weights in one file, with everything needed to go on training, and with checks when it is read back.

A file is written beside its final name and renamed, so that it is whole or not there. It holds no code: loading a
stranger's file can fail, but it cannot run anything.
"""

import json
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labsupport.ops import transformer
from labsupport.ops.transformer import Config, Parameters

__all__ = ["CheckpointError", "Saved", "load", "save"]

FORMAT = "labsupport checkpoint 1"
PARTS = ("parameters", "m", "v")


class CheckpointError(ValueError):
    """The file cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class Saved:
    """A training run at rest.

    Args:
        config: sizes of the model.
        parameters: its weights.
        m, v: moments of AdamW, the names of the parameters; empty before the first step.
        step: number of updates so far.
        tokens: texts of the vocabulary, or nothing.
    """

    config: Config
    parameters: Parameters
    m: Parameters = field(default_factory=dict)
    v: Parameters = field(default_factory=dict)
    step: int = 0
    tokens: tuple[str, ...] = ()

    @classmethod
    def fresh(cls, config: Config, rng: np.random.Generator, dtype: npt.DTypeLike = np.float64) -> "Saved":
        """Untrained weights."""
        return cls(config, transformer.init(config, rng, dtype))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays: with moments three times those of the weights."""
        return sum(array.nbytes for part in (self.parameters, self.m, self.v) for array in part.values())


def save(path: str | Path, saved: Saved) -> None:
    """Write a run to ``path``, whole or not at all.

    Raises:
        ValueError: arrays that do not belong to the configuration, or a weight that is not finite.
    """
    path = Path(path)
    _check(saved, path)
    header = {"format": FORMAT, "config": asdict(saved.config), "step": saved.step, "tokens": list(saved.tokens)}
    arrays: dict[str, Any] = {"header": np.array(json.dumps(header))}
    for part in PARTS:
        arrays |= {f"{part}/{name}": array for name, array in getattr(saved, part).items()}
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        np.savez(file, **arrays)
    partial.replace(path)


def load(path: str | Path, config: Config | None = None) -> Saved:
    """Read a run back and check it.

    Args:
        path: a file of ``save``.
        config: the sizes that the caller is going to use; None accepts those of the file.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: truncated, damaged, no checkpoint, another configuration, a wrong shape, a value that is not
            finite.
    """
    path = Path(path)
    header, arrays = _read(path)
    found = Config(**header["config"])
    if config is not None and config != found:
        mine, theirs = asdict(config), asdict(found)
        name = next(name for name in mine if mine[name] != theirs[name])
        raise CheckpointError(
            f"{path.name} holds a model with {name} {theirs[name]}, but {mine[name]} is asked for; "
            "build the model from the file's own configuration, or load another file"
        )
    parts: dict[str, Parameters] = {part: {} for part in PARTS}
    for key, array in arrays.items():
        part, name = key.split("/", 1)
        parts[part][name] = array
    saved = Saved(found, **parts, step=header["step"], tokens=tuple(header["tokens"]))
    _check(saved, path)
    return saved


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays; CheckpointError where the file is not what ``save`` wrote."""
    size = path.stat().st_size  # FileNotFoundError speaks for itself
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        header = json.loads(str(arrays.pop("header")))
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path.name} ({size:,} bytes) is damaged, cut short, or no checkpoint: {error}; copy or save it again"
        ) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CheckpointError(f"{path.name} is no checkpoint of this book: its header does not say {FORMAT!r}")
    return header, arrays


def _check(saved: Saved, path: Path) -> None:
    for part in PARTS:
        arrays: Parameters = getattr(saved, part)
        if part != "parameters" and not arrays and saved.step == 0:
            continue
        try:
            transformer.check_parameters(saved.config, arrays)
        except ValueError as error:
            raise CheckpointError(f"{path.name}, {part}: {error}") from error
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise CheckpointError(f"{path.name}, {part}: {name} holds a value that is not finite")

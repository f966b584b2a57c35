"""Carries answers between processes as JSON and plain arrays; nothing is ever unpickled.

What is no plain data becomes a stand-in that only keeps its type's name, which is all the judge
needs to refuse it.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

#: Bytes of arrays that one notebook may send back.
LIMIT = 256 * 2**20


class Parcel:
    """Values on their way: JSON structure here, arrays beside it."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.bytes = 0

    def pack(self, value: Any, depth: int = 0) -> Any:
        """The JSON form of a value."""
        kind = type(value)
        if value is ...:
            return {"is": "stub"}
        if kind in (bool, str, type(None)):
            return {"is": "plain", "value": value}
        if kind is int:
            return {"is": "int", "value": str(value)} if abs(value) < 10**4000 else {"is": "other", "type": "int"}
        if kind is float:
            return {"is": "float", "value": value.hex() if math.isfinite(value) else str(value)}
        if kind is complex:
            return {"is": "complex", "value": [value.real.hex(), value.imag.hex()]}
        if kind in (tuple, list) and depth < 8:
            return {"is": kind.__name__, "items": [self.pack(item, depth + 1) for item in value]}
        if kind is dict and depth < 8:
            pairs = [[self.pack(k, depth + 1), self.pack(v, depth + 1)] for k, v in value.items()]
            return {"is": "dict", "items": pairs}
        return self._array(value)

    def _array(self, value: Any) -> Any:
        kind = type(value)
        scalar = issubclass(kind, np.generic) and kind.__module__ == "numpy"
        tensor = kind.__module__ == "torch" and kind.__name__ in ("Tensor", "Parameter")
        if kind.__module__ == "torch" and kind.__name__ == "Size":
            return {"is": "tuple", "items": [self.pack(int(n)) for n in value]}
        array = _from_torch(value) if tensor else np.asarray(value) if scalar or kind is np.ndarray else None
        if array is None or array.dtype.kind not in "biufc":
            return {"is": "other", "type": str(kind.__name__)[:60]}
        self.bytes += array.nbytes
        if self.bytes > LIMIT:
            return {"is": "other", "type": "array beyond the limit of what a notebook may send back"}
        name = f"a{len(self.arrays)}"
        self.arrays[name] = np.array(array)
        return {"is": "scalar" if scalar else "array", "name": name}

    def write(self, folder: Path, structure: Any) -> None:
        """Put structure and arrays into a folder."""
        np.savez(folder / "arrays.npz", **self.arrays)  # type: ignore[arg-type]
        (folder / "answers.json").write_text(json.dumps(structure), encoding="utf-8")


def _from_torch(value: Any) -> np.ndarray:
    tensor = value.detach().cpu()
    plain: np.ndarray = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    return plain


class Delivery:
    """Values that have arrived."""

    def __init__(self, folder: Path) -> None:
        self.structure = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
        with np.load(folder / "arrays.npz", allow_pickle=False) as stored:
            self.arrays = {name: stored[name] for name in stored.files}

    def unpack(self, packed: Any) -> Any:
        """The value of a JSON form."""
        kind = packed["is"]
        if kind in ("tuple", "list"):
            items = [self.unpack(item) for item in packed["items"]]
            return tuple(items) if kind == "tuple" else items
        if kind == "dict":
            return {self.unpack(k): self.unpack(v) for k, v in packed["items"]}
        if kind in ("array", "scalar"):
            array = self.arrays[packed["name"]]
            return array[()] if kind == "scalar" else array
        if kind == "float":
            return float.fromhex(packed["value"]) if "x" in packed["value"] else float(packed["value"])
        if kind == "complex":
            return complex(*(float.fromhex(part) for part in packed["value"]))
        if kind == "int":
            return int(packed["value"])
        if kind == "stub":
            return ...
        if kind == "plain":
            return packed["value"]
        return type(str(packed["type"]), (), {})()

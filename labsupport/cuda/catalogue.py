"""Every measured run by name: which kernel, at which shape, against what, and what is hoped for on an H200.

Data only. A run's work (operations, bytes) is computed from its shape here, so that no record has to
store a figure that follows from another.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["RUNS", "Run", "Target", "find", "source_hash"]

HERE = Path(__file__).parent
ITEM = {"float32": 4, "float16": 2, "bfloat16": 2}
TRITON_SOURCES = ("kernels/triton_kernels.py", "triton_ops.py", "tuning.py")
SIMT_SOURCES = ("kernels/ladder.py", "numba_backend.py")


@dataclass(frozen=True)
class Target:
    """The least ``share``: of a baseline's speed ("torch.matmul", …), or of the bandwidth of a copy ("copy")."""

    against: str
    share: float


@dataclass(frozen=True, kw_only=True)
class Run:
    """One kernel at one shape."""

    name: str
    title: str
    family: Literal["simt", "triton"]
    operation: str
    dtype: str
    shape: Mapping[str, int]
    baselines: tuple[str, ...]
    precision: str | None = None
    rung: str = ""
    targets: tuple[Target, ...] = field(default=())

    @property
    def sources(self) -> tuple[str, ...]:
        """Files, relative to ``labsupport/cuda``, whose change makes a record of this run stale."""
        return TRITON_SOURCES if self.family == "triton" else SIMT_SOURCES

    @property
    def flop(self) -> float:
        """Floating-point operations that the shape needs; 0 where a copy is the only sensible ceiling."""
        s = self.shape
        if self.operation == "matmul":
            return 2.0 * s["M"] * s["N"] * s["K"]
        if self.operation == "flash_attention":
            full = 4.0 * s["batch"] * s["heads"] * s["length"] ** 2 * s["D"]
            return full / 2 if s["causal"] else full
        return 0.0

    @property
    def traffic(self) -> float:
        """Bytes that must be moved at least: each input read once, each output written once."""
        s, item = self.shape, ITEM[self.dtype]
        if self.operation == "matmul":
            return item * (s["M"] * s["K"] + s["K"] * s["N"] + s["M"] * s["N"])
        if self.operation == "flash_attention":
            return 4.0 * item * s["batch"] * s["heads"] * s["length"] * s["D"]
        if self.operation == "sum":
            return float(item * s["N"])
        if self.operation == "add":
            return 3.0 * item * s["N"]
        elements = math.prod(s.values())
        return 2.0 * item * elements


def _matmul(name: str, title: str, dtype: str, precision: str | None, share: float | None) -> Run:
    return Run(
        name=name,
        title=title,
        family="triton",
        operation="matmul",
        dtype=dtype,
        precision=precision,
        shape={"M": 8192, "N": 8192, "K": 8192},
        baselines=("torch.matmul",),
        targets=(Target("torch.matmul", share),) if share else (),
    )


def _rung(rung: str, title: str, share: float | None = None) -> Run:
    return Run(
        name=f"simt-matmul-{rung}",
        title=title,
        family="simt",
        operation="matmul",
        rung=rung,
        dtype="float32",
        precision="ieee",
        shape={"M": 4096, "N": 4096, "K": 4096},
        baselines=("torch.matmul",),
        targets=(Target("torch.matmul", share),) if share else (),
    )


def _rows(operation: str, title: str, columns: int, *targets: Target, name: str = "", dtype: str = "bfloat16") -> Run:
    return Run(
        name=f"triton-{name or operation.replace('_', '-')}",
        title=title,
        family="triton",
        operation=operation,
        dtype=dtype,
        shape={"rows": 2**29 // columns // (4 if operation == "cross_entropy" else 1), "columns": columns},
        baselines=("eager", "compiled"),
        targets=targets,
    )


def _simt(operation: str, rung: str, title: str, shape: Mapping[str, int], baseline: str) -> Run:
    return Run(
        name=f"simt-{rung}",
        title=title,
        family="simt",
        operation=operation,
        rung=rung,
        dtype="float32",
        shape=shape,
        baselines=(baseline,),
    )


def _flash(causal: bool) -> Run:
    return Run(
        name="triton-flash-causal" if causal else "triton-flash",
        title=f"flash attention forward{', causal' if causal else ''}",
        family="triton",
        operation="flash_attention",
        dtype="bfloat16",
        shape={"batch": 4, "heads": 16, "length": 4096, "D": 128, "causal": int(causal)},
        baselines=("SDPA flash",),
        targets=(Target("SDPA flash", 0.90),),
    )


_SQUARE = {"rows": 8192, "columns": 8192}
_WIDE = {"rows": 16384, "columns": 4096}

RUNS: tuple[Run, ...] = (
    _matmul("triton-matmul-bf16", "matmul bfloat16", "bfloat16", None, 0.85),
    _matmul("triton-matmul-fp16", "matmul float16", "float16", None, None),
    _matmul("triton-matmul-tf32", "matmul TF32", "float32", "tf32", 0.85),
    _matmul("triton-matmul-fp32", "matmul float32", "float32", "ieee", None),
    _rows("softmax", "fused softmax", 4096, Target("copy", 0.90)),
    _rows("layer_norm", "LayerNorm", 4096, Target("copy", 0.90)),
    _rows("rms_norm", "RMSNorm", 4096, Target("copy", 0.90)),
    _rows("cross_entropy", "cross-entropy, loss and gradient", 32768, Target("copy", 0.75), Target("eager", 2.0)),
    _rows("cross_entropy", "cross-entropy, rows read twice", 131072, name="cross-entropy-long"),
    _flash(causal=False),
    _flash(causal=True),
    _rung("naive", "matmul, rung 1: one thread an element"),
    _rung("coalesced", "matmul, rung 2: coalesced"),
    _rung("shared", "matmul, rung 3: shared tile"),
    _rung("register", "matmul, rung 4: register tile", 0.50),
    _simt("add", "vector-add", "vector addition", {"N": 2**27}, "torch.add"),
    _simt("sum", "reduce-tree", "sums of blocks, tree", {"N": 2**27}, "torch.sum"),
    _simt("sum", "reduce-shuffle", "sums of blocks, shuffles", {"N": 2**27}, "torch.sum"),
    _simt("transpose", "transpose-naive", "transposition, uncoalesced", _SQUARE, "torch copy"),
    _simt("transpose", "transpose-shared", "transposition, shared tile", _SQUARE, "torch copy"),
    _simt("transpose", "transpose-padded", "transposition, padded tile", _SQUARE, "torch copy"),
    _simt("softmax", "softmax-row", "softmax in three passes", _WIDE, "eager"),
    _simt("softmax", "softmax-online", "softmax in two passes", _WIDE, "eager"),
    _simt("layer_norm", "layer-norm", "LayerNorm", _WIDE, "eager"),
)


def find(name: str) -> Run:
    """Return the run called ``name``; ``ValueError`` lists the names where there is none."""
    for run in RUNS:
        if run.name == name:
            return run
    raise ValueError(f"no kernel is called {name!r}; there are {', '.join(run.name for run in RUNS)}")


def source_hash(run: Run) -> str:
    """Return 16 hexadecimal digits of SHA-256 over the run's source files, the same on every system."""
    digest = hashlib.sha256()
    for name in run.sources:
        text = (HERE / name).read_text(encoding="utf-8")  # universal newlines: a checkout on Windows hashes alike
        digest.update(f"{name}\n{text}\n".encode())
    return digest.hexdigest()[:16]

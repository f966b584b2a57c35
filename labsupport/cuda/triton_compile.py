"""Compile a Triton kernel for a GPU that need not be there, and read what the machine code uses.

ptxas and cuobjdump come with Triton. This file must never run a kernel, and must be used in a
process where Triton's interpreter is off: an interpreted kernel has no machine code.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["SHARED_LIMIT", "Compiled", "compile_kernel", "unavailable"]

#: Shared memory that one block may use on compute capability 9.0 (CUDA C++ Programming Guide, table of limits).
SHARED_LIMIT = 227 * 1024
#: Tensor-core instructions: of a warp (HMMA), of a warp group on Hopper (HGMMA; QGMMA in 8 bits).
TENSOR_CORE = ("HMMA", "HGMMA", "QGMMA")


@dataclass(frozen=True)
class Compiled:
    """What one kernel needs of a multiprocessor.

    ``registers`` a thread; ``stack`` and ``local`` bytes a thread in local memory, both 0 without
    spills; ``shared`` bytes a block; ``instructions`` by name, as they stand in the code (not as
    often as they run).
    """

    registers: int
    stack: int
    local: int
    shared: int
    num_warps: int
    instructions: Mapping[str, int]

    @property
    def spills(self) -> bool:
        """Whether values that found no register go to local memory and back."""
        return bool(self.stack or self.local or self.instructions.get("STL") or self.instructions.get("LDL"))

    @property
    def tensor_core(self) -> int:
        """How many tensor-core instructions stand in the code."""
        return sum(self.instructions.get(name, 0) for name in TENSOR_CORE)


def unavailable() -> str | None:
    """Return why no Triton kernel can be compiled or interpreted here, None where it can."""
    if not sys.platform.startswith("linux"):
        return f"Triton is made for Linux only, and this is {sys.platform}"
    from importlib.util import find_spec

    missing = [name for name in ("triton", "torch") if find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed; `pip install -r requirements.txt` brings it"
    return None


def compile_kernel(
    kernel: Any,
    arguments: Mapping[str, str],
    constants: Mapping[str, Any],
    *,
    num_warps: int,
    num_stages: int = 3,
    capability: int = 90,
) -> Compiled:
    """Compile ``kernel`` for a compute capability and read the resources of its machine code.

    Args:
        kernel: a ``triton.jit`` function.
        arguments: type of each run-time argument, ``"*bf16"``, ``"i32"``, ``"fp32"``. A pointer, and an
            integer with ``":16"`` after it, is taken to be divisible by 16, as torch allocates.
        constants: values of the compile-time arguments, and of strides fixed to 1.
        capability: 90 for H100 and H200.

    Raises:
        RuntimeError: where Triton cannot be had, or its interpreter is on in this process.
    """
    reason = unavailable()
    if reason:
        raise RuntimeError(f"no kernel can be compiled: {reason}")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    if triton.knobs.runtime.interpret:
        raise RuntimeError("compile_kernel needs a process without TRITON_INTERPRET: an interpreted kernel has no code")
    names = list(kernel.arg_names)
    absent = [name for name in names if name not in arguments and name not in constants]
    if absent:
        raise ValueError(f"no type and no value for {', '.join(absent)} of {kernel.__name__}")
    signature = {name: arguments[name].partition(":")[0] if name in arguments else "constexpr" for name in names}
    aligned = [n for n, kind in arguments.items() if kind.startswith("*") or kind.endswith(":16")]
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    with tempfile.TemporaryDirectory() as folder, _cache_in(folder):
        made = triton.compile(
            source, target=GPUTarget("cuda", capability, 32), options={"num_warps": num_warps, "num_stages": num_stages}
        )
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(made.asm["cubin"])
        usage = _cuobjdump("--dump-resource-usage", cubin)
        code = _cuobjdump("--dump-sass", cubin)
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump names no resources of {kernel.__name__}: {usage[:200]!r}")
    registers, stack, static, local = map(int, found.groups())
    return Compiled(registers, stack, local, static + made.metadata.shared, num_warps, instructions(code))


def instructions(code: str) -> Counter[str]:
    """Count the instructions of a disassembly by name, without their modifiers: ``LDG.E.128`` counts as LDG."""
    return Counter(re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]+)", code, re.MULTILINE))


@contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    """Keep Triton's cache in ``folder``, so that what is compiled here is forgotten with it."""
    import triton

    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = os.path.join(folder, "cache")
        yield


def _cuobjdump(option: str, cubin: Path) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    done = subprocess.run([str(tool), option, str(cubin)], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"cuobjdump {option} failed: {done.stderr.strip()[:300]}")
    return done.stdout

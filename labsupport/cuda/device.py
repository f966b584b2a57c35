"""What this machine has for measuring on a GPU, and the sentence that says what it lacks.

Torch loads only when the driver library is there. Nothing here may pretend that a GPU exists, or
fall back to something else without a word.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = [
    "MIN_CAPABILITY",
    "NoGPUError",
    "Status",
    "describe",
    "driver_missing",
    "refuse",
    "require_gpu",
    "status",
]

#: bfloat16 and asynchronous copies came with compute capability 8.0.
MIN_CAPABILITY = (8, 0)


class NoGPUError(RuntimeError):
    """Something was to be measured on a CUDA GPU, and this machine has none that is usable."""


@dataclass(frozen=True)
class Status:
    """``missing``: what stands in the way of measuring, in order, each as a clause; empty where nothing does."""

    missing: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.missing

    def __str__(self) -> str:
        return "a CUDA GPU is usable" if self else f"no usable CUDA GPU: {'; '.join(self.missing)}"


def status(family: str = "triton") -> Status:
    """Return what is missing to measure kernels of ``family`` ("triton" or "simt") here."""
    missing = [*_driver(), *_torch()]
    if family == "triton":
        if not sys.platform.startswith("linux"):
            missing.append(f"Triton is made for Linux only, and this is {sys.platform}")
        elif find_spec("triton") is None:
            missing.append("Triton is not installed")
        elif os.environ.get("TRITON_INTERPRET") == "1":
            missing.append("TRITON_INTERPRET=1 is set, so kernels would be interpreted and not compiled")
        elif not missing:
            missing += _triton()
    elif not missing:
        missing += _numba()
    return Status(tuple(missing))


def _driver() -> list[str]:
    names = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return []
    return [f"the NVIDIA driver's library {names[0]} is not on this machine"]


def _torch() -> list[str]:
    if find_spec("torch") is None:
        return ["PyTorch is not installed"]
    import torch

    if torch.version.cuda is None:
        return [f"PyTorch {torch.__version__} is a build without CUDA"]
    try:
        torch.cuda.init()  # says more than is_available(): that the driver is too old, for one
        capability = torch.cuda.get_device_capability()
    except Exception as error:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hidden = f" (CUDA_VISIBLE_DEVICES={visible!r})" if visible is not None else ""
        told = " ".join(str(error).split()) or type(error).__name__
        return [f"PyTorch {torch.__version__} cannot use a CUDA device{hidden}: {told[:300]}"]
    if capability < MIN_CAPABILITY:
        due = ".".join(map(str, MIN_CAPABILITY))
        return [f"the GPU has compute capability {capability[0]}.{capability[1]}, and the kernels need {due}"]
    return []


def _triton() -> list[str]:
    try:
        import triton
    except Exception as error:  # as where it was made for another Python
        return [f"Triton cannot be loaded ({type(error).__name__}: {str(error)[:300]})"]
    if not hasattr(triton, "knobs"):
        return [f"Triton {triton.__version__} is too old, and the kernels need 3.4"]
    return []


def _numba() -> list[str]:
    if find_spec("numba_cuda") is None:
        return ["numba-cuda is not installed"]
    _name_the_toolkit()
    try:
        from numba import config, cuda

        if getattr(config, "ENABLE_CUDASIM", False):
            return ["NUMBA_ENABLE_CUDASIM=1 is set, so kernels would be simulated and not compiled"]
        if not cuda.is_available():
            return ["numba-cuda does not find the GPU"]
        from labsupport.cuda.numba_backend import has_nvvm

        found = has_nvvm()
    except Exception as error:  # versions of numba, numba-cuda and NumPy that do not agree
        return [f"numba-cuda cannot be loaded ({type(error).__name__}: {str(error)[:300]})"]
    if not found:
        return ["numba-cuda does not find NVIDIA's nvvm and nvrtc (pip install 'numba-cuda[cu13]' brings them)"]
    return []


def _name_the_toolkit() -> None:
    """Set CUDA_HOME, where it is not set, to the CUDA toolkit of the system: numba-cuda does not look everywhere."""
    compiler = shutil.which("nvcc")
    for home in (Path(compiler).resolve().parents[1] if compiler else None, Path("/usr/local/cuda")):
        if home is not None and (home / "nvvm").is_dir():
            os.environ.setdefault("CUDA_HOME", str(home))


def driver_missing() -> bool:
    """Whether there is no driver at all: what a moment can tell."""
    return bool(_driver())


def require_gpu(what: str, instead: str, family: str = "triton") -> None:
    """Raise ``NoGPUError`` where nothing can be measured: what was asked, what is missing, what to do instead."""
    found = status(family)
    if not found:
        raise refuse(what, instead, found.missing)


def refuse(what: str, instead: str, missing: Sequence[str]) -> NoGPUError:
    """Return the error that says what was asked, what is missing, and what to do instead."""
    return NoGPUError(
        f"{what} needs a CUDA GPU, and there is none usable here: {'; '.join(missing)}. Nothing was measured. {instead}"
    )


#: What nvidia-smi is asked, and where the answers go.
ASKED = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.limit")


def describe() -> dict[str, Any]:
    """Return the GPU's name, size, driver and clocks as they are now. Needs a GPU.

    Where nvidia-smi is missing or fails, the clocks are None and the driver is named by the CUDA version it serves.
    """
    import torch

    properties = torch.cuda.get_device_properties(0)
    told = _ask_nvidia_smi(str(getattr(properties, "uuid", "")))
    driver, sm, memory, sm_max, power = told or (_served_cuda(), *("",) * 4)
    return {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": int(properties.total_memory),
        "multiprocessors": int(properties.multi_processor_count),
        "driver": driver,
        "clocks": {
            "sm_mhz": _number(sm),
            "memory_mhz": _number(memory),
            "sm_max_mhz": _number(sm_max),
            "power_limit_w": _number(power),
        },
    }


def _ask_nvidia_smi(uuid: str) -> tuple[str, ...] | None:
    """Return what nvidia-smi tells, in the order of ``ASKED``, None where it does not answer."""
    # By its identity: CUDA_VISIBLE_DEVICES numbers the GPUs anew, and nvidia-smi does not see it.
    which = [f"--id=GPU-{uuid.removeprefix('GPU-')}"] if uuid else []
    command = ["nvidia-smi", *which, f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    fields = tuple(field.strip() for field in done.stdout.strip().partition("\n")[0].split(","))
    return fields if len(fields) == len(ASKED) and fields[0] else None


def _served_cuda() -> str:
    """Return the CUDA version that the driver serves, as it says itself."""
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    number = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(number))
    return f"unknown, serves CUDA {number.value // 1000}.{number.value % 1000 // 10}"


def _number(text: str) -> float | None:
    """Return a figure of nvidia-smi, None where the driver does not tell it ("[N/A]")."""
    try:
        return float(text)
    except ValueError:
        return None

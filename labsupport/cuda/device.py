"""What this machine has for measuring on a GPU, and the sentence that says what it lacks.

Torch loads only when the driver library is there. Nothing here may pretend that a GPU exists, or
fall back to something else without a word.
"""

import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

__all__ = ["MIN_CAPABILITY", "NoGPUError", "Status", "describe", "require_gpu", "status"]

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
    if not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hidden = f" (CUDA_VISIBLE_DEVICES={visible!r})" if visible is not None else ""
        return [f"PyTorch sees no CUDA device{hidden}"]
    capability = torch.cuda.get_device_capability()
    if capability < MIN_CAPABILITY:
        due = ".".join(map(str, MIN_CAPABILITY))
        return [f"the GPU has compute capability {capability[0]}.{capability[1]}, and the kernels need {due}"]
    return []


def _numba() -> list[str]:
    if find_spec("numba_cuda") is None:
        return ["numba-cuda is not installed"]
    from numba import cuda

    if not cuda.is_available():
        return ["numba-cuda does not find the GPU"]
    from labsupport.cuda.numba_backend import has_nvvm

    if not has_nvvm():
        return ["numba-cuda does not find NVIDIA's nvvm and nvrtc (pip install 'numba-cuda[cu13]' brings them)"]
    return []


def require_gpu(what: str, instead: str, family: str = "triton") -> None:
    """Raise ``NoGPUError`` where nothing can be measured: what was asked, what is missing, what to do instead."""
    found = status(family)
    if not found:
        raise NoGPUError(
            f"{what} needs a CUDA GPU, and there is none usable here: {'; '.join(found.missing)}. "
            f"Nothing was measured. {instead}"
        )


def describe() -> dict[str, Any]:
    """Return the GPU's name, size, driver and clocks as they are now. Needs a GPU."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    asked = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.limit")
    done = subprocess.run(
        # By its identity: CUDA_VISIBLE_DEVICES numbers the GPUs anew, and nvidia-smi does not see it.
        [
            "nvidia-smi",
            f"--id=GPU-{properties.uuid}",
            f"--query-gpu={','.join(asked)}",
            "--format=csv,noheader,nounits",
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    driver, sm, memory, sm_max, power = (field.strip() for field in done.stdout.strip().split(","))
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


def _number(text: str) -> float | None:
    """Return a figure of nvidia-smi, None where the driver does not tell it ("[N/A]")."""
    try:
        return float(text)
    except ValueError:
        return None

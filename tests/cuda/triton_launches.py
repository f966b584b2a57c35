"""Prints every launch of the Triton kernels as Triton's own launcher would get it, on a GPU that is not there.

All is real but the driver: the binder of the arguments, their specialisation, the compiler for sm_90,
the limits that are checked before a kernel is loaded. Only loading and launching are noted instead.
A process of its own, for a driver cannot be taken back.
"""

import json
import os
import sys
import tempfile
from dataclasses import asdict

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from labsupport.cuda import triton_ops, tuning

LAUNCHED: list[dict] = []


class Utils:
    """What Triton asks a driver about a device and its kernels."""

    def get_device_properties(self, device):
        return {
            "max_shared_mem": 232448,
            "max_num_regs": 65536,
            "multiprocessor_count": 132,
            "warpSize": 32,
            "sm_clock_rate": 1980000,
            "mem_clock_rate": 3201000,
            "mem_bus_width": 6144,
        }

    def load_binary(self, name, binary, shared, device):
        assert shared <= 232448 and len(binary) > 1000
        return 1, 2, 64, 0, 1024


class Launcher:
    """Notes a launch."""

    def __init__(self, source, metadata):
        self.name, self.signature = metadata.name, {str(k): str(v) for k, v in source.signature.items()}
        self.warps, self.stages = metadata.num_warps, metadata.num_stages

    def __call__(self, x, y, z, stream, function, packed, launch, enter, leave, *arguments):
        LAUNCHED.append({"kernel": self.name, "grid": [x, y, z], "warps": self.warps, "stages": self.stages})
        LAUNCHED[-1]["descriptors"] = [t for t in self.signature.values() if t.startswith("tensordesc")]


class Driver:
    """A Hopper GPU without the GPU."""

    utils, launcher_cls = Utils(), Launcher

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def set_current_device(self, device):
        pass

    def get_active_torch_device(self):
        return torch.device("cpu")


def every_way(name, key, ways, launch, milliseconds):
    for way in ways:
        before = len(LAUNCHED)
        launch(way)
        assert len(LAUNCHED) == before + 1, way
        LAUNCHED[-1]["way"] = asdict(way)
    return ways[0]


def main():
    """Launch every kernel in every way."""
    driver.set_active(Driver())
    tuning.choose = every_way
    triton_ops._interpreted = lambda: True  # the tensors are on the CPU
    triton_ops._has_copy_engine = lambda t: True

    def normal(*shape, dtype=torch.float32):
        return torch.randn(*shape).to(dtype)

    for dtype in (torch.bfloat16, torch.float16):
        triton_ops.matmul(normal(256, 64, dtype=dtype), normal(64, 512, dtype=dtype))
    for precision in ("tf32", "ieee"):
        triton_ops.matmul(normal(256, 64), normal(64, 512), precision=precision)
    half = {"dtype": torch.bfloat16}
    w = normal(4096, **half)
    triton_ops.softmax(normal(3, 4096, **half))
    triton_ops.layer_norm(normal(3, 4096, **half), w, w)
    triton_ops.rms_norm(normal(3, 4096, **half), w)
    for columns in (32768, 131072):
        triton_ops.cross_entropy(normal(2, columns, **half), torch.tensor([0, 5]), checked=True)
    q = normal(1, 2, 256, 128, **half)
    for causal in (False, True):
        triton_ops.flash_attention(q, q, q, causal=causal)
    json.dump([launch for launch in LAUNCHED if "way" in launch], sys.stdout)  # the chosen one runs once more


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        triton.knobs.cache.dir = folder
        main()

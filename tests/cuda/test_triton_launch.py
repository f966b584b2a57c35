"""Every launch that a run tries reaches Triton's launcher: bound, specialised and compiled for sm_90, with no GPU."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from labsupport.cuda.triton_compile import unavailable
from labsupport.cuda.triton_ops import CONFIGS, flash_ways, row_ways

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no Triton: {unavailable()}")


@pytest.fixture(scope="module")
def launches():
    script = Path(__file__).with_name("triton_launches.py")
    root = str(Path(__file__).parents[2])
    code = f"import sys, runpy; sys.path.insert(0, {root!r}); runpy.run_path({str(script)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def ways(launches, *kernels):
    return [launch["way"] for launch in launches if launch["kernel"] in kernels]


def test_every_tile_of_a_product_is_launched(launches):
    tried = ways(launches, "matmul_kernel", "matmul_tma_kernel")
    assert tried == [asdict(t) for kind in ("half", "half", "tf32", "ieee") for t in CONFIGS[kind]]
    for launch in launches:
        if launch["kernel"].startswith("matmul"):
            tile = launch["way"]
            assert launch["grid"] == [-(-256 // tile["BM"]) * -(-512 // tile["BN"]), 1, 1]
            assert (launch["warps"], launch["stages"]) == (tile["num_warps"], tile["num_stages"])
            assert len(launch["descriptors"]) == 2 * tile["TMA"]
            assert (launch["kernel"] == "matmul_tma_kernel") == bool(tile["TMA"])
    # TF32 takes B in rows of n.
    last = next(e for e in reversed(launches) if e["kernel"] == "matmul_tma_kernel")
    BM, BN, BK = (last["way"][name] for name in ("BM", "BN", "BK"))
    assert [d.replace(" ", "") for d in last["descriptors"]] == [
        f"tensordesc<fp32[{BM},{BK}]>",
        f"tensordesc<fp32[{BN},{BK}]>",
    ]


@pytest.mark.parametrize("operation", ["softmax", "layer_norm", "rms_norm", "cross_entropy"])
def test_every_way_of_a_row_is_launched(launches, operation):
    widths = (32768, 131072) if operation == "cross_entropy" else (4096,)
    tried = ways(launches, f"{operation}_kernel", f"{operation}_long_kernel")
    assert tried == [asdict(way) for columns in widths for way in row_ways(operation, columns)]
    for launch in launches:
        if launch["kernel"].startswith(operation):
            assert launch["kernel"].endswith("long_kernel") == bool(launch["way"]["TWICE"])
            assert launch["grid"] == [2 if operation == "cross_entropy" else 3, 1, 1]


def test_every_way_of_flash_attention_is_launched(launches):
    assert ways(launches, "flash_kernel") == [asdict(way) for way in flash_ways(128, "half")] * 2
    assert {tuple(e["grid"]) for e in launches if e["kernel"] == "flash_kernel"} == {(2, 2, 1), (4, 2, 1)}

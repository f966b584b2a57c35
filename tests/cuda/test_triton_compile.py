"""Every Triton kernel and every tile it may be launched with compiles for sm_90 within the machine's limits."""

import os
import subprocess
import sys

import pytest

from labsupport.cuda.triton_compile import SHARED_LIMIT, Compiled, compile_kernel, instructions, unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no Triton: {unavailable()}")

NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def assert_fits(made: Compiled, tensor_core: bool | None = None) -> None:
    assert not made.spills, f"spills: stack {made.stack} B, local {made.local} B, {dict(made.instructions)}"
    assert made.registers <= 255
    assert made.registers * made.num_warps * 32 <= 65536
    assert made.shared <= SHARED_LIMIT
    if tensor_core is not None:
        assert (made.tensor_core > 0) == tensor_core


def _products():
    from labsupport.cuda.triton_ops import CONFIGS

    for kind, dtypes in (("half", ("bfloat16", "float16")), ("tf32", ("float32",)), ("ieee", ("float32",))):
        for number in range(len(CONFIGS[kind])):
            for dtype in dtypes if number == 0 else dtypes[:1]:
                yield kind, number, dtype, True
        yield kind, 0, dtypes[0], False


@pytest.mark.parametrize(("kind", "number", "dtype", "even"), list(_products()))
def test_matmul(kind, number, dtype, even):
    from labsupport.cuda.kernels.triton_kernels import matmul_kernel, matmul_tma_kernel
    from labsupport.cuda.triton_ops import CONFIGS

    tile, short = CONFIGS[kind][number], NAMES[dtype]
    constants = {"stride_cn": 1, "BM": tile.BM, "BN": tile.BN, "BK": tile.BK, "GROUP": tile.GROUP}
    constants |= {"PRECISION": "ieee" if kind == "half" else kind}
    arguments = {"c_ptr": f"*{short}"} | dict.fromkeys(("M", "N", "K", "stride_cm"), "i32:16")
    if tile.TMA:
        rows = kind == "half"
        sizes = f"{tile.BK},{tile.BN}" if rows else f"{tile.BN},{tile.BK}"
        arguments |= {"a_tile": f"tensordesc<{short}[{tile.BM},{tile.BK}]>", "b_tile": f"tensordesc<{short}[{sizes}]>"}
        kernel, constants = matmul_tma_kernel, constants | {"B_ROWS": rows}
    else:
        arguments |= {"a_ptr": f"*{short}", "b_ptr": f"*{short}"}
        arguments |= dict.fromkeys(("stride_am", "stride_bk"), "i32:16")
        kernel, constants = matmul_kernel, constants | {"stride_ak": 1, "stride_bn": 1, "EVEN_K": even}
    made = compile_kernel(kernel, arguments, constants, num_warps=tile.num_warps, num_stages=tile.num_stages)
    assert_fits(made, tensor_core=kind != "ieee")
    copies = "UTMALDG" if tile.TMA else "LDGSTS"
    assert made.instructions[copies], "no asynchronous copy from global to shared memory"
    # On Hopper a whole warp group multiplies at once; the instruction of a single warp has half the speed.
    assert kind == "ieee" or (made.instructions["HGMMA"] and not made.instructions["HMMA"])
    # The product in float32 is made of fused multiply-adds: each output of a thread once for every k.
    per_thread = tile.BM * tile.BN * tile.BK // (tile.num_warps * 32)
    assert kind != "ieee" or made.instructions["FFMA"] == per_thread


ROW_KERNELS = {
    "softmax": ("y_ptr", "x_ptr"),
    "layer_norm": ("y_ptr", "x_ptr", "w_ptr", "b_ptr"),
    "rms_norm": ("y_ptr", "x_ptr", "w_ptr"),
    "cross_entropy": ("d_ptr", "x_ptr"),
}


def _rows():
    """The measured widths with every launch that is tried there; the longest row in registers, and a longer one."""
    from labsupport.cuda.triton_ops import ONE_BLOCK, row_ways

    for operation in ROW_KERNELS:
        for columns in (32768, 131072) if operation == "cross_entropy" else (4096,):
            for way in row_ways(operation, columns):
                yield operation, "bfloat16", columns, way
        for dtype in ("float32", "bfloat16"):
            yield operation, dtype, ONE_BLOCK[operation], row_ways(operation, ONE_BLOCK[operation])[0]
        yield operation, "float32", 131072, row_ways(operation, 131072)[0]


@pytest.mark.parametrize(("operation", "dtype", "columns", "way"), list(_rows()), ids=str)
def test_rows(operation, dtype, columns, way):
    from labsupport.cuda.kernels import triton_kernels
    from labsupport.cuda.triton_ops import ONE_BLOCK

    assert way.TWICE or columns <= ONE_BLOCK[operation]
    arguments = dict.fromkeys(ROW_KERNELS[operation], f"*{NAMES[dtype]}") | {"stride": "i32:16", "N": "i32:16"}
    if operation == "cross_entropy":
        arguments |= {"loss_ptr": "*fp32", "target_ptr": "*i64", "scale": "fp32"}
    elif operation.endswith("norm"):
        arguments |= {"eps": "fp32"}
    kernel = getattr(triton_kernels, f"{operation}_long_kernel" if way.TWICE else f"{operation}_kernel")
    made = compile_kernel(kernel, arguments, {"BLOCK": way.BLOCK}, num_warps=way.num_warps)
    assert_fits(made, tensor_core=False)
    # A thread moves 16 bytes at once: at most so many vector loads for each reading of the row.
    vectors = way.BLOCK * (2 if dtype == "bfloat16" else 4) // 16 // (way.num_warps * 32)
    reads = {"softmax": 1, "rms_norm": 2, "layer_norm": 3, "cross_entropy": 1}[operation] + way.TWICE
    assert made.instructions["LDG"] <= vectors * reads + 2
    # A power of 2 an element and reading, and a few a row: no division an element, which takes one more.
    powers = way.BLOCK // (way.num_warps * 32) * (1 + way.TWICE) if operation in ("softmax", "cross_entropy") else 0
    assert powers <= made.instructions["MUFU"] <= powers + 6


@pytest.mark.parametrize(
    ("kind", "dim", "dtype", "causal"),
    [
        *(
            ("half", dim, dtype, causal)
            for dim, dtype in ((64, "bfloat16"), (128, "float16"))
            for causal in (True, False)
        ),
        ("half", 256, "bfloat16", True),
        ("half", 16, "bfloat16", True),
        ("tf32", 64, "float32", True),
        ("tf32", 128, "float32", True),
        ("ieee", 64, "float32", True),
        ("ieee", 32, "float32", False),
        ("ieee", 32, "float32", True),
    ],
)
def test_flash_attention(kind, dim, dtype, causal):
    from labsupport.cuda.kernels.triton_kernels import flash_kernel
    from labsupport.cuda.triton_ops import MAX_HEAD, flash_ways

    assert dim <= MAX_HEAD[kind]
    for way in flash_ways(dim, kind):
        made = compile_kernel(
            flash_kernel,
            dict.fromkeys(("o_ptr", "q_ptr", "k_ptr", "v_ptr"), f"*{NAMES[dtype]}")
            | {"queries": "i32", "keys": "i32", "scale": "fp32"},
            {"D": dim, "BM": way.BM, "BN": way.BN, "CAUSAL": causal, "PRECISION": "ieee" if kind == "half" else kind},
            num_warps=way.num_warps,
            num_stages=way.num_stages,
        )
        assert_fits(made, tensor_core=kind != "ieee")


def test_a_tile_too_large_for_the_registers_is_seen_to_spill():
    from labsupport.cuda.kernels.triton_kernels import matmul_kernel

    made = compile_kernel(
        matmul_kernel,
        {f"{m}_ptr": "*bf16" for m in "abc"}
        | dict.fromkeys(("M", "N", "K", "stride_am", "stride_bk", "stride_cm"), "i32:16"),
        {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1, "BM": 128, "BN": 256, "BK": 64}
        | {"GROUP": 8, "EVEN_K": True, "PRECISION": "ieee"},
        num_warps=4,
    )
    assert made.spills and made.registers == 255


def test_instructions_are_counted_by_name():
    code = """
        /*0090*/                   LDG.E.128 R8, desc[UR4][R2.64] ;              /* 0x0000000402087981 */
        /*00a0*/              @!P0 LDG.E R1, desc[UR4][R2.64] ;                  /* 0x00 */
        /*00b0*/             @!UP1 UIADD3 UR4, UR4, 0x1, URZ ;                   /* 0x00 */
        /*00c0*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8] ;    /* 0x00 */
                                                                                 /* 0x000fe200 */
    """
    assert instructions(code) == {"LDG": 2, "UIADD3": 1, "HGMMA": 1}


def test_what_is_missing_is_named():
    from labsupport.cuda.kernels.triton_kernels import softmax_kernel

    with pytest.raises(ValueError, match="no type and no value for N, BLOCK of softmax_kernel"):
        compile_kernel(softmax_kernel, {"y_ptr": "*fp32", "x_ptr": "*fp32", "stride": "i32"}, {}, num_warps=4)


def test_an_interpreting_process_is_refused():
    code = "from labsupport.cuda.triton_compile import compile_kernel; compile_kernel(None, {}, {}, num_warps=1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "needs a process without TRITON_INTERPRET" in done.stderr


def test_sizes_of_one_compile():
    """Triton makes a constant of an argument that is 1, and a constant is no tensor."""
    from labsupport.cuda.kernels import triton_kernels as k

    products = {"a_ptr": "*fp32", "b_ptr": "*fp32", "c_ptr": "*fp32"}
    ones = dict.fromkeys(k.matmul_kernel.arg_names[3:12], 1)
    tile = {"BM": 64, "BN": 64, "BK": 16, "GROUP": 8, "EVEN_K": False, "PRECISION": "ieee"}
    assert_fits(compile_kernel(k.matmul_kernel, products, ones | tile, num_warps=4))
    rows = {"y_ptr": "*fp32", "x_ptr": "*fp32", "w_ptr": "*fp32", "b_ptr": "*fp32", "eps": "fp32"}
    one = {"stride": 1, "N": 1, "BLOCK": 1}
    assert_fits(compile_kernel(k.layer_norm_kernel, rows, one, num_warps=1))
    flash = dict.fromkeys(("o_ptr", "q_ptr", "k_ptr", "v_ptr"), "*bf16") | {"scale": "fp32"}
    head = {"queries": 1, "keys": 1, "D": 16, "BM": 128, "BN": 64, "CAUSAL": True, "PRECISION": "ieee"}
    assert_fits(compile_kernel(k.flash_kernel, flash, head, num_warps=4))

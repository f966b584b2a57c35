"""Kernels mean the same to numba's compiler as to the simulator, as far as that can be seen without a GPU.

Every kernel is typed and compiled for sm_90, and where the simulator sees float64 arithmetic the
compiler has it, and nowhere else. PTX is made where NVIDIA's compiler library is installed.
"""

import math
import re

import numpy as np
import pytest
from numpy import float32

from labsupport.cuda import simt
from labsupport.cuda.kernels import ladder, lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.cuda.simt import launch
from tests.cuda import kernels_right as right

pytest.importorskip("numba.cuda", reason="numba-cuda is made for Linux; the agreement is tested there")

from labsupport.cuda import numba_backend
from labsupport.exercises import get
from labsupport.grading.judge import judge

V, M, I, D = "float32[::1]", "float32[:,::1]", "int32[::1]", "float64[::1]"
KERNELS = {
    ladder.vector_add: (V, V, V),
    ladder.reduce_tree: (V, V),
    ladder.reduce_shuffle: (V, V),
    ladder.transpose_naive: (M, M),
    ladder.transpose_shared: (M, M),
    ladder.transpose_padded: (M, M),
    ladder.matmul_naive: (M, M, M),
    ladder.matmul_coalesced: (M, M, M),
    ladder.make_matmul_shared(16): (M, M, M),
    ladder.make_matmul_register(32, 32, 8, 4, 4): (M, M, M),
    ladder.softmax_row: (M, M),
    ladder.softmax_online: (M, M),
    ladder.layer_norm: (M, V, V, M, "float32"),
    lessons.silu: (V, V),
    lessons.add_guarded: (V, V, V),
    lessons.reduce_tree: (V, V),
    lessons.reduce_shuffle: (V, V),
    lessons.transpose: (M, M),
    lessons.shared_tile: (M, M, M),
    lessons.register_tile: (M, M, M),
    lessons.softmax_row: (M, M),
    lessons.online_softmax: (M, M),
    lessons.flash_block: (M, M, M, M, "int32"),
    lessons.layer_norm: (M, V, V, M, "float32"),
    lessons.layer_norm_states: (M, V, V, M, "float32"),
    lessons.rms_norm: (M, V, M, "float32"),
}
SIMULATED = {
    right.add: (V, V, V),
    right.matmul_tiled: (M, M, M),
    right.block_sum: (V, V),
    right.warp_sum: (V, V),
    right.warp_exchange: (V,),
    right.votes: (V, "int64[:,::1]"),
    right.shuffles: (V, M),
    right.histogram: (I, I),
    right.atomics: (I, I),
    right.transpose: (M, M),
    right.transpose_conflicts: (M, M),
    right.copy_rows: (M, M),
    right.copy_columns: (M, M),
    right.dynamic_reverse: (V,),
    right.local_polynomial: (V, V),
    right.uses_device_function: (V,),
    right.grid_of_three: ("int32[:,:,::1]",),
    right.grid_stride: (V,),
    right.two_arrays_at_once: (V, V),
    right.swap: (I,),
    right.types: (V, I, D),
    right.float64_accumulator: (V, V),
    right.softmax_row: (M, M),
}
#: Arithmetic on doubles; constants that are rounded at once are none.
DOUBLE = re.compile(r"= (?:fadd|fsub|fmul|fdiv|frem|fcmp \w+|fpext float .* to) double|fpext float")


def name(kernel):
    return getattr(kernel, "__name__", None)


def signature(types):
    return ", ".join(types)


@pytest.mark.parametrize(("kernel", "types"), KERNELS.items(), ids=name)
def test_a_kernel_of_the_book_compiles_for_sm_90_without_a_float64(kernel, types):
    text = numba_backend.compile_llvm(kernel, signature(types))
    assert not DOUBLE.search(text), DOUBLE.search(text)


def test_the_heads_of_flash_attention_compile_too():
    heads = "float32[:,:,::1]"
    text = numba_backend.compile_llvm(get("kernel-flash-block").reference, signature((heads,) * 4 + ("int32",)))
    assert not DOUBLE.search(text)


@pytest.mark.parametrize(("kernel", "types"), SIMULATED.items(), ids=name)
def test_what_the_simulator_accepts_numba_compiles(kernel, types):
    assert "define" in numba_backend.compile_llvm(kernel, signature(types))


def test_every_kernel_with_a_public_name_is_compiled_here():
    compiled = {kernel.__name__ for kernel in KERNELS}
    made = {name.replace("make_", "") for name in (*ladder.__all__, *lessons.__all__) if name.islower()}
    assert made - {"edited"} <= compiled
    ours = {v.__name__ for v in vars(right).values() if isinstance(v, simt.Kernel) and not v.device}
    assert ours == {kernel.__name__ for kernel in SIMULATED}


@pytest.mark.skipif(
    not numba_backend.has_nvvm(), reason="PTX is made by NVIDIA's nvvm and nvrtc, which are not installed"
)
@pytest.mark.parametrize(("kernel", "types"), {**KERNELS, **SIMULATED}.items(), ids=name)
def test_ptx_for_sm_90(kernel, types):
    ptx = numba_backend.compile_ptx(kernel, signature(types))
    assert ".target sm_90" in ptx
    assert ".entry" in ptx


def test_without_nvidia_s_compiler_ptx_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setattr(numba_backend, "has_nvvm", lambda: False)
    with pytest.raises(RuntimeError, match=r"numba-cuda\[cu13\]"):
        numba_backend.compile_ptx(ladder.vector_add, signature((V, V, V)))


# -- types ----------------------------------------------------------------------------------


def stores(a, b, out):
    x = a[0]  # noqa: F841
    y = b[0]  # noqa: F841
    out[0] = 0  # the expression


def returns(x, y):
    return 0  # the expression


EXPRESSIONS = ["x * y", "x + y", "x - y", "x / y", "x // y", "x % y", "min(x, y)", "max(x, y)", "x ** y"]
NAMES = ["float16", "float32", "float64", "int32", "int64"]
PAIRS = [(a, b) for a in NAMES for b in NAMES]
#: With one operand alone: literals of either kind, casts and the functions of math.
ALONE = [
    "2 * x", "x + 1", "1 - x", "x / 2", "x // 2", "x % 2", "x * 0.5", "x * float32(0.5)", "-x", "max(0, x)",
    "max(float32(0.0), x)", "min(x, 1.0)", "float(x)", "int(x)", "math.exp(x)", "math.sqrt(x)", "math.log(x)",
    "math.floor(x)", "math.pow(x, x)", "math.tanh(x)", "abs(x)", "(x + x) * x", "2 * 3 * x", "x * (1 + 2)",
    "x ** 2", "(x - 1) ** 2", "2 ** x", "x ** 0.5",
]  # fmt: skip


def simulator_says_float64(expression, a, b):
    kernel = edited(stores, ("0  # the expression", expression))
    arrays = [np.array([3], a), np.array([2], b)]
    report = launch(kernel, 1, 1, *arrays, np.zeros(1, np.float32))
    return bool(report.float64_lines)


def numba_says_float64(expression, a, b):
    function = edited(returns, ("0  # the expression", expression))
    return numba_backend.infer(function, f"{a}, {b}") == "float64"


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_two_operands_meet_in_the_compiler_s_type(a, b):
    differ = [e for e in EXPRESSIONS if simulator_says_float64(e, a, b) != numba_says_float64(e, a, b)]
    assert not differ


@pytest.mark.parametrize("a", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("expression", ALONE)
def test_literals_and_functions_have_the_compiler_s_type(expression, a):
    assert simulator_says_float64(expression, a, a) == numba_says_float64(expression, a, a)


def test_a_choice_between_a_float32_and_an_integer_is_the_one_known_difference():
    """The compiler gives a conditional expression one type; the simulator has the type of the branch that is taken."""
    expression = "x if x > y else 0"
    assert numba_says_float64(expression, "float32", "float32")
    assert not simulator_says_float64(expression, "float32", "float32")


ACCUMULATORS = {"float32(0.0)": False, "0.0": True, "0": True, "float64(0.0)": True}


@pytest.mark.parametrize(("start", "wide"), ACCUMULATORS.items())
def test_a_float64_accumulator_is_seen_by_both(start, wide):
    kernel = edited(lessons.shared_tile, ("acc = float32(0.0)", f"acc = {start}"))
    text = numba_backend.compile_llvm(kernel, signature((M, M, M)))
    A, C = np.ones((8, 8), np.float32), np.zeros((8, 8), np.float32)
    report = launch(kernel, 1, (8, 8), A, A, C)
    assert bool(DOUBLE.search(text)) == bool(report.float64_lines) == wide


def test_integer_division_rounds_down_in_both():
    assert numba_backend.infer(edited(returns, ("0  # the expression", "x // y")), "int32, int32") == "int64"
    out = np.zeros(3, np.int64)

    def divides(a, out):
        out[0] = a[0] // 2
        out[1] = a[0] % 3
        out[2] = -a[0] // 2

    launch(divides, 1, 1, np.array([-7], np.int32), out)
    assert out.tolist() == [-4, 2, 3]


def test_math_of_a_float32_is_computed_in_float32():
    out = np.zeros(1, np.float32)

    def exponential(x, out):
        out[0] = math.exp(x[0]) * float32(1.0)

    launch(exponential, 1, 1, np.array([0.1], np.float32), out)
    assert out[0] == np.exp(np.float32(0.1))
    assert not DOUBLE.search(numba_backend.compile_llvm(exponential, signature((V, V))))


# -- rebinding ------------------------------------------------------------------------------


def test_a_kernel_for_the_gpu_sees_numba_s_cuda_and_leaves_the_original_alone():
    from numba import cuda

    dispatcher = numba_backend.for_gpu(ladder.softmax_row)
    assert dispatcher.py_func.__globals__["cuda"] is cuda
    assert type(dispatcher.py_func.__globals__["block_max"]).__module__.startswith("numba")
    assert ladder.softmax_row.__globals__["cuda"] is simt.cuda
    with pytest.raises(TypeError, match="written with def"):
        numba_backend.for_gpu(3)


def test_kernels_decorated_by_numba_run_in_the_simulator_and_are_judged():
    from numba import cuda

    kernel = cuda.jit(edited(lessons.silu, ("cuda.grid(1)", "cuda.grid(1)")))
    assert judge(get("kernel-map"), kernel).state == "pass"
    wrong = cuda.jit(edited(lessons.silu, ("cuda.grid(1)", "cuda.threadIdx.x")))
    assert judge(get("kernel-map"), wrong).mistake == "thread-index-alone"


def test_a_plain_function_called_from_a_kernel_is_refused_by_both():
    def calls(x):
        x[0] = signature(x)

    with pytest.raises(simt.UnsupportedError, match="plain Python function"):
        launch(calls, 1, 1, np.zeros(1, np.float32))
    with pytest.raises(Exception, match="signature"):
        numba_backend.compile_llvm(calls, V)


@pytest.mark.skipif(
    not numba_backend.has_nvvm(), reason="PTX is made by NVIDIA's nvvm and nvrtc, which are not installed"
)
def test_the_register_tile_computes_more_than_it_computes_addresses():
    """A step over k is 64 multiply-adds and 16 loads; in the registers, and with few instructions besides."""
    ptx = numba_backend.compile_ptx(ladder.make_matmul_register(128, 128, 16, 8, 8), signature((M, M, M)))
    assert ".local" not in ptx, "a thread's results are not in registers"
    blocks = [
        re.findall(r"^\t(?:@!?%p\d+ )?([a-z]\S*)", part, re.MULTILINE) for part in re.split(r"^\$\S+:", ptx, flags=re.M)
    ]
    step = max(blocks, key=lambda names: sum(name.startswith("fma") for name in names))
    assert sum(name == "fma.rn.f32" for name in step) == 64
    assert sum(name.startswith("ld.shared") for name in step) == 16
    assert len(step) <= 64 + 16 + 30, [name for name in step if name != "fma.rn.f32"]

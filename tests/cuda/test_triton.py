"""The Triton kernels against float64 in Triton's mended interpreter, and the interpreter against known arithmetic."""

import sys
from pathlib import Path

import numpy as np
import pytest

from labsupport.cuda.triton_compile import unavailable
from labsupport.cuda.triton_interpreter import Interpreter, KernelError, KernelTimeout, Tensor, round_tf32

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no Triton: {unavailable()}")

OPS = "labsupport.cuda.triton_ops:"
WRONG = f"{Path(__file__).with_name('triton_wrong.py')}:"
DTYPES = ("float32", "float16", "bfloat16")


@pytest.fixture(scope="module")
def interpreter():
    with Interpreter(seconds=60) as it:
        yield it


def run(interpreter, operation, *tensors, dtype="float32", **options):
    """Call an operation with tensors of ``dtype``; return its results with their truths and bounds."""
    import torch

    from labsupport.cuda import truth

    def pair(x):
        floating = np.issubdtype(x.dtype, np.floating)
        t = torch.from_numpy(x)
        return (Tensor(x, dtype), t.to(getattr(torch, dtype))) if floating else (x, t)

    sent, here = zip(*map(pair, tensors), strict=True)
    got = interpreter.call(OPS + operation, *sent, **options)
    due = {k: v for k, v in options.items() if k in ("causal", "precision", "eps") and v is not None}
    return got, *getattr(truth, operation)(*here, **due)


def assert_within(got, exact, bound):
    error = np.abs(np.asarray(got, np.float64) - exact.numpy())
    worst = np.unravel_index(np.argmax(error - bound.numpy()), error.shape)
    assert (error <= bound.numpy()).all(), f"error {error[worst]:.3g} at {worst}, bound {bound.numpy()[worst]:.3g}"


def normal(*shape, seed=0, scale=1.0, shift=0.0):
    return (np.random.default_rng(seed).normal(size=shape) * scale + shift).astype(np.float32)


# -- products -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 16, 16), (100, 70, 45), (3, 257, 130), (150, 64, 300)])
@pytest.mark.parametrize(
    ("dtype", "precision"), [("float32", "ieee"), ("float32", "tf32"), ("float16", None), ("bfloat16", None)]
)
def test_matmul(interpreter, shape, dtype, precision):
    M, K, N = shape
    assert_within(*run(interpreter, "matmul", normal(M, K), normal(K, N, seed=1), dtype=dtype, precision=precision))


@pytest.mark.parametrize(("name", "precision"), [("half", None), ("tf32", "tf32"), ("ieee", "ieee")])
def test_every_tile_gives_the_same_product(interpreter, name, precision):
    from labsupport.cuda.triton_ops import CONFIGS

    dtype = "bfloat16" if precision is None else "float32"
    for number, tile in enumerate(CONFIGS[name]):
        # No size is a multiple of a tile's; the copy engine wants rows that begin at multiples of 16 bytes.
        K, N = (40, 144) if tile.TMA else (33, 140)
        a, b = normal(70, K), normal(K, N, seed=1)
        got = interpreter.call(
            f"{Path(__file__).with_name('triton_calls.py')}:with_tile",
            Tensor(a, dtype),
            Tensor(b, dtype),
            name,
            number,
            precision,
        )
        _, exact, bound = run(interpreter, "matmul", a, b, dtype=dtype, precision=precision)
        assert_within(got, exact, bound)


def test_the_copy_engine_takes_b_in_rows_of_n_too_and_refuses_crooked_rows(interpreter):
    call = f"{Path(__file__).with_name('triton_calls.py')}:with_tile"
    a, b = normal(20, 40), normal(50, 40, seed=1)
    for name, number, dtype, precision in (("half", 4, "float16", None), ("tf32", 4, "float32", "tf32")):
        got = interpreter.call(call, Tensor(a, dtype), Tensor(b, dtype, (40, 50), (1, 40)), name, number, precision)
        _, exact, bound = run(interpreter, "matmul", a, np.ascontiguousarray(b.T), dtype=dtype, precision=precision)
        assert_within(got, exact, bound)
    with pytest.raises(KernelError, match="rows are contiguous and begin at 16 bytes"):
        interpreter.call(call, Tensor(normal(20, 33), "float16"), Tensor(normal(33, 40), "float16"), "half", 4, None)


def test_matmul_of_views(interpreter):
    """Transposed and strided factors: strides are arguments of the kernel."""
    a, b = normal(40, 50), normal(30, 80, seed=1)
    got = interpreter.call(
        OPS + "matmul",
        Tensor(a, "float32", (50, 40), (1, 50)),
        Tensor(b, "float32", (40, 30), (1, 80)),
        precision="ieee",
    )
    np.testing.assert_allclose(got, a.T.astype(float) @ b[:, :40].T, rtol=0, atol=1e-4)


def test_tf32_is_coarser_than_float32(interpreter):
    a, b = normal(64, 64), normal(64, 64, seed=1)
    errors = [
        np.abs(interpreter.call(OPS + "matmul", a, b, precision=p) - a.astype(float) @ b).max()
        for p in ("ieee", "tf32")
    ]
    assert errors[1] > 100 * errors[0]


# -- rows -----------------------------------------------------------------------------------

ROWS = [(1, 1), (3, 5), (2, 128), (4, 1000), (2, 16385), (2, 33000)]


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(interpreter, shape, dtype):
    assert_within(*run(interpreter, "softmax", normal(*shape, scale=3), dtype=dtype))


@pytest.mark.parametrize("columns", [7, 33000])
def test_softmax_of_extreme_rows(interpreter, columns):
    x = normal(4, columns)
    x[0] *= 1e4
    x[1] = -1e30
    x[2, : columns // 2] = -np.inf
    x[3, 0] = 3e38
    assert_within(*run(interpreter, "softmax", x))


@pytest.mark.parametrize("columns", [7, 33000])
def test_softmax_keeps_what_is_not_a_number(interpreter, columns):
    x = normal(2, columns)
    x[0] = -np.inf
    x[1, 3] = np.nan
    assert np.isnan(interpreter.call(OPS + "softmax", x)).all()


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(interpreter, shape, dtype):
    x, w, b = normal(*shape, scale=3, shift=2), normal(shape[1], seed=1), normal(shape[1], seed=2)
    assert_within(*run(interpreter, "layer_norm", x, w, b, dtype=dtype))
    assert_within(*run(interpreter, "rms_norm", x, w, dtype=dtype))


@pytest.mark.parametrize("columns", [1000, 20000])
def test_layer_norm_far_from_zero(interpreter, columns):
    """σ = 1 around 1000, where E[x²] − E[x]² has no digit left."""
    x, one = normal(2, columns, shift=1000), np.ones(columns, np.float32)
    got, exact, bound = run(interpreter, "layer_norm", x, one, 0 * one)
    assert_within(got, exact, bound)
    assert bound.max() < 0.05


@pytest.mark.parametrize("columns", [1, 9, 1000, 40000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy(interpreter, columns, dtype):
    x = normal(6, columns, scale=4)
    targets = np.random.default_rng(1).integers(columns, size=6)
    (loss, gradient), exact, bound = run(interpreter, "cross_entropy", x, targets, dtype=dtype)
    assert loss.dtype == np.float32
    assert_within(loss, exact[0], bound[0])
    assert_within(gradient, exact[1], bound[1])


def test_cross_entropy_of_extreme_logits(interpreter):
    x = normal(3, 50)
    x[0] *= 1e4
    x[1, 7] = 3e38
    x[2, :49] = -np.inf
    (loss, gradient), exact, bound = run(interpreter, "cross_entropy", x, np.array([3, 7, 49]))
    assert np.isfinite(gradient).all()
    assert_within(loss, exact[0], bound[0])
    assert_within(gradient, exact[1], bound[1])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("dtype", "precision"), [("float32", "ieee"), ("float32", "tf32"), ("float16", None), ("bfloat16", None)]
)
@pytest.mark.parametrize(("length", "dim"), [(1, 16), (64, 64), (100, 32), (300, 64)])
def test_flash_attention(interpreter, length, dim, dtype, precision, causal):
    q, k, v = (normal(2, 1, length, dim, seed=s) for s in range(3))
    assert_within(*run(interpreter, "flash_attention", q, k, v, dtype=dtype, causal=causal, precision=precision))


def test_flash_attention_other_lengths_and_large_scores(interpreter):
    q, k, v = normal(1, 2, 37, 64, scale=30), normal(1, 2, 150, 64, seed=1, scale=30), normal(1, 2, 150, 64, seed=2)
    assert_within(*run(interpreter, "flash_attention", q, k, v, precision="ieee"))
    wide = [normal(1, 1, 70, 256, seed=s) for s in range(3)]
    assert_within(*run(interpreter, "flash_attention", *wide, dtype="bfloat16", causal=True))


# -- wrong neighbours -----------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["none", "zero for the tail", "no shift"])
def test_wrong_softmax_is_found(interpreter, fault):
    import torch

    from labsupport.cuda import truth

    x = normal(3, 100, shift=-40)
    x[0] += 240
    got = interpreter.call(WRONG + "softmax", x, fault)
    exact, bound = truth.softmax(torch.from_numpy(x))
    inside = (np.abs(got - exact.numpy()) <= bound.numpy()).all()
    assert inside == (fault == "none")


@pytest.mark.parametrize("fault", ["no mask", "no mask on the store"])
def test_address_out_of_bounds_is_named(interpreter, fault):
    with pytest.raises(
        KernelError, match=r"out of bounds in program \(2, 0, 0\): 28 of 128 .*element 300 .*mask"
    ) as told:
        interpreter.call(WRONG + "softmax", normal(3, 100), fault)
    assert told.value.kind == "OutOfBounds"
    assert "tl." in told.value.line


@pytest.mark.parametrize("fault", ["none", "no mask on K", "bfloat16 accumulator"])
def test_wrong_product_is_found(interpreter, fault):
    import torch

    from labsupport.cuda import truth

    a, b = np.abs(normal(20, 500)), np.abs(normal(500, 40, seed=1))
    x, y = (torch.from_numpy(t).bfloat16() for t in (a, b))
    exact, bound = truth.matmul(x, y)
    sent = Tensor(a, "bfloat16"), Tensor(b, "bfloat16")
    if fault == "no mask on K":
        with pytest.raises(KernelError, match="load out of bounds"):
            interpreter.call(WRONG + "matmul", *sent, fault)
        return
    got = interpreter.call(WRONG + "matmul", *sent, fault)
    assert (np.abs(got - exact.numpy()) <= bound.numpy()).all() == (fault == "none")


@pytest.mark.parametrize("fault", ["none", "mean of squares", "tail in the variance"])
def test_wrong_variance_is_found(interpreter, fault):
    import torch

    from labsupport.cuda import truth

    x = normal(3, 100, shift=1000)
    got = interpreter.call(WRONG + "layer_norm", x, fault)
    exact, bound = truth.layer_norm(torch.from_numpy(x), torch.ones(100), torch.zeros(100))
    assert (np.abs(got - exact.numpy()) <= bound.numpy()).all() == (fault == "none")


# -- the interpreter ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_small_floats_are_rounded_as_torch_rounds_them(interpreter, dtype):
    import torch

    a, b = normal(200, scale=3), normal(200, seed=1, shift=4)
    got = interpreter.call(WRONG + "arithmetic", Tensor(a, dtype), Tensor(b, dtype)).reshape(4, 200)
    x, y = (torch.from_numpy(t).to(getattr(torch, dtype)) for t in (a, b))
    for row, due in zip(got, (x * y, x + y, x / y, x.abs()), strict=True):
        np.testing.assert_array_equal(row, due.float().numpy())


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_casts_are_torchs(interpreter, dtype):
    import torch

    x = np.concatenate([normal(300), normal(300, scale=1e-3), normal(100, scale=100), [0.0, -0.0, 448.0, 500.0]])
    x = x.astype(np.float32)
    got = interpreter.call(WRONG + "cast", x, dtype)
    np.testing.assert_array_equal(got, torch.from_numpy(x).to(getattr(torch, dtype)).float().numpy())


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_product_of_eight_bit_floats(interpreter, dtype):
    import torch

    a, b = normal(16, 32), normal(32, 16, seed=1)
    got = interpreter.call(WRONG + "dot", Tensor(a, dtype), Tensor(b, dtype))
    x, y = (torch.from_numpy(t).to(getattr(torch, dtype)).double() for t in (a, b))
    np.testing.assert_allclose(got, (x @ y).numpy(), rtol=0, atol=1e-4)


def test_default_precision_is_tf32_and_a_tile_must_suit_the_tensor_cores(interpreter):
    a, b = normal(16, 16), normal(16, 16, seed=1)
    exact = round_tf32(a).astype(float) @ round_tf32(b)
    np.testing.assert_allclose(interpreter.call(WRONG + "dot", a, b), exact, rtol=0, atol=1e-5)
    with pytest.raises(KernelError, match="K >= 16"):
        interpreter.call(WRONG + "dot", a[:, :8], b[:8])


def test_round_tf32():
    x = np.array([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -(1 + 2**-11), 9 * 2**-136, np.inf, np.nan], np.float32)
    due = [1.0, 1 + 2**-10, 1 + 2**-10, 1.0, -(1 + 2**-10), 9 * 2**-136, np.inf, np.nan]
    np.testing.assert_allclose(round_tf32(x), np.array(due, np.float32), rtol=0)


def test_atomics(interpreter):
    x = np.random.default_rng(0).integers(10, size=100).astype(np.int32)
    np.testing.assert_array_equal(interpreter.call(WRONG + "count", x, 10), np.bincount(x, minlength=10))
    with pytest.raises(KernelError, match="atomic operation out of bounds"):
        interpreter.call(WRONG + "count", x, int(x.max()))


def test_an_endless_kernel_is_stopped_and_a_dead_process_replaced():
    with Interpreter() as it:
        with pytest.raises(KernelTimeout, match="had not finished after 4 s"):
            it.call(WRONG + "endless", np.zeros(1, np.int32), seconds=4)
        with pytest.raises(KernelError, match=r"ended the interpreter's process .SIGSEGV."):
            it.call(WRONG + "crash")
        np.testing.assert_array_equal(it.call(WRONG + "speak", np.arange(3)), np.arange(3))


def test_an_interrupted_call_ends_its_process_and_the_next_one_is_answered(monkeypatch):
    from labsupport.cuda import triton_interpreter

    with Interpreter() as it:
        it.call(WRONG + "speak", 1)
        first = it._process
        with monkeypatch.context() as patch:
            patch.setattr(triton_interpreter, "_receive", lambda stream: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                it.call(WRONG + "speak", 2)
        assert first.poll() is not None
        assert it.call(WRONG + "speak", 3) == 3


def test_elsewhere_than_linux_the_reason_is_said(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match="made for Linux only, and this is darwin"):
        Interpreter()


# -- bad input ------------------------------------------------------------------------------

X = np.ones((4, 8), np.float32)
Q = np.ones((1, 2, 8, 16), np.float32)
BAD = {
    "a is float64": ("matmul", (X.astype(float), X), {"precision": "ieee"}),
    "axis 1 of a has 8 elements and axis 0 of b has 4": ("matmul", (X, X), {"precision": "ieee"}),
    "one dtype for all, got a float32, b float16": ("matmul", (X, Tensor(X.T, "float16")), {"precision": "ieee"}),
    "say precision=": ("matmul", (X, X.T.copy()), {}),
    "exact as they are": ("matmul", (Tensor(X, "float16"), Tensor(X.T, "float16")), {"precision": "tf32"}),
    "axis 0 is empty": ("softmax", (X[:0],), {}),
    "x has 1 axes": ("softmax", (X[0],), {}),
    "stride 4; it must be contiguous": ("softmax", (Tensor(X, "float32", (4, 8), (1, 4)),), {}),
    "x must be a torch tensor, got float": ("softmax", (1.0,), {}),
    "weight has shape .4,.; due is a contiguous vector of 8": ("layer_norm", (X, X[:, 0], X[0]), {}),
    "a target is 8; classes are 0 to 7": ("cross_entropy", (X, np.array([0, 1, 2, 8])), {}),
    "a target is -1": ("cross_entropy", (X, np.array([0, -1, 2, 1])), {}),
    "int64 vector with one class for each of the 4 rows": ("cross_entropy", (X, np.zeros(3, np.int64)), {}),
    "head dimension D is 24": ("flash_attention", (Q[..., :1].repeat(24, -1),) * 3, {"precision": "ieee"}),
    "head dimension D is 8": ("flash_attention", (Q[..., :8],) * 3, {"precision": "ieee"}),
    "a power of two from 16 to 64": ("flash_attention", (Q.repeat(8, -1),) * 3, {"precision": "ieee"}),
    "as many queries as keys, got 8 and 5": (
        "flash_attention",
        (Q, Q[:, :, :5], Q[:, :, :5]),
        {"precision": "ieee", "causal": True},
    ),
    "must be alike, and agree with q": ("flash_attention", (Q, Q[:, :1], Q), {"precision": "ieee"}),
    "batch × heads is 65536; a launch takes 65535 at most": (
        "flash_attention",
        (np.ones((2, 32768, 1, 16), np.float32),) * 3,
        {"precision": "ieee"},
    ),
    "q has 3 axes": ("flash_attention", (Q[0],) * 3, {"precision": "ieee"}),
    "v is not contiguous": (
        "flash_attention",
        (Q, Q, Tensor(Q, "float32", Q.shape, (256, 128, 1, 8))),
        {"precision": "ieee"},
    ),
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_input_is_named(interpreter, sentence):
    operation, args, options = BAD[sentence]
    with pytest.raises(KernelError, match=sentence) as told:
        interpreter.call(OPS + operation, *args, **options)
    assert told.value.kind in ("ValueError", "TypeError")


def test_a_process_that_compiles_refuses_cpu_tensors():
    import torch

    from labsupport.cuda import triton_ops

    with pytest.raises(ValueError, match="Compiled kernels take CUDA tensors"):
        triton_ops.softmax(torch.ones(2, 3))


# -- check by name --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["triton-softmax", "triton-matmul-tf32", "triton-flash-causal", "triton-cross-entropy"]
)
def test_check_by_name(name):
    from labsupport.cuda.triton_check import check_triton

    checked = check_triton(name)
    assert checked and len(checked.lines) == 3, checked
    assert all("right" in line and "of what rounding explains" in line for line in checked.lines)


def test_check_by_name_elsewhere_says_why_and_shows_the_stored_run(monkeypatch):
    from labsupport.cuda.triton_check import check_triton

    with pytest.raises(ValueError, match="kernel of the SIMT ladder"):
        check_triton("simt-matmul-naive")
    monkeypatch.setattr(sys, "platform", "win32")
    checked = check_triton("triton-softmax")
    assert not checked
    assert "not checked here: Triton is made for Linux only" in str(checked)
    assert "fused softmax" in str(checked)

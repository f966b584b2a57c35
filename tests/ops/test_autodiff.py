"""Derivatives against torch.autograd in float64, against each other, and at their edges."""

import inspect
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport.ops.autodiff import (
    Value,
    central_difference,
    check_gradient,
    cross_entropy_backward,
    forward_difference,
    gelu,
    gelu_backward,
    hessian_vector,
    linear_backward,
    softmax_backward,
)


def torch_gradients(f, *arrays):
    """Gradients of ⟨f(arrays), random cotangent⟩ and the cotangent, by torch in float64."""
    tensors = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
    out = f(*tensors)
    cotangent = torch.from_numpy(np.random.default_rng(99).normal(size=tuple(out.shape)))
    (out * cotangent).sum().backward()
    return cotangent.numpy(), [t.grad.numpy() for t in tensors]


def test_a_value_used_twice_adds_both_gradients():
    x, y = Value(2.0, "x"), Value(3.0, "y")
    u = x * y
    loss = (u + x) ** 2
    loss.backward()
    assert (loss.data, x.grad, y.grad) == (64.0, 64.0, 32.0)  # 2v(y + 1) and 2vx with v = 8


def test_the_chain_rule_examples():
    a = Value(2.0)
    (a * a * 3.0).backward()
    assert a.grad == 12.0
    b = Value(3.0)
    (5 * b**2).backward()
    assert b.grad == 30.0


def test_backward_twice_gives_the_same_gradient():
    x = Value(1.5)
    y = x.exp() * x
    y.backward()
    first = x.grad
    y.backward()
    assert x.grad == first


numbers = st.floats(0.2, 3.0)


@settings(deadline=None)
@given(numbers, numbers, numbers)
def test_every_operation_agrees_with_torch(a, b, c):
    def f(x, y, z, relu):
        return (x * y - z / x + (y - 2) ** 3).tanh() + relu(z - x) * x.log() + (y * z).exp() ** 0.5 - 1 / z

    leaves = [Value(v) for v in (a, b, c)]
    out = f(*leaves, relu=lambda v: v.relu()) + leaves[0].sigmoid()
    out.backward()
    tensors = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (a, b, c)]
    expected = f(*tensors, relu=torch.relu) + tensors[0].sigmoid()
    expected.backward()
    assert out.data == pytest.approx(expected.item(), rel=1e-12, abs=1e-12)
    for leaf, tensor in zip(leaves, tensors, strict=True):
        assert leaf.grad == pytest.approx(tensor.grad.item(), rel=1e-11, abs=1e-11)


def test_a_long_chain_does_not_exhaust_the_stack():
    x = Value(1.0)
    y = x
    for _ in range(20_000):
        y = y + x
    y.backward()
    assert x.grad == 20_001.0


def test_edges_of_the_engine():
    assert Value(-800.0).sigmoid().data == 0.0
    assert Value(800.0).sigmoid().data == 1.0
    zero = Value(0.0)
    (zero.relu() + zero**0).backward()
    assert zero.grad == 0.0
    with pytest.raises(ValueError, match=r"math domain|positive"):
        Value(0.0).log()
    with pytest.raises(TypeError, match="fixed number"):
        Value(1.0) ** Value(2.0)
    with pytest.raises(TypeError, match="str"):
        Value(1.0) + "2"


def test_the_drawn_graph_shows_every_value_and_is_deterministic():
    def build():
        x, y = Value(2.0, "x"), Value(3.0, "<y>")
        loss = (x * y + x) ** 2
        loss.backward()
        return loss

    svg = build()._repr_svg_()
    assert svg == build()._repr_svg_()
    assert svg.count("<rect") == len(build().graph())
    assert svg.count("<path") == sum(len(v.parents) for v in build().graph())
    assert "&lt;y&gt;" in svg and 'role="img"' in svg and "grad 64" in svg


@pytest.mark.parametrize("batch", [(5,), (2, 3), (1,), (0,)])
def test_linear_backward_is_autograd(batch):
    rng = np.random.default_rng(0)
    X, W, b = rng.normal(size=(*batch, 4)), rng.normal(size=(4, 3)), rng.normal(size=3)
    dY, expected = torch_gradients(lambda X, W, b: X @ W + b, X, W, b)
    for got, want in zip(linear_backward(X, W, dY), expected, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def test_linear_backward_names_shapes_that_do_not_fit():
    X, W, dY = np.ones((5, 4)), np.ones((4, 3)), np.ones((5, 3))
    with pytest.raises(ValueError, match="size 4 but axis 0 of W has size 5"):
        linear_backward(X, np.ones((5, 3)), dY)
    with pytest.raises(ValueError, match=r"dY has shape \(3, 5\)"):
        linear_backward(X, W, dY.T)
    with pytest.raises(ValueError, match="1 axes"):
        linear_backward(X, np.ones(4), dY)


def test_softmax_backward_is_autograd_and_the_full_jacobian():
    z = np.random.default_rng(1).normal(size=(2, 3, 6)) * 3
    dp, (expected,) = torch_gradients(lambda z: torch.softmax(z, -1), z)
    p = torch.softmax(torch.from_numpy(z), -1).numpy()
    np.testing.assert_allclose(softmax_backward(p, dp), expected, rtol=1e-11, atol=1e-14)
    row, cotangent = p[0, 0], dp[0, 0]
    jacobian = np.diag(row) - np.outer(row, row)
    np.testing.assert_allclose(softmax_backward(row, cotangent), jacobian @ cotangent, rtol=1e-12, atol=1e-15)
    with pytest.raises(ValueError, match="same"):
        softmax_backward(p, dp[0])


def test_cross_entropy_backward_is_autograd_also_for_large_logits():
    rng = np.random.default_rng(2)
    targets = np.array([0, 4, 2])
    for scale in (1.0, 1000.0):
        logits = rng.normal(size=(3, 5)) * scale
        tensor = torch.tensor(logits, requires_grad=True)
        torch.nn.functional.cross_entropy(tensor, torch.from_numpy(targets)).backward()
        got = cross_entropy_backward(logits, targets)
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(got.sum(axis=-1), 0, atol=1e-15)
    assert cross_entropy_backward(logits.astype(np.float32), targets).dtype == np.float32


def test_cross_entropy_backward_names_bad_targets():
    logits = np.zeros((2, 3))
    for targets, message in [([0, 3], "V = 3"), ([-1, 0], "V = 3"), ([0], r"\(1,\)"), ([[0, 1]], r"\(B,\)")]:
        with pytest.raises(ValueError, match=message):
            cross_entropy_backward(logits, np.array(targets))
    with pytest.raises(TypeError, match="integers"):
        cross_entropy_backward(logits, np.array([0.0, 1.0]))
    with pytest.raises(ValueError, match="empty"):
        cross_entropy_backward(np.zeros((0, 3)), np.zeros(0, int))


def test_gelu_and_its_backward_are_torch_s_tanh_form():
    x = np.linspace(-6, 6, 101)
    dy, (expected,) = torch_gradients(lambda x: torch.nn.functional.gelu(x, approximate="tanh"), x)
    np.testing.assert_allclose(gelu_backward(x, dy), expected, rtol=1e-11, atol=1e-13)
    exact = torch.nn.functional.gelu(torch.from_numpy(x), approximate="tanh").numpy()
    np.testing.assert_allclose(gelu(x), exact, rtol=1e-12, atol=1e-14)


def test_central_difference_of_a_quadratic_is_exact_up_to_rounding():
    A = np.random.default_rng(3).normal(size=(4, 4))
    x = np.random.default_rng(4).normal(size=4)
    gradient = central_difference(lambda v: v @ A @ v, x)
    np.testing.assert_allclose(gradient, (A + A.T) @ x, rtol=1e-8)


def test_central_difference_keeps_shape_dtype_and_the_point():
    x = np.ones((2, 3), np.float32)
    before = x.copy()
    gradient = central_difference(lambda v: (v**2).sum(), x)
    assert gradient.shape == (2, 3) and gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, 2.0, rtol=1e-3)
    np.testing.assert_array_equal(x, before)
    assert central_difference(lambda v: v**2, 3).shape == ()
    assert central_difference(lambda v: v.sum(), np.array([1, 2])).dtype == np.float64
    assert central_difference(lambda v: 0.0, np.zeros((0, 2))).shape == (0, 2)


def test_central_difference_names_what_is_wrong():
    with pytest.raises(ValueError, match="positive"):
        central_difference(np.sum, np.ones(2), eps=0.0)
    with pytest.raises(ValueError, match=r"\(2,\)"):
        central_difference(lambda v: v, np.ones(2))


def test_check_gradient_finds_the_one_wrong_element():
    x = np.random.default_rng(5).normal(size=(3, 4))

    def f(v):
        return np.sin(v).sum()

    assert check_gradient(f, np.cos(x), x).passed
    wrong = np.cos(x)
    wrong[1, 2] *= 1.01
    outcome = check_gradient(f, wrong, x)
    assert not outcome.passed and outcome.index == (1, 2)
    assert outcome.error == pytest.approx(0.01, rel=0.05)
    assert not check_gradient(f, np.full_like(x, math.nan), x).passed
    assert not check_gradient(f, np.zeros_like(x), x).passed
    with pytest.raises(ValueError, match="same"):
        check_gradient(f, np.ones(3), x)


def test_the_engine_is_short_enough_to_read():
    lines = inspect.getsource(Value).splitlines()
    assert len(lines) < 150
    assert max(map(len, lines)) <= 76


def test_an_edge_over_several_columns_keeps_clear_of_every_box():
    x, y = Value(2.0, "x"), Value(3.0, "y")
    loss = ((x * y + 1.0).tanh() * x + x) ** 2
    svg = loss._repr_svg_()
    boxes = {(int(a), int(b)) for a, b in re.findall(r'<rect x="(\d+)" y="(\d+)"', svg)}
    passing = [(int(a), int(b)) for a, b in re.findall(r" (\d+) (\d+)H", svg)]
    assert passing, "no edge of this graph passes a column"
    for left, middle in passing:
        assert not [box for box in boxes if box[0] == left and box[1] <= middle <= box[1] + 52]


def test_the_graph_of_the_chapter_reads_on_a_phone():
    x, y = Value(2.0, "x"), Value(3.0, "y")
    svg = ((x * y + x) ** 2)._repr_svg_()
    width = float(re.search(r'viewBox="0 0 (\d+)', svg)[1])
    smallest = min(map(float, re.findall(r'font-size="(\d+)"', svg)))
    assert smallest * 325 / width > 8.7, "a page of 360 pixels has 325 for a figure"


def test_long_numbers_stay_inside_their_boxes():
    x = Value(7.0, "x")
    loss = x.tanh() ** 2
    loss.backward()
    texts = re.findall(r"<text([^>]*)>([^<]*)<", loss._repr_svg_())
    long = [(attributes, text) for attributes, text in texts if len(text) > 11]
    assert any(text.startswith("grad 6.6") for _, text in long), "no number of this graph is long"
    for attributes, text in long:
        assert float(re.search(r'textLength="(\d+)"', attributes)[1]) < 84, text


def test_the_drawn_graph_shows_each_local_derivative():
    x, y = Value(2.0, "x"), Value(3.0, "y")
    svg = (x * y - x)._repr_svg_()
    labels = re.findall(">×([^<]+)<", svg)
    assert sorted(labels) == ["1", "1", "2", "2", "3", "−1"]  # x·y: 3 and 2; −x: −1 and the 2 by the constant −1


def test_forward_difference_of_a_quadratic_is_off_by_half_the_step():
    x = np.array([1.0, -2.0, 0.5])
    step = 2.0**-10
    np.testing.assert_allclose(forward_difference(lambda v: (v**2).sum(), x, step), 2 * x + step, rtol=1e-10)
    assert forward_difference(lambda v: (v**2).sum(), x).shape == (3,)
    np.testing.assert_allclose(forward_difference(lambda v: (v**2).sum(), x), 2 * x, rtol=1e-6)
    assert forward_difference(lambda v: v.sum(), np.ones(2, np.float32)).dtype == np.float32
    with pytest.raises(ValueError, match="positive"):
        forward_difference(np.sum, x, eps=-1.0)
    with pytest.raises(ValueError, match=r"\(3,\)"):
        forward_difference(lambda v: v, x)


def test_hessian_vector_is_the_full_hessian_times_the_vector():
    rng = np.random.default_rng(6)
    A, x, v = rng.normal(size=(5, 5)), rng.normal(size=5), rng.normal(size=5)

    def gradient(w):
        return A.T @ np.tanh(A @ w)  # of the sum of log cosh(A w)

    full = A.T @ np.diag(1 - np.tanh(A @ x) ** 2) @ A
    np.testing.assert_allclose(hessian_vector(gradient, x, v), full @ v, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(hessian_vector(gradient, x, 1e6 * v), 1e6 * full @ v, rtol=1e-7, atol=1e-2)
    np.testing.assert_array_equal(hessian_vector(gradient, x, 0 * v), np.zeros(5))
    with pytest.raises(ValueError, match="same"):
        hessian_vector(gradient, x, v[:3])
    with pytest.raises(ValueError, match="positive"):
        hessian_vector(gradient, x, v, eps=0.0)

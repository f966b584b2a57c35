"""LayerNorm and RMSNorm against torch, forward and backward, and at their edges."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.utils._python_dispatch import TorchDispatchMode

from labsupport.ops.normalization import (
    layer_norm,
    layer_norm_backward,
    layer_norm_fused,
    layer_norm_naive,
    rms_norm,
    rms_norm_backward,
    rms_norm_fused,
    rms_norm_naive,
)

shapes = st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 9))


def drawn(shape, seed):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=shape) * 3 + 1,
        rng.normal(size=shape[-1]),
        rng.normal(size=shape[-1]),
        rng.normal(size=shape),
    )


@settings(deadline=None)
@given(shapes, st.integers(0, 10**6))
def test_layer_norm_is_torch_forward_and_backward(shape, seed):
    x, gamma, beta, dy = drawn(shape, seed)
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, gamma, beta)]
    out = torch.nn.functional.layer_norm(tensors[0], shape[-1:], tensors[1], tensors[2], 1e-5)
    out.backward(torch.tensor(dy))
    np.testing.assert_allclose(layer_norm(x, gamma, beta), out.detach().numpy(), rtol=1e-9, atol=1e-10)
    for got, tensor in zip(layer_norm_backward(x, gamma, dy), tensors, strict=True):
        scale = max(1.0, float(np.abs(tensor.grad.numpy()).max(initial=0)))
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-9, atol=1e-9 * scale)


@settings(deadline=None)
@given(shapes, st.integers(0, 10**6))
def test_rms_norm_is_torch_forward_and_backward(shape, seed):
    x, gamma, _, dy = drawn(shape, seed)
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, gamma)]
    out = torch.nn.functional.rms_norm(tensors[0], shape[-1:], tensors[1], 1e-5)
    out.backward(torch.tensor(dy))
    np.testing.assert_allclose(rms_norm(x, gamma), out.detach().numpy(), rtol=1e-10, atol=1e-11)
    for got, tensor in zip(rms_norm_backward(x, gamma, dy), tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtypes_are_kept(dtype):
    x, gamma, beta, dy = (a.astype(dtype) for a in drawn((2, 3, 8), 0))
    results = [layer_norm(x, gamma, beta), *layer_norm_backward(x, gamma, dy), rms_norm(x, gamma)]
    assert {r.dtype for r in [*results, *rms_norm_backward(x, gamma, dy)]} == {np.dtype(dtype)}


@given(hnp.arrays(np.float64, (3, 6), elements=st.floats(-100, 100)))
def test_layer_norm_rows_do_not_depend_on_the_batch(x):
    ones, zeros = np.ones(6), np.zeros(6)
    np.testing.assert_array_equal(layer_norm(x, ones, zeros)[1], layer_norm(x[1], ones, zeros))


def test_a_row_of_equal_numbers_gives_beta_and_a_row_of_zeros_gives_zeros():
    gamma, beta = np.full(4, 2.0), np.arange(4.0)
    np.testing.assert_array_equal(layer_norm(np.full((1, 4), 7.0), gamma, beta)[0], beta)
    np.testing.assert_array_equal(rms_norm(np.zeros((1, 4)), gamma)[0], np.zeros(4))


def test_a_large_mean_does_not_spoil_the_variance():
    x = 1e6 + np.array([[1.0, 2.0, 3.0, 4.0]])
    near = layer_norm(x, np.ones(4), np.zeros(4))
    np.testing.assert_allclose(near, layer_norm(x - 1e6, np.ones(4), np.zeros(4)), rtol=1e-9)


def test_bad_input_is_named():
    x, gamma = np.ones((2, 4)), np.ones(4)
    with pytest.raises(ValueError, match=r"beta has shape \(3,\)"):
        layer_norm(x, gamma, np.ones(3))
    with pytest.raises(ValueError, match="eps"):
        rms_norm(x, gamma, eps=0.0)
    with pytest.raises(ValueError, match="at least one"):
        rms_norm(np.ones((2, 0)), np.ones(0))
    with pytest.raises(ValueError, match="dy"):
        layer_norm_backward(x, gamma, np.ones((2, 3)))


class Dispatched(TorchDispatchMode):
    """Every operator that torch runs, with the elements of its tensor arguments and of its result."""

    def __init__(self):
        super().__init__()
        self.moved = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.moved.append((sum(a.numel() for a in args if isinstance(a, torch.Tensor)), out.numel()))
        return out


def test_the_naive_kernels_move_what_torch_moves_operator_by_operator():
    x, gamma, beta, _ = drawn((3, 4, 16), 1)
    t, g, b = map(torch.tensor, (x, gamma, beta))
    with Dispatched() as seen:
        centred = t - t.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        centred * (variance + 1e-5).rsqrt() * g + b
    _, launches = layer_norm_naive(x, gamma, beta)
    rows = x.size // 16  # torch adds eps and takes the root in two operators of one number a row each
    expected = [(k.reads, k.writes) for k in launches if k.name != "inverse root"]
    assert [pair for pair in seen.moved if pair != (rows, rows)] == expected


@settings(deadline=None)
@given(shapes, st.integers(0, 10**6))
def test_naive_and_fused_give_the_same_and_move_what_they_should(shape, seed):
    x, gamma, beta, _ = drawn(shape, seed)
    size, rows, width = x.size, x.size // shape[-1], shape[-1]
    for norm, naive, fused, parameters, naive_total in [
        (layer_norm, layer_norm_naive, layer_norm_fused, (gamma, beta), 12 * size + 6 * rows + 2 * width),
        (rms_norm, rms_norm_naive, rms_norm_fused, (gamma,), 7 * size + 4 * rows + width),
    ]:
        expected = norm(x, *parameters)
        for way, total in ((naive, naive_total), (fused, 2 * size + len(parameters) * width)):
            result, launches = way(x, *parameters)
            np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)
            assert sum(k.reads + k.writes for k in launches) == total


def test_layer_norm_gradients_are_orthogonal_to_what_the_layer_ignores():
    """A shift of a row changes nothing; nor does a scale, but for eps."""
    x, gamma, _, dy = drawn((5, 32), 3)
    dx, _, _ = layer_norm_backward(x, gamma, dy, eps=1e-12)
    np.testing.assert_allclose(dx.sum(-1), 0, atol=1e-12)
    np.testing.assert_allclose((dx * x).sum(-1), 0, atol=1e-11)
    dx, _ = rms_norm_backward(x, gamma, dy, eps=1e-12)
    np.testing.assert_allclose((dx * x).sum(-1), 0, atol=1e-11)

"""Optimizer steps against torch.optim over 100 steps, clipping and initial scales."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labsupport.ops.optim import (
    adam_step,
    adamw_step,
    clip_by_global_norm,
    global_norm,
    kaiming_std,
    momentum_step,
    sgd_step,
    xavier_std,
)

TOLERANCE = {np.float32: 1e-6, np.float64: 1e-12}


def run_torch(make, dtype, steps=100):
    """Parameters after training on a fixed quadratic by torch.optim."""
    theta = torch.tensor(start(dtype), requires_grad=True)
    optimizer = make([theta])
    for k in range(steps):
        optimizer.zero_grad()
        theta.grad = torch.from_numpy(gradient(theta.detach().numpy(), k))
        optimizer.step()
    return theta.detach().numpy()


def start(dtype):
    return np.random.default_rng(0).normal(size=(3, 5)).astype(dtype)


def gradient(theta, k):
    noise = np.random.default_rng(k).normal(size=theta.shape).astype(theta.dtype)
    return (theta * theta.dtype.type(0.5) + noise).astype(theta.dtype)


def close(ours, theirs, dtype):
    assert ours.dtype == dtype
    scale = np.abs(theirs).max()
    assert np.abs(ours - theirs).max() <= TOLERANCE[dtype] * scale


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sgd_is_torch(dtype):
    theta = start(dtype)
    for k in range(100):
        theta = sgd_step(theta, gradient(theta, k), 0.05)
    close(theta, run_torch(lambda p: torch.optim.SGD(p, lr=0.05), dtype), dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_momentum_in_the_sum_convention_is_torch(dtype):
    theta, velocity = start(dtype), np.zeros((3, 5), dtype)
    for k in range(100):
        theta, velocity = momentum_step(theta, gradient(theta, k), velocity, 0.02, 0.9)
    close(theta, run_torch(lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9), dtype), dtype)


def test_the_two_conventions_differ_by_the_learning_rate_only():
    theta = other = start(np.float64)
    v = u = np.zeros((3, 5))
    for k in range(20):
        g = gradient(theta, k)
        theta, v = momentum_step(theta, g, v, 0.01, 0.9)
        other, u = momentum_step(other, g, u, 0.1, 0.9, convention="average")
    np.testing.assert_allclose(theta, other, rtol=1e-12)


def test_dampening_in_torch_is_the_average_but_for_its_first_step():
    """torch starts the velocity with g, not with (1 − dampening)·g; the book warns of it."""
    theta, velocity = torch.zeros(1, dtype=torch.float64, requires_grad=True), np.zeros(1)
    optimizer = torch.optim.SGD([theta], lr=1.0, momentum=0.9, dampening=0.9)
    ours, steps = np.zeros(1), []
    for _ in range(2):
        before = theta.item()
        theta.grad = torch.ones(1, dtype=torch.float64)
        optimizer.step()
        ours, velocity = momentum_step(ours, np.ones(1), velocity, 1.0, 0.9, convention="average")
        steps.append((before - theta.item(), velocity.item()))
    assert steps[0] == (pytest.approx(1.0), pytest.approx(0.1))
    assert steps[1] == (pytest.approx(1.0), pytest.approx(0.19))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adam_and_adamw_are_torch_over_100_steps(dtype):
    for step, make, extra in [
        (adam_step, lambda p: torch.optim.Adam(p, lr=0.01), {}),
        (adamw_step, lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1), {"weight_decay": 0.1}),
    ]:
        theta, m, v = start(dtype), np.zeros((3, 5), dtype), np.zeros((3, 5), dtype)
        for k in range(100):
            theta, m, v = step(theta, gradient(theta, k), m, v, k + 1, lr=0.01, **extra)
        close(theta, run_torch(make, dtype), dtype)


def test_steps_change_nothing_in_place():
    theta, g, m, v = (np.ones(3) * k for k in range(1, 5))
    copies = [a.copy() for a in (theta, g, m, v)]
    adamw_step(theta, g, m, v, 1)
    momentum_step(theta, g, m, 0.1, 0.9)
    sgd_step(theta, g, 0.1)
    for array, copy in zip((theta, g, m, v), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_bad_arguments_are_named():
    one = np.ones(2)
    with pytest.raises(ValueError, match=r"grad has shape \(3,\)"):
        sgd_step(one, np.ones(3), 0.1)
    with pytest.raises(ValueError, match="t is 0"):
        adam_step(one, one, one, one, 0)
    with pytest.raises(ValueError, match="beta2 is 1"):
        adam_step(one, one, one, one, 1, beta2=1.0)
    with pytest.raises(ValueError, match="lr is -1"):
        sgd_step(one, one, -1.0)
    with pytest.raises(ValueError, match="convention"):
        momentum_step(one, one, one, 0.1, 0.9, convention="nesterov")
    with pytest.raises(ValueError, match="fan_in"):
        kaiming_std(0)


arrays = st.lists(
    hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, min_side=0, max_side=4), elements=st.floats(-1e3, 1e3)),
    max_size=4,
)


@given(arrays, st.floats(0.01, 100))
def test_clipping_is_torch_and_keeps_the_direction(grads, max_norm):
    clipped, norm = clip_by_global_norm(grads, max_norm)
    flat = np.concatenate([g.ravel() for g in grads]) if grads else np.zeros(0)
    assert norm == pytest.approx(np.linalg.norm(flat), rel=1e-12)
    assert global_norm(clipped) <= max_norm * (1 + 1e-12)
    for before, after in zip(grads, clipped, strict=True):
        factor = 1.0 if norm <= max_norm else max_norm / norm
        np.testing.assert_allclose(after, before * factor, rtol=1e-12)


def test_the_norm_neither_overflows_nor_vanishes():
    assert global_norm([np.full(4, 1e300)]) == pytest.approx(2e300)
    assert global_norm([np.full(4, 1e-300)]) == pytest.approx(2e-300)
    assert global_norm([np.full(4, 60000, np.float16)]) == pytest.approx(120000, rel=1e-3)
    assert global_norm([]) == 0.0
    assert math.isnan(global_norm([np.ones(2), np.array([np.nan])]))
    assert global_norm([np.array([np.inf])]) == math.inf


def test_clipping_refuses_a_norm_that_is_not_finite():
    for bad in (np.nan, np.inf):
        with pytest.raises(FloatingPointError, match="first non-finite"):
            clip_by_global_norm([np.ones(2), np.array([bad])], 1.0)
    with pytest.raises(ValueError, match="max_norm"):
        clip_by_global_norm([np.ones(2)], 0.0)
    assert clip_by_global_norm([np.ones(2, np.float32)], 0.5)[0][0].dtype == np.float32


def test_initial_scales_keep_the_variance():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 400))
    relu = np.maximum(x @ rng.normal(size=(400, 400)) * kaiming_std(400), 0)
    assert (relu**2).mean() == pytest.approx(1.0, rel=0.05)
    assert (x @ rng.normal(size=(400, 400)) * xavier_std(400, 400)).var() == pytest.approx(1.0, rel=0.05)

"""Random stacks against torch.autograd, and the growth that the formulas of the book predict."""

import numpy as np
import pytest
import torch

from labsupport.ops.depth import stack_profile


def by_torch(depth, width, gain, seed, activation, residual, branch, prenorm, batch):
    """The same stack in torch, with the gradients that autograd finds."""
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.normal(size=(batch, width)), requires_grad=True)
    weights = [torch.tensor(rng.normal(size=(width, width)) * gain / width**0.5) for _ in range(depth)]
    cotangent = torch.tensor(rng.normal(size=(batch, width)))
    act = {"linear": lambda a: a, "tanh": torch.tanh, "relu": torch.relu}[activation]
    outputs = [x]
    for W in weights:
        before = outputs[-1]
        n = torch.nn.functional.rms_norm(before, (width,), eps=1e-5) if prenorm else before
        f = branch * act(n @ W)
        outputs.append(before + f if residual else f)
    gradients = torch.autograd.grad(outputs[-1], outputs, grad_outputs=cotangent)
    return [[float((t.detach() ** 2).mean() ** 0.5) for t in group] for group in (outputs, gradients)]


@pytest.mark.parametrize("activation", ["linear", "tanh", "relu"])
@pytest.mark.parametrize(("residual", "branch", "prenorm"), [(False, 1, False), (True, 0.5, False), (True, 1, True)])
def test_signals_and_gradients_are_those_of_autograd(activation, residual, branch, prenorm):
    settings = (4, 6, 1.3)
    profile = stack_profile(*settings, np.random.default_rng(3), activation, residual, branch, prenorm, batch=5)
    signals, gradients = by_torch(*settings, 3, activation, residual, branch, prenorm, 5)
    np.testing.assert_allclose(profile.signals, signals, rtol=1e-12)
    np.testing.assert_allclose(profile.gradients, gradients, rtol=1e-10)
    assert [o.shape for o in profile.outputs] == [(5, 6)] * 5


def test_a_linear_stack_keeps_variance_times_gain_squared_at_every_layer():
    profile = stack_profile(10, 400, 0.9, np.random.default_rng(0))
    np.testing.assert_allclose(profile.signals, 0.9 ** np.arange(11), rtol=0.15)
    np.testing.assert_allclose(profile.gradients, 0.9 ** np.arange(10, -1, -1), rtol=0.15)


def test_a_residual_stack_multiplies_variance_by_one_plus_gain_squared():
    profile = stack_profile(8, 400, 1.0, np.random.default_rng(0), residual=True)
    np.testing.assert_allclose(profile.signals, 2 ** (np.arange(9) / 2), rtol=0.15)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="depth"):
        stack_profile(0, 4, 1.0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="gelu"):
        stack_profile(1, 4, 1.0, np.random.default_rng(0), "gelu")

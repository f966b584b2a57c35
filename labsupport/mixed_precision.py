"""A small real training run in 16 bits: torch computes, FP32 master weights are updated, the loss may be scaled.

It exists to show gradients that underflow and scaling that rescues them. It must never compute in a wider type
than it says: weights, activations and their gradients are of the given dtype.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labsupport.ops.floats import LossScaler
from labsupport.ops.optim import adam_step

__all__ = ["Run", "train"]

#: The network's output is multiplied by this: tenths of a millimetre, in metres.
UNIT = 1e-4
RATE = 0.01


@dataclass
class Run:
    """What a training run left behind.

    Args:
        losses: mean squared error before each step, relative to the first one.
        scales: the loss scale of each step.
        applied: whether each step was applied (False: skipped because a gradient was not finite).
        zeros_output: share of the entries of dL/dY that are exactly 0 at the first step.
        zeros_weights: the same share of the entries of the weights' gradients.
    """

    losses: list[float] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    applied: list[bool] = field(default_factory=list)
    zeros_output: float = 0.0
    zeros_weights: float = 0.0


def train(dtype: str, scaler: LossScaler | None = None, steps: int = 150, rows: int = 512, seed: int = 0) -> Run:
    """Fit a two-layer network to small targets, with Adam on FP32 master weights.

    The outputs are tenths of a millimetre in metres, about 1e-4, and the loss is a mean over ``rows * 8``
    numbers. So dL/dY is near 2·1e-4/(rows·8), at the lower end of FP16, and the gradients of the weights,
    which get the factor 1e-4 once more, lie below it.

    Args:
        dtype: "float32", "float16" or "bfloat16": of weights, activations and gradients.
        scaler: dynamic loss scaling; None trains unscaled.
        steps: number of steps.
        rows: examples, all of them in every step.
        seed: of data and initial weights.

    Source: "Mixed Precision Training" (Micikevicius et al., 2018), section 3.
    """
    import torch

    rng = np.random.default_rng(seed)
    kind = getattr(torch, dtype)
    X = torch.tensor(rng.normal(size=(rows, 16)), dtype=kind)
    hidden = rng.normal(size=(16, 8)) / 4
    target = torch.tensor(UNIT * np.sin(X.float().numpy() @ hidden), dtype=torch.float32)
    master = [rng.normal(size=shape).astype(np.float32) / 4 for shape in ((16, 32), (32, 8))]
    states = [(np.zeros_like(weight), np.zeros_like(weight)) for weight in master]
    run = Run()
    for step in range(steps):
        W1, W2 = (torch.from_numpy(weight).to(kind).requires_grad_() for weight in master)
        Y = torch.tanh(X @ W1) @ W2 * UNIT
        if step == 0:
            Y.register_hook(lambda dY: setattr(run, "zeros_output", _zeros(dY)))
        loss = (Y.float() - target).square().mean()
        scale = scaler.scale if scaler else 1.0
        (loss * scale).backward()
        run.losses.append(float(loss.detach()))
        run.scales.append(scale)
        grads = [weight.grad for weight in (W1, W2) if weight.grad is not None]
        if step == 0:
            run.zeros_weights = _zeros(torch.cat([grad.flatten() for grad in grads]))
        run.applied.append(_apply(master, states, grads, sum(run.applied) + 1, scaler))
    run.losses = [value / run.losses[0] for value in run.losses]
    return run


def _apply(master: list[Any], states: list[Any], grads: list[Any], t: int, scaler: LossScaler | None) -> bool:
    """One Adam step on the FP32 weights with the unscaled gradients; False where the step is skipped."""
    plain = [grad.float().numpy() for grad in grads]
    if scaler is not None:
        plain, finite = scaler.unscale(plain)
        if not scaler.update(finite):
            return False
    for i, grad in enumerate(plain):
        # An eps far below the gradients: the usual 1e-8 would itself hide gradients of this size.
        m, v = states[i]
        master[i], *states[i] = adam_step(master[i], grad, m, v, t, RATE, 0.9, 0.99, 1e-20)
    return True


def _zeros(gradient: Any) -> float:
    """Share of the entries that are exactly 0."""
    return float((gradient == 0).double().mean())

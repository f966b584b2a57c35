"""What several exercises of chapter 6 return to: the small decoder, and the loss of one weight."""

from __future__ import annotations

from labsupport.ops.autodiff import Value

#: Weights of the small decoder of section 6.1.
PARAMETERS = 4_120_768


def loss_and_slope(w: float, x: float, t: float) -> tuple[float, float]:
    """L = (w x − t)² and ∂L/∂w, by the engine of chapter 7."""
    weight = Value(w)
    loss = (weight * x - t) ** 2
    loss.backward()
    return loss.data, weight.grad

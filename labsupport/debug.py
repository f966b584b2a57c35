"""Find the first tensor that stopped being finite, by the name of the module that made it.

A loss of NaN is the last station of a long way; ``first_nonfinite`` watches a torch model while it runs, forward
and backward, and names the first. It must never change a value, and leaves no hook behind.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Finding", "Watch", "first_nonfinite", "watch"]


@dataclass(frozen=True)
class Finding:
    """One tensor that holds an infinity or a NaN.

    Args:
        module: its module's name as ``named_modules`` gives it ("model" for the outermost one).
        kind: "parameter", "input", "output" or "gradient" (of the loss, with respect to the module's output).
        type: the module's class.
        shape: the tensor's shape.
        dtype: the tensor's dtype, such as "float16".
        infinities: how many entries are infinite.
        nans: how many entries are NaN.
        largest_before: largest finite magnitude among the tensors that came in (0 where there is none).
    """

    module: str
    kind: str
    type: str
    shape: tuple[int, ...]
    dtype: str
    infinities: int
    nans: int
    largest_before: float

    def __str__(self) -> str:
        count = f"{self.infinities} inf, {self.nans} NaN"
        return f"{self.kind} of {self.module} ({self.type}, {self.dtype}, shape {self.shape}): {count}"


@dataclass
class Watch:
    """What was found so far, in the order of execution.

    A module that hands a bad input on is not listed again: only the tensors at which something went wrong first.
    """

    findings: list[Finding] = field(default_factory=list)

    @property
    def first(self) -> Finding | None:
        """The first bad tensor, or None while everything is finite."""
        return self.findings[0] if self.findings else None


def _tensors(value: Any) -> Iterator[Any]:
    """All floating tensors in nested tuples, lists and dicts."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def _bad(value: Any) -> Any:
    """The first tensor in ``value`` that is not finite, or None."""
    return next((tensor for tensor in _tensors(value) if not bool(tensor.isfinite().all())), None)


def _largest(value: Any) -> float:
    """Largest finite magnitude in ``value``; 0 for none."""
    finite = [tensor.detach().float()[tensor.isfinite()].abs() for tensor in _tensors(value)]
    return max((float(part.max()) for part in finite if part.numel()), default=0.0)


def _finding(name: str, kind: str, module: Any, tensor: Any, before: Any) -> Finding:
    return Finding(
        module=name or "model",
        kind=kind,
        type=type(module).__name__,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        infinities=int(tensor.isinf().sum()),
        nans=int(tensor.isnan().sum()),
        largest_before=_largest(before),
    )


def _forward_hooks(name: str, module: Any, found: list[Finding]) -> tuple[Callable[..., None], Callable[..., None]]:
    """A hook before the module (its parameters, and inputs nobody in the model made) and one after (its output)."""

    def before(_module: Any, args: Any, kwargs: Any) -> None:
        if found:
            return
        for parameter_name, parameter in module.named_parameters(recurse=False):
            if _bad(parameter) is not None:
                full = f"{name}.{parameter_name}".lstrip(".")
                found.append(_finding(full, "parameter", module, parameter, ()))
        bad = _bad((args, kwargs))
        if bad is not None:
            found.append(_finding(name, "input", module, bad, ()))

    def after(_module: Any, args: Any, kwargs: Any, output: Any) -> None:
        # Children end before their parent: the innermost module that broke
        # reports first, and only once.
        bad = None if found else _bad(output)
        if bad is not None:
            found.append(_finding(name, "output", module, bad, (args, kwargs)))

    return before, after


def _backward_hook(name: str, module: Any, found: list[Finding]) -> Callable[..., None]:
    """A hook on the module's output that looks at the gradient when it arrives from above."""

    def after(_module: Any, _args: Any, output: Any) -> None:
        for tensor in _tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(arrived)

    def arrived(gradient: Any) -> None:
        if not found and _bad(gradient) is not None:
            found.append(_finding(name, "gradient", module, gradient, ()))

    return after


@contextmanager
def watch(model: Any) -> Iterator[Watch]:
    """Watch a torch module: every forward and backward pass in the ``with`` block is looked at.

    Args:
        model: a ``torch.nn.Module``. Its results are the same with and without the watch; it runs slower, since
            every tensor is read once more (and, on a GPU, waited for).

    Yields:
        a ``Watch``; after the pass ``.first`` is the first bad tensor or None.

    Raises:
        TypeError: ``model`` is no torch module.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"watch takes a torch.nn.Module, not {type(model).__name__}")
    seen = Watch()
    handles = []
    for name, module in model.named_modules():
        before, after = _forward_hooks(name, module, seen.findings)
        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
        handles.append(module.register_forward_hook(_backward_hook(name, module, seen.findings)))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def first_nonfinite(model: Any, *inputs: Any, loss: Callable[[Any], Any] | None = None) -> Finding | None:
    """The first tensor that is not finite when the model runs on these inputs, or None.

    Args:
        model: a ``torch.nn.Module``.
        inputs: what the model is called with.
        loss: takes the model's output to a scalar; with it the backward pass is watched as well, and its
            gradients are added to those of the parameters.

    Raises:
        TypeError: ``model`` is no torch module.
    """
    with watch(model) as seen:
        output = model(*inputs)
        if loss is not None and seen.first is None:
            loss(output).backward()
    return seen.first

"""The training loop, once, for two engines: the NumPy reference and torch with its own autograd and AdamW.

A step's batch depends on the seed and the step alone, so that engines, ranks and resumed runs see the same data.
Nothing here prints; what happened in a step is handed to the caller.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from labsupport import torch_twin
from labsupport.ops import optim, transformer
from labsupport.ops.softmax import sample, top_k, top_p
from labsupport.ops.transformer import Config, Parameters
from labsupport.training.corpus import Tokenizer, train_tokenizer, write_corpus
from labsupport.training.files import Saved

__all__ = [
    "Engine", "NumpyEngine", "Report", "Run", "Settings", "TorchEngine", "batch", "chooser", "evaluate",
    "layer_norms", "learning_rate", "prepare", "train",
]

Array = npt.NDArray[Any]
Chooser = Callable[[Array], Array]
#: The lab's transformer: 25,600 parameters.
MODEL = Config(vocab=80, width=32, layers=2, hidden=64, heads=2)


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run; the same settings give the same run.

    Args:
        model: sizes of the transformer.
        rows, length: B blocks of T tokens a step.
        steps: length of the schedule.
        lr: the largest learning rate, reached after ``warmup`` steps; at the end it is ``floor`` of it.
        max_norm: limit of the global norm of the gradients.
        weight_decay: λ of AdamW.
        seed: of corpus, parameters and batches.
        sentences: size of the training text.
    """

    model: Config = MODEL
    rows: int = 16
    length: int = 32
    steps: int = 240
    lr: float = 0.01
    warmup: int = 20
    floor: float = 0.1
    max_norm: float = 1.0
    weight_decay: float = 0.01
    seed: int = 0
    sentences: int = 2000


@dataclass(frozen=True)
class Report:
    """One step: the loss before the update in nats, the global gradient norm before clipping, a norm for each layer."""

    loss: float
    norm: float
    layers: dict[str, float]


@dataclass
class Run:
    """What a run went through, a value for each step from ``first`` on."""

    first: int = 0
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    layers: list[dict[str, float]] = field(default_factory=list)

    def add(self, report: Report, rate: float) -> None:
        """Append one step."""
        self.losses.append(report.loss)
        self.norms.append(report.norm)
        self.rates.append(rate)
        self.layers.append(report.layers)


class Engine(Protocol):
    """Who computes a step: holds parameters and the state of AdamW."""

    #: Number of updates so far.
    t: int

    def step(self, ids: Array, labels: Array, lr: float) -> Report:
        """Forward, loss, backward, clip, update."""

    def saved(self) -> Saved:
        """Copies of parameters, moments and step, as a file keeps them."""


def prepare(settings: Settings) -> tuple[Tokenizer, Array, Array]:
    """A tokenizer, the token ids of the training text and those of a held-out text a tenth as long."""
    text = write_corpus(settings.sentences, np.random.default_rng([settings.seed, 1]))
    held_out = write_corpus(max(1, settings.sentences // 10), np.random.default_rng([settings.seed, 2]))
    tokenizer = train_tokenizer(text, settings.model.vocab)
    return tokenizer, tokenizer.encode(text), tokenizer.encode(held_out)


def batch(stream: Array, rows: int, length: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Blocks (B, T) from random places of the stream, and their labels (B, T): each the token that follows.

    Raises:
        ValueError: the stream is shorter than T + 1.
    """
    if len(stream) < length + 1:
        raise ValueError(f"the stream has {len(stream)} tokens; a block of {length} with its labels needs {length + 1}")
    starts = rng.integers(0, len(stream) - length, size=rows)
    windows = stream[starts[:, None] + np.arange(length + 1)]
    return windows[:, :-1], windows[:, 1:]


def learning_rate(step: int, settings: Settings) -> float:
    """η of a step, counted from 0: a straight line up to ``lr``, then half a cosine down to ``floor · lr``.

    Source: Loshchilov and Hutter (2017), "SGDR", equation 5, without restarts; the warm-up is Goyal et al. (2017).
    """
    if step < settings.warmup:
        return settings.lr * (step + 1) / settings.warmup
    last = max(1, settings.steps - 1 - settings.warmup)
    share = min(1.0, (step - settings.warmup) / last)
    return settings.lr * (settings.floor + (1 - settings.floor) * (1 + math.cos(math.pi * share)) / 2)


def layer_norms(grads: Parameters) -> dict[str, float]:
    """L2 norm of the gradient of each part: embedding, layers.0, layers.1, …, head."""
    groups: dict[str, list[Array]] = {}
    for name, grad in grads.items():
        groups.setdefault(".".join(name.split(".")[:2]) if name.startswith("layers.") else name, []).append(grad)
    return {name: optim.global_norm(members) for name, members in groups.items()}


class NumpyEngine:
    """Reference operators only: forward and backward of ``ops.transformer``, AdamW and clipping of ``ops.optim``."""

    def __init__(self, settings: Settings, saved: Saved) -> None:
        self.settings = settings
        self.parameters = _copy(saved.parameters)
        self.m, self.v = _moments(saved)
        self.t = saved.step

    def step(self, ids: Array, labels: Array, lr: float) -> Report:
        """Forward, loss, backward, clip, update."""
        s, theta = self.settings, self.parameters
        loss, kept = transformer.loss(s.model, theta, ids, labels)
        grads = transformer.backward(s.model, theta, kept)
        clipped, norm = optim.clip_by_global_norm([*grads.values()], s.max_norm)
        self.t += 1
        for name, grad in zip(grads, clipped, strict=True):
            state = theta[name], grad, self.m[name], self.v[name], self.t, lr
            new = optim.adamw_step(*state, weight_decay=s.weight_decay)
            theta[name], self.m[name], self.v[name] = new
        return Report(loss, norm, layer_norms(grads))

    def saved(self) -> Saved:
        """Copies of parameters, moments and step."""
        return Saved(
            self.settings.model, _copy(self.parameters), _copy(self.m), _copy(self.v), step=self.t
        )


class TorchEngine:
    """The torch twin with autograd and torch.optim.AdamW, on one device or on every rank of a process group.

    Args:
        settings, saved: what to train, and where it stands.
        device: "cpu", "cuda" or one GPU such as "cuda:1".
        checkpoint: keep only the inputs of the layers for the backward pass.
        autocast: a 16-bit dtype for the products of the forward pass, such as "bfloat16"; weights stay as they are.

    In a process group each rank takes its share of the rows. Losses and gradients are summed over ranks with the
    weight of their labels, so that the step is that of one process with the whole batch.
    """

    def __init__(
        self, settings: Settings, saved: Saved, *, device: str = "cpu", checkpoint: bool = False, autocast: str = ""
    ) -> None:
        import torch

        self.settings, self.autocast = settings, autocast
        self.model = torch_twin.module(settings.model, saved.parameters, checkpoint=checkpoint, device=device)
        self.named = dict(self.model.named_parameters())
        self.optimizer = torch.optim.AdamW(self.named.values(), lr=settings.lr, weight_decay=settings.weight_decay)
        self.t = saved.step
        if saved.step:
            for name, tensor in self.named.items():
                self.optimizer.state[tensor] = {
                    "step": torch.tensor(float(saved.step)),
                    "exp_avg": torch.tensor(saved.m[name], device=device),
                    "exp_avg_sq": torch.tensor(saved.v[name], device=device),
                }

    def gradients(self, ids: Array, labels: Array) -> float:
        """Loss and backward over all ranks; the gradients are left in the model."""
        import torch
        import torch.distributed as dist

        ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
        if ranks > len(ids):
            raise ValueError(f"{ranks} ranks share {len(ids)} rows; give each rank at least one")
        mine = np.array_split(np.arange(len(ids)), ranks)[rank]
        counted = int((labels != transformer.IGNORE).sum())
        weight = int((labels[mine] != transformer.IGNORE).sum()) / counted
        self.optimizer.zero_grad()
        with torch.autocast(self.model.embedding.device.type, dtype=getattr(torch, self.autocast or "bfloat16"),
                            enabled=bool(self.autocast)):  # fmt: skip
            loss = torch_twin.loss(self.model, ids[mine], labels[mine]) * weight
        loss.backward()
        total = loss.detach().clone()
        if ranks > 1:
            for tensor in (total, *(parameter.grad for parameter in self.named.values())):
                dist.all_reduce(tensor)
        return float(total)

    def step(self, ids: Array, labels: Array, lr: float) -> Report:
        """Forward, loss, backward, sum over ranks, clip, update."""
        import torch

        loss = self.gradients(ids, labels)
        grads = [tensor.grad for tensor in self.named.values()]
        norms = torch.stack([grad.double().norm() for grad in grads])
        norm = float(norms.norm())
        if not math.isfinite(norm):
            raise FloatingPointError(f"the global norm is {norm} at step {self.t}: find the first non-finite gradient")
        # torch.nn.utils.clip_grad_norm_ divides by norm + 1e-6; this is the formula of the book.
        for grad in grads:
            grad.mul_(min(1.0, self.settings.max_norm / norm))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.t += 1
        squares: dict[str, float] = {}
        for name, value in zip(self.named, norms.tolist(), strict=True):
            part = ".".join(name.split(".")[:2]) if name.startswith("layers.") else name
            squares[part] = squares.get(part, 0.0) + value**2
        wanted = layer_norms({name: np.zeros(1) for name in transformer.shapes(self.settings.model)})
        return Report(loss, norm, {part: math.sqrt(squares[part]) for part in wanted})

    def saved(self) -> Saved:
        """Copies of parameters, moments and step."""
        def moment(kind: str) -> Parameters:
            names = transformer.shapes(self.settings.model)
            return {name: self.optimizer.state[self.named[name]][kind].cpu().numpy().copy() for name in names}

        moments = (moment("exp_avg"), moment("exp_avg_sq")) if self.t else ({}, {})
        return Saved(self.settings.model, torch_twin.to_numpy(self.model), *moments, step=self.t)


def train(
    settings: Settings,
    stream: Array,
    engine: Engine,
    *,
    until: int | None = None,
    on_step: Callable[[int, Report, float], None] | None = None,
) -> Run:
    """Train from where the engine stands to step ``until`` (default: the end of the schedule).

    Args:
        settings, stream: what is learnt from what.
        engine: changed in place.
        on_step: called after each step with its number, its report and its learning rate.
    """
    run = Run(first=engine.t)
    last = settings.steps if until is None else until
    for step in range(engine.t, last):
        rng = np.random.default_rng([settings.seed, 3, step])
        ids, labels = batch(stream, settings.rows, settings.length, rng)
        rate = learning_rate(step, settings)
        report = engine.step(ids, labels, rate)
        run.add(report, rate)
        if on_step:
            on_step(step, report, rate)
    return run


def evaluate(config: Config, parameters: Parameters, stream: Array, length: int) -> float:
    """Mean loss in nats over a held-out stream, cut into blocks of T that do not overlap; the rest is dropped."""
    count = (len(stream) - 1) // length
    if count < 1:
        raise ValueError(f"the stream has {len(stream)} tokens; a block of {length} with its labels needs {length + 1}")
    ids = stream[: count * length].reshape(count, length)
    labels = stream[1 : count * length + 1].reshape(count, length)
    return transformer.loss(config, parameters, ids, labels)[0]


def chooser(
    rng: np.random.Generator | None = None, *, temperature: float = 1.0, k: int | None = None, p: float | None = None
) -> Chooser:
    """A rule from logits (B, n) to tokens (B,): greedy without ``rng``, otherwise a draw.

    The order is that of chapter 5: temperature, then top-k, then top-p, then the draw.

    Raises:
        ValueError: a filter or a temperature without ``rng``, or a temperature that is not positive.
    """
    if rng is None:
        if temperature != 1.0 or k is not None or p is not None:
            raise ValueError("temperature, k and p change how tokens are drawn: give an rng, or leave them out")
        return lambda logits: logits.argmax(axis=-1)
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}; it must be positive (greedy is the limit at 0)")

    def choose(logits: Array) -> Array:
        z = logits / temperature
        z = top_k(z, k) if k is not None else z
        z = top_p(z, p) if p is not None else z
        return sample(z, rng)

    return choose


def _copy(arrays: Parameters) -> Parameters:
    return {name: array.copy() for name, array in arrays.items()}


def _moments(saved: Saved) -> tuple[Parameters, Parameters]:
    """First and second moments; zeros where training has not started."""
    zeros = {name: np.zeros_like(array) for name, array in saved.parameters.items()}
    return (
        {name: saved.m.get(name, zero).copy() for name, zero in zeros.items()},
        {name: saved.v.get(name, zero).copy() for name, zero in zeros.items()},
    )

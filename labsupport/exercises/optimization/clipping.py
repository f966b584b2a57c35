"""Exercises of chapter 8 on clipping by the global norm, on one rank and over shards."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Tolerance
from labsupport.ops import optim

Array = np.ndarray


def _clip(grads: list[Array], max_norm: float) -> list[Array]:
    return optim.clip_by_global_norm(grads, max_norm)[0]


def _clip_cases(rng: np.random.Generator) -> list[Case]:
    def draw(*shapes: tuple[int, ...], dtype: Any = np.float64, size: float = 1.0) -> list[Array]:
        return [(size * rng.normal(size=shape)).astype(dtype) for shape in shapes]

    return [
        Case(args=([np.array([3.0]), np.array([4.0])], 1.0), label="[3] and [4], limit 1"),
        Case(args=(draw((2, 3), (4,), (1, 2, 2)), 0.5), label="three shapes, limit 0.5"),
        Case(args=(draw((3,), (2,), size=0.01), 1.0), label="norm below the limit"),
        Case(args=(draw((5,), (2, 2), dtype=np.float32, size=50.0), 2.0), label="float32, limit 2"),
        Case(args=([np.full(3, 300, np.float16), np.full((2, 2), -200, np.float16)], 5.0), label="float16, near 300"),
        Case(args=([np.zeros(3), np.zeros((2, 2))], 1.0), label="all zero"),
        Case(args=(draw((6,)), 0.1), label="one tensor"),
    ]


def _scaled(factor: Callable[..., float]) -> Any:
    """Clipping with another factor for all tensors; the rule gets (norm, limit, grads)."""

    def clip(grads: list[Array], max_norm: float) -> list[Array]:
        with np.errstate(all="ignore"):
            f = factor(optim.global_norm(grads), max_norm, grads)
            return [g * g.dtype.type(f) for g in grads]

    return clip


def _least(norm: float, c: float) -> float:
    return min(1.0, c / norm) if norm else 1.0


def _quiet_clip(clip: Callable[[list[Array], float], list[Array]]) -> Any:
    """A wrong clipping whose squares overflow in float16, without NumPy's warning; dtypes are kept."""

    def clipped(grads: list[Array], c: float) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(v, g.dtype) for v, g in zip(clip(grads, c), grads, strict=True)]

    return clipped


def _by_concatenation(grads: list[Array], c: float) -> list[Array]:
    """Another right way: one long float64 vector, its norm, then the pieces again."""
    norm = float(np.linalg.norm(np.concatenate([g.astype(np.float64).ravel() for g in grads])))
    return [(g.astype(np.float64) * _least(norm, c)).astype(g.dtype) for g in grads]


CLIP_GLOBAL_NORM = Function(
    id="clip-global-norm",
    chapter=8,
    section="8.9",
    title="Clipping by the global norm",
    prompt=(
        "Write `clip(grads, max_norm)`: the list of gradients, all scaled by $\\min(1, c/\\lVert g \\rVert)$, where "
        "the norm is that of all of them together."
    ),
    contract=(
        "`grads`: list of arrays of any shapes, float16, float32 or float64, finite; `max_norm`: a positive float. "
        "Result: a list of new arrays, same shapes and dtypes. If all are 0 they stay 0. Squares are summed in float64."
    ),
    hints=(
        "Sum the squares over all arrays before you take one root.",
        "One factor for every array, and never above 1. What if the norm is 0?",
        "`np.sum(g.astype(np.float64) ** 2)` does not overflow where float16 does.",
    ),
    checklist=(4,),
    points=2,
    level="medium",
    oracle=_clip,
    cases=_clip_cases,
    tolerance=Tolerance(c=4, depth=lambda grads, c: sum(g.size for g in grads)),
    dtype="exact",
    fresh=True,
    mistakes=(
        Mistake(
            name="untouched-list",
            answer=lambda grads, c: grads if _least(optim.global_norm(grads), c) == 1 else _clip(grads, c),
            message="Where nothing is to be clipped you return the list you were given, so whoever changes the result "
            "changes the gradients. The contract asks for new arrays.",
        ),
        Mistake(
            name="tensor-by-tensor",
            answer=lambda grads, c: [_clip([g], c)[0] for g in grads],
            message="You clipped every tensor by its own norm, which turns the common direction. One factor is "
            "used for all.",
        ),
        Mistake(
            name="tensor-by-tensor-narrow",
            answer=_quiet_clip(
                lambda grads, c: [g * min(1.0, c / max(float(np.linalg.norm(g)), 1e-30)) for g in grads]
            ),
            message="You clipped every tensor by its own norm, which turns the common direction. One factor is "
            "used for all, from squares that are summed in float64.",
        ),
        Mistake(
            name="by-value",
            answer=lambda grads, c: [np.clip(g, -c, c).astype(g.dtype) for g in grads],
            message="You clipped every number by itself. That changes the direction of the step.",
        ),
        Mistake(
            name="always-scaled",
            answer=_scaled(lambda norm, c, grads: c / norm if norm else 1.0),
            message="You also scale gradients **up** to the limit. The factor is never above 1.",
        ),
        Mistake(
            name="sum-of-norms",
            answer=_scaled(lambda norm, c, grads: _least(sum(optim.global_norm([g]) for g in grads), c)),
            message="You added the norms of the tensors. Norms do not add; their squares do.",
        ),
        Mistake(
            name="no-root",
            answer=_scaled(lambda norm, c, grads: _least(norm**2, c)),
            message="You compared the sum of squares with the limit. The norm is its root.",
        ),
        Mistake(
            name="to-length-one",
            answer=_scaled(lambda norm, c, grads: 1 / norm if norm > c else 1.0),
            message="You scaled to length 1. The limit is the length that a clipped gradient has.",
        ),
        Mistake(
            name="zero-by-zero",
            answer=_scaled(lambda norm, c, grads: float(np.minimum(1.0, np.float64(c) / norm)) if norm else math.nan),
            message="With a norm of 0 your factor is no number. A gradient of 0 stays 0.",
        ),
        Mistake(
            name="squares-overflow",
            answer=_scaled(
                lambda norm, c, grads: float(
                    min(1.0, c / max(1e-30, float(np.sqrt(sum(np.sum(g * g, dtype=g.dtype) for g in grads)))))
                )
            ),
            message="Your squares overflow in float16, so the norm is infinite and every gradient becomes 0. Sum them "
            "in a wider dtype.",
        ),
        Mistake(
            name="epsilon-in-the-divisor",
            answer=_scaled(lambda norm, c, grads: min(1.0, c / (norm + 1e-6))),
            message="You added a small number to the norm, as torch does. The contract here is the plain formula.",
        ),
        Mistake(
            name="mean-of-squares",
            answer=_scaled(lambda norm, c, grads: _least(norm / math.sqrt(sum(g.size for g in grads)), c)),
            message="You took the mean of the squares. The norm has their sum.",
        ),
    ),
    accept=(
        _scaled(lambda norm, c, grads: _least(norm, c)),
        lambda grads, c: _by_concatenation(grads, c),
    ),
)


class _WaitsForOthers(Exception):
    """Raised by the recording all-reduce once it knows a rank's contribution."""


def _on_all_ranks(clip_on_rank: Any, shards: list[list[Array]], max_norm: float) -> list[Any]:
    """Call a reader's function once a rank, with an all-reduce that adds what every rank contributes.

    A rank that never calls the collective leaves all others without a result, which shows as NaN.
    """
    contributions: list[float] = []

    def record(value: Any) -> Any:
        contributions.append(float(value))
        raise _WaitsForOthers

    for mine in shards:
        try:
            clip_on_rank(mine, record, max_norm)
        except _WaitsForOthers:
            continue
    total = math.fsum(contributions) if len(contributions) == len(shards) else math.nan
    return [clip_on_rank(mine, lambda value: total, max_norm) for mine in shards]


def _clip_on_rank(mine: list[Array], all_reduce: Any, max_norm: float) -> list[Array]:
    norm = math.sqrt(all_reduce(optim.global_norm(mine) ** 2))
    return [g * g.dtype.type(_least(norm, max_norm)) for g in mine]


def _rank_variant(sent: Callable[..., float], norm_of: Callable[[float], float] = math.sqrt) -> Any:
    """Clipping on a rank that contributes something else, or reads the sum in another way."""

    def clip(mine: list[Array], all_reduce: Any, max_norm: float) -> list[Array]:
        norm = norm_of(all_reduce(sent(mine)))
        return [g * g.dtype.type(_least(norm, max_norm)) for g in mine]

    return clip


def _sharded_cases(rng: np.random.Generator) -> list[Case]:
    def draw(*shapes: list[tuple[int, ...]], dtype: Any = np.float64, size: float = 1.0) -> list[list[Array]]:
        return [[(size * rng.normal(size=s)).astype(dtype) for s in rank] for rank in shapes]

    return [
        Case(args=([[np.array([3.0])], [np.array([4.0])]], 1.0), label="two ranks, [3] and [4], limit 1"),
        Case(args=(draw([(2, 3), (4,)], [(5,)], [(1, 2)]), 0.5), label="three ranks, limit 0.5"),
        Case(args=(draw([(3,)], [], [(2, 2), (2,)]), 0.7), label="three ranks, the second holds nothing"),
        Case(args=(draw([(3,)], [(2,)], size=0.01), 1.0), label="two ranks, norm below the limit"),
        Case(args=(draw([(4,)], [(3, 2)], dtype=np.float32, size=20.0), 2.0), label="float32, two ranks"),
    ]


SHARDED_CLIP = Function(
    id="sharded-clip",
    chapter=8,
    section="8.9",
    title="Clipping when every rank holds a shard",
    prompt=(
        "Write `clip_on_rank(mine, all_reduce, max_norm)`, which every rank calls with its own gradients. "
        "`all_reduce(value)` takes one number and returns its sum over all ranks; use it exactly once."
    ),
    contract=(
        "`mine`: list of arrays, float32 or float64, maybe empty. Result: the list of this rank's gradients, clipped "
        "by the global norm, shapes and dtypes kept. If one rank does not call `all_reduce`, the judge gives NaN to "
        "the others; in reality they would wait for ever."
    ),
    hints=(
        "Which number of each rank adds up to something from which the global norm follows?",
        "Sum the squares of your own gradients, reduce that number, and take the root after.",
        "A rank without gradients contributes 0, and must still make the call.",
    ),
    checklist=(4,),
    points=3,
    level="hard",
    oracle=_clip_on_rank,
    call=_on_all_ranks,
    cases=_sharded_cases,
    tolerance=Tolerance(c=8, depth=lambda shards, c: sum(g.size for rank in shards for g in rank)),
    dtype="exact",
    mistakes=(
        Mistake(
            name="own-norm",
            answer=lambda mine, all_reduce, c: (all_reduce(0.0), _clip(mine, c) if mine else [])[1],
            message="Every rank clipped by its own norm, so the shards are scaled differently and the direction turns.",
        ),
        Mistake(
            name="sum-of-norms",
            answer=_rank_variant(lambda mine: optim.global_norm(mine), lambda total: total),
            message="You added the norms of the ranks. Norms do not add; their squares do.",
        ),
        Mistake(
            name="root-before-the-sum",
            answer=_rank_variant(lambda mine: optim.global_norm(mine)),
            message="You took the root before the all-reduce and again after it. Reduce the sum of squares.",
        ),
        Mistake(
            name="no-root",
            answer=_rank_variant(lambda mine: optim.global_norm(mine) ** 2, lambda total: total),
            message="You compared the sum of squares with the limit. The norm is its root.",
        ),
        Mistake(
            name="empty-rank-leaves",
            answer=lambda mine, all_reduce, c: _clip_on_rank(mine, all_reduce, c) if mine else [],
            message="A rank without gradients returns before the collective. The others would wait for ever.",
        ),
        Mistake(
            name="scaled-up",
            answer=lambda mine, all_reduce, c: [
                g * g.dtype.type(c / math.sqrt(total))
                for total in [all_reduce(optim.global_norm(mine) ** 2)]
                for g in mine
            ],
            message="You also scale gradients up to the limit. The factor is never above 1.",
        ),
    ),
    accept=(
        _rank_variant(lambda mine: sum(float(np.sum(g.astype(np.float64) ** 2)) for g in mine)),
        _rank_variant(lambda mine: float(sum(np.vdot(g.astype(float), g.astype(float)) for g in mine))),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    CLIP_GLOBAL_NORM,
    SHARDED_CLIP,
)

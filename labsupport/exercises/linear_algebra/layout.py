"""Exercises of chapter 2 on layout and broadcasting: strides, views, shapes, the (N, 1) trap."""

import math
from itertools import zip_longest
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Tolerance
from labsupport.ops import tensors

Sizes = tuple[int, ...]


def row_major_offset(index: Sizes, shape: Sizes) -> int:
    """Place of an element in a contiguous row-major buffer."""
    return tensors.offset(index, tensors.strides(shape))


def _offset_cases(rng: np.random.Generator) -> list[Case]:
    cases = [((1, 2), (2, 3)), ((0, 0), (2, 3)), ((3,), (5,)), ((), ())]
    for axes in (2, 3, 4):
        shape = tuple(int(n) for n in rng.integers(2, 7, axes))
        cases += [(tuple(int(rng.integers(n)) for n in shape), shape), (tuple(n - 1 for n in shape), shape)]
    cases.append(((7, 8191, 128255), (8, 8192, 128256)))  # logits: the place needs more than 32 bits
    return [Case(args=c, label=f"index {c[0]} of shape {c[1]}") for c in cases]


# ---------------------------------------------------------------- contiguity


def _layout_cases(rng: np.random.Generator) -> list[Case]:
    layouts: list[tuple[Sizes, Sizes]] = [
        ((2, 3), (3, 1)),
        ((3, 2), (1, 3)),
        ((4, 3), (6, 1)),
        ((1, 3), (99, 1)),
        ((4, 1), (1, 7)),
        ((2, 3), (3, 0)),
        ((2, 3, 4), (12, 4, 1)),
        ((2, 3, 4), (12, 1, 3)),
        ((2, 3, 4), (4, 8, 1)),
        ((5,), (2,)),
        ((5,), (-1,)),
        ((), ()),
    ]
    shape = tuple(int(n) for n in rng.integers(2, 6, 3))
    order = rng.permutation(3)
    layouts += [(shape, tensors.strides(shape)), (shape, tensors.strides(shape, "F"))]
    turned = tuple(shape[a] for a in order), tuple(tensors.strides(shape)[a] for a in order)
    return [Case(args=c, label=f"shape {c[0]}, strides {c[1]}") for c in [*layouts, turned]]


def _contiguous_without_ones(shape: Sizes, strides: Sizes) -> bool:
    return tuple(strides) == tensors.strides(shape)


def _last_stride_only(shape: Sizes, strides: Sizes) -> bool:
    return not shape or strides[-1] == 1


def _column_major(shape: Sizes, strides: Sizes) -> bool:
    return tensors.is_contiguous(shape[::-1], strides[::-1])


def _falling(shape: Sizes, strides: Sizes) -> bool:
    """Strides fall and end in 1: gaps between rows go unnoticed."""
    steps = [s for n, s in zip(shape, strides, strict=True) if n != 1]
    return all(a > b for a, b in zip(steps, [*steps[1:], 0], strict=True)) and (not steps or steps[-1] == 1)


# ---------------------------------------------------------------- view or copy


def _view_cases(rng: np.random.Generator) -> list[Case]:
    cases: list[tuple[Sizes, Sizes, Sizes]] = [
        ((2, 3), (3, 1), (6,)),
        ((3, 2), (1, 3), (6,)),
        ((4, 3), (6, 1), (12,)),
        ((4, 6), (6, 1), (4, 2, 3)),
        ((6, 4), (1, 6), (2, 3, 4)),
        ((4, 3), (6, 1), (2, 2, 3)),
        ((2, 3, 4), (12, 4, 1), (6, 4)),
        ((2, 3, 4), (24, 4, 1), (2, 12)),
        ((2, 3, 4), (24, 4, 1), (6, 4)),
        ((5, 1), (1, 99), (5,)),
        ((4,), (-1,), (2, 2)),
        ((3, 4), (0, 1), (12,)),
        ((1,), (1,), (1, 1)),
    ]
    for _ in range(4):
        m, n, p = (int(size) for size in rng.integers(2, 5, 3))
        axes = rng.permutation(3)
        shape, steps = (m, n, p), tensors.strides((m, n, p))
        turned = tuple(shape[a] for a in axes)
        goal = (turned[0] * turned[1], turned[2]) if rng.random() < 0.5 else (turned[0], turned[1] * turned[2])
        cases.append((turned, tuple(steps[a] for a in axes), goal))
    return [Case(args=c, label=f"shape {c[0]}, strides {c[1]}, to {c[2]}") for c in cases]


def _view_if_contiguous(shape: Sizes, strides: Sizes, new_shape: Sizes) -> bool:
    return tensors.is_contiguous(shape, strides)


def _view_if_count_fits(shape: Sizes, strides: Sizes, new_shape: Sizes) -> bool:
    return math.prod(shape) == math.prod(new_shape)


def _view_if_one_run(shape: Sizes, strides: Sizes, new_shape: Sizes) -> bool:
    """Whether the whole old tensor is one run through memory, even where the new shape does not need it."""
    return tensors.can_view(shape, strides, (math.prod(shape),))


def _view_by_splitting_only(shape: Sizes, strides: Sizes, new_shape: Sizes) -> bool:
    """Whether no old axes are merged: gives up merges that would be free."""
    rest = list(new_shape)
    for size in shape:
        count = 1
        while rest and count < size:
            count *= rest.pop(0)
        if count != size:
            return False
    return True


def _view_by_numpy(shape: Sizes, strides: Sizes, new_shape: Sizes) -> bool:
    """Let NumPy decide, on a buffer that is large enough in both directions."""
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    buffer = np.zeros(high - low + 1)
    view = np.lib.stride_tricks.as_strided(buffer[-low:], shape, [8 * s for s in strides])
    return bool(np.shares_memory(buffer, view.reshape(new_shape)))


# ---------------------------------------------------------------- broadcasting


def broadcast_pair(a: Sizes, b: Sizes) -> Sizes:
    """Broadcast shape of two shapes."""
    return tensors.broadcast_shape(a, b)


def _broadcast_cases(rng: np.random.Generator) -> list[Case]:
    pairs: list[tuple[Sizes, Sizes]] = [
        ((2, 4, 3), (3,)),
        ((3, 1), (3,)),
        ((3,), (3, 1)),
        ((8, 1, 6), (7, 1)),
        ((), (2, 3)),
        ((1,), (1, 1)),
        ((0,), (1,)),
        ((2, 3), (2, 3)),
        ((2, 3), (2, 1)),
    ]
    shape = tuple(int(n) for n in rng.integers(2, 6, 3))
    pairs.append((shape, tuple(1 if rng.random() < 0.5 else n for n in shape[1:])))
    wrong: list[tuple[Sizes, Sizes]] = [
        ((2, 3), (4,)),
        ((2, 3), (2,)),
        ((2, 3), (3, 3)),
        ((4, 2), (2, 4)),
        ((6,), (3,)),
    ]
    return [Case(args=p, label=f"{p[0]} with {p[1]}") for p in pairs] + [
        Case(args=p, label=f"{p[0]} with {p[1]}, which cannot", raises=ValueError) for p in wrong
    ]


def _broadcast_with(fill: Any, fit: Any, align: str = "right") -> Any:
    """A broadcast rule with a slip: how missing axes are filled and when two sizes fit."""

    def rule(a: Sizes, b: Sizes) -> Sizes:
        pairs = (
            list(zip_longest(a[::-1], b[::-1], fillvalue=fill))[::-1]
            if align == "right"
            else list(zip_longest(a, b, fillvalue=fill))
        )
        if not all(fit(x, y) for x, y in pairs):
            raise ValueError("the shapes do not broadcast")
        return tuple(y if x == 1 else x for x, y in pairs)

    return rule


def _equal_or_one(x: int, y: int) -> bool:
    return x == y or x == 1 or y == 1


def _never_refuses(a: Sizes, b: Sizes) -> Sizes:
    return tuple(max(pair) for pair in list(zip_longest(a[::-1], b[::-1], fillvalue=1))[::-1])


def _same_axes_only(a: Sizes, b: Sizes) -> Sizes:
    if len(a) != len(b):
        raise ValueError("the shapes have different numbers of axes")
    return tensors.broadcast_shape(a, b)


def _maximum(a: Sizes, b: Sizes) -> Sizes:
    tensors.broadcast_shape(a, b)
    return _never_refuses(a, b)


# ---------------------------------------------------------------- the (N, 1) trap


def mse(pred: np.ndarray, target: np.ndarray) -> Any:
    """Mean squared error of (N,) or (N, 1) predictions against (N,) targets."""
    return np.mean((pred.reshape(target.shape) - target) ** 2)


def _mse_cases(rng: np.random.Generator) -> list[Case]:
    target = rng.normal(size=7)
    return [
        Case(args=(rng.normal(size=7), target), label="pred (7,), target (7,)"),
        Case(args=(rng.normal(size=(7, 1)), target), label="pred (7, 1), target (7,)"),
        Case(args=(target[:, None].copy(), target), label="perfect predictions (7, 1)"),
        Case(args=(rng.normal(size=(1, 1)), rng.normal(size=1)), label="one example"),
        Case(args=(rng.normal(size=(5, 1)).astype(np.float32), rng.normal(size=5).astype(np.float32)), label="float32"),
    ]


def _mse_sum(pred: np.ndarray, target: np.ndarray) -> Any:
    return np.sum((pred.reshape(target.shape) - target) ** 2)


EXERCISES: tuple[Exercise, ...] = (
    Function(
        id="row-major-offset",
        chapter=2,
        section="2.2",
        title="Find the cell",
        checklist=(3,),
        prompt="Write `row_major_offset(index, shape)`: the place in the buffer, in elements, of the element at "
        "`index` of a "
        "contiguous row-major tensor.",
        contract="Both are tuples of integers of equal length, the index is inside the shape; `()` with `()` gives 0.",
        hints=(
            "The last axis has stride 1. What is the stride of the axis before it?",
            "The stride of an axis is the product of all sizes after it.",
        ),
        oracle=row_major_offset,
        cases=_offset_cases,
        mistakes=(
            Mistake(
                name="column-major",
                answer=lambda index, shape: tensors.offset(index, tensors.strides(shape, "F")),
                message="You gave the first axis stride 1. In row-major order the last axis moves fastest.",
            ),
            Mistake(
                name="transposed-stride",
                answer=lambda index, shape: tensors.offset(index, tensors.strides(shape)[::-1]),
                message="Your strides are right but in the order of the transpose.",
            ),
            Mistake(
                name="size-as-stride",
                answer=lambda index, shape: sum(i * n for i, n in zip(index, shape, strict=True)),
                message="You multiplied each index by the size of its own axis. A stride is the product of the "
                "sizes after it.",
            ),
            Mistake(
                name="next-size-only",
                answer=lambda index, shape: sum(i * n for i, n in zip(index, [*shape[1:], 1], strict=True)),
                message="Your stride is the size of the next axis only. It is the product of all sizes after the axis.",
            ),
        ),
        accept=(
            lambda index, shape: int(np.ravel_multi_index(index, shape)) if shape else 0,
            lambda index, shape: np.int64(row_major_offset(index, shape)),
        ),
    ),
    Function(
        id="contiguous",
        chapter=2,
        section="2.2",
        title="Contiguous or not",
        level="medium",
        checklist=(3,),
        prompt="Write `contiguous(shape, strides)`: whether a row-major scan reads the buffer cell by cell. "
        "Strides are in "
        "elements.",
        contract="Tuples of integers of equal length, no size is 0; return a bool. The stride of an axis of size "
        "1 is never "
        "used. A tensor without axes is contiguous.",
        hints=(
            "Go from the last axis to the first and keep the stride that you expect next.",
            "Skip axes of size 1.",
        ),
        oracle=tensors.is_contiguous,
        cases=_layout_cases,
        mistakes=(
            Mistake(
                name="size-one-counts",
                answer=_contiguous_without_ones,
                message="You compare the stride of an axis of size 1. Its index is always 0, so it is never used.",
            ),
            Mistake(
                name="last-stride-only",
                answer=_last_stride_only,
                message="You look at the last stride only. The other axes may leave gaps or be out of order.",
            ),
            Mistake(
                name="column-major",
                answer=_column_major,
                message="You test for column-major order, with stride 1 on the first axis.",
            ),
            Mistake(
                name="falling",
                answer=_falling,
                message="Falling strides are not enough: between two rows there may be a gap.",
            ),
        ),
        accept=(lambda shape, strides: np.bool_(tensors.is_contiguous(shape, strides)),),
    ),
    Function(
        id="view-or-copy",
        chapter=2,
        section="2.2",
        title="View or copy",
        level="hard",
        points=3,
        checklist=(3,),
        prompt="Write `can_view(shape, strides, new_shape)`: whether a reshape to `new_shape` can be a view of "
        "the same buffer.",
        contract="Tuples of integers; strides in elements, any integer; no size is 0; both shapes have equally "
        "many elements. "
        "Return a bool.",
        hints=(
            "Drop old axes of size 1, then match old and new axes in groups with equal numbers of elements.",
            "Two old axes in one group must be one run: the stride of the first equals size times stride of the "
            "second.",
            "New axes may be cut out of one run in any way.",
        ),
        oracle=tensors.can_view,
        cases=_view_cases,
        mistakes=(
            Mistake(
                name="contiguous-only",
                answer=_view_if_contiguous,
                message="You refuse every tensor that is not contiguous. Only old axes that are merged must form "
                "one run.",
            ),
            Mistake(
                name="never-a-view",
                answer=lambda shape, strides, new_shape: False,
                message="You never allow a view. Start with a contiguous tensor: any reshape of it is one.",
            ),
            Mistake(
                name="count-only",
                answer=_view_if_count_fits,
                message="Equally many elements is not enough: the strides must be able to express the new shape.",
            ),
            Mistake(
                name="one-run",
                answer=_view_if_one_run,
                message="You ask that the whole tensor is one run. Axes that are not merged may keep a gap "
                "between them.",
            ),
            Mistake(
                name="splits-only",
                answer=_view_by_splitting_only,
                message="You never merge axes. Old axes that follow each other without a gap may be merged.",
            ),
        ),
        accept=(_view_by_numpy,),
    ),
    Function(
        id="broadcast-shape",
        chapter=2,
        section="2.3",
        title="The broadcasting rule",
        level="medium",
        checklist=(2,),
        prompt="Write `broadcast_shape(a, b)`: the shape of an elementwise result of two shapes.",
        contract="Tuples of non-negative integers of any length; return a tuple. Raise `ValueError` where the "
        "shapes do not "
        "broadcast. A size 0 fits 0 and 1.",
        hints=(
            "Align at the last axis; a missing axis counts as size 1.",
            "Two sizes fit when they are equal or one of them is 1.",
            "The result takes the size that is not 1.",
        ),
        oracle=broadcast_pair,
        cases=_broadcast_cases,
        mistakes=(
            Mistake(
                name="aligned-left",
                answer=_broadcast_with(1, _equal_or_one, "left"),
                message="You aligned the shapes at the first axis. They are aligned at the last one.",
            ),
            Mistake(
                name="never-refuses",
                answer=_never_refuses,
                message="You take the larger size whatever the other one is. Sizes must be equal, or one of them 1.",
            ),
            Mistake(
                name="same-axes-only",
                answer=_same_axes_only,
                message="You refuse shapes with different numbers of axes. A missing leading axis counts as size 1.",
            ),
            Mistake(
                name="divisors-fit",
                answer=_broadcast_with(1, lambda x, y: _equal_or_one(x, y) or (x and y and max(x, y) % min(x, y) == 0)),
                message="You stretch a size that divides the other. Only size 1 stretches.",
            ),
            Mistake(
                name="maximum",
                answer=_maximum,
                message="The larger size is wrong for an empty axis: 0 with 1 has no elements.",
            ),
        ),
        accept=(lambda a, b: np.broadcast_shapes(a, b), lambda a, b: list(tensors.broadcast_shape(a, b))),
    ),
    Function(
        id="mse-column",
        chapter=2,
        section="2.3",
        title="A loss that does not fall into the trap",
        checklist=(2,),
        prompt="Write `mse(pred, target)`: the mean of the squared differences. `pred` has shape $(N,)$ or $(N, 1)$.",
        contract="float32 or float64 arrays, `target` has shape $(N,)$ with $N \\ge 1$; return a scalar.",
        hints=("What shape does `pred - target` have for a column?", "Bring both to the same shape first."),
        oracle=mse,
        cases=_mse_cases,
        tolerance=Tolerance(c=8, depth=lambda pred, target: target.size),
        mistakes=(
            Mistake(
                name="all-pairs",
                answer=lambda pred, target: np.mean((pred - target) ** 2),
                message="A column minus a row gives all $N^2$ pairs. Your loss compares every prediction with "
                "every target.",
            ),
            Mistake(
                name="sum",
                answer=_mse_sum,
                message="You added the squares. The mean divides by their number.",
            ),
            Mistake(
                name="no-square",
                answer=lambda pred, target: np.mean(np.abs(pred.reshape(target.shape) - target)),
                message="You averaged magnitudes. The mean squared error squares the differences.",
            ),
        ),
        accept=(lambda pred, target: float(((pred.ravel() - target) ** 2).sum() / target.size),),
    ),
)

"""Questions and exercises of chapter 2: layout, products, maps and factors.

Every expected value is computed by ``labsupport.ops`` or NumPy. A message explains a slip of the field, and
must never contain the expected value.
"""

import math
from itertools import zip_longest
from typing import Any

import numpy as np

from labsupport.cost import lora_cost
from labsupport.grading import (
    Case,
    Choice,
    Exercise,
    Formula,
    Function,
    Mistake,
    Number,
    Option,
    Several,
    Shape,
    Tolerance,
    Written,
)
from labsupport.ops import linalg, tensors
from labsupport.ops.linalg import chain_flops
from labsupport.ops.tensors import broadcast_shape, matmul_shape, strides

Array = np.ndarray
Sizes = tuple[int, ...]

# ================ questions inside the chapter's text

_CHAIN = [(2048, 16), (16, 2048), (2048, 16)]
_LORA = lora_cost(4096, 4096, 8)

QUESTIONS: tuple[Exercise, ...] = (
    Choice(
        id="same-values",
        chapter=2,
        section="2.1",
        title="What equal tensors share",
        place="chapter",
        prompt="Two tensors have the same shape, and `(a == b).all()` is true. What else must they share?",
        hints=("Can a float16 and a float32 tensor be equal?", "Is a copy stored at the same address?"),
        options={
            "a": Option("the dtype", "0.5 is the same number in float16 and in float32; comparison promotes both."),
            "b": Option("the strides", "A matrix and a column-major copy of it hold equal values in another order."),
            "c": Option("the data address", "A copy has equal values elsewhere in memory."),
            "d": Option("nothing", "Equal values say nothing about dtype, layout or address.", True),
        },
    ),
    Shape(
        id="transpose-strides",
        chapter=2,
        section="2.2",
        title="Strides of a transpose",
        place="chapter",
        checklist=(3,),
        prompt="`A` has shape $(2, 3)$ and is row-major. What are the strides of `A.T`, in elements?",
        hints=("A transpose swaps the axes and copies nothing.", "What are the strides of `A`?"),
        expected=strides((2, 3))[::-1],
        mistakes=(
            Mistake(
                name="unchanged",
                answer=strides((2, 3)),
                message="Those are the strides of `A`. With the axes, the strides change places.",
            ),
            Mistake(
                name="fresh",
                answer=strides((3, 2)),
                message="Those would be the strides of a row-major copy of the transpose. A view moves no data.",
            ),
        ),
    ),
    Choice(
        id="slice-reshape",
        chapter=2,
        section="2.2",
        title="Reshape of a slice",
        place="chapter",
        checklist=(3,),
        prompt="`X` has shape $(4, 6)$ and is contiguous. Is `X[:, :3].reshape(12)` a view of `X` or a copy?",
        hints=("The strides of the slice are still $(6, 1)$.", "One group of 12: is $6 = 3\\cdot1$?"),
        options={
            "view": Option(
                "a view", "One stride for twelve elements would have to step over the gap after each third."
            ),
            "copy": Option("a copy", "The rows of the slice do not follow each other: $6 \\ne 3\\cdot 1$.", True),
            "error": Option("an error", "`reshape` never fails for a layout; torch's `view` does."),
        },
    ),
    Choice(
        id="swapped-contiguous",
        chapter=2,
        section="2.2",
        title="Is the swapped key contiguous?",
        place="chapter",
        checklist=(3,),
        prompt="`K` has shape `(B, N_h, S, D_h)`, all sizes above 1, and is contiguous. Is `K.swapaxes(-1, -2)` "
        "contiguous?",
        hints=("What is the stride of its last axis?", "A contiguous tensor has stride 1 on its last axis."),
        options={
            "yes": Option("yes", "Scan it: the last axis now steps $D_h$ elements at a time."),
            "no": Option("no", "Its last axis has stride $D_h$, not 1.", True),
        },
    ),
    Shape(
        id="column-minus-row",
        chapter=2,
        section="2.3",
        title="A column minus a row",
        place="chapter",
        checklist=(2,),
        prompt="`pred` has shape $(3, 1)$ and `target` has shape $(3,)$. What is the shape of `pred - target`?",
        hints=("Align at the last axis: 1 meets 3.", "Then 3 meets an axis that is missing."),
        expected=broadcast_shape((3, 1), (3,)),
        mistakes=(
            Mistake(
                name="column",
                answer=(3, 1),
                message="The last axis of `pred` has size 1 and stretches to that of `target`.",
            ),
            Mistake(
                name="row",
                answer=(3,),
                message="The result has as many axes as the operand with most axes.",
            ),
        ),
    ),
    Choice(
        id="dot-ranks",
        chapter=2,
        section="2.4",
        title="What the dot product ranks first",
        place="chapter",
        prompt="A points nearly the query's way and has length 1. B is 60 degrees off and has length 10. "
        "Which does the plain dot product rank first?",
        hints=("The dot product is length times length times cosine.", "$\\cos 60° = 0.5$."),
        options={
            "A": Option("A", "Its dot product with a query of length 1 is just under 1. Work out the other one."),
            "B": Option(
                "B", "$10\\cdot0.5=5$ beats a number just under 1. Length wins unless it is divided out.", True
            ),
        },
    ),
    Number(
        id="relative-near-zero",
        chapter=2,
        section="2.5",
        title="A relative error near zero",
        place="chapter",
        prompt="The reference is $10^{-12}$ and the result $10^{-9}$. What is the relative error?",
        hints=("$|a-b|/|b|$.", "The difference is nearly $10^{-9}$."),
        expected=(1e-9 - 1e-12) / 1e-12,
        rtol=2e-3,
        mistakes=(
            Mistake(
                name="absolute",
                answer=1e-9 - 1e-12,
                message="That is the absolute error. Divide it by the size of the reference.",
            ),
            Mistake(
                name="by-the-result",
                answer=(1e-9 - 1e-12) / 1e-9,
                message="You divided by the result. The relative error divides by the reference.",
            ),
        ),
    ),
    Number(
        id="chain-ratio",
        chapter=2,
        section="2.6",
        title="Two orders of one product",
        place="chapter",
        checklist=(2,),
        prompt="$A\\,(2048,16)$, $B\\,(16,2048)$, $C\\,(2048,16)$: how many times more FLOPs does $(AB)C$ take "
        "than $A(BC)$?",
        hints=("Which matrix stands in the middle of each order?", "$AB$ is $2048\\times2048$, $BC$ is $16\\times16$."),
        expected=chain_flops(_CHAIN, ((0, 1), 2)) / chain_flops(_CHAIN, (0, (1, 2))),
        mistakes=(
            Mistake(
                name="equal",
                answer=1,
                message="The results are equal, the costs are not: compare the matrices in the middle.",
            ),
            Mistake(
                name="sizes-of-the-middle",
                answer=2048**2 / 16**2,
                message="You compared the sizes of the two middle matrices. Each entry also costs a sum: compare "
                "$mkn$.",
            ),
        ),
    ),
    Shape(
        id="qk-scores-shape",
        chapter=2,
        section="2.7",
        title="Shape of attention scores",
        place="chapter",
        checklist=(1,),
        prompt="$Q$ and $K$ have shape $(2, 8, 128, 64)$, that is, $(B, N_h, S, D_h)$. What is the shape of "
        "$QK^{\\mathsf T}$?",
        hints=("The first two axes are batch axes.", "The last axis of $Q$ is reduced."),
        expected=matmul_shape((2, 8, 128, 64), (2, 8, 64, 128)),
        mistakes=(
            Mistake(
                name="head-size-kept",
                answer=(2, 8, 64, 64),
                message="You reduced over the sequence. The axis that both share after the transpose is $D_h$.",
            ),
            Mistake(
                name="batch-multiplied",
                answer=(16, 128, 128),
                message="You merged the batch axes. They stay as they are.",
            ),
            Mistake(
                name="not-reduced",
                answer=(2, 8, 128, 64),
                message="The axis $D_h$ is summed and gone.",
            ),
        ),
    ),
    Choice(
        id="which-is-linear",
        chapter=2,
        section="2.8",
        title="Linear or affine",
        place="chapter",
        prompt="Which of these maps is linear in the strict sense?",
        hints=("A linear map sends 0 to 0.", "Try $f(2\\mathbf x)$ against $2f(\\mathbf x)$."),
        options={
            "a": Option(
                "$\\mathbf{x}\\mapsto\\mathbf{x}W+\\mathbf{b}$ with $\\mathbf b\\ne0$", "It sends 0 to $\\mathbf b$."
            ),
            "b": Option("$\\mathbf{x}\\mapsto\\mathbf{x}W$", "Sums and factors pass through a matrix product.", True),
            "c": Option("$\\mathbf{x}\\mapsto\\max(\\mathbf{x}, 0)$", "For a negative entry, $f(-x)\\ne-f(x)$."),
            "d": Option(
                "$\\mathbf{x}\\mapsto\\lVert\\mathbf{x}\\rVert_2$",
                "$f(-\\mathbf x)=f(\\mathbf x)$, not $-f(\\mathbf x)$.",
            ),
        },
    ),
    Choice(
        id="solve-or-invert",
        chapter=2,
        section="2.9",
        title="Solve or invert",
        place="chapter",
        prompt="For a badly conditioned $A$, which leaves the smaller residual $\\lVert "
        "A\\mathbf{x}-\\mathbf{b}\\rVert$?",
        hints=("Elimination with pivoting is backward stable.", "An error in $A^{-1}$ is multiplied by $\\mathbf b$."),
        options={
            "solve": Option("`np.linalg.solve(A, b)`", "It satisfies the equations almost to the last digit.", True),
            "invert": Option(
                "`np.linalg.inv(A) @ b`", "Each entry of the inverse carries an error, and the product adds them up."
            ),
            "same": Option("both the same", "Equal on paper. Run the cell and compare the residuals."),
        },
    ),
    Number(
        id="low-rank-parameters",
        chapter=2,
        section="2.10",
        title="Parameters of two thin factors",
        place="chapter",
        checklist=(5,),
        prompt="A weight $(4096, 11008)$ becomes two factors of rank 128. How many parameters do the factors "
        "have together?",
        hints=("The shapes are $(4096, 128)$ and $(128, 11008)$.", "$r(m+n)$."),
        expected=128 * (4096 + 11008),
        exact=True,
        unit="parameter",
        default_unit="parameter",
        mistakes=(
            Mistake(
                name="one-factor",
                answer=128 * 4096,
                message="You counted one factor. There are two.",
            ),
            Mistake(
                name="other-factor",
                answer=128 * 11008,
                message="You counted only the second factor. There are two.",
            ),
            Mistake(
                name="full",
                answer=4096 * 11008,
                message="Those are the parameters of the full matrix.",
            ),
        ),
    ),
    Number(
        id="hundred-steps",
        chapter=2,
        section="2.11",
        title="A hundred steps",
        place="chapter",
        checklist=(4,),
        prompt="$\\mathbf{h}_{t+1}=A\\mathbf{h}_t$ has spectral radius 0.9. By about what factor is "
        "$\\mathbf{h}$ multiplied in "
        "100 steps? Two digits are enough.",
        hints=("Along its eigenvector each step multiplies by 0.9.", "$0.9^{100}$."),
        expected=0.9**100,
        rtol=0.03,
        mistakes=(
            Mistake(
                name="linear",
                answer=0.9 * 100,
                message="You added the steps. Each step multiplies.",
            ),
            Mistake(
                name="ten-steps",
                answer=0.9**10,
                message="That is ten steps. Raise it to the tenth power once more.",
            ),
        ),
    ),
    Number(
        id="eckart-young",
        chapter=2,
        section="2.12",
        title="Error of the best rank 2",
        place="chapter",
        checklist=(4,),
        prompt="A matrix has singular values 6, 3, 2, 1. What is the Frobenius error of its best approximation "
        "of rank 2?",
        hints=("Which singular values are cut off?", "The Frobenius norm is the root of the sum of their squares."),
        expected=math.sqrt(2**2 + 1**2),
        rtol=5e-3,
        mistakes=(
            Mistake(
                name="two-norm",
                answer=2,
                message="That is the error in the 2-norm, the first singular value that is cut off.",
            ),
            Mistake(
                name="sum",
                answer=3,
                message="You added the singular values that are cut off. Add their squares and take the root.",
            ),
            Mistake(
                name="kept",
                answer=float(np.hypot(6, 3)),
                message="That is the norm of what is kept. The error is what is cut off.",
            ),
            Mistake(
                name="no-root",
                answer=5,
                message="You left out the square root.",
            ),
        ),
    ),
    Number(
        id="lora-parameters",
        chapter=2,
        section="2.13",
        title="Parameters of an adapter",
        place="chapter",
        checklist=(5,),
        prompt="$W$ is $4096\\times4096$ and $r=8$. How many parameters does LoRA train?",
        hints=("$B$ is $(4096, 8)$ and $A$ is $(8, 4096)$.", "$r(d_\\text{in}+d_\\text{out})$."),
        expected=_LORA.parameters,
        exact=True,
        unit="parameter",
        default_unit="parameter",
        mistakes=(
            Mistake(
                name="one-factor",
                answer=8 * 4096,
                message="You counted one of the two factors.",
            ),
            Mistake(
                name="full",
                answer=_LORA.full_parameters,
                message="Those are the parameters of the frozen weight. LoRA trains the factors only.",
            ),
            Mistake(
                name="product",
                answer=8 * 8 * 4096,
                message="The rank counts once for each factor, it is not squared.",
            ),
        ),
    ),
    Choice(
        id="lora-both-zero",
        chapter=2,
        section="2.13",
        title="Both factors zero",
        place="chapter",
        checklist=(5,),
        prompt="Both $A$ and $B$ start at zero. What happens in training?",
        hints=("$dB$ contains $A$ as a factor.", "$dA$ contains $B$ as a factor."),
        options={
            "a": Option("It trains as usual.", "Write down $dB=\\tfrac{\\alpha}{r}GA^{\\mathsf T}$ for $A=0$."),
            "b": Option("Nothing ever changes.", "$dB$ has the factor $A$, $dA$ the factor $B$: both stay zero.", True),
            "c": Option("It explodes.", "All gradients of the factors are products with a zero matrix."),
            "d": Option("Only $A$ is trained.", "$dA=\\tfrac{\\alpha}{r}B^{\\mathsf T}G$ has the factor $B$."),
        },
    ),
)

# ================ 2.2 and 2.3: layout and broadcasting

# ---------------------------------------------------------------- offset


def row_major_offset(index: Sizes, shape: Sizes) -> int:
    """Place of an element in a contiguous row-major buffer."""
    return tensors.offset(index, tensors.strides(shape))


def _offset_cases(rng: np.random.Generator) -> list[Case]:
    cases = [((1, 2), (2, 3)), ((0, 0), (2, 3)), ((3,), (5,)), ((), ())]
    for axes in (2, 3, 4):
        shape = tuple(int(n) for n in rng.integers(2, 7, axes))
        cases += [(tuple(int(rng.integers(n)) for n in shape), shape), (tuple(n - 1 for n in shape), shape)]
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


LAYOUT: tuple[Exercise, ...] = (
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

# ================ 2.4 to 2.9: similarity, errors, products, solving

# ---------------------------------------------------------------- cosine


def _cosine_cases(rng: np.random.Generator) -> list[Case]:
    x, y = rng.normal(size=(2, 3, 5))
    return [
        Case(args=(x[0], y[0]), label="float64 (5,)"),
        Case(args=(x, y), label="float64 (3, 5)"),
        Case(args=(x, y[0]), label="float64 (3, 5) with (5,)"),
        Case(args=(100 * x, 0.01 * y), label="other lengths"),
        Case(args=(np.zeros(4), rng.normal(size=4)), label="a vector of zeros"),
        Case(args=(np.zeros(4), np.zeros(4)), label="two vectors of zeros"),
        Case(args=(x.astype(np.float32), y.astype(np.float32)), label="float32 (3, 5)"),
        Case(args=(np.asfortranarray(x), y[:, ::-1]), label="Fortran order and negative stride"),
    ]


def _cosine_with(divide: Any) -> Any:
    def cosine(x: Array, y: Array) -> Any:
        with np.errstate(all="ignore"):
            return np.sum(x * y, axis=-1) / divide(np.linalg.norm(x, axis=-1), np.linalg.norm(y, axis=-1))

    return cosine


# ---------------------------------------------------------------- close


def close(a: Array, b: Array, rtol: float, atol: float) -> bool:
    """Whether every entry of a is within atol + rtol |b| of the reference b."""
    return bool(np.all(np.abs(a - b) <= atol + rtol * np.abs(b)))


def _close_cases(rng: np.random.Generator) -> list[Case]:
    b = rng.uniform(1, 2, size=6)
    cases = [
        (b, b, 0.0, 0.0, "equal"),
        (b * (1 + 0.9e-3), b, 1e-3, 0.0, "within rtol"),
        (b * (1 + 1.1e-3), b, 1e-3, 0.0, "beyond rtol"),
        (np.array([1e-9, 1.0]), np.array([1e-12, 1.0]), 1e-6, 1e-8, "near zero, with atol"),
        (np.array([1e-9, 1.0]), np.array([1e-12, 1.0]), 1e-6, 0.0, "near zero, without atol"),
        (np.array([2.0]), np.array([1.0]), 0.75, 0.0, "result larger than reference"),
        (np.array([1.0]), np.array([2.0]), 0.75, 0.0, "result smaller than reference"),
        (np.array([1.5]), np.array([1.0]), 0.25, 0.25, "exactly on the limit"),
        (np.array([1.0, 9.0]), np.array([1.0, 2.0]), 0.1, 0.1, "one entry off"),
        (np.array([-1.0]), np.array([1.0]), 0.5, 0.5, "opposite sign"),
        (np.array([-1.05]), np.array([-1.0]), 0.1, 0.0, "negative reference"),
    ]
    return [Case(args=(a, b, rtol, atol), label=label) for a, b, rtol, atol, label in cases]


# ---------------------------------------------------------------- chain


def three_chain(m: int, k: int, n: int, p: int) -> int:
    """FLOPs of the cheaper order of (m, k) @ (k, n) @ (n, p)."""
    return linalg.chain_order([(m, k), (k, n), (n, p)]).flops


def _chain_cases(rng: np.random.Generator) -> list[Case]:
    cases: list[tuple[int, ...]] = [
        (2048, 16, 2048, 16),
        (1, 512, 512, 512),
        (512, 512, 512, 1),
        (3, 3, 3, 3),
        (10, 100, 5, 50),
    ]
    cases += [tuple(int(size) for size in rng.integers(1, 80, 4)) for _ in range(6)]
    return [Case(args=c, label=f"({c[0]}, {c[1]}) @ ({c[1]}, {c[2]}) @ ({c[2]}, {c[3]})") for c in cases]


# ---------------------------------------------------------------- affine


def collapse(W1: Array, b1: Array, W2: Array, b2: Array) -> tuple[Array, Array]:
    """One affine layer that equals two."""
    return W1 @ W2, b1 @ W2 + b2


def _affine_cases(rng: np.random.Generator) -> list[Case]:
    cases = []
    for sizes in ((2, 3, 4), (3, 3, 3), (5, 1, 2), (4, 4, 4)):
        d0, d1, d2 = sizes
        args = rng.normal(size=(d0, d1)), rng.normal(size=d1), rng.normal(size=(d1, d2)), rng.normal(size=d2)
        cases.append(Case(args=args, label=f"widths {d0} → {d1} → {d2}"))
    small = tuple(array.astype(np.float32) for array in cases[0].args)
    return [*cases, Case(args=small, label="float32, widths 2 → 3 → 4")]


# ---------------------------------------------------------------- solve


def _solve_cases(rng: np.random.Generator) -> list[Case]:
    cases = []
    for n, columns in ((2, ()), (4, ()), (6, (3,)), (1, ())):
        A = rng.normal(size=(n, n)) + 3 * n * np.eye(n)[rng.permutation(n)]
        cases.append(Case(args=(A, rng.normal(size=(n, *columns))), label=f"float64, n = {n}, b {(n, *columns)}"))
    A, b = cases[1].args
    return [
        *cases,
        Case(args=(A.astype(np.float32), b.astype(np.float32)), label="float32, n = 4"),
        Case(args=(np.asfortranarray(A), b), label="Fortran order, n = 4"),
        Case(args=(np.array([[0.0, 2.0], [1.0, 0.0]]), np.array([4.0, 3.0])), label="a zero in the corner"),
    ]


def _solve_by_elimination(A: Array, b: Array) -> Array:
    return linalg.lu_solve(*linalg.lu_factor(A), b)


_BMM_Q, _BMM_K = (2, 8, 128, 64), (2, 8, 64, 256)

PRODUCTS: tuple[Exercise, ...] = (
    Function(
        id="cosine",
        chapter=2,
        section="2.4",
        title="Cosine similarity",
        checklist=(4,),
        prompt="Write `cosine(x, y)`: the cosine similarity over the last axis, each length at least `1e-8` in "
        "the denominator.",
        contract="float32 or float64 arrays whose last axes are equal; leading axes broadcast; the last axis is "
        "gone from the "
        "result. A vector of zeros gives 0.",
        hints=(
            "Multiply elementwise and sum over the last axis.",
            "`np.maximum(length, 1e-8)` keeps the denominator away from zero.",
        ),
        oracle=linalg.cosine_similarity,
        cases=_cosine_cases,
        tolerance=Tolerance(c=16, depth=lambda x, y: x.shape[-1], scale=lambda x, y: 1.0),
        mistakes=(
            Mistake(
                name="no-eps",
                answer=_cosine_with(lambda a, b: a * b),
                message="A vector of zeros gives 0/0. Keep the denominator away from zero.",
            ),
            Mistake(
                name="dot",
                answer=_cosine_with(lambda a, b: np.ones_like(a * b)),
                message="That is the plain dot product. Divide by both lengths.",
            ),
            Mistake(
                name="one-length",
                answer=_cosine_with(lambda a, b: np.maximum(a, 1e-8) * np.ones_like(b)),
                message="You divided by one length only. The result must not change when `y` is scaled.",
            ),
            Mistake(
                name="squared-lengths",
                answer=_cosine_with(lambda a, b: np.maximum(a**2, 1e-8) * np.maximum(b**2, 1e-8)),
                message="You divided by the squares of the lengths. Take the roots.",
            ),
        ),
        accept=(
            lambda x, y: (
                np.einsum("...i,...i->...", x, y)
                / (np.maximum(np.linalg.norm(x, axis=-1), 1e-8) * np.maximum(np.linalg.norm(y, axis=-1), 1e-8))
            ),
        ),
    ),
    Function(
        id="close-enough",
        chapter=2,
        section="2.5",
        title="Close enough?",
        level="medium",
        checklist=(4,),
        prompt="Write `close(a, b, rtol, atol)`: whether $|a-b| \\le \\text{atol}+\\text{rtol}\\cdot|b|$ holds "
        "for **every** "
        "entry of the result `a` and the reference `b`.",
        contract="Arrays of equal shape with finite entries; return a bool. `np.allclose` and `np.isclose` are "
        "not to be used.",
        hints=("Compare entry by entry, then ask for all.", "Whose magnitude stands on the right?"),
        oracle=close,
        cases=_close_cases,
        forbidden_calls=("np.allclose", "np.isclose", "math.isclose", "np.testing.assert_allclose"),
        mistakes=(
            Mistake(
                name="relative-to-result",
                answer=lambda a, b, rtol, atol: bool(np.all(np.abs(a - b) <= atol + rtol * np.abs(a))),
                message="You scaled rtol by the result. The reference is the ruler, or a large wrong result "
                "widens its own limit.",
            ),
            Mistake(
                name="no-atol",
                answer=lambda a, b, rtol, atol: bool(np.all(np.abs(a - b) <= rtol * np.abs(b))),
                message="You left atol out: near zero the relative error explodes.",
            ),
            Mistake(
                name="no-magnitude",
                answer=lambda a, b, rtol, atol: bool(np.all(a - b <= atol + rtol * np.abs(b))),
                message="You compared the signed difference. An error downwards counts too.",
            ),
            Mistake(
                name="strict",
                answer=lambda a, b, rtol, atol: bool(np.all((np.abs(a - b) < atol + rtol * np.abs(b)) | (a == b))),
                message="Exactly on the limit is still close: the rule says at most.",
            ),
            Mistake(
                name="any",
                answer=lambda a, b, rtol, atol: bool(np.any(np.abs(a - b) <= atol + rtol * np.abs(b))),
                message="One close entry is not enough: all have to be.",
            ),
            Mistake(
                name="signed-reference",
                answer=lambda a, b, rtol, atol: bool(np.all(np.abs(a - b) <= atol + rtol * b)),
                message="You scaled rtol by the signed reference. A negative reference then allows nothing.",
            ),
        ),
    ),
    Function(
        id="three-chain",
        chapter=2,
        section="2.6",
        title="The cheaper order",
        checklist=(2,),
        prompt="Write `three_chain(m, k, n, p)`: the FLOPs of $A(m,k)\\;B(k,n)\\;C(n,p)$ in the cheaper of its "
        "two orders.",
        contract="Positive integers; return an integer.",
        hints=("$(AB)C$ first makes an $(m, n)$ matrix.", "$A(BC)$ first makes a $(k, p)$ matrix."),
        oracle=three_chain,
        cases=_chain_cases,
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=lambda m, k, n, p: three_chain(m, k, n, p) // 2,
                message="You counted a multiply-add as one FLOP.",
            ),
            Mistake(
                name="left-to-right",
                answer=lambda m, k, n, p: 2 * (m * k * n + m * n * p),
                message="You only counted $(AB)C$. Compare it with $A(BC)$.",
            ),
            Mistake(
                name="right-to-left",
                answer=lambda m, k, n, p: 2 * (k * n * p + m * k * p),
                message="You only counted $A(BC)$. Compare it with $(AB)C$.",
            ),
            Mistake(
                name="dearer",
                answer=lambda m, k, n, p: max(2 * (m * k * n + m * n * p), 2 * (k * n * p + m * k * p)),
                message="You returned the dearer of the two orders.",
            ),
            Mistake(
                name="first-product-only",
                answer=lambda m, k, n, p: 2 * min(m * k * n, k * n * p),
                message="You counted the first product only. The second one costs FLOPs too.",
            ),
        ),
        accept=(lambda m, k, n, p: min(2 * m * n * (k + p), 2 * k * p * (n + m)),),
    ),
    Shape(
        id="bmm-shape",
        chapter=2,
        section="2.7",
        title="Shape of a batched product",
        checklist=(1, 2),
        prompt="What is the shape of $(B, N_h, S_q, D_h)\\;@\\;(B, N_h, D_h, S_k)$ for $B=2$, $N_h=8$, "
        "$S_q=128$, $S_k=256$, "
        "$D_h=64$?",
        hints=("The last two axes multiply as matrices.", "The leading axes stay."),
        expected=matmul_shape(_BMM_Q, _BMM_K),
        mistakes=(
            Mistake(
                name="not-reduced",
                answer=(2, 8, 128, 64, 256),
                message="The shared axis $D_h$ is summed: it is not in the result.",
            ),
            Mistake(
                name="batch-multiplied",
                answer=(16, 128, 256),
                message="You multiplied the batch axes into one. They stay apart.",
            ),
            Mistake(
                name="transposed",
                answer=(2, 8, 256, 128),
                message="Queries give the rows and keys the columns: the two last sizes are swapped.",
            ),
            Mistake(
                name="batch-squared",
                answer=(4, 64, 128, 256),
                message="You multiplied equal batch axes with each other. They are matched, not multiplied.",
            ),
            Mistake(
                name="square",
                answer=(2, 8, 128, 128),
                message="You used the number of queries twice. The columns are the keys.",
            ),
        ),
    ),
    Several(
        id="bmm-axes",
        chapter=2,
        section="2.7",
        title="Batch axes and the reduced axis",
        checklist=(1, 2),
        prompt="In $(B, N_h, S_q, D_h)\\;@\\;(B, N_h, D_h, S_k)$, which axes are batch axes and which axis is reduced? "
        "Answer with the names.",
        contract='A dict such as `{"batch": ("S_q", "S_k"), "reduced": "B"}`, with the names `B`, `N_h`, `S_q`, '
        "`S_k`, `D_h`.",
        hints=(
            "A batch axis stands in both factors and in the result.",
            "The reduced axis stands in both factors and not in the result.",
        ),
        parts={
            "batch": Choice(
                prompt="The batch axes.",
                options={
                    "B": Option("the batch", "It stands in both factors and in the result.", True),
                    "N_h": Option("the heads", "They stand in both factors and in the result.", True),
                    "S_q": Option("the queries", "They stand in the first factor only: they are the rows."),
                    "S_k": Option("the keys", "They stand in the second factor only: they are the columns."),
                    "D_h": Option("the head size", "It stands in both factors, but not in the result."),
                },
            ),
            "reduced": Choice(
                prompt="The reduced axis.",
                options={
                    "B": Option("the batch", "It is still there in the result."),
                    "N_h": Option("the heads", "They are still there in the result."),
                    "S_q": Option("the queries", "They are the rows of the result."),
                    "S_k": Option("the keys", "They are the columns of the result."),
                    "D_h": Option("the head size", "It is summed and gone.", True),
                },
            ),
        },
    ),
    Function(
        id="affine-collapse",
        chapter=2,
        section="2.8",
        title="Two layers into one",
        checklist=(4,),
        prompt="Write `collapse(W1, b1, W2, b2)`: the tuple `(W, b)` of one affine layer that equals "
        "$(\\mathbf{x}W_1+\\mathbf{b}_1)W_2+\\mathbf{b}_2$ for every $\\mathbf{x}$.",
        contract="`W1 (d0, d1)`, `b1 (d1,)`, `W2 (d1, d2)`, `b2 (d2,)`, float32 or float64.",
        hints=("Multiply the bracket out.", "The first bias goes through the second weight."),
        oracle=collapse,
        cases=_affine_cases,
        tolerance=Tolerance(c=16, depth=lambda W1, b1, W2, b2: W1.shape[1]),
        mistakes=(
            Mistake(
                name="first-bias-dropped",
                answer=lambda W1, b1, W2, b2: (W1 @ W2, b2),
                message="The first bias is gone. It goes through the second weight like everything else.",
            ),
            Mistake(
                name="second-bias-dropped",
                answer=lambda W1, b1, W2, b2: (W1 @ W2, b1 @ W2),
                message="The second bias is gone. It is added at the end.",
            ),
            Mistake(
                name="biases-added",
                answer=lambda W1, b1, W2, b2: (W1 @ W2, b1 + b2 if b1.shape == b2.shape else b1 @ W2 + b2),
                message="You added the biases. The first one has to pass through the second weight, also where "
                "the shapes fit.",
            ),
            Mistake(
                name="transposed-order",
                answer=lambda W1, b1, W2, b2: (
                    (W2 @ W1, b1 @ W2 + b2) if W1.shape == W2.shape else (W1 @ W2, b1 @ W2 + b2)
                ),
                message="Your product is in the wrong order. With rows on the left, the first layer's weight "
                "comes first.",
            ),
        ),
        accept=(lambda W1, b1, W2, b2: [np.dot(W1, W2), np.einsum("i,ij->j", b1, W2) + b2],),
    ),
    Function(
        id="solve-not-invert",
        chapter=2,
        section="2.9",
        title="Solve without an inverse",
        checklist=(4,),
        prompt="Write `solve(A, b)` with $A\\mathbf{x}=\\mathbf{b}$, without forming an inverse.",
        contract="`A (n, n)` is well conditioned, `b (n,)` or `(n, k)`, float32 or float64; the result has the "
        "shape of `b`. "
        "`inv` and `pinv` are not to be used.",
        hints=("NumPy has a function of that name.", "Or eliminate, then substitute backwards."),
        oracle=np.linalg.solve,
        cases=_solve_cases,
        tolerance=Tolerance(c=64, depth=lambda A, b: A.shape[0]),
        forbidden_calls=("np.linalg.inv", "np.linalg.pinv", "scipy.linalg.inv", "scipy.linalg.pinv", ".inv", ".pinv"),
        mistakes=(
            Mistake(
                name="transposed",
                answer=lambda A, b: np.linalg.solve(A.T, b),
                message="You solved with the transpose. For a symmetric matrix you would not have noticed.",
            ),
            Mistake(
                name="product",
                answer=lambda A, b: A @ b,
                message="You multiplied by $A$. The unknown stands on the other side.",
            ),
            Mistake(
                name="diagonal-only",
                answer=lambda A, b: (b.T / np.where(np.diag(A) == 0, 1, np.diag(A))).T,
                message="You divided by the diagonal. The other entries count too.",
            ),
        ),
        accept=(_solve_by_elimination, lambda A, b: np.linalg.lstsq(A, b, rcond=None)[0]),
    ),
)

# ================ 2.10 to 2.13: rank, eigenvalues, SVD, LoRA

# ---------------------------------------------------------------- spectral radius


def spectral_radius(A: Array) -> Any:
    """Largest magnitude of an eigenvalue."""
    return np.abs(np.linalg.eigvals(A)).max()


def _square_cases(rng: np.random.Generator) -> list[Case]:
    Q, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    return [
        Case(args=(np.array([[2.0, 1.0], [1.0, 2.0]]),), label="symmetric (2, 2)"),
        Case(args=(np.diag([0.5, -3.0, 1.0]),), label="largest eigenvalue negative"),
        Case(args=(np.array([[0.0, -2.0], [2.0, 0.0]]),), label="a rotation and stretch"),
        Case(args=(np.array([[0.5, 10.0], [0.0, 0.25]]),), label="triangular, large corner"),
        Case(args=(np.array([[0.5, 0.0], [10.0, 0.25]]),), label="lower triangular, large corner"),
        Case(args=(Q * np.array([1.5, -0.5, 0.2, 0.1]) @ Q.T,), label="symmetric (4, 4)"),
        Case(args=(np.array([[-0.7]]),), label="(1, 1)"),
    ]


# ---------------------------------------------------------------- truncated SVD


def _low_rank_cases(rng: np.random.Generator) -> list[Case]:
    def spread(m: int, n: int) -> Array:
        U, _ = np.linalg.qr(rng.normal(size=(m, min(m, n))))
        V, _ = np.linalg.qr(rng.normal(size=(n, min(m, n))))
        return U * (4.0 / 2.0 ** np.arange(min(m, n))) @ V.T

    A, wide, tall = spread(4, 4), spread(3, 5), spread(6, 3)
    return [
        Case(args=(A, 2), label="float64 (4, 4), k = 2"),
        Case(args=(A, 1), label="float64 (4, 4), k = 1"),
        Case(args=(A, 4), label="float64 (4, 4), full rank"),
        Case(args=(wide, 2), label="float64 (3, 5), k = 2"),
        Case(args=(tall, 1), label="float64 (6, 3), k = 1"),
        Case(args=(tall.astype(np.float32), 2), label="float32 (6, 3), k = 2"),
        Case(args=(np.asfortranarray(wide), 1), label="Fortran order (3, 5), k = 1"),
    ]


def _truncate_with(choose: Any) -> Any:
    """A truncation with a slip: ``choose(sigma, k)`` gives the weights of the singular directions."""

    def truncate(A: Array, k: int) -> Array:
        U, sigma, Vt = np.linalg.svd(A, full_matrices=False)
        return (U * choose(sigma, k).astype(A.dtype)) @ Vt

    return truncate


def _first(count: int, size: int) -> Array:
    return np.arange(size) < count


def _truncate_by_projection(A: Array, k: int) -> Array:
    U, _, _ = np.linalg.svd(A)
    return U[:, :k] @ (U[:, :k].T @ A)


# ---------------------------------------------------------------- LoRA


def _lora_cases(rng: np.random.Generator) -> list[Case]:
    def parts(lead: tuple[int, ...], d_in: int, d_out: int, r: int, dtype: type = np.float64) -> tuple[Array, ...]:
        shapes = (*lead, d_in), (d_out, d_in), (r, d_in), (d_out, r)
        return tuple(rng.normal(size=shape).astype(dtype) for shape in shapes)

    x, W, A, B = parts((3,), 4, 5, 2)
    return [
        Case(args=(x, W, A, B, 4.0), label="x (3, 4), rank 2, alpha 4"),
        Case(args=(x, W, A, np.zeros_like(B), 4.0), label="B zero"),
        Case(args=(*parts((2, 3), 6, 4, 3), 6.0), label="x (2, 3, 6), rank 3, alpha 6"),
        Case(args=(*parts((2,), 4, 4, 2), 16.0), label="square weight, rank 2, alpha 16"),
        Case(args=(*parts((2,), 4, 4, 4), 2.0), label="square weight, rank 4, alpha 2"),
        Case(args=(*parts((5,), 7, 3, 1, np.float32), 8.0), label="float32, rank 1, alpha 8"),
    ]


def _lora_with(scale: Any) -> Any:
    def forward(x: Array, W: Array, A: Array, B: Array, alpha: float) -> Array:
        return x @ W.T + x.dtype.type(scale(alpha, A, W)) * (x @ A.T @ B.T)

    return forward


def _lora_untransposed(x: Array, W: Array, A: Array, B: Array, alpha: float) -> Array:
    """``x @ W`` where the shapes allow it: the slip that square weights hide."""
    if W.shape[0] != W.shape[1]:
        return linalg.lora_forward(x, W, A, B, alpha)
    return x @ W + alpha / A.shape[0] * (x @ A.T @ B.T)


_RANKS = (8, 16, 64)
_SIZE = 4096


def _ratio_part(r: int) -> Number:
    true = lora_cost(_SIZE, _SIZE, r).ratio
    return Number(
        prompt=f"Trained parameters over those of the full weight for $r={r}$, as a fraction or in %.",
        expected=true,
        unit="1",
        rtol=5e-3,
        mistakes=(
            Mistake(
                name="one-factor",
                answer=true / 2,
                message="You counted one of the two factors $A$ and $B$.",
            ),
            Mistake(
                name="inverted",
                answer=1 / true,
                message="You divided the full weight by the adapter. The ratio is the other way round.",
            ),
            Mistake(
                name="rank-over-width",
                answer=(r / _SIZE) ** 2,
                message="You compared $r^2$ with the weight. The factors are thin, not small squares.",
            ),
        ),
    )


def _flops_part(r: int) -> Number:
    true = lora_cost(_SIZE, _SIZE, r).extra.flops
    return Number(
        prompt=f"Extra forward FLOPs of one token for $r={r}$, adapter not merged.",
        expected=true,
        unit="FLOP",
        default_unit="FLOP",
        exact=True,
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=true // 2,
                message="You counted multiply-adds, or only one of the two thin products. A multiply-add is two FLOPs.",
            ),
            Mistake(
                name="product-built",
                answer=2 * r * _SIZE * _SIZE,
                message="You built the product $BA$ first. Going down to $r$ numbers and up again is far cheaper.",
            ),
            Mistake(
                name="base-included",
                answer=true + 2 * _SIZE * _SIZE,
                message="You included the base layer. Asked is what the adapter adds.",
            ),
        ),
    )


FACTORS: tuple[Exercise, ...] = (
    Formula(
        id="break-even-rank",
        chapter=2,
        section="2.10",
        title="The break-even rank",
        checklist=(5,),
        prompt="At which rank $r$, as a real number, do the factors of an $(m, n)$ matrix have exactly as many "
        "parameters as "
        "the matrix? Give it as a function `f(m, n)`.",
        hints=(
            "How many parameters do the factors have, and how many the matrix?",
            "Set the two equal, then solve for $r$.",
        ),
        oracle=lambda m, n: m * n / (m + n),
        sample=lambda rng: (float(rng.uniform(10, 5000)), float(rng.uniform(10, 5000))),
        mistakes=(
            Mistake(
                name="smaller-side",
                answer=lambda m, n: min(m, n),
                message="That is the largest possible rank. Two factors are larger than the matrix long before it.",
            ),
            Mistake(
                name="half-the-side",
                answer=lambda m, n: min(m, n) / 2,
                message="That holds for square matrices only.",
            ),
            Mistake(
                name="upside-down",
                answer=lambda m, n: (m + n) / (m * n),
                message="Your fraction stands upside down.",
            ),
            Mistake(
                name="one-factor",
                answer=lambda m, n: n,
                message="You counted the parameters of one factor only.",
            ),
        ),
    ),
    Function(
        id="spectral-radius",
        chapter=2,
        section="2.11",
        title="Growth or decay",
        level="medium",
        checklist=(4,),
        prompt="Write `spectral_radius(A)`: the largest **magnitude** of an eigenvalue of `A`.",
        contract="`A (n, n)`, float64, need not be symmetric; eigenvalues may be complex. Return a real scalar.",
        hints=(
            "`np.linalg.eigvals` works for any square matrix.",
            "The magnitude of a complex number is its `np.abs`.",
        ),
        oracle=spectral_radius,
        cases=_square_cases,
        tolerance=Tolerance(c=256, depth=lambda A: A.shape[0]),
        mistakes=(
            Mistake(
                name="largest-eigenvalue",
                answer=lambda A: np.linalg.eigvals(A).real.max(),
                message="You took the largest eigenvalue. A negative or complex one may have a larger magnitude.",
            ),
            Mistake(
                name="symmetric-routine",
                answer=lambda A: np.abs(np.linalg.eigvalsh(A)).max(),
                message="`eigvalsh` reads one triangle only: it is for symmetric matrices.",
            ),
            Mistake(
                name="real-parts",
                answer=lambda A: np.abs(np.linalg.eigvals(A).real).max(),
                message="You dropped the imaginary parts. A rotation has eigenvalues without a real part.",
            ),
            Mistake(
                name="singular-value",
                answer=lambda A: np.linalg.norm(A, 2),
                message="That is the largest singular value. It bounds one step, not the growth over many.",
            ),
        ),
        accept=(lambda A: float(max(abs(value) for value in np.linalg.eig(A)[0])),),
    ),
    Function(
        id="truncated-svd",
        chapter=2,
        section="2.12",
        title="The best rank k",
        level="medium",
        checklist=(4, 5),
        prompt="Write `truncate(A, k)`: the best approximation of `A` of rank `k`.",
        contract="`A (m, n)`, float32 or float64, singular values all different; $1 \\le k \\le \\min(m, n)$. "
        "The result has "
        "the shape of `A`.",
        hints=(
            "`U, sigma, Vt = np.linalg.svd(A, full_matrices=False)`.",
            "Keep the first k columns of U, entries of sigma and rows of Vt.",
        ),
        oracle=linalg.low_rank,
        cases=_low_rank_cases,
        tolerance=Tolerance(c=64, depth=lambda A, k: max(A.shape)),
        mistakes=(
            Mistake(
                name="smallest-kept",
                answer=_truncate_with(lambda s, k: s * _first(k, s.size)[::-1]),
                message="You kept the smallest singular values. They come sorted from large to small.",
            ),
            Mistake(
                name="sigma-forgotten",
                answer=_truncate_with(lambda s, k: _first(k, s.size) * 1.0),
                message="You left the singular values out. U and V only turn; the stretch is in sigma.",
            ),
            Mistake(
                name="one-too-few",
                answer=_truncate_with(lambda s, k: s * _first(k - 1, s.size)),
                message="You kept one term too few.",
            ),
            Mistake(
                name="one-too-many",
                answer=_truncate_with(lambda s, k: s * _first(k + 1, s.size)),
                message="You kept one term too many.",
            ),
            Mistake(
                name="not-truncated",
                answer=lambda A, k: A.copy(),
                message="You kept all terms: that is `A` itself.",
            ),
        ),
        accept=(_truncate_by_projection,),
    ),
    Several(
        id="lora-ratio",
        chapter=2,
        section="2.13",
        title="Three ranks of LoRA",
        level="medium",
        points=2,
        checklist=(5,),
        prompt="For a weight of $4096\\times4096$ and $r = 8, 16, 64$: the ratio of trained to full parameters, "
        "and the extra "
        "forward FLOPs of one token with the adapter kept apart.",
        contract='A dict with the keys `"ratio_8"`, `"ratio_16"`, `"ratio_64"` (a fraction or a text such as '
        '`"0.5 %"`) and '
        '`"flops_8"`, `"flops_16"`, `"flops_64"` (a bare number counts as FLOP).',
        hints=(
            "The factors have $r(d_\\text{in}+d_\\text{out})$ parameters.",
            "One token goes down to $r$ numbers and up again; each multiply-add is two FLOPs.",
        ),
        parts={
            **{f"ratio_{r}": _ratio_part(r) for r in _RANKS},
            **{f"flops_{r}": _flops_part(r) for r in _RANKS},
        },
    ),
    Function(
        id="lora-forward",
        chapter=2,
        section="2.13",
        title="A layer with an adapter",
        level="medium",
        checklist=(5,),
        prompt="Write `lora_forward(x, W, A, B, alpha)`: "
        "$\\mathbf{x}W^{\\mathsf T}+\\tfrac{\\alpha}{r}(\\mathbf{x}A^{\\mathsf T})B^{\\mathsf T}$.",
        contract="`x (…, d_in)`, `W (d_out, d_in)`, `A (r, d_in)`, `B (d_out, r)`, float32 or float64, all of "
        "one dtype; the "
        "result has shape `(…, d_out)`.",
        hints=("$r$ is the first axis of `A`.", "Down to $r$ numbers first, then up."),
        oracle=linalg.lora_forward,
        cases=_lora_cases,
        tolerance=Tolerance(
            c=32,
            depth=lambda x, W, A, B, alpha: x.shape[-1],
            scale=lambda x, W, A, B, alpha: float(
                np.abs(x).max() * (np.abs(W).max() + alpha * np.abs(A).max() * (np.abs(B).max() + 0))
            ),
        ),
        mistakes=(
            Mistake(
                name="scale-forgotten",
                answer=_lora_with(lambda alpha, A, W: 1.0),
                message="The scale $\\alpha/r$ is missing.",
            ),
            Mistake(
                name="alpha-only",
                answer=_lora_with(lambda alpha, A, W: alpha),
                message="You scaled by $\\alpha$. Divide it by the rank.",
            ),
            Mistake(
                name="divided-by-width",
                answer=_lora_with(lambda alpha, A, W: alpha / A.shape[1]),
                message="You divided by the width: the second axis of `A`. The rank is its first axis.",
            ),
            Mistake(
                name="base-forgotten",
                answer=lambda x, W, A, B, alpha: x.dtype.type(alpha / A.shape[0]) * (x @ A.T @ B.T),
                message="The base layer is missing. LoRA adds to it.",
            ),
            Mistake(
                name="weight-not-transposed",
                answer=_lora_untransposed,
                message="You multiplied by `W`, not by its transpose. A square weight hides the slip.",
            ),
        ),
        accept=(lambda x, W, A, B, alpha: x @ linalg.lora_merge(W, A, B, alpha).T,),
    ),
    Written(
        id="lora-not-saved",
        chapter=2,
        section="2.13",
        title="What LoRA does not save",
        points=2,
        checklist=(5,),
        prompt="A colleague says: LoRA trains 0.4 % of the parameters, so training takes 0.4 % of the memory. "
        "What is wrong, "
        "and when would you merge the adapter?",
        hints=("Which tensors exist for frozen parameters too?", "What does an unmerged adapter cost at each token?"),
        rubric=(
            "Gradients and optimizer state shrink with the trained parameters.",
            "Base weights, activations and the forward pass remain; the forward pass even grows.",
            "Merge for one fixed task (no extra latency); keep apart for many tasks or frequent changes.",
        ),
        model="Only gradients and optimizer state of the trained parameters go away. The base weights, all "
        "activations and "
        "the forward computation stay. Merge when one task is served for long; keep adapters apart for many tasks.",
    ),
)

EXERCISES: tuple[Exercise, ...] = (*QUESTIONS, *LAYOUT, *PRODUCTS, *FACTORS)

"""Questions inside the text of chapter 2."""

import math

import numpy as np

from labsupport.cost import lora_cost
from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Shape
from labsupport.ops.linalg import chain_flops
from labsupport.ops.tensors import broadcast_shape, matmul_shape, strides

_CHAIN = [(2048, 16), (16, 2048), (2048, 16)]
_LORA = lora_cost(4096, 4096, 8)

EXERCISES: tuple[Exercise, ...] = (
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

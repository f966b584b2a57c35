"""Exercises of chapter 1 on shapes, FLOPs, bytes and intensity."""

import numpy as np

from labsupport.cost import gemm_cost, linear_cost, tensor_bytes
from labsupport.exercises.three_questions.sizes import HIDDEN, H, V
from labsupport.grading import (
    Case,
    Exercise,
    Formula,
    Function,
    Mistake,
    Number,
    Several,
    Shape,
)
from labsupport.ops.tensors import matmul_shape


def lm_head_cost(B: int, S: int, H: int, V: int, itemsize: int) -> tuple[int, int]:
    """FLOPs and least bytes of (B, S, H) @ (H, V) → (B, S, V)."""
    return 2 * B * S * H * V, itemsize * (B * S * H + H * V + B * S * V)


def _cost_cases(rng: np.random.Generator) -> list[Case]:
    sizes: list[tuple[int, ...]] = [(1, 2, 3, 5, 4), (4, 2048, 4096, 128_256, 2), (1, 1, 4096, 128_256, 2)]
    sizes += [tuple(int(n) for n in (*rng.integers(2, 50, 4), e)) for e in (1, 2, 4)]
    return [Case(args=s, label=f"B={s[0]}, S={s[1]}, H={s[2]}, V={s[3]}, {s[4]} bytes an element") for s in sizes]


def _up_and_down(down: tuple[int, ...]) -> Several:
    """Shapes through an MLP block of 16 × 512 tokens."""
    return Several(
        id="mlp-shapes",
        chapter=1,
        section="1.2",
        title="Shapes through an MLP",
        checklist=(1,),
        prompt="`X` has shape `(16, 512, 4096)`, `W1` has shape `(4096, 14336)`, `W2` has shape `(14336, 4096)`. "
        "Give the shapes of `hidden = X @ W1` and of `out = hidden @ W2`.",
        hints=("Leading axes stay.", "The last axis of a product comes from the weight."),
        parts={
            "hidden": Shape(
                prompt="Shape of `X @ W1`.",
                expected=matmul_shape((16, 512, H), (H, HIDDEN)),
                mistakes=(
                    Mistake(
                        name="flattened",
                        answer=(16 * 512, HIDDEN),
                        message="You merged the leading axes. A product keeps them.",
                    ),
                    Mistake(
                        name="input-shape",
                        answer=(16, 512, H),
                        message="That is the shape of the input. The last axis comes from the weight.",
                    ),
                ),
            ),
            "out": Shape(
                prompt="Shape of `hidden @ W2`.",
                expected=down,
                mistakes=(
                    Mistake(
                        name="inner-kept",
                        answer=(16, 512, HIDDEN),
                        message="The second product sums over the hidden axis: it is gone from the result.",
                    ),
                ),
            ),
        },
    )


MLP = 2 * gemm_cost(16 * 512, HIDDEN, H, "bfloat16")
DECODE = linear_cost(1, H, V, "bfloat16")

EXERCISES: tuple[Exercise, ...] = (
    _up_and_down(matmul_shape((16, 512, HIDDEN), (HIDDEN, H))),
    Number(
        id="mlp-flops",
        chapter=1,
        section="1.3",
        title="FLOPs of an MLP",
        checklist=(7,),
        prompt="How many FLOPs do `X @ W1` and `hidden @ W2` take together, for `X (16, 512, 4096)`, "
        "`W1 (4096, 14336)`, `W2 (14336, 4096)`? Give a unit.",
        contract="The activation function between them is not counted.",
        hints=("One product costs two FLOPs for each multiply-add.", "The two products cost the same."),
        expected=MLP.flops,
        unit="FLOP",
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=f"{MLP.flops // 2} FLOP",
                message="Either you counted multiply-adds as one FLOP, or only one of the two products.",
            ),
            Mistake(
                name="one-token-row",
                answer=f"{MLP.flops // 512} FLOP",
                message="You left the sequence axis out. Every token of every sequence goes through the block.",
            ),
            Mistake(
                name="with-a-gate",
                answer=f"{MLP.flops // 2 * 3} FLOP",
                message="You counted three products, as in an MLP with a gate. This one has no gate matrix.",
            ),
        ),
    ),
    Number(
        id="weight-gib",
        chapter=1,
        section="1.3",
        title="A weight in GiB",
        prompt="How large is a weight $(4096, 128256)$ in BF16, **in GiB**? A bare number counts as GiB.",
        hints=("Two bytes an element.", "One GiB is $2^{30}$ bytes, not $10^9$."),
        expected=tensor_bytes((H, V), "bfloat16") / 2**30,
        unit="GiB",
        default_unit="GiB",
        mistakes=(
            Mistake(
                name="gigabytes",
                answer=tensor_bytes((H, V), "bfloat16") / 10**9,
                message="You divided by $10^9$. That gives GB; a GiB has $2^{30}$ bytes.",
            ),
            Mistake(
                name="elements",
                answer=H * V / 2**30,
                message="You counted elements. Each takes two bytes in BF16.",
            ),
            Mistake(
                name="bytes",
                answer=int(tensor_bytes((H, V), "bfloat16")),
                message="That is the number of bytes, and here a bare number counts as GiB. Convert it, or name its "
                "unit.",
            ),
        ),
    ),
    Number(
        id="decode-intensity",
        chapter=1,
        section="1.3",
        title="Intensity of one token",
        level="medium",
        checklist=(7,),
        prompt="What is the arithmetic intensity of the LM head for a **single** token ($B=S=1$, $H=4096$, "
        "$V=128{,}256$, BF16), in FLOP/B? A bare number counts as FLOP/B.",
        hints=("Divide $2BSHV$ by the bytes of all three tensors.", "One tensor outweighs the two others by far."),
        expected=DECODE.intensity,
        unit="FLOP/B",
        default_unit="FLOP/B",
        rtol=5e-3,
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=DECODE.intensity / 2,
                message="You counted a multiply-add as one FLOP.",
            ),
            Mistake(
                name="elements",
                answer=DECODE.intensity * 2,
                message="You divided by the number of elements. Intensity is per byte, and each element has two.",
            ),
            Mistake(
                name="weight-left-out",
                answer=DECODE.flops / (2 * (H + V)),
                message="You left the weight out. It has to be read, and it is the largest of the three.",
            ),
        ),
    ),
    Function(
        id="lm-head-cost",
        chapter=1,
        section="1.3",
        title="A cost function",
        level="medium",
        checklist=(7,),
        prompt="Write `lm_head_cost(B, S, H, V, itemsize)`. It returns the tuple `(flops, bytes)` of "
        "`X (B, S, H) @ W (H, V)`, each of the three tensors moved once.",
        contract="All arguments are positive integers, `itemsize` in bytes; both results are integers.",
        hints=(
            "Two FLOPs for each multiply-add.",
            "Three tensors: input, weight and output.",
            "The batch does not repeat the weight.",
        ),
        oracle=lm_head_cost,
        cases=_cost_cases,
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=lambda B, S, H, V, e: (B * S * H * V, e * (B * S * H + H * V + B * S * V)),
                message="Your FLOPs count a multiply-add once. A multiply and an add are two FLOPs.",
            ),
            Mistake(
                name="output-forgotten",
                answer=lambda B, S, H, V, e: (2 * B * S * H * V, e * (B * S * H + H * V)),
                message="Your bytes leave out the output. It has to be written.",
            ),
            Mistake(
                name="weight-per-sequence",
                answer=lambda B, S, H, V, e: (2 * B * S * H * V, e * (B * S * H + B * H * V + B * S * V)),
                message="You counted the weight once for each sequence. All sequences share it.",
            ),
            Mistake(
                name="elements",
                answer=lambda B, S, H, V, e: (2 * B * S * H * V, B * S * H + H * V + B * S * V),
                message="You counted elements. Multiply by the bytes of one element.",
            ),
        ),
        accept=(
            lambda B, S, H, V, e: (int(np.prod([2, B, S, H, V])), e * (B * S * (H + V) + H * V)),
            lambda B, S, H, V, e: [2 * B * S * H * V, e * (B * S * H + H * V + B * S * V)],
        ),
    ),
    Formula(
        id="intensity-limit",
        chapter=1,
        section="1.5",
        title="Intensity with very many tokens",
        level="medium",
        checklist=(7,),
        prompt="For very many tokens the weight no longer counts in the traffic. Give the limit of the intensity as a "
        "function `f(H, V, itemsize)`, in FLOP/B.",
        hints=(
            "Divide numerator and denominator by the number of tokens.",
            "Which of the three terms of the denominator does not grow with the tokens?",
        ),
        oracle=lambda H, V, itemsize: 2 * H * V / (itemsize * (H + V)),
        sample=lambda rng: (
            float(rng.integers(64, 9000)),
            float(rng.integers(9001, 200_000)),
            float(rng.choice([1, 2, 4])),
        ),
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=lambda H, V, e: H * V / (e * (H + V)),
                message="You counted a multiply-add as one FLOP.",
            ),
            Mistake(
                name="output-only",
                answer=lambda H, V, e: 2 * H / e,
                message="You dropped the input. Both it and the logits grow with the tokens.",
            ),
            Mistake(
                name="weight-kept",
                answer=lambda H, V, e: 2 * H * V / (e * (H + V + H * V)),
                message="The weight is still in your traffic. For many tokens its share vanishes.",
            ),
        ),
    ),
)

"""Exercises of chapter 11 on counting: parameters, bytes, FLOPs, and the activations that training keeps."""

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Number, Several, Tolerance, Written
from labsupport.ops.transformer import Config, count_parameters


def _count(n: int, d: int, L: int, m: int) -> int:
    return 2 * n * d + L * (4 * d * d + 3 * d * m)


def _size_cases(rng: np.random.Generator) -> list[Case]:
    sizes = [(13, 6, 1, 12), (77, 16, 1, 32), (7, 2, 0, 4), (32000, 1024, 24, 2816)]
    drawn = tuple(int(v) for v in rng.integers(2, 60, 4))
    return [Case(args=s, label=f"n, d, L, m = {s}") for s in (*sizes, drawn)]


PARAMETER_COUNT = Function(
    id="parameter-count",
    chapter=11,
    section="11.7",
    title="Count the parameters",
    prompt="Write `count(n, d, L, m)`: the number of parameters of this chapter's model.",
    contract=(
        "Integers: n tokens, width d, L layers (0 allowed), MLP width m. Embedding and LM head are separate; a layer "
        "has "
        "four (d, d) matrices and a gated MLP of three; no biases, no norm parameters. Result: an integer."
    ),
    hints=(
        "List the tensors with their shapes, and multiply each shape out.",
        "Outside the layers there are two tensors; inside, seven a layer.",
    ),
    level="easy",
    oracle=_count,
    cases=_size_cases,
    tolerance=Tolerance(c=1, depth=1),
    mistakes=(
        Mistake(
            name="tied",
            answer=lambda n, d, L, m: _count(n, d, L, m) - n * d,
            message="You counted embedding and LM head as one tensor. In this model they are separate.",
        ),
        Mistake(
            name="two-mlp",
            answer=lambda n, d, L, m: _count(n, d, L, m) - L * d * m,
            message="A gated MLP has three matrices: gate, up and down.",
        ),
        Mistake(
            name="no-output",
            answer=lambda n, d, L, m: _count(n, d, L, m) - L * d * d,
            message="Attention has a fourth matrix, which brings the merged heads back to the stream.",
        ),
        Mistake(
            name="one-layer",
            answer=lambda n, d, L, m: _count(n, d, 1, m),
            message="You counted one layer, whatever L is.",
        ),
        Mistake(
            name="everything-per-layer",
            answer=lambda n, d, L, m: L * _count(n, d, 1, m),
            message="Embedding and LM head exist once, not in every layer.",
        ),
        Mistake(
            name="with-gradients",
            answer=lambda n, d, L, m: 2 * _count(n, d, L, m),
            message="Gradients are no parameters, although they have as many elements.",
        ),
    ),
    accept=(lambda n, d, L, m: count_parameters(Config(n, d, L, m)),),
)

_LARGE = Config(vocab=32000, width=1024, layers=24, hidden=2048)
_LARGE_P = count_parameters(_LARGE)

TRAINING_BYTES = Several(
    id="weights-and-training-bytes",
    chapter=11,
    section="11.7",
    title="Weights and training memory",
    prompt=(
        "A model has n = 32000, d = 1024, L = 24, m = 2048. Give three parts: `parameters`; `weights`, its bytes in "
        "bfloat16; `training`, the bytes of mixed-precision AdamW training before activations."
    ),
    contract=(
        "Training holds for each parameter: a bfloat16 weight, a bfloat16 gradient, a float32 master weight, and two "
        'float32 moments. Byte counts with a unit, such as `"1.2 GB"`.'
    ),
    hints=("The count is the formula of section 11.7.", "Add up the bytes for one parameter: 2 + 2 + 4 + 4 + 4."),
    level="medium",
    parts={
        "parameters": Number(
            prompt="Number of parameters.",
            expected=_LARGE_P,
            unit="parameter",
            default_unit="parameter",
            rtol=1e-3,
            mistakes=(
                Mistake(
                    name="tied",
                    answer=_LARGE_P - 32000 * 1024,
                    message="Embedding and LM head are separate tensors here.",
                ),
                Mistake(
                    name="two-mlp",
                    answer=_LARGE_P - 24 * 1024 * 2048,
                    message="A gated MLP has three matrices.",
                ),
            ),
        ),
        "weights": Number(
            prompt="Bytes of the weights.",
            expected=2 * _LARGE_P,
            unit="B",
            rtol=3e-3,
            mistakes=(
                Mistake(name="float32", answer=f"{4 * _LARGE_P} B", message="bfloat16 has 16 bits, not 32."),
                Mistake(
                    name="elements", answer=f"{_LARGE_P} B", message="This is the number of parameters, not of bytes."
                ),
            ),
        ),
        "training": Number(
            prompt="Bytes in training, before activations.",
            expected=16 * _LARGE_P,
            unit="B",
            rtol=3e-3,
            mistakes=(
                Mistake(
                    name="no-master",
                    answer=f"{12 * _LARGE_P} B",
                    message="The float32 master weights are missing.",
                ),
                Mistake(
                    name="no-moments",
                    answer=f"{8 * _LARGE_P} B",
                    message="AdamW keeps two float32 moments for each parameter.",
                ),
                Mistake(
                    name="no-gradient",
                    answer=f"{14 * _LARGE_P} B",
                    message="The gradient takes memory as well.",
                ),
            ),
        ),
    },
)


def _flops(B: int, T: int, n: int, d: int, L: int, m: int) -> int:
    return 2 * B * T * (_count(n, d, L, m) - n * d) + L * 4 * B * T * T * d


FORWARD_FLOPS = Function(
    id="forward-flops",
    chapter=11,
    section="11.10",
    title="FLOPs of a forward pass",
    prompt="Write `flops(B, T, n, d, L, m)`: the FLOPs of all matrix products in one forward pass, masked pairs "
    "included.",
    contract=(
        "Integers as in section 11.10; L may be 0. One multiply-add is two FLOPs. The embedding is a look-up and costs "
        "none. "
        "Norms, silu and softmax are not counted. Result: an integer."
    ),
    hints=(
        "Every weight that is multiplied is used once a token: two FLOPs.",
        "Attention's core has two products a layer, each over all pairs of positions.",
    ),
    level="medium",
    checklist=(7,),
    oracle=_flops,
    cases=lambda rng: [
        Case(args=s, label=f"B, T, n, d, L, m = {s}")
        for s in (
            (4, 32, 77, 16, 2, 32),
            (1, 1, 13, 6, 1, 12),
            (2, 8, 7, 2, 0, 4),
            (8, 2048, 32000, 4096, 32, 11008),
            tuple(int(v) for v in rng.integers(2, 40, 6)),
        )
    ],
    tolerance=Tolerance(c=1, depth=1),
    mistakes=(
        Mistake(
            name="embedding-multiplied",
            answer=lambda B, T, n, d, L, m: _flops(B, T, n, d, L, m) + 2 * B * T * n * d,
            message="You let every parameter multiply. The embedding is looked up, which costs no FLOPs.",
        ),
        Mistake(
            name="no-attention",
            answer=lambda B, T, n, d, L, m: 2 * B * T * (_count(n, d, L, m) - n * d),
            message="Attention's two products have no weights, so the parameter count does not see them.",
        ),
        Mistake(
            name="multiply-adds",
            answer=lambda B, T, n, d, L, m: _flops(B, T, n, d, L, m) // 2,
            message="You counted multiply-adds. One of them is two FLOPs.",
        ),
        Mistake(
            name="no-head",
            answer=lambda B, T, n, d, L, m: _flops(B, T, n, d, L, m) - 2 * B * T * n * d,
            message="The LM head is a product too, for small models the largest of all.",
        ),
        Mistake(
            name="one-product",
            answer=lambda B, T, n, d, L, m: _flops(B, T, n, d, L, m) - L * 2 * B * T * T * d,
            message="Attention's core has two products, queries with keys and probabilities with values, and masked "
            "pairs are counted too. You have half of that.",
        ),
        Mistake(
            name="one-token",
            answer=lambda B, T, n, d, L, m: _flops(1, 1, n, d, L, m),
            message="This is the cost of one token in a block of one.",
        ),
    ),
    accept=(lambda B, T, n, d, L, m: 2 * B * T * (n * d + L * (4 * d * d + 3 * d * m)) + 4 * L * B * T**2 * d,),
)

EXPLAIN_KEPT = Written(
    id="explain-kept-activations",
    chapter=11,
    section="11.10",
    title="Why training keeps what inference forgets",
    prompt=(
        "In three to six sentences: which intermediate values does the forward pass keep in training, which in "
        "generation "
        "with a cache, and why the difference?"
    ),
    hints=(
        "Which factors does the gradient of a matrix product need?",
        "Which tensors of old tokens does a new token still read?",
    ),
    level="medium",
    rubric=(
        "training keeps the activations of every layer and position, because each gradient needs the forward values",
        "or keeps checkpoints and computes the rest again",
        "generation keeps keys and values only, because a new token reads nothing else of the old ones",
        "causality: keys and values of old tokens never change",
    ),
    model=(
        "The gradient of a weight is a product of its input with the gradient of its output, so training keeps the "
        "inputs of "
        "all products (or checkpoints, from which they are computed again). In generation nothing runs backwards. A "
        "new "
        "token reads the keys and values of the old ones and nothing else of them; because of the causal mask these "
        "never "
        "change, so they are kept and everything else is dropped."
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    PARAMETER_COUNT,
    TRAINING_BYTES,
    FORWARD_FLOPS,
    EXPLAIN_KEPT,
)

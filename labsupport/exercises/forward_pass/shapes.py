"""Exercises of chapter 11 on the order of a forward pass, the lookup of tokens, and the shapes of a layer."""

from typing import Any

import numpy as np

from labsupport.grading import Case, Choice, Exercise, Function, Mistake, Option, Several, Shape, Tolerance

Array = np.ndarray


FORWARD_ORDER = Choice(
    id="forward-order",
    chapter=11,
    section="11.1",
    title="The order of execution",
    prompt="Which list is the order in which one pre-norm layer runs, from its input to its output?",
    hints=(
        "The norm is there for the part that follows it. So it runs before that part.",
        "There are two residual additions, each right after the part that it goes around.",
    ),
    level="easy",
    options={
        "a": Option(
            "attention, MLP, norm, residual",
            "This is the order of the boxes on the map, which is for look-up. In a layer box 2C occurs twice.",
        ),
        "b": Option(
            "attention, residual, norm, MLP, residual, norm",
            "This is the post-norm order of the first transformers: the norm stands on the residual road itself. The "
            "models of this book are pre-norm.",
        ),
        "c": Option(
            "norm, attention, residual, norm, MLP, residual",
            "Each part reads a normalised copy, and what it computes is added to the stream that was not normalised.",
            correct=True,
        ),
        "d": Option(
            "norm, attention, norm, MLP, residual",
            "One residual is missing: what attention throws away would be lost for the MLP and for every later layer.",
        ),
    },
)


def _embed(ids: Array, E: Array, pos: Array) -> Array:
    if ids.size and (ids.min() < 0 or ids.max() >= len(E)):
        raise ValueError("token id out of range")
    return E[ids] + pos[: ids.shape[1]]


def _embed_cases(rng: np.random.Generator) -> list[Case]:
    def one(B: int, T: int, V: int, d: int, dtype: Any = np.float64) -> Case:
        ids = rng.integers(0, V, (B, T))
        E, pos = rng.normal(size=(V, d)).astype(dtype), rng.normal(size=(T + 3, d)).astype(dtype)
        return Case(args=(ids, E, pos), label=f"ids ({B}, {T}), E {np.dtype(dtype).name} ({V}, {d})")

    E, pos = rng.normal(size=(5, 3)), rng.normal(size=(6, 3))
    return [
        one(2, 4, 7, 3),
        one(1, 1, 5, 2),
        one(3, 6, 6, 6),
        one(2, 5, 9, 4, np.float32),
        Case(args=(np.array([[4, 4, 0, 4]]), E, pos), label="ids with a token that occurs three times"),
        Case(args=(np.array([[0, -1]]), E, pos), raises=ValueError, label="an id of -1"),
        Case(args=(np.array([[0, 5]]), E, pos), raises=ValueError, label="an id equal to V"),
        Case(args=(np.array([[0, 1], [2, -3]]), E, pos), raises=ValueError, label="an id of -3 in the second row"),
    ]


EMBEDDING_LOOKUP = Function(
    id="embedding-lookup",
    chapter=11,
    section="11.2",
    title="Look up and add positions",
    prompt="Write `embed(ids, E, pos)`: the vectors that enter the first layer.",
    contract=(
        "`ids`: (B, T) integers; `E`: (V, d); `pos`: (T_max, d) with T_max ≥ T, row s belongs to place s; `E` and "
        "`pos` float32 or float64. Result: (B, T, d). Raise `ValueError` for an id below 0 or not below V."
    ),
    hints=(
        "NumPy indexing with an integer array of shape (B, T) gives a result of shape (B, T, d).",
        "The position vector depends on the place in the block, not on the token. Which T rows are needed?",
        "Check `ids.min()` and `ids.max()` first: a negative index is no error for NumPy.",
    ),
    checklist=(1,),
    level="easy",
    oracle=_embed,
    cases=_embed_cases,
    tolerance=Tolerance(c=4, depth=1),
    mistakes=(
        Mistake(
            name="no-check",
            answer=lambda ids, E, pos: E[ids] + pos[: ids.shape[1]],
            message="An id of -1 fetched the last token's vector. NumPy counts negative indices from the end, so the "
            "range must be checked first.",
        ),
        Mistake(
            name="position-by-token",
            answer=lambda ids, E, pos: _embed(ids, E, pos) - pos[: ids.shape[1]] + pos[np.minimum(ids, len(pos) - 1)],
            message="You fetched position vectors with token ids. The place in the block decides, not the token.",
        ),
        Mistake(
            name="no-position",
            answer=lambda ids, E, pos: _embed(ids, E, 0 * pos),
            message="The position vectors are missing: attention could not tell the order of the tokens.",
        ),
        Mistake(
            name="same-position",
            answer=lambda ids, E, pos: _embed(ids, E, np.broadcast_to(pos[0], pos.shape)),
            message="Every place got the position vector of place 0.",
        ),
        Mistake(
            name="row-from-the-end",
            answer=lambda ids, E, pos: _embed(ids, E, pos[len(pos) - ids.shape[1] :]),
            message="You took the last T rows of `pos`. A block starts at place 0.",
        ),
    ),
    accept=(lambda ids, E, pos: _embed(ids, E, pos).astype(E.dtype),),
)

_B, _T, _D, _NH, _M, _V = 2, 10, 64, 4, 256, 1000

LAYER_SHAPES = Several(
    id="layer-shapes",
    chapter=11,
    section="11.2",
    title="Shapes inside a layer",
    prompt=(
        f"A batch has B = {_B} blocks of T = {_T} tokens; d = {_D}, N_h = {_NH} heads, m = {_M}, V = {_V}. Give the "
        "shapes of `Q` (cut into heads), `scores`, `o` (heads merged), `gate` and `logits`."
    ),
    hints=(
        "Heads cut the last axis: $d = N_h D_h$.",
        "There is one score for each query and each key, in every head of every block.",
    ),
    checklist=(1, 18),
    level="easy",
    parts={
        "Q": Shape(
            prompt="Queries, cut into heads.",
            expected=(_B, _NH, _T, _D // _NH),
            mistakes=(
                Mistake(
                    name="heads-last",
                    answer=(_B, _T, _NH, _D // _NH),
                    message="The head axis stands before the positions, so that a matrix product runs for each head.",
                ),
                Mistake(
                    name="width-not-cut",
                    answer=(_B, _NH, _T, _D),
                    message="Heads share the width: each has d divided by the number of heads.",
                ),
            ),
        ),
        "scores": Shape(
            prompt="Scores before the softmax.",
            expected=(_B, _NH, _T, _T),
            mistakes=(
                Mistake(
                    name="no-heads",
                    answer=(_B, _T, _T),
                    message="Each head has scores of its own.",
                ),
                Mistake(
                    name="width",
                    answer=(_B, _NH, _T, _D // _NH),
                    message="The width of a head is summed over in the product of queries and keys.",
                ),
            ),
        ),
        "o": Shape(
            prompt="Attention's result, heads merged.",
            expected=(_B, _T, _D),
            mistakes=(
                Mistake(
                    name="not-merged",
                    answer=(_B, _NH, _T, _D // _NH),
                    message="These are the heads before they are put side by side again.",
                ),
            ),
        ),
        "gate": Shape(
            prompt="The gate branch of the MLP.",
            expected=(_B, _T, _M),
            mistakes=(Mistake(name="width", answer=(_B, _T, _D), message="Inside the MLP the last axis is m, not d."),),
        ),
        "logits": Shape(
            prompt="The logits.",
            expected=(_B, _T, _V),
            mistakes=(
                Mistake(
                    name="last-position",
                    answer=(_B, _V),
                    message="In a forward pass every position has its scores, not only the last one.",
                ),
            ),
        ),
    },
)

EXERCISES: tuple[Exercise, ...] = (
    FORWARD_ORDER,
    EMBEDDING_LOOKUP,
    LAYER_SHAPES,
)

"""Exercises of chapter 11: order and shapes of the forward pass, logits, causality, parameters, kernels, percentiles.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and must never
contain the expected value. The last part holds the questions inside the chapter's text.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

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
from labsupport.ops.attention import attention, causal_mask
from labsupport.ops.normalization import rms_norm
from labsupport.ops.softmax import softmax
from labsupport.ops.transformer import Config, count_parameters

Array = np.ndarray

# ---------------------------------------------------------------- order and shapes

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

# ---------------------------------------------------------------- the head


def _head_cases(rng: np.random.Generator) -> list[Case]:
    shapes = [((2,), (2, 7)), ((4, 3), (3, 5)), ((2, 5, 6), (6, 11)), ((3, 3), (3, 3)), ((1, 4, 4), (4, 4))]
    cases = [Case(args=(rng.normal(size=a), rng.normal(size=b)), label=f"h {a}, U {b}") for a, b in shapes]
    h, U = rng.normal(size=(2, 3, 8)).astype(np.float32), rng.normal(size=(8, 6)).astype(np.float32)
    return [*cases, Case(args=(h, U), label="float32, h (2, 3, 8), U (8, 6)")]


LM_HEAD = Function(
    id="lm-head",
    chapter=11,
    section="11.3",
    title="From vectors to scores",
    prompt="Write `logits(h, U)`: one score for each token at every position.",
    contract="`h`: (..., d), any leading axes, also none; `U`: (d, V); float32 or float64. Result: (..., V).",
    hints=(
        "Each logit is a dot product of `h` with one column of `U`.",
        "A matrix product broadcasts over the leading axes of its left factor.",
    ),
    checklist=(1,),
    level="easy",
    oracle=lambda h, U: h @ U,
    cases=_head_cases,
    tolerance=Tolerance(c=4, depth=lambda h, U: h.shape[-1]),
    mistakes=(
        Mistake(
            name="transposed",
            answer=lambda h, U: h @ U.T,
            message="You multiplied by the transpose: `U` has shape (d, V) here. For a square `U` this runs, and every "
            "score is wrong.",
        ),
        Mistake(
            name="softmax",
            answer=lambda h, U: softmax(h @ U),
            message="You returned probabilities. Logits are the scores before the softmax.",
            section="11.6",
        ),
        Mistake(
            name="mean",
            answer=lambda h, U: h @ U / h.shape[-1],
            message="You averaged over the width; a dot product sums.",
        ),
    ),
    accept=(lambda h, U: np.einsum("...d,dv->...v", h, U),),
)

LM_HEAD_BYTES = Number(
    id="lm-head-bytes",
    chapter=11,
    section="11.3",
    title="The largest tensor of the pass",
    prompt=(
        "B = 4 blocks of T = 4096 tokens, V = 128256, logits in bfloat16. How many bytes do the logits take? Answer "
        "with "
        'a unit, such as `"1.5 GiB"`.'
    ),
    hints=("Shape first: one score for each token of the vocabulary at every position.", "bfloat16 takes 2 bytes."),
    checklist=(1,),
    level="easy",
    expected=4 * 4096 * 128256 * 2,
    unit="B",
    rtol=5e-3,
    mistakes=(
        Mistake(
            name="elements", answer=f"{4 * 4096 * 128256} B", message="This is the number of scores, not of bytes."
        ),
        Mistake(name="one-block", answer=f"{4096 * 128256 * 2} B", message="This is one block; the batch has several."),
        Mistake(
            name="last-position",
            answer=f"{4 * 128256 * 2} B",
            message="This is one position a block. Training needs scores at every position.",
            section="11.10",
        ),
    ),
)

LOGITS_ODDS = Formula(
    id="logits-odds",
    chapter=11,
    section="11.6",
    title="What a difference of logits means",
    prompt=(
        "Two logits of one row are $z_i$ and $z_j$. Give, as a function `odds(z_i, z_j)`, how many times as probable "
        "token $i$ is as token $j$."
    ),
    contract="`z_i`, `z_j`: floats between -5 and 5. Result: the quotient of the two probabilities.",
    hints=(
        "Write both probabilities with the softmax formula and divide. What cancels?",
        "Only the difference of the two logits is left.",
    ),
    level="easy",
    oracle=lambda z_i, z_j: np.exp(z_i - z_j),
    sample=lambda rng: tuple(float(v) for v in rng.uniform(-5, 5, 2)),
    mistakes=(
        Mistake(
            name="ratio-of-logits",
            answer=lambda z_i, z_j: z_i / z_j,
            message="You divided the logits. A quotient of logits changes when a constant is added to the row; "
            "probabilities do not.",
        ),
        Mistake(
            name="other-way",
            answer=lambda z_i, z_j: np.exp(z_j - z_i),
            message="This says how many times as probable j is as i.",
        ),
        Mistake(
            name="difference",
            answer=lambda z_i, z_j: z_i - z_j,
            message="This is the logarithm of the odds.",
        ),
        Mistake(
            name="share",
            answer=lambda z_i, z_j: 1 / (1 + np.exp(z_j - z_i)),
            message="This is the probability of i among the two, not the quotient of their probabilities.",
        ),
    ),
    accept=(lambda z_i, z_j: np.exp(z_i) / np.exp(z_j),),
)

# ---------------------------------------------------------------- a whole layer


def _layer(
    x: Array,
    W: dict[str, Array],
    heads: int,
    *,
    causal: bool = True,
    scaled: bool = True,
    first: bool = True,
    second: bool = True,
    pre: bool = True,
    norm_mlp: bool = True,
    silu_on: str = "gate",
    swap: bool = True,
) -> Array:
    """One pre-norm layer; the switches make the known mistakes."""
    one = np.ones(x.shape[-1], x.dtype)

    def norm(value: Array) -> Array:
        return rms_norm(value, one)

    def split(value: Array) -> Array:
        return value.reshape(*value.shape[:-1], heads, -1).swapaxes(-2, -3)

    a = norm(x) if pre else x
    Q, K, V = (split(a @ W[name]) for name in ("query", "key", "value"))
    if not scaled:
        Q = Q * np.sqrt(Q.shape[-1]).astype(Q.dtype)
    o = attention(Q, K, V, causal=causal)
    o = (o.swapaxes(-2, -3) if swap else o).reshape(x.shape)
    y = (x if first else 0) + o @ W["output"]
    y = y if pre else norm(y)
    b = norm(y) if pre and norm_mlp else y
    gate, up = b @ W["gate"], b @ W["up"]
    gate, up = (up, gate) if silu_on == "up" else (gate, up)
    out = (y if second else 0) + (gate / (1 + np.exp(-gate)) * up) @ W["down"]
    return out if pre else norm(out)


def _layer_cases(rng: np.random.Generator) -> list[Case]:
    def one(B: int, T: int, d: int, m: int, heads: int, dtype: Any = np.float64) -> Case:
        sizes = dict.fromkeys(("query", "key", "value", "output"), (d, d)) | dict.fromkeys(("gate", "up"), (d, m))
        W = {name: (rng.normal(size=s) * 0.7).astype(dtype) for name, s in (sizes | {"down": (m, d)}).items()}
        x = (2 * rng.normal(size=(B, T, d))).astype(dtype)
        return Case(args=(x, W, heads), label=f"{np.dtype(dtype).name}, x ({B}, {T}, {d}), m = {m}, {heads} heads")

    return [
        one(1, 4, 6, 8, 1),
        one(2, 5, 6, 8, 2),
        one(3, 4, 8, 8, 4),
        one(1, 1, 4, 3, 2),
        one(2, 6, 8, 5, 2, np.float32),
    ]


TRANSFORMER_LAYER = Function(
    id="transformer-layer",
    chapter=11,
    section="11.4",
    title="A whole transformer layer",
    prompt="Write `layer(x, W, heads)`: one pre-norm layer with causal attention and a gated MLP.",
    contract=(
        "`x`: (B, T, d); `W`: dict with `query`, `key`, `value`, `output` (d, d), `gate`, `up` (d, m), `down` (m, d); "
        "`heads` divides d; float32 or float64. Norm: $x/\\sqrt{\\mathrm{mean}(x^2)+10^{-5}}$ over the last axis. "
        "Head h owns columns $hD_h$ to $(h+1)D_h$. MLP: (silu(b gate) times (b up)) down. Result: (B, T, d)."
    ),
    hints=(
        "Write `norm(x)` first, then follow the six stages of section 11.1 in order.",
        "Heads: `reshape(B, T, heads, D_h).swapaxes(1, 2)`; back again with `swapaxes(1, 2).reshape(B, T, d)`.",
        "Mask the scores with -inf above the diagonal before the softmax, and subtract the row maximum inside it.",
    ),
    checklist=(9, 18),
    points=3,
    level="hard",
    oracle=_layer,
    cases=_layer_cases,
    tolerance=Tolerance(c=16, depth=lambda x, W, heads: x.shape[-1] + x.shape[1]),
    mistakes=(
        Mistake(
            name="no-mask",
            answer=lambda x, W, heads: _layer(x, W, heads, causal=False),
            message="Your positions read later ones: the causal mask is missing.",
            section="11.5",
        ),
        Mistake(
            name="no-scale",
            answer=lambda x, W, heads: _layer(x, W, heads, scaled=False),
            message="The scores are not divided by the square root of the width of a head.",
        ),
        Mistake(
            name="first-residual",
            answer=lambda x, W, heads: _layer(x, W, heads, first=False),
            message="The residual around attention is missing: y is x plus what attention gives.",
        ),
        Mistake(
            name="second-residual",
            answer=lambda x, W, heads: _layer(x, W, heads, second=False),
            message="The residual around the MLP is missing.",
        ),
        Mistake(
            name="post-norm",
            answer=lambda x, W, heads: _layer(x, W, heads, pre=False),
            message="You normalised after each addition. In a pre-norm layer the part reads a normalised copy, and the "
            "stream itself is never normalised.",
            section="11.1",
        ),
        Mistake(
            name="one-norm",
            answer=lambda x, W, heads: _layer(x, W, heads, norm_mlp=False),
            message="The MLP reads y as it is. There is a second norm before it.",
        ),
        Mistake(
            name="silu-on-up",
            answer=lambda x, W, heads: _layer(x, W, heads, silu_on="up"),
            message="The function silu belongs to the gate branch; the other branch stays linear.",
        ),
        Mistake(
            name="one-head",
            answer=lambda x, W, heads: _layer(x, W, 1),
            message="You treated all heads as one. It has the same matrices and computes another function.",
            section="11.8",
        ),
        Mistake(
            name="merge-without-swap",
            answer=lambda x, W, heads: _layer(x, W, heads, swap=False),
            message="You merged the heads without moving the head axis back next to the width first: numbers of "
            "different "
            "positions got mixed.",
        ),
    ),
    accept=(lambda x, W, heads: _layer(x, {name: w.copy() for name, w in W.items()}, heads),),
)

# ---------------------------------------------------------------- causality


def _depends(
    forward: Callable[[Array], Array],
    ids: Array,
    vocab: int,
    *,
    keep: bool = False,
    atol: float = 0.0,
    last: bool = False,
) -> Array:
    before = np.asarray(forward(ids.copy()))
    T = ids.shape[1]
    found = np.zeros((T, T), bool)
    other = ids.copy()
    for s in range(T):
        other = other if keep else ids.copy()
        other[:, s] = (other[:, s] + 1) % vocab
        change = np.abs(np.asarray(forward(other)) - before).max(axis=(0, 2))
        found[:, s] = change > atol
        if last:
            found[:-1, s] = False
    return found


def _reads(allowed: Array, rng: np.random.Generator, vocab: int, weak: float = 1.0) -> Callable[[Array], Array]:
    """A model whose logits at t mix the embeddings of the positions that ``allowed[t]`` names."""
    E, U = rng.normal(size=(vocab, 3)), rng.normal(size=(3, vocab))
    weights = np.where(np.triu(allowed, 1), weak, 1.0) * allowed

    def forward(ids: Array) -> Array:
        return np.tanh(np.einsum("ts,bsd->btd", weights, E[ids])) @ U

    return forward


def _probe_cases(rng: np.random.Generator) -> list[Case]:
    def one(label: str, allowed: Array, B: int = 1, weak: float = 1.0) -> Case:
        T, vocab = len(allowed), 9
        ids = rng.integers(0, vocab, (B, T))
        return Case(args=(_reads(allowed, rng, vocab, weak), ids, vocab), label=label)

    n = 6
    window = causal_mask(n) & ~np.tri(n, k=-3, dtype=bool)
    return [
        one("a causal model", causal_mask(n)),
        one("a model without a mask", np.ones((4, 4), bool)),
        one("a mask that is off by one", np.tri(5, k=1, dtype=bool), B=2),
        one("a window of three tokens", window),
        one("a faint leak", np.tri(5, k=2, dtype=bool), weak=1e-7),
        one("each position reads itself only", np.eye(4, dtype=bool), B=3),
        one("one token", np.ones((1, 1), bool)),
    ]


CAUSAL_PROBE = Function(
    id="causal-probe",
    chapter=11,
    section="11.5",
    title="Find the leak",
    prompt=(
        "Write `depends(forward, ids, vocab)`: a boolean (T, T) array whose entry [t, s] says whether replacing the "
        "token "
        "at position s changes any logit at position t, in any row of the batch."
    ),
    contract=(
        "`forward`: (B, T) integer ids → (B, T, V) float64 logits, deterministic; `ids`: (B, T), not to be changed. "
        "Replace "
        "a token k by (k + 1) mod `vocab`, one position at a time, in all rows. Any difference counts, however small."
    ),
    hints=(
        "Run the model once on the block as it is, then once for each position.",
        "Work on a fresh copy for each position; compare whole arrays of logits.",
        "Reduce the comparison over the batch axis and the vocabulary axis; a vector over positions is left. It is a "
        "column of the answer.",
    ),
    level="medium",
    points=2,
    oracle=_depends,
    cases=_probe_cases,
    tolerance=Tolerance(c=1, depth=1),
    mistakes=(
        Mistake(
            name="transposed",
            answer=lambda forward, ids, vocab: _depends(forward, ids, vocab).T,
            message="Your matrix is transposed: the row is the position of the logits, the column that of the replaced "
            "token.",
        ),
        Mistake(
            name="not-restored",
            answer=lambda forward, ids, vocab: _depends(forward, ids, vocab, keep=True),
            message="You did not put the earlier tokens back, so later columns see several replacements at once.",
        ),
        Mistake(
            name="loose",
            answer=lambda forward, ids, vocab: _depends(forward, ids, vocab, atol=1e-5),
            message="A tolerance hides a faint leak. Logits that do not depend on a token keep their bits: compare "
            "exactly.",
        ),
        Mistake(
            name="last-position",
            answer=lambda forward, ids, vocab: _depends(forward, ids, vocab, last=True),
            message="You compared the last position only. A leak shows at earlier positions.",
        ),
        Mistake(
            name="assumed",
            answer=lambda forward, ids, vocab: causal_mask(ids.shape[1]),
            message="You returned the mask that ought to be there, without asking the model.",
        ),
    ),
    accept=(lambda forward, ids, vocab: _depends(lambda x: forward(x) * 1.0, ids, vocab),),
)

# ---------------------------------------------------------------- counting


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

# ---------------------------------------------------------------- kernels, percentiles, FLOPs


def _agree(x: Array, reference: Array, factor: float) -> bool:
    scale = float(np.abs(reference).max())
    return bool((np.abs(x.astype(np.float64) - reference) <= factor * np.finfo(x.dtype).eps * scale).all())


def _agree_cases(rng: np.random.Generator) -> list[Case]:
    r = rng.normal(size=(3, 4))
    r[0, 0] = 3.0
    eps32, eps64 = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
    one_off = r.astype(np.float32)
    one_off[2, 3] += np.float32(200 * eps32 * 3)
    below = r.astype(np.float32)
    below[1, 1] -= np.float32(200 * eps32 * 3)
    with_nan = r.copy()
    with_nan[1, 2] = np.nan
    near_zero = r.copy()
    near_zero[1, 0] = 0.0
    moved = near_zero.copy()
    moved[1, 0] = 10 * eps64
    return [
        Case(args=(r.astype(np.float32), r, 32.0), label="the reference rounded to float32"),
        Case(args=(r.copy(), r, 32.0), label="the reference itself"),
        Case(args=(one_off, r, 32.0), label="float32, one element 200 eps too large"),
        Case(args=(below, r, 32.0), label="float32, one element 200 eps too small"),
        Case(args=(r + 1e-9, r, 32.0), label="float64, all elements off by 1e-9"),
        Case(args=(with_nan, r, 32.0), label="float64, one NaN"),
        Case(args=(moved, near_zero, 32.0), label="float64, 10 eps where the reference is 0"),
    ]


KERNELS_AGREE = Function(
    id="kernels-agree",
    chapter=11,
    section="11.8",
    title="Do two kernels agree?",
    prompt=(
        "Write `agree(x, reference, factor)`: whether every element of `x` lies within "
        "factor · eps · max|reference| of the reference, with the eps of **x**'s dtype."
    ),
    contract=(
        "`x`: float32 or float64, a kernel's result; `reference`: float64, same shape, at least one element not 0, "
        "finite; "
        "`factor` > 0. A NaN in `x` never agrees. Result: a bool."
    ),
    hints=(
        "`np.finfo(x.dtype).eps` is the relative spacing of x's dtype.",
        "The worst element decides, and the error has no sign.",
        "A comparison with NaN is False. Ask whether all elements are within, not whether any is beyond.",
    ),
    level="medium",
    checklist=(15,),
    oracle=_agree,
    cases=_agree_cases,
    tolerance=Tolerance(c=1, depth=1),
    upcast=False,
    mistakes=(
        Mistake(
            name="eps-of-reference",
            answer=lambda x, r, f: bool((np.abs(x - r) <= f * np.finfo(np.float64).eps * np.abs(r).max()).all()),
            message="You used the eps of the reference's dtype: a correct float32 kernel can never meet that.",
        ),
        Mistake(
            name="float32-always",
            answer=lambda x, r, f: bool((np.abs(x - r) <= f * np.finfo(np.float32).eps * np.abs(r).max()).all()),
            message="You used float32's eps for every dtype: a float64 kernel that is wrong in the tenth digit passes.",
        ),
        Mistake(
            name="mean",
            answer=lambda x, r, f: bool(
                np.abs(x.astype(np.float64) - r).mean() <= f * np.finfo(x.dtype).eps * np.abs(r).max()
            ),
            message="You compared the mean error. One wrong element among many must not pass.",
        ),
        Mistake(
            name="signed",
            answer=lambda x, r, f: bool(
                ((x.astype(np.float64) - r) <= f * np.finfo(x.dtype).eps * np.abs(r).max()).all()
            ),
            message="The error keeps its sign in your comparison, so a result that is too small always passes.",
        ),
        Mistake(
            name="nan-passes",
            answer=lambda x, r, f: not bool((np.abs(x - r) > f * np.finfo(x.dtype).eps * np.abs(r).max()).any()),
            message="A NaN passes: every comparison with it is False, also 'greater'. Ask whether all are within.",
        ),
        Mistake(
            name="relative-each",
            answer=lambda x, r, f: bool(
                (np.abs(x.astype(np.float64) - r) <= f * np.finfo(x.dtype).eps * np.abs(r)).all()
            ),
            message="You took each element's own size as the scale. Where the reference is 0 nothing but 0 would "
            "agree.",
        ),
    ),
    accept=(lambda x, r, f: np.max(np.abs(x.astype(np.float64) - r)) <= f * np.finfo(x.dtype).eps * np.max(np.abs(r)),),
)


def _rank(times: Array, q: float) -> float:
    ordered = np.sort(times)
    return float(ordered[int(np.ceil(q / 100 * len(ordered) - 1e-9)) - 1])


def _rank_cases(rng: np.random.Generator) -> list[Case]:
    hundred = rng.permutation(100) + 1.0
    tail = rng.permutation(np.array([10.0] * 90 + [100.0] * 10))
    drawn = rng.exponential(size=37)
    return [
        Case(args=(hundred, 50), label="100 different times, q = 50"),
        Case(args=(hundred, 95), label="100 different times, q = 95"),
        Case(args=(drawn, 99), label="37 times, q = 99"),
        Case(args=(drawn, 50), label="37 times, q = 50"),
        Case(args=(tail, 95), label="90 fast runs and 10 slow ones, q = 95"),
        Case(args=(np.array([3.0, 1.0]), 50), label="two times, q = 50"),
        Case(args=(np.array([7.0]), 99), label="one time, q = 99"),
        Case(args=(drawn, 100), label="37 times, q = 100"),
    ]


NEAREST_RANK = Function(
    id="nearest-rank",
    chapter=11,
    section="11.9",
    title="A percentile that was measured",
    prompt="Write `percentile(times, q)` by the nearest-rank rule: the $\\lceil qN/100 \\rceil$-th smallest of N "
    "times.",
    contract="`times`: (N,) float64, N ≥ 1, any order, not to be changed; `q`: an integer in 1..100. Result: a float.",
    hints=(
        "Sort a copy. The rank counts from 1, an index from 0.",
        "`math.ceil(q * N / 100)`; with q an integer the product is exact.",
    ),
    level="easy",
    oracle=_rank,
    cases=_rank_cases,
    tolerance=Tolerance(c=2, depth=1),
    mistakes=(
        Mistake(
            name="off-by-one",
            answer=lambda t, q: float(np.sort(t)[min(len(t) - 1, int(np.ceil(q / 100 * len(t) - 1e-9)))]),
            message="The rank counts from 1, an index from 0: you are one place too far.",
        ),
        Mistake(
            name="unsorted",
            answer=lambda t, q: float(t[int(np.ceil(q / 100 * len(t) - 1e-9)) - 1]),
            message="The times are in the order of measurement. Sort a copy first.",
        ),
        Mistake(
            name="interpolated",
            answer=lambda t, q: float(np.percentile(t, q)),
            message="NumPy's default lies between two measured values. Nearest rank returns a time that occurred.",
        ),
        Mistake(name="mean", answer=lambda t, q: float(t.mean()), message="This is the mean, whatever q is."),
        Mistake(
            name="from-the-top",
            answer=lambda t, q: float(np.sort(t)[::-1][int(np.ceil(q / 100 * len(t) - 1e-9)) - 1]),
            message="You counted from the slowest run. p99 has 99 percent of the runs at or below it.",
        ),
    ),
    accept=(lambda t, q: np.percentile(t, q, method="inverted_cdf"),),
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
            message="Attention's core has two products: queries with keys, and probabilities with values.",
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

# ---------------------------------------------------------------- questions inside the chapter

FORWARD_RUNS_FIRST = Choice(
    id="forward-runs-first",
    chapter=11,
    section="11.1",
    title="Which runs first?",
    prompt="Inside a layer, which box of the map works first?",
    hints=("What does the norm steady: what a part gives, or what it reads?",),
    level="easy",
    place="chapter",
    options={
        "a": Option("2A, attention", "The attention of a pre-norm layer reads values that another box has steadied."),
        "b": Option("2B, the MLP", "The MLP is the second half of a layer."),
        "c": Option("2C, the norm", "The norm runs before attention, and once more before the MLP.", correct=True),
        "d": Option("2D, the logits", "Logits come after the last layer, once."),
    },
)

FORWARD_LOGITS_SHAPE = Shape(
    id="forward-logits-shape",
    chapter=11,
    section="11.2",
    title="Shape of the logits",
    prompt="Which shape do the logits have?",
    hints=("One score for each token of the vocabulary, at every position of every block.",),
    checklist=(1,),
    level="easy",
    place="chapter",
    expected=(8, 2048, 32000),
    mistakes=(
        Mistake(name="width", answer=(8, 2048, 4096), message="The width d is summed over in the last product."),
        Mistake(name="last-position", answer=(8, 32000), message="Scores exist at every position, not only the last."),
        Mistake(
            name="all-axes", answer=(8, 2048, 4096, 32000), message="A product keeps outer axes and sums the inner."
        ),
    ),
)

LOGIT_OF_CAT = Number(
    id="logit-of-cat",
    chapter=11,
    section="11.3",
    title="The logit of cat",
    prompt="What is the logit of `cat`, whose column of U is 0.1 and 0.3, for h = [1, 2]?",
    hints=("One times the first row, two times the second.",),
    level="easy",
    place="chapter",
    expected=1 * 0.1 + 2 * 0.3,
    unit="1",
    rtol=1e-6,
    mistakes=(
        Mistake(name="sum", answer=0.1 + 0.3, message="You added the column. Each entry is weighted by h first."),
        Mistake(name="swapped", answer=2 * 0.1 + 1 * 0.3, message="You took the entries of h in the wrong order."),
    ),
)

LOGITS_HOW_MANY = Number(
    id="logits-how-many",
    chapter=11,
    section="11.3",
    title="How many scores",
    prompt="B = 1, T = 10, V = 23: how many logits are there?",
    hints=("Multiply the axes of the shape.",),
    level="easy",
    place="chapter",
    expected=10 * 23,
    unit="1",
    exact=True,
    mistakes=(
        Mistake(name="sum", answer=33, message="You added the axes; a table has rows times columns."),
        Mistake(name="one-row", answer=23, message="This is one position. There is a row of scores at each."),
    ),
)

CAUSAL_WHICH_CHANGE = Choice(
    id="causal-which-change",
    chapter=11,
    section="11.5",
    title="Which logits change?",
    prompt="Positions are counted from 0. Which of the six rows of logits may change?",
    hints=("Which positions may read position 3?",),
    level="easy",
    place="chapter",
    options={
        "a": Option("0 to 3", "Earlier positions cannot read a later one; that is what the mask is for."),
        "b": Option("3 to 5", "Position 3 reads itself, and later positions read it too.", correct=True),
        "c": Option("4 and 5 only", "A position reads its own token as well."),
        "d": Option("all six", "Then the model would see its own answers in training."),
    },
)

LOGITS_CONCLUDE = Choice(
    id="logits-conclude",
    chapter=11,
    section="11.6",
    title="What may be concluded",
    prompt='Logits of one forward pass, no labels. Which statements hold? Several may; answer such as `"a, c"`.',
    hints=("What changes when a constant is added to all logits of one position?",),
    level="medium",
    place="chapter",
    options={
        "a": Option(
            "at this position the model leans more to cat than to fish",
            "Within one row a larger logit means a larger probability.",
            correct=True,
        ),
        "b": Option(
            "cat has probability 0.7",
            "Logits do not sum to 1; softmax comes first.",
        ),
        "c": Option(
            "the model is more certain at this position than at the next, because its largest logit is larger",
            "Each row has a free constant. Compare probabilities, not logits.",
        ),
        "d": Option(
            "cat is e to the (logit difference) times as probable as fish",
            "The quotient of two probabilities of a row depends on the difference of the logits alone.",
            correct=True,
        ),
        "e": Option(
            "the model guesses well",
            "That needs the right tokens, which logits do not hold.",
        ),
    },
)

PARAMETERS_SMALL = Number(
    id="parameters-small",
    chapter=11,
    section="11.7",
    title="Parameters of the small model",
    prompt="How many parameters has this model?",
    hints=("Two tensors outside the layer, seven inside it.", "With L = 1 and m = 2d the formula is 2nd + 10d²."),
    level="easy",
    place="chapter",
    expected=2 * 13 * 6 + 10 * 36,
    unit="parameter",
    default_unit="parameter",
    exact=True,
    mistakes=(
        Mistake(name="tied", answer=13 * 6 + 10 * 36, message="Embedding and LM head are two tensors here."),
        Mistake(name="no-mlp", answer=2 * 13 * 6 + 4 * 36, message="The MLP's three matrices are missing."),
    ),
)

KERNEL_OR_MODEL = Choice(
    id="kernel-or-model",
    chapter=11,
    section="11.8",
    title="Kernel or model?",
    prompt="Which of these changes makes it another model, and not another way to execute the same one?",
    hints=("Which of them changes the formula, in exact arithmetic?",),
    level="easy",
    place="chapter",
    options={
        "a": Option("fused instead of explicit attention", "The same formula, with fewer reads and writes."),
        "b": Option("weights split over two devices", "The same products, cut into blocks and added up."),
        "c": Option("norm and product fused into one kernel", "The same formula, without storing the result between."),
        "d": Option(
            "16 attention heads instead of 32",
            "Scores and softmax are then taken over other groups of columns: another function, although every tensor "
            "keeps its shape.",
            correct=True,
        ),
    },
)

PERCENTILE_OF_RUNS = Number(
    id="percentile-of-runs",
    chapter=11,
    section="11.9",
    title="p95 of a hundred runs",
    prompt="What is p95, in milliseconds?",
    hints=("Sort them. Which one is the 95th?",),
    level="easy",
    place="chapter",
    expected=0.100,
    unit="s",
    default_unit="ms",
    rtol=1e-6,
    mistakes=(
        Mistake(name="mean", answer="19 ms", message="This is the mean, a time that no run took."),
        Mistake(
            name="median", answer="10 ms", message="This is the median; ninety runs are fast, ninety-five are not."
        ),
        Mistake(name="interpolated", answer="95.5 ms", message="Nearest rank returns a time that was measured."),
    ),
)

FORWARD_FLOPS_TOKEN = Number(
    id="forward-flops-token",
    chapter=11,
    section="11.10",
    title="FLOPs for one token",
    prompt="FLOPs of the products with weights, for one token.",
    hints=("Which tensor is looked up and not multiplied?", "Two FLOPs for each weight that is left."),
    checklist=(7,),
    level="medium",
    place="chapter",
    expected=2 * (5024 - 77 * 16),
    unit="FLOP",
    default_unit="FLOP",
    exact=True,
    mistakes=(
        Mistake(name="embedding", answer=2 * 5024, message="The embedding is looked up; it costs no FLOPs."),
        Mistake(name="no-head", answer=2 * (5024 - 2 * 77 * 16), message="The LM head does multiply."),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    FORWARD_ORDER,
    EMBEDDING_LOOKUP,
    LAYER_SHAPES,
    LM_HEAD,
    LM_HEAD_BYTES,
    TRANSFORMER_LAYER,
    CAUSAL_PROBE,
    LOGITS_ODDS,
    PARAMETER_COUNT,
    TRAINING_BYTES,
    KERNELS_AGREE,
    NEAREST_RANK,
    FORWARD_FLOPS,
    EXPLAIN_KEPT,
    FORWARD_RUNS_FIRST,
    FORWARD_LOGITS_SHAPE,
    LOGIT_OF_CAT,
    LOGITS_HOW_MANY,
    CAUSAL_WHICH_CHANGE,
    LOGITS_CONCLUDE,
    PARAMETERS_SMALL,
    KERNEL_OR_MODEL,
    PERCENTILE_OF_RUNS,
    FORWARD_FLOPS_TOKEN,
)

"""Exercises of chapter 11 on a whole layer, and on a probe of causality."""

from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Tolerance
from labsupport.ops.attention import attention, causal_mask
from labsupport.ops.normalization import rms_norm

Array = np.ndarray


def _layer(
    x: Array,
    W: dict[str, Array],
    heads: int,
    *,
    causal: bool = True,
    scaled: bool = True,
    by_d: bool = False,
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
    if by_d:
        Q = Q / np.sqrt(heads).astype(Q.dtype)
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
            name="scaled-by-d",
            answer=lambda x, W, heads: _layer(x, W, heads, by_d=True),
            message="You divided the scores by the root of d. A score sums over the width of one head, $D_h$.",
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
    every: bool = False,
) -> Array:
    before = np.asarray(forward(ids.copy()))
    T = ids.shape[1]
    found = np.zeros((T, T), bool)
    other = ids.copy()
    for s in range(T):
        other = other if keep else ids.copy()
        other[:, s] = (other[:, s] + 1) % vocab
        change = np.abs(np.asarray(forward(other)) - before) > atol
        found[:, s] = change.all(axis=(0, 2)) if every else change.any(axis=(0, 2))
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


def _leaks(rng: np.random.Generator, vocab: int, how: str) -> Callable[[Array], Array]:
    """A causal model whose logits also move with the last token, each time in a way that a careless look misses."""
    causal = _reads(causal_mask(5), rng, vocab)

    def forward(ids: Array) -> Array:
        logits = causal(ids)
        last = ids[:, -1:] / vocab
        if how == "row":
            logits[-1] += last[-1]
        elif how == "down":
            logits[:, :, -1] -= last
        elif how == "moved":
            logits[:, :, -1] += last
            logits[:, :, -2] -= last
        else:
            logits[:, :, -1] += 1e-13 * last
        return logits

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
        *(
            Case(args=(_leaks(rng, 9, how), np.tile(np.arange(5), (3, 1)), 9), label=label)
            for how, label in (
                ("row", "a leak in the last row of the batch only"),
                ("down", "a leak that lowers one logit"),
                ("moved", "a leak from one logit into another"),
                ("faint", "a leak of 1e-14"),
            )
        ),
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
            name="first-row",
            answer=lambda forward, ids, vocab: _depends(lambda x: forward(x)[:1], ids, vocab),
            message="You compared the first row of the batch only. Any row may show the leak.",
        ),
        Mistake(
            name="every-logit",
            answer=lambda forward, ids, vocab: _depends(forward, ids, vocab, every=True),
            message="You asked whether all logits change. One that does is a leak.",
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

EXERCISES: tuple[Exercise, ...] = (
    TRANSFORMER_LAYER,
    CAUSAL_PROBE,
)

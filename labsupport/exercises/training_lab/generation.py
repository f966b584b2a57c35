"""Exercises of chapter 13 on generation: attention over a cache, and choosing a token."""

import math

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Tolerance
from labsupport.ops.softmax import softmax, top_k

Array = np.ndarray


def _decode_attention(q: Array, K: Array, V: Array, *, scale: float | None = None) -> Array:
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = np.einsum("hd,htd->ht", q, K) * q.dtype.type(factor)
    return np.einsum("ht,htd->hd", softmax(scores), V)


def _by_exponentials(q: Array, K: Array, V: Array, *, shift: bool) -> Array:
    """Softmax without a shift, or with one shift for all heads."""
    scores = np.einsum("hd,htd->ht", q, K) / q.dtype.type(math.sqrt(q.shape[-1]))
    with np.errstate(all="ignore"):
        e = np.exp(scores - scores.max() if shift else scores)
        return np.einsum("ht,htd->hd", e / e.sum(axis=-1, keepdims=True), V)


DECODE_ATTENTION = Function(
    id="decode-attention",
    chapter=13,
    section="13.10",
    title="Attention of one new token",
    level="medium",
    checklist=(18,),
    prompt=(
        "Write `decode_attention(q, K, V)`: attention of a single new token, whose query is `q`, over all cached keys "
        "and values, its own included."
    ),
    contract=(
        "`q`: (N_h, D_h); `K`, `V`: (N_h, T, D_h), float32 or float64. Scores are divided by the root of D_h and may "
        "be in the hundreds. Result: (N_h, D_h)."
    ),
    hints=(
        "Scores have shape (N_h, T): one dot product for each head and cached token.",
        "No mask is needed: everything in the cache is in the past.",
        "`(q[:, None] @ K.swapaxes(-1, -2))` is (N_h, 1, T); softmax over the last axis; times `V`; drop the axis.",
    ),
    oracle=_decode_attention,
    cases=lambda rng: [
        Case(args=(rng.normal(size=(2, 4)), rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 5, 4)))),
        Case(
            args=tuple(rng.normal(size=s).astype(np.float32) for s in ((3, 8), (3, 6, 8), (3, 6, 8))),
            label="float32, 3 heads",
        ),
        Case(args=(rng.normal(size=(4, 4)), rng.normal(size=(4, 4, 4)), rng.normal(size=(4, 4, 4))), label="all 4"),
        Case(args=(rng.normal(size=(1, 2)), rng.normal(size=(1, 1, 2)), rng.normal(size=(1, 1, 2))), label="T = 1"),
        Case(
            args=(400 * rng.normal(size=(2, 4)), rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 5, 4))),
            label="scores in the hundreds",
        ),
        Case(
            args=(np.array([[400.0], [-400.0]]), np.tile([[1.0], [1.5], [2.0]], (2, 1, 1)), rng.normal(size=(2, 3, 1))),
            label="one head's scores far below the other's",
        ),
    ],
    tolerance=Tolerance(
        c=16,
        depth=lambda q, K, V: q.shape[-1] + K.shape[1],
        scale=lambda q, K, V: float(np.abs(V).max()) * max(1.0, float(np.abs(np.einsum("hd,htd->ht", q, K)).max())),
    ),
    mistakes=(
        Mistake(
            name="not-scaled",
            answer=lambda q, K, V: _decode_attention(q, K, V, scale=1.0),
            message="The scores were not divided by the root of the head's width.",
            section="13.10",
        ),
        Mistake(
            name="scaled-by-width",
            answer=lambda q, K, V: _decode_attention(q, K, V, scale=1 / q.shape[-1]),
            message="You divided by the head's width instead of by its root.",
        ),
        Mistake(
            name="softmax-over-heads",
            answer=lambda q, K, V: np.einsum(
                "ht,htd->hd", softmax(np.einsum("hd,htd->ht", q, K) / math.sqrt(q.shape[-1]), axis=0), V
            ),
            message="Your weights sum to 1 over the heads. Each head has a softmax of its own, over the tokens.",
        ),
        Mistake(
            name="no-maximum",
            answer=lambda q, K, V: _by_exponentials(q, K, V, shift=False),
            message="Large scores overflow in the exponential: subtract the maximum of each head's scores first.",
            section="5.2",
        ),
        Mistake(
            name="global-shift",
            answer=lambda q, K, V: _by_exponentials(q, K, V, shift=True),
            message="You subtracted the maximum over all heads. A head far below it becomes 0/0: each needs its own.",
            section="5.2",
        ),
        Mistake(
            name="own-token-left-out",
            answer=lambda q, K, V: _decode_attention(q, K[:, :-1], V[:, :-1]) if K.shape[1] > 1 else 0 * V[:, 0],
            message="You left out the new token's own key and value, the last in the cache.",
        ),
        Mistake(
            name="keys-for-values",
            answer=lambda q, K, V: _decode_attention(q, K, K),
            message="You averaged the keys. The weights come from keys, what is averaged are values.",
        ),
    ),
)


def _pick(logits: Array, u: float, temperature: float, k: int) -> int:
    p = softmax(top_k(logits / temperature, k))
    return int(np.searchsorted(np.cumsum(p), u, side="right"))


def _pick_sorted(logits: Array, u: float, temperature: float, k: int) -> int:
    p = softmax(top_k(logits / temperature, k))
    order = np.argsort(-p, kind="stable")
    return int(order[np.searchsorted(np.cumsum(p[order]), u, side="right")])


def _pick_unnormalised(logits: Array, u: float, temperature: float, k: int) -> int:
    p = softmax(logits / temperature) * np.isfinite(top_k(logits, k))
    return min(int(np.searchsorted(np.cumsum(p), u, side="right")), len(logits) - 1)


PICK_TOKEN = Function(
    id="pick-token",
    chapter=13,
    section="13.10",
    title="From logits to a token",
    level="medium",
    checklist=(9,),
    prompt=(
        "Write `pick(logits, u, temperature, k)`: divide by the temperature, keep the `k` largest logits, and turn the "
        "random number `u` into a token: the first id whose cumulative probability exceeds `u`."
    ),
    contract=(
        "`logits`: float64 (V,), all different; `u`: a float in [0, 1); `temperature` > 0; `k` from 1 to V. The "
        "probabilities of the kept tokens sum to 1, and are added in the order of the ids. Result: an integer."
    ),
    hints=(
        "Set the logits that are dropped to −inf, then a stable softmax renormalises the rest.",
        "`np.cumsum(p)`, and the first place where it is above `u`.",
        "`np.searchsorted(cumulative, u, side='right')` finds that place.",
    ),
    oracle=_pick,
    cases=lambda rng: [
        Case(args=(np.array([1.0, 3.0, 2.0, 0.0]), 0.05, 1.0, 4), label="u = 0.05, all tokens"),
        Case(args=(np.array([1.0, 3.0, 2.0, 0.0]), 0.9, 1.0, 4), label="u = 0.9, all tokens"),
        Case(args=(np.array([1.0, 3.0, 2.0, 0.0]), 0.05, 1.0, 2), label="u = 0.05, two tokens"),
        Case(args=(np.array([1.0, 3.0, 2.0, 0.0]), 0.999, 1.0, 2), label="u = 0.999, two tokens"),
        Case(args=(np.array([0.0, 1.0, 0.5, 0.2]), 0.95, 0.1, 3), label="cold"),
        Case(args=(np.array([0.0, 5.0, 0.5, 0.2]), 0.2, 50.0, 4), label="hot"),
        Case(args=(np.array([0.0, 1.0, 2.0, 3.0]), 0.25, 0.5, 4), label="rather cold"),
        Case(args=(np.array([1000.0, 1002.0, 1001.0]), 0.5, 1.0, 3), label="logits near 1000"),
        Case(args=(np.array([-1.0, 2.0, 1.0]), 0.0, 1.0, 1), label="k = 1"),
        *(
            Case(args=(rng.normal(size=12), float(rng.uniform()), 0.8, 5), label=f"twelve tokens, draw {i}")
            for i in range(4)
        ),
    ],
    mistakes=(
        Mistake(
            name="temperature-multiplied",
            answer=lambda z, u, T, k: _pick(z * T * T, u, T, k),
            message="You multiplied by the temperature. A low one must sharpen.",
        ),
        Mistake(
            name="temperature-ignored",
            answer=lambda z, u, T, k: _pick(z * T, u, T, k),
            message="The temperature has no effect on your result. Dividing the probabilities and normalising again "
            "takes it out, for example.",
        ),
        Mistake(
            name="no-filter",
            answer=lambda z, u, T, k: _pick(z, u, T, len(z)),
            message="A token outside the k largest was drawn.",
        ),
        Mistake(
            name="sorted-order",
            answer=_pick_sorted,
            message="You added probabilities from the largest down. The contract adds them in the order of the ids.",
        ),
        Mistake(
            name="not-renormalised",
            answer=_pick_unnormalised,
            message="The kept probabilities no longer sum to 1, so a large `u` finds no token. Filter logits, then "
            "softmax.",
        ),
        Mistake(
            name="greedy",
            answer=lambda z, u, T, k: int(np.argmax(z)),
            message="You took the largest logit; the random number has no effect.",
        ),
    ),
    accept=(lambda z, u, T, k: int(np.argmax(np.cumsum(softmax(top_k(z / T, k))) > u)),),
)

EXERCISES: tuple[Exercise, ...] = (
    PICK_TOKEN,
    DECODE_ATTENTION,
)

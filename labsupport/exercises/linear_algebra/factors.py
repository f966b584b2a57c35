"""Exercises of chapter 2 on rank, eigenvalues, the SVD and LoRA."""

from typing import Any

import numpy as np

from labsupport.cost import lora_cost
from labsupport.grading import Case, Exercise, Formula, Function, Mistake, Number, Several, Tolerance, Written
from labsupport.ops import linalg

Array = np.ndarray


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
        Case(args=(np.array([[1.0, -4.0, 0.0], [1.0, 0.5, 0.0], [3.0, 1.0, 0.4]]),), label="a complex pair, sheared"),
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


EXERCISES: tuple[Exercise, ...] = (
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

"""Exercises of chapter 2 on similarity, errors, products and solving."""

from typing import Any

import numpy as np

from labsupport.grading import Case, Choice, Exercise, Function, Mistake, Option, Several, Shape, Tolerance
from labsupport.ops import linalg
from labsupport.ops.tensors import matmul_shape

Array = np.ndarray


def _cosine_cases(rng: np.random.Generator) -> list[Case]:
    x, y = rng.normal(size=(2, 3, 5))
    short = 3e-9 * x / np.linalg.norm(x, axis=-1, keepdims=True)
    return [
        Case(args=(x[0], y[0]), label="float64 (5,)"),
        Case(args=(x, y), label="float64 (3, 5)"),
        Case(args=(x, y[0]), label="float64 (3, 5) with (5,)"),
        Case(args=(100 * x, 0.01 * y), label="other lengths"),
        Case(args=(np.zeros(4), rng.normal(size=4)), label="a vector of zeros"),
        Case(args=(np.zeros(4), np.zeros(4)), label="two vectors of zeros"),
        Case(args=(x.astype(np.float32), y.astype(np.float32)), label="float32 (3, 5)"),
        Case(args=(np.asfortranarray(x), y[:, ::-1]), label="Fortran order and negative stride"),
        Case(args=(rng.normal(size=(2, 3, 4)), rng.normal(size=(3, 4))), label="float64 (2, 3, 4) with (3, 4)"),
        Case(args=(short, 5 * y), label="a vector shorter than 1e-8"),
        Case(args=(short, 0.1 * short / 3e-9), label="the same, and the other one of length 0.1"),
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
        (np.array([1.15]), np.array([1.0]), 0.1, 0.1, "within the sum of both allowances"),
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

EXERCISES: tuple[Exercise, ...] = (
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
            Mistake(
                name="product-bounded",
                answer=_cosine_with(lambda a, b: np.maximum(a * b, 1e-8)),
                message="You bounded the product of the lengths. Each of the two lengths is at least 1e-8.",
            ),
            Mistake(
                name="eps-added",
                answer=_cosine_with(lambda a, b: (a + 1e-8) * (b + 1e-8)),
                message="You added 1e-8 to the lengths. They are bounded below by it; longer ones stay as they are.",
            ),
            Mistake(
                name="only-zeros",
                answer=_cosine_with(lambda a, b: np.where(a * b == 0, 1.0, a * b)),
                message="You treat only zeros as a case of their own. Any length below 1e-8 counts as 1e-8.",
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
                name="larger-allowance",
                answer=lambda a, b, rtol, atol: bool(np.all(np.abs(a - b) <= np.maximum(atol, rtol * np.abs(b)))),
                message="You took the larger of the two allowances, as `math.isclose` does. Here they are added.",
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
        forbidden_calls=(
            *("np.linalg.inv", "np.linalg.pinv", "scipy.linalg.inv", "scipy.linalg.pinv", ".inv", ".pinv"),
            *("np.linalg.matrix_power", "np.linalg.tensorinv"),  # inverses under another name
        ),
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

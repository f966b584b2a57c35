"""Exercises of chapter 4 on variances: of sums, of gradients, under dropout, and their estimates."""

from __future__ import annotations

import numpy as np

from labsupport.grading import Case, Exercise, Formula, Function, Mistake, Number, Several, Tolerance
from labsupport.ops.probability import correlation, covariance

variance_of_sum = Number(
    id="variance-of-sum",
    chapter=4,
    section="4.6",
    title="Variance of a combination",
    checklist=(8,),
    prompt="$\\mathrm{Var}(X) = 4$, $\\mathrm{Var}(Y) = 9$, $\\mathrm{Cov}(X, Y) = -1$. What is $\\mathrm{Var}(3X - Y "
    "+ 5)$?",
    hints=(
        "Factors count squared, a shift does not count.",
        "$\\mathrm{Var}(aX + bY)$ has the term $2ab\\,\\mathrm{Cov}(X, Y)$; mind the sign of $b$.",
    ),
    expected=3**2 * 4 + 9 + 2 * 3 * -1 * -1,
    mistakes=(
        Mistake(
            name="no-covariance",
            answer=3**2 * 4 + 9,
            message="You added the variances alone; $X$ and $Y$ are correlated.",
        ),
        Mistake(
            name="sign",
            answer=3**2 * 4 + 9 - 6,
            message="The covariance has the wrong sign: $Y$ enters with a minus, and the covariance is negative.",
        ),
        Mistake(name="not-squared", answer=3 * 4 + 9 + 6, message="The factor of $X$ counts squared."),
        Mistake(name="shift", answer=3**2 * 4 + 9 + 6 + 5, message="A shift does not change a variance."),
        Mistake(
            name="minus-variance",
            answer=3**2 * 4 - 9 + 6,
            message="Variances are never subtracted: the factor $-1$ counts squared as well.",
        ),
    ),
)

gradient_noise_batch = Number(
    id="gradient-noise-batch",
    chapter=4,
    section="4.6",
    title="A batch for a given noise",
    checklist=(8,),
    prompt="At a batch of 32 the gradient's standard deviation is 0.8. Which batch brings it to 0.2?",
    contract="A number of samples; samples are i.i.d.",
    hints=("The standard deviation falls like $1/\\sqrt B$.", "It must fall by four."),
    expected=32 * (0.8 / 0.2) ** 2,
    mistakes=(
        Mistake(
            name="linear",
            answer=128,
            message="You scaled the batch like the noise. The noise falls with the root of the batch.",
        ),
        Mistake(name="root", answer=64, message="You took the root of the wrong side: a larger batch is needed."),
        Mistake(name="smaller", answer=2, message="A smaller batch is noisier."),
    ),
)

dropout_variance = Formula(
    id="dropout-variance",
    chapter=4,
    section="4.6",
    title="The variance that dropout adds",
    checklist=(8,),
    level="medium",
    prompt="Dropout sets a fixed input $x$ to 0 with probability $p$ and else to $x/(1-p)$. Write its variance as "
    "`variance(x, p)`.",
    contract="$0 \\le p < 1$; $x$ is a number.",
    hints=(
        "The mask is Bernoulli with the keep probability $1-p$.",
        "$\\mathrm{Var}(aM) = a^2\\,\\mathrm{Var}(M)$ with $a = x/(1-p)$.",
    ),
    oracle=lambda x, p: x**2 * p / (1 - p),
    sample=lambda rng: (float(rng.uniform(0.5, 3)), float(rng.uniform(0.05, 0.95))),
    mistakes=(
        Mistake(
            name="no-rescaling",
            answer=lambda x, p: x**2 * p * (1 - p),
            message="That is the variance without the division by $1-p$.",
        ),
        Mistake(
            name="factor-not-squared",
            answer=lambda x, p: x * p,
            message="The factor $x/(1-p)$ counts squared in a variance.",
        ),
        Mistake(
            name="keep-and-drop",
            answer=lambda x, p: x**2 * (1 - p) / p,
            message="Keeping and dropping are mixed up: at $p=0$ nothing is random.",
        ),
        Mistake(
            name="second-moment",
            answer=lambda x, p: x**2 / (1 - p),
            message="That is the mean of the square. Subtract the square of the mean.",
        ),
    ),
)


def _covariance_cases(rng: np.random.Generator) -> list[Case]:
    x = rng.normal(size=(12, 3)) * [1, 2, 0.5] + [0, 1, -2]
    return [
        Case(args=(x,), label="float64 (12, 3)"),
        Case(args=(rng.normal(size=(4, 4)) + 1,), label="float64 (4, 4)"),
        Case(args=(rng.normal(size=(9, 1)),), label="float64 (9, 1)"),
        Case(args=(rng.normal(size=(3, 6)) - 2,), label="float64 (3, 6)"),
        Case(args=(np.asfortranarray(x),), label="float64 (12, 3), Fortran order"),
        Case(args=(np.ones((5, 2)),), label="float64 (5, 2), constant"),
    ]


def _correlation_or_zero(x: np.ndarray) -> np.ndarray:
    return correlation(x) if np.all(np.ptp(x, axis=0) > 0) else np.zeros((x.shape[1],) * 2)


covariance_matrix = Function(
    id="covariance-matrix",
    chapter=4,
    section="4.7",
    title="A covariance matrix",
    checklist=(8,),
    level="medium",
    prompt="Write `cov(x)`: the population covariance matrix of $n$ samples of $d$ features.",
    contract="`x`: float64 (n, d), one row a sample. Divide by n. Returns (d, d). Use no function that computes "
    "covariances.",
    hints=("Subtract the mean of each column.", "`centred.T @ centred` sums over the samples."),
    oracle=covariance,
    cases=_covariance_cases,
    tolerance=Tolerance(c=8, depth=lambda x: x.shape[0], scale=lambda x: float(np.mean(x**2)) * x.shape[1]),
    forbidden_calls=("np.cov", "numpy.cov", "np.corrcoef"),
    mistakes=(
        Mistake(
            name="rows",
            answer=lambda x: covariance(x.T),
            message="You took the rows for variables. Each row is a sample; the samples are summed away.",
        ),
        Mistake(
            name="unbiased",
            answer=lambda x: covariance(x, ddof=1),
            message="You divided by $n-1$. The contract asks for the population covariance.",
            section="4.8",
        ),
        Mistake(
            name="not-centred",
            answer=lambda x: x.T @ x / len(x),
            message="You did not subtract the means: that is the matrix of second moments.",
        ),
        Mistake(
            name="not-divided",
            answer=lambda x: covariance(x) * len(x),
            message="That is the sum over the samples. Divide by their number.",
        ),
        Mistake(
            name="correlation",
            answer=_correlation_or_zero,
            message="You divided by the standard deviations as well: that is the correlation matrix.",
        ),
    ),
    accept=(lambda x: np.einsum("ni,nj->ij", x - x.mean(0), x - x.mean(0)) / x.shape[0],),
)

FOUR = np.array([2.0, 4.0, 4.0, 6.0])

variance_divisors = Several(
    id="variance-divisors",
    chapter=4,
    section="4.8",
    title="Three libraries, one array",
    checklist=(8,),
    prompt="For the numbers 2, 4, 4, 6: what do `np.var`, `torch.var` (defaults) and LayerNorm (before epsilon) use "
    "as the variance?",
    contract="Answer `{'numpy': ..., 'torch': ..., 'layer_norm': ...}`.",
    hints=("The mean is 4.", "Who divides by $n$, who by $n-1$?"),
    parts={
        "numpy": Number(
            prompt="`np.var(x)`",
            expected=float(FOUR.var()),
            mistakes=(
                Mistake(name="unbiased", answer=float(FOUR.var(ddof=1)), message="NumPy's default is `ddof=0`."),
                Mistake(name="deviation", answer=float(FOUR.std()), message="That is a standard deviation."),
            ),
        ),
        "torch": Number(
            prompt="`torch.var(x)`",
            expected=float(FOUR.var(ddof=1)),
            mistakes=(
                Mistake(name="population", answer=float(FOUR.var()), message="PyTorch's default is `correction=1`."),
            ),
        ),
        "layer_norm": Number(
            prompt="LayerNorm's variance",
            expected=float(FOUR.var()),
            mistakes=(
                Mistake(
                    name="unbiased",
                    answer=float(FOUR.var(ddof=1)),
                    message="LayerNorm normalises these very numbers and divides by $n$, unlike `torch.var`.",
                ),
            ),
        ),
    },
)

EXERCISES: tuple[Exercise, ...] = (
    variance_of_sum,
    gradient_noise_batch,
    variance_divisors,
    dropout_variance,
    covariance_matrix,
)

"""Exercises of chapter 4: tables, Bayes, expectation, variance, covariance, divisors and logarithms.

Expected values are computed by `labsupport.ops.probability` or from the tables stated here. No message may hold one.
"""

from __future__ import annotations

import math

import numpy as np

from labsupport.grading import (
    Case,
    Choice,
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
from labsupport.ops.probability import (
    conditional,
    correlation,
    covariance,
    marginal,
    posterior,
    sequence_log_probability,
)

# --- in the chapter ---------------------------------------------------------------------------------------

density_above_one = Choice(
    id="density-above-one",
    chapter=4,
    section="4.1",
    title="A density above one",
    place="chapter",
    checklist=(8,),
    prompt="A weight is uniform on $[0, 0.1)$. May its density be larger than 1?",
    hints=("What must the area under the density be?", "How wide is the interval?"),
    options={
        "a": Option("no, a probability is at most 1", "A density is not a probability; it is probability per unit."),
        "b": Option(
            "yes, it must be",
            "The area is 1 and the interval is a tenth wide, so the height is the inverse of the width.",
            True,
        ),
        "c": Option("yes, but only at single points", "It is the same everywhere on the interval."),
    },
)

token_sequence = Number(
    id="token-sequence",
    chapter=4,
    section="4.2",
    title="Three tokens",
    place="chapter",
    checklist=(8,),
    prompt="The model gives the three tokens the conditional probabilities 0.5, 0.2 and 0.1. What is the probability "
    "of the sequence?",
    hints=("Which rule puts a sequence together from its conditionals?", "A product, one factor for each token."),
    expected=0.5 * 0.2 * 0.1,
    mistakes=(
        Mistake(
            name="mean",
            answer=(0.5 + 0.2 + 0.1) / 3,
            message="That is the average of the factors. The chain rule multiplies them.",
        ),
        Mistake(name="sum", answer=0.5 + 0.2 + 0.1, message="You added the factors. The chain rule multiplies them."),
        Mistake(name="smallest", answer=0.1, message="That is the last factor alone."),
        Mistake(
            name="logarithm",
            answer=math.log(0.5 * 0.2 * 0.1),
            message="That is the logarithm of the probability; the probability itself is asked.",
        ),
    ),
)

zero_covariance = Choice(
    id="zero-covariance",
    chapter=4,
    section="4.3",
    title="A parabola",
    place="chapter",
    checklist=(8,),
    prompt="$X$ is uniform on $(-1, 1)$ and $Y = X^2$. Are they correlated, and are they independent?",
    hints=("What is $\\mathbb{E}[X^3]$?", "If you know $X$, what do you know of $Y$?"),
    options={
        "a": Option("correlated and dependent", "The rise on the right is cancelled by the fall on the left."),
        "b": Option("uncorrelated, hence independent", "The implication runs from independent to uncorrelated only."),
        "c": Option(
            "uncorrelated and dependent",
            "There is no linear relation, and yet $X$ determines $Y$.",
            True,
        ),
    },
)

FLAG_PRIOR, FLAG_LIKELIHOOD = (0.01, 0.99), (0.90, 0.05)

bayes_flag = Number(
    id="bayes-flag",
    chapter=4,
    section="4.4",
    title="What a flag means",
    place="chapter",
    checklist=(8,),
    prompt="1 % of the documents are bad; the filter flags 90 % of the bad and 5 % of the good ones. With what "
    "probability, in percent, is a flagged document bad?",
    hints=("Take 1000 documents and count four kinds.", "Bad and flagged, over all flagged."),
    expected=100 * float(posterior(FLAG_PRIOR, FLAG_LIKELIHOOD)[0]),
    unit="%",
    default_unit="%",
    rtol=0.01,
    mistakes=(
        Mistake(
            name="turned-around",
            answer=90,
            message="That is the share of bad documents that are flagged. The question is the other way round.",
        ),
        Mistake(
            name="no-prior",
            answer=100 * 0.90 / 0.95,
            message="You compared the likelihoods alone, as if bad and good were equally common.",
        ),
        Mistake(
            name="not-normalised",
            answer=0.9,
            message="That is the share of documents that are bad and flagged. Divide by the share of all flagged.",
        ),
        Mistake(
            name="odds",
            answer=100 * 9 / 49.5,
            message="You divided bad by good among the flagged. Divide by all the flagged.",
        ),
    ),
)

mean_of_means = Number(
    id="mean-of-means",
    chapter=4,
    section="4.5",
    title="The mean of batches",
    place="chapter",
    checklist=(8,),
    prompt="Ten losses lie in batches of 4, 4 and 2 with means 1.0, 2.0 and 6.0. What is the mean over all ten?",
    hints=("Which sum does each batch have?", "Add the sums, then divide by ten."),
    expected=float(np.average([1.0, 2.0, 6.0], weights=[4, 4, 2])),
    mistakes=(
        Mistake(
            name="unweighted",
            answer=3.0,
            message="That is the mean of the means: it gives the batch of two the weight of a batch of four.",
        ),
        Mistake(name="sum", answer=24.0, message="That is the sum of all losses; divide it by how many there are."),
    ),
)

batch_noise = Number(
    id="batch-noise",
    chapter=4,
    section="4.6",
    title="Four times the batch",
    place="chapter",
    checklist=(8,),
    prompt="The batch grows from 16 to 64 samples. By which factor is the standard deviation of the gradient "
    "multiplied?",
    hints=("The variance of a mean of $B$ samples is $\\sigma^2/B$.", "The standard deviation is its root."),
    expected=math.sqrt(16 / 64),
    mistakes=(
        Mistake(
            name="variance",
            answer=16 / 64,
            message="That is the factor of the variance. The standard deviation is its root.",
        ),
        Mistake(
            name="inverse",
            answer=2,
            message="More samples make the mean quieter, not noisier.",
        ),
        Mistake(name="unchanged", answer=1, message="Each sample is as noisy as before, but their mean is not."),
    ),
)

cov_shape = Shape(
    id="cov-shape",
    chapter=4,
    section="4.7",
    title="The shape of np.cov",
    place="chapter",
    checklist=(8,),
    prompt="`x` has shape `(1000, 16)`: a thousand samples of sixteen features. What is the shape of `np.cov(x)`?",
    hints=("Which axis does NumPy take for the variables, by default?", "See `rowvar` in its documentation."),
    expected=np.cov(np.random.default_rng(0).normal(size=(1000, 16))).shape,
    mistakes=(
        Mistake(
            name="columns",
            answer=(16, 16),
            message="That is what you want, and what `rowvar=False` gives. The default takes rows for variables.",
        ),
        Mistake(name="product", answer=(1000, 16), message="A covariance matrix is square."),
    ),
)

ddof_default = Choice(
    id="ddof-default",
    chapter=4,
    section="4.8",
    title="torch's default",
    place="chapter",
    checklist=(8,),
    prompt="What does `torch.tensor([1., 2., 3., 4.]).var()` return by default?",
    hints=("The squared distances from the mean sum to 5.", "PyTorch's argument is `correction`; what is its default?"),
    options={
        "a": Option("1.25", "That divides by $n$, as `np.var` does."),
        "b": Option("1.6667", "It divides by $n-1$: `correction=1` is the default.", True),
        "c": Option("5.0", "That is the sum of squared distances, not yet divided."),
        "d": Option("1.118", "That is a standard deviation."),
    },
)

product_underflow = Choice(
    id="product-underflow",
    chapter=4,
    section="4.9",
    title="A thousand factors",
    place="chapter",
    checklist=(10, 15),
    prompt="1000 tokens, each with probability 0.1. What does their product give in float32?",
    hints=("The product is $10^{-1000}$. Is there such a float32?", "Float32 reaches down to about $10^{-45}$."),
    options={
        "a": Option("about $10^{-1000}$", "No float32 is that small."),
        "b": Option("0.0", "The product underflows long before the end of the text, and stays there.", True),
        "c": Option("NaN", "Nothing undefined happens: small numbers are multiplied and rounded."),
        "d": Option("the smallest positive float32", "Rounding does not stop there; half of it rounds further down."),
    },
)

# --- in the exercise notebook -----------------------------------------------------------------------------

TABLE = np.array([[0.20, 0.10, 0.10], [0.30, 0.20, 0.10]])

joint_table = Several(
    id="joint-table",
    chapter=4,
    section="4.2",
    title="Reading a joint table",
    checklist=(8,),
    prompt="$p(x, y)$ has rows $x = 0, 1$ and columns $y = 0, 1, 2$: `[[0.20, 0.10, 0.10], [0.30, 0.20, 0.10]]`.",
    contract="Answer `{'p_x0': ..., 'p_y1': ..., 'x1_given_y1': ..., 'y1_given_x1': ...}`.",
    hints=(
        "A marginal is the sum of a row or of a column.",
        "A conditional divides an entry by the marginal of what is given, after the bar.",
    ),
    parts={
        "p_x0": Number(
            prompt="$p(x=0)$",
            expected=float(marginal(TABLE, 0)[0]),
            mistakes=(
                Mistake(name="column", answer=0.5, message="You summed a column; $x$ is the row here."),
                Mistake(name="entry", answer=0.2, message="That is one entry of the row; sum over all $y$."),
            ),
        ),
        "p_y1": Number(
            prompt="$p(y=1)$",
            expected=float(marginal(TABLE, 1)[1]),
            mistakes=(Mistake(name="row", answer=0.6, message="You summed a row; $y$ is the column here."),),
        ),
        "x1_given_y1": Number(
            prompt="$p(x=1 \\mid y=1)$",
            expected=float(conditional(TABLE, 1)[1, 1]),
            mistakes=(
                Mistake(
                    name="turned-around",
                    answer=float(conditional(TABLE, 0)[1, 1]),
                    message="That is $p(y=1 \\mid x=1)$. Divide by the marginal of what stands after the bar.",
                ),
                Mistake(name="joint", answer=0.2, message="That is the joint; divide it by $p(y=1)$."),
            ),
        ),
        "y1_given_x1": Number(
            prompt="$p(y=1 \\mid x=1)$",
            expected=float(conditional(TABLE, 0)[1, 1]),
            mistakes=(
                Mistake(
                    name="turned-around",
                    answer=float(conditional(TABLE, 1)[1, 1]),
                    message="That is $p(x=1 \\mid y=1)$. Divide by the marginal of what stands after the bar.",
                ),
                Mistake(name="joint", answer=0.2, message="That is the joint; divide it by $p(x=1)$."),
            ),
        ),
    },
)

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


def _posterior_cases(rng: np.random.Generator) -> list[Case]:
    cases = [
        Case(args=(np.array([0.5, 0.5]), np.array([0.2, 0.6])), label="two hypotheses"),
        Case(args=(np.array(FLAG_PRIOR), np.array(FLAG_LIKELIHOOD)), label="a rare hypothesis"),
        Case(args=(np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.0, 0.1])), label="a hypothesis ruled out"),
    ]
    for k in (1, 3, 6):
        args = (rng.dirichlet(np.ones(k)), rng.uniform(0.05, 1, k))
        cases.append(Case(args=args, label=f"{k} hypotheses, drawn"))
    return cases


bayes_posterior = Function(
    id="bayes-posterior",
    chapter=4,
    section="4.4",
    title="A posterior",
    checklist=(8,),
    level="medium",
    prompt="Write `posterior(prior, likelihood)`: the posterior over $k$ hypotheses.",
    contract="Both arguments are float64 arrays of shape (k,); the prior sums to 1; at least one hypothesis allows "
    "the data. Returns an array of shape (k,).",
    hints=("Multiply hypothesis by hypothesis.", "The result must sum to 1: divide by $p(D)$."),
    oracle=posterior,
    cases=_posterior_cases,
    tolerance=Tolerance(c=16),
    mistakes=(
        Mistake(
            name="not-normalised",
            answer=lambda prior, likelihood: prior * likelihood,
            message="That is the joint $p(D, \\theta)$. Divide by its sum.",
        ),
        Mistake(
            name="no-prior",
            answer=lambda prior, likelihood: likelihood / likelihood.sum(),
            message="You normalised the likelihood and forgot the prior.",
        ),
        Mistake(
            name="added",
            answer=lambda prior, likelihood: (prior + likelihood) / (prior + likelihood).sum(),
            message="You added prior and likelihood; Bayes' rule multiplies them.",
        ),
        Mistake(
            name="divided-by-likelihood",
            answer=lambda prior, likelihood: prior * likelihood / likelihood.sum(),
            message="You divided by the sum of the likelihoods. $p(D)$ weighs each of them with its prior.",
        ),
    ),
    diagnose=lambda case, result: None if np.allclose(np.sum(result), 1) else "your posterior does not sum to 1.",
    accept=(lambda prior, likelihood: prior * likelihood / (prior @ likelihood),),
)


def _picked(probs: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return probs[np.arange(len(tokens)), tokens]


def _log_of_product(probs: np.ndarray, tokens: np.ndarray) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(np.prod(_picked(probs, tokens))))


def _shifted(probs: np.ndarray, tokens: np.ndarray) -> float:
    return float(sequence_log_probability(_picked(probs, np.roll(tokens, -1))))


def _sequence_cases(rng: np.random.Generator) -> list[Case]:
    def case(T: int, V: int, label: str = "") -> Case:
        probs = rng.dirichlet(np.ones(V), T)
        return Case(args=(probs, rng.integers(V, size=T)), label=label or f"{T} tokens, vocabulary {V}")

    impossible = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    return [
        Case(args=(np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]), np.array([0, 1])), label="2 tokens, vocabulary 3"),
        case(1, 4),
        case(7, 5),
        case(3, 9),
        case(1500, 8, "1500 tokens, vocabulary 8"),
        Case(args=(impossible, np.array([2, 1])), label="a token of probability 0"),
    ]


sequence_logprob = Function(
    id="sequence-logprob",
    chapter=4,
    section="4.9",
    title="The log-probability of a sequence",
    checklist=(8, 10),
    level="medium",
    prompt="Write `sequence_logprob(probs, tokens)`: $\\log p(x_1 \\dots x_T)$ in nats, where row $t$ of `probs` "
    "holds $p(\\cdot \\mid x_{<t})$ and `tokens[t]` is $x_t$.",
    contract="`probs`: float64 (T, V); `tokens`: integers (T,); T may be in the thousands. Returns a number; -inf "
    "where a token has probability 0.",
    hints=(
        "Pick one probability from each row: `probs[np.arange(T), tokens]`.",
        "The chain rule is a product; its logarithm is a sum.",
    ),
    oracle=lambda probs, tokens: float(sequence_log_probability(_picked(probs, tokens))),
    cases=_sequence_cases,
    tolerance=Tolerance(c=4, depth=lambda probs, tokens: len(tokens)),
    mistakes=(
        Mistake(
            name="log-of-product",
            answer=_log_of_product,
            message="The product underflows to 0 for a long text, before the logarithm is taken. Sum the logarithms.",
        ),
        Mistake(
            name="mean",
            answer=lambda probs, tokens: float(sequence_log_probability(_picked(probs, tokens))) / len(tokens),
            message="That is the mean over tokens. The probability of the sequence is the whole sum.",
        ),
        Mistake(
            name="sign",
            answer=lambda probs, tokens: -float(sequence_log_probability(_picked(probs, tokens))),
            message="That is the negative log-likelihood; the log-probability has the other sign.",
        ),
        Mistake(
            name="bits",
            answer=lambda probs, tokens: float(sequence_log_probability(_picked(probs, tokens))) / math.log(2),
            message="That is in bits. Use the natural logarithm for nats.",
        ),
        Mistake(
            name="shifted",
            answer=_shifted,
            message="Row $t$ already predicts token $t$: your tokens are shifted by one.",
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

bernoulli_nll = Formula(
    id="bernoulli-nll",
    chapter=4,
    section="4.9",
    title="The NLL of coin tosses",
    checklist=(10,),
    prompt="$k$ of $n$ independent Bernoulli draws were 1. Write their negative log-likelihood, in nats, as `nll(p, "
    "k, n)`.",
    contract="$0 < p < 1$. The order of the draws is known, so no binomial coefficient.",
    hints=("Each 1 contributes $-\\log p$. What does each 0 contribute?", "Contributions of independent draws add."),
    oracle=lambda p, k, n: -(k * math.log(p) + (n - k) * math.log(1 - p)),
    sample=lambda rng: (float(rng.uniform(0.05, 0.95)), int(rng.integers(1, 20)), int(rng.integers(20, 40))),
    mistakes=(
        Mistake(
            name="sign",
            answer=lambda p, k, n: k * math.log(p) + (n - k) * math.log(1 - p),
            message="That is the log-likelihood; the negative one is asked.",
        ),
        Mistake(
            name="ones-only",
            answer=lambda p, k, n: -k * math.log(p),
            message="You left out the zeros: each of them was observed too.",
        ),
        Mistake(
            name="likelihood",
            answer=lambda p, k, n: p**k * (1 - p) ** (n - k),
            message="That is the likelihood itself; take the logarithm and the sign.",
        ),
        Mistake(
            name="mean",
            answer=lambda p, k, n: -(k * math.log(p) + (n - k) * math.log(1 - p)) / n,
            message="You divided by $n$: that is the mean for each draw.",
        ),
    ),
)

HALVES = np.multiply.accumulate(np.full(400, 0.5, np.float32))

underflow_tokens = Number(
    id="underflow-tokens",
    chapter=4,
    section="4.9",
    title="How far a product reaches",
    checklist=(15,),
    level="medium",
    prompt="Tokens of probability 0.5 each are multiplied in float32, one after another. What is the largest number "
    "of tokens whose product is not yet 0?",
    contract="Rounding to nearest, subnormal numbers included.",
    hints=(
        "The smallest normal float32 is $2^{-126}$; below it there are subnormals with 23 more bits.",
        "Which power of two is the smallest positive float32?",
    ),
    expected=int(np.count_nonzero(HALVES)),
    exact=True,
    mistakes=(
        Mistake(
            name="normal-only",
            answer=126,
            message="That is where the normal numbers end; the subnormal ones go on.",
        ),
        Mistake(
            name="one-more",
            answer=int(np.count_nonzero(HALVES)) + 1,
            message="One too many: that product lies halfway to 0 and is rounded to the even neighbour.",
        ),
        Mistake(name="mantissa", answer=24, message="That is the precision. Underflow is a matter of range."),
        Mistake(
            name="float64", answer=1074, message="That is how far float64 reaches. The product is taken in float32."
        ),
    ),
)


def _running(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    return (u[:, None] >= np.cumsum(p, axis=1, dtype=np.float64)).sum(axis=1)


def _sample(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    """One category a row of ``p`` (B, V), from one uniform number a row, ``u`` (B,)."""
    last = p.shape[1] - 1 - np.argmax(p[:, ::-1] > 0, axis=1)
    return np.minimum(_running(p, u), last)


def _sample_row_by_row(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The same by a binary search in each row."""
    found = [np.searchsorted(np.cumsum(row, dtype=np.float64), x, side="right") for row, x in zip(p, u, strict=True)]
    return np.array([min(k, np.flatnonzero(row)[-1]) for k, row in zip(found, p, strict=True)])


def _sample_on_the_edge(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    return (u[:, None] > np.cumsum(p, axis=1, dtype=np.float64)).sum(axis=1)


def _sample_in_a_narrow_sum(p: np.ndarray, u: np.ndarray) -> np.ndarray:
    found = (u[:, None] >= np.cumsum(p, axis=1)).sum(axis=1)
    return np.minimum(found, p.shape[1] - 1 - np.argmax(p[:, ::-1] > 0, axis=1))


def _sampling_cases(rng: np.random.Generator) -> list[Case]:
    quarter = np.array([0.25, 0.5, 0.25])
    tenths = np.full((1, 10), 0.1)
    below_one = np.array([np.nextafter(1.0, 0.0)])
    even = np.full((3, 50_000), 1 / 50_000, dtype=np.float32)
    rows = np.array([[0.5, 0.25, 0.25], [0.125, 0.25, 0.625]])
    return [
        Case(args=(rows, np.array([0.6, 0.1])), label="2 rows of 3 categories"),
        Case(args=(np.tile(quarter, (5, 1)), np.array([0.0, 0.25, 0.5, 0.75, 0.875])), label="u on the edges"),
        Case(
            args=(np.tile([0.0, 0.5, 0.0, 0.5], (3, 1)), np.array([0.0, 0.5, 0.75])),
            label="categories of probability 0",
        ),
        Case(args=(np.ones((4, 1)), rng.random(4)), label="one category"),
        Case(args=(rng.dirichlet(np.ones(6), 40), 0.999 * rng.random(40)), label="40 rows of 6, drawn"),
        Case(args=(tenths, below_one), label="rounding leaves u at the last sum"),
        Case(args=(np.pad(tenths, ((0, 0), (0, 2))), below_one), label="the same, with two zeros at the end"),
        Case(args=(even, np.array([0.3, 0.7, 0.9])), label="float32, 50,000 categories"),
    ]


sample_categorical = Function(
    id="sample-categorical",
    chapter=4,
    section="4.1",
    title="A sampler from uniform numbers",
    checklist=(8,),
    level="hard",
    points=2,
    prompt="Write `sample(p, u)`: for each row of `p` one category by the sampler of section 4.1, the smallest $k$ "
    "with $u < p_0 + \\dots + p_k$, where $u$ is the uniform number of that row.",
    contract="`p`: float32 or float64 (B, V), not negative, each row sums to 1 up to rounding; `u`: float64 (B,) in "
    "$[0, 1)$. Add up in float64. Where rounding leaves $u$ at or above the last sum: the last category of positive "
    "probability. Returns integers of shape (B,).",
    hints=(
        "`np.cumsum` has the arguments `axis` and `dtype`.",
        "The answer is the number of sums that $u$ has reached: compare a column with rows and count.",
        "Then bound it: which index has the last positive entry of a row?",
    ),
    oracle=_sample,
    cases=_sampling_cases,
    mistakes=(
        Mistake(
            name="edge",
            answer=_sample_on_the_edge,
            message="On an edge you return the category that ends there. The sum must be strictly larger than $u$.",
        ),
        Mistake(
            name="no-cumsum",
            answer=lambda p, u: np.argmax(u[:, None] < p, axis=1),
            message="You compared $u$ with the probabilities themselves. Compare it with their running sums.",
        ),
        Mistake(
            name="greedy",
            answer=lambda p, u: p.argmax(axis=1),
            message="You always return the most probable category: that is greedy decoding, not sampling.",
        ),
        Mistake(
            name="uniform",
            answer=lambda p, u: (u * p.shape[1]).astype(np.int64),
            message="That makes all categories equally likely; `p` plays no part.",
        ),
        Mistake(
            name="first-row",
            answer=lambda p, u: _sample(np.broadcast_to(p[:1], p.shape), u),
            message="You used the first row for all. Each row is a distribution of its own.",
        ),
        Mistake(
            name="unbounded",
            answer=_running,
            message="Where rounding leaves $u$ at the last sum, you return an index past the end.",
        ),
        Mistake(
            name="last-index",
            answer=lambda p, u: np.minimum(_running(p, u), p.shape[1] - 1),
            message="You bounded the index by the last category, which may have probability 0.",
        ),
        Mistake(
            name="narrow-sum",
            answer=_sample_in_a_narrow_sum,
            message="You added 50,000 float32 numbers in float32: the sums drift. Add up in float64.",
        ),
    ),
    accept=(_sample_row_by_row,),
)

explain_iid = Written(
    id="explain-iid",
    chapter=4,
    section="4.3",
    title="An error bar that is too small",
    checklist=(8,),
    level="medium",
    prompt="An evaluation reports a mean over 10,000 tokens from 20 documents with the error $s/\\sqrt{10000}$. "
    "Explain what is wrong with it and how to do better.",
    hints=("Are two tokens of one document independent?", "How many independent things were drawn?"),
    rubric=(
        "says that tokens of one document are correlated, so they are not i.i.d.",
        "says that the true spread of the mean is larger than reported",
        "treats the document as the unit, for example the spread of the 20 document means",
        "weights documents by their tokens, or says why not",
    ),
    model="Tokens of one document resemble each other, so 10,000 tokens carry less information than 10,000 "
    "independent ones and the true spread of the mean is larger. Take the 20 documents as the unit, weighted by their "
    "tokens, and estimate the spread from their means, or resample whole documents.",
)

EXERCISES = (
    density_above_one,
    token_sequence,
    zero_covariance,
    bayes_flag,
    mean_of_means,
    batch_noise,
    cov_shape,
    ddof_default,
    product_underflow,
    joint_table,
    variance_of_sum,
    gradient_noise_batch,
    variance_divisors,
    bernoulli_nll,
    dropout_variance,
    bayes_posterior,
    sequence_logprob,
    covariance_matrix,
    underflow_tokens,
    explain_iid,
    sample_categorical,
)

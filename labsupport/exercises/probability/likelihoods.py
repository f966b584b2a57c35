"""Exercises of chapter 4 on likelihoods: sequences, coin flips, and products that underflow."""

from __future__ import annotations

import math

import numpy as np

from labsupport.grading import Case, Exercise, Formula, Function, Mistake, Number, Tolerance
from labsupport.ops.probability import sequence_log_probability


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

EXERCISES: tuple[Exercise, ...] = (
    bernoulli_nll,
    sequence_logprob,
    underflow_tokens,
)

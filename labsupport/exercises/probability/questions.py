"""Questions inside the text of chapter 4."""

from __future__ import annotations

import math

import numpy as np

from labsupport.exercises.probability.distributions import FLAG_LIKELIHOOD, FLAG_PRIOR
from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Shape
from labsupport.ops.probability import posterior

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

EXERCISES: tuple[Exercise, ...] = (
    density_above_one,
    token_sequence,
    zero_covariance,
    bayes_flag,
    mean_of_means,
    batch_noise,
    cov_shape,
    ddof_default,
    product_underflow,
)

"""Questions inside the text of chapter 13."""

import math

from labsupport.exercises.training_lab.run import MODEL, SETTINGS
from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Several, Shape
from labsupport.ops import transformer

EXERCISES: tuple[Exercise, ...] = (
    Choice(
        id="lab-larger-vocabulary",
        chapter=13,
        section="13.1",
        title="A larger vocabulary",
        place="chapter",
        level="easy",
        prompt="The vocabulary grows by merges. What happens to the cost of training on the same text?",
        hints=("A token now stands for more letters.", "What has one row or column for each token of the vocabulary?"),
        options={
            "a": Option(
                "Fewer positions, and larger logits at each of them.",
                "A text becomes shorter in tokens, while embedding, head and logits grow with V.",
                correct=True,
            ),
            "b": Option("More positions, and smaller logits.", "A merge makes one token of two: texts get shorter."),
            "c": Option(
                "Only the embedding grows; the rest stays.",
                "The number of tokens of the text changes, and so does the width of the logits.",
            ),
            "d": Option(
                "Nothing, since the text is the same.",
                "The model never sees the text, only its tokens, and their number changes.",
            ),
        },
    ),
    Shape(
        id="lab-logits-shape",
        chapter=13,
        section="13.2",
        title="Shape of the logits",
        place="chapter",
        level="easy",
        checklist=(1,),
        prompt="Ids have shape (16, 32) and the vocabulary 80 tokens. Which shape do the logits have?",
        hints=(
            "One score for every token at every position.",
            "The axes of the ids stay as they are. Which axis comes after them, and how long is it?",
        ),
        expected=(SETTINGS.rows, SETTINGS.length, MODEL.vocab),
        mistakes=(
            Mistake(
                name="last-position-only",
                answer=(SETTINGS.rows, MODEL.vocab),
                message="These are the scores of one position a row. In training every position is asked.",
            ),
            Mistake(
                name="width-not-vocabulary",
                answer=(SETTINGS.rows, SETTINGS.length, MODEL.width),
                message="This is the shape before the head, with the width of the model as its last axis.",
            ),
            Mistake(
                name="axes-swapped",
                answer=(SETTINGS.rows, MODEL.vocab, SETTINGS.length),
                message="The vocabulary is the last axis.",
            ),
        ),
    ),
    Number(
        id="lab-parameters",
        chapter=13,
        section="13.3",
        title="Parameters of the lab's model",
        place="chapter",
        level="easy",
        prompt="How many parameters has the model with $n = 80$, $d = 32$, $L = 2$, $m = 64$?",
        hints=(
            "Embedding and head have n times d numbers each.",
            "A layer has four matrices of d times d and three of d times m.",
        ),
        expected=transformer.count_parameters(MODEL),
        unit="parameter",
        exact=True,
        default_unit="parameter",
        mistakes=(
            Mistake(
                name="one-layer",
                answer=2 * 80 * 32 + 4 * 32**2 + 3 * 32 * 64,
                message="You counted one layer; the model has two.",
            ),
            Mistake(
                name="embedding-once",
                answer=80 * 32 + 2 * (4 * 32**2 + 3 * 32 * 64),
                message="Embedding and head are two tensors; you counted one of them.",
            ),
            Mistake(
                name="two-mlp-matrices",
                answer=2 * 80 * 32 + 2 * (4 * 32**2 + 2 * 32 * 64),
                message="The gated MLP has a third matrix beside up and down.",
            ),
        ),
    ),
    Number(
        id="lab-uniform-loss",
        chapter=13,
        section="13.4",
        title="The loss of a uniform guess",
        place="chapter",
        level="easy",
        checklist=(10,),
        prompt="A model finds all 80 tokens equally likely. What is its loss, in nats? Two decimals are enough.",
        hints=("The probability of the right token is 1/80.", "The loss is minus its natural logarithm."),
        expected=math.log(MODEL.vocab),
        unit="1",
        rtol=2e-3,
        mistakes=(
            Mistake(name="bits", answer=math.log2(MODEL.vocab), message="These are bits; nats use the natural log."),
            Mistake(name="base-10", answer=math.log10(MODEL.vocab), message="This is the logarithm to base 10."),
            Mistake(name="probability", answer=1 / MODEL.vocab, message="This is the probability, not its logarithm."),
            Mistake(
                name="sign", answer=-math.log(MODEL.vocab), message="A loss is minus the logarithm of a probability."
            ),
        ),
    ),
    Choice(
        id="lab-norms-add-up",
        chapter=13,
        section="13.5",
        title="Norms of parts and of the whole",
        place="chapter",
        level="easy",
        checklist=(4,),
        prompt="The gradient norms of four parts are known. How do you get the global norm?",
        hints=(
            "The global norm is the L2 norm of all entries in one long vector.",
            "Try two parts of one entry each, 3 and 4. How long is the vector $(3, 4)$, and which rule gives that?",
        ),
        options={
            "a": Option("add them", "Norms add only where all parts point the same way, and parts never do."),
            "b": Option("take the largest", "That is a lower bound; the other parts add to it."),
            "c": Option("average them", "An average is below the largest part; the whole is not smaller than a part."),
            "d": Option(
                "root of the sum of their squares",
                "Squares of entries add up, whatever part they are in. Ranks do the same with their shards.",
                correct=True,
            ),
        },
    ),
    Number(
        id="lab-first-adam-step",
        chapter=13,
        section="13.6",
        title="Length of the first step",
        place="chapter",
        level="medium",
        prompt=(
            "The gradient of a weight is $10^{-3}$ and the learning rate 0.01. How far does the first AdamW step move "
            "it, without decay? Give the absolute value."
        ),
        hints=(
            "Work out $\\hat m$ and $\\hat v$ at $t = 1$.",
            "The bias correction at the first step takes the factors $1 - \\beta$ out again.",
        ),
        expected=0.01,
        unit="1",
        rtol=1e-2,
        mistakes=(
            Mistake(name="sgd", answer=1e-5, message="This is SGD's step. Adam divides by the size of the gradient."),
            Mistake(
                name="no-correction",
                answer=0.01 * 1e-4 / math.sqrt(1e-9),
                message="Without the bias corrections, yes. At the first step they matter most.",
            ),
            Mistake(
                name="first-moment-only",
                answer=1e-3,
                message="The factor $1 - \\beta_1$ is undone by the bias correction.",
            ),
        ),
    ),
    Choice(
        id="lab-clipping",
        chapter=13,
        section="13.7",
        title="What clipping does",
        place="chapter",
        level="easy",
        prompt="What does clipping by the global norm do to a gradient of norm 4 when the limit is 1?",
        hints=(
            "One factor for all entries of all arrays.",
            "Which factor brings a norm of 4 down to the limit? Does a common factor turn the direction?",
        ),
        options={
            "a": Option(
                "Entries above 1 become 1, the others stay.",
                "That is clipping by value. It turns the direction of the gradient.",
            ),
            "b": Option(
                "Every entry is divided by 4; the direction stays.",
                "The factor is min(1, limit / norm), the same for every array.",
                correct=True,
            ),
            "c": Option(
                "Each array is scaled to norm 1 by itself.",
                "Then large and small layers would move alike, and the direction of the whole would turn.",
            ),
            "d": Option("The step is skipped.", "Skipping is for gradients that are not finite."),
        },
    ),
    Choice(
        id="lab-checkpointing-cost",
        chapter=13,
        section="13.8",
        title="The price of checkpointing",
        place="chapter",
        level="easy",
        prompt="Activation checkpointing keeps the inputs of the layers only. What is its price?",
        hints=(
            "The inside of a layer is needed again in the backward pass.",
            "Only the input of the layer was kept. What must be done with it to get the inside back?",
        ),
        options={
            "a": Option("A less accurate gradient.", "The same numbers are computed again, nothing is approximated."),
            "b": Option(
                "Each layer's forward runs twice.",
                "Once to go on, once more when the backward pass arrives and needs the inside.",
                correct=True,
            ),
            "c": Option("The backward pass runs twice.", "Each gradient is computed once; the forward is repeated."),
            "d": Option("Weights must be stored twice.", "It concerns activations; weights and their states stay."),
        },
    ),
    Choice(
        id="lab-heads-mismatch",
        chapter=13,
        section="13.9",
        title="The fault that no shape shows",
        place="chapter",
        level="medium",
        prompt=(
            "A file of a model with 2 heads is loaded into one with 4. Without the check of the configuration, what "
            "happens?"
        ),
        hints=("Which tensors have the number of heads in their shape?", "How are heads cut out of the width?"),
        options={
            "a": Option(
                "A shape error in the first layer.",
                "Query, key, value and output are (d, d), whatever the number of heads.",
            ),
            "b": Option(
                "It runs, and the results are wrong.",
                "Every shape fits; the same columns are cut into other heads. Nothing but the number in the file "
                "can tell.",
                correct=True,
            ),
            "c": Option(
                "It runs, and the results are the same.",
                "Softmax is taken for each head, so that another cut gives other weights.",
            ),
            "d": Option("The loss becomes NaN.", "All numbers stay finite. That is what makes it nasty."),
        },
    ),
    Several(
        id="lab-cache-positions",
        chapter=13,
        section="13.10",
        title="Positions computed",
        place="chapter",
        level="medium",
        checklist=(18,),
        prompt=(
            "A prompt of 8 tokens, then 40 tokens are generated. How many positions pass through the layers, `with` a "
            "cache and `without`?"
        ),
        contract="Two numbers, `with` and `without`. The last generated token need not pass through the layers.",
        hints=(
            "The first new token comes out of the prefill of the prompt.",
            "With a cache each further token costs one position; without, all positions so far.",
            "Without: 8, then 9, then 10, and so on, forty times.",
        ),
        parts={
            "with": Number(
                prompt="Positions with the cache.",
                expected=8 + 39,
                unit="1",
                exact=True,
                mistakes=(
                    Mistake(
                        name="last-token-counted",
                        answer=48,
                        message="You counted the last generated token: nobody asks what follows it.",
                    ),
                    Mistake(
                        name="prompt-left-out", answer=39, message="The prompt must be read, too: that is the prefill."
                    ),
                ),
            ),
            "without": Number(
                prompt="Positions without the cache.",
                expected=sum(8 + i for i in range(40)),
                unit="1",
                exact=True,
                mistakes=(
                    Mistake(
                        name="one-step-late",
                        answer=sum(9 + i for i in range(40)),
                        message="Your first pass already holds a generated token. It reads the prompt alone.",
                    ),
                    Mistake(
                        name="constant-length",
                        answer=40 * 48,
                        message="The sequence is not at its full length from the start; it grows by one each step.",
                    ),
                    Mistake(
                        name="prompt-each-time",
                        answer=40 * 8,
                        message="The generated tokens pass through the layers again, too.",
                    ),
                ),
            ),
        },
    ),
    Number(
        id="lab-mean-of-gradients",
        chapter=13,
        section="13.11",
        title="The weight of a rank",
        place="chapter",
        level="easy",
        checklist=(17,),
        prompt="Rank 0 has 30 labels that count, rank 1 has 10. Which weight belongs to the gradient of rank 0?",
        hints=("The mean of the whole batch gives every label the same weight.", "The weight is a share of labels."),
        expected=30 / 40,
        unit="1",
        mistakes=(
            Mistake(
                name="half",
                answer=0.5,
                message="Equal weights are right only where the ranks have equally many labels.",
            ),
            Mistake(name="ratio", answer=3, message="This is the ratio of the two counts; the weights must sum to 1."),
            Mistake(name="other-rank", answer=0.25, message="This is the weight of the other rank."),
        ),
    ),
    Choice(
        id="lab-what-changes",
        chapter=13,
        section="13.12",
        title="What a method changes",
        place="chapter",
        level="medium",
        prompt="Which of these needs no change to batches, labels, forward and loss, only to what is updated?",
        hints=(
            "Go through the stages of each method: which one touches stage 6 alone?",
            "Ask of each: are other positions labelled, is the loss another formula, does the model write its own "
            "data? One method answers no each time.",
        ),
        options={
            "a": Option(
                "supervised fine-tuning", "Its labels differ: those of the prompt do not count, which is stage 2."
            ),
            "b": Option(
                "sharding of the optimizer states",
                "Each rank keeps and updates a part of the states. Data, forward and loss are those of before.",
                correct=True,
            ),
            "c": Option(
                "DPO, on pairs of answers of which one is preferred",
                "It compares two answers, so that batches and loss are others.",
            ),
            "d": Option(
                "PPO, on its own answers, marked by a reward",
                "It generates its own data and weighs the loss by a reward.",
            ),
        },
    ),
)

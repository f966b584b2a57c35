"""Exercises of chapter 6 on a training step: perplexity, saved activations, FLOPs, memory."""

from __future__ import annotations

import math

from labsupport.exercises.derivatives.running_example import PARAMETERS
from labsupport.grading import Exercise, Mistake, Number, Written
from labsupport.grading.shorthand import in_notebook

perplexity_aloud = Number(
    **in_notebook("6.9"),
    id="perplexity-of-a-log-line",
    title="Read a log line aloud",
    prompt="A training log says `loss 2.11`, in nats per token. Among how many equally likely tokens might the "
    "model as "
    "well be choosing? Two decimals; the unit is token.",
    hints=("The loss is a logarithm. What undoes it?", "It is $e$ to the power of the loss."),
    checklist=(10,),
    expected=math.exp(2.11),
    unit="token",
    default_unit="token",
    mistakes=(
        Mistake(name="base-2", answer=(2**2.11, "token"), message="The loss is in nats, so the base is e, not 2."),
        Mistake(name="base-10", answer=(10**2.11, "token"), message="The loss is in nats, so the base is e, not 10."),
        Mistake(name="probability", answer=(math.exp(-2.11), "token"), message="This is a probability. The sign."),
        Mistake(name="log", answer=(math.log(2.11), "token"), message="You took a logarithm; undo one instead."),
    ),
)

_LAYERS, _TOKENS, _WIDTH = 6, 4096, 512

saved_activations = Number(
    **in_notebook("6.8"),
    id="saved-activations",
    title="What the backward pass waits for",
    level="medium",
    prompt=f"{_LAYERS} linear layers of width {_WIDTH}, one after the other, run on {_TOKENS} tokens in "
    f"float32. Each saves its "
    "input for the backward pass. How many bytes are saved? Answer with a unit, such as `3 MiB`.",
    hints=("One saved input has shape (tokens, width).", "Four bytes an element, and one such tensor for each layer."),
    expected=_LAYERS * _TOKENS * _WIDTH * 4,
    unit="B",
    default_unit="B",
    exact=True,
    mistakes=(
        Mistake(name="one-layer", answer=(_TOKENS * _WIDTH * 4, "B"), message="This is one layer. Each keeps "
        "its input."),
        Mistake(
            name="weights",
            answer=(_LAYERS * _WIDTH * _WIDTH * 4, "B"),
            message="These are the weights, which are there anyway. The activations grow with the number of tokens.",
        ),
        Mistake(
            name="elements", answer=(_LAYERS * _TOKENS * _WIDTH, "B"), message="This is the number of elements."
        ),
    ),
)  # fmt: skip

training_step_flops = Number(
    **in_notebook("6.8"),
    id="training-step-flops",
    title="FLOPs of a training step",
    level="medium",
    prompt=f"A deep model does its work in matrix products. Its weights number {PARAMETERS:,}, each used once a "
    f"token in one "
    "multiply and one add. Count backward as exactly twice forward. How many FLOPs does one training token cost?",
    hints=("Forward: two FLOPs for each weight.", "Backward is twice that, and a step is both together."),
    expected=3 * 2 * PARAMETERS,
    unit="FLOP",
    default_unit="FLOP",
    exact=True,
    mistakes=(
        Mistake(
            name="forward-only", answer=(2 * PARAMETERS, "FLOP"), message="This is the forward pass. Add the way back."
        ),
        Mistake(
            name="backward-only", answer=(4 * PARAMETERS, "FLOP"), message="This is the backward pass alone."
        ),
        Mistake(
            name="one-flop", answer=(3 * PARAMETERS, "FLOP"), message="One multiply and one add are two FLOPs."
        ),
    ),
)  # fmt: skip

explain_training_memory = Written(
    **in_notebook("6.9"),
    id="explain-training-memory",
    title="Runs there, does not train there",
    level="medium",
    prompt="In three to six sentences: a model runs on a small board and cannot be trained on it. Say what "
    "training holds in "
    "memory that inference does not, and what grows with depth and with the number of tokens.",
    hints=(
        "Go through a step: forward, backward, update. What must exist at the same time?",
        "Which of these tensors has one entry a parameter, and which one entry a token and layer?",
    ),
    rubric=(
        "names the gradient, as large as the parameters",
        "names the optimizer's state (two numbers a parameter for Adam)",
        "names the activations saved by the forward pass, one set a layer",
        "says that activations grow with depth and with tokens, the others with parameters only",
    ),
    model="Inference holds the weights and the activations of the current layer. Training also holds one "
    "gradient a parameter "
    "and the optimizer's state, two more numbers a parameter for Adam. The backward pass needs the inputs of "
    "every layer, so "
    "all activations stay until it has passed. They grow with depth and with tokens, while the rest grows with "
    "parameters only.",
)

EXERCISES: tuple[Exercise, ...] = (
    saved_activations,
    training_step_flops,
    perplexity_aloud,
    explain_training_memory,
)

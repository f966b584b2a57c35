"""The training map: 22 boxes from token ids to a chosen token, and what is to be said about each.

This is the one source of the drawing and of the list on the map's page (`training_map_page`). Numbers in the
examples are computed, not typed.
"""

from __future__ import annotations

from dataclasses import dataclass

from labsupport import cost
from labsupport.ops import transformer
from labsupport.training import Settings

#: The lab's run: most examples speak of it.
RUN = Settings()
MODEL = RUN.model
P = transformer.count_parameters(MODEL)
#: A model and a number of ranks for the example of ZeRO, as in its paper's first figure.
ZERO_PARAMETERS, ZERO_RANKS = 7_500_000_000, 64
STATE_BYTES = 16  # of mixed-precision Adam, for each parameter
#: Rank 8 on a square matrix of 4096, for the example of LoRA.
LORA = cost.lora_cost(4096, 4096, 8)

GROUPS = {
    1: ("Data and labels", "blue"),
    2: ("Forward", "green"),
    3: ("Learn from the error", "red"),
    4: ("Scale and methods", "purple"),
    5: ("Inference", "orange"),
}

#: Stages of chapter 13's lab by number.
STAGES = (
    "tokenise", "batches and labels", "forward", "loss", "backward", "the AdamW update", "the loop", "save memory",
    "save and load", "generate",
)


@dataclass(frozen=True)
class Box:
    """One box of the map.

    Args:
        id: group and letter, such as "2D".
        name: its title; ``short`` is what fits into the drawing.
        summary: one sentence, shown beside the box.
        takes, does, gives, example, caution: a paragraph each.
        sections: sections of the book, the first one the most important.
        stage: stage of the training lab, 1 to 10.
    """

    id: str
    name: str
    short: str
    summary: str
    takes: str
    does: str
    gives: str
    example: str
    caution: str
    sections: tuple[str, ...]
    stage: int

    @property
    def group(self) -> int:
        """Number of the group that the box belongs to."""
        return int(self.id[0])

    @property
    def anchor(self) -> str:
        """Its place on the page."""
        return f"map-{self.id.lower()}"


BOXES = (
    Box(
        "1A", "Token ids", "Token ids",
        "A tokenizer turns text into integers.",
        "Text, as characters or bytes.",
        "Cuts the text into pieces of a fixed vocabulary and replaces each by its number. A model computes with "
        "numbers, and pieces of words keep the vocabulary small while no text is unknown.",
        "A stream of integers, each from 0 to V − 1.",
        f"In the lab the vocabulary has V = {MODEL.vocab} tokens; “garden” with the space before it is one of them, "
        "and rare words are spelt.",
        "An id is a label, not a quantity: id 40 is not twice id 20. Ids mean nothing without the tokenizer that "
        "made them, so it is saved with the weights.",
        ("11.2", "2.1"), 1,
    ),
    Box(
        "1B", "Batch of blocks (B, T)", "Batch (B, T)",
        "Blocks of T tokens are stacked into an array of shape (B, T).",
        "The stream of token ids from box 1A.",
        "Takes B blocks of T tokens from random places. Many rows at once keep the hardware busy and make the "
        "gradient less noisy.",
        "An integer array of shape (B, T), for box 2A.",
        f"With B = {RUN.rows} and T = {RUN.length} a step of the lab reads {RUN.rows * RUN.length} tokens.",
        "Neighbouring blocks of one document are alike: shuffle. Held-out text must not overlap with training text.",
        ("8.1", "4.6"), 2,
    ),
    Box(
        "1C", "Labels shifted by one", "Labels, shifted",
        "The right answer at each position is the token that follows.",
        "The same stream of ids, one place further on.",
        "Gives every position its successor as a label. The text labels itself, so that any text is training data.",
        "An integer array (B, T) for box 3A; −100 marks a position that does not count.",
        "Inputs “the cats eat” have the labels “cats eat fish”: T tokens are T training examples.",
        "Without the shift the model learns to copy, and its loss falls below the entropy of the language.",
        ("4.2", "5.5"), 2,
    ),
    Box(
        "2A", "Embedding and attention", "Embedding, attention",
        "Ids become vectors, and positions exchange information.",
        "Token ids (B, T) from box 1B; in the layers, vectors (B, T, d) from box 2C.",
        "A table looks up one vector for each id. Attention then mixes: each position weighs itself and the "
        "positions before it by softmax(QKᵀ/√D_h), and takes the weighted sum of their values.",
        "Vectors of shape (B, T, d), added to the residual stream.",
        f"With {MODEL.heads} heads and T = {RUN.length} the lab's scores have shape ({RUN.rows}, {MODEL.heads}, "
        f"{RUN.length}, {RUN.length}). For 32 heads and 8192 positions the FP16 scores of one sequence take "
        f"{cost.score_bytes(1, 32, 8192) // 2**30} GiB.",
        "The causal mask must hide the future, or the label leaks. The scores take memory that grows with T², unless "
        "attention runs by blocks.",
        ("10.2", "10.3", "10.4"), 3,
    ),
    Box(
        "2B", "MLP", "MLP",
        "Each position is transformed by itself, in a wider space.",
        "Normalised vectors (B, T, d) from box 2C.",
        "Two products up to width m, a gate between them, and one product down again. Most parameters and most FLOPs "
        "of a large model are here.",
        "Vectors (B, T, d), added to the residual stream.",
        f"In the lab d = {MODEL.width} and m = {MODEL.hidden}: 3dm = {3 * MODEL.width * MODEL.hidden:,} parameters in "
        f"each layer, against 4d² = {4 * MODEL.width**2:,} of attention.",
        "No position sees another one here. Without the nonlinearity two products would be one.",
        ("10.1", "2.8"), 3,
    ),
    Box(
        "2C", "Norm and residual", "Norm, residual",
        "Norms keep magnitudes steady, residual sums keep a direct path.",
        "The residual stream (B, T, d), before and after each block.",
        "Before attention and before the MLP each vector is brought to a steady length; after them the block's result "
        "is added to what was there. The sum gives the gradient a way back that no block can close.",
        "The stream (B, T, d), for the next block, and after the last layer for box 2D.",
        f"In each of the lab's {MODEL.layers} layers: norm, attention, sum, norm, MLP, sum; one more norm at the end.",
        "The boxes of this column are in the order of looking them up, not of running: the norm runs first.",
        ("8.7", "8.8", "8.5"), 3,
    ),
    Box(
        "2D", "Logits", "Logits",
        "The last product gives every token of the vocabulary a score.",
        "The normalised vectors (B, T, d) that come out of the last layer.",
        "One matrix product with the LM head, (d, V). Whatever the model knows must pass through these d numbers.",
        "Logits (B, T, V): to box 3A in training, to box 5C in inference.",
        f"In the lab {RUN.rows} × {RUN.length} positions get {MODEL.vocab} scores each, "
        f"{RUN.rows * RUN.length * MODEL.vocab:,} numbers. T = 10 and V = 23 give {10 * 23}.",
        "Logits are no probabilities, and a high one is no understanding: before training none is preferred.",
        ("11.3", "1.2", "5.1"), 3,
    ),
    Box(
        "3A", "Loss", "Loss",
        "Cross-entropy says how much probability the right tokens got.",
        "Logits (B, T, V) from box 2D and labels (B, T) from box 1C.",
        "Takes −log of the probability of each right token and averages over the labels that count. One number is "
        "what can be made smaller.",
        "A scalar in nats, and its gradient by the logits: p − y for each counted label, over their number.",
        f"A uniform guess over {MODEL.vocab} tokens costs log {MODEL.vocab} nats; half the probability on the right "
        "one costs log 2.",
        "Divide the sum of all losses once, by the number of counted labels. A mean of means is another number.",
        ("5.5", "5.8", "12.3"), 4,
    ),
    Box(
        "3B", "Backward pass", "Backward",
        "The chain rule runs from the loss back to every parameter.",
        "The gradient by the logits from box 3A, and the activations that the forward pass kept.",
        "Goes loss → logits → layers → embedding, the forward in reverse, and works out for each parameter how the "
        "loss answers to a small change of it.",
        "A gradient for each parameter, of the parameter's shape: to boxes 3C and 3D.",
        f"One backward pass gives all {P:,} gradients of the lab's model for about the price of two forward passes.",
        "A gradient is a direction at one point. It does not say how far to go, nor how important a parameter is.",
        ("12.1", "7.5", "12.6"), 5,
    ),
    Box(
        "3C", "Gradients by layer", "Gradients by layer",
        "The norm of each layer's gradient shows where learning is stuck.",
        "The gradients from box 3B.",
        "Takes a norm for each part and for all, to see layers that are cut off, that vanish or that explode, and "
        "to clip the whole to a limit.",
        "A few numbers for the log, and the clipped gradients for box 3D.",
        f"The lab logs {MODEL.layers + 2} norms at every step and clips at {RUN.max_norm:g}; squares of norms add up "
        "to the square of the global one.",
        "On several ranks clip after the sum: the norm of a part says nothing about the whole.",
        ("12.7", "8.9", "12.10"), 5,
    ),
    Box(
        "3D", "AdamW", "AdamW",
        "The optimizer turns gradients into new weights.",
        "Clipped gradients, weights, two moments for each parameter, and a learning rate.",
        "Averages gradients and their squares over steps and divides one by the root of the other, so that every "
        "parameter moves at a similar pace. Decay shrinks the weights apart from that.",
        "New weights and moments, for the next step and for box 3E.",
        f"At the lab's learning rate of {RUN.lr:g} the first step moves nearly every weight by about {RUN.lr:g}, "
        "whatever the size of its gradient.",
        f"Two more numbers for each parameter: in mixed precision {STATE_BYTES} bytes a parameter in all.",
        ("8.3", "9.8"), 6,
    ),
    Box(
        "3E", "Next batch, or a checkpoint", "Next batch, checkpoint",
        "The step is done: go on with the next batch, and save now and then.",
        "Weights, moments and step number after the update.",
        "Goes back to column 1 for the next batch; every so often it writes everything to a file, so that a failure "
        "costs minutes and not weeks.",
        "Another round, or a file that box 5A loads.",
        f"The lab runs {RUN.steps} rounds. Its file holds weights and two moments: {3 * 8 * P:,} bytes in float64.",
        "Weights alone cannot be trained further as if nothing had happened. Write to a new name and rename, so that "
        "a half-written file never looks whole.",
        ("12.10", "8.1"), 7,
    ),
    Box(
        "4A", "ZeRO sharding", "ZeRO sharding",
        "Ranks share optimizer states, gradients and weights instead of copying them.",
        "N ranks that would all hold the same weights, gradients and moments.",
        "Each rank keeps and updates one part and fetches the others when they are needed. Memory for each rank "
        "falls, communication rises.",
        "The same update as in box 3D, from a fraction of the memory.",
        f"{ZERO_PARAMETERS / 1e9:g} billion parameters at {STATE_BYTES} bytes are "
        f"{ZERO_PARAMETERS * STATE_BYTES / 1e9:.0f} GB; over {ZERO_RANKS} ranks "
        f"{ZERO_PARAMETERS * STATE_BYTES / ZERO_RANKS / 1e9:.1f} GB each.",
        "Activations are not among these bytes, and a norm for clipping needs a sum over all ranks.",
        ("10.7", "8.9", "10.6"), 8,
    ),
    Box(
        "4B", "Activation checkpointing", "Checkpointing",
        "Keep only the inputs of layers, and compute the rest again.",
        "The forward pass of box 2, whose activations wait for box 3B.",
        "Throws the inside of each layer away and runs its forward once more when the backward pass arrives: memory "
        "is bought with time.",
        "The same gradients, with less memory at the peak.",
        f"In the lab each of the {MODEL.layers} layers then runs twice a step, and under a fifth of the bytes is kept.",
        "Whatever draws random numbers must draw the same ones the second time.",
        ("12.8", "10.7"), 8,
    ),
    Box(
        "4C", "Pre-training", "Pre-training",
        "Predict every next token of a great deal of text.",
        "Raw text, and weights that are random.",
        "Runs boxes 1A to 3E with every token a label. From this the model gets its language and most of what it "
        "knows.",
        "A base model, which continues text.",
        f"What the lab does in {RUN.steps} steps is pre-training, on a language of its own.",
        "Methods 4C to 4G are alternatives or follow one another as separate runs; they are no next step of box 4B.",
        ("4.9", "4.2"), 7,
    ),
    Box(
        "4D", "Supervised fine-tuning", "Fine-tuning (SFT)",
        "Go on training on questions with good answers.",
        "A base model, and pairs of prompt and answer.",
        "The same loop; labels of the prompt are −100, so that only the answer counts.",
        "A model that answers instead of continuing.",
        "A prompt of 5 tokens hides 4 labels: the last prompt token is asked for the first token of the answer.",
        "A few thousand careless answers are learnt as faithfully as good ones.",
        ("5.5", "12.9"), 2,
    ),
    Box(
        "4E", "LoRA", "LoRA",
        "Train two thin matrices beside each frozen one.",
        "A trained model, and data for one task.",
        "Adds (α/r)·BA to a weight matrix and trains A and B only. Gradients and optimizer states shrink with them.",
        "An adapter of a few megabytes, to be merged or swapped.",
        f"A 4096 × 4096 matrix has {LORA.full_parameters:,} parameters; with r = 8 the two thin ones have "
        f"{LORA.parameters:,}.",
        "Weights, activations and forward FLOPs of the base stay. B starts at zero, so that step 0 is the base model.",
        ("2.13", "10.5"), 6,
    ),
    Box(
        "4F", "Preference optimisation (DPO)", "Preferences (DPO)",
        "Prefer the better of two answers, without a reward model.",
        "Prompts with a chosen and a rejected answer, and a frozen copy of the model.",
        "Raises the log-probability of the chosen answer against the rejected one, measured from the copy: "
        "−log σ(β·(difference of the two gains)).",
        "A model closer to what people chose.",
        "Both gains 0 at the start: the loss is −log σ(0) = log 2, as for a coin.",
        "Only the difference counts. Both log-probabilities may fall while the loss improves: watch them.",
        ("5.7", "4.9"), 4,
    ),
    Box(
        "4G", "Reinforcement learning (PPO, GRPO)", "RL (PPO, GRPO)",
        "Let the model answer, score the answers, and make good ones likelier.",
        "Prompts, and a reward: a model, a test, a rule.",
        "Generates answers, weighs each token's gradient by how much better than expected its answer was (against a "
        "value model in PPO, against a group of answers in GRPO), and keeps near a reference by a KL term.",
        "A model that earns more reward.",
        "With rewards 1, 0, 0, 1 in a group of four the mean is 0.5: two answers are pushed up, two down.",
        "The model optimises the reward as written, not as meant. Most of the time goes into generation.",
        ("5.7", "5.9"), 10,
    ),
    Box(
        "5A", "Load weights", "Load weights",
        "Weights come back from a file, and are checked.",
        "The file of box 3E, its configuration and its tokenizer.",
        "Reads the arrays, compares names, shapes and configuration, and puts them on the device in the dtype of "
        "inference. Optimizer states stay behind.",
        "A model ready to run forward.",
        f"The lab's {P:,} weights are {2 * P:,} bytes in BF16; with another number of heads every shape would "
        "still fit.",
        "A file that loads without complaint may be the wrong one. Never load a format that can run code.",
        ("11.8", "11.7"), 9,
    ),
    Box(
        "5B", "Prefill and decode, with a KV cache", "Prefill, decode",
        "Read the prompt at once, then one token at a time from a cache.",
        "A prompt (B, T), and the weights of box 5A.",
        "Prefill runs all prompt positions through the layers and keeps their keys and values. Decode runs one new "
        "position a step and reads the cache for the rest.",
        "Logits of the last position, for box 5C, and a longer cache.",
        f"8 prompt tokens and 40 new ones: {8 + 39} positions with the cache, {sum(range(8, 48)):,} without. The cache "
        f"takes 2·L·T·d numbers, in the lab {2 * MODEL.layers * MODEL.width} for each token.",
        "Decode reads every weight for a single position, so that memory bandwidth sets its speed. Positions go on "
        "counting; they do not start at 0 again.",
        ("11.10", "10.4"), 10,
    ),
    Box(
        "5C", "Choose a token", "Choose a token",
        "Turn the last logits into one token, and go round again.",
        "Logits (B, V) of the last position.",
        "Divides by a temperature, drops unlikely tokens by top-k or top-p, and draws; or takes the largest. The "
        "token is appended and goes back to box 5B.",
        "One token id for each row, until an end token or a limit.",
        "With probabilities 0.5, 0.25, 0.15, 0.10 top-p 0.7 keeps two tokens: the one that crosses is kept.",
        "Greedy repeats itself; a high temperature finds nonsense. The weights are the same in both.",
        ("5.9", "5.4"), 10,
    ),
)  # fmt: skip

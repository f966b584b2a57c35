"""What the book holds a reader to: its chapters and the eighteen items of the self-check list.

The notebook's ``progress()`` and the page of the rendered book both read these words here.
This file must never name an exercise: which exercises tick an item is said by the exercise records.
"""

#: Short chapter names by number, as shown in the table of progress.
CHAPTERS: dict[int, str] = {
    1: "Three questions",
    2: "Linear algebra",
    3: "GEMM and tiling",
    4: "Probability",
    5: "Softmax and KL",
    6: "Derivatives",
    7: "Backpropagation",
    8: "Optimization",
    9: "Floating point",
    10: "AI infrastructure examples",
    11: "Forward pass",
    12: "Backward pass",
    13: "Training lab",
}

#: The eighteen items, in order; item n is ``CHECKLIST[n - 1]``. Each completes "I can ...".
CHECKLIST: tuple[str, ...] = (
    "write the output shape of (B, S, H) @ (H, V) at sight",
    "tell elementwise product, dot product, matrix product and batched matrix product apart",
    "say from shape and stride whether a transposed view is contiguous",
    "explain the intuition of norm, rank, eigenvalue and singular value",
    "work out the parameters saved by a low-rank factorisation and by LoRA",
    "explain from the block product why GEMM tiling is correct",
    "estimate the FLOPs, the minimum memory traffic and the arithmetic intensity of a GEMM",
    "compute expectation, variance, covariance and conditional probability",
    "write a stable softmax and LogSumExp",
    "say how cross-entropy, entropy and KL divergence are related",
    "derive gradients on a simple computation graph with the chain rule",
    "write the gradient shapes of a linear layer for its input, weight and bias",
    "state the gradient of softmax with cross-entropy with respect to the logits, p - y",
    "explain why a residual connection helps the path of the gradient",
    "tell precision, dynamic range, overflow and underflow apart",
    "say why FP16 usually needs loss scaling and BF16 usually does not",
    "explain why a parallel reduction may differ from a serial one in its bits",
    "derive the size of attention's intermediates and their memory from its shapes",
)

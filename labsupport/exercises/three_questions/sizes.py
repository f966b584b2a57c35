"""Sizes that the questions and exercises of chapter 1 return to."""

from labsupport.cost import linear_cost

#: The running example: Llama 3 8B's output projection.
B, S, H, V = 4, 2048, 4096, 128_256
LM_HEAD = linear_cost(B * S, H, V, "bfloat16")
#: Hidden width of an MLP block of the same model: 4096 → 14336 → 4096.
HIDDEN = 14_336

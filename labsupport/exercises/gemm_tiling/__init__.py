"""Exercises of chapter 3: counting FLOPs, bytes and loads of a product, writing it in tiles, and kernels.

Expected values are computed by `labsupport.cost` and `labsupport.ops.gemm`, never typed. No message may hold one.
"""

from labsupport.exercises.gemm_tiling import costs, kernels, product_kernels, questions, reduction_kernels, tiles
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *questions.EXERCISES,
    *costs.EXERCISES,
    *tiles.EXERCISES,
    *kernels.EXERCISES,
    *reduction_kernels.EXERCISES,
    *product_kernels.EXERCISES,
)

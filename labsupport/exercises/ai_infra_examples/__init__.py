"""Exercises of chapter 10: attention shapes and bytes, tiled attention, LoRA, weighted means, whole models, the card.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and must never
contain the expected value.
"""

from labsupport.exercises.ai_infra_examples import (
    attention,
    card,
    kernels,
    lora_and_means,
    questions,
    tiled_attention,
    whole_models,
)
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *attention.EXERCISES,
    *tiled_attention.EXERCISES,
    *kernels.EXERCISES,
    *lora_and_means.EXERCISES,
    *whole_models.EXERCISES,
    *card.EXERCISES,
    *questions.EXERCISES,
)

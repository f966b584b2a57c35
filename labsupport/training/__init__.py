"""The training lab's machinery: a corpus, a tokenizer, batches, a loop for two engines, files of weights.

Everything that a whole training run needs and that is too long for a cell. `python -m labsupport.training` starts
the same run from a terminal, also under torchrun. It must never download anything, nor read a file that is not named.
"""

from labsupport.training.corpus import (
    Tokenizer,
    bigram_loss,
    entropy_per_sentence,
    entropy_per_token,
    merged,
    sentences,
    train_tokenizer,
    write_corpus,
)
from labsupport.training.files import CheckpointError, Saved, load, save
from labsupport.training.launch import torchrun
from labsupport.training.loop import (
    Engine,
    NumpyEngine,
    Report,
    Run,
    Settings,
    TorchEngine,
    batch,
    chooser,
    evaluate,
    layer_norms,
    learning_rate,
    prepare,
    train,
)

__all__ = [
    "CheckpointError", "Engine", "NumpyEngine", "Report", "Run", "Saved", "Settings", "Tokenizer", "TorchEngine",
    "batch", "bigram_loss", "chooser", "entropy_per_sentence", "entropy_per_token", "evaluate", "layer_norms",
    "learning_rate", "load", "merged", "prepare", "save", "sentences", "torchrun", "train", "train_tokenizer",
    "write_corpus",
]

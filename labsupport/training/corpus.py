"""A small language whose entropy is known exactly, and a byte-pair tokenizer that is trained on it.

Every sentence is drawn from a grammar, so that the lowest loss a model can reach is a number and not a guess.
Nothing here reads a file or the network.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Tokenizer", "bigram_loss", "entropy_per_sentence", "entropy_per_token", "merged", "sentences", "train_tokenizer",
    "write_corpus",
]

Array = npt.NDArray[Any]

#: Who eats what: the food at the end of a sentence depends on a word near its start.
FOOD = {"cat": ("fish", "milk"), "dog": ("meat", "bones"), "bird": ("seeds", "worms"), "horse": ("hay", "oats")}
ADJECTIVES = {"": 1 / 2, " small": 1 / 8, " big": 1 / 8, " old": 1 / 8, " young": 1 / 8}
PLACES = {"": 1 / 2, " in the garden": 1 / 4, " near the house": 1 / 4}
#: Probability that the animal eats; otherwise it sleeps.
EATS = 3 / 4
#: Ends every sentence, and is a token of its own.
END = "\n"
#: What merges may not cross: a word with the space before it, a full stop, the end of a sentence.
PIECES = re.compile(r" ?[a-z]+|\.|\n")


def sentences() -> dict[str, float]:
    """Every sentence of the grammar with its probability, in a fixed order.

    The verb agrees with its noun in number, over a place that may stand between them; the food belongs to the animal.
    """
    found: dict[str, float] = {}
    for animal, foods in FOOD.items():
        for adjective, p_adjective in ADJECTIVES.items():
            for place, p_place in PLACES.items():
                for noun, s in ((animal, "s"), (animal + "s", "")):
                    p = p_adjective * p_place / (2 * len(FOOD))
                    start = f"the{adjective} {noun}{place}"
                    found[f"{start} sleep{s}."] = p * (1 - EATS)
                    found |= {f"{start} eat{s} {food}.": p * EATS / len(foods) for food in foods}
    return found


def entropy_per_sentence() -> float:
    """H = −Σ p log p over the sentences, in nats: no model can spend less on a sentence, on average."""
    return -sum(p * math.log(p) for p in sentences().values())


def entropy_per_token(tokenizer: "Tokenizer") -> float:
    """The sentence entropy over the expected number of tokens of a sentence, its END included, in nats a token."""
    length = sum(p * len(tokenizer.encode(text + END)) for text, p in sentences().items())
    return entropy_per_sentence() / length


def write_corpus(count: int, rng: np.random.Generator) -> str:
    """``count`` independent sentences, each followed by END.

    Raises:
        ValueError: ``count`` is below 1.
    """
    if count < 1:
        raise ValueError(f"count is {count}; write at least one sentence")
    known = sentences()
    drawn = rng.choice(len(known), size=count, p=list(known.values()))
    texts = list(known)
    return "".join(texts[i] + END for i in drawn)


@dataclass(frozen=True)
class Tokenizer:
    """Text to token ids and back: single characters first, then merged pairs in the order they were learnt.

    Args:
        tokens: the text of each token; its place is its id.
        merges: pairs of texts, the earliest first.
    """

    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...] = ()

    @cached_property
    def ids(self) -> dict[str, int]:
        """Text of a token → its id."""
        return {token: i for i, token in enumerate(self.tokens)}

    @cached_property
    def _known_pieces(self) -> dict[str, list[int]]:
        return {}

    def encode(self, text: str) -> Array:
        """Token ids (n,) of a text.

        Raises:
            ValueError: a character that no token holds.
        """
        found: list[int] = []
        for piece in _pieces(text):
            if piece not in self._known_pieces:
                self._known_pieces[piece] = self._encode_piece(piece)
            found += self._known_pieces[piece]
        return np.array(found, dtype=np.int64)

    def _encode_piece(self, piece: str) -> list[int]:
        parts = list(piece)
        if unknown := [part for part in parts if part not in self.ids]:
            raise ValueError(f"the character {unknown[0]!r} is in no token; this tokenizer was trained on other text")
        for pair in self.merges:
            parts = merged(parts, pair)
        return [self.ids[part] for part in parts]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids; ``decode(encode(text)) == text``.

        Raises:
            ValueError: an id outside [0, n).
        """
        ids = [int(i) for i in ids]
        if ids and not 0 <= min(ids) <= max(ids) < len(self.tokens):
            raise ValueError(f"ids lie in [{min(ids)}, {max(ids)}]; this tokenizer has {len(self.tokens)} tokens")
        return "".join(self.tokens[i] for i in ids)


def train_tokenizer(text: str, vocab: int) -> Tokenizer:
    """Learn merges until the vocabulary holds ``vocab`` tokens: each time the most frequent pair of neighbours.

    Merges stay inside a word with its leading space. A tie goes to the pair that sorts first.

    Raises:
        ValueError: fewer tokens than characters, or more than the text has pairs for.

    Source: Sennrich, Haddow and Birch (2016), "Neural Machine Translation of Rare Words with Subword Units".
    """
    words = {tuple(piece): count for piece, count in Counter(_pieces(text)).items()}
    tokens = sorted(set(text))
    if vocab < len(tokens):
        raise ValueError(f"vocab is {vocab}, but the text has {len(tokens)} different characters, each a token")
    merges: list[tuple[str, str]] = []
    while len(tokens) < vocab:
        pairs: Counter[tuple[str, str]] = Counter()
        for parts, count in words.items():
            for pair in pairwise(parts):
                pairs[pair] += count
        if not pairs:
            raise ValueError(f"vocab is {vocab}, but every word is one token at {len(tokens)} already")
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        words = {tuple(merged(list(parts), best)): count for parts, count in words.items()}
        merges.append(best)
        if "".join(best) not in tokens:
            tokens.append("".join(best))
    return Tokenizer(tuple(tokens), tuple(merges))


def merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """The parts with each occurrence of the pair joined, from the left, without overlaps."""
    joined: list[str] = []
    place = 0
    while place < len(parts):
        if tuple(parts[place : place + 2]) == pair:
            joined.append(parts[place] + parts[place + 1])
            place += 2
        else:
            joined.append(parts[place])
            place += 1
    return joined


def bigram_loss(train: Array, held_out: Array, vocab: int) -> float:
    """Mean loss in nats of the best guess from one token alone, p(next | this), counted on ``train``.

    Args:
        train, held_out: streams of token ids.
        vocab: n.

    Each count starts at 1, so that an unseen pair has a probability above 0.
    """
    counts = np.ones((vocab, vocab))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    p = counts / counts.sum(axis=1, keepdims=True)
    return float(-np.log(p[held_out[:-1], held_out[1:]]).mean())


def _pieces(text: str) -> list[str]:
    """The text cut into words, full stops and ends; a character that fits none stands alone."""
    found: list[str] = []
    place = 0
    for match in PIECES.finditer(text):
        found += [*text[place : match.start()], match[0]]
        place = match.end()
    return [*found, *text[place:]]

"""The corpus has the entropy it claims, and the tokenizer loses nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labsupport import training
from labsupport.training import corpus


def test_the_grammar_is_a_distribution() -> None:
    known = training.sentences()
    assert len(known) == 4 * 5 * 3 * 2 * 3
    assert math.isclose(sum(known.values()), 1, rel_tol=1e-12)
    assert min(known.values()) > 0


def test_the_entropy_is_the_sum_of_the_entropies_of_the_choices() -> None:
    def entropy(*p: float) -> float:
        return -sum(x * math.log(x) for x in p)

    choices = [
        entropy(*[1 / 4] * 4), entropy(*corpus.ADJECTIVES.values()), entropy(*corpus.PLACES.values()),
        entropy(1 / 2, 1 / 2), entropy(3 / 4, 1 / 4), 3 / 4 * math.log(2),
    ]  # fmt: skip
    assert math.isclose(training.entropy_per_sentence(), sum(choices), rel_tol=1e-12)


def test_verbs_agree_and_food_belongs_to_the_animal() -> None:
    for text in training.sentences():
        words = text.rstrip(".").split()
        noun = next(word for word in words if word.rstrip("s") in corpus.FOOD)
        verb = next(word for word in words if word.rstrip("s") in ("eat", "sleep"))
        assert noun.endswith("s") != verb.endswith("s"), text
        if verb.startswith("eat"):
            assert words[-1] in corpus.FOOD[noun.rstrip("s")], text


def test_a_corpus_holds_sentences_in_their_frequencies() -> None:
    text = training.write_corpus(20_000, np.random.default_rng(0))
    lines = text.splitlines()
    assert len(lines) == 20_000
    assert set(lines) <= set(training.sentences())
    share = sum(line.startswith("the cat") for line in lines) / len(lines)
    assert abs(share - 1 / 8) < 0.01  # no adjective (1/2) and a cat or cats (1/4)
    with pytest.raises(ValueError, match="at least one sentence"):
        training.write_corpus(0, np.random.default_rng(0))


@pytest.fixture(scope="module")
def tokenizer() -> training.Tokenizer:
    return training.train_tokenizer(training.write_corpus(500, np.random.default_rng(1)), 60)


def test_every_sentence_survives_the_round_trip(tokenizer: training.Tokenizer) -> None:
    assert len(tokenizer.tokens) == len(set(tokenizer.tokens)) == 60
    for text in training.sentences():
        ids = tokenizer.encode(text + "\n")
        assert tokenizer.decode(ids) == text + "\n"
        assert len(ids) < len(text)


@given(st.text(alphabet="the catsdog.\n", max_size=40))
def test_any_text_of_known_characters_survives(text: str) -> None:
    known = training.train_tokenizer("the cats. the dog.\n" * 3, 20)
    assert known.decode(known.encode(text)) == text


def test_merges_by_hand() -> None:
    known = training.train_tokenizer("ab ab ab ac", 5)
    assert known.merges[0] == (" ", "a")  # three words begin with it, more than any other pair
    assert known.tokens == (" ", "a", "b", "c", " a")
    assert known.encode("ab ac").tolist() == [1, 2, 4, 3]
    assert training.merged(list("aaa"), ("a", "a")) == ["aa", "a"]
    assert training.merged([], ("a", "a")) == []


def test_what_cannot_be_encoded_is_named(tokenizer: training.Tokenizer) -> None:
    with pytest.raises(ValueError, match="character 'z'"):
        tokenizer.encode("the zebra")
    with pytest.raises(ValueError, match=r"\[3, 60\]; this tokenizer has 60"):
        tokenizer.decode([3, 60])
    with pytest.raises(ValueError, match="different characters"):
        training.train_tokenizer("abc", 2)
    with pytest.raises(ValueError, match="one token at 5"):
        training.train_tokenizer("ab ab", 9)
    assert tokenizer.encode("").shape == (0,)
    assert tokenizer.decode([]) == ""


def test_entropy_per_token_counts_the_expected_tokens(tokenizer: training.Tokenizer) -> None:
    text = training.write_corpus(20_000, np.random.default_rng(2))
    measured = training.entropy_per_sentence() * 20_000 / len(tokenizer.encode(text))
    assert abs(measured / training.entropy_per_token(tokenizer) - 1) < 0.01


def test_bigram_loss_of_a_stream_that_repeats() -> None:
    stream = np.array([0, 1] * 500)
    assert training.bigram_loss(stream, stream, 2) < 0.01
    fair = np.random.default_rng(0).integers(0, 2, 20_000)
    assert abs(training.bigram_loss(fair, fair, 2) - math.log(2)) < 1e-3

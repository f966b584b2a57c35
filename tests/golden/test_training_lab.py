"""The numbers that chapter 13 promises: computed here by another way, and read from the chapter's own output."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from labsupport.authoring.notebook import code_cells, load
from labsupport.exercises import get
from labsupport.grading import Number, Several
from labsupport.ops import transformer
from labsupport.training import Settings, entropy_per_sentence, prepare, sentences

CHAPTER = Path(__file__).resolve().parents[2] / "chapters" / "13-training-lab.ipynb"


@pytest.fixture(scope="module")
def printed() -> str:
    """Everything the cells of the chapter print."""
    notebook = load(CHAPTER)
    assert notebook is not None
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    return "\n".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def number(printed: str, pattern: str) -> float:
    found = re.search(pattern, printed, re.M)
    assert found, f"the chapter prints nothing like {pattern}"
    return float(found[1].replace(",", ""))


def test_parameters_are_counted_by_hand_and_by_the_model(printed: str) -> None:
    embedding_and_head = 2 * 80 * 32
    attention, mlp = 4 * 32 * 32, 3 * 32 * 64
    assert embedding_and_head + 2 * (attention + mlp) == 25_600 == transformer.count_parameters(Settings().model)
    assert "parameters 25600 25600" in printed
    record = get("lab-parameters")
    assert isinstance(record, Number) and record.expected == 25_600


def test_marks_to_hold_a_loss_against(printed: str) -> None:
    uniform = number(printed, r"uniform guess +([\d.]+)")
    assert uniform == pytest.approx(math.log(80), abs=0.005)
    fresh = number(printed, r"fresh model +([\d.]+)")
    assert uniform < fresh < uniform + 1
    bigram, floor = number(printed, r"one token back +([\d.]+)"), number(printed, r"entropy of the language +([\d.]+)")
    held_out = number(printed, r"held-out loss +([\d.]+)")
    assert floor < held_out < 0.7 * bigram < 0.2 * uniform
    assert held_out < 1.1 * floor


def test_noise_in_the_logits_costs_half_its_variance_on_average(printed: str) -> None:
    settings = Settings()
    uniform = math.log(settings.model.vocab)
    ids = np.random.default_rng(0).integers(0, settings.model.vocab, (16, 33))
    above, variances = [], []
    for seed in range(40):
        parameters = transformer.init(settings.model, np.random.default_rng(1000 + seed))
        logits, _ = transformer.forward(settings.model, parameters, ids[:, :-1])
        loss, _ = transformer.loss(settings.model, parameters, ids[:, :-1], ids[:, 1:])
        above.append(loss - uniform)
        variances.append(logits.var())
    assert np.mean(above) == pytest.approx(np.mean(variances) / 2, abs=0.08)
    assert number(printed, r"above uniform +([\d.]+)") == 0.67


def test_the_entropy_is_that_of_five_choices_and_a_meal(printed: str) -> None:
    bits = 2 + (0.5 * 1 + 0.5 * 3) + (0.5 * 1 + 0.5 * 2) + 1 + 0.75
    eats = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert entropy_per_sentence() == pytest.approx(bits * math.log(2) + eats)
    assert number(printed, r"H = ([\d.]+) nats") == pytest.approx(bits * math.log(2) + eats, abs=5e-5)


def test_the_text_has_the_tokens_that_are_printed(printed: str) -> None:
    tokenizer, stream, _ = prepare(Settings())
    characters = len(tokenizer.decode(stream))
    assert f"{characters:,} characters are {len(stream):,} tokens" in printed


def test_the_model_knows_sentences_that_it_has_never_read(printed: str) -> None:
    tokenizer, stream, held_out = prepare(Settings())
    read = set(tokenizer.decode(stream).splitlines())
    lacking = set(sentences()) - read
    assert number(printed, r"never read +(\d+) sentences") == len(lacking)
    assert number(printed, r"^read +(\d+) sentences") == len(sentences()) - len(lacking)
    held = tokenizer.decode(held_out).splitlines()
    assert sum(sentence in read for sentence in held) > 0.99 * len(held)  # so the held-out loss cannot tell
    paid = [number(printed, name + r" +\d+ sentences, ([\d.]+) nats above") for name in ("never read", "^read")]
    assert paid == [0.31, 0.16]
    assert round(math.exp(-paid[0]), 2) == 0.73
    floor = number(printed, r"^floor ([\d.]+) nats a token")
    assert 0 < number(printed, r"batches below the entropy: (\d+),") < 240 / 20
    assert 0.95 * floor < number(printed, r"below the entropy: \d+, the lowest ([\d.]+)") < floor


def test_everything_the_chapter_compares_comes_out(printed: str) -> None:
    """No comparison in the text may print False but the one that shows a fault."""
    lines = [line for line in printed.splitlines() if line.endswith(("True", "False"))]
    assert len(lines) >= 20
    assert [line for line in lines if line.endswith("False")] == ["after it, equal:    False"]


def test_two_ranks_log_the_losses_of_one(printed: str) -> None:
    single = dict(re.findall(r"^step +(\d+)  loss (\d\.\d{3}) ", printed, re.M))
    ranks = dict(re.findall(r"^step +(\d+)  loss (\d\.\d{4})  norm", printed, re.M))
    assert float(ranks["0"]) == pytest.approx(float(single["0"]), abs=6e-4)
    assert "2 rank(s), cpu" in printed


def test_cache_positions_by_counting_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformer.Config(vocab=10, width=4, layers=1, hidden=4)
    parameters = transformer.init(config, np.random.default_rng(0))
    record = get("lab-cache-positions")
    assert isinstance(record, Several)
    seen: list[int] = []
    real = transformer.forward

    def counting(config: object, parameters: object, ids: np.ndarray, cache: object) -> object:
        seen.append(ids.size)
        return real(config, parameters, ids, cache)  # type: ignore[arg-type]

    monkeypatch.setattr(transformer, "forward", counting)
    for name, use in (("with", True), ("without", False)):
        seen.clear()
        transformer.generate(config, parameters, np.zeros((1, 8), int), 40, use_cache=use)
        part = record.parts[name]
        assert isinstance(part, Number) and part.expected == sum(seen)

"""Two engines, one run: equal step by step; it learns; it resumes; memory is saved without changing the result."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from labsupport import torch_twin, training
from labsupport.ops import transformer
from labsupport.ops.transformer import Config
from labsupport.training import NumpyEngine, Saved, Settings, TorchEngine

SMALL = Settings(model=Config(vocab=40, width=16, layers=2, hidden=24, heads=2), rows=6, length=12, steps=30,
                 warmup=5, sentences=200)  # fmt: skip


@pytest.fixture(scope="module")
def stream() -> np.ndarray:
    return training.prepare(SMALL)[1]


def fresh(settings: Settings = SMALL) -> Saved:
    return Saved.fresh(settings.model, np.random.default_rng(0))


def test_labels_are_the_following_tokens() -> None:
    ids, labels = training.batch(np.arange(100), 5, 7, np.random.default_rng(0))
    assert ids.shape == labels.shape == (5, 7)
    np.testing.assert_array_equal(labels, ids + 1)
    every = {int(training.batch(np.arange(9), 1, 7, np.random.default_rng(i))[0][0, 0]) for i in range(50)}
    assert every == {0, 1}  # the last block's last label is the last token
    with pytest.raises(ValueError, match="7 tokens; a block of 7 with its labels needs 8"):
        training.batch(np.arange(7), 1, 7, np.random.default_rng(0))


def test_the_schedule_rises_then_falls() -> None:
    s = Settings(steps=100, warmup=10, lr=0.5, floor=0.1)
    rates = [training.learning_rate(step, s) for step in range(100)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[9] == rates[10] == 0.5 == max(rates)
    assert rates[-1] == pytest.approx(0.05)
    assert all(a < b for a, b in pairwise(rates[:10]))
    assert all(a >= b for a, b in pairwise(rates[10:]))
    assert rates[10 + 89 // 2] > 0.25 > rates[10 + 89 // 2 + 5]
    assert training.learning_rate(1000, s) == pytest.approx(0.05)


def test_numpy_and_torch_agree_step_by_step(stream: np.ndarray) -> None:
    ours, theirs = NumpyEngine(SMALL, fresh()), TorchEngine(SMALL, fresh())
    a, b = training.train(SMALL, stream, ours), training.train(SMALL, stream, theirs)
    np.testing.assert_allclose(a.losses, b.losses, rtol=1e-9)
    np.testing.assert_allclose(a.norms, b.norms, rtol=1e-9)
    assert a.rates == b.rates
    for mine, yours in zip(a.layers, b.layers, strict=True):
        assert list(mine) == list(yours) == ["embedding", "layers.0", "layers.1", "head"]
        np.testing.assert_allclose(list(mine.values()), list(yours.values()), rtol=1e-8)
    one, two = ours.saved(), theirs.saved()
    assert one.step == two.step == SMALL.steps
    for part in ("parameters", "m", "v"):
        for name, array in getattr(one, part).items():
            np.testing.assert_allclose(array, getattr(two, part)[name], rtol=1e-7, atol=1e-12, err_msg=name)


def test_the_global_norm_is_that_of_the_layers(stream: np.ndarray) -> None:
    run = training.train(SMALL, stream, NumpyEngine(SMALL, fresh()), until=3)
    for norm, layers in zip(run.norms, run.layers, strict=True):
        assert norm == pytest.approx(math.sqrt(sum(value**2 for value in layers.values())))


def test_the_default_run_learns_the_language() -> None:
    settings = Settings()
    tokenizer, stream, held_out = training.prepare(settings)
    engine = TorchEngine(settings, Saved.fresh(settings.model, np.random.default_rng([0, 0])))
    run = training.train(settings, stream, engine)
    end = engine.saved().parameters
    loss = training.evaluate(settings.model, end, held_out, settings.length)
    floor = training.entropy_per_token(tokenizer)
    assert run.losses[0] > math.log(settings.model.vocab)
    assert floor < loss < 1.2 * floor
    assert loss < 0.75 * training.bigram_loss(stream, held_out, settings.model.vocab)
    prompt = np.tile(tokenizer.encode("\n"), (100, 1))
    texts = transformer.generate(settings.model, end, prompt, 14, training.chooser(np.random.default_rng(0)))
    good = sum(tokenizer.decode(row).split("\n")[1] in training.sentences() for row in texts)
    assert good > 75


@pytest.mark.parametrize("make", [NumpyEngine, TorchEngine])
def test_a_resumed_run_is_the_run_that_never_stopped(make: type, stream: np.ndarray) -> None:
    whole = make(SMALL, fresh())
    losses = training.train(SMALL, stream, whole).losses
    first = make(SMALL, fresh())
    half = training.train(SMALL, stream, first, until=13).losses
    second = make(SMALL, first.saved())
    rest = training.train(SMALL, stream, second)
    assert rest.first == 13
    np.testing.assert_allclose(half + rest.losses, losses, rtol=1e-12)
    for name, array in whole.saved().parameters.items():
        np.testing.assert_allclose(array, second.saved().parameters[name], rtol=1e-10, atol=1e-14)


def test_saved_is_a_copy(stream: np.ndarray) -> None:
    start = fresh()
    before = {name: array.copy() for name, array in start.parameters.items()}
    for make in (NumpyEngine, TorchEngine):
        engine = make(SMALL, start)
        training.train(SMALL, stream, engine, until=2)
        kept = engine.saved()
        values = {name: array.copy() for name, array in kept.parameters.items()}
        training.train(SMALL, stream, engine, until=4)
        for name in before:
            np.testing.assert_array_equal(before[name], start.parameters[name])
            np.testing.assert_array_equal(values[name], kept.parameters[name])


def test_checkpointing_changes_no_loss_and_autocast_little(stream: np.ndarray) -> None:
    plain = training.train(SMALL, stream, TorchEngine(SMALL, fresh())).losses
    again = training.train(SMALL, stream, TorchEngine(SMALL, fresh(), checkpoint=True)).losses
    np.testing.assert_allclose(again, plain, rtol=1e-12)
    start = Saved.fresh(SMALL.model, np.random.default_rng(0), np.float32)
    engine = TorchEngine(SMALL, start, autocast="bfloat16")
    mixed = training.train(SMALL, stream, engine).losses
    assert mixed != plain
    np.testing.assert_allclose(mixed, plain, rtol=0.05)
    assert {array.dtype for array in engine.saved().parameters.values()} == {np.dtype("float32")}


def test_labels_that_do_not_count_are_left_out_of_the_mean() -> None:
    ids = np.random.default_rng(0).integers(0, 40, (4, 6))
    labels = np.roll(ids, -1, axis=1)
    labels[1:, :] = transformer.IGNORE
    engine = TorchEngine(SMALL, fresh())
    assert engine.gradients(ids, labels) == pytest.approx(engine.gradients(ids[:1], labels[:1]), rel=1e-12)


def test_a_step_that_is_not_finite_stops_both_engines(stream: np.ndarray) -> None:
    start = fresh()
    start.parameters["head"][0, 0] = np.inf
    for make in (NumpyEngine, TorchEngine):
        with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="first non-finite gradient"):
            training.train(SMALL, stream, make(SMALL, start), until=1)


def test_evaluation_is_the_mean_over_blocks(stream: np.ndarray) -> None:
    parameters = fresh().parameters
    blocks = [(stream[i : i + 10], stream[i + 1 : i + 11]) for i in range(0, 40, 10)]
    each = [transformer.loss(SMALL.model, parameters, x[None], y[None])[0] for x, y in blocks]
    assert training.evaluate(SMALL.model, parameters, stream[:45], 10) == pytest.approx(np.mean(each))
    with pytest.raises(ValueError, match="9 tokens"):
        training.evaluate(SMALL.model, parameters, stream[:9], 10)


def test_choosers_keep_their_promises() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]] * 4000))
    assert training.chooser()(logits[:2]).tolist() == [0, 0]

    def shares(**options: float) -> np.ndarray:
        drawn = training.chooser(np.random.default_rng(0), **options)(logits)
        return np.bincount(drawn, minlength=4) / len(drawn)

    np.testing.assert_allclose(shares(), [0.5, 0.3, 0.15, 0.05], atol=0.03)
    np.testing.assert_allclose(shares(k=2), [0.625, 0.375, 0, 0], atol=0.03)
    np.testing.assert_allclose(shares(p=0.6), [0.625, 0.375, 0, 0], atol=0.03)
    np.testing.assert_allclose(shares(temperature=1e-3), [1, 0, 0, 0])
    flat = np.array([0.5, 0.3, 0.15, 0.05]) ** 0.5
    np.testing.assert_allclose(shares(temperature=2.0), flat / flat.sum(), atol=0.03)
    # A hotter distribution has a larger nucleus: temperature comes before top-p.
    assert (shares(temperature=2.0, p=0.6) > 0).sum() == 2 and (shares(temperature=4.0, p=0.6) > 0).sum() == 3
    with pytest.raises(ValueError, match="give an rng"):
        training.chooser(k=3)
    with pytest.raises(ValueError, match="must be positive"):
        training.chooser(np.random.default_rng(0), temperature=0)


def test_torch_engine_leaves_the_batch_gradient_in_the_model(stream: np.ndarray) -> None:
    ids, labels = training.batch(stream, 6, 12, np.random.default_rng(0))
    engine = TorchEngine(SMALL, fresh())
    engine.gradients(ids, labels)
    kept = transformer.loss(SMALL.model, fresh().parameters, ids, labels)[1]
    wanted = transformer.backward(SMALL.model, fresh().parameters, kept)
    for name, grad in torch_twin.gradients(engine.model).items():
        np.testing.assert_allclose(grad, wanted[name], rtol=1e-9, atol=1e-13)


def test_settings_travel() -> None:
    assert replace(Settings(), steps=3).steps == 3

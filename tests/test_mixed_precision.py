"""Training in 16 bits: float16 stands still unscaled and learns when scaled; bfloat16 needs no scale."""

import pytest

from labsupport.mixed_precision import train
from labsupport.ops.floats import LossScaler


@pytest.fixture(scope="module")
def runs():
    return {
        "float32": train("float32"),
        "float16": train("float16"),
        "bfloat16": train("bfloat16"),
        "scaled": train("float16", LossScaler(2.0**48, growth_interval=20)),
    }


def test_float16_loses_every_weight_gradient_and_stands_still(runs):
    run = runs["float16"]
    assert run.zeros_weights == 1.0
    assert 0.2 < run.zeros_output < 0.8
    assert set(run.losses) == {1.0}
    assert all(run.applied)


def test_scaled_float16_learns_like_float32(runs):
    run = runs["scaled"]
    assert run.losses[-1] < 0.03
    assert runs["float32"].losses[-1] < 0.03
    assert run.zeros_weights < 0.01


def test_a_scale_that_is_too_large_is_halved_until_it_fits_and_grows_again(runs):
    run = runs["scaled"]
    skipped = [not applied for applied in run.applied]
    start = skipped.index(False)
    assert 5 <= start <= 15
    assert run.scales[start] == 2.0 ** (48 - start)
    for step, (scale, after) in enumerate(zip(run.scales, run.scales[1:], strict=False)):
        assert after == scale / 2 if skipped[step] else after in (scale, 2 * scale)
    assert any(skipped[start:])
    assert run.losses[start] == run.losses[0] == 1.0


def test_bfloat16_needs_no_scale(runs):
    run = runs["bfloat16"]
    assert run.zeros_weights == 0.0
    assert run.losses[-1] < 0.03
    assert set(run.scales) == {1.0}

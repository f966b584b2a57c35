"""Measurements part by part: percentiles, FLOPs and kept bytes that can be counted on paper, and saved tensors."""

import numpy as np
import pytest
import torch

from labsupport import torch_twin
from labsupport.ops.transformer import Config, init
from labsupport.profiling import percentiles, profile, training_step

CONFIG = Config(vocab=11, width=8, layers=2, hidden=12, heads=2)
B, T = 2, 5


@pytest.fixture
def model():
    return torch_twin.module(CONFIG, init(CONFIG, np.random.default_rng(0), np.float32))


@pytest.fixture
def ids():
    return np.random.default_rng(1).integers(0, CONFIG.vocab, (B, T))


def test_percentiles_are_measured_values_at_the_nearest_rank():
    times = list(range(100, 0, -1))
    assert percentiles(times) == (50, 95, 99)
    assert percentiles([3.0]) == (3.0, 3.0, 3.0)
    assert percentiles([1.0, 2.0], (50, 51, 100)) == (1.0, 2.0, 2.0)
    assert percentiles(times) == tuple(np.percentile(times, [50, 95, 99], method="inverted_cdf"))
    with pytest.raises(ValueError, match="no measurements"):
        percentiles([])
    with pytest.raises(ValueError, match="rank 0"):
        percentiles([1.0], [0])


def test_every_part_is_measured_in_every_run_with_the_flops_of_its_products(model, ids):
    measured = profile(model, ids, repeats=3, warmup=1)
    names = [part.name for part in measured.parts]
    assert names[:2] == ["model", "layers.0"]
    assert set(names) == {"model", *(name for name, _ in model.named_modules() if name and name != "layers")}
    assert {len(part.times) for part in measured.parts} == {3}
    d, m, D_h = CONFIG.width, CONFIG.hidden, CONFIG.width // CONFIG.heads
    core = 2 * (2 * B * CONFIG.heads * T * T * D_h)
    assert core <= measured["layers.1.attention.core"].flops < 1.2 * core
    mlp = 3 * 2 * B * T * d * m
    assert mlp <= measured["layers.1.mlp"].flops < 1.1 * mlp
    assert all(part.times[0] < measured["model"].times[0] for part in measured.parts[1:])


def test_with_gradients_a_layer_keeps_more_than_its_output(model, ids):
    output = B * T * CONFIG.width * 4
    train, infer = (profile(model, ids, repeats=2, warmup=1, train=train) for train in (True, False))
    assert infer["layers.0"].kept == output
    assert train["layers.0"].kept > 5 * output
    assert train.conditions["input"] == (B, T)
    assert train.conditions["dtype"] == "float32"


def test_no_hook_is_left_behind(model, ids):
    profile(model, ids, repeats=1, warmup=0)
    training_step(model, ids, ids)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_table_has_the_conditions_first(model, ids):
    table = profile(model, ids, repeats=2, warmup=0).table()
    assert table.startswith("input (2, 5); dtype float32; device cpu")
    assert "layers.1.mlp" in table
    with pytest.raises(ValueError, match="at least once"):
        profile(model, ids, repeats=0)
    with pytest.raises(KeyError, match="no part 'mlp'"):
        profile(model, ids, repeats=1)["mlp"]


def test_a_step_counts_flops_recomputation_and_saved_bytes(ids):
    parameters = init(CONFIG, np.random.default_rng(0), np.float32)
    plain, checked = (
        training_step(torch_twin.module(CONFIG, parameters, checkpoint=checkpoint), ids, ids)
        for checkpoint in (False, True)
    )
    d, m = CONFIG.width, CONFIG.hidden
    layer = 2 * B * T * (4 * d * d + 3 * d * m) + 4 * B * T * T * d
    head = 2 * B * T * d * CONFIG.vocab
    assert plain.forward_flops == checked.forward_flops == CONFIG.layers * layer + head
    assert plain.backward_flops == 2 * plain.forward_flops
    down = 2 * B * T * d * m  # its product is not computed again: no gradient needs the layer's output
    assert checked.backward_flops == plain.backward_flops + CONFIG.layers * (layer - down)
    assert (plain.layer_runs, checked.layer_runs) == (CONFIG.layers, 2 * CONFIG.layers)
    assert checked.saved_bytes < plain.saved_bytes / 2


def test_saved_bytes_grow_by_one_layer_input_under_checkpointing(ids):
    saved = []
    for layers in (1, 2, 3):
        config = Config(11, 8, layers, 12, 2)
        parameters = init(config, np.random.default_rng(0), np.float32)
        saved.append(training_step(torch_twin.module(config, parameters, checkpoint=True), ids, ids).saved_bytes)
    assert saved[1] - saved[0] == saved[2] - saved[1] == B * T * 8 * 4


def test_parameters_do_not_count_as_activations():
    linear = torch_twin.module(Config(50, 8, 0, 1), init(Config(50, 8, 0, 1), np.random.default_rng(0), np.float32))
    small = training_step(linear, [[1, 2]], [[2, 3]]).saved_bytes
    assert small < sum(tensor.nbytes for tensor in linear.parameters())
    assert isinstance(linear, torch.nn.Module)

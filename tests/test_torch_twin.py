"""The torch twin of the small transformer: same names, same loss, same gradients, with every switch."""

import numpy as np
import pytest
import torch

from labsupport import torch_twin
from labsupport.ops import transformer
from labsupport.ops.transformer import Config, backward, forward, init, loss

CONFIGS = [
    Config(vocab=11, width=8, layers=2, hidden=12, heads=2),
    Config(vocab=13, width=6, layers=1, hidden=12),
    Config(vocab=7, width=5, layers=1, hidden=3),
    Config(vocab=4, width=4, layers=0, hidden=1),
]
SMALL = CONFIGS[0]


def batch(config, B=3, T=7):
    blocks = np.random.default_rng(1).integers(0, config.vocab, (B, T + 1))
    ids, labels = blocks[:, :-1], blocks[:, 1:].copy()
    labels[0, :3] = transformer.IGNORE
    return ids, labels


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("attention", ["explicit", "fused"])
@pytest.mark.parametrize("config", CONFIGS)
def test_loss_and_every_gradient_are_those_of_the_numpy_model(config, attention, checkpoint):
    parameters = init(config, np.random.default_rng(0))
    ids, labels = batch(config)
    model = torch_twin.module(config, parameters, attention=attention, checkpoint=checkpoint)
    theirs = torch_twin.loss(model, ids, labels)
    theirs.backward()
    ours, saved = loss(config, parameters, ids, labels)
    assert theirs.item() == pytest.approx(ours, rel=1e-12)
    found = torch_twin.gradients(model)
    assert list(found) == list(parameters)
    for name, gradient in backward(config, parameters, saved).items():
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-12 * scale, err_msg=name)


def test_logits_are_those_of_the_numpy_model_in_float32():
    parameters = init(SMALL, np.random.default_rng(0), np.float32)
    ids, _ = batch(SMALL)
    logits = torch_twin.module(SMALL, parameters)(ids)
    assert logits.dtype == torch.float32
    np.testing.assert_allclose(logits.detach().numpy(), forward(SMALL, parameters, ids)[0], rtol=1e-4, atol=1e-5)


def test_the_names_are_those_of_the_parameters_and_go_there_and_back():
    parameters = init(SMALL, np.random.default_rng(0), np.float32)
    model = torch_twin.module(SMALL, parameters)
    assert set(model.state_dict()) == set(dict(model.named_parameters())) == set(parameters)
    back = torch_twin.to_numpy(model)
    assert list(back) == list(parameters)
    for name, array in parameters.items():
        assert back[name].dtype == np.float32
        np.testing.assert_array_equal(back[name], array)
    assert sum(tensor.numel() for tensor in model.parameters()) == transformer.count_parameters(SMALL)


def test_the_twin_does_not_share_memory_with_the_numpy_parameters():
    parameters = init(SMALL, np.random.default_rng(0))
    before = parameters["head"].copy()
    model = torch_twin.module(SMALL, parameters)
    with torch.no_grad():
        model.head.add_(1)
    np.testing.assert_array_equal(parameters["head"], before)
    copied = torch_twin.to_numpy(model)
    copied["head"][:] = 0
    assert bool((model.head != 0).any())


def test_checkpointing_saves_the_input_of_each_layer_only():
    parameters = init(SMALL, np.random.default_rng(0))
    ids, labels = batch(SMALL)
    saved = {}
    for checkpoint in (False, True):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kept=sizes: kept.append(t.numel()) or t, lambda t: t):
            torch_twin.loss(torch_twin.module(SMALL, parameters, checkpoint=checkpoint), ids, labels)
        saved[checkpoint] = sum(sizes)
    assert saved[True] < saved[False] / 2


def test_torch_tensors_are_accepted_as_ids_and_labels():
    parameters = init(SMALL, np.random.default_rng(0))
    ids, labels = batch(SMALL)
    model = torch_twin.module(SMALL, parameters)
    arrays = torch_twin.loss(model, ids, labels).item()
    assert torch_twin.loss(model, torch.from_numpy(ids), torch.from_numpy(labels)).item() == arrays
    assert torch_twin.loss(model, ids.tolist(), labels.tolist()).item() == arrays


def test_bad_input_is_named():
    parameters = init(SMALL, np.random.default_rng(0))
    ids, labels = batch(SMALL)
    model = torch_twin.module(SMALL, parameters)
    for call, error, message in [
        (lambda: torch_twin.module(SMALL, parameters, attention="flash"), ValueError, "explicit, fused"),
        (lambda: torch_twin.module(SMALL, {**parameters, "head": ids}), ValueError, "head has shape"),
        (lambda: model(ids * 1.0), TypeError, "integers"),
        (lambda: model(torch.from_numpy(ids * 1.0)), TypeError, "integers"),
        (lambda: model(ids[0]), ValueError, r"\(B, T\)"),
        (lambda: model(ids + 9), ValueError, "vocabulary of 11"),
        (lambda: torch_twin.loss(model, ids, labels[:, 1:]), ValueError, "labels have shape"),
        (lambda: torch_twin.loss(model, ids, np.full_like(ids, -100)), ValueError, "no label counts"),
        (lambda: torch_twin.gradients(model), ValueError, "no gradient yet"),
    ]:
        with pytest.raises(error, match=message):
            call()

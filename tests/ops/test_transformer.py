"""The small transformer: counts, causality, gradients against autograd, and the KV cache."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport.ops import transformer as model
from labsupport.ops.transformer import Config, KVCache, backward, count_parameters, forward, generate, init, loss

SMALL = Config(vocab=11, width=8, layers=2, hidden=12, heads=2)


def torch_loss(config, tensors, ids, labels):
    """The same model written for torch, from the same parameters."""
    ids, labels = torch.from_numpy(ids), torch.from_numpy(labels)

    def norm(x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)

    def split(x):
        return x.reshape(*x.shape[:2], config.heads, -1).transpose(1, 2)

    x = tensors["embedding"][ids] + torch.from_numpy(model.positions(0, ids.shape[1], config.width))
    for layer in range(config.layers):
        W = {k.split(".")[-1]: v for k, v in tensors.items() if k.startswith(f"layers.{layer}.")}
        a = norm(x)
        Q, K, V = (split(a @ W[k]) for k in ("query", "key", "value"))
        o = torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=True)
        x = x + o.transpose(1, 2).reshape(x.shape) @ W["output"]
        b = norm(x)
        x = x + (torch.nn.functional.silu(b @ W["gate"]) * (b @ W["up"])) @ W["down"]
    logits = norm(x) @ tensors["head"]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def batch(config, B=3, T=7, seed=1):
    ids = np.random.default_rng(seed).integers(0, config.vocab, (B, T + 1))
    return ids[:, :-1], ids[:, 1:].copy()


@pytest.mark.parametrize("config", [SMALL, Config(5, 6, 1, 4, 3), Config(7, 5, 1, 3, 1), Config(4, 4, 0, 1, 1)])
def test_loss_and_every_gradient_are_autograd_s(config):
    parameters = init(config, np.random.default_rng(0))
    ids, labels = batch(config)
    labels[0, :3] = -100
    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in parameters.items()}
    expected = torch_loss(config, tensors, ids, labels)
    expected.backward()
    value, saved = loss(config, parameters, ids, labels)
    assert value == pytest.approx(expected.item(), rel=1e-12)
    grads = backward(config, parameters, saved)
    assert list(grads) == list(parameters)
    for name, grad in grads.items():
        theirs = tensors[name].grad.numpy()
        np.testing.assert_allclose(grad, theirs, rtol=1e-9, atol=1e-12 * np.abs(theirs).max(), err_msg=name)


def test_the_parameter_count_is_the_formula_and_the_sum_of_the_tensors():
    assert count_parameters(Config(vocab=13, width=6, layers=1, hidden=12)) == 516
    assert count_parameters(Config(vocab=77, width=16, layers=1, hidden=32)) == 5024
    for config in (SMALL, Config(13, 6, 3, 12, 2), Config(4, 4, 0, 1)):
        parameters = init(config, np.random.default_rng(0))
        assert sum(value.size for value in parameters.values()) == count_parameters(config)


def test_logits_depend_on_earlier_tokens_only():
    parameters = init(SMALL, np.random.default_rng(0))
    ids, _ = batch(SMALL)
    logits, _ = forward(SMALL, parameters, ids)
    changed = ids.copy()
    changed[:, 4] = (changed[:, 4] + 1) % SMALL.vocab
    after, _ = forward(SMALL, parameters, changed)
    np.testing.assert_array_equal(after[:, :4], logits[:, :4])
    assert np.abs(after[:, 4:] - logits[:, 4:]).max() > 0.01


def test_the_order_of_the_batch_changes_nothing():
    parameters = init(SMALL, np.random.default_rng(0))
    ids, _ = batch(SMALL)
    logits, _ = forward(SMALL, parameters, ids)
    np.testing.assert_allclose(forward(SMALL, parameters, ids[::-1])[0][::-1], logits, rtol=1e-12, atol=1e-13)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 6), st.integers(0, 10**6))
def test_the_cache_gives_the_tokens_of_a_full_recompute(B, T, steps, seed):
    rng = np.random.default_rng(seed)
    parameters = init(SMALL, rng)
    prompt = rng.integers(0, SMALL.vocab, (B, T))
    cached = generate(SMALL, parameters, prompt, steps)
    np.testing.assert_array_equal(cached, generate(SMALL, parameters, prompt, steps, use_cache=False))
    assert cached.shape == (B, T + steps)


def test_the_cache_gives_the_logits_of_a_full_recompute_for_any_split():
    parameters = init(SMALL, np.random.default_rng(3))
    ids, _ = batch(SMALL)
    whole, _ = forward(SMALL, parameters, ids)
    for cut in range(1, ids.shape[1]):
        cache = KVCache(SMALL)
        first, _ = forward(SMALL, parameters, ids[:, :cut], cache)
        second, _ = forward(SMALL, parameters, ids[:, cut:], cache)
        np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, rtol=1e-11, atol=1e-12)
    assert cache.length == ids.shape[1]
    assert cache.nbytes == 2 * SMALL.layers * ids.size * SMALL.width * 8


def test_generation_uses_the_reader_s_choice():
    parameters = init(SMALL, np.random.default_rng(0))
    out = generate(SMALL, parameters, [[1, 2]], 3, choose=lambda logits: np.zeros(len(logits), int))
    np.testing.assert_array_equal(out, [[1, 2, 0, 0, 0]])


def test_the_first_loss_is_near_that_of_guessing():
    parameters = init(SMALL, np.random.default_rng(0), np.float32)
    ids, labels = batch(SMALL, B=32)
    value, saved = loss(SMALL, parameters, ids, labels)
    assert abs(value - math.log(SMALL.vocab)) < 1.0
    assert {g.dtype for g in backward(SMALL, parameters, saved).values()} == {np.dtype(np.float32)}


def test_bad_input_is_named():
    parameters = init(SMALL, np.random.default_rng(0))
    ids, labels = batch(SMALL)
    for call, error, message in [
        (lambda: forward(SMALL, parameters, ids * 1.0), TypeError, "integers"),
        (lambda: forward(SMALL, parameters, ids[0]), ValueError, r"\(B, T\)"),
        (lambda: forward(SMALL, parameters, ids + 9), ValueError, "vocabulary of 11"),
        (lambda: forward(SMALL, {**parameters, "head": ids}, ids), ValueError, "head has shape"),
        (lambda: forward(SMALL, {}, ids), ValueError, "missing"),
        (lambda: loss(SMALL, parameters, ids, labels[:, 1:]), ValueError, "labels have shape"),
        (lambda: loss(SMALL, parameters, ids, np.full_like(ids, -100)), ValueError, "no label counts"),
        (lambda: loss(SMALL, parameters, ids, labels + 11), ValueError, "only -100"),
        (lambda: backward(SMALL, parameters, forward(SMALL, parameters, ids)[1]), ValueError, "call loss"),
        (lambda: generate(SMALL, parameters, np.zeros((1, 0), int), 2), ValueError, "empty"),
        (lambda: generate(SMALL, parameters, ids, -1), ValueError, "steps"),
        (lambda: Config(11, 8, 1, 4, 3), ValueError, "multiple"),
        (lambda: Config(0, 8, 1, 4), ValueError, "vocab"),
    ]:
        with pytest.raises(error, match=message):
            call()

"""Attention: explicit against torch, blocked against explicit for every block, backward against autograd."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport.ops.attention import (
    attention,
    attention_backward,
    causal_mask,
    count_traffic,
    flash_attention,
    saturation,
    traffic,
)


def drawn(lead, S_q, S_k, D_h, D_v, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    shapes = [(*lead, S_q, D_h), (*lead, S_k, D_h), (*lead, S_k, D_v)]
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def by_torch(Q, K, V, causal):
    mask = None
    if causal:
        S_q, S_k = Q.shape[-2], K.shape[-2]
        mask = torch.ones(S_q, S_k, dtype=torch.bool).tril(S_k - S_q)
    return torch.nn.functional.scaled_dot_product_attention(Q, K, V, attn_mask=mask)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [((), 5, 5, 4, 4), ((2, 3), 6, 6, 8, 8), ((2,), 1, 7, 4, 3), ((1, 2), 4, 9, 2, 5)])
def test_attention_is_torch_forward_and_backward(sizes, causal):
    Q, K, V = drawn(*sizes)
    tensors = [torch.tensor(a, requires_grad=True) for a in (Q, K, V)]
    out = by_torch(*tensors, causal)
    dO = np.random.default_rng(7).normal(size=tuple(out.shape))
    out.backward(torch.from_numpy(dO))
    np.testing.assert_allclose(attention(Q, K, V, causal), out.detach().numpy(), rtol=1e-12, atol=1e-13)
    for got, tensor in zip(attention_backward(Q, K, V, dO, causal), tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-11, atol=1e-12)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 11), st.integers(1, 11), st.booleans(), st.integers(0, 99))
def test_blocks_of_any_size_give_the_same_output(S_q, S_k, rows, columns, causal, seed):
    Q, K, V = drawn((2,), S_q, S_k, 3, 2, seed)
    blocked = flash_attention(Q * 20, K, V, (rows, columns), causal)
    np.testing.assert_allclose(blocked, attention(Q * 20, K, V, causal), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtypes_are_kept(dtype):
    Q, K, V = drawn((2,), 6, 6, 4, 4, dtype=dtype)
    results = [attention(Q, K, V, True), flash_attention(Q, K, V, 4, True), *attention_backward(Q, K, V, V, True)]
    assert {r.dtype for r in results} == {np.dtype(dtype)}


def test_huge_scores_do_not_overflow():
    Q, K, V = drawn((), 5, 5, 4, 4, dtype=np.float32)
    for out in (attention(Q * 1e4, K * 1e4, V), flash_attention(Q * 1e4, K * 1e4, V, 2)):
        assert np.isfinite(out).all()


def test_a_query_without_keys_gives_zero():
    Q, K, V = drawn((), 4, 2, 3, 3)
    for out in (attention(Q, K, V, causal=True), flash_attention(Q, K, V, 2, causal=True)):
        np.testing.assert_array_equal(out[:2], 0)
        assert np.abs(out[2:]).min() > 0
    Q, K, V = drawn((), 4, 0, 3, 3)
    np.testing.assert_array_equal(attention(Q, K, V), 0)
    np.testing.assert_array_equal(flash_attention(Q, K, V, 2), 0)
    assert all(np.isfinite(g).all() for g in attention_backward(*drawn((), 4, 2, 3, 3), np.ones((4, 3)), causal=True))


def test_the_last_query_of_a_cache_reads_every_key():
    Q, K, V = drawn((2,), 6, 6, 4, 4)
    whole = attention(Q, K, V, causal=True)
    np.testing.assert_allclose(attention(Q[:, -1:], K, V, causal=True), whole[:, -1:], rtol=1e-13)


def test_a_later_key_never_changes_an_earlier_output():
    Q, K, V = drawn((), 6, 6, 4, 4)
    before = attention(Q, K, V, causal=True)
    K[4], V[4] = 100.0, -100.0
    np.testing.assert_array_equal(attention(Q, K, V, causal=True)[:4], before[:4])
    np.testing.assert_array_equal(causal_mask(3), [[1, 0, 0], [1, 1, 0], [1, 1, 1]])


def test_shapes_that_do_not_fit_are_named():
    Q, K, V = drawn((2,), 4, 5, 3, 3)
    for arguments, message in [
        ((Q, K[..., :2], V), "size 3 but that of K has size 2"),
        ((Q, K, V[:, :4]), "5 keys but V holds 4"),
        ((Q[0], K, V), "leading axes"),
        ((Q[0, 0], K, V), "axes"),
    ]:
        with pytest.raises(ValueError, match=message):
            attention(*arguments)
    with pytest.raises(ValueError, match="block"):
        flash_attention(Q, K, V, 0)
    with pytest.raises(ValueError, match="dO"):
        attention_backward(Q, K, V, V)
    with pytest.raises(ValueError, match="0 or more"):
        causal_mask(-1)


@pytest.mark.parametrize("sizes", [(6, 9, 4, 3), (8, 8, 2, 2), (1, 5, 3, 3), (7, 1, 2, 4)])
@pytest.mark.parametrize("block", [None, 1, 2, 3, 50, (4, 3)])
def test_counted_traffic_is_the_formula_and_the_output_is_attention(sizes, block):
    Q, K, V = drawn((), *sizes)
    out, moved = count_traffic(Q, K, V, block)
    np.testing.assert_allclose(out, attention(Q, K, V), rtol=1e-12, atol=1e-13)
    assert moved == traffic(*sizes, block)


def test_tiled_traffic_falls_with_the_block_and_keeps_no_scores():
    S, D = 1024, 64
    explicit = traffic(S, S, D)
    totals = [traffic(S, S, D, block=b).total for b in (1, 16, 64, 256, 1024)]
    assert totals == sorted(totals, reverse=True)
    assert explicit.total == 4 * S * S + 4 * S * D
    assert totals[-1] == 4 * S * D
    assert explicit.scores_in_memory == S * S
    assert traffic(S, S, D, block=64).scores_in_memory == 0
    assert totals[0] > explicit.total > totals[2]


def test_traffic_names_what_it_cannot_count():
    Q, K, V = drawn((2,), 4, 5, 3, 3)
    with pytest.raises(ValueError, match="one head"):
        count_traffic(Q, K, V)
    with pytest.raises(ValueError, match="block is 0"):
        traffic(4, 4, 2, block=0)
    with pytest.raises(ValueError, match="at least 1"):
        traffic(0, 4, 2)


@pytest.mark.parametrize("D_h", [16, 64, 256])
def test_variance_of_a_score_is_the_width_and_the_scale_takes_it_out(D_h):
    plain, scaled = saturation(D_h, scaled=False, queries=200), saturation(D_h, queries=200)
    assert plain.variance == pytest.approx(D_h * scaled.variance, rel=1e-12)
    assert scaled.variance == pytest.approx(1, rel=0.05)
    assert plain.entropy < scaled.entropy < np.log(64)
    assert plain.largest > scaled.largest > 1 / 64
    assert plain.dead >= scaled.dead == 0


def test_saturation_without_a_scale_grows_with_the_width():
    measured = [saturation(D_h, scaled=False, queries=200) for D_h in (16, 64, 256, 1024)]
    for name, rising in (("largest", True), ("dead", True), ("entropy", False), ("gradient", False)):
        values = [getattr(m, name) for m in measured]
        assert values == sorted(values, reverse=not rising)
    assert saturation(1024, False, keys=1, queries=3).entropy == 0
    with pytest.raises(ValueError, match="at least 1"):
        saturation(0)

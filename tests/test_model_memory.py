"""Whole models: the published counts, and activations against what torch really saves for its backward pass."""

import pytest
import torch
from torch.nn import functional as F

from labsupport import model_memory as mm
from labsupport.cost import itemsize
from labsupport.model_memory import MODELS, Model, activation_bytes, kv_cache_bytes, layer_activations, train


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_parts_sum_to_the_published_count(model):
    assert model.parameters == model.published == sum(model.parts().values())


def test_a_model_built_in_torch_has_the_counted_parameters():
    model = Model(
        name="tiny", source="test", vocabulary=11, width=12, layers=2, heads=4, kv_heads=2, hidden=20, positions=5,
        bias=True, norm_tensors=2,
    )  # fmt: skip
    H, kv, m = 12, 6, 20
    layer = [torch.nn.Linear(H, H + 2 * kv), torch.nn.Linear(H, H), torch.nn.Linear(H, m), torch.nn.Linear(m, H)]
    layer += [torch.nn.LayerNorm(H), torch.nn.LayerNorm(H)]
    rest = [torch.nn.Embedding(11, H), torch.nn.Embedding(5, H), torch.nn.LayerNorm(H)]
    rest += [torch.nn.Linear(H, 11, bias=False)]
    count = [sum(p.numel() for module in modules for p in module.parameters()) for modules in (layer, rest)]
    assert model.parameters == 2 * count[0] + count[1]


def saved_bytes(run, parameters):
    """Bytes of the different storages that autograd keeps, parameters left out."""
    own = {p.untyped_storage().data_ptr() for p in parameters}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = run()
    assert out.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_a_layer_keeps_what_torch_keeps(gated, fused):
    B, S, H, N_h, m = 2, 8, 16, 4, 24
    model = Model(
        name="t", source="test", vocabulary=9, width=H, layers=1, heads=N_h, kv_heads=N_h, hidden=m, gated=gated,
        norm_tensors=2,
    )  # fmt: skip
    rng = torch.Generator().manual_seed(0)

    def weight(*shape):
        return torch.randn(*shape, generator=rng).requires_grad_()

    W = {name: weight(H, H) for name in "qkvo"} | {"up": weight(m, H), "gate": weight(m, H), "down": weight(H, m)}
    gains = [weight(H) for _ in range(4)]
    x = weight(B, S, H)

    def layer():
        n = F.layer_norm(x * 1, (H,), gains[0], gains[1])
        q, k, v = (F.linear(n, W[a]).view(B, S, N_h, -1).transpose(1, 2) for a in "qkv")
        if fused:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            o = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        h = x + F.linear(o.transpose(1, 2).reshape(B, S, H), W["o"])
        n = F.layer_norm(h, (H,), gains[2], gains[3])
        up = F.linear(n, W["up"])
        return h + F.linear(F.silu(F.linear(n, W["gate"])) * up if gated else F.gelu(up), W["down"])

    counted = sum(layer_activations(model, B, S, "float32", fused=fused).values())
    measured = saved_bytes(layer, [*W.values(), *gains])
    assert counted == measured


def test_the_cache_of_llama_is_128_kib_a_token():
    llama = MODELS["Llama 3 8B"]
    assert kv_cache_bytes(llama, 1, 1) == 2 * 32 * 8 * 128 * 2 == 128 * 1024
    assert kv_cache_bytes(llama, 4, 8192) == 4 * 8192 * kv_cache_bytes(llama, 1, 1)
    shared = kv_cache_bytes(MODELS["GPT-2 small"], 1, 1, "float16")
    assert shared == 2 * 12 * 768 * 2


def test_checkpointing_keeps_a_layer_input_and_one_whole_layer():
    llama = MODELS["Llama 3 8B"]
    B, S = 1, 4096
    layer = sum(layer_activations(llama, B, S).values())
    full, kept = activation_bytes(llama, B, S), activation_bytes(llama, B, S, checkpointing=True)
    assert full - kept == 31 * layer - 32 * B * S * 4096 * itemsize("bfloat16")
    assert full > 3 * kept


def test_explicit_attention_adds_the_probabilities():
    gpt = MODELS["GPT-2 small"]
    more = layer_activations(gpt, 2, 1024, fused=False)["attention core"]
    assert more == 2 * 12 * 1024**2 * 2
    assert activation_bytes(gpt, 2, 1024, fused=False) > activation_bytes(gpt, 2, 1024)


def test_training_takes_sixteen_bytes_a_parameter_and_the_activations():
    gpt = MODELS["GPT-2 small"]
    memory = train(gpt, 8, 1024, checkpointing=True)
    assert memory.total == 16 * gpt.parameters + activation_bytes(gpt, 8, 1024, checkpointing=True)
    assert train(gpt, 1, 1, ranks=4, zero_stage=3).parameters * 4 == 2 * gpt.parameters


def test_sizes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="multiple of 5 heads"):
        Model(name="odd", source="t", vocabulary=3, width=8, layers=1, heads=5, kv_heads=5, hidden=8)
    with pytest.raises(ValueError, match="every size"):
        Model(name="odd", source="t", vocabulary=0, width=8, layers=1, heads=4, kv_heads=4, hidden=8)
    with pytest.raises(ValueError, match="S is 0"):
        mm.kv_cache_bytes(MODELS["GPT-2 small"], 1, 0)

"""The numbers that chapter 10 promises: computed here by another way, and read from the chapter's own output."""

import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from labsupport.authoring.notebook import code_cells, load
from labsupport.cost import attention_cost, linear_cost, lora_cost, score_bytes, tensor_bytes
from labsupport.distributed import run_ranks
from labsupport.exercises import get
from labsupport.grading import Number, Several
from labsupport.model_memory import MODELS, kv_cache_bytes
from labsupport.ops.attention import traffic

CHAPTER = Path(__file__).resolve().parents[2] / "chapters" / "10-ai-infra-examples.ipynb"


@pytest.fixture(scope="module")
def printed() -> str:
    """Everything the cells of the chapter print."""
    notebook = load(CHAPTER)
    assert notebook is not None
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def test_flops_of_one_projection(printed: str) -> None:
    assert 2 * 8 * 2048 * 4096 * 4096 == linear_cost(8 * 2048, 4096, 4096).flops == 549_755_813_888
    assert "549,755,813,888 FLOPs = 0.55 TFLOP" in printed


@pytest.mark.parametrize(("S", "gib"), [(4096, 1), (8192, 4)])
def test_bytes_of_explicit_scores(S: int, gib: int, printed: str) -> None:
    meta = torch.empty(1, 32, S, S, dtype=torch.float16, device="meta")
    assert meta.numel() * meta.element_size() == score_bytes(1, 32, S, "fp16") == gib * 2**30
    assert f"S = {S}: {gib * 2**30:,} B ({gib} GiB)" in printed


def test_bytes_of_one_activation(printed: str) -> None:
    meta = torch.empty(8, 2048, 4096, dtype=torch.bfloat16, device="meta")
    assert meta.numel() * meta.element_size() == tensor_bytes((8, 2048, 4096), "bf16") == 134_217_728 == 128 * 2**20
    assert "134,217,728 B = 128 MiB" in printed


def test_weighted_means(printed: str) -> None:
    assert f"{float(Fraction(7 * 2 + 5 * 3, 12)):.4f}" == f"{29 / 12:.4f}" == "2.4167"
    assert "2 ranks: sum/count 2.4167, mean of means 2.5000, all ranks agree: True" in printed
    assert "3 ranks: sum/count 2.4167, mean of means nan, all ranks agree: True" in printed
    assert Fraction(3 * 2 + 1 * 4, 4) == Fraction(5, 2)
    assert "weighted      2.5\nmean of means 3.0" in printed


def reduced(rank: int, world_size: int, losses: list[list[float]]) -> float:
    import torch.distributed as dist

    pair = torch.tensor([sum(losses[rank]), len(losses[rank])], dtype=torch.float64)
    dist.all_reduce(pair)
    return (pair[0] / pair[1]).item()


def test_micro_batches_on_real_ranks() -> None:
    assert run_ranks(reduced, 3, [[2.0, 2.0, 2.0], [4.0], []]) == [2.5, 2.5, 2.5]


def test_lora(printed: str) -> None:
    for r, share in [(8, "0.391%"), (16, "0.781%"), (64, "3.125%")]:
        cost = lora_cost(4096, 4096, r)
        assert cost.parameters == 2 * 4096 * r
        assert cost.extra.flops == 2 * cost.parameters
        assert f"{Fraction(2 * r, 4096).__float__():.3%}" == share
        assert share in printed
    assert "r = 8 trains 0.39% of the parameters" in printed
    assert "16,777,216 parameters" in printed
    assert "65,536" in printed


@pytest.mark.parametrize(("name", "count"), [("GPT-2 small", 124_439_808), ("Llama 3 8B", 8_030_261_248)])
def test_published_counts(name: str, count: int, printed: str) -> None:
    assert MODELS[name].parameters == count
    assert f"{name}: counted {count:,}\n  as published: True" in printed


def test_parameters_of_the_two_models_by_hand() -> None:
    d = 768
    gpt = 50257 * d + 1024 * d + 12 * ((3 * d * d + 3 * d) + (d * d + d) + (8 * d * d + 5 * d) + 4 * d) + 2 * d
    assert gpt == MODELS["GPT-2 small"].parameters
    d, m = 4096, 14336
    llama = 2 * 128256 * d + 32 * (d * d + 2 * d * 1024 + d * d + 3 * d * m + 2 * d) + d
    assert llama == MODELS["Llama 3 8B"].parameters


def test_cache_and_state(printed: str) -> None:
    assert kv_cache_bytes(MODELS["Llama 3 8B"], 40, 8192) == 40 * 2**30
    assert "Llama 3 8B   128 KiB for each token" in printed
    assert "cache of 40 users with 8192 tokens 40 GiB" in printed
    weights, user = 2 * 8_030_261_248, 2 * 32 * 8192 * 8 * 128 * 2
    assert weights / 48e9 == pytest.approx(1 / 3, abs=0.01)
    assert (48_000_000_000 - weights) // user == 29
    assert "a device of 48 GB has room for 29 users" in printed
    assert "128.5 GB = 119.7 GiB" in printed


def test_traffic_and_measurement(printed: str) -> None:
    assert attention_cost(1, 1, 4096, 128).bytes == 2 * traffic(4096, 4096, 128).total
    assert "S = 4096, D_h = 128, block 128: 2.00 times less" in printed
    assert f"K and V of one head, FP16: {2 * 4096 * 128 * 2:,} B (2 MiB)" in printed
    assert f"scores of one head, FP16:  {4096 * 4096 * 2:,} B (32 MiB)" in printed
    assert "600 combinations, all within 1e-12: True" in printed
    for D_h in (16, 64, 256, 1024):
        row = next(line for line in printed.splitlines() if line.startswith(f"{D_h:<5} none"))
        assert abs(float(row.split()[2]) / D_h - 1) < 0.05
        row = next(line for line in printed.splitlines() if line.startswith(f"{D_h:<5} 1/sqrt"))
        assert row.split()[2:] == ["1", "3.7", "0.11", "0.18", "0%"]


def test_flash_attention_in_one_block(printed: str) -> None:
    n, D, side = 64, 8, 8
    moved = traffic(n, n, D, block=side)
    assert moved.total == 2 * n * D * (1 + n // side) == 9_216
    assert "loads of Q: 512, 4 sectors\nloads of K: 4,096, 4 sectors\nloads of V: 4,096, 4 sectors" in printed
    assert "stores of O: 512, 4 sectors\nbarriers 128  shared 800 B\npasses a load of sK: 1.0" in printed
    assert "causal False: all within 1e-5: True\ncausal True : all within 1e-5: True" in printed
    assert "scores, softmax, weighted values: [12288, 12288, 8704]" in printed
    for name, elements in (("three kernels", 33_280), ("one kernel", 9_216), ("three at the least", 18_432)):
        intensity = Fraction(4 * n * n * D, 4 * elements)
        assert f"{name:18} {elements:>6,} elements = {4 * elements:>7,} B, {float(intensity):.2f} FLOP/B" in printed
    assert traffic(n, n, D).total == 18_432
    assert " 8 keys: no fault found\n16 keys: data race on sK[0, 0]" in printed
    assert printed.count("right  A not rescaled") == printed.count("wrong  A not rescaled") == 1
    assert "as it is        query 0:  0.0000, query 7:  1.4023" in printed
    assert "no look at l    query 0:     nan, query 7:  1.4023" in printed
    assert "n = 64: 36 of 64 tiles, by the formula 36; loads of K 2,304 of 4,096" in printed
    assert "n = 4096, blocks of 128: 528 of 1024" in printed


def test_the_cards_of_the_book_and_five_spoiled_ones(printed: str) -> None:
    for name in ("matmul", "softmax", "layer_norm", "attention", "cross_entropy"):
        assert f"{name:14} findings: []" in printed
    assert printed.count(": question ") == 5


@pytest.mark.parametrize(
    ("exercise", "expected"),
    [
        ("projection-flops", 549_755_813_888),
        ("score-bytes", 4 * 2**30),
        ("score-spread-at-256", math.sqrt(256)),
        ("lora-share-64", 3.125),
        ("mean-of-two-ranks", 29 / 12),
        ("activation-bytes-bf16", 134_217_728),
        ("kv-cache-bytes", 8 * 2**30),
        ("training-state-bytes", 1_991_036_928),
        ("layer-linear-flops", 24 * 2048**3),
        ("flash-barriers", 2 * 12 * 6),
        ("flash-causal-tiles", sum(range(1, 33))),
    ],
)
def test_expected_answers(exercise: str, expected: float) -> None:
    record = get(exercise)
    assert isinstance(record, Number)
    assert math.isclose(record.expected, expected, rel_tol=1e-12)


def test_expected_parts() -> None:
    lora, moved = get("lora-adapter-flops"), get("attention-traffic")
    assert isinstance(lora, Several)
    assert isinstance(moved, Several)
    assert [value for value, _ in lora.right_answer().values()] == [131_072, 262_144, 1_048_576]
    assert [value for value, _ in moved.right_answer().values()] == [69_206_016, 34_603_008]

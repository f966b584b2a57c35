"""Each formula of `labsupport.cost` against an independent count: torch's FLOP counter or a counted loop."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from labsupport.cost import (
    DEVICES,
    ITEMSIZE,
    SM_LIMITS,
    Bytes,
    Cost,
    Device,
    attention_cost,
    dtype_name,
    format_bytes,
    format_quantity,
    gemm_cost,
    itemsize,
    linear_cost,
    lora_cost,
    measure_device,
    occupancy,
    roofline,
    score_bytes,
    tensor_bytes,
    tile_resources,
    training_memory,
)

SIZE = st.integers(1, 9)


def counted_flops(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def held_bytes(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


# --- units


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8"])
def test_itemsize_is_torchs(name):
    dtype = getattr(torch, name)
    assert itemsize(name) == itemsize(dtype) == torch.empty(1, dtype=dtype).element_size()


def test_dtype_names_and_aliases():
    assert dtype_name("bf16") == dtype_name(torch.bfloat16) == "bfloat16"
    assert dtype_name("fp16") == dtype_name(np.float16) == dtype_name(np.dtype("float16")) == "float16"
    assert dtype_name(torch.float8_e4m3fn) == "float8_e4m3"
    assert dtype_name(torch.float8_e5m2) == "float8_e5m2"
    assert all(dtype_name(name) == name for name in ITEMSIZE)
    with pytest.raises(ValueError, match="unknown dtype 'float17'"):
        dtype_name("float17")


@pytest.mark.parametrize(
    ("n", "binary", "decimal"),
    [
        (0, "0 B", "0 B"),
        (1023, "1,023 B", "1.023 KB"),
        (1024, "1 KiB", "1.024 KB"),
        (3 * 2**29, "1.5 GiB", "1.611 GB"),
        (100_663_296, "96 MiB", "100.7 MB"),
        (2**40, "1 TiB", "1.1 TB"),
    ],
)
def test_bytes_as_text_in_both_systems(n, binary, decimal):
    assert (format_bytes(n), format_bytes(n, "decimal")) == (binary, decimal)


def test_unknown_byte_system_is_refused():
    with pytest.raises(ValueError, match="binary"):
        format_bytes(1, "si")


def test_quantities_take_the_prefix_that_keeps_four_digits():
    assert format_quantity(137_438_953_472, "FLOP") == "137.4 GFLOP"
    assert format_quantity(999.99e6, "FLOP") == "1 GFLOP"
    assert format_quantity(999, "FLOP") == "999 FLOP"
    assert format_quantity(989.4e12, "FLOP/s") == "989.4 TFLOP/s"


def test_bytes_are_an_int_that_keeps_its_unit():
    size = Bytes(2**30)
    assert repr(size) == str(size) == "1,073,741,824 B (1 GiB)"
    assert repr(Bytes(12)) == "12 B"
    assert (size.GiB, size.MiB, size.GB) == (1.0, 1024.0, 1.073741824)
    for result in (size + 1, 1 + size, 2 * size, size * 2, sum([size, size])):
        assert isinstance(result, Bytes)
    assert sum([size, size]) == 2**31


# --- cost


def test_cost_adds_scales_and_prints_units():
    cost = Cost(8, 4) + 2 * Cost(1, 2)
    assert cost == Cost(10, 8)
    assert cost.intensity == 1.25
    assert isinstance(cost.bytes, Bytes)
    assert repr(gemm_cost(4096, 4096, 4096)) == "Cost(137.4 GFLOP, 96 MiB, 1,365.3 FLOP/B)"
    assert Cost(1, 0).intensity == math.inf
    assert math.isnan(Cost(0, 0).intensity)
    with pytest.raises(ValueError, match="negative"):
        Cost(-1, 0)


@settings(deadline=None)
@given(M=SIZE, N=SIZE, K=SIZE, batch=SIZE)
def test_gemm_against_a_loop_that_counts(M, N, K, batch):
    flops = sum(2 for _ in itertools.product(range(batch), range(M), range(N), range(K)))
    a, b = np.zeros((batch, M, K), np.float16), np.zeros((batch, K, N), np.float16)
    assert gemm_cost(M, N, K, batch=batch) == Cost(flops, a.nbytes + b.nbytes + (a @ b).nbytes)


@settings(deadline=None)
@given(M=SIZE, N=SIZE, K=SIZE)
def test_gemm_that_reads_the_old_output(M, N, K):
    flops = moved = 0
    moved += M * K + K * N
    for _ in range(M * N):
        flops += 2 * K  # the dot product
        flops += 3  # times alpha, times beta, one sum
        moved += 2  # old C read, new C written
    assert gemm_cost(M, N, K, "float32", read_C=True) == Cost(flops, 4 * moved)


@settings(max_examples=25, deadline=None)
@given(tokens=SIZE, d_in=SIZE, d_out=SIZE)
def test_linear_against_torchs_counter(tokens, d_in, d_out):
    layer = torch.nn.Linear(d_in, d_out)
    x = torch.zeros(tokens, d_in)
    plain, biased = (linear_cost(tokens, d_in, d_out, "float32", bias=bias) for bias in (False, True))
    assert plain.flops == counted_flops(lambda: layer(x))  # torch leaves the bias out
    assert biased.flops - plain.flops == tokens * d_out
    assert biased.bytes == held_bytes(x, layer.weight, layer.bias, layer(x))


@settings(max_examples=25, deadline=None)
@given(B=SIZE, N_h=SIZE, S=SIZE, S_k=SIZE, D_h=SIZE)
def test_attention_against_torchs_counter(B, N_h, S, S_k, D_h):
    q = torch.zeros(B, N_h, S, D_h, dtype=torch.bfloat16)
    k, v = torch.zeros(2, B, N_h, S_k, D_h, dtype=torch.bfloat16)
    cost = attention_cost(B, N_h, S, D_h, "bfloat16", S_k=S_k)
    assert cost.flops == counted_flops(lambda: (q @ k.mT).softmax(-1) @ v)
    scores = q @ k.mT
    assert score_bytes(B, N_h, S, "bfloat16", S_k) == held_bytes(scores)
    outside = held_bytes(q, k, v, scores.softmax(-1) @ v)
    assert attention_cost(B, N_h, S, D_h, "bfloat16", S_k=S_k, fused=True).bytes == outside
    assert cost.bytes == outside + 4 * held_bytes(scores)


@settings(deadline=None)
@given(S=SIZE, D_h=SIZE)
def test_causal_attention_counts_the_allowed_pairs(S, D_h):
    pairs = int(np.tril(np.ones((S, S), int)).sum())
    assert attention_cost(1, 1, S, D_h, causal=True).flops == 4 * pairs * D_h


def test_causal_attention_needs_as_many_keys_as_queries():
    with pytest.raises(ValueError, match="S=4 and S_k=5"):
        attention_cost(1, 1, 4, 8, S_k=5, causal=True)


@settings(max_examples=25, deadline=None)
@given(tokens=SIZE, d_in=SIZE, d_out=SIZE, r=SIZE)
def test_lora_against_torchs_counter(tokens, d_in, d_out, r):
    x, a, b = torch.zeros(tokens, d_in), torch.zeros(r, d_in), torch.zeros(d_out, r)
    lora = lora_cost(d_in, d_out, r, tokens, "float32")
    assert lora.parameters == a.numel() + b.numel()
    assert lora.full_parameters == (b @ a).numel()
    assert lora.extra.flops == counted_flops(lambda: x @ a.T @ b.T) == 2 * r * (d_in + d_out) * tokens


def test_golden_lora():
    lora = lora_cost(4096, 4096, 8)
    assert (lora.full_parameters, lora.parameters) == (16_777_216, 65_536)
    assert repr(lora) == "LoraCost(65,536 of 16,777,216 parameters = 0.39%, extra forward 131.1 kFLOP)"


def test_golden_bytes():
    assert score_bytes(1, 32, 4096) == 2**30
    assert score_bytes(1, 32, 8192) == 4 * 2**30
    assert tensor_bytes((8, 2048, 4096), "bfloat16") == 134_217_728 == 128 * 2**20
    assert tensor_bytes((), "float32") == 4


@pytest.mark.parametrize("bad", [-1, 2.0, True, "3"])
def test_sizes_must_be_whole_numbers(bad):
    with pytest.raises(ValueError, match="N must be a non-negative integer"):
        gemm_cost(2, bad, 3)
    with pytest.raises(ValueError, match="axis 1"):
        tensor_bytes((2, bad), "float32")


# --- training memory


def adamw_state(parameters, dtype):
    """Tensors that mixed-precision AdamW really holds, made by torch."""
    weight = torch.zeros(parameters, dtype=dtype)
    master = torch.nn.Parameter(weight.float())
    optimizer = torch.optim.AdamW([master])
    master.grad = torch.zeros_like(master)
    optimizer.step()
    state = optimizer.state[master]
    return weight, torch.zeros_like(weight), master.data, state["exp_avg"], state["exp_avg_sq"]


def test_mixed_precision_adamw_takes_16_bytes_a_parameter():
    weight, grad, master, m, v = adamw_state(1000, torch.bfloat16)
    memory = training_memory(1000)
    assert memory.parameters == held_bytes(weight)
    assert memory.gradients == held_bytes(grad)
    assert memory.master_weights == held_bytes(master)
    assert memory.optimizer == held_bytes(m, v)
    assert memory.total == held_bytes(weight, grad, master, m, v) == 16 * 1000


def test_full_precision_needs_no_master_weights():
    assert training_memory(10, dtype="float32").parts() == {
        "parameters": 40,
        "gradients": 40,
        "optimizer": 80,
    }
    assert training_memory(10, dtype="float32", optimizer="momentum").total == 120
    assert training_memory(10, dtype="float32", optimizer="sgd").total == 80


def test_the_other_parts_are_added_and_fragmentation_leaves_the_context_alone():
    memory = training_memory(100, activations=400, workspace=50, communication=50, context=1000, fragmentation=0.1)
    assert memory.fragmentation == 210
    assert memory.total == 1600 + 400 + 50 + 50 + 1000 + 210
    assert sum(memory.parts().values()) == memory.total


@pytest.mark.parametrize(("stage", "sharded"), [(0, 0), (1, 12), (2, 14), (3, 16)])
def test_zero_shards_over_the_ranks(stage, sharded):
    memory = training_memory(1001, ranks=4, zero_stage=stage)
    whole, share = 16 - sharded, -(-1001 // 4)
    assert memory.total == whole * 1001 + sharded * share


def test_training_memory_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="unknown optimizer 'lion'"):
        training_memory(1, optimizer="lion")
    with pytest.raises(ValueError, match="zero_stage"):
        training_memory(1, zero_stage=4)


# --- roofline


TOY = Device("toy", {"float32": 100.0}, 10.0, "this test")


def test_roofline_below_on_and_above_the_ridge():
    assert TOY.ridge() == 10.0
    low, on, high = (roofline(Cost(flops, 10), TOY) for flops in (50, 100, 1000))
    assert (low.bound, low.attainable, low.seconds) == ("memory", 50.0, 1.0)
    assert (on.bound, on.attainable) == ("compute", 100.0)
    assert (high.bound, high.attainable, high.seconds) == ("compute", 100.0, 10.0)


@settings(deadline=None)
@given(flops=st.integers(1, 10**15), moved=st.integers(1, 10**12), name=st.sampled_from(sorted(DEVICES)))
def test_the_least_time_is_flops_over_attainable(flops, moved, name):
    line = roofline(Cost(flops, moved), DEVICES[name])
    assert math.isclose(line.seconds, flops / line.attainable, rel_tol=1e-12)
    assert (line.bound == "compute") == (line.attainable == DEVICES[name].peak())


def test_devices_name_their_source_and_refuse_an_unstated_peak():
    for device in DEVICES.values():
        assert "NVIDIA" in device.source
        assert device.peak("fp16") > device.peak("float32")
    with pytest.raises(ValueError, match="states no peak for bfloat16"):
        DEVICES["V100"].peak("bf16")


def test_measure_device_divides_work_by_the_best_time():
    ticks = iter([0, 9, 9, 12, 12, 14, 0, 9, 9, 10, 10, 15])  # warm-up, then 3 and 2; warm-up, then 1 and 5
    device = measure_device(n=8, copy_bytes=4096, repeats=2, timer=lambda: next(ticks))
    assert device.peak() == 2 * 8**3 / 2
    assert device.bandwidth == 2 * 4096 / 1


def test_measure_device_on_this_machine():
    device = measure_device(n=128, copy_bytes=2**20, repeats=2)
    assert device.peak("float32") > 1e6
    assert device.bandwidth > 1e6
    assert "this machine" in repr(device)


# --- tiles


def test_occupancy_counts_by_hand_on_sm_90():
    # 256 threads = 8 warps; 112 registers x 32 = 3584 a warp; 16384 // 3584 = 4 warps a quarter, 16 in all
    one = occupancy(256, 112, 8 * 1024)
    assert (one.blocks, one.occupancy, one.limited_by) == (2, 0.25, "registers")
    # 1024 threads with 32 registers: 2 blocks fill the 2048 threads
    assert occupancy(1024, 32, 0).occupancy == 1.0
    # 100 KiB + 1 KiB of reserve: two fit into 228 KiB
    assert occupancy(128, 32, 100 * 1024).limited_by == "shared memory"
    assert occupancy(128, 32, 100 * 1024).blocks == 2
    # 32 threads: 32 blocks are the limit, half of the 64 warps
    assert (occupancy(32, 32, 0).limited_by, occupancy(32, 32, 0).occupancy) == ("blocks", 0.5)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "name"),
    [
        (1025, 32, 0, "threads per block"),
        (32, 256, 0, "registers per thread"),
        (32, 32, 227 * 1024 + 1, "shared memory per block"),
    ],
)
def test_a_block_beyond_its_own_limit_does_not_run(threads, registers, shared, name):
    assert (
        occupancy(threads, registers, shared).blocks,
        occupancy(threads, registers, shared).limited_by,
    ) == (0, name)
    assert occupancy(threads - 1 if "threads" in name else threads, 255 if "reg" in name else 32, 0).blocks > 0


@settings(deadline=None)
@given(threads=st.integers(1, 1024), registers=st.integers(1, 255), shared=st.integers(0, 227 * 1024))
def test_resident_blocks_fit_and_one_more_would_not(threads, registers, shared):
    limits = SM_LIMITS["sm_90"]
    result = occupancy(threads, registers, shared)
    warps = -(-threads // 32)

    def fits(blocks):
        used = -(-registers * 32 // 256) * 256
        return (
            blocks <= limits.blocks_per_sm
            and blocks * warps <= 64
            and -(-blocks * warps // 4) * used <= 65536 // 4
            and blocks * (-(-(shared + 1024) // 128) * 128) <= limits.shared_per_sm
        )

    assert fits(result.blocks)
    assert not fits(result.blocks + 1)
    assert result.occupancy == result.blocks * warps / 64


def test_tile_resources():
    tile = tile_resources((128, 128, 8), (8, 8))
    assert (tile.threads, tile.registers, tile.shared) == (256, 8 * 8 + 8 + 8 + 32, 2 * 128 * 8 * 4)
    assert tile.intensity == 32.0
    assert tile_resources((128, 128, 8), (8, 8), stages=2).shared == 2 * tile.shared
    with pytest.raises(ValueError, match="must divide the tile"):
        tile_resources((128, 128, 8), (3, 8))


@settings(deadline=None)
@given(T_M=SIZE, T_N=SIZE, T_K=SIZE)
def test_tile_intensity_from_one_step_of_the_reduced_axis(T_M, T_N, T_K):
    flops = 2 * T_M * T_N * T_K
    loaded = (np.zeros((T_M, T_K), np.float16).nbytes) + np.zeros((T_K, T_N), np.float16).nbytes
    assert math.isclose(tile_resources((T_M, T_N, T_K), dtype="float16").intensity, flops / loaded)

"""The lesson of chapter 10: flash attention by one block, right at any sizes in any order, counted by formula."""

import inspect
import math

import numpy as np
import pytest
from numpy import float32

from labsupport.cuda import triton_ops
from labsupport.cuda.kernels import lessons
from labsupport.cuda.kernels.lessons import LOWEST, MASKED, edited
from labsupport.cuda.simt import DataRaceError, UninitializedError, cuda, launch
from labsupport.exercises import get
from labsupport.exercises.ai_infra_examples import kernels
from labsupport.grading.judge import judge
from labsupport.ops.attention import attention, flash_attention, traffic

SIZES = [(64, 64), (16, 24), (11, 13), (5, 12), (12, 5), (17, 3), (9, 9), (1, 1), (1, 20), (20, 1)]
SIDE, WIDE = lessons.QUERIES, lessons.WIDE
RECORD = get("kernel-flash-block")


def blocks(n, size=8):
    return -(-n // size)


def run(S_q, S_k, causal=False, kernel=lessons.flash_block, seed=None, scale=1.0):
    rng = np.random.default_rng(S_q * 100 + S_k)
    Q, K, V = (scale * rng.normal(size=(S, WIDE)).astype(np.float32) for S in (S_q, S_k, S_k))
    O = np.full_like(Q, np.nan)
    report = launch(kernel, blocks(S_q), (WIDE, SIDE), Q, K, V, O, int(causal), seed=seed)
    return report, O, attention(*(X.astype(float) for X in (Q, K, V)), causal)


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_it_is_attention(size, causal, seed):
    report, O, due = run(*size, causal, seed=seed)
    np.testing.assert_allclose(O, due, rtol=0, atol=2e-6)
    assert report.float64_lines == report.float64_arrays == ()


def test_large_scores_do_not_overflow():
    _, O, due = run(9, 20, scale=12.0)  # scores of some hundreds
    assert np.isfinite(O).all()
    np.testing.assert_allclose(O, due, rtol=0, atol=1e-3)


@pytest.mark.parametrize("size", [(64, 64), (16, 24), (8, 40)])
def test_what_a_launch_costs(size):
    S_q, S_k = size
    report, _, _ = run(*size)
    tiles = blocks(S_q) * blocks(S_k)
    moved = traffic(S_q, S_k, WIDE, block=SIDE)
    assert report.total("accesses", "global", "load") == moved.loads
    assert report.total("accesses", "global", "store") == moved.stores == S_q * WIDE
    for array, kind in (("Q", "load"), ("K", "load"), ("V", "load"), ("O", "store")):
        sectors, requests = (report.total(name, "global", kind, array) for name in ("sectors", "requests"))
        assert sectors == 4 * requests
    assert report.barriers == 2 * tiles
    assert report.warp_operations == tiles * 2 * (3 + WIDE)  # two warps; three shuffles for m, one a weight
    assert report.shared_bytes == 4 * (SIDE * WIDE + WIDE * (WIDE + 1) + WIDE * WIDE) == 800
    assert report.total("accesses", "shared", "load") == tiles * SIDE * WIDE * 3 * WIDE


def test_the_padded_column_takes_one_pass_and_the_plain_one_two():
    padded, _, _ = run(8, 8)
    plain, _, _ = run(8, 8, kernel=edited(lessons.flash_block, ("(WIDE, PADDED)", "(WIDE, WIDE)")))
    for report, passes in ((padded, 1), (plain, 2)):
        waves, requests = (report.total(name, "shared", "load", "sK") for name in ("wavefronts", "requests"))
        assert waves == passes * requests > 0


@pytest.mark.parametrize(("S_q", "S_k"), [(64, 64), (16, 24), (10, 10), (4, 11), (17, 3)])
def test_tiles_in_the_future_are_not_loaded(S_q, S_k):
    causal, _, _ = run(S_q, S_k, True)
    assert causal.barriers == 2 * kernels.tiles(S_q, S_k, SIDE, WIDE, True)
    full, _, _ = run(S_q, S_k)
    assert full.barriers == 2 * kernels.tiles(S_q, S_k, SIDE, WIDE, False) == 2 * blocks(S_q) * blocks(S_k)
    if S_q == S_k:
        N = blocks(S_q)
        assert causal.barriers == N * (N + 1)


def test_every_skipped_tile_is_masked_whole_and_no_other():
    for S_q, S_k, side in ((12, 12, 4), (10, 13, 4), (13, 10, 4), (7, 7, 3)):
        allowed = np.tri(S_q, S_k, S_k - S_q, dtype=bool)
        held = sum(
            bool(allowed[i : i + side, j : j + side].any()) for i in range(0, S_q, side) for j in range(0, S_k, side)
        )
        assert kernels.tiles(S_q, S_k, side, side, True) == held


def test_each_barrier_is_needed_and_the_second_shows_with_two_tiles():
    first = edited(lessons.flash_block, ("        cuda.syncthreads()\n        s, j", "        s, j"))
    second = edited(lessons.flash_block, ("        cuda.syncthreads()\n    if i", "    if i"))
    with pytest.raises(DataRaceError, match="shared"):
        run(8, 8, kernel=first)
    run(8, 8, kernel=second)
    with pytest.raises(DataRaceError) as race:
        run(8, 16, kernel=second)
    lines = inspect.getsource(second).splitlines()
    assert "sK[r, x] = K[j0 + r, x]" in lines[race.value.line - 1]


def test_a_row_without_a_key_is_zero_and_its_neighbours_show_why():
    nothing = np.arange(12) < 7
    for kernel, empty in (
        (lessons.flash_block, lambda row: (row == 0).all()),
        (
            edited(lessons.flash_block, ("A / l if l > float32(0.0) else float32(0.0)", "A / l")),
            lambda row: np.isnan(row).all(),
        ),
        (edited(lessons.flash_block, ("MASKED", "LOWEST")), lambda row: np.isfinite(row).all() and (row != 0).any()),
    ):
        _, O, due = run(12, 5, True, kernel)
        assert all(empty(row) for row in O[nothing])
        np.testing.assert_allclose(O[~nothing], due[~nothing], rtol=0, atol=2e-6)


def test_the_empty_state_stays_empty_for_one_choice_only():
    """The options of the question: weight and factor of a masked key that meets an empty state."""
    with np.errstate(invalid="ignore"):
        for start, score, weight, factor in (
            (MASKED, MASKED, np.nan, np.nan), (LOWEST, LOWEST, 1, 1), (LOWEST, MASKED, 0, 1), (float32(0), MASKED, 0, 1)
        ):  # fmt: skip
            new = max(start, score)
            np.testing.assert_equal(np.exp(score - new), weight)
            np.testing.assert_equal(np.exp(start - new), factor)
    assert np.exp(float32(-200) - max(float32(0), float32(-200))) == 0


def test_a_factor_left_out_is_wrong_unless_the_largest_score_comes_first():
    rng = np.random.default_rng(3)
    q, k, v = rng.standard_normal((3, 16, WIDE))
    order = np.argsort(-(k @ q[0]))
    for edit in ("A * old", "l * old"):
        careless = edited(lessons.flash_block, (edit, edit[0]))
        for keys, values, right in ((k, v, False), (k[order], v[order], True), (k[order[::-1]], v[order[::-1]], False)):
            O = np.zeros((1, WIDE), np.float32)
            arrays = [X.astype(np.float32) for X in (q[:1], keys, values)]
            launch(careless, 1, (WIDE, SIDE), *arrays, O, 0)
            assert np.allclose(O, attention(q[:1], k, v), atol=1e-5) == right


def test_the_three_kernels_beside_it_move_what_the_text_says():
    n, X = 64, np.ones((64, 8), np.float32)
    Z, P = np.zeros((2, n, n), np.float32)
    each = [
        launch(kernel, grid, block, *arrays).total("accesses", "global")
        for kernel, grid, block, arrays in (
            (lessons.shared_tile, (8, 8), (8, 8), (X, X.T.copy(), Z)),
            (lessons.online_softmax, n, 64, (Z, P)),
            (lessons.shared_tile, (1, 8), (8, 8), (P, X, X.copy())),
        )
    ]
    assert each == [2 * n * n * 8 // 8 + n * n, 3 * n * n, 2 * n * n * 8 // 8 + n * 8] == [12_288, 12_288, 8_704]
    np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-5)


def test_the_tiles_of_the_triton_kernel_are_those_of_the_text():
    assert triton_ops.flash_tile(128, "half")[:3] == (128, 64, 8)


# -- the exercise ---------------------------------------------------------------------------


def one_thread_does_it_all(Q, K, V, O, causal):
    h, keys = cuda.blockIdx.y, K.shape[1]
    g, ahead = h // (Q.shape[0] // K.shape[0]), keys - Q.shape[1]
    q = cuda.local.array((8, 8), float32)
    A = cuda.local.array((8, 8), float32)
    m = cuda.local.array(8, float32)
    l = cuda.local.array(8, float32)
    key = cuda.local.array(8, float32)
    value = cuda.local.array(8, float32)
    if cuda.threadIdx.x + cuda.threadIdx.y == 0:
        i0 = cuda.blockIdx.x * 8
        rows = min(8, Q.shape[1] - i0)
        for y in range(rows):
            m[y], l[y] = LOWEST, float32(0.0)
            for d in range(8):
                q[y, d], A[y, d] = Q[h, i0 + y, d] / math.sqrt(float32(8)), float32(0.0)
        for j in range(min(keys, i0 + 8 + ahead) if causal else keys):
            for d in range(8):
                key[d], value[d] = K[g, j, d], V[g, j, d]
            for y in range(rows):
                if not causal or j <= i0 + y + ahead:
                    s = float32(0.0)
                    for d in range(8):
                        s += q[y, d] * key[d]
                    new = max(m[y], s)
                    old, p = math.exp(m[y] - new), math.exp(s - new)
                    m[y], l[y] = new, l[y] * old + p
                    for d in range(8):
                        A[y, d] = A[y, d] * old + p * value[d]
        for y in range(rows):
            for d in range(8):
                O[h, i0 + y, d] = A[y, d] / l[y] if l[y] > float32(0.0) else float32(0.0)


BARRIER_A_KEY = ("            A += w * sV[r, x]\n", "            A += w * sV[r, x]\n            cuda.syncthreads()\n")
REFUSED = [
    (one_thread_does_it_all, "do not share the work"),
    (edited(kernels.flash_heads, BARRIER_A_KEY), "barriers, where"),
    (edited(kernels.flash_heads, ("Q[h, i, x]", "Q[0, i, x]")), "is wrong"),
    (edited(kernels.flash_heads, ("V[g, j0 + y, x]", "V[0, j0 + y, x]")), "is wrong"),
    (edited(kernels.flash_heads, ("range(3)", "range(2)")), "is wrong"),
    (edited(kernels.flash_heads, ("O[h, i, x] = A", "O[h, i, x] += A")), "is wrong"),
    (edited(kernels.flash_heads, ("LOWEST, float32", "float32(-30.0), float32")), "is wrong"),
    (edited(kernels.flash_heads, ("range(0, end, 8)", "range(0, keys + 8, 8)")), "elements of K"),
]


@pytest.mark.parametrize(("answer", "message"), REFUSED)
def test_a_kernel_that_no_mistake_knows_is_refused(answer, message):
    verdict = judge(RECORD, answer)
    assert verdict.state == "fail"
    assert message in verdict.message


UNUSUAL = [
    edited(kernels.flash_heads, ("(8, 9)", "(8, 8)")),
    edited(kernels.flash_heads, ("m, l, A = LOWEST", "m, l, A = MASKED")),  # the last look at l hides the NaN here
    edited(kernels.flash_heads, ("range(0, end, 8)", "range((end - 1) // 8 * 8, -8, -8)")),  # the last tile first
    edited(kernels.flash_heads, ("Q[h, i, x] / root", "Q[h, i, x] * (float32(1.0) / root)")),
]


@pytest.mark.parametrize("answer", UNUSUAL)
def test_another_way_to_the_same_end_passes(answer):
    verdict = judge(RECORD, answer)
    assert verdict.state == "pass", str(verdict)


def test_the_truth_of_the_exercise_is_the_tiled_algorithm_too():
    for case in RECORD.cases(np.random.default_rng(5)):
        Q, K, V = (case.arguments[name].astype(float) for name in "QKV")
        K, V = (X.repeat(len(Q) // len(K), axis=0) for X in (K, V))
        tiled = flash_attention(Q, K, V, (SIDE, WIDE), bool(case.arguments["causal"]))
        np.testing.assert_allclose(tiled, case.truth["O"], rtol=0, atol=1e-10)


def test_an_uninitialised_tail_is_found():
    wrong = next(m for m in RECORD.mistakes if m.name == "tail-not-zeroed").answer
    cases = RECORD.cases(np.random.default_rng(0))
    case = next(case for case in cases if case.arguments["K"].shape[1] < WIDE)  # no tile is full
    with pytest.raises(UninitializedError):
        launch(
            wrong,
            case.grid,
            case.block,
            *(np.copy(v) if isinstance(v, np.ndarray) else v for v in case.arguments.values()),
        )


@pytest.mark.parametrize(
    ("mistake", "edit"),
    [
        ("loop-cut-without-a-mask", (" if causal else keys", "")),
        ("loop-cut-too-early", ("(cuda.blockIdx.x + 1) * 8 + ahead)", "(cuda.blockIdx.x + 1) * 8)")),
        ("divided-by-the-heads-of-keys", ("h // (Q.shape[0] // K.shape[0])", "h // K.shape[0]")),
        (None, ("h // (Q.shape[0] // K.shape[0])", "h // 2")),
        ("maximum-from-zero", ("m, l, A = LOWEST", "m, l, A = float32(-100)")),
    ],
)
def test_a_kernel_that_is_right_at_some_sizes_alone_fails(mistake, edit):
    verdict = judge(RECORD, edited(kernels.flash_heads, edit), 0)
    assert (verdict.state, verdict.mistake) == ("fail", mistake)


TWO_TILES = (
    "    sK = cuda.shared.array((8, 9), float32)\n    sV = cuda.shared.array((8, 8), float32)\n",
    "    K0, K1 = cuda.shared.array((8, 9), float32), cuda.shared.array((8, 9), float32)\n"
    "    V0, V1 = cuda.shared.array((8, 8), float32), cuda.shared.array((8, 8), float32)\n",
)
IN_TURN = (
    "        sK[y, x] =",
    "        sK = K0 if j0 // 8 % 2 == 0 else K1\n        sV = V0 if j0 // 8 % 2 == 0 else V1\n        sK[y, x] =",
)


def test_two_tiles_in_turn_need_one_barrier_a_tile():
    in_turn = edited(kernels.flash_heads, TWO_TILES, IN_TURN, ("        cuda.syncthreads()\n    if i", "    if i"))
    assert judge(RECORD, in_turn, 0).state == "pass"
    no_barrier = edited(in_turn, ("        cuda.syncthreads()\n        s, j", "        s, j"))
    assert judge(RECORD, no_barrier, 0).mistake == "first-barrier-missing"

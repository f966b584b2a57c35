"""Exercises of chapter 3: counting FLOPs, bytes and loads of a product, and writing it in tiles.

Expected values are computed by `labsupport.cost` and `labsupport.ops.gemm`, never typed. No message may hold one.
"""

from __future__ import annotations

import numpy as np

from labsupport.cost import DEVICES, gemm_cost, occupancy, roofline, tensor_bytes, tile_resources
from labsupport.cuda.exercise import Counter, Kernel, KernelCase, sectors, total, wavefronts
from labsupport.cuda.kernels import ladder, lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.grading import Case, Choice, Formula, Function, Mistake, Number, Option, Several, Tolerance, Written
from labsupport.ops.gemm import matmul_tiled, padding_waste, traffic

N = 4096
SQUARE = gemm_cost(N, N, N, "float16")
ELEMENTS = N * N

# --- in the chapter ---------------------------------------------------------------------------------------

block_c12 = Choice(
    id="block-c12",
    chapter=3,
    section="3.1",
    title="The upper right block",
    place="chapter",
    checklist=(6,),
    prompt="$A$ and $B$ are cut into $2\\times2$ blocks. Which products of blocks make $C_{12}$?",
    hints=("Which row of blocks of $A$ lies beside $C_{12}$, which column of blocks of $B$ above it?",),
    options={
        "a": Option("$A_{12} B_{12}$", "That multiplies blocks place by place, which is the elementwise product."),
        "b": Option(
            "$A_{11} B_{12} + A_{12} B_{22}$",
            "The first row of blocks of $A$ meets the second column of blocks of $B$; the inner index runs over both.",
            True,
        ),
        "c": Option(
            "$A_{11} B_{21} + A_{12} B_{22}$",
            "The second index of $A$ and the first of $B$ must agree in each product; here they do not.",
        ),
        "d": Option("$A_{11} B_{11} + A_{12} B_{21}$", "Those are the blocks of the first column of $B$."),
    },
)

tile_loads = Number(
    id="tile-loads",
    chapter=3,
    section="3.2",
    title="Loads with tiles of 32",
    place="chapter",
    checklist=(6, 7),
    prompt="How many elements of $A$ and $B$ does a tiled product load in all, for $M=N=K=1024$ and $T=32$?",
    hints=("How many columns of tiles does $C$ have? Each reads all of $A$ once.", "The tile divides the size here."),
    expected=traffic(1024, 1024, 1024, 32).loads,
    unit="element",
    default_unit="element",
    exact=True,
    mistakes=(
        Mistake(
            name="naive",
            answer=traffic(1024, 1024, 1024, 1).loads,
            message="That is the naive count: tiles reuse what they load.",
        ),
        Mistake(
            name="one-matrix",
            answer=traffic(1024, 1024, 1024, 32).loads_a,
            message="You counted one of the two matrices: tiles of $A$ and of $B$ are loaded.",
        ),
        Mistake(
            name="once-each",
            answer=2 * 1024**2,
            message="That loads every element once, as if the gain were the tile's area. Each column of tiles reads "
            "all of $A$ again, and each row of tiles all of $B$.",
        ),
    ),
)

gemv_bound = Choice(
    id="gemv-bound",
    chapter=3,
    section="3.3",
    title="One token",
    place="chapter",
    checklist=(7,),
    prompt="One row times a weight of $4096\\times4096$ in float16: what is the limit on a device with a ridge of 295 "
    "FLOP/B?",
    hints=("How many FLOPs are done with each weight?", "How many bytes does a weight have?"),
    options={
        "a": Option("arithmetic", "Each weight gives two FLOPs for two bytes, which is far below the ridge."),
        "b": Option(
            "memory bandwidth",
            "About one FLOP for each byte: the weights cannot arrive as fast as they could be multiplied.",
            True,
        ),
        "c": Option(
            "neither, the product is too small to matter", "It moves 32 MiB, and decoding repeats it for every layer."
        ),
    },
)

square_float32 = Formula(
    id="square-float32",
    chapter=3,
    section="3.3",
    title="Intensity of a square float32 product",
    place="chapter",
    checklist=(7,),
    prompt="Give the ideal arithmetic intensity of an `n` by `n` by `n` float32 product, in FLOP/B, as `lambda n: "
    "...`.",
    hints=("FLOPs: $2n^3$.", "Three matrices of $n^2$ elements, each of the size of a float32."),
    oracle=lambda n: gemm_cost(int(n), int(n), int(n), "float32").intensity,
    sample=lambda rng: (int(rng.integers(1, 5000)),),
    mistakes=(
        Mistake(name="float16", answer=lambda n: n / 3, message="That is for two bytes an element; float32 has more."),
        Mistake(name="no-two", answer=lambda n: n / 12, message="A multiply-add is two FLOPs; you counted it as one."),
        Mistake(
            name="inputs-only", answer=lambda n: n / 4, message="You left out the output, which is written once too."
        ),
        Mistake(
            name="elements", answer=lambda n: 2 * n / 3, message="You divided by elements. Intensity is FLOPs per byte."
        ),
    ),
)

blocks_fit = Number(
    id="blocks-fit",
    chapter=3,
    section="3.4",
    title="Blocks on one SM",
    place="chapter",
    checklist=(6,),
    prompt="On sm_90, how many blocks with 256 threads, 128 registers a thread and 64 KiB of shared memory fit on one "
    "SM?",
    hints=(
        "Ask each resource alone: threads, registers, shared memory.",
        "The smallest of the three answers is the answer.",
    ),
    expected=occupancy(256, 128, 64 * 1024).blocks,
    exact=True,
    mistakes=(
        Mistake(
            name="threads-only",
            answer=occupancy(256, 128, 64 * 1024).blocks_by["threads"],
            message="That many fit by threads. Ask the registers and the shared memory too.",
        ),
        Mistake(
            name="shared-only",
            answer=occupancy(256, 128, 64 * 1024).blocks_by["shared memory"],
            message="That many fit by shared memory. Count the registers of a whole block too.",
        ),
    ),
)

tail_waste = Number(
    id="tail-waste",
    chapter=3,
    section="3.5",
    title="One row too many",
    place="chapter",
    checklist=(6,),
    prompt="$M=N=129$, tiles of 128, $K$ divided evenly: which part of the padded arithmetic is wasted, in percent?",
    hints=("What are $M$ and $N$ rounded up?", "Useful are $129^2$ of the padded outputs."),
    expected=100 * padding_waste(129, 129, 4096, (128, 128, 32)),
    unit="%",
    default_unit="%",
    rtol=0.01,
    mistakes=(
        Mistake(
            name="one-axis",
            answer=100 * (1 - 129 / 256),
            message="You padded one axis. Both $M$ and $N$ are rounded up.",
        ),
        Mistake(
            name="useful",
            answer=100 * (129 / 256) ** 2,
            message="That is the useful part; the wasted one is asked.",
        ),
    ),
)

bits_or_bug = Choice(
    id="bits-or-bug",
    chapter=3,
    section="3.6",
    title="Rounding or bug",
    place="chapter",
    checklist=(17,),
    prompt="Two float32 kernels, one with tiles of 16 and one with tiles of 64. Which finding proves that one has a "
    "bug?",
    hints=("What may another order of additions change, and by how much?",),
    options={
        "a": Option("most entries differ in their last bits", "Another order of additions rounds differently."),
        "b": Option(
            "an entry near zero differs by 1 % of itself",
            "Where large terms cancel, rounding of the terms can be as large as what is left.",
        ),
        "c": Option(
            "the error against float64 exceeds $\\gamma_K |A||B|$",
            "That bound holds for every order of additions, so no rounding explains the excess.",
            True,
        ),
        "d": Option("the error grows when $K$ grows", "So it does in every correct kernel."),
    },
)

rung_traffic = Choice(
    id="rung-traffic",
    chapter=3,
    section="3.7",
    title="What a register tile saves",
    place="chapter",
    checklist=(6,),
    prompt="A block keeps its tile of 128 in shared memory, but each thread now owns $8\\times8$ outputs instead of "
    "one. Which count falls?",
    hints=("Which of the two tile sizes stands in the formula of which traffic?",),
    options={
        "a": Option("loads from global memory", "Those depend on the block's tile, which stays the same."),
        "b": Option(
            "loads from shared memory",
            "Each operand that a thread loads is now used along a side of its own small tile.",
            True,
        ),
        "c": Option("multiply-adds", "Every output still needs all of $K$."),
        "d": Option("stores of $C$", "Each output is still written once."),
    },
)

# --- in the exercise notebook -----------------------------------------------------------------------------

gemm_flops = Number(
    id="gemm-flops",
    chapter=3,
    section="3.2",
    title="FLOPs of a square product",
    checklist=(7,),
    prompt="How many FLOPs does a product with $M=N=K=4096$ take?",
    contract="A number with a unit, such as `(123, 'FLOP')` or `'1.23 GFLOP'`, to one part in a thousand.",
    hints=("How many outputs are there, and how many multiply-adds does each take?", "A multiply-add is two FLOPs."),
    expected=SQUARE.flops,
    unit="FLOP",
    default_unit="FLOP",
    mistakes=(
        Mistake(
            name="no-two",
            answer=SQUARE.flops / 2,
            message="You counted multiply-adds. By the book's convention each is two FLOPs.",
        ),
        Mistake(
            name="outputs", answer=ELEMENTS, message="That is the number of outputs. Each of them sums over all of $K$."
        ),
        Mistake(
            name="per-output-once",
            answer=2 * ELEMENTS,
            message="You gave every output one multiply-add. It takes $K$ of them.",
        ),
    ),
)

gemm_bytes = Number(
    id="gemm-bytes",
    chapter=3,
    section="3.3",
    title="Least traffic of a square product",
    checklist=(7,),
    prompt="How many bytes does a float16 product with $M=N=K=4096$ move at least?",
    contract="Each matrix is moved once. A number with a unit, such as `'12 MiB'`; a bare number counts bytes.",
    hints=("Which matrices are read, which is written?", "A float16 element has two bytes."),
    expected=int(SQUARE.bytes),
    unit="B",
    default_unit="B",
    mistakes=(
        Mistake(
            name="one-matrix",
            answer=f"{2 * ELEMENTS} B",
            message="Those are the bytes of one matrix only. Two are read and one is written.",
        ),
        Mistake(
            name="inputs-only",
            answer=f"{4 * ELEMENTS} B",
            message="You counted the two inputs. The output is written once as well.",
        ),
        Mistake(
            name="elements",
            answer=f"{3 * ELEMENTS} B",
            message="You counted elements. Each float16 element has more than one byte.",
        ),
        Mistake(
            name="float32",
            answer=f"{12 * ELEMENTS} B",
            message="Those are the bytes of float32. The product is in float16.",
        ),
        Mistake(
            name="gb-for-gib",
            answer=f"{int(SQUARE.bytes) / 2**20:.4f} MB",
            message="The digits are those of MiB, the unit says MB: powers of 1024 and of 1000 are mixed up.",
        ),
    ),
)

gemm_intensity = Formula(
    id="gemm-intensity",
    chapter=3,
    section="3.3",
    title="Arithmetic intensity of any product",
    checklist=(7,),
    level="medium",
    prompt="Write the ideal arithmetic intensity, in FLOP/B, of $(M, K)$ times $(K, N)$ as `intensity(M, N, K, "
    "itemsize)`.",
    contract="Each matrix is moved once; `itemsize` is the bytes of one element.",
    hints=("FLOPs over bytes.", "Three matrices: $MK$, $KN$ and $MN$ elements."),
    oracle=lambda M, N, K, itemsize: 2 * M * N * K / (itemsize * (M * K + K * N + M * N)),
    sample=lambda rng: (*(int(x) for x in rng.integers(1, 3000, 3)), int(rng.choice([1, 2, 4, 8]))),
    mistakes=(
        Mistake(
            name="no-two",
            answer=lambda M, N, K, itemsize: M * N * K / (itemsize * (M * K + K * N + M * N)),
            message="A multiply-add is two FLOPs; you counted it as one.",
        ),
        Mistake(
            name="inputs-only",
            answer=lambda M, N, K, itemsize: 2 * M * N * K / (itemsize * (M * K + K * N)),
            message="You left the output out of the traffic.",
        ),
        Mistake(
            name="no-itemsize",
            answer=lambda M, N, K, itemsize: 2 * M * N * K / (M * K + K * N + M * N),
            message="You divided by elements. Intensity is FLOPs per byte.",
        ),
        Mistake(
            name="square-only",
            answer=lambda M, N, K, itemsize: 2 * M / (3 * itemsize),
            message="That holds for a square product only; $M$, $N$ and $K$ differ here.",
        ),
    ),
)


def _loads_cases(rng: np.random.Generator) -> list[Case]:
    fixed = [(64, 64, 64, 32), (30, 20, 25, 8), (5, 7, 3, 16), (1, 100, 40, 8), (100, 1, 40, 8), (17, 17, 17, 1)]
    drawn = [tuple(int(x) for x in rng.integers(1, 200, 4)) for _ in range(4)]
    return [Case(args=sizes, label="M, N, K, T = {}, {}, {}, {}".format(*sizes)) for sizes in [*fixed, *drawn]]


tile_traffic = Function(
    id="tile-traffic",
    chapter=3,
    section="3.2",
    title="Loads of a tiled product, exactly",
    checklist=(6, 7),
    level="medium",
    prompt="Write `loads(M, N, K, T)`: the elements of $A$ and $B$ that a product with $T\\times T$ tiles loads, "
    "exact at ragged edges.",
    contract="All arguments are positive integers, also with `T` larger than a size. Tiles at an edge are cut, not "
    "padded. Returns an integer.",
    hints=(
        "Each column of tiles of $C$ reads all of $A$ once. How many columns of tiles are there?",
        "Round up: `-(-N // T)`.",
    ),
    oracle=lambda M, N, K, T: traffic(M, N, K, T).loads,
    cases=_loads_cases,
    mistakes=(
        Mistake(
            name="divides",
            answer=lambda M, N, K, T: 2 * M * N * K / T,
            message="$2MNK/T$ holds where $T$ divides $M$ and $N$. A cut tile still makes a whole pass.",
        ),
        Mistake(
            name="floor",
            answer=lambda M, N, K, T: M * K * (N // T) + K * N * (M // T),
            message="You rounded the number of tiles down: the tail tile is dropped.",
        ),
        Mistake(
            name="swapped",
            answer=lambda M, N, K, T: M * K * -(-M // T) + K * N * -(-N // T),
            message="$A$ is read once for each column of tiles of $C$, $B$ once for each row; you have them the other "
            "way round.",
        ),
        Mistake(
            name="padded",
            answer=lambda M, N, K, T: 2 * (-(-M // T) * -(-N // T) * -(-K // T)) * T * T,
            message="You counted whole tiles everywhere. Edge tiles are cut, so they load less.",
        ),
        Mistake(
            name="stores-too",
            answer=lambda M, N, K, T: traffic(M, N, K, T).total,
            message="You counted the stores of $C$ as well; loads are asked.",
        ),
    ),
)


def _product(A: np.ndarray, B: np.ndarray, tile: int, *, ceil: bool = True, add: bool = True) -> np.ndarray:
    """A tiled product with two switches: edge tiles, and accumulation."""
    (M, K), N = A.shape, B.shape[1]
    C = np.zeros((M, N), np.result_type(A, B))

    def starts(size: int) -> range:
        return range(0, size if ceil else size - size % tile, tile)

    for i in starts(M):
        for j in starts(N):
            for k in starts(K):
                part = A[i : i + tile, k : k + tile] @ B[k : k + tile, j : j + tile]
                C[i : i + tile, j : j + tile] = part + (C[i : i + tile, j : j + tile] if add else 0)
    return C


def _k_tail_dropped(A: np.ndarray, B: np.ndarray, tile: int) -> np.ndarray:
    K = A.shape[1] - A.shape[1] % tile
    return _product(A[:, :K], B[:K], tile)


def _narrow(A: np.ndarray, B: np.ndarray, tile: int) -> np.ndarray:
    return matmul_tiled(A, B, tile).astype(np.float32)


def _tiled_cases(rng: np.random.Generator) -> list[Case]:
    def case(M: int, K: int, N: int, tile: int, dtype: str = "float64") -> Case:
        A, B = rng.normal(size=(M, K)).astype(dtype), rng.normal(size=(K, N)).astype(dtype)
        return Case(args=(A, B, tile), label=f"{dtype} ({M}, {K}) @ ({K}, {N}), tile {tile}")

    A, B = rng.normal(size=(6, 9)), rng.normal(size=(9, 5))
    return [
        case(8, 8, 8, 4),
        case(7, 9, 5, 4),
        case(7, 9, 5, 4, "float32"),
        case(3, 2, 4, 16),
        case(1, 10, 1, 3),
        case(5, 4, 12, 4),
        case(6, 6, 6, 1),
        Case(args=(np.asfortranarray(A), B[:, ::-1], 4), label="float64 (6, 9) @ (9, 5), strided, tile 4"),
    ]


tiled_matmul = Function(
    id="tiled-matmul",
    chapter=3,
    section="3.1",
    title="A tiled product for any sizes",
    checklist=(6,),
    level="hard",
    points=3,
    prompt="Write `tiled_matmul(A, B, tile)`: the product of `A` (M, K) and `B` (K, N), computed tile by tile along "
    "all three axes.",
    contract="Any positive M, N, K, also smaller than `tile`; `tile` is a positive integer. float32 or float64, dtype "
    "kept. Multiply tiles with `@`; the inputs are not changed.",
    hints=(
        "Three loops over tile starts: `for i in range(0, M, tile)`, then `j`, then `k`.",
        "Slices may run past the end: NumPy cuts them for you.",
        "`C[i:i+tile, j:j+tile] += A[i:i+tile, k:k+tile] @ B[k:k+tile, j:j+tile]`, with `C` of zeros before the loops.",
    ),
    oracle=matmul_tiled,
    cases=_tiled_cases,
    tolerance=Tolerance(c=4, depth=lambda A, B, tile: A.shape[1]),
    dtype="exact",
    mistakes=(
        Mistake(
            name="tail-dropped",
            answer=lambda A, B, tile: _product(A, B, tile, ceil=False),
            message="The tail tiles are missing: your loops stop at the last whole tile.",
            section="3.5",
        ),
        Mistake(
            name="k-tail-dropped",
            answer=_k_tail_dropped,
            message="Rows and columns are complete, but the last part of $K$, smaller than a tile, is not added.",
            section="3.5",
        ),
        Mistake(
            name="accumulator-reset",
            answer=lambda A, B, tile: _product(A, B, tile, add=False),
            message="Each step along $K$ overwrites the one before. The tile of $C$ must collect all of them.",
        ),
        Mistake(
            name="transposed",
            answer=lambda A, B, tile: matmul_tiled(A, B, tile).T,
            message="Your result is the transpose: rows of $C$ follow the rows of $A$.",
        ),
        Mistake(
            name="dtype-lost",
            answer=_narrow,
            message="You returned float32 whatever came in. Make `C` in the dtype of the inputs.",
        ),
    ),
    accept=(lambda A, B, tile: _product(A, B, tile), lambda A, B, tile: A @ B),
)

DECODE = gemm_cost(1, 8192, 8192, "float16")
H100 = DEVICES["H100"]

roofline_time = Number(
    id="roofline-time",
    chapter=3,
    section="3.3",
    title="The least time of one decode step",
    checklist=(7,),
    level="medium",
    prompt="One row times an $8192\\times8192$ float16 weight, on a device with 989.4 TFLOP/s and 3.35 TB/s: what is "
    "the least time?",
    contract="With a unit, such as `'12 us'`; each matrix moved once; to one percent.",
    hints=(
        "Compute both times, FLOPs over peak and bytes over bandwidth. Which is longer?",
        "The weight is nearly all of the traffic.",
    ),
    expected=roofline(DECODE, H100, "float16").seconds,
    unit="s",
    rtol=0.01,
    mistakes=(
        Mistake(
            name="compute-time",
            answer=f"{DECODE.flops / H100.peak('float16')} s",
            message="That is the time of the arithmetic. The weights arrive more slowly than they are multiplied.",
        ),
        Mistake(
            name="elements",
            answer=f"{DECODE.bytes / 2 / H100.bandwidth} s",
            message="You moved elements. Each has two bytes.",
        ),
    ),
)

attainable = Formula(
    id="roofline-attainable",
    chapter=3,
    section="3.3",
    title="The roofline as a formula",
    checklist=(7,),
    prompt="Write the attainable FLOP/s as `attainable(intensity, peak, bandwidth)`.",
    contract="`intensity` in FLOP/B, `peak` in FLOP/s, `bandwidth` in B/s.",
    hints=("How fast can data of this intensity arrive?", "The lower of two ceilings."),
    oracle=lambda intensity, peak, bandwidth: min(peak, intensity * bandwidth),
    sample=lambda rng: (
        float(10 ** rng.uniform(-1, 4)),
        float(10 ** rng.uniform(12, 15)),
        float(10 ** rng.uniform(11, 12.7)),
    ),
    mistakes=(
        Mistake(
            name="memory-only",
            answer=lambda intensity, peak, bandwidth: intensity * bandwidth,
            message="Above the ridge this exceeds the peak, which nothing does.",
        ),
        Mistake(
            name="peak-only",
            answer=lambda intensity, peak, bandwidth: peak,
            message="Below the ridge the data do not arrive fast enough for the peak.",
        ),
        Mistake(
            name="higher-ceiling",
            answer=lambda intensity, peak, bandwidth: max(peak, intensity * bandwidth),
            message="You took the higher of the two ceilings; both must hold.",
        ),
        Mistake(
            name="divided",
            answer=lambda intensity, peak, bandwidth: min(peak, bandwidth / intensity),
            message="Look at the units: FLOP/B times B/s gives FLOP/s.",
        ),
    ),
)

STAGED = tile_resources((128, 128, 32), (8, 8), "float16", stages=2)

tile_shared = Number(
    id="tile-shared",
    chapter=3,
    section="3.4",
    title="Shared memory of a double-buffered tile",
    checklist=(6,),
    prompt="A float16 kernel with $T_M=T_N=128$ and $T_K=32$ keeps two stages of its tiles in shared memory. How many "
    "bytes is that?",
    contract="With a unit, such as `'12 KiB'` or `(1234, 'B')`.",
    hints=("A stage holds a tile of $A$ and a tile of $B$.", "The tile of $C$ lives in registers."),
    expected=int(STAGED.shared),
    unit="B",
    exact=True,
    mistakes=(
        Mistake(
            name="one-stage",
            answer=f"{int(STAGED.shared) // 2} B",
            message="That is half of it: either one stage or one of the two matrices is missing.",
        ),
        Mistake(
            name="c-tile",
            answer=f"{tensor_bytes((128, 128), 'float16') + int(STAGED.shared):d} B",
            message="The area of the tile of $C$ plays no part: it is collected in registers, not in shared memory.",
        ),
    ),
)

SKEWED = (384, 80, 48 * 1024)
FIT = occupancy(*SKEWED)

occupancy_limit = Several(
    id="occupancy-limit",
    chapter=3,
    section="3.4",
    title="What stops the next block",
    checklist=(6,),
    level="medium",
    prompt="A kernel on sm_90 has 384 threads a block, 80 registers a thread and 48 KiB of shared memory a block.",
    contract="Answer `{'blocks': ..., 'limit': ..., 'occupancy': ...}`: blocks per SM, the key of the resource, and "
    "the occupancy in percent.",
    hints=(
        "A warp takes 80·32 registers; a quarter of the SM has 16,384 of them.",
        "Shared memory: each block takes 1 KB more than it asks for.",
        "Occupancy: resident warps of the 64 that an SM can hold.",
    ),
    parts={
        "blocks": Number(
            prompt="How many blocks fit on one SM?",
            expected=FIT.blocks,
            exact=True,
            mistakes=(
                Mistake(
                    name="threads-only",
                    answer=FIT.blocks_by["threads"],
                    message="That many fit by threads. Registers and shared memory are limits too.",
                ),
                Mistake(
                    name="shared-only",
                    answer=FIT.blocks_by["shared memory"],
                    message="That many fit by shared memory. Registers and threads are limits too.",
                ),
            ),
        ),
        "limit": Choice(
            prompt="Which resource stops the next block?",
            options={
                "threads": Option("threads", "There is room for more threads."),
                "registers": Option("registers", "The quarters of the SM run out of registers first.", True),
                "shared": Option("shared memory", "There is shared memory left for another block."),
            },
        ),
        "occupancy": Number(
            prompt="What is the occupancy, in percent?", expected=100 * FIT.occupancy, unit="%", default_unit="%"
        ),
    },
)


def _padding_sizes(rng: np.random.Generator) -> tuple[int, int, int]:
    """Sizes of any kind; in half of the points the tile divides M."""
    M, N, T = (int(x) for x in rng.integers((1, 1, 2), (400, 400, 150)))
    return (M if rng.random() < 0.5 else T * (1 + M // T), N, T)


padding_formula = Formula(
    id="padding-waste",
    chapter=3,
    section="3.5",
    title="Wasted work as a formula",
    checklist=(6,),
    level="medium",
    prompt="Write `waste(M, N, T)`: the part of the arithmetic, from 0 to 1, that is spent on padding $M$ and $N$ to "
    "multiples of $T$.",
    contract="Positive integers; $K$ is divided evenly and plays no part.",
    hints=("Round up: `-(-M // T) * T`.", "One minus useful over done."),
    oracle=lambda M, N, T: padding_waste(M, N, 1, (T, T, 1)),
    sample=_padding_sizes,
    mistakes=(
        Mistake(
            name="useful",
            answer=lambda M, N, T: 1 - padding_waste(M, N, 1, (T, T, 1)),
            message="That is the useful part; the wasted one is asked.",
        ),
        Mistake(
            name="over-useful",
            answer=lambda M, N, T: (-(-M // T) * T) * (-(-N // T) * T) / (M * N) - 1,
            message="You divided by the useful work. The part is of all the work that is done.",
        ),
        Mistake(
            name="one-axis",
            answer=lambda M, N, T: 1 - M / (-(-M // T) * T),
            message="You padded $M$ only; $N$ is rounded up too.",
        ),
        Mistake(
            name="always-one-more",
            answer=lambda M, N, T: 1 - M * N / ((M // T + 1) * T * (N // T + 1) * T),
            message="You added a tile even where the size is a multiple already. Round up instead.",
        ),
    ),
    points_sampled=40,
)

explain_bits = Written(
    id="explain-bits",
    chapter=3,
    section="3.6",
    title="A colleague's failing test",
    checklist=(17,),
    level="medium",
    prompt="A test compares a new tiled float16 kernel with the old one and demands equal bits; it fails. Explain "
    "what the test should do instead.",
    hints=("What is the reference, what is the scale of the error, how does it grow?",),
    rubric=(
        "says that another order of additions rounds differently, so equal bits are not to be expected",
        "compares with a float64 (or float32) reference instead of with another kernel",
        "measures the error against the sum of magnitudes, not against each entry",
        "lets the tolerance depend on the dtype and on the length of the sum",
        "tests ragged sizes and several lengths, because a bug shows as a jump",
    ),
    model="Another tile is another order of additions and rounds differently, so bits may differ in correct kernels. "
    "Compare both with a float64 reference, allow c·sqrt(K)·u times |A||B|, and test ragged sizes and several K.",
)

# --- kernels --------------------------------------------------------------------------------------------------

F32 = np.float32
EPS32 = float(np.finfo(np.float32).eps)
BARRIER_AFTER_IF = (
    "A barrier inside a condition is not reached by every thread of the block. Let the condition guard the access "
    "alone, and place `cuda.syncthreads()` after it, for all threads."
)
NO_GUARD = (
    "The grid is rounded up to whole blocks, so some threads lie beyond the end. Compare the index with the shape "
    "before every access, with `<`: an index ends one before the shape."
)
WIDE = (
    "A literal such as `0.0` or `1`, or `acc = 0`, makes float64 in a compiled kernel. Write `float32(0.0)` and keep "
    "every operand in float32."
)


def _floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(F32)


def _blocks(n: int, size: int) -> int:
    return -(-n // size)


def _silu_cases(rng: np.random.Generator) -> list[KernelCase]:
    cases = []
    for n, scale in ((128, 1.0), (256, 8.0)):
        x = (scale * _floats(rng, n)).astype(F32)
        wide = x.astype(np.float64)
        truth = wide / (1 + np.exp(-wide))
        cases.append(
            KernelCase(
                arguments={"x": x, "y": np.full(n, -7, F32)},
                grid=n // 32,
                block=32,
                truth={"y": truth},
                allowed=16 * EPS32 * (1 + np.abs(wide)),
            )
        )
    return cases


kernel_map = Kernel(
    id="kernel-map",
    chapter=3,
    section="3.8",
    title="A kernel that maps",
    checklist=(6,),
    prompt="Write a kernel `silu(x, y)` with one thread for each element: `y[i] = x[i] / (1 + exp(-x[i]))`.",
    contract="`x` and `y`: float32, one axis, a multiple of 32 elements. The launch has 32 threads a block and exactly "
    "one thread for each element. Nothing is known of what `y` holds before. Neighbouring threads take neighbouring "
    "elements; all arithmetic is float32.",
    hints=(
        "Which element belongs to thread `cuda.threadIdx.x` of block `cuda.blockIdx.x`?",
        "`cuda.grid(1)` is `blockIdx.x * blockDim.x + threadIdx.x`.",
        "`1.0` is a float64 for the compiler, and `1` makes one too: write `float32(1.0)`.",
    ),
    reference=lessons.silu,
    cases=_silu_cases,
    counters=(
        sectors("load", "x", lambda case: 4),
        sectors("store", "y", lambda case: 4),
    ),
    mistakes=(
        Mistake(
            name="added-to-the-output",
            answer=edited(lessons.silu, ("y[i] = x[i] /", "y[i] += x[i] /")),
            message="The kernel adds to what `y` held before. Nobody promised zeros: assign with `=`.",
        ),
        Mistake(
            name="thread-index-alone",
            answer=edited(lessons.silu, ("cuda.grid(1)", "cuda.threadIdx.x")),
            message="`threadIdx.x` counts within one block, so all blocks work on the same elements. Add the block's "
            "offset.",
        ),
        Mistake(
            name="every-thread-does-everything",
            answer=edited(
                lessons.silu,
                ("i = cuda.grid(1)", "for i in range(x.shape[0]):"),
                ("    y[i] =", "        y[i] ="),
            ),
            message="The body runs once in every thread already. A loop over all elements makes every thread write "
            "all of them.",
        ),
        Mistake(
            name="uncoalesced",
            answer=edited(lessons.silu, ("cuda.grid(1)", "cuda.threadIdx.x * cuda.gridDim.x + cuda.blockIdx.x")),
            message="The lanes of a warp are `gridDim.x` elements apart, so each of their requests touches many "
            "sectors. Lanes that are neighbours take elements that are neighbours.",
        ),
        Mistake(name="float64", answer=edited(lessons.silu, ("float32(1.0)", "1.0")), message=WIDE),
    ),
)


def _guard_cases(rng: np.random.Generator) -> list[KernelCase]:
    cases = []
    for n in (1, 100, 257, 2100):  # the last is longer than any block
        a, b = _floats(rng, n), _floats(rng, n)
        cases.append(
            KernelCase(
                arguments={"a": a, "b": b, "c": np.full(n, -7, F32)},
                grid=1,
                block=1,
                truth={"c": (a + b).astype(np.float64)},
                allowed=0.0,
                label=f"n = {n}",
            )
        )
    return cases


kernel_guard = Kernel(
    id="kernel-guard",
    chapter=3,
    section="3.8",
    title="A guard, and a block that a GPU can start",
    checklist=(6,),
    prompt="Write a kernel `add(a, b, c)` for any length, and choose the number of threads in a block: answer "
    "`(add, threads)`.",
    contract="float32 arrays of one axis and one length, 1 or more. The launch has just enough blocks of `threads` "
    "threads to cover the arrays; nothing is known of what `c` holds before. All warps but the last are to be full.",
    hints=(
        "With 100 elements and blocks of 64 there are 128 threads. What do the last 28 do?",
        "A block has at most 1024 threads and is made of warps of 32.",
    ),
    reference=lessons.add_guarded,
    cases=_guard_cases,
    grid_of=lambda case, threads: _blocks(case.arguments["c"].size, threads),
    counters=(
        Counter(
            name="ragged-warps",
            what="{measured:g} requests of warps load a, where {most:g} do: some warps are not full",
            measure=lambda report: report.total("requests", "global", "load", "a"),
            most=lambda case: _blocks(case.arguments["a"].size, 32),
        ),
    ),
    mistakes=(
        Mistake(
            name="no-guard",
            answer=(edited(lessons.add_guarded, ("if i < c.shape[0]:", "if True:")), 128),
            message=NO_GUARD,
        ),
        Mistake(
            name="guard-on-thread-index",
            answer=(edited(lessons.add_guarded, ("if i <", "if cuda.threadIdx.x <")), 128),
            message="The guard looks at the index within the block. Compare the index that the access uses.",
        ),
        Mistake(
            name="last-element-missed",
            answer=(edited(lessons.add_guarded, ("c.shape[0]", "c.shape[0] - 1")), 128),
            message="The guard leaves the last element out: the index runs from 0 to `shape[0] - 1`.",
        ),
        Mistake(
            name="impossible-block",
            answer=(lessons.add_guarded, 2048),
            message="A launch with such a block fails on every GPU, before a single thread runs.",
        ),
        Mistake(
            name="ragged-warps",
            answer=(lessons.add_guarded, 20),
            message="Threads come in warps of 32. A block that is no multiple of 32 leaves lanes of its last warp "
            "idle.",
        ),
    ),
)


def _sum_cases(rng: np.random.Generator) -> list[KernelCase]:
    cases = []
    for n in (128, 300, 1):
        x = _floats(rng, n)
        count = _blocks(n, lessons.THREADS)
        padded = np.zeros(count * lessons.THREADS)
        padded[:n] = x
        rows = padded.reshape(count, -1)
        cases.append(
            KernelCase(
                arguments={"x": x, "partial": np.full(count, -7, F32)},
                grid=count,
                block=lessons.THREADS,
                truth={"partial": rows.sum(axis=1)},
                allowed=10 * EPS32 * np.abs(rows).sum(axis=1),
            )
        )
    return cases


SUM_CONTRACT = (
    "`x`: float32, any length from 1 on. The launch has 128 threads a block and enough blocks to cover `x`; "
    "`partial` has one float32 for each block, the sum of that block's 128 elements, fewer in the last block. "
)

ELEMENTS_SHARED = Counter(
    name="serial",
    what="a block makes {measured:g} requests to load x, where {most:g} do: its threads do not share the work",
    measure=lambda report: report.total("requests", "global", "load", "x") / report.blocks,
    most=lambda case: lessons.WARPS,
)
NO_ATOMICS = Counter(
    name="atomics",
    what="a block makes {measured:g} atomic additions, where none is due",
    measure=lambda report: report.total("accesses", kind="atomic") / report.blocks,
    most=lambda case: 0,
)
ATOMICS_QUEUE = (
    "Atomic additions to one place happen one after the other, in an order that no one knows. Let pairs of partial "
    "sums be added side by side."
)

kernel_reduce = Kernel(
    id="kernel-reduce",
    chapter=3,
    section="3.8",
    title="A sum in shared memory",
    level="medium",
    checklist=(6, 17),
    prompt="Write a kernel `block_sum(x, partial)` that adds up each block's elements in shared memory, as a tree.",
    contract=SUM_CONTRACT + "Float32 throughout, no bank conflicts, and the work shared by all threads: no thread "
    "loads more than a few elements of `x` or adds more than a few dozen, and no atomics, which would queue up.",
    hints=(
        "Give every thread a place in shared memory, also the threads beyond the end: what value adds nothing?",
        "Halve the number of active threads each turn: thread `t` adds the element `step` places on.",
        "A barrier after the load and one after each turn, outside the `if`.",
    ),
    reference=lessons.reduce_tree,
    accept=(lessons.reduce_shuffle,),
    cases=_sum_cases,
    counters=(
        ELEMENTS_SHARED,
        NO_ATOMICS,
        wavefronts("load"),
        wavefronts("store"),
        Counter(
            name="serial",
            what="a block makes {measured:g} requests to load shared memory, where {most:g} are plenty",
            measure=lambda report: report.total("requests", "shared", "load") / report.blocks,
            most=lambda case: 64,
        ),
    ),
    mistakes=(
        Mistake(
            name="no-guard",
            answer=edited(lessons.reduce_tree, ("x[i] if i < x.shape[0] else float32(0.0)", "x[i]")),
            message=NO_GUARD,
        ),
        Mistake(
            name="no-barrier-after-load",
            answer=edited(lessons.reduce_tree, ("    cuda.syncthreads()\n", "")),
            message="Threads add elements that others have yet to load. A barrier belongs between the load and the "
            "first addition.",
        ),
        Mistake(
            name="no-barrier-in-loop",
            answer=edited(lessons.reduce_tree, ("        cuda.syncthreads()\n        step", "        step")),
            message="One turn reads what the turn before writes. A barrier belongs at the end of every turn.",
        ),
        Mistake(
            name="barrier-in-if",
            answer=edited(lessons.reduce_tree, ("s[t + step]\n        cuda", "s[t + step]\n            cuda")),
            message=BARRIER_AFTER_IF,
        ),
        Mistake(
            name="tail-not-filled",
            answer=edited(
                lessons.reduce_tree,
                ("s[t] = x[i] if i < x.shape[0] else float32(0.0)", "if i < x.shape[0]:\n        s[t] = x[i]"),
            ),
            message="Threads beyond the end leave their place in shared memory as it was. Fill it with the value that "
            "adds nothing.",
        ),
        Mistake(
            name="half-missing",
            answer=edited(lessons.reduce_tree, ("step = THREADS // 2", "step = THREADS // 4")),
            message="The first step spans a quarter of the block, so the upper half is never added.",
        ),
        Mistake(
            name="all-write-the-result",
            answer=edited(lessons.reduce_tree, ("    if t == 0:\n        partial", "    partial")),
            message="All threads of the block write the one result. Let a single thread do it.",
        ),
        Mistake(
            name="bank-conflict",
            answer=edited(
                lessons.reduce_tree,
                ("step = THREADS // 2", "step = 1"),
                ("while step > 0", "while step < THREADS"),
                ("if t < step:", "if 2 * step * t < THREADS:"),
                ("s[t] += s[t + step]", "s[2 * step * t] += s[2 * step * t + step]"),
                ("step //= 2", "step *= 2"),
            ),
            message="Active threads lie `2 * step` elements apart, so ever more of them share a bank. Let thread `t` "
            "add the element `step` places on, with `step` shrinking.",
        ),
        Mistake(
            name="serial",
            answer=edited(
                lessons.reduce_tree,
                ("step = THREADS // 2", "total = float32(0.0)"),
                ("while step > 0:", "if t == 0:"),
                ("if t < step:", "for k in range(THREADS):"),
                ("s[t] += s[t + step]", "total += s[k]"),
                ("        cuda.syncthreads()\n        step //= 2\n    if t == 0:\n", ""),
                ("= s[0]", "= total"),
            ),
            message="One thread adds everything while 127 wait. Halve the number of sums in each turn.",
        ),
        Mistake(
            name="atomics",
            answer=edited(
                lessons.reduce_tree,
                ("s[t] = x[i] if i < x.shape[0] else float32(0.0)", "if t == 0:\n        s[0] = float32(0.0)"),
                ("    step = THREADS // 2\n", ""),
                ("    while step > 0:\n        if t < step:\n            s[t] += s[t + step]\n", ""),
                (
                    "        cuda.syncthreads()\n        step //= 2\n",
                    "    if i < x.shape[0]:\n        cuda.atomic.add(s, 0, x[i])\n    cuda.syncthreads()\n",
                ),
            ),
            message=ATOMICS_QUEUE,
        ),
        Mistake(
            name="float64",
            answer=edited(lessons.reduce_tree, ("(THREADS, float32)", "(THREADS, float64)")),
            message=WIDE,
        ),
    ),
)

kernel_shuffle_reduce = Kernel(
    id="kernel-shuffle-reduce",
    chapter=3,
    section="3.8",
    title="A sum by shuffles",
    level="medium",
    checklist=(6, 17),
    prompt="Write `block_sum(x, partial)` again, with one barrier: shuffles within each warp, shared memory only "
    "between the warps.",
    contract=SUM_CONTRACT + "At most one barrier a block, float32 throughout. Values travel within a warp by shuffles "
    "alone; shared memory holds one sum for each warp. No atomics.",
    hints=(
        "`cuda.shfl_xor_sync(0xFFFFFFFF, value, 1 << k)` is the value of the lane whose number differs in bit `k`.",
        "All 32 lanes take part in every shuffle, also those beyond the end.",
        "Lane 0 of each warp writes its warp's sum; after one barrier, thread 0 adds the four.",
    ),
    reference=lessons.reduce_shuffle,
    cases=_sum_cases,
    counters=(
        Counter(
            name="too-many-barriers",
            what="a block passes {measured:g} barriers, where {most:g} does",
            measure=lambda report: report.barriers / report.blocks,
            most=lambda case: 1,
        ),
        ELEMENTS_SHARED,
        NO_ATOMICS,
        Counter(
            name="no-shuffles",
            what="a block makes {measured:g} requests to load shared memory, where {most:g} are plenty for the sums of "
            "its warps",
            measure=lambda report: report.total("requests", "shared", "load") / report.blocks,
            most=lambda case: lessons.WARPS**2,
        ),
    ),
    mistakes=(
        Mistake(
            name="no-guard",
            answer=edited(lessons.reduce_shuffle, ("x[i] if i < x.shape[0] else float32(0.0)", "x[i]")),
            message=NO_GUARD,
        ),
        Mistake(
            name="shuffle-in-if",
            answer=edited(
                lessons.reduce_shuffle,
                ("value = x[i] if i < x.shape[0] else float32(0.0)", "value = float32(0.0)\n    if i < x.shape[0]:"),
                ("    for k in range(5):", "        value = x[i]\n        for k in range(5):"),
                ("        value += cuda", "            value += cuda"),
            ),
            message="The mask names all 32 lanes, but the condition keeps some away. Give the lanes beyond the end a "
            "zero and let every lane shuffle.",
        ),
        Mistake(
            name="mask-too-small",
            answer=edited(lessons.reduce_shuffle, ("FULL", "0xFFFF")),
            message="The mask names 16 lanes and 32 call. A bit is due for every lane that takes part.",
        ),
        Mistake(
            name="four-steps",
            answer=edited(lessons.reduce_shuffle, ("range(5)", "range(4)")),
            message="Four exchanges join 16 lanes. A warp has 32, which takes one more.",
        ),
        Mistake(
            name="no-barrier",
            answer=edited(lessons.reduce_shuffle, ("    cuda.syncthreads()\n", "")),
            message="Thread 0 reads what the other warps have yet to write. Shuffles order a warp, only a barrier "
            "orders the block.",
        ),
        Mistake(
            name="one-place-for-all-warps",
            answer=edited(lessons.reduce_shuffle, ("s[t // 32] = value", "s[0] = value")),
            message="All warps write their sum to the same place. Warp `t // 32` has a place of its own.",
        ),
        Mistake(
            name="first-warp-only",
            answer=edited(lessons.reduce_shuffle, ("range(WARPS)", "range(1)")),
            message="Only the first warp's sum is taken. A block of 128 threads has four warps.",
        ),
        Mistake(
            name="no-shuffles",
            answer=edited(
                lessons.reduce_shuffle,
                ("shared.array(WARPS", "shared.array(THREADS"),
                ("    for k in range(5):\n        value += cuda.shfl_xor_sync(FULL, value, 1 << k)\n", ""),
                ("    if t % 32 == 0:\n        s[t // 32] = value", "    s[t] = value"),
                ("range(WARPS)", "range(THREADS)"),
            ),
            message="There is one barrier, and behind it one thread adds everything. Join the lanes of each warp by "
            "shuffles first: then four sums are left.",
        ),
        Mistake(
            name="too-many-barriers",
            answer=lessons.reduce_tree,
            message="This is the tree in shared memory, with a barrier a turn. Within a warp a shuffle needs none.",
        ),
        Mistake(
            name="float64",
            answer=edited(lessons.reduce_shuffle, ("total = float32(0.0)", "total = 0.0")),
            message=WIDE,
        ),
    ),
)


def _transpose_cases(rng: np.random.Generator) -> list[KernelCase]:
    cases = []
    for M, N in ((32, 32), (40, 48), (40, 20)):
        A = _floats(rng, M, N)
        cases.append(
            KernelCase(
                arguments={"A": A, "B": np.full((N, M), -7, F32)},
                grid=(_blocks(N, 32), _blocks(M, 32)),
                block=(32, 32),
                truth={"B": A.T.astype(np.float64)},
                allowed=0.0,
            )
        )
    return cases


kernel_transpose = Kernel(
    id="kernel-transpose",
    chapter=3,
    section="3.8",
    title="A transposition without bank conflicts",
    level="medium",
    checklist=(3, 6),
    prompt="Write a kernel `transpose(A, B)` with `B` = $A^T$ that reads and writes whole rows of memory and meets no "
    "bank conflict.",
    contract="`A` (M, N) and `B` (N, M): float32, any sizes. The launch has blocks of (32, 32) threads, and "
    "$\\lceil N/32\\rceil \\times \\lceil M/32\\rceil$ of them: `blockIdx.x` along the columns of `A`.",
    hints=(
        "A warp has one `threadIdx.y` and all 32 `threadIdx.x`. Which of the two must be the last index of `A`, and "
        "of `B`?",
        "Read a tile into shared memory, wait, and write it with the roles of the two block indices exchanged.",
        "A column of a (32, 32) tile lies in one bank. How far apart are its elements in a tile with one column more?",
    ),
    reference=lessons.transpose,
    cases=_transpose_cases,
    counters=(
        sectors("load", "A", lambda case: 4),
        sectors("store", "B", lambda case: 4),
        wavefronts("load"),
        wavefronts("store"),
    ),
    mistakes=(
        Mistake(
            name="bank-conflict",
            answer=edited(lessons.transpose, ("(32, 33)", "(32, 32)")),
            message="The 32 elements of a column of the tile lie 32 words apart, all in one bank. One column more "
            "shifts each row by a bank.",
        ),
        Mistake(
            name="uncoalesced",
            answer=edited(
                lessons.transpose,
                ("    tile = cuda.shared.array((32, 33), float32)\n", ""),
                ("tile[ty, tx] = A[i, j]", "B[j, i] = A[i, j]"),
                ("    cuda.syncthreads()\n", ""),
                ("    i, j = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx\n", ""),
                ("    if i < B.shape[0] and j < B.shape[1]:\n        B[i, j] = tile[tx, ty]\n", ""),
            ),
            message="A warp writes a column of `B`, one sector for each lane. Turn the tile in shared memory and write "
            "rows.",
        ),
        Mistake(
            name="no-barrier",
            answer=edited(lessons.transpose, ("    cuda.syncthreads()\n", "")),
            message="A thread writes out an element of the tile that another thread has yet to load. A barrier belongs "
            "between the two.",
        ),
        Mistake(
            name="barrier-in-if",
            answer=edited(lessons.transpose, ("    cuda.syncthreads()", "        cuda.syncthreads()")),
            message=BARRIER_AFTER_IF,
        ),
        Mistake(
            name="no-guard",
            answer=edited(
                lessons.transpose,
                ("if i < A.shape[0] and j < A.shape[1]:", "if True:"),
                ("if i < B.shape[0] and j < B.shape[1]:", "if True:"),
            ),
            message=NO_GUARD,
        ),
        Mistake(
            name="blocks-not-exchanged",
            answer=edited(
                lessons.transpose,
                (
                    "i, j = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx",
                    "i, j = cuda.blockIdx.y * 32 + ty, cuda.blockIdx.x * 32 + tx",
                ),
            ),
            message="The elements of a tile change places, the tile itself must too: the roles of `blockIdx.x` and "
            "`blockIdx.y` are exchanged for the store.",
        ),
        Mistake(
            name="guard-axes-exchanged",
            answer=edited(
                lessons.transpose, ("if i < A.shape[0] and j < A.shape[1]:", "if i < A.shape[1] and j < A.shape[0]:")
            ),
            message="The guard compares a row with the number of columns. The first index goes with `shape[0]`.",
        ),
        Mistake(
            name="not-transposed",
            answer=edited(lessons.transpose, ("tile[tx, ty]", "tile[ty, tx]")),
            message="Each tile moves to its new place but is not turned over inside.",
        ),
    ),
)


def _product_cases(rng: np.random.Generator, side: int) -> list[KernelCase]:
    sizes = ((side, side, 8), (side, 2 * side, 16), (side + 5, side + 1, 21), (5, 3, 2))
    cases = []
    for M, N, K in sizes:
        A, B = _floats(rng, M, K), _floats(rng, K, N)
        a, b = A.astype(np.float64), B.astype(np.float64)
        cases.append(
            KernelCase(
                arguments={"A": A, "B": B, "C": np.full((M, N), 99, F32)},
                grid=(_blocks(N, side), _blocks(M, side)),
                block=(8, 8),
                truth={"C": a @ b},
                allowed=2 * K * EPS32 * (np.abs(a) @ np.abs(b)),
                label=f"M, N, K = {M}, {N}, {K}",
            )
        )
    return cases


def _aligned(case: KernelCase) -> float:
    """Sectors that a warp of four short rows needs, where rows begin at a sector; no limit elsewhere."""
    (_, K), (_, N) = case.arguments["A"].shape, case.arguments["B"].shape
    return 4 if K % 8 == 0 and N % 8 == 0 else np.inf


def _loads(operand: str, side: int) -> Counter:
    def most(case: KernelCase) -> float:
        (M, K), (_, N) = case.arguments["A"].shape, case.arguments["B"].shape
        counted = traffic(M, N, K, (side, side, 8))
        return counted.loads_a if operand == "A" else counted.loads_b

    return total(f"loads-{operand}", "load", operand, most)


PRODUCT_COUNTERS = (sectors("load", "A", _aligned), sectors("load", "B", _aligned), sectors("store", "C", _aligned))
FIRST_BARRIER = (
    "A thread multiplies with elements of the tile that others have yet to load. A barrier belongs between the loads "
    "and the loop over `k`."
)
SECOND_BARRIER = (
    "A fast thread loads the next tile over elements that a slow one still needs. A barrier belongs at the end of "
    "each turn too."
)
TAIL_DROPPED = "The loop ends at the last whole tile, so a tail of $K$ is lost. Round the number of tiles up."
TAIL_LEFT = "Where the tile reaches beyond the matrix, shared memory keeps what was there before. Store a zero there."
BARRIER_BELOW = "        cuda.syncthreads()\n        for k in range(TILE):"
BARRIER_ABOVE = "        cuda.syncthreads()\n    if row"
A_TAIL = " if row < A.shape[0] and k0 + tx < A.shape[1] else float32(0.0)"
B_TAIL = " if k0 + ty < B.shape[0] and col < B.shape[1] else float32(0.0)"

kernel_shared_tile = Kernel(
    id="kernel-shared-tile",
    chapter=3,
    section="3.8",
    title="A product with shared tiles, for any sizes",
    level="hard",
    points=2,
    checklist=(6, 7),
    prompt="Write a kernel `matmul(A, B, C)` with $8\\times8$ tiles of `A` and `B` in shared memory, for any sizes.",
    contract="`A` (M, K), `B` (K, N), `C` (M, N): float32, any sizes from 1 on. The launch has (8, 8) threads a block, "
    "one for each output, and $\\lceil N/8\\rceil \\times \\lceil M/8\\rceil$ blocks: x along the columns. Each block "
    "loads each element of its tiles once. Float32 throughout, coalesced, no bank conflicts.",
    hints=(
        "One turn for each tile along $K$: load one element of each tile, wait, multiply 8 times, wait.",
        "A thread whose element lies outside stores a zero, and goes on: it has to meet every barrier.",
        "`threadIdx.x` is the last index of every access to global memory. The accumulator starts as `float32(0.0)`.",
    ),
    reference=lessons.shared_tile,
    cases=lambda rng: _product_cases(rng, 8),
    counters=(
        *PRODUCT_COUNTERS,
        _loads("A", 8),
        _loads("B", 8),
        wavefronts("load"),
        wavefronts("store"),
    ),
    mistakes=(
        Mistake(
            name="first-barrier-missing",
            answer=edited(lessons.shared_tile, (BARRIER_BELOW, "        for k in range(TILE):")),
            message=FIRST_BARRIER,
        ),
        Mistake(
            name="second-barrier-missing",
            answer=edited(lessons.shared_tile, (BARRIER_ABOVE, "    if row")),
            message=SECOND_BARRIER,
        ),
        Mistake(
            name="no-guard",
            answer=edited(lessons.shared_tile, (A_TAIL, ""), (B_TAIL, "")),
            message=NO_GUARD,
        ),
        Mistake(
            name="barrier-in-if",
            answer=edited(
                lessons.shared_tile,
                ("    for k0", "    if row >= C.shape[0] or col >= C.shape[1]:\n        return\n    for k0"),
            ),
            message="Threads without an output return before the barriers that the others wait at. They still have "
            "elements of the tiles to load: let them run to the end.",
        ),
        Mistake(
            name="tail-not-zeroed",
            answer=edited(
                lessons.shared_tile,
                (
                    "        sA[ty, tx] = A[row, k0 + tx]" + A_TAIL,
                    "        if row < A.shape[0] and k0 + tx < A.shape[1]:\n            sA[ty, tx] = A[row, k0 + tx]",
                ),
                (
                    "        sB[ty, tx] = B[k0 + ty, col]" + B_TAIL,
                    "        if k0 + ty < B.shape[0] and col < B.shape[1]:\n            sB[ty, tx] = B[k0 + ty, col]",
                ),
            ),
            message=TAIL_LEFT,
        ),
        Mistake(
            name="tail-dropped",
            answer=edited(
                lessons.shared_tile, ("range(0, A.shape[1], TILE)", "range(0, A.shape[1] // TILE * TILE, TILE)")
            ),
            message=TAIL_DROPPED,
        ),
        Mistake(
            name="forgotten-sum",
            answer=edited(
                lessons.shared_tile,
                ("        for k in range(TILE)", "        acc = float32(0.0)\n        for k in range(TILE)"),
            ),
            message="The accumulator starts anew with each tile, so only the last tile of $K$ counts.",
        ),
        Mistake(
            name="uncoalesced",
            answer=edited(
                lessons.shared_tile,
                ("tx, ty = cuda.threadIdx.x, cuda.threadIdx.y", "ty, tx = cuda.threadIdx.x, cuda.threadIdx.y"),
            ),
            message="`threadIdx.x` runs along the rows, so the lanes of a warp lie a whole row apart. Let it run along "
            "the last axis.",
        ),
        Mistake(
            name="bank-conflict",
            answer=edited(
                lessons.shared_tile, ("sA[ty, tx] =", "sA[tx, ty] ="), ("acc += sA[ty, k]", "acc += sA[k, ty]")
            ),
            message="The tile of `A` is stored turned over, so lanes of a warp write 8 words apart and meet in a bank.",
        ),
        Mistake(
            name="no-tiles",
            answer=ladder.matmul_coalesced,
            message="Every multiply-add fetches its two operands from global memory. Load each element of the tile "
            "once, into shared memory.",
        ),
        Mistake(
            name="float64",
            answer=edited(lessons.shared_tile, ("acc = float32(0.0)", "acc = 0.0")),
            message="The accumulator is float64: `0.0` is one, and it makes every sum one. Start with `float32(0.0)`.",
        ),
    ),
)

kernel_register_tile = Kernel(
    id="kernel-register-tile",
    chapter=3,
    section="3.8",
    title="A product with tiles in registers",
    level="hard",
    points=2,
    checklist=(6, 7),
    prompt="Write `matmul(A, B, C)` so that a block of (8, 8) threads makes a $16\\times16$ tile of `C`, each thread "
    "$2\\times2$ outputs in a local array, with 8 of $K$ at a time.",
    contract="Arrays as in `kernel-shared-tile`; $\\lceil N/16\\rceil \\times \\lceil M/16\\rceil$ blocks. An element "
    "of `A` is loaded once for each column of tiles, one of `B` once for each row of tiles; from shared memory a "
    "thread loads 4 elements for 4 multiply-adds. Float32 throughout, coalesced.",
    hints=(
        "`cuda.local.array((2, 2), float32)` is the accumulator; it holds nothing until you write zeros.",
        "Let a thread's outputs lie 8 rows and 8 columns apart: then the lanes of a warp stay neighbours.",
        "Inside the loop over `k`: load two elements of `A` and two of `B` into registers, then make four products.",
    ),
    reference=lessons.register_tile,
    cases=lambda rng: _product_cases(rng, 16),
    counters=(
        *PRODUCT_COUNTERS,
        _loads("A", 16),
        _loads("B", 16),
        Counter(
            name="no-register-reuse",
            what="the threads load {measured:g} elements from shared memory, where {most:g} do",
            measure=lambda report: report.total("accesses", "shared", "load"),
            most=lambda case: 4 * 64 * 8 * _blocks(case.arguments["A"].shape[1], 8) * int(np.prod(case.grid)),
        ),
    ),
    mistakes=(
        Mistake(
            name="first-barrier-missing",
            answer=edited(lessons.register_tile, (BARRIER_BELOW, "        for k in range(TILE):")),
            message=FIRST_BARRIER,
        ),
        Mistake(
            name="second-barrier-missing",
            answer=edited(lessons.register_tile, ("        cuda.syncthreads()\n    for m", "    for m")),
            message=SECOND_BARRIER,
        ),
        Mistake(
            name="accumulator-not-zeroed",
            answer=edited(lessons.register_tile, ("            acc[m, n] = float32(0.0)", "            pass")),
            message="A local array holds nothing at the start. Write zeros into the accumulators first.",
        ),
        Mistake(
            name="one-output",
            answer=edited(
                lessons.register_tile,
                (
                    "    for m in range(OUT):\n        for n in range(OUT):\n            i, j",
                    "    for m in range(1):\n        for n in range(1):\n            i, j",
                ),
            ),
            message="Each thread writes one output, but it owns four: the rest of the tile stays as it was.",
        ),
        Mistake(
            name="no-register-reuse",
            answer=edited(
                lessons.register_tile,
                (
                    "                    acc[m, n] += a[m] * b",
                    "                    acc[m, n] += sA[ty + m * TILE, k] * sB[k, tx + n * TILE]",
                ),
            ),
            message="Every multiply-add reads both operands from shared memory. Keep them in registers: each is used "
            "twice.",
        ),
        Mistake(
            name="neighbouring-outputs",
            answer=edited(
                lessons.register_tile,
                (
                    "            i, j = row + m * TILE, col + n * TILE\n",
                    "            i = cuda.blockIdx.y * BIG + OUT * ty + m\n"
                    "            j = cuda.blockIdx.x * BIG + OUT * tx + n\n",
                ),
                ("a[m] = sA[ty + m * TILE, k]", "a[m] = sA[OUT * ty + m, k]"),
                ("b = sB[k, tx + n * TILE]", "b = sB[k, OUT * tx + n]"),
            ),
            message="A thread's outputs are neighbours, so the lanes of a warp are two elements apart and every store "
            "touches twice the sectors. Give neighbouring lanes neighbouring columns.",
        ),
        Mistake(
            name="no-guard",
            answer=edited(
                lessons.register_tile,
                (" if i < A.shape[0] and k < A.shape[1] else float32(0.0)", ""),
                (" if k < B.shape[0] and j < B.shape[1] else float32(0.0)", ""),
            ),
            message=NO_GUARD,
        ),
        Mistake(
            name="tail-dropped",
            answer=edited(
                lessons.register_tile, ("range(0, A.shape[1], TILE)", "range(0, A.shape[1] // TILE * TILE, TILE)")
            ),
            message=TAIL_DROPPED,
        ),
        Mistake(
            name="float64",
            answer=edited(
                lessons.register_tile,
                ("acc = cuda.local.array((OUT, OUT), float32)", "acc = cuda.local.array((OUT, OUT), float64)"),
            ),
            message="The accumulators are float64, which takes two registers each and runs at a small part of the "
            "speed.",
        ),
    ),
)

# --- kernels, in the chapter ------------------------------------------------------------------------------------

column_sectors = Number(
    id="column-sectors",
    chapter=3,
    section="3.8",
    title="A warp that reads a column",
    place="chapter",
    checklist=(6,),
    prompt="The 32 lanes of a warp read 32 float32 elements below each other: one column of a row-major matrix with "
    "4096 columns. How many sectors of 32 bytes does the request touch?",
    hints=("How many bytes lie between two elements of a column?", "Can two of the elements share a sector?"),
    expected=32,
    exact=True,
    mistakes=(
        Mistake(
            name="as-a-row",
            answer=4,
            message="That is the count for a row, whose elements are neighbours. In a column each lies in another row.",
        ),
        Mistake(
            name="one",
            answer=1,
            message="One request it is, but memory is fetched in sectors, and the elements are far apart.",
        ),
        Mistake(
            name="bytes",
            answer=128,
            message="Those are the bytes that the warp wants. What is moved is whole sectors.",
        ),
    ),
)

column_banks = Choice(
    id="column-banks",
    chapter=3,
    section="3.8",
    title="A column of a tile",
    place="chapter",
    checklist=(6,),
    prompt="A warp reads one column of a float32 tile in shared memory. How many passes does it take for a tile of "
    "shape $(32, 32)$, and for one of shape $(32, 33)$?",
    hints=("Word $w$ lies in bank $w \\bmod 32$. Write down the banks of the first three elements of a column.",),
    options={
        "a": Option("1 and 1", "Shared memory has no sectors, but it has banks, and each serves one word a pass."),
        "b": Option(
            "32 and 1",
            "Elements of a column lie 32 words apart, all in one bank; with 33 columns they lie in 32 different banks.",
            True,
        ),
        "c": Option(
            "32 and 33", "More columns do not mean more passes: what counts is which banks the elements lie in."
        ),
        "d": Option(
            "32 and 2", "Are any two of the elements $33 r$, with $r$ from 0 to 31, equal modulo 32? Look again."
        ),
    },
)

tile_barriers = Number(
    id="tile-barriers",
    chapter=3,
    section="3.8",
    title="Barriers of a tiled product",
    place="chapter",
    checklist=(6,),
    prompt="The shared-tile kernel multiplies $M=N=K=64$ with $16\\times16$ tiles. How many barriers do all its blocks "
    "pass together?",
    hints=("How many blocks, and how many tiles along $K$ for each?", "A turn has one barrier after the load."),
    expected=16 * 4 * 2,
    exact=True,
    mistakes=(
        Mistake(name="one-a-turn", answer=16 * 4, message="A turn has two barriers: before the product, and after it."),
        Mistake(name="one-block", answer=4 * 2, message="That is one block's count. Every tile of $C$ has a block."),
        Mistake(
            name="per-thread",
            answer=16 * 4 * 2 * 256,
            message="A barrier is passed by all threads of a block together, and counted once.",
        ),
    ),
)

barrier_test = Choice(
    id="barrier-test",
    chapter=3,
    section="3.8",
    title="A test that shows the second barrier",
    place="chapter",
    checklist=(6,),
    prompt="Someone removes the barrier at the **end** of each turn of the shared-tile kernel. Which test is sure to "
    "find it?",
    hints=("What does that barrier protect, and from whom?",),
    options={
        "a": Option(
            "Compare the result with NumPy's on a GPU",
            "Threads of one warp run close together, so the result is often right. A race that shows rarely is "
            "the worst.",
        ),
        "b": Option(
            "Look for races in a product whose $K$ is one tile",
            "With a single tile nobody loads a next one, so there is nothing to overwrite.",
        ),
        "c": Option(
            "Look for races in a product whose $K$ is two tiles or more",
            "The second load and the first product touch the same elements with nothing between them: a race, in any "
            "order of threads.",
            True,
        ),
        "d": Option(
            "Run the kernel with one thread a block",
            "One thread cannot race with itself, and the kernel's tiles need the others' loads anyway.",
        ),
    },
)

KERNELS = (
    column_sectors,
    column_banks,
    tile_barriers,
    barrier_test,
    kernel_map,
    kernel_guard,
    kernel_reduce,
    kernel_shuffle_reduce,
    kernel_transpose,
    kernel_shared_tile,
    kernel_register_tile,
)

EXERCISES = (
    block_c12,
    tile_loads,
    gemv_bound,
    square_float32,
    blocks_fit,
    tail_waste,
    bits_or_bug,
    rung_traffic,
    gemm_flops,
    gemm_bytes,
    tile_traffic,
    gemm_intensity,
    attainable,
    roofline_time,
    tile_shared,
    occupancy_limit,
    padding_formula,
    explain_bits,
    tiled_matmul,
    *KERNELS,
)

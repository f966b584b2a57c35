"""Exercises of chapter 3: counting FLOPs, bytes and loads of a product, and writing it in tiles.

Expected values are computed by `labsupport.cost` and `labsupport.ops.gemm`, never typed. No message may hold one.
"""

from __future__ import annotations

import numpy as np

from labsupport.cost import DEVICES, gemm_cost, occupancy, roofline, tensor_bytes, tile_resources
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
)

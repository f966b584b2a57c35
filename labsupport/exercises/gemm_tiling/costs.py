"""Exercises of chapter 3 on the FLOPs, bytes and intensity of a product, and on the roofline."""

from __future__ import annotations

import numpy as np

from labsupport.cost import DEVICES, gemm_cost, roofline
from labsupport.grading import Case, Exercise, Formula, Function, Mistake, Number
from labsupport.ops.gemm import traffic

N = 4096
SQUARE = gemm_cost(N, N, N, "float16")
ELEMENTS = N * N

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
        Mistake(
            name="weight-left-out",
            answer=f"{2 * 2 * 8192 / H100.bandwidth} s",
            message="You moved the row and the result, and left the weight where it is. It does not stay on the chip: "
            "every step reads it from memory.",
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

EXERCISES: tuple[Exercise, ...] = (
    gemm_flops,
    gemm_bytes,
    tile_traffic,
    gemm_intensity,
    attainable,
    roofline_time,
)

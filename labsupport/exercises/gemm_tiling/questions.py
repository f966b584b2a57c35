"""Questions inside the text of chapter 3."""

from __future__ import annotations

from labsupport.cost import gemm_cost, occupancy
from labsupport.grading import Choice, Exercise, Formula, Mistake, Number, Option
from labsupport.ops.gemm import padding_waste, traffic

block_c12 = Choice(
    id="block-c12",
    chapter=3,
    section="3.1",
    title="The upper right block",
    place="chapter",
    checklist=(6,),
    prompt="$A$ and $B$ are cut into $2\\times2$ blocks. Which products of blocks make $C_{12}$?",
    hints=(
        "Which row of blocks of $A$ lies beside $C_{12}$, which column of blocks of $B$ above it?",
        "Multiply as with numbers. In each product the second index of $A$ is the first index of $B$. Which values "
        "does it take?",
    ),
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
    hints=(
        "What may another order of additions change, and by how much?",
        "Try to explain each finding by rounding alone. Think of cancellation, and of the length of the sum. Only what "
        "rounding cannot explain is a proof.",
    ),
    options={
        "a": Option("most entries differ in their last bits", "Another order of additions rounds differently."),
        "b": Option(
            "an entry near zero differs by 1 % of itself",
            "Where large terms cancel, rounding of the terms can be as large as what is left.",
        ),
        "c": Option(
            "an entry is further from float64 than roundings of all its $K$ terms could bring it",
            "That bound holds for every order of additions, so no rounding explains the excess. Section 3.6 writes "
            "it down.",
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
    hints=(
        "Which of the two tile sizes stands in the formula of which traffic?",
        "A tile saves loads from the memory that fills it. Which of the two has grown, and which memory fills it?",
    ),
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
    hints=(
        "Word $w$ lies in bank $w \\bmod 32$. Write down the banks of the first three elements of a column.",
        "Element $r$ of a column is word $32 r$ of one tile and word $33 r$ of the other. How many lanes want words "
        "of the same bank? They take turns.",
    ),
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
    hints=(
        "What does that barrier protect, and from whom?",
        "Without it a fast thread starts the next turn. What does it write there, and who may still read that? Does "
        "every test have such a turn, and must the fault show in it?",
    ),
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

EXERCISES: tuple[Exercise, ...] = (
    block_c12,
    tile_loads,
    gemv_bound,
    square_float32,
    blocks_fit,
    tail_waste,
    bits_or_bug,
    rung_traffic,
    column_sectors,
    column_banks,
    tile_barriers,
    barrier_test,
)

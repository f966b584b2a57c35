"""Exercises of chapter 10 on whole models: parameters, training state and KV cache."""

import numpy as np

from labsupport import model_memory
from labsupport.grading import Case, Exercise, Function, Mistake, Number, Tolerance

_LLAMA = model_memory.MODELS["Llama 3 8B"]
_GPT2 = model_memory.MODELS["GPT-2 small"]
_CACHE = int(model_memory.kv_cache_bytes(_LLAMA, 16, 4096))

KV_CACHE_BYTES = Number(
    id="kv-cache-bytes",
    chapter=10,
    section="10.7.3",
    title="KV cache of a batch",
    prompt=(
        "Llama 3 8B has 32 layers, 32 query heads, 8 heads of K and V, and heads of width 128. How many bytes "
        "does its "
        "BF16 cache take for 16 sequences of 4096 tokens?"
    ),
    contract="A number with its unit; a bare number is taken as bytes.",
    hints=(
        "Count one token first: for each layer, one vector of keys and one of values.",
        "The cache holds heads of K and V only. The query heads share them.",
    ),
    checklist=(18,),
    level="medium",
    expected=_CACHE,
    unit="B",
    default_unit="B",
    mistakes=(
        Mistake(
            name="query-heads",
            answer=4 * _CACHE,
            message="You counted a key and a value for every query head. Here four query heads share one.",
        ),
        Mistake(
            name="one-of-two",
            answer=_CACHE // 2,
            message="Keys and values are two tensors: you counted one.",
        ),
        Mistake(
            name="one-layer",
            answer=_CACHE // 32,
            message="That is one layer. Every layer keeps its own.",
        ),
        Mistake(
            name="one-sequence",
            answer=_CACHE // 16,
            message="That is one sequence of the batch.",
        ),
    ),
)


def _count(V: int, H: int, L: int, N_h: int, N_kv: int, m: int) -> int:
    return model_memory.Model(
        name="llama",
        source="exercise",
        vocabulary=V,
        width=H,
        layers=L,
        heads=N_h,
        kv_heads=N_kv,
        hidden=m,
        gated=True,
    ).parameters


def _count_cases(rng: np.random.Generator) -> list[Case]:
    drawn = (int(rng.integers(50, 200)), 48, int(rng.integers(2, 6)), 12, 4, int(rng.integers(60, 90)))
    return [
        Case(args=(100, 8, 1, 2, 1, 16), label="V=100, H=8, L=1, N_h=2, N_kv=1, m=16"),
        Case(args=drawn, label="H=48, N_h=12, N_kv=4, the rest drawn"),
        Case(args=(32_000, 4096, 32, 32, 32, 11_008), label="as many heads of K and V as of Q"),
        Case(args=(128_256, 8192, 80, 64, 8, 28_672), label="V=128256, H=8192, L=80, N_h=64, N_kv=8, m=28672"),
    ]


def _variant(V: int, H: int, L: int, N_h: int, N_kv: int, m: int, **wrong: int) -> int:
    """The count with one part wrong, for the mistakes below."""
    kv = wrong.get("kv", N_kv) * (H // N_h)
    layer = 2 * H * H + 2 * H * kv + wrong.get("matrices", 3) * H * m + wrong.get("norms", 2) * H
    return wrong.get("tables", 2) * V * H + L * layer + wrong.get("final", 1) * H


COUNT_PARAMETERS = Function(
    id="count-parameters",
    chapter=10,
    section="10.7.1",
    title="Count a Llama-like model",
    prompt=(
        "Write `parameters(V, H, L, N_h, N_kv, m)`: the number of parameters of a decoder with `N_kv` heads of "
        "K and V, "
        "a gated MLP of width `m`, RMSNorm and an untied LM head."
    ),
    contract=(
        "All arguments are positive integers, `N_h` divides `H`, `N_kv` divides `N_h`. No biases, no learned "
        "positions; "
        "a layer has two norms, and one more stands before the LM head. Result: an integer."
    ),
    hints=(
        "A layer: Q and the output projection are $H \\times H$; K and V are $H \\times N_{kv} D_h$.",
        "A gated MLP has three matrices: gate, up and down.",
        "Outside the layers: embedding, LM head, and the final norm.",
    ),
    checklist=(5,),
    level="medium",
    points=2,
    oracle=_count,
    cases=_count_cases,
    tolerance=Tolerance(c=1, depth=1),
    mistakes=(
        Mistake(
            name="all-heads",
            answer=lambda *sizes: _variant(*sizes, kv=sizes[3]),
            message="K and V have only `N_kv` heads, so their matrices are narrower than Q's.",
        ),
        Mistake(
            name="two-matrices",
            answer=lambda *sizes: _variant(*sizes, matrices=2),
            message="A gated MLP has a third matrix, the gate.",
        ),
        Mistake(
            name="tied",
            answer=lambda *sizes: _variant(*sizes, tables=1),
            message="The LM head is its own matrix here: embedding and head are counted both.",
        ),
        Mistake(
            name="no-norms",
            answer=lambda *sizes: _variant(*sizes, norms=0, final=0),
            message="The norms have parameters too, one for each column.",
        ),
        Mistake(
            name="no-final-norm",
            answer=lambda *sizes: _variant(*sizes, final=0),
            message="One more norm stands between the last layer and the LM head.",
        ),
        Mistake(
            name="layer-norms",
            answer=lambda *sizes: _variant(*sizes, norms=4, final=2),
            message="RMSNorm has a scale and no shift: one vector for each norm.",
        ),
    ),
)

_ADAM = 16 * _GPT2.parameters

TRAINING_STATE = Number(
    id="training-state-bytes",
    chapter=10,
    section="10.7.2",
    title="State of a training run",
    prompt=(
        "GPT-2 small has 124,439,808 parameters and is trained with AdamW in mixed precision: BF16 weights and "
        "gradients, FP32 master weights, FP32 $m$ and $v$. How many bytes do these five tensors take?"
    ),
    contract="A number with its unit; a bare number is taken as bytes. Activations are not counted.",
    hints=("Add the bytes of one parameter first.", "Two tensors have 2 bytes an element, three have 4."),
    level="easy",
    expected=_ADAM,
    unit="B",
    default_unit="B",
    rtol=3e-3,
    mistakes=(
        Mistake(
            name="no-master",
            answer=12 * _GPT2.parameters,
            message="The FP32 master weights are missing: the update is added there.",
        ),
        Mistake(
            name="no-optimizer",
            answer=8 * _GPT2.parameters,
            message="$m$ and $v$ are missing.",
        ),
        Mistake(
            name="weights-only",
            answer=2 * _GPT2.parameters,
            message="Those are the BF16 weights alone, enough for inference.",
        ),
        Mistake(
            name="no-gradients",
            answer=14 * _GPT2.parameters,
            message="The gradients take memory too, in BF16.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    KV_CACHE_BYTES,
    COUNT_PARAMETERS,
    TRAINING_STATE,
)

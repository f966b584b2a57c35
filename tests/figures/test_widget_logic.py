"""The rules inside the widgets' scripts must be NumPy's and ml_dtypes' own: thousands of cases, run in a browser.

Only the pure functions are called here; what the page shows is tested with the explorables of the book.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from playwright.sync_api import Page

from labsupport.figures import widgets
from labsupport.ops import floats
from tests.book.browser import open_browser

pytestmark = pytest.mark.browser

STATIC = Path(__file__).resolve().parents[2] / "book" / "_static"
NAMES = ("strides", "bits", "worksheet", "broadcast", "steps")
DTYPES: dict[str, Any] = {
    "FP32": np.float32, "FP16": np.float16, "BF16": ml_dtypes.bfloat16, "E4M3": ml_dtypes.float8_e4m3fn,
    "E5M2": ml_dtypes.float8_e5m2,
}
FORMATS = {one.name: one for one in floats.FORMATS}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    names = [*(f"widgets/{name}" for name in NAMES), "explore"]
    scripts = "".join(f'<script src="{(STATIC / f"{name}.js").as_uri()}"></script>' for name in names)
    path = tmp_path_factory.mktemp("logic") / "page.html"
    path.write_text(f"<!doctype html><meta charset='utf-8'><title>logic</title>{scripts}", encoding="utf-8")
    with open_browser() as browser:
        opened = browser.new_page()
        opened.goto(path.as_uri())
        yield opened


# -- strides -----------------------------------------------------------------------------------

RUN_CHAIN = """chains => chains.map(([shape, operations]) => {
  const rules = labsupport.logic.strides;
  let state = rules.arange(shape);
  return operations.map(operation => {
    try { state = rules.apply(state, operation.name, operation); }
    catch (error) { if (!(error instanceof RangeError)) { throw error; } return null; }
    return {
      shape: state.shape, strides: state.strides, offset: state.offset, view: state.verdict === "view",
      contiguous: rules.isContiguous(state.shape, state.strides),
      values: rules.indexes(state.shape).map(index => state.buffer[rules.offset(state, index)])
    };
  });
})"""


def random_operation(rng: np.random.Generator, x: np.ndarray) -> dict[str, Any]:
    names = ["transpose", "slice", "slice", "flip", "newaxis", "broadcast", "reshape", "reshape", "contiguous"]
    name = str(rng.choice(names))
    axis = int(rng.integers(0, x.ndim)) if x.ndim else 0
    if name == "slice":
        bounds = [None if rng.random() < 0.4 else int(rng.integers(-7, 8)) for _ in range(2)]
        step = int(rng.choice([-3, -2, -1, 1, 2, 3]))
        return {"name": name, "axis": axis, "start": bounds[0], "stop": bounds[1], "step": step}
    if name == "broadcast":
        lead = [int(n) for n in rng.integers(1, 3, size=rng.integers(0, 2))]
        wide = [int(rng.integers(1, 4)) if n == 1 or rng.random() < 0.1 else n for n in x.shape]
        return {"name": name, "shape": lead + wide}
    if name == "reshape":
        return {"name": name, "shape": random_factors(rng, x)}
    return {"name": name, "axis": axis}


def random_factors(rng: np.random.Generator, x: np.ndarray) -> list[int]:
    if rng.random() < 0.1:
        return [int(n) for n in rng.integers(1, 5, size=2)]
    shape, rest = [], x.size
    while rest > 1 and len(shape) < 4:
        factor = int(rng.choice([n for n in range(2, rest + 1) if rest % n == 0]))
        shape.append(factor)
        rest //= factor
    shape += [rest] if rest > 1 else []
    for _ in range(int(rng.integers(0, 2))):
        shape.insert(int(rng.integers(0, len(shape) + 1)), 1)
    if shape and rng.random() < 0.2:
        shape[int(rng.integers(0, len(shape)))] = -1
    return shape or [1]


def in_numpy(x: np.ndarray, operation: dict[str, Any]) -> np.ndarray | None:
    """Apply one operation with NumPy itself; None where NumPy refuses, or where no or too many elements are left."""
    name, before = operation["name"], (slice(None),) * operation.get("axis", 0)
    try:
        if name == "transpose":
            return x.T
        if name == "slice":
            y = x[(*before, slice(operation["start"], operation["stop"], operation["step"]))]
            return y if y.size else None
        if name == "flip":
            return np.flip(x, operation["axis"])
        if name == "newaxis":
            return x[(*before, None)]
        if name == "broadcast":
            y = np.broadcast_to(x, operation["shape"])
            return y if y.size <= widgets.STRIDE_CELLS else None
        if name == "reshape":
            return x.reshape(operation["shape"])
        return np.ascontiguousarray(x)
    except ValueError:
        return None


def chain(rng: np.random.Generator) -> tuple[list[int], list[dict[str, Any]], list[dict[str, Any] | None]]:
    shape = [int(n) for n in rng.integers(1, 5, size=rng.integers(1, 4))]
    x = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    start = x.ctypes.data
    operations, expected = [], []
    for _ in range(int(rng.integers(2, 8))):
        operation = random_operation(rng, x)
        operations.append(operation)
        y = in_numpy(x, operation)
        if y is None:
            expected.append(None)
            continue
        view = bool(np.shares_memory(x, y))
        start = start if view else y.ctypes.data
        expected.append({
            "shape": list(y.shape), "strides": [step // y.itemsize for step in y.strides],
            "offset": (y.ctypes.data - start) // y.itemsize, "view": view, "contiguous": bool(y.flags.c_contiguous),
            "values": y.ravel().tolist(),
        })
        x = y
    return shape, operations, expected


def test_strides_agree_with_numpy_over_random_chains(page: Page) -> None:
    rng = np.random.default_rng(20)
    chains = [chain(rng) for _ in range(600)]
    found = page.evaluate(RUN_CHAIN, [[shape, operations] for shape, operations, _ in chains])
    for (shape, operations, expected), got in zip(chains, found, strict=True):
        for step, (want, have) in enumerate(zip(expected, got, strict=True)):
            assert have == want, (shape, operations[: step + 1])
    outcomes = [one for _, _, expected in chains for one in expected]
    assert sum(one is None for one in outcomes) > 60
    assert sum(one is not None and not one["view"] for one in outcomes) > 60
    assert sum(one is not None and one["view"] and not one["contiguous"] for one in outcomes) > 250


# -- float bits --------------------------------------------------------------------------------


def decoded(page: Page, name: str, patterns: list[int]) -> np.ndarray:
    """Values as the script decodes them; they travel as text, which is many times faster for 65,536 numbers."""
    return doubles(page, "decode", name, patterns)


def doubles(page: Page, function: str, name: str, patterns: list[int]) -> np.ndarray:
    """Call a function of (format, pattern) for each pattern; `String` writes the shortest text that reads back."""
    text = page.evaluate(
        "([f, name, list]) => list.map(b => labsupport.logic.bits[f](name, b))"
        ".map(x => Object.is(x, -0) ? '-0' : String(x)).join()",
        [function, name, patterns],
    )
    return np.array([float(word.replace("Infinity", "inf")) for word in text.split(",")])


def encoded(page: Page, name: str, values: np.ndarray) -> np.ndarray:
    texts = [repr(float(x)) for x in values]
    code = (
        "([name, list]) => list.map(t => t === 'inf' ? Infinity : t === '-inf' ? -Infinity : Number(t))"
        ".map(x => labsupport.logic.bits.encode(name, x))"
    )
    return np.array(page.evaluate(code, [name, texts]), dtype=np.int64)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal values, NaN at the same places, and the same sign of zero."""
    signs = [np.signbit(x[~np.isnan(x)]) for x in (a, b)]
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(*signs))


@pytest.mark.parametrize("name", ["E4M3", "E5M2", "FP16", "BF16"])
def test_every_pattern_of_eight_and_sixteen_bits_decodes_as_the_dtype_does(page: Page, name: str) -> None:
    dtype = np.dtype(DTYPES[name])
    patterns = np.arange(2 ** (8 * dtype.itemsize))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        stored = patterns.astype(f"uint{8 * dtype.itemsize}").view(dtype).astype(np.float64)
    assert same(decoded(page, name, patterns.tolist()), stored)


@pytest.mark.parametrize("name", ["FP32", "TF32"])
def test_random_patterns_of_the_wide_formats_decode(page: Page, name: str) -> None:
    rng = np.random.default_rng(21)
    bits = FORMATS[name].bits
    patterns = np.concatenate([rng.integers(0, 2**bits, 4000), [0, 1, 2 ** (bits - 1), 2**bits - 1]])
    assert same(decoded(page, name, patterns.tolist()), FORMATS[name].decode(patterns))
    if name == "FP32":
        with np.errstate(invalid="ignore"):
            stored = patterns.astype(np.uint32).view(np.float32).astype(np.float64)
        assert same(decoded(page, name, patterns.tolist()), stored)


def samples(name: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers of every magnitude, exact ties between neighbours, values beside them, and the specials, as float32."""
    one = FORMATS[name]
    spread = rng.standard_normal(3000) * 2.0 ** rng.uniform(-46, 40, 3000)
    near = rng.uniform(-1.2, 1.2, 500) * min(one.max, 1e38)
    small = rng.uniform(-3, 3, 500) * one.min_subnormal
    codes = rng.integers(0, one.encode(one.max), 600)
    ties = (one.decode(codes) + one.decode(codes + 1)) / 2
    beside = np.concatenate([np.nextafter(ties, 0), np.nextafter(ties, np.inf)])
    edges = [0.0, -0.0, np.inf, -np.inf, one.max, -one.max, one.min_normal, one.min_subnormal, one.min_subnormal / 2]
    return np.concatenate([spread, near, small, ties, -ties, beside, edges])


@pytest.mark.parametrize("name", list(FORMATS))
def test_rounding_is_to_nearest_with_ties_to_even(page: Page, name: str) -> None:
    values = samples(name, np.random.default_rng(22))
    assert np.array_equal(encoded(page, name, values), FORMATS[name].encode(values))
    if name in DTYPES:
        dtype = np.dtype(DTYPES[name])
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
            stored = single.astype(dtype)
        patterns = encoded(page, name, single.astype(np.float64))
        assert same(decoded(page, name, patterns.tolist()), stored.astype(np.float64))


@pytest.mark.parametrize("name", ["FP32", "FP16", "BF16", "E4M3", "E5M2"])
def test_neighbours_and_spacing_are_the_dtypes(page: Page, name: str) -> None:
    dtype = np.dtype(DTYPES[name])
    width = 8 * dtype.itemsize
    rng = np.random.default_rng(23)
    patterns = np.arange(256) if width == 8 else rng.integers(0, 2**width, 3000)
    values = patterns.astype(f"uint{width}").view(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        finite = np.isfinite(values.astype(np.float64))
    patterns, values = patterns[finite], values[finite]
    text = "([name, list, by]) => list.map(b => labsupport.logic.bits.neighbour(name, b, by))"
    for by, towards in ((1, np.inf), (-1, -np.inf)):
        got = decoded(page, name, page.evaluate(text, [name, patterns.tolist(), by]))
        if name == "E4M3":  # this format has no infinity to step towards
            exact = values.astype(np.float64)
            everything = np.sort(np.arange(256).astype(np.uint8).view(dtype).astype(np.float64))
            everything = np.unique(everything[np.isfinite(everything)])
            place = np.searchsorted(everything, exact) + by
            want = everything[np.clip(place, 0, len(everything) - 1)]
        else:
            with np.errstate(over="ignore"):
                want = np.nextafter(values, np.array(towards, dtype=dtype)).astype(np.float64)
        assert np.array_equal(got, want)
    spacing = doubles(page, "ulp", name, patterns.tolist())
    assert np.array_equal(spacing, FORMATS[name].ulp(values.astype(np.float64)))
    if name in {"FP32", "FP16"}:
        inner = np.abs(values) < np.finfo(dtype).max  # beyond the largest value NumPy counts the step to infinity
        assert np.array_equal(spacing[inner], np.spacing(np.abs(values[inner])).astype(np.float64))


def test_exact_decimals(page: Page) -> None:
    rng = np.random.default_rng(24)
    spread = rng.standard_normal(200) * 2.0 ** rng.uniform(-150, 120, 200)
    values = [0.1, -2.5, 1e22, 448.0, 2.0**-149, 1.5e308, 5e-324, *spread]
    texts = [repr(float(x)) for x in values]
    got = page.evaluate("list => list.map(x => labsupport.logic.bits.exact(Number(x)))", texts)
    assert [Decimal(text) for text in got] == [Decimal(float(x)) for x in values]


def test_the_report_names_what_rounding_did(page: Page) -> None:
    def report(name: str, value: float) -> str:
        return page.evaluate("([name, x]) => labsupport.logic.bits.report(name, x)", [name, value])

    assert report("FP16", 1.0) == "Exact: no rounding."
    assert "becomes infinity" in report("FP16", 65520.0)
    assert "largest finite value 65504" in report("FP16", 65520.0)
    assert "no infinity, so it becomes NaN" in report("E4M3", 500.0)
    assert "Underflow" in report("FP16", 1e-9)
    assert "a tie, which goes to the even mantissa" in report("FP16", 2049.0)
    assert "Subnormal" in report("FP16", 1e-6)
    assert "0.500 ulp" in report("FP16", 2049.0)


# -- worksheet and broadcasting ----------------------------------------------------------------


def test_the_worksheet_counts_and_writes_as_python_does(page: Page) -> None:
    rng = np.random.default_rng(25)
    settings = [
        [*(int(10 ** rng.uniform(0, 9)) for _ in range(4)), str(rng.choice(list(widgets.WIDTHS)))] for _ in range(300)
    ]
    settings += [[1, 1, 1, 1, "FP8"], [10**9] * 4 + ["FP32"], [4, 2048, 4096, 128256, "BF16"]]
    found = page.evaluate(
        "list => list.map(([B, S, H, V, dtype]) => labsupport.logic.worksheet"
        ".rows(BigInt(B), BigInt(S), BigInt(H), BigInt(V), dtype).map(row => [row.title, row.formula, row.text]))",
        settings,
    )
    for setting, rows in zip(settings, found, strict=True):
        assert [tuple(row) for row in rows] == widgets.worksheet_rows(*setting), setting


def test_guesses_on_the_worksheet_are_judged_without_telling(page: Page) -> None:
    def judge(key: str, guess: str) -> str:
        return page.evaluate(
            "([key, guess]) => { const w = labsupport.logic.worksheet;"
            "return w.judge(w.rows(4n, 2048n, 4096n, 128256n, 'BF16').filter(row => row.key === key)[0], guess); }",
            [key, guess],
        )

    right = [
        ("weight", "1.051 GB"), ("weight", "0.979 GiB"), ("weight", "1050673152"), ("weight", "1,050,673,152 B"),
        ("flops", "8.607 TFLOP"), ("flops", "8.607e12"), ("shape", "4 x 2048 x 128256"), ("intensity", "2674 FLOP/B"),
    ]
    for key, guess in right:
        assert judge(key, guess).startswith("Right: "), (key, guess, judge(key, guess))
    assert "bits instead of bytes" in judge("weight", f"{8 * 1050673152}")
    assert "Twice" in judge("weight", "2.1 GB")
    assert "Half" in judge("flops", "4.3035 TFLOP")
    assert "GiB" in judge("weight", "1.05 GiB")
    assert judge("flops", "5").startswith("Too small")
    assert judge("flops", "1e20").startswith("Too large")
    assert judge("shape", "(4, 128256)") == "Not this: the result has three axes."
    assert judge("shape", "what") == "A shape is a list of sizes, such as (1, 2, 3)."
    assert judge("weight", "two cows").startswith("Type a number")


def test_broadcasting_agrees_with_numpy(page: Page) -> None:
    rng = np.random.default_rng(26)
    sizes = np.array([0, 1, 1, 1, 2, 3, 3])
    pairs = [
        [[int(n) for n in rng.choice(sizes, size=rng.integers(0, 5))] for _ in range(2)] for _ in range(1200)
    ]
    found = page.evaluate("pairs => pairs.map(([a, b]) => labsupport.logic.broadcast.broadcast(a, b))", pairs)
    failures = 0
    for (a, b), got in zip(pairs, found, strict=True):
        try:
            want: list[int] | None = list(np.broadcast_shapes(tuple(a), tuple(b)))
        except ValueError:
            want = None
            failures += 1
            axis = got["fails"]
            assert a[axis] != b[axis]
            assert 1 not in (a[axis], b[axis])
        assert got["shape"] == want, (a, b)
        assert (got["fails"] is None) == (want is not None)
        assert len(got["steps"]) == max(len(a), len(b))
    assert 200 < failures < 1000


def test_shapes_are_read_as_people_write_them(page: Page) -> None:
    texts = ["(8, 1, 3)", "8,1,3", "8 1 3", "[8, 1, 3,]", "()", "", "8, -1", "a, b", "1.5"]
    got = page.evaluate("list => list.map(text => labsupport.logic.broadcast.parse(text))", texts)
    assert got == [[8, 1, 3]] * 4 + [[], [], None, None, None]


def test_the_player_stays_inside_its_list(page: Page) -> None:
    moves = [[0, -1, 3], [0, 1, 3], [2, 1, 3]]
    assert page.evaluate("list => list.map(m => labsupport.logic.steps.move(...m))", moves) == [0, 1, 2]

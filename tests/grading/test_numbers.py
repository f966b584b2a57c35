"""Numbers with units: every spelling of the right one passes, every slip is told by its name."""

import time
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labsupport.grading import Mistake, Number, units
from labsupport.grading.judge import judge

GIB = 2**30


def number(**fields):
    common = {"id": "a-number", "chapter": 10, "section": "10.2", "title": "t", "prompt": "How much?", "hints": ("h",)}
    return Number(**common, **fields)


KV = number(
    expected=1.5 * GIB,
    unit="B",
    exact=True,
    default_unit="B",
    mistakes=(Mistake(name="one-cache", answer="0.75 GiB", message="K and V are two tensors."),),
)
FLOPS = number(expected=137_438_953_472, unit="FLOP", exact=True)
RATIO = number(expected=1365.333, unit="FLOP/B", rtol=1e-3)
PLAIN = number(expected=8.25, unit="1", rtol=1e-3)
SHARE = number(expected=0.0039, unit="1", rtol=0.01)
TIME = number(expected=2.5e-3, unit="s", rtol=1e-2)


@pytest.mark.parametrize(
    "answer",
    [
        "1.5 GiB", "1.5GiB", " 1.5  GiB ", "1536 MiB", "1572864 KiB", "1610612736 B", "1,610,612,736 bytes",
        "1_610_612_736", "1.610612736 GB", "1610612.736 kB", "12884901888 bit", "12 Gibit", "1.5e0 GiB",
        "+1.5 GiB", ("1.5", "GiB"), (1.5, "GiB"), [1.5, "GiB"], (np.float32(1.5), "GiB"), 1610612736,
        1610612736.0, np.int64(1610612736), np.float64(1610612736), np.array(1610612736), Fraction(1610612736),
        Decimal(1610612736), np.prod([3, 2**29]), "1 610 612 736",
    ],
)  # fmt: skip
def test_every_spelling_of_the_right_number_passes(answer):
    assert judge(KV, answer).state == "pass", judge(KV, answer)


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        (FLOPS, "137438953472 FLOP"),
        (FLOPS, "137.438953472 GFLOPs"),
        (FLOPS, (2 * 4096**3, "FLOP")),
        (FLOPS, (np.float64(2 * 4096**3), "flop")),
        (RATIO, "1365.33 FLOP/B"),
        (RATIO, (1365.33, "FLOP/byte")),
        (RATIO, "1.36533 kFLOP/B"),
        (RATIO, "1.398 MFLOP/KiB"),
        (PLAIN, 8.25),
        (PLAIN, "8.25"),
        (PLAIN, np.float16(8.25)),
        (PLAIN, "825 %"),
        (SHARE, "0.39 %"),
        (SHARE, "3.9e-3"),
        (SHARE, "3.9 × 10^-3"),
        (TIME, "2.5 ms"),
        (TIME, "2500 µs"),
        (TIME, "2500 us"),
        (number(expected=8388608, unit="1", exact=True), 8388608.0),
        (number(expected=4 * 1024 * 1024 * 2, unit="FLOP", exact=True), (np.prod([4, 1024, 1024]) * 2, "FLOP")),
        (number(expected=312e12, unit="FLOP/s"), "312 TFLOPS"),
        (number(expected=312e12, unit="FLOP/s"), "312 TFLOP/s"),
        (number(expected=2e12, unit="B/s"), "2 TB/s"),
        (number(expected=16, unit="B/parameter", exact=True), "16 bytes/parameter"),
        (number(expected=0.0, unit="1"), 0),
        (number(expected=10**30, unit="1", exact=True), 10**30),
    ],
)
def test_units_are_read(record, answer):
    assert judge(record, answer).state == "pass", judge(record, answer)


SMALL = number(expected=2.0**-24, unit="1", rtol=1e-6)
SAMPLES = number(expected=512, unit="1", exact=True)


@pytest.mark.parametrize(
    ("record", "answer"),
    [
        (SMALL, "2^-24"), (SMALL, "2**-24"), (SMALL, "2^(-24)"), (SMALL, "2^{-24}"), (SMALL, "2⁻²⁴"), (SMALL, "2^−24"),
        (SMALL, "1/16777216"), (SMALL, "1 / 2^24"), (SMALL, "≈ 5.9604645e-8"), (SMALL, "~5.9604645·10⁻⁸"),
        (SMALL, "5.9604645 × 10^-8"), (KV, "1.5 * 2**30 B"), (KV, "3 × 2^29"), (KV, "3·2²⁹ bytes"), (KV, "= 1.5 GiB"),
        (KV, "1'610'612'736 B"), (KV, "1.5 gibibytes"), (KV, "1536 mebibytes"), (KV, "1610612.736 kilobytes"),
        (KV, "1610612736 Bytes"), (FLOPS, "137.438953472 gigaflops"), (PLAIN, "33/4"),
        (PLAIN, "8.25x"), (PLAIN, "8.25 ×"), (PLAIN, "8.25 times"),
        (PLAIN, "825 percent"), (PLAIN, "8.25 nats"), (TIME, "2.5 milliseconds"), (RATIO, "4096/3 FLOP/B"),
    ],
)  # fmt: skip
def test_powers_fractions_and_units_in_words_are_read(record, answer):
    assert judge(record, answer).state == "pass", judge(record, answer)


@pytest.mark.parametrize("text", ["512 samples", "512 Samples", "512 sample", "512 tokens", "2^9 samples"])
def test_a_number_without_a_unit_may_name_what_it_counts_in_the_words_of_the_question(text):
    asked = replace(SAMPLES, prompt="How many samples (of one token each) are due?")
    assert judge(asked, text).state == "pass", judge(asked, text)
    assert judge(SAMPLES, text).state == "fail"
    assert judge(asked, text.replace("512", "511").replace("2^9", "2^8")).state == "fail"


def test_no_text_costs_more_than_a_moment():
    start = time.monotonic()
    for text in ("9^9999 B", "9" * 190 + "^9", "*".join(["9e400"] * 30), "1/" * 90 + "1", "2^5000", "1,111" * 38):
        judge(PLAIN, text)
    assert time.monotonic() - start < 1


@pytest.mark.parametrize(
    ("record", "answer", "words"),
    [
        (KV, "1.5", "ten times too small"),
        (FLOPS, 137_438_953_472, "state the unit"),
        (KV, "1.5 FLOP", "measures computation; a quantity of memory is due"),
        (KV, "1.5 s", "measures time"),
        (RATIO, "1365 FLOP", "computation; a quantity of computation per memory"),
        (KV, "1.5 gib", "is not known. Did you mean GiB"),
        (KV, "1.5 furlong", '"furlong" is not known'),
        (KV, ("1.5 GiB", "B"), "given twice"),
        (KV, "", "empty"),
        (KV, "  ", "empty"),
        (KV, "GiB", "does not start with a number"),
        (KV, "about 1.5 GiB", "does not start with a number"),
        (KV, "1,5 GiB", "a decimal point, not a comma"),
        (KV, "0,500 GiB", "a decimal point, not a comma"),
        (KV, "1 2 GiB", "goes on with another"),
        (KV, "1-2 GiB", "goes on with another"),
        (KV, "1.5 ± 0.1 GiB", "goes on with another"),
        (KV, "1/0 GiB", "infinity"),
        (KV, "0^-1 GiB", "infinity"),
        (KV, "9^99999 B", "exponent"),
        (KV, "2^9999999999 B", "exponent"),
        (PLAIN, "8.25 bananas", "is not known"),
        (PLAIN, "8.25 tokens", "measures tokens; a quantity of no unit is due"),
        (PLAIN, "8.25 bytes", "measures memory; a quantity of no unit is due"),
        (KV, "1e999999999 B", "exponent"),
        (KV, "9" * 300, "does not start"),
        (KV, Decimal("1e999999"), "exponent"),
        (KV, float("nan"), "NaN"),
        (KV, Decimal("nan"), "NaN"),
        (KV, float("inf"), "infinity"),
        (KV, "nan B", "does not start"),
        (KV, True, "truth value"),
        (KV, np.True_, "truth value"),
        (KV, None, "you passed None"),
        (KV, 1j, "complex"),
        (KV, np.array([1.0]), "you passed an array"),
        (KV, (1, 2, 3), "pair"),
        (KV, (1, 2), "pair"),
        (KV, lambda: 1, "you passed a function"),
        (KV, -1.5 * GIB, "sign"),
        (KV, "1.51 GiB", "close, but not exact"),
        (KV, "1.5 GiB/s", "memory per time"),
        (PLAIN, 8.3, "more than 0.1 %"),
        (PLAIN, 8.25e9, "ten times too large"),
        pytest.param(PLAIN, 10**5000, "ten times too large", id="an int of 5001 digits"),
        (PLAIN, 9, "too large"),
        (PLAIN, 0, "too small"),
    ],
)
def test_a_wrong_number_is_told_why(record, answer, words):
    verdict = judge(record, answer)
    assert verdict.state == "fail", verdict
    assert words in verdict.message, verdict


@pytest.mark.parametrize(
    ("record", "answer", "slip"),
    [
        (FLOPS, "68.719476736 GFLOP", "multiply-add"),
        (FLOPS, "274.877906944 GFLOP", "multiply-add"),
        (FLOPS, "412.316860416 GFLOP", "forward-backward"),
        (KV, "12 GiB", "bits"),
        (KV, "0.1875 GiB", "bits"),
        (KV, "1.5 GB", "binary-prefix"),
        (KV, "1.5 MB", None),
        (KV, "3 GiB", "factor-two"),
        (KV, "6 GiB", "four-bytes"),
        (KV, "1.5 TiB", "prefix"),
        (KV, "0.75 GiB", "one-cache"),
        (SHARE, 0.39, "percent"),
        (SHARE, "0.0039 %", "percent"),
        (number(expected=3e12, unit="B", rtol=0.01), "3 TiB", "binary-prefix"),
    ],
)
def test_a_slip_is_named_by_its_ratio(record, answer, slip):
    verdict = judge(record, answer)
    assert (verdict.state, verdict.mistake) == ("fail", slip), verdict


@pytest.mark.parametrize("wrong", [0.99, 0.995, 1.005, 1.01])
def test_half_a_per_cent_is_wrong(wrong):
    assert judge(PLAIN, 8.25 * wrong).state == "fail"


@given(
    st.fractions(min_value=0, max_value=10**6),
    st.sampled_from(["B", "KB", "GiB", "PiB", "FLOP", "GFLOP/s", "token/s", "ms"]),
)
def test_a_number_survives_being_written_and_read(value, unit):
    from labsupport.grading.number import quantity, read

    scaled = round(value, 6)
    text = f"{Decimal(scaled.numerator) / Decimal(scaled.denominator):f} {unit}"
    assert read(text, None, units.parse_unit(unit).dimension) == quantity(scaled, unit)


@given(st.text(max_size=20))
def test_any_text_is_an_answer(text):
    assert judge(KV, text).state in ("pass", "fail")


def test_powers_of_1000_and_of_1024_are_never_mixed_up():
    assert units.parse_unit("KiB").size == 1024
    assert units.parse_unit("KB").size == units.parse_unit("kB").size == 1000
    assert units.parse_unit("TiB").size == 1024**4
    assert units.parse_unit("GB").size == 10**9
    assert units.parse_unit("bit").size * 8 == units.parse_unit("B").size


def test_flops_the_rate_and_flops_the_plural():
    assert units.parse_unit("TFLOPS") == units.parse_unit("TFLOP/s")
    assert units.parse_unit("TFLOPs") == units.parse_unit("TFLOP")


class Bytes(int):
    """As in the book's cost module: a whole number whose class names its unit."""

    unit = "B"


class Clever(int):
    """Claims to be whatever it is compared with."""

    def __eq__(self, other):
        return True

    def __int__(self):
        return 1610612736

    __index__ = __trunc__ = __int__
    __hash__ = int.__hash__


def test_a_number_whose_class_states_its_unit_needs_no_other():
    without_default = number(expected=1.5 * GIB, unit="B", exact=True)
    assert judge(without_default, Bytes(1610612736)).state == "pass"
    assert judge(without_default, Bytes(1610612735)).state == "fail"
    assert judge(without_default, 1610612736).state == "fail"  # a bare number still has no unit
    assert "measures memory" in judge(FLOPS, Bytes(137_438_953_472)).message


def test_a_subclass_cannot_make_its_number_up():
    assert judge(KV, Clever(5)).state == "fail"

"""The operators behind the cards: their references are torch's, and every risk they claim really shows."""

import numpy as np
import pytest
import torch

from labsupport.operator_card import CARDS, OPERATORS, RISKS, brief
from labsupport.operator_card.counting import broadcast_axes, counted_run, torch_matmul_flops
from labsupport.operator_card.review import breaks

each = pytest.mark.parametrize("operator", [pytest.param(o, id=o.name) for o in OPERATORS.values()])
RNG = np.random.default_rng


@each
def test_reference_is_torch_and_the_textbook_steps_agree_where_they_are_safe(operator):
    inputs = operator.example(RNG(1))
    due = operator.torch(**{name: torch.as_tensor(x) for name, x in inputs.items()}).numpy()
    np.testing.assert_allclose(operator.reference(**inputs), due, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(operator.steps(**inputs)["out"], due, rtol=1e-6, atol=1e-9)


@each
def test_axes_name_the_shapes_and_sizes_name_the_axes(operator):
    inputs = operator.example(RNG(2))
    assert {name: x.shape for name, x in inputs.items()} == {
        name: tuple(operator.sizes[a] for a in axes) for name, axes in operator.inputs.items()
    }
    assert len(set(operator.sizes.values())) == len(operator.sizes)
    assert np.shape(operator.reference(**inputs)) == tuple(operator.sizes[a] for a in operator.output)


@each
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_claimed_risk_shows_and_plain_inputs_do_not_break(operator):
    for seed in range(5):
        inputs = operator.example(RNG(seed))
        assert not breaks(operator, inputs)
        for risk, change in operator.shows.items():
            assert risk in RISKS
            assert breaks(operator, change(inputs)), (risk, seed)
            assert np.isfinite(operator.reference(**change(inputs))).all()
    assert not set(operator.shows) & set(operator.excluded)


@each
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_references_and_steps_keep_the_dtype(operator, dtype):
    inputs = operator.cast(operator.example(RNG(3)), dtype)
    assert np.asarray(operator.reference(**inputs)).dtype == dtype
    assert all(np.asarray(x).dtype == dtype for x in operator.steps(**inputs).values())


def test_counting_sees_operations_reductions_and_broadcasts():
    softmax, linear = OPERATORS["softmax"], OPERATORS["linear"]
    tally = counted_run(softmax, softmax.example(RNG(0)))
    assert tally.operations == 3 * 7 + 3 * (7 - 1) + 3 * 7  # exp, sum, quotient
    assert broadcast_axes(softmax, tally) == {}
    tally = counted_run(linear, linear.example(RNG(0)))
    assert tally.operations == 3 * 5  # the bias; the product is left to torch
    assert broadcast_axes(linear, tally) == {"b": ("N",)}


def test_torch_counts_the_products():
    for name, flops in [("matmul", 2 * 3 * 5 * 7), ("linear", 2 * 3 * 7 * 5), ("softmax", 0)]:
        assert torch_matmul_flops(OPERATORS[name], OPERATORS[name].example(RNG(0))) == flops


def test_there_is_a_choice_of_eight_or_more():
    assert len(set(OPERATORS) - set(CARDS)) >= 8


def test_brief_names_what_a_card_may_refer_to():
    assert "intermediates  mean_square, normalised" in brief("rms_norm")
    assert "gamma (H)" in brief("rms_norm")
    with pytest.raises(ValueError, match="no operator 'conv'"):
        brief("conv")

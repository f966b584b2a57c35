"""The block of flash attention in steps: what is drawn is what the simulator and the book's operators say."""

import numpy as np
import pytest

from labsupport.figures import ai_infra_examples as figures
from labsupport.ops.attention import attention

Q_ROWS, KEYS, WIDTH = figures.FLASH_QUERIES, figures.FLASH_KEYS, figures.FLASH_WIDTH


@pytest.fixture(scope="module", params=[False, True], ids=["no mask", "causal"])
def watched(request):
    """A mask, the trace, the registers, and the inputs as float64, drawn as in the figure."""
    rng = np.random.default_rng(2)
    inputs = [rng.integers(-2, 3, (n, WIDTH)).astype(float) for n in (Q_ROWS, KEYS, KEYS)]
    return request.param, *figures.watched_flash(request.param), *inputs


def test_the_registers_are_the_running_state(watched):
    causal, _, seen, Q, K, V = watched
    allowed = np.tri(Q_ROWS, KEYS, KEYS - Q_ROWS, dtype=bool) | (not causal)
    scores = np.where(allowed, Q @ K.T / 2, -np.inf)
    before = np.full(Q_ROWS, -np.inf)
    for tile, registers in enumerate(seen):
        known, own = slice(0, tile * WIDTH + WIDTH), slice(tile * WIDTH, tile * WIDTH + WIDTH)
        m = scores[:, known].max(axis=1)
        p = np.exp(scores - m[:, None])
        weights = np.zeros((Q_ROWS, WIDTH))
        weights[:, : p[:, own].shape[1]] = p[:, own]  # the places beyond the last key weigh nothing
        due = [
            weights,
            m[:, None],
            np.exp(before - m)[:, None],
            p[:, known].sum(axis=1)[:, None],
            p[:, known] @ V[known],
        ]
        for k, value in enumerate(due):
            np.testing.assert_allclose(registers[..., k], np.broadcast_to(value, (Q_ROWS, WIDTH)), rtol=1e-5, atol=1e-5)
        before = m
    _, _, _, l, A = np.moveaxis(seen[-1], -1, 0)
    np.testing.assert_allclose(A / l, attention(Q, K, V, causal), rtol=1e-5, atol=1e-6)


def test_the_phases_are_load_use_load_use_and_write(watched):
    _, trace, seen, *_ = watched
    assert len(trace) == 2 * len(seen) + 1 == 7
    assert [bool(phase.barrier_line) for phase in trace] == [True] * 6 + [False]
    for number, phase in enumerate(trace):
        count = figures.accesses(phase)
        if number == len(trace) - 1:
            assert count == {"global load": 0, "global store": 32, "shared load": 0, "shared store": 0}
        elif number % 2:
            assert count == {"global load": 0, "global store": 0, "shared load": 32 * 3 * WIDTH, "shared store": 0}
        else:
            keys = min(WIDTH, KEYS - number // 2 * WIDTH)
            queries = 32 if number == 0 else 0
            assert count["global load"] == queries + 2 * keys * WIDTH
            assert count["shared store"] == queries + 2 * WIDTH * WIDTH


def test_the_values_are_read_where_the_keys_are(watched):
    _, trace, *_ = watched
    for phase in trace:
        read = {name: {s.index for s in phase.steps if s.array == name} for name in "KV"}
        assert read["K"] == read["V"]


def test_every_step_tells_something_of_its_own():
    figure = figures.flash_in_steps()
    told = {
        figure.alternative(phase=phase, thread=thread, mask=mask)
        for phase in figure.axes["phase"] for thread in figure.axes["thread"] for mask in figure.axes["mask"]
        if phase % 2 == 0
    }  # fmt: skip
    assert len(told) == 3 * 2 * 2
    assert "the maximum rises in 8 of 8 rows" in figure.alt

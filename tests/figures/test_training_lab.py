"""The loss curve grows where somebody watches, and stands still on a page."""

from typing import Any

import pytest

from labsupport.figures import explorable, training_lab
from labsupport.training import Report

LEVELS = {"uniform": 4.38, "one token": 0.93, "entropy": 0.55}


def report(loss: float) -> Report:
    return Report(loss, 1.0, {})


def test_a_live_curve_is_drawn_while_training_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(explorable, "is_live", lambda: True)
    monkeypatch.setattr("IPython.display.display", shown.append)
    seen = []
    with training_lab.LossCurve(40, LEVELS, every=10) as curve:
        assert len(shown) == 1
        for step in range(25):
            curve.add(step, report(5 - step / 10), 0.1)
            seen.append(shown[0].value)
    assert len(set(seen)) == 3  # drawn at steps 0, 10 and 20
    assert "<svg" in shown[0].value
    assert shown[0].value != seen[-1]  # and at the end
    assert "falls from 5.00 to 2.60 nats in 25 steps" in shown[0].value
    assert len(shown) == 1


def test_a_page_gets_one_still_figure_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(explorable, "is_live", lambda: False)
    monkeypatch.setattr("IPython.display.display", shown.append)
    with training_lab.LossCurve(3, LEVELS) as curve:
        for step in range(3):
            curve.add(step, report(4.0 - step), 0.1)
            assert shown == []
    assert len(shown) == 1
    assert shown[0].alt.startswith("The training loss falls from 4.00 to 2.00 nats in 3 steps")
    for name, level in LEVELS.items():
        assert f"{name}: {level:.2f}" in shown[0].html


def interrupted(curve: training_lab.LossCurve) -> None:
    with curve:
        curve.add(0, report(4.0), 0.1)
        curve.add(1, report(3.0), 0.1)
        raise KeyboardInterrupt


def test_an_interrupted_run_shows_what_it_has_only_live(monkeypatch: pytest.MonkeyPatch) -> None:
    for live in (True, False):
        shown: list[Any] = []
        monkeypatch.setattr(explorable, "is_live", lambda live=live: live)
        monkeypatch.setattr("IPython.display.display", shown.append)
        curve = training_lab.LossCurve(10, LEVELS)
        with pytest.raises(KeyboardInterrupt):
            interrupted(curve)
        assert len(shown) == (1 if live else 0)
        assert not live or "in 2 steps" in shown[0].value


def test_a_curve_without_a_step_says_so() -> None:
    with pytest.raises(ValueError, match="no step has been taken"):
        training_lab.LossCurve(3, LEVELS).figure()


def test_labels_are_the_tokens_one_place_on() -> None:
    figure = training_lab.shifted_labels(["the", "cat", "eats"])
    assert figure.alt.endswith("one place to the left: the is asked for cat, cat is asked for eats.")
    assert figure.html.count(">cat</text>") == 2

"""`show` and `explore`: what they write, what they refuse, and what a live kernel gets on top."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from labsupport.figures import explorable, explore, show, style, svg


def bars(T: float, k: int = 1) -> Any:
    fig, ax = style.new(5, 3)
    z = np.array([2.0, 1.0, -1.0])
    p = np.exp(z / T) / np.exp(z / T).sum()
    ax.bar([0, 1, 2], p)
    ax.axvline(k)
    ax.set_ylim(0, 1)
    return fig


def data(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json">(.*)</script>', text)
    assert found
    return json.loads(found[1])


def rebuilt(text: str, frame: int) -> str:
    held = data(text)
    return "".join(held["parts"][part] for part in held["frames"][frame])


def test_importing_the_figures_loads_nothing_heavy() -> None:
    code = (
        "import sys, labsupport.figures; "
        "print([m for m in ('matplotlib', 'ipywidgets', 'IPython', 'torch', 'triton') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"


def test_a_still_figure_has_role_alt_and_caption() -> None:
    text = show(bars(1.0), alt="Three bars", caption="Low `T` & $T$ < 1").html
    assert 'role="img" aria-label="Three bars"' in text
    assert "<figcaption" in text
    assert r"Low <code>T</code> &amp; \(T\) &lt; 1" in text
    assert "<figcaption" not in show(bars(1.0), alt="Three bars").html


def test_the_start_frame_is_drawn_and_every_frame_is_there() -> None:
    axes = {"T": [0.5, 1.0, 2], "k": [1, 2]}
    made = explore(bars, alt="T {T:.2f}, k {k}", start={"T": 1.0}, labels={"T": "temperature T"}, **axes)
    held = data(made.html)
    assert held["axes"] == [
        {"label": "temperature T", "values": ["0.5", "1", "2"]}, {"label": "k", "values": ["1", "2"]}
    ]
    assert held["start"] == [1, 0]
    assert held["alts"][2] == "T 1.00, k 1"
    assert len(held["frames"]) == 6
    assert len({tuple(frame) for frame in held["frames"]}) == 6
    assert f">{rebuilt(made.html, 2)}</svg>" in made.html
    assert "temperature T: 1, k: 1" in made.html


def test_frames_share_their_common_parts() -> None:
    one = len(explore(bars, alt="{T}", T=[0.5]).html)
    five = len(explore(bars, alt="{T}", T=list(np.linspace(0.5, 5, 5))).html)
    assert five < 2.5 * one


def test_alt_may_be_computed_and_a_figure_may_be_svg_text() -> None:
    made = explore(
        lambda n: svg.picture(90, 40, svg.box(5, 5, 30 * n, 30, f"<{n}>")), alt=lambda n: f"{2 * n} boxes", n=[1, 2]
    )
    assert data(made.html)["alts"] == ["2 boxes", "4 boxes"]
    assert "&lt;2&gt;" in rebuilt(made.html, 1)
    assert repr(made) == "2 boxes"


def test_script_data_cannot_end_its_script() -> None:
    made = explore(lambda n: svg.picture(9, 9, svg.rect(0, 0, 9, 9)), alt="</script><!-- {n}", n=[1])
    inside = made.html.partition("application/json")[2]
    assert inside.count("</script>") == 1
    assert "<!--" not in inside
    assert data(made.html)["alts"] == ["</script><!-- 1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alt": "a"}, "needs at least one axis"),
        ({"alt": "a", "T": []}, "axis T is empty"),
        ({"alt": "a", "T": "abc"}, "axis T needs a sequence of values, got str"),
        ({"alt": "a", "T": 3}, "axis T needs a sequence of values, got int"),
        ({"alt": " ", "T": [1]}, "needs alt text"),
        ({"alt": lambda T: "", "T": [1]}, "needs alt text"),
        ({"alt": "{k}", "T": [1]}, "alt names 'k', which is no axis"),
        ({"alt": "a", "T": [1], "start": {"T": 2}}, "start T=2 is not among its values"),
        ({"alt": "a", "T": [1], "start": {"k": 2}}, "start names k, but the axes are T"),
        ({"alt": "a", "T": [1], "labels": {"k": "x"}}, "labels names k, but the axes are T"),
        ({"alt": "a", "T": range(1, 50), "k": range(50)}, "2450 frames, more than 400"),
    ],
)
def test_a_wrong_call_says_what_to_do(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        explore(bars, **arguments)


def test_a_drawing_function_without_a_figure_is_named_with_its_values() -> None:
    with pytest.raises(ValueError, match=r"returned nothing for T=1; end it with `return fig`"):
        explore(lambda T: None, alt="a", T=[1])
    with pytest.raises(ValueError, match="got int"):
        explore(lambda T: 3, alt="a", T=[1])


def test_missing_alt_text_of_a_still_figure() -> None:
    with pytest.raises(ValueError, match="needs alt text"):
        show(bars(1.0), alt="")


def test_frames_of_two_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="all frames of a figure need one size"):
        explore(lambda n: svg.picture(n, 9, svg.rect(0, 0, 9, 9)), alt="a", n=[10, 20])


def test_a_figure_that_weighs_too_much_says_so() -> None:
    def heavy(n: int) -> str:
        return svg.picture(900, 900, *[svg.rect(i, n, 5, 5) for i in range(900)])

    with pytest.raises(ValueError, match=r"weighs [\d,]+ bytes in 8 frames, more than 250,000"):
        explore(heavy, alt="a", n=range(8))


def test_pyplot_figures_are_closed() -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    def draw(n: int) -> Any:
        fig, ax = pyplot.subplots()
        ax.plot([0, n])
        return fig

    explore(draw, alt="{n}", n=[1, 2])
    show(draw(1), alt="a")
    assert pyplot.get_fignums() == []


def test_the_static_switch_leaves_only_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABSUPPORT_STATIC", "1")
    assert not explorable.is_live()
    assert set(explore(bars, alt="a", T=[1])._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_a_live_kernel_gets_sliders_that_call_python_and_the_twin() -> None:
    """Runs in a real kernel: moving a slider there draws anew."""
    import nbclient
    import nbformat

    source = """
import os; os.environ.pop("LABSUPPORT_STATIC", None)
from labsupport.figures import explore, steps, style, svg
calls = []
def draw(T):
    calls.append(T)
    return svg.picture(90, 40, svg.box(5, 5, 30, 30, str(T)))
figure = explore(draw, alt="T is {T}", caption="c", T=[1, 2, 3]); figure
"""
    move = """
slider, stage = figure.controls.children
before, count = stage.value, len(calls)
slider.value = 2
print(calls[count:], 'aria-label="T is 3"' in stage.value, before != stage.value)
"""
    player = 'steps([("One", "first.", svg.picture(9, 9, svg.rect(0, 0, 9, 9)))], alt="player")'
    cells = [nbformat.v4.new_code_cell(text) for text in (source, move, player)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=90, kernel_name="python3").execute()
    bundle = notebook.cells[0].outputs[-1]["data"]
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "data-explore" in bundle["text/html"]
    assert notebook.cells[1].outputs[0]["text"].strip() == "[3] True True"
    live = notebook.cells[2].outputs[0]["data"]["text/html"]
    assert 'class="lab-steps"' in live
    assert "window.labsupport = {" in live

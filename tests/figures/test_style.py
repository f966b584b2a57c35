"""The palette must be readable on both grounds and to colour-blind readers; the style must not leak."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from labsupport.figures import style

ROOT = Path(__file__).resolve().parents[2]
CSS = (ROOT / "book" / "_static" / "explore.css").read_text(encoding="utf-8")
WHITE, DARK = "#ffffff", "#14181e"
# Machado, Oliveira and Fernandes 2009, severity 1.0.
VISION = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    high, low = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def from_css(selector: str) -> dict[str, str]:
    block = CSS[CSS.index(selector) :].partition("}")[0]
    return dict(re.findall(r"--lab-(blue|orange|green|purple|red|grey): (#[0-9a-f]{6})", block))


THEMES = {
    "fallback": style.PALETTE._asdict(), "light": from_css(":root"), "dark": from_css('html[data-theme="dark"]')
}


def test_midtones_reach_three_to_one_on_both_grounds() -> None:
    for name, colour in style.PALETTE._asdict().items():
        assert min(contrast(colour, WHITE), contrast(colour, DARK)) >= 3, name


@pytest.mark.parametrize(("theme", "ground"), [("light", WHITE), ("dark", DARK)])
def test_the_stylesheet_gives_text_in_palette_colours_four_and_a_half(theme: str, ground: str) -> None:
    assert set(THEMES[theme]) == set(style.PALETTE._fields)
    for name, colour in THEMES[theme].items():
        assert contrast(colour, ground) >= 4.5, name


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISION)
def test_any_two_colours_differ_in_every_kind_of_vision(theme: str, vision: str) -> None:
    seen = {name: lab(VISION[vision] @ linear(colour)) for name, colour in THEMES[theme].items()}
    closest = min((float(np.linalg.norm(seen[a] - seen[b])), a, b) for a, b in itertools.combinations(seen, 2))
    assert closest[0] >= 7, closest


def test_lines_differ_by_dashes_as_well() -> None:
    _, ax = style.new(4, 3)
    for i in range(6):
        ax.plot([0, 1], [i, i])
    dashes = {str(line.get_linestyle()) + str(line._unscaled_dash_pattern) for line in ax.lines}
    assert len(dashes) == 6


def test_the_style_holds_for_artists_made_later_and_leaves_the_reader_alone() -> None:
    before = dict(matplotlib.rcParams)
    _, ax = style.new(4, 3)
    (line,) = ax.plot([0, 1])
    legend = ax.legend([line], ["x"])
    assert line.get_linewidth() == style.SETTINGS["lines.linewidth"]
    assert legend.get_frame().get_edgecolor()[3] == 0
    assert dict(matplotlib.rcParams) == before


def test_several_panels_and_a_bad_size() -> None:
    fig, axes = style.new(6, 3, 1, 2, sharey=True)
    assert len(axes) == len(fig.axes) == 2
    with pytest.raises(ValueError, match="width=0 and height=3"):
        style.new(0, 3)


def test_long_logarithmic_axes_lose_their_minor_ticks_and_short_ones_keep_them() -> None:
    fig, ax = style.new(4, 3)
    ax.loglog([1, 100], [1, 1e6])
    style.settle(fig)
    assert len(ax.xaxis.get_minorticklocs()) > 0
    assert len(ax.yaxis.get_minorticklocs()) == 0
    assert len(ax.yaxis.get_majorticklocs()) > 3

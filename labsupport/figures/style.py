"""The one look of every figure: sizes, fonts and a palette that colour-blind readers can tell apart.

Black means "the colour of the page's text", so that a figure reads in light and in dark.
This file never draws anything and never touches matplotlib's global state outside `context`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Palette(NamedTuple):
    """Six mid-tones: contrast of at least 3:1 on white and on the book's dark ground.

    The book's stylesheet deepens each of them in light and brightens it in dark
    (`--lab-blue` and so on), which gives text in these colours 4.5:1.
    """

    blue: str = "#3a90e8"
    orange: str = "#dd6b00"
    green: str = "#0f9a72"
    purple: str = "#8745c9"
    red: str = "#c4304f"
    grey: str = "#858b92"


PALETTE = Palette()

#: Dash patterns that go with the colours, so that a line never speaks by colour alone.
DASHES = ("-", (0, (5, 1.8)), (0, (1.2, 1.5)), (0, (6, 1.6, 1.2, 1.6)), (0, (3, 1.2)), (0, (8, 2)))

#: matplotlib settings of the book. The hash salt makes the ids of an SVG repeatable.
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "labsupport",
    "font.family": "DejaVu Sans",
    "font.size": 13,
    "axes.titlesize": 14,
    "axes.labelsize": 13,
    "legend.fontsize": 12,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": True,
    "legend.facecolor": "#ffffff",
    "legend.edgecolor": "none",
    "legend.framealpha": 0.8,
    "legend.fancybox": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#808080",
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "lines.linewidth": 2.0,
    "lines.markersize": 6,
    "path.simplify": True,
    "path.simplify_threshold": 0.2,
    "text.color": "#000000",
    "axes.edgecolor": "#000000",
    "axes.labelcolor": "#000000",
    "xtick.color": "#000000",
    "ytick.color": "#000000",
}

#: Methods that make artists: matplotlib reads its settings when they are called, not when a figure is made.
FIGURE_METHODS = ("colorbar", "legend", "suptitle", "supxlabel", "supylabel", "text")
AXES_METHODS = (
    "annotate", "axhline", "axhspan", "axline", "axvline", "axvspan", "bar", "bar_label", "barh", "boxplot", "contour",
    "contourf", "errorbar", "fill_between", "fill_betweenx", "hist", "hlines", "imshow", "legend", "loglog",
    "pcolormesh", "plot", "scatter", "semilogx", "semilogy", "set_title", "set_xlabel", "set_xticks", "set_ylabel",
    "set_yticks", "stairs", "stem", "step", "text", "vlines",
)


#: Whether the settings are in place already: entering them again would only cost time.
_HELD: ContextVar[bool] = ContextVar("labsupport_style_held", default=False)


@contextmanager
def context() -> Iterator[None]:
    """Hold matplotlib to the book's settings inside the `with` block, then put the reader's back."""
    import matplotlib
    from cycler import cycler

    if _HELD.get():
        yield
        return
    cycle = cycler(color=list(PALETTE), linestyle=list(DASHES))
    settings: Any = {**SETTINGS, "axes.prop_cycle": cycle}
    token = _HELD.set(True)
    try:
        with matplotlib.rc_context(settings):
            yield
    finally:
        _HELD.reset(token)


def new(width: float = 5.2, height: float = 3.6, nrows: int = 1, ncols: int = 1, **subplots: Any) -> tuple[Figure, Any]:
    """Return `(fig, ax)`, or `(fig, axes)` for several panels, in the book's style.

    `width` and `height` are inches of 72 units; keep the width at or below 5.2 so that text stays
    readable on a phone. Other keywords go to `Figure.subplots` (`sharex`, `width_ratios`, ...).
    The figure is not registered with pyplot, so nothing has to be closed.
    """
    from matplotlib.figure import Figure

    if width <= 0 or height <= 0:
        raise ValueError(f"a figure needs a positive size in inches, got width={width} and height={height}")
    with context():
        fig = Figure(figsize=(width, height), layout="constrained")
        axes = fig.subplots(nrows, ncols, **subplots)
    _hold(fig, FIGURE_METHODS)
    for ax in fig.axes:
        _hold(ax, AXES_METHODS)
    return fig, axes


def settle(fig: Any) -> None:
    """Leave out the minor ticks of a logarithmic axis over more than three decades: they halve a figure's weight."""
    from matplotlib.ticker import NullLocator

    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            if axis.get_scale() == "log" and low > 0 and high / low > 1e3:
                axis.set_minor_locator(NullLocator())


def _hold(owner: Any, names: tuple[str, ...]) -> None:
    """Let the named methods of a figure or axes read the book's settings, wherever they are called from."""
    for name in names:
        setattr(owner, name, _in_context(getattr(owner, name)))


def _in_context(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with context():
            return method(*args, **kwargs)

    return inside

"""Figures of the book: one that stands still (`show`) and one with sliders (`explore`).

In a live kernel the sliders of `explore` call Python; the same output carries a twin of pre-rendered
frames that a small classic script switches on a page without a kernel. Nothing here draws by itself,
and no output may depend on time, machine or hash order.
"""

from __future__ import annotations

import html
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from labsupport.figures import compact, style

#: Most bytes of HTML one explorable figure may weigh on a page.
BYTE_LIMIT = 250_000
#: Most frames one explorable figure may have.
FRAME_LIMIT = 400

Draw = Callable[..., Any]
Alt = str | Callable[..., str]


def is_live() -> bool:
    """Return whether a kernel is running this code and the static twin alone has not been asked for."""
    if os.environ.get("LABSUPPORT_STATIC"):
        return False
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class Displayable:
    """Something a notebook shows as HTML. `html` is the whole output."""

    html: str
    alt: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/html": self.html, "text/plain": self.alt}

    def __repr__(self) -> str:
        return self.alt


class Figure(Displayable):
    """One still figure as HTML."""

    def __init__(self, html: str, alt: str) -> None:
        self.html = html
        self.alt = alt


def show(fig: Any, alt: str, caption: str = "") -> Figure:
    """Return one still figure for display: `fig` is a matplotlib Figure or an SVG string.

    `alt` says in words what is to be seen; `caption` stands below the picture (`code` in backticks
    and `$maths$` are set). The matplotlib figure is closed. Raises ValueError for an empty `alt` and
    for a drawing that is neither.
    """
    alt = _alternative(alt, {})
    drawn = compact.named([compact.picture(fig)], alt)[0]
    body = compact.markup(drawn, alt)
    return Figure(f'<figure class="lab-figure">{body}{figcaption(caption)}</figure>', alt)


def figcaption(caption: str) -> str:
    """Return the caption as HTML, or nothing for an empty one."""
    if not caption.strip():
        return ""
    return f'<figcaption class="tex2jax_process">{inline(caption)}</figcaption>'


def inline(text: str) -> str:
    r"""Escape `text` for HTML, set `code` in backticks as code and `$maths$` as `\(maths\)`, which MathJax reads."""
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
    return re.sub(r"\$([^$]+)\$", r"\\(\1\\)", escaped)


def _alternative(alt: Alt, values: Mapping[str, Any]) -> str:
    """Return the alternative text for these axis values; ValueError when there is none."""
    if callable(alt):
        text = alt(**values)
    elif values and isinstance(alt, str):
        try:
            text = alt.format(**{name: _Shown(value) for name, value in values.items()})
        except (KeyError, IndexError) as error:
            raise ValueError(
                f"alt names {error}, which is no axis of this figure; its axes are {', '.join(values)}"
            ) from error
    else:
        text = alt
    if not isinstance(text, str) or not text.strip():
        raise ValueError("a figure needs alt text: say in one sentence what a reader who cannot see it should know")
    return " ".join(text.split())


class _Shown:
    """A value inside an alt template: `{T}` prints as on the slider, `{T:.2f}` as the format says."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else text_of(self.value)


def text_of(value: Any) -> str:
    """Return how a slider writes a value: `0.5`, `1e-05`, `float16`, `(2, 3)`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{value:g}" if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0 else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


class Explorable(Displayable):
    """A figure with one slider an axis; `explore` makes it."""

    def __init__(
        self, draw: Draw, alt: Alt, caption: str, start: Mapping[str, Any] | None,
        labels: Mapping[str, str] | None, axes: Mapping[str, Sequence[Any]],
    ) -> None:
        self.draw = draw
        self.alternative = alt
        self.caption = caption
        self.axes = _checked_axes(axes)
        self.labels = _checked_labels(labels or {}, self.axes)
        self.start = _start(start or {}, self.axes)
        self.html = self._static()
        self.alt = _alternative(alt, self._values(self.start))

    def _values(self, index: Sequence[int]) -> dict[str, Any]:
        return {name: values[i] for (name, values), i in zip(self.axes.items(), index, strict=True)}

    def _picture(self, index: Sequence[int]) -> compact.Picture:
        values = self._values(index)
        with style.context():
            drawing = self.draw(**values)
        if drawing is None:
            shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
            raise ValueError(f"the drawing function returned nothing for {shown}; end it with `return fig`")
        return compact.picture(drawing)

    def _static(self) -> str:
        """Return the HTML twin: the start frame drawn, every other frame as indexes into shared parts."""
        indexes = list(itertools.product(*(range(len(values)) for values in self.axes.values())))
        alts = [_alternative(self.alternative, self._values(index)) for index in indexes]
        frames = compact.named([self._picture(index) for index in indexes], "".join(alts))
        sizes = sorted({(frame.width, frame.height) for frame in frames})
        if len(sizes) > 1:
            raise ValueError(f"all frames of a figure need one size, got {sizes[0]} and {sizes[-1]}")
        table: dict[str, int] = {}
        numbered = [[table.setdefault(part, len(table)) for part in frame.parts] for frame in frames]
        data = {
            "axes": [
                {"label": self.labels[name], "values": [text_of(value) for value in values]}
                for name, values in self.axes.items()
            ],
            "start": self.start, "parts": list(table), "frames": numbered, "alts": alts,
        }
        first = indexes.index(tuple(self.start))
        text = (
            f'<figure class="lab-figure" data-explore>{compact.markup(frames[first], alts[first])}'
            f'<p class="lab-values">{html.escape(self._setting(self.start))}</p>{figcaption(self.caption)}'
            f'<script type="application/json">{script_json(data)}</script></figure>'
        )
        if len(text.encode()) > BYTE_LIMIT:
            raise ValueError(
                f"this figure weighs {len(text.encode()):,} bytes in {len(frames)} frames, more than {BYTE_LIMIT:,}; "
                "give its axes fewer values, or draw fewer points"
            )
        return text

    def _setting(self, index: Sequence[int]) -> str:
        pairs = zip(self.labels.values(), self._values(index).values(), strict=True)
        return ", ".join(f"{label}: {text_of(value)}" for label, value in pairs)

    @cached_property
    def controls(self) -> Any:
        """The ipywidgets twin: one SelectionSlider an axis above a picture that Python draws."""
        import ipywidgets

        sliders = [
            ipywidgets.SelectionSlider(
                options=[(text_of(value), i) for i, value in enumerate(values)], value=begin,
                description=self.labels[name], style={"description_width": "initial"},
                layout=ipywidgets.Layout(width="95%", max_width="32rem"),
            )
            for (name, values), begin in zip(self.axes.items(), self.start, strict=True)
        ]
        stage = ipywidgets.HTML()

        def redraw(_change: Any = None) -> None:
            index = [slider.value for slider in sliders]
            alt = _alternative(self.alternative, self._values(index))
            drawn = compact.named([self._picture(index)], alt)[0]
            stage.value = f'<figure class="lab-figure">{compact.markup(drawn, alt)}{figcaption(self.caption)}</figure>'

        for slider in sliders:
            slider.observe(redraw, names="value")
        redraw()
        return ipywidgets.VBox([*sliders, stage])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_()
        if is_live():
            view = "application/vnd.jupyter.widget-view+json"
            bundle[view] = self.controls._repr_mimebundle_()[view]
        return bundle


def script_json(data: Any) -> str:
    """Return compact JSON that is safe inside a `<script>` element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def _checked_axes(axes: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    if not axes:
        raise ValueError("explore needs at least one axis, for example explore(draw, alt=..., temperature=[0.5, 1, 2])")
    found: dict[str, list[Any]] = {}
    for name, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ValueError(f"axis {name} needs a sequence of values, got {type(values).__name__}")
        found[name] = list(values)
        if not found[name]:
            raise ValueError(f"axis {name} is empty; give it at least one value")
    frames = 1
    for values in found.values():
        frames *= len(values)
    if frames > FRAME_LIMIT:
        raise ValueError(f"this figure would have {frames} frames, more than {FRAME_LIMIT}; give its axes fewer values")
    return found


def _checked_labels(labels: Mapping[str, str], axes: Mapping[str, Any]) -> dict[str, str]:
    unknown = sorted(set(labels) - set(axes))
    if unknown:
        raise ValueError(f"labels names {', '.join(unknown)}, but the axes are {', '.join(axes)}")
    return {name: labels.get(name, name.replace("_", " ")) for name in axes}


def _start(start: Mapping[str, Any], axes: Mapping[str, list[Any]]) -> list[int]:
    unknown = sorted(set(start) - set(axes))
    if unknown:
        raise ValueError(f"start names {', '.join(unknown)}, but the axes are {', '.join(axes)}")
    index = []
    for name, values in axes.items():
        if name in start and start[name] not in values:
            raise ValueError(f"start {name}={start[name]!r} is not among its values {values}")
        index.append(values.index(start[name]) if name in start else 0)
    return index


def explore(
    draw: Draw, *, alt: Alt, caption: str = "", start: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None, **axes: Sequence[Any],
) -> Explorable:
    """Return a figure with one slider for each axis: `explore(draw, alt="...{T}...", T=[0.5, 1, 2])`.

    `draw(**values)` returns a matplotlib Figure or an SVG string; every frame has the same size.
    `alt` is a template with the axis names in braces, or a function of the values. `start` gives the
    values of the first frame (else the first of each axis), `labels` the words beside the sliders.
    Raises ValueError for an empty axis, a drawing function that returns no figure, missing alt text,
    and a figure heavier than `BYTE_LIMIT`.
    """
    return Explorable(draw, alt, caption, start, labels, axes)

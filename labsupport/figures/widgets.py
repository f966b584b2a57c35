"""Interactive widgets of the book: a figure whose script takes over where scripts run.

Each wrapper works out in Python what a reader without JavaScript sees. The scripts lie in
`book/_static/widgets`; this file knows their configuration, never their logic.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labsupport.figures import explorable
from labsupport.figures.explorable import Displayable, figcaption

#: Where the scripts lie in a checkout of the book.
STATIC = Path(__file__).resolve().parents[2] / "book" / "_static"


class Widget(Displayable):
    """A widget as HTML: its fallback, and in a live kernel its script as well."""

    def __init__(self, name: str, html: str, alt: str) -> None:
        self.name = name
        self.html = html
        self.alt = alt

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_()
        if explorable.is_live():
            bundle["text/html"] = self.html + live_assets(self.name)
        return bundle


def live_assets(name: str) -> str:
    """Return the widget's style and scripts inline, for a live notebook; nothing outside a checkout."""
    script = STATIC / "widgets" / f"{name}.js"
    if not script.is_file():
        return ""
    style = (STATIC / "explore.css").read_text(encoding="utf-8")
    scripts = [(STATIC / "explore.js").read_text(encoding="utf-8"), script.read_text(encoding="utf-8")]
    return f"<style>{style}</style>" + "".join(f"<script>{text}</script>" for text in scripts)


def widget(name: str, config: Mapping[str, Any], fallback: str, alt: str, caption: str = "") -> Widget:
    """Return a figure that the script `book/_static/widgets/<name>.js` makes interactive.

    `config` is any JSON; `fallback` is trusted HTML, read where no script runs; `alt` names the widget in one
    sentence. Raises ValueError for an empty fallback or alt, or a name that is not letters and dashes.
    """
    if not name.replace("-", "").isalpha() or name != name.lower():
        raise ValueError(f"a widget's name is lower-case letters and dashes, got {name!r}")
    if not fallback.strip():
        raise ValueError(f"widget {name} needs a fallback: what a reader without scripts sees")
    if not alt.strip():
        raise ValueError(f"widget {name} needs alt text: one sentence that says what it is for")
    data = html.escape(json.dumps(config, ensure_ascii=False, separators=(",", ":"), sort_keys=True))
    text = (
        f'<figure class="lab-figure" data-widget="{name}" data-config="{data}" data-alt="{html.escape(alt)}">'
        f'<div class="lab-fallback">{fallback}</div>{figcaption(caption)}</figure>'
    )
    if len(text.encode()) > explorable.BYTE_LIMIT:
        raise ValueError(f"widget {name} weighs {len(text.encode()):,} bytes, more than {explorable.BYTE_LIMIT:,}")
    return Widget(name, text, alt)

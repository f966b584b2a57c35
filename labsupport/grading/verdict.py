"""What a check says back: one state, one message, as plain text and as HTML.

The layout is fixed and calm, and the same answer gives the same bytes on every run, so that
executed notebooks can be compared. Everything is escaped here; nothing in this file may ever
ask a reader's object for its ``repr``.
"""

import html
import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from labsupport.grading.formulas import formula_html, formula_text

State = Literal["todo", "pass", "fail", "review", "grader-error"]
STATES: tuple[State, ...] = get_args(State)

#: Each state has a symbol and a word, so that it never hangs on colour alone.
SYMBOLS: dict[State, str] = {"todo": "○", "pass": "✓", "fail": "✗", "review": "✎", "grader-error": "⚠"}
WORDS: dict[State, str] = {
    "todo": "to do",
    "pass": "pass",
    "fail": "not right yet",
    "review": "for review",
    "grader-error": "fault of the grader",
}
#: Middle tones that keep 3:1 contrast on white and on near-black; the text itself inherits its colour.
EDGES: dict[State, str] = {
    "todo": "#7d8590",
    "pass": "#2a8f5d",
    "fail": "#cf5a3c",
    "review": "#3f7fd0",
    "grader-error": "#a06cc8",
}


@dataclass(frozen=True)
class Verdict:
    """The result of one check.

    ``message`` holds lines: the first is the finding in one sentence, the others say where it
    showed, what it probably means and where to read. ``mistake`` names the known misconception
    that was recognised, if any. ``notes`` are remarks that do not bear on the verdict.
    """

    state: State
    exercise: str
    message: str
    mistake: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True where the answer was judged right."""
        return self.state == "pass"

    def __bool__(self) -> bool:
        return self.passed

    def text(self) -> str:
        """Return the verdict as plain text: symbol, exercise and finding, then indented lines."""
        first, *rest = inline_text(self.message).split("\n")
        lines = [f"{SYMBOLS[self.state]} {self.exercise}: {first}"]
        lines += [f"  {line}" if line else "" for line in rest]
        lines += [f"  Note: {inline_text(note)}" for note in self.notes]
        return "\n".join(lines)

    def html(self) -> str:
        """Return the verdict as one escaped HTML element that says its state in words."""
        first, *rest = self.message.split("\n")
        head = (
            f'<span aria-hidden="true">{SYMBOLS[self.state]}</span> '
            f'<strong class="ls-state">{WORDS[self.state]}</strong> · '
            f"<code>{html.escape(self.exercise)}</code>: {inline_html(first)}"
        )
        parts = [f'<p class="ls-head">{head}</p>']
        parts += [f"<p>{inline_html(line)}</p>" for line in rest if line]
        parts += [f'<p class="ls-note">Note: {inline_html(note)}</p>' for note in self.notes]
        return (
            f'<div class="ls-verdict ls-{self.state}" data-exercise="{html.escape(self.exercise)}" '
            f'data-state="{self.state}" role="status" '
            f'style="border-left:4px solid {EDGES[self.state]};padding-left:0.8em;margin:0.4em 0">'
            + "".join(parts)
            + "</div>"
        )

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": self.html()}


@dataclass(frozen=True)
class Note:
    """A short text for the reader that is not a verdict: a hint, a solution, a refusal."""

    exercise: str
    title: str
    body: str

    def text(self) -> str:
        """Return the note as plain text."""
        lines = [f"  {line}" if line else "" for line in inline_text(self.body).split("\n")]
        return "\n".join([f"{self.exercise}: {self.title}", *lines])

    def html(self) -> str:
        """Return the note as one escaped HTML element; fenced code becomes a code block."""
        parts = [f'<p class="ls-head"><code>{html.escape(self.exercise)}</code>: {inline_html(self.title)}</p>']
        parts += [_block_html(block) for block in _blocks(self.body)]
        return (
            '<div class="ls-note" role="note" '
            f'style="border-left:4px solid {EDGES["review"]};padding-left:0.8em;margin:0.4em 0">'
            + "".join(parts)
            + "</div>"
        )

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": self.html()}


_MARKS = r"`([^`\n]+)`|\$\$([^$]+)\$\$|\$([^$\n]+)\$|\*\*([^*\n]+)\*\*"
_TOKENS = re.compile(_MARKS)
#: Code of one line or of a fenced block is left alone when formulas become text.
_TEXT = re.compile(r"```.*?```|" + _MARKS, re.DOTALL)
#: In a solution, which is prose, *stress* counts too; in a question it might be a product.
_PROSE = re.compile(_MARKS + r"|(?<![\w*])\*([^*\s](?:[^*\n]*[^*\s])?)\*(?![\w*])")


def inline_html(text: str, prose: bool = False) -> str:
    """Escape ``text`` and turn its `code`, $formula$ and **strong** into HTML; the rest stays text."""
    out: list[str] = []
    end = 0
    for match in (_PROSE if prose else _TOKENS).finditer(text):
        out.append(html.escape(text[end : match.start()]))
        code, display, formula, strong, *stress = match.groups()
        if code is not None:
            out.append(f"<code>{html.escape(code)}</code>")
        elif strong is not None:
            out.append(f"<strong>{inline_html(strong, prose)}</strong>")
        elif display is not None:
            out.append(_formula_html(display, display=True))
        elif formula is not None:
            out.append(_formula_html(formula, display=False))
        else:
            out.append(f"<em>{inline_html(stress[0], prose)}</em>")
        end = match.end()
    out.append(html.escape(text[end:]))
    return "".join(out)


def _formula_html(tex: str, display: bool) -> str:
    """A formula without TeX; one beyond that is left to MathJax, where there is one."""
    try:
        shown = formula_html(tex)
    except ValueError:
        return f"\\[{html.escape(tex)}\\]" if display else f"\\({html.escape(tex)}\\)"
    return f'<span style="display:block;text-align:center">{shown}</span>' if display else shown


def inline_text(text: str) -> str:
    """Turn the $formulas$ of a text into signs that a terminal shows; everything else stays as it is."""

    def plain(match: re.Match[str]) -> str:
        code, display, formula, *_ = match.groups()
        tex = display or formula
        if code is not None or tex is None:
            return match.group()
        try:
            return formula_text(tex)
        except ValueError:
            return match.group()

    return _TEXT.sub(plain, text)


def _blocks(body: str) -> list[str]:
    """Split a markdown body at empty lines, keeping fenced code in one piece."""
    blocks: list[str] = []
    current: list[str] = []
    fenced = False
    for line in body.split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        if not line and not fenced:
            blocks.append("\n".join(current))
            current = []
        else:
            current.append(line)
    blocks.append("\n".join(current))
    return [block for block in blocks if block.strip()]


def _block_html(block: str) -> str:
    lines = block.split("\n")
    if lines[0].startswith("```"):
        return f"<pre><code>{html.escape(chr(10).join(lines[1:-1]))}</code></pre>"
    if all(line.startswith(("- ", "  ")) for line in lines):
        items = re.split(r"\n(?=- )", block)
        return "<ul>" + "".join(f"<li>{inline_html(item[2:], prose=True)}</li>" for item in items) + "</ul>"
    return f"<p>{inline_html(block, prose=True)}</p>"

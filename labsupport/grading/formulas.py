r"""Formulas that read everywhere: a line of TeX as plain HTML, and as text for a terminal.

JupyterLab typesets TeX in an output, VS Code and a terminal do not: there a reader would see ``\tfrac1H``.
The formulas of questions, hints and solutions are short, so letters, signs, powers and indices are enough. What
lies outside this small language raises ``ValueError``; a test holds every formula of the book inside it.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

#: What TeX's spacing knows about a piece: letters and numbers, signs between them, brackets, names of functions.
Kind = Literal["ord", "op", "bin", "rel", "open", "close", "punct", "space"]

ORDINARY = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "varepsilon": "ε", "epsilon": "ε", "eta": "η", "theta": "θ",
    "kappa": "κ", "lambda": "λ", "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "varphi": "φ",
    "omega": "ω", "Delta": "Δ", "Sigma": "Σ", "Omega": "Ω", "Phi": "Φ", "ell": "ℓ", "partial": "∂", "nabla": "∇",
    "infty": "∞", "top": "⊤", "prime": "′", "dots": "…", "ldots": "…", "cdots": "⋯", "|": "‖", "%": "%", "_": "_",
    "&": "&", "#": "#", "$": "$", "{": "{", "}": "}",
}  # fmt: skip
UPRIGHT = {"∂", "∇", "∞", "⊤", "′", "…", "⋯", "‖", "%", "_", "&", "#", "$", "{", "}"}
FUNCTIONS = frozenset(
    ("log", "ln", "exp", "min", "max", "sin", "cos", "tanh", "det", "rank", "Pr", "arg", "lim", "sup", "inf")
)
LARGE = {"sum": "∑", "prod": "∏", "int": "∫"}
BINARY = {
    "cdot": "·", "times": "×", "odot": "⊙", "oplus": "⊕", "pm": "±", "bmod": "mod", "cap": "∩", "cup": "∪",
    "setminus": "∖", "ast": "∗", "circ": "∘",
}  # fmt: skip
RELATIONS = {
    "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "approx": "≈", "sim": "∼", "equiv": "≡",
    "propto": "∝", "in": "∈", "notin": "∉", "subset": "⊂", "to": "→", "mapsto": "↦", "leftarrow": "←", "gets": "←",
    "rightarrow": "→", "Rightarrow": "⇒", "iff": "⇔", "mid": "|", "parallel": "‖", "ll": "≪", "gg": "≫",
}  # fmt: skip
BRACKETS: dict[str, tuple[str, Kind]] = {
    "lceil": ("⌈", "open"), "rceil": ("⌉", "close"), "lfloor": ("⌊", "open"), "rfloor": ("⌋", "close"),
    "lVert": ("‖", "open"), "rVert": ("‖", "close"), "lvert": ("|", "open"), "rvert": ("|", "close"),
    "langle": ("⟨", "open"), "rangle": ("⟩", "close"),
}  # fmt: skip
THIN = "\u2009"
SPACES = {",": THIN, ";": " ", ":": " ", " ": " ", "quad": " ", "qquad": "  "}
IGNORED = frozenset(("!", "left", "right", "bigl", "bigr", "Bigl", "Bigr", "big", "Big", "displaystyle"))
ACCENTS = {"hat": "\u0302", "bar": "\u0304", "tilde": "\u0303", "vec": "\u20d7", "dot": "\u0307"}
WORDS = frozenset(("text", "mathrm", "operatorname", "mathsf", "mathtt", "textbf"))
DOUBLE_STRUCK = {"R": "ℝ", "E": "𝔼", "N": "ℕ", "Z": "ℤ", "P": "ℙ", "Q": "ℚ", "C": "ℂ"}
CHARACTERS: dict[str, tuple[str, Kind]] = {
    "+": ("+", "bin"), "-": ("−", "bin"), "*": ("∗", "bin"), "=": ("=", "rel"), "<": ("<", "rel"), ">": (">", "rel"),
    ":": (":", "rel"), ",": (",", "punct"), ";": (";", "punct"), "(": ("(", "open"), "[": ("[", "open"),
    ")": (")", "close"), "]": ("]", "close"), "!": ("!", "close"),
}  # fmt: skip
RAISED = dict(zip("0123456789+−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", strict=True))
#: Raising and lowering must not push lines apart.
CALM = ' style="line-height:0"'

_TOKEN = re.compile(r"\\([A-Za-z]+|.)|([0-9]+(?:\.[0-9]+)?)|(\s+)|(.)", re.DOTALL)


@dataclass(frozen=True)
class Piece:
    """A part of a formula: how it looks as HTML and as text, how it is spaced, and whether it is one sign alone."""

    markup: str
    plain: str
    kind: Kind = "ord"
    single: bool = True


def formula_html(tex: str) -> str:
    """Return a formula as escaped HTML of ``<i>``, ``<b>``, ``<sub>`` and ``<sup>`` alone.

    Raises ``ValueError`` for TeX that these cannot show.
    """
    return _join(_parse(tex), markup=True)


def formula_text(tex: str) -> str:
    r"""Return a formula as a line of text: ``10⁸``, ``x_i``, ``e^(z − m)``.

    Raises ``ValueError`` for TeX that a line cannot show.
    """
    return _join(_parse(tex), markup=False)


def _parse(tex: str) -> list[Piece]:
    return _Reader(tex).sequence(closing=None)


class _Reader:
    """Reads tokens into pieces, by descent into braces."""

    def __init__(self, tex: str) -> None:
        self.tex = tex
        self.tokens = [match.group() for match in _TOKEN.finditer(tex)]
        self.place = 0

    def fail(self, what: str) -> ValueError:
        return ValueError(f"the formula {self.tex!r} has {what}, which cannot be shown without TeX")

    def peek(self) -> str | None:
        while self.place < len(self.tokens) and self.tokens[self.place].isspace():
            self.place += 1
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise self.fail("an end too early")
        self.place += 1
        return token

    def sequence(self, closing: str | None) -> list[Piece]:
        """Read up to the closing brace, or to the end where there is none to come."""
        pieces: list[Piece] = []
        while (token := self.peek()) != closing:
            if token is None:
                raise self.fail("a brace that is not closed")
            if token == "}":
                raise self.fail("a brace that is not opened")
            piece = self.atom()
            if piece is not None:
                pieces.append(self.scripts(piece))
        if closing is not None:
            self.take()
        return pieces

    def argument(self) -> list[Piece]:
        """Read what a command or a script takes: a group in braces, or the next sign (one digit of a number)."""
        token = self.peek()
        if token == "{":
            self.take()
            return self.sequence("}")
        if token is not None and token[0].isdigit() and len(token) > 1:
            self.tokens[self.place : self.place + 1] = [token[0], token[1:]]
        piece = self.atom()
        if piece is None:
            raise self.fail("a command without what it belongs to")
        return [piece]

    def word(self) -> str:
        """Read the braces of a command that takes words, spaces kept."""
        if self.take() != "{":
            raise self.fail("a name without braces")
        start = self.place
        while self.place < len(self.tokens) and self.tokens[self.place] != "}":
            if self.tokens[self.place] in ("{", "^", "$"):
                raise self.fail("a formula inside words")
            self.place += 1
        if self.place == len(self.tokens):
            raise self.fail("a brace that is not closed")
        self.place += 1
        return re.sub(r"\\([_%&#$ ])", r"\1", "".join(self.tokens[start : self.place - 1]))

    def atom(self) -> Piece | None:
        token = self.take()
        if token == "{":
            return _group(self.sequence("}"))
        if token.startswith("\\"):
            return self.command(token[1:])
        if token in CHARACTERS:
            return Piece(html.escape(CHARACTERS[token][0]), *CHARACTERS[token])
        if token in ("^", "_", "&", "~", "#", "%"):
            raise self.fail(f"the sign {token!r} out of its place")
        if token == "'":
            return Piece("′", "′", "close")
        if token.isalpha():
            return Piece(f"<i>{html.escape(token)}</i>", token)
        return Piece(html.escape(token), token)

    def command(self, name: str) -> Piece | None:
        if name in ORDINARY:
            sign = html.escape(ORDINARY[name])
            return Piece(sign if sign in UPRIGHT else f"<i>{sign}</i>", ORDINARY[name])
        if name in FUNCTIONS:
            return Piece(name, name, "op")
        if name in LARGE:
            return Piece(LARGE[name], LARGE[name], "op")
        if name in BINARY:
            return Piece(BINARY[name], BINARY[name], "bin")
        if name in RELATIONS:
            return Piece(RELATIONS[name], RELATIONS[name], "rel")
        if name in BRACKETS:
            return Piece(*(BRACKETS[name][0],) * 2, BRACKETS[name][1])
        if name in SPACES:
            return Piece(SPACES[name], " ", "space")
        if name in IGNORED:
            return None
        if name in WORDS:
            word = self.word() if self.peek() == "{" else self.take()
            kind: Kind = "op" if name == "operatorname" else "ord"
            return Piece(html.escape(word), word, kind)
        if name == "mathbf":
            inner = self.argument()
            plain = _join(inner, markup=False)
            return Piece(f"<b>{html.escape(plain)}</b>", plain)
        if name == "mathbb":
            letter = _join(self.argument(), markup=False)
            if letter not in DOUBLE_STRUCK:
                raise self.fail(f"the letter {letter!r} in double strokes")
            return Piece(DOUBLE_STRUCK[letter], DOUBLE_STRUCK[letter])
        if name in ACCENTS:
            letter = _join(self.argument(), markup=False)
            if len(letter) != 1:
                raise self.fail(f"an accent over {letter!r}")
            return Piece(f"<i>{html.escape(letter)}{ACCENTS[name]}</i>", letter + ACCENTS[name])
        if name in ("frac", "tfrac", "dfrac"):
            upper, lower = _wrapped(self.argument()), _wrapped(self.argument(), tight=True)
            return Piece(f"{upper.markup}/{lower.markup}", f"{upper.plain}/{lower.plain}", single=False)
        if name == "sqrt":
            inner_piece = _wrapped(self.argument(), tight=True)
            return Piece("√" + inner_piece.markup, "√" + inner_piece.plain)
        raise self.fail(f"\\{name}")

    def scripts(self, base: Piece) -> Piece:
        """Read the index and the power behind a piece."""
        markup, plain = base.markup, base.plain
        if not base.single and self.peek() in ("^", "_"):
            markup, plain = f"({markup})", f"({plain})"
        marked = False
        while (token := self.peek()) in ("^", "_", "'"):
            self.take()
            if token == "'":
                markup, plain = markup + "′", plain + "′"
                continue
            inner = self.argument()
            marked = True
            tag = "sup" if token == "^" else "sub"
            markup += f"<{tag}{CALM}>{_join(inner, markup=True, tight=True)}</{tag}>"
            plain += _script_text(token, _join(inner, markup=False, tight=True))
        return Piece(markup, plain, base.kind, single=base.single or marked)


def _script_text(mark: str, inner: str) -> str:
    if mark == "^" and all(sign in RAISED for sign in inner):
        return "".join(RAISED[sign] for sign in inner)
    return mark + (inner if inner.isalnum() or len(inner) == 1 else f"({inner})")


def _group(pieces: list[Piece]) -> Piece:
    """A group in braces counts as one letter for the spacing around it."""
    return Piece(_join(pieces, markup=True), _join(pieces, markup=False), single=len(pieces) <= 1)


def _wrapped(pieces: list[Piece], tight: bool = False) -> Piece:
    """The pieces in brackets, unless they hold together by themselves: beside a stroke, or tighter, under a root."""
    group = _group(pieces)
    if len(pieces) == 1 and pieces[0].single:
        return group
    if not tight and not any(piece.kind in ("bin", "rel", "punct") for piece in pieces):
        return group
    return Piece(f"({group.markup})", f"({group.plain})")


def _join(pieces: list[Piece], markup: bool, tight: bool = False) -> str:
    """Set pieces one after the other, spaced as TeX spaces them; `tight` is for indices and powers."""
    out = ""
    for left, piece, right in _neighbours(pieces):
        text = piece.markup if markup else piece.plain
        if piece.kind == "bin" and (left is None or left.kind in ("bin", "rel", "open", "punct", "op")):
            out += text  # a sign in front, not between
        elif piece.kind in ("bin", "rel"):
            narrow = tight and not text.isalpha()
            out = out.rstrip() + text if narrow else f"{out.rstrip()} {text} ".lstrip()
        elif piece.kind == "punct":
            out += text + (" " if right and not tight else "")
        elif piece.kind == "space":
            out = out.rstrip(" ") + text if right and left else out
        else:
            if not piece.single and _touches(left, right):
                text = f"({text})"
            out += _gap(left, piece, markup) + text
    return out.replace("</i><i>", "").rstrip() if markup else out.rstrip()


def _gap(left: Piece | None, piece: Piece, markup: bool) -> str:
    """What stands between two pieces without a sign: room beside a name, and in text behind an index."""
    if left is None or left.kind not in ("ord", "close", "op") or left.plain == "/":
        return ""
    if "op" in (left.kind, piece.kind) and piece.kind not in ("open", "close"):
        return THIN if markup else " "
    scripted = "_" in left.plain or "^" in left.plain
    return " " if scripted and not markup and piece.kind in ("ord", "op") and piece.plain not in "/|‖…⋯" else ""


def _touches(left: Piece | None, right: Piece | None) -> bool:
    """Whether a fraction stands right beside something that a reader could take for part of it."""
    near = {"ord", "op", "space"}
    return bool(left and left.kind in near | {"close"}) or bool(right and right.kind in near | {"open"})


def _neighbours(pieces: list[Piece]) -> Iterator[tuple[Piece | None, Piece, Piece | None]]:
    for place, piece in enumerate(pieces):
        before = pieces[place - 1] if place else None
        yield before, piece, pieces[place + 1] if place + 1 < len(pieces) else None

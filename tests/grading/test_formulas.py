"""Formulas without TeX: the same meaning as plain HTML and as a line of text, or an error, never something else."""

import re

import pytest

from labsupport.grading.formulas import formula_html, formula_text
from labsupport.grading.verdict import Note, inline_html, inline_text


def bare(tex):
    """The HTML without the style of its indices."""
    return formula_html(tex).replace(' style="line-height:0"', "")


@pytest.mark.parametrize(
    ("tex", "text", "markup"),
    [
        ("10^8", "10⁸", "10<sup>8</sup>"),
        ("2^{-10}", "2⁻¹⁰", "2<sup>−10</sup>"),
        ("x_i", "x_i", "<i>x</i><sub><i>i</i></sub>"),
        ("x^23", "x²3", "<i>x</i><sup>2</sup>3"),
        ("e^{z_j - m}", "e^(z_j−m)", "<i>e</i><sup><i>z</i><sub><i>j</i></sub>−<i>m</i></sup>"),
        ("2d_\\text{in} d_\\text{out}", "2d_in d_out", "2<i>d</i><sub>in</sub><i>d</i><sub>out</sub>"),
        ("dW = X^{\\mathsf T} dZ", "dW = X^T dZ", "<i>dW</i> = <i>X</i><sup>T</sup><i>dZ</i>"),
        ("0 \\cdot (-\\infty)", "0 · (−∞)", "0 · (−∞)"),
        ("\\log p", "log p", "log\u2009<i>p</i>"),
        ("\\log(1-p)", "log(1 − p)", "log(1 − <i>p</i>)"),
        ("\\mathbf{x}W+\\mathbf b", "xW + b", "<b>x</b><i>W</i> + <b>b</b>"),
        ("137{,}438", "137,438", "137,438"),
        ("a, b", "a, b", "<i>a</i>, <i>b</i>"),
        ("a < b", "a < b", "<i>a</i> &lt; <i>b</i>"),
        ("f'(x)", "f′(x)", "<i>f</i>′(<i>x</i>)"),
        ("\\hat x_i", "x̂_i", "<i>x̂</i><sub><i>i</i></sub>"),
        ("\\lceil qN/100 \\rceil", "⌈qN/100⌉", "⌈<i>qN</i>/100⌉"),
    ],
)
def test_a_formula_reads_as_html_and_as_text(tex, text, markup):
    assert formula_text(tex) == text
    assert bare(tex) == markup


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        ("\\frac{a+b}{c}", "(a + b)/c"),
        ("\\frac{a}{b c}", "a/(bc)"),
        ("\\tfrac1H x", "(1/H)x"),  # not 1/(Hx)
        ("x \\tfrac12", "x(1/2)"),
        ("a + \\tfrac12 + b", "a + 1/2 + b"),
        ("\\tfrac{\\alpha}{r}(x)", "(α/r)(x)"),
        ("\\frac{a}{b}^2", "(a/b)²"),
        ("\\sqrt{D_h}", "√D_h"),
        ("\\sqrt{a+b}", "√(a + b)"),
        ("\\sqrt{ab} c", "√(ab)c"),
        ("1/\\sqrt{\\frac12}", "1/√(1/2)"),
    ],
)
def test_brackets_keep_a_fraction_and_a_root_apart_from_what_stands_beside_them(tex, text):
    assert formula_text(tex) == text
    assert re.sub(r"<[^>]+>", "", bare(tex)) == text.replace("²", "2").replace("_", "")


@pytest.mark.parametrize(
    "tex",
    ["\\begin{pmatrix}1\\end{pmatrix}", "\\unknown", "a & b", "{a", "a}", "^2", "\\frac{1}", "\\hat{xy}", "x_",
     "\\mathbb{W}", "\\text{a $b$}", "\\sqrt", "\\left\\"],
)  # fmt: skip
def test_what_cannot_be_shown_is_an_error_and_stays_tex_in_a_text(tex):
    for shown in (formula_html, formula_text):
        with pytest.raises(ValueError, match="cannot be shown without TeX"):
            shown(tex)
    if "$" not in tex:
        assert inline_html(f"so ${tex}$ it is") == f"so \\({tex.replace('&', '&amp;')}\\) it is"
        assert inline_text(f"so ${tex}$ it is") == f"so ${tex}$ it is"


def test_a_formula_cannot_bring_html():
    assert formula_html("<b>\\text{<script>}") == "&lt; <i>b</i> &gt; &lt;script&gt;"


def test_code_keeps_its_dollars_in_the_text_of_a_note():
    note = Note("some-exercise", "solution", "`a $b$ c` and $x^2$:\n\n```python\nprice = '$1 to $2'\n```")
    assert note.text() == "some-exercise: solution\n  `a $b$ c` and x²:\n\n  ```python\n  price = '$1 to $2'\n  ```"

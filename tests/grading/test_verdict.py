"""How a verdict looks: a fixed layout in text and HTML, escaped, with its state in words."""

from html.parser import HTMLParser

import pytest

from labsupport.grading import Note, Verdict
from labsupport.grading.verdict import STATES, WORDS, inline_html


class Strict(HTMLParser):
    """Fails on a tag that is not closed in order; collects the text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text, self.attributes = [], set(), [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes.append(dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(html):
    parser = Strict()
    parser.feed(html)
    parser.close()
    assert not parser.open
    return parser


VERDICT = Verdict(
    "fail",
    "softmax-stable",
    "your rows do not sum to 1.\n"
    "Input float64 (3, 5), case 2. You normalised over the whole array instead of the last axis.\n"
    'See section 5.2, then hint("softmax-stable").',
    "whole-array",
)


def test_the_layout_is_the_fixed_one():
    assert (
        str(VERDICT)
        == repr(VERDICT)
        == (
            "✗ softmax-stable: your rows do not sum to 1.\n"
            "  Input float64 (3, 5), case 2. You normalised over the whole array instead of the last axis.\n"
            '  See section 5.2, then hint("softmax-stable").'
        )
    )


@pytest.mark.parametrize("state", STATES)
def test_the_state_is_said_in_words_and_marked_for_the_page(state):
    page = parsed(Verdict(state, "an-id", "a finding.").html())
    assert page.attributes[0]["class"] == f"ls-verdict ls-{state}"
    assert page.attributes[0]["data-exercise"] == "an-id"
    assert page.attributes[0]["data-state"] == state
    assert page.attributes[0]["role"] == "status"
    assert WORDS[state] in "".join(page.text)


def test_the_html_holds_the_words_of_the_text():
    text = " ".join(parsed(VERDICT.html()).text)
    for line in VERDICT.message.split("\n"):
        assert line in text


@pytest.mark.parametrize("nasty", ["<script>alert(1)</script>", "a & b", '" onclick="x', "`<u>`", "$<u>$", "**<u>**"])
def test_everything_is_escaped(nasty):
    for html in (
        Verdict("fail", nasty, nasty + "\n" + nasty, None, (nasty,)).html(),
        Note(nasty, nasty, f"{nasty}\n\n- {nasty}\n\n```\n{nasty}\n```").html(),
    ):
        assert not parsed(html).tags & {"script", "u"}
        assert "<script" not in html
        assert "<u>" not in html
        assert ' onclick="' not in html


def test_inline_marks_become_html():
    assert inline_html("`a<b` and $x^2$ and **c** and $$y$$") == (
        '<code>a&lt;b</code> and <i>x</i><sup style="line-height:0">2</sup> and <strong>c</strong> and '
        '<span style="display:block;text-align:center"><i>y</i></span>'
    )
    assert inline_html("*so* it is, (*thus*).", prose=True) == "<em>so</em> it is, (<em>thus</em>)."
    assert inline_html("*so* 2*M*N*K") == "*so* 2*M*N*K"
    assert inline_html("2*M*N*K and `a*b*c`", prose=True) == "2*M*N*K and <code>a*b*c</code>"
    assert inline_html("it costs 3 $ and 4 * 5 * 6") == "it costs 3 $ and 4 * 5 * 6"


def test_marks_may_stand_inside_stress():
    assert inline_html("*Without `axis`* and **$x$ first**", prose=True) == (
        "<em>Without <code>axis</code></em> and <strong><i>x</i> first</strong>"
    )


#: What JupyterLab keeps of an output that it does not trust, and VS Code shows without any of our style sheets.
KEPT_TAGS = {"div", "p", "span", "strong", "em", "code", "pre", "ul", "li", "i", "b", "sub", "sup"}
KEPT_ATTRIBUTES = {"class", "style", "role", "aria-hidden", "data-exercise", "data-state"}


@pytest.mark.parametrize("state", STATES)
def test_a_verdict_needs_neither_script_nor_style_sheet_nor_tex(state):
    shown = (
        Verdict(state, "an-id", "$x_i^2$ is `wrong`.\nSee **section 5.2**.", None, ("$$\\sqrt{\\hat v}$$",)),
        Note("an-id", "solution", "```python\nf(x)\n```\n\n*Why* $e^{-x}$\n\n- $\\mathbf x$: one\n- two"),
    )
    for html in (part.html() for part in shown):
        page = parsed(html)
        assert page.tags <= KEPT_TAGS
        assert {name for attributes in page.attributes for name in attributes} <= KEPT_ATTRIBUTES
        assert "border-left" in page.attributes[0]["style"]  # the edge is there without our style sheet
        assert "color:" not in html.replace("border-left", "")  # and the text has the client's colour, light or dark
        assert "url(" not in html
        assert "\\" not in html
        assert "$" not in html


def test_only_text_and_html_are_offered():
    assert set(VERDICT._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert set(Note("a", "b", "c")._repr_mimebundle_()) == {"text/plain", "text/html"}


@pytest.mark.parametrize("state", STATES)
def test_only_a_pass_is_true(state):
    assert bool(Verdict(state, "a", "b")) is (state == "pass")


def test_a_note_is_told_apart_from_the_finding():
    verdict = Verdict("pass", "a", "right.", None, ("there is no timer here.",))
    assert str(verdict) == "✓ a: right.\n  Note: there is no timer here."
    assert '<p class="ls-note">Note: there is no timer here.</p>' in verdict.html()

"""The book's own Sphinx extension: which files a page loads, the merged glossary, MathJax without a network.

It decides per page which scripts and style sheets are linked, so that no page carries what it does not
use. It must never reach outside the repository and the installed packages, nor change what a page says.
"""

import hashlib
import re
import shutil
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html._assets import _CascadingStyleSheet, _JavaScript
from sphinx.config import Config
from sphinx.domains.std import Glossary, StandardDomain
from sphinx.environment import BuildEnvironment
from sphinx.environment.collectors import EnvironmentCollector
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

logger = logging.getLogger(__name__)

#: The parts of MathJax 3.2 that `mathjax3_config` in _config.yml names, and what they fetch by themselves.
MATHJAX_SCRIPTS = (
    "startup.js",
    "core.js",
    "input/tex.js",
    "output/chtml.js",
    "output/chtml/fonts/tex.js",
    "a11y/assistive-mml.js",
)
MATHJAX_FOLDERS = ("input/tex/extensions", "output/chtml/fonts/woff-v2")

#: Files of the theme and of extensions that book.css and the book's own layout replace.
REPLACED = re.compile(
    r"styles/(sphinx-book-theme|pydata-sphinx-theme|theme)\.css|pygments\.css|mystnb\.[0-9a-f.]*css"
    r"|scripts/(sphinx-book-theme|bootstrap)\.js"
)

#: File (or inline body) -> what a page must contain for it to be linked.
NEEDED_BY = (
    (re.compile(r"togglebutton|toggleHint|toggleOpenOnPrint"), re.compile(r'class="[^"]*\b(toggle|dropdown)\b')),
    (re.compile(r"sphinx-design|design-tabs"), re.compile(r'class="[^"]*\bsd-')),
    (re.compile(r"copybutton|clipboard"), re.compile(r'class="highlight')),
    (re.compile(r"explore\.(js|css)"), re.compile(r"data-(explore|frames|widget|axis|axes)\b")),
    (
        re.compile(r"exercises(-data)?\.(js|css)"),
        re.compile(r'\btag_check\b|data-(exercise|progress|checklist)\b|class="[^"]*\b(exercise|progress)\b'),
    ),
)

#: The book's scripts and styles besides book.css and book.js, in the order in which a page loads them.
OPTIONAL_STYLES = ("explore.css", "exercises.css")
OPTIONAL_SCRIPTS = ("explore.js", "exercises-data.js", "exercises.js")

CHECKBOX = re.compile(r'<input class="task-list-item-checkbox"[^>]*(?=>)')
#: A formula within a line, and the punctuation that follows it without a space.
PUNCTUATED = re.compile(r'<span class="math [^"]*">[^<]*</span>[.,;:!?)\]’”]+')
EMPTY_HEADER = re.compile(r"<th\b[^>]*>\s*(?:<p>\s*</p>)?\s*</th>")
SECTIONS = '<details class="sections-inline"><summary>On this page</summary>{}</details>'

WIDGET = re.compile(r'data-widget="([a-z0-9-]+)"')


def static_folder(app: Sphinx) -> Path:
    """Return the book's own folder of static files."""
    return Path(app.srcdir) / "book" / "_static"


def mathjax_folder() -> Path:
    """Return the folder of MathJax that the package sphinx-mathjax-offline installs."""
    spec = find_spec("sphinx-mathjax-offline")
    if spec is None or spec.origin is None:
        raise ExtensionError("sphinx-mathjax-offline is not installed: pip install -r requirements.txt")
    return Path(spec.origin).parent / "static" / "mathjax"


def add_assets(app: Sphinx, config: Config) -> None:
    """Link those of the book's scripts and styles that exist; a page keeps the ones it uses."""
    folder = static_folder(app)
    for name in OPTIONAL_STYLES:
        if (folder / name).exists():
            app.add_css_file(name, priority=600)
    for name in OPTIONAL_SCRIPTS:
        if (folder / name).exists():
            app.add_js_file(name, defer="defer", priority=600)


def add_bibliographies(app: Sphinx, config: Config) -> None:
    """Add each chapter's own bibliography to the one that _config.yml names."""
    root = Path(app.srcdir)
    own = sorted((root / "book" / "references").glob("*.bib"))
    config.bibtex_bibfiles = [*config.bibtex_bibfiles, *(file.relative_to(root).as_posix() for file in own)]


def asset_name(asset: _CascadingStyleSheet | _JavaScript | str) -> str:
    """Return what tells an asset apart: its file name, or the text of an inline script."""
    attributes = getattr(asset, "attributes", {})
    return f"{getattr(asset, 'filename', asset) or ''} {attributes.get('body', '')}"


def is_needed(asset: _CascadingStyleSheet | _JavaScript | str, body: str) -> bool:
    """Say whether a page with this body uses the asset."""
    name = asset_name(asset)
    if REPLACED.search(name):
        return False
    return all(page.search(body) for what, page in NEEDED_BY if what.search(name))


def inner_toc(toc: str) -> str:
    """Return the list of a page's sections without the page's own title, or "" where there is none."""
    start, end = toc.find("<ul>", 1), toc.rfind("</li>")
    return toc[start:end].strip() if 0 < start < end else ""


def mend(body: str) -> str:
    """Take out of a page's body what breaks accessibility rules, and keep a formula and its full stop together.

    Docutils marks bibliography entries with roles that ARIA withdrew, and footnotes as landmarks; the boxes of
    a task list have no names, and the corner of a table is a header without a text. A browser may begin a line
    with the punctuation after a formula, since to it a formula is a picture.
    """
    body = PUNCTUATED.sub(r'<span class="kept">\g<0></span>', body)
    body = body.replace(' role="doc-biblioentry"', "").replace('<div role="list" class="citation-list">', "<div>")
    body = CHECKBOX.sub(lambda box: f'{box[0]} aria-label="{"done" if "checked=" in box[0] else "open"}"', body)
    body = EMPTY_HEADER.sub("<td></td>", body)
    return body.replace("<aside ", "<div ").replace("</aside>", "</div>").replace(' role="doc-footnote"', "")


def prepare_page(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Keep what the page uses among its scripts and styles, add its widgets, and its list of sections."""
    body = mend(context.get("body", ""))
    for name in dict.fromkeys(WIDGET.findall(body)):
        if not (static_folder(app) / "widgets" / f"{name}.js").exists():
            logger.warning("the widget %r has no script book/_static/widgets/%s.js", name, name, location=pagename)
            continue
        app.add_js_file(f"widgets/{name}.js", defer="defer", priority=650)
        if (static_folder(app) / "widgets" / f"{name}.css").exists():
            app.add_css_file(f"widgets/{name}.css", priority=650)
    context["script_files"] = [asset for asset in context["script_files"] if is_needed(asset, body)]
    context["css_files"] = [asset for asset in context["css_files"] if is_needed(asset, body)]
    context["page_sections"] = inner_toc(context.get("toc") or "")
    if "body" in context:
        context["body"] = body
    if context["page_sections"]:
        # In a narrow window the sections stand under the title; book.css hides whichever list is not used.
        context["body"] = body.replace("</h1>", f"</h1>\n{SECTIONS.format(context['page_sections'])}", 1)
    mathjax = any("mathjax/startup" in asset_name(asset) for asset in context["script_files"])
    context["mathjax_preload"] = MATHJAX_SCRIPTS[1:] if mathjax else ()


def copy_mathjax(app: Sphinx, exception: Exception | None) -> None:
    """Copy the parts of MathJax that pages load into the built book, where they are not there yet."""
    if exception is not None or app.builder.format != "html":
        return
    source, target = mathjax_folder(), Path(app.outdir) / "_static" / "mathjax"
    files = [source / name for name in MATHJAX_SCRIPTS]
    files += [file for folder in MATHJAX_FOLDERS for file in sorted((source / folder).iterdir())]
    for file in files:
        copy = target / file.relative_to(source)
        if not copy.exists() or copy.stat().st_size != file.stat().st_size:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def glossary_files(root: str | Path) -> list[Path]:
    """List the chapters' glossary files."""
    return sorted((Path(root) / "book" / "glossary").glob("*.md"))


def names_of(files: list[Path]) -> str:
    """Return the names of files as one line."""
    return " ".join(file.name for file in files)


def outdated_glossary(app: Sphinx, env: BuildEnvironment, added: Any, changed: Any, removed: Any) -> list[str]:
    """Name the glossary page when a chapter's file came or went; a changed file is seen by Sphinx itself."""
    now = names_of(glossary_files(app.srcdir))
    return [page for page, data in env.metadata.items() if data.get("glossary-files", now) != now]


@dataclass
class Numbering:
    """What is kept with the build, so that a changed sentence needs no other page to be loaded."""

    #: Page -> kind (figure, table, code-block, displaymath) -> ids in the order of the page.
    nodes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    #: Pages that name an equation or a figure by its number.
    naming: set[str] = field(default_factory=set)
    #: Page -> kind -> id -> number, as given the last time; Sphinx forgets those of a page that is read again.
    numbers: dict[str, dict[str, dict[str, tuple[int, ...]]]] = field(default_factory=dict)


def numbering(env: BuildEnvironment) -> Numbering:
    """Return what is kept with the build, an empty one at first."""
    kept: Numbering = env.__dict__.setdefault("book_numbering", Numbering())
    return kept


class ChapterNumbers(EnvironmentCollector):
    """Numbers equations, figures and tables within their chapter, as 5.1, 5.2; on other pages from 1.

    Sphinx takes the first part from numbered headings, while the book's headings carry their numbers by hand;
    and it loads every page again for one changed sentence, where a page's own nodes are all that counts.
    """

    def clear_doc(self, app: Sphinx, env: BuildEnvironment, docname: str) -> None:
        """Forget a page that is read again or gone."""
        numbering(env).nodes.pop(docname, None)
        numbering(env).naming.discard(docname)

    def merge_other(self, app: Sphinx, env: BuildEnvironment, docnames: set[str], other: BuildEnvironment) -> None:
        """Take over the pages that another process has read."""
        numbering(env).nodes.update({name: numbering(other).nodes[name] for name in docnames})
        numbering(env).naming.update(numbering(other).naming & set(docnames))

    def process_doc(self, app: Sphinx, doctree: nodes.document) -> None:
        """Note the ids of a page's figures, tables and equations, by kind, and whether it names a number."""
        found: dict[str, list[str]] = {}
        for node in doctree.findall(nodes.Element):
            kind = None if isinstance(node, nodes.section) else numbered_kind(app.env, node)
            if kind and node["ids"]:
                found.setdefault(kind, []).append(node["ids"][0])
        numbering(app.env).nodes[app.env.docname] = found
        if any(reference["reftype"] in ("eq", "numref") for reference in doctree.findall(addnodes.pending_xref)):
            numbering(app.env).naming.add(app.env.docname)

    def get_updated_docs(self, app: Sphinx, env: BuildEnvironment) -> list[str]:
        """Give every page its numbers; return the pages whose own have changed, and those that may name them."""
        kept = numbering(env)
        before, kept.numbers = (
            kept.numbers,
            {
                page: {kind: chapter_numbers(page, ids) for kind, ids in kinds.items()}
                for page, kinds in kept.nodes.items()
            },
        )
        env.toc_fignumbers = dict(kept.numbers)
        changed = {page for page, numbers in kept.numbers.items() if numbers != before.get(page)}
        return sorted(changed | kept.naming) if changed else []


def numbered_kind(env: BuildEnvironment, node: nodes.Element) -> str | None:
    """Return what a node is counted as, by the same rule as Sphinx: a figure or a table counts where it has a title."""
    for domain in env.domains.values():
        kind = domain.get_enumerable_node_type(node)
        if kind and not (isinstance(domain, StandardDomain) and not domain.get_numfig_title(node)):
            return kind
    return None


def chapter_numbers(page: str, ids: list[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of one page's equations (or figures), by id."""
    chapter = re.match(r"(?:chapters|exercises|solutions)/(\d\d)-", page)
    prefix = (int(chapter[1]),) if chapter else ()
    return {name: (*prefix, place) for place, name in enumerate(ids, start=1)}


def leave_numbers_to_us(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Keep Sphinx from numbering, for which it would load all pages."""
    app.config.numfig = False
    return []


def number_figures_again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Let pages show their numbers, as _config.yml says."""
    app.config.numfig = True
    return []


class Entry:
    """One glossary entry: its terms and its definition, each line with the file and line it came from."""

    def __init__(self, terms: list[tuple[str, str, int]], definition: list[tuple[str, str, int]]) -> None:
        self.terms = terms
        self.definition = definition


def read_entries(file: Path) -> list[Entry]:
    """Read the entries of one glossary file: lines of terms, then `: definition` with indented further lines.

    Raises ValueError with file and line for a definition without a term and for a term without a definition.
    """
    entries: list[Entry] = []
    terms: list[tuple[str, str, int]] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        place = (str(file), number)
        if line.startswith(":"):
            if not terms:
                raise ValueError(f"{file.name}:{number}: a definition without a term above it")
            entries.append(Entry(terms, [(line[1:].strip(), *place)]))
            terms = []
        elif line[:1] in (" ", "\t"):
            if not entries or terms:
                raise ValueError(f"{file.name}:{number}: an indented line that continues no definition")
            entries[-1].definition.append((line.strip(), *place))
        elif line.strip():
            terms.append((line.strip(), *place))
    if terms:
        raise ValueError(f"{file.name}:{terms[0][2]}: the term {terms[0][0]!r} has no definition")
    return entries


def merge_glossaries(files: list[Path]) -> tuple[list[Entry], list[str]]:
    """Read glossary files; return their entries sorted by first term, and every slip with file and line.

    Of a term that is given twice the first entry stays.
    """
    entries: list[Entry] = []
    slips: list[str] = []
    seen: dict[str, str] = {}
    for file in files:
        try:
            found = read_entries(file)
        except ValueError as error:
            slips.append(str(error))
            continue
        for entry in found:
            fresh = []
            for place in entry.terms:
                here = f"{file.name}:{place[2]}"
                if place[0].lower() in seen:
                    slips.append(f"{here}: the term {place[0]!r} stands already in {seen[place[0].lower()]}")
                else:
                    seen[place[0].lower()] = here
                    fresh.append(place)
            if fresh:
                entries.append(Entry(fresh, entry.definition))
    return sorted(entries, key=lambda entry: entry.terms[0][0].lower()), slips


class BookGlossary(Glossary):
    """The directive `{book-glossary}`: the entries of book/glossary/*.md as one sorted glossary."""

    has_content = False

    def run(self) -> list[Any]:
        """Merge the files and let Sphinx's own glossary render them, so that `{term}` finds each entry."""
        files = glossary_files(self.env.srcdir)
        self.env.metadata[self.env.docname]["glossary-files"] = names_of(files)
        for file in files:
            self.env.note_dependency(str(file))
        entries, slips = merge_glossaries(files)
        for slip in slips:
            logger.warning("book/glossary/%s", slip, location=self.env.docname)
        self.content = StringList()
        for entry in entries:
            for text, source, number in entry.terms:
                self.content.append(text, source, number - 1)
            for text, source, number in entry.definition:
                self.content.append("  " + text, source, number - 1)
            self.content.append("", *entry.definition[-1][1:])
        return super().run()


class ChapterRole(SphinxRole):
    """The role `{chapter}` with text and page in angle brackets: a link where the page exists, else the text."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the link, or the plain text of a chapter that is not written yet."""
        match = re.fullmatch(r"(.+?)\s*<([\w/-]+)>", self.text)
        if match is None:
            message = self.inliner.reporter.error(f"{{chapter}} needs `text <page>`, not {self.text!r}")
            return [nodes.problematic(self.rawtext, self.rawtext)], [message]
        text, page = match.groups()
        inner = nodes.inline(text, text, classes=["xref"])
        if page not in self.env.found_docs:
            return [inner], []
        link = addnodes.pending_xref(
            self.rawtext, inner, refdomain="std", reftype="doc", reftarget=f"/{page}", refexplicit=True, refwarn=True
        )
        link["refdoc"] = self.env.docname
        return [link], []


def digest(file: Path) -> str:
    """Return a short hash of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, the role and the hooks."""
    # A change of this file is a change of every page; Sphinx looks at settings, not at code.
    app.add_config_value("book_rendering", digest(Path(__file__)), "env")
    app.add_directive("book-glossary", BookGlossary)
    app.add_role("chapter", ChapterRole())
    app.connect("config-inited", add_bibliographies, priority=100)
    app.connect("config-inited", add_assets)
    app.connect("env-get-updated", leave_numbers_to_us, priority=1)
    app.connect("env-get-updated", number_figures_again, priority=1000)
    app.add_env_collector(ChapterNumbers)
    app.connect("env-get-outdated", outdated_glossary)
    app.connect("html-page-context", prepare_page, priority=1000)
    app.connect("build-finished", copy_mathjax)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

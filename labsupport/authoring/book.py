"""Render the book: current notebooks in, the pages of `_build/html` out.

The Jupyter Book configuration is computed by Jupyter Book itself and kept beside the build, then Sphinx runs
in this process, so that a changed sentence reaches its page in a few seconds. It must never execute a
notebook on its own account: that is what the build of the notebooks does, before this.
"""

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

#: What the pages are made from. A change in any of these files makes a new build necessary.
SOURCES = ("_config.yml", "_toc.yml", "book", "chapters", "exercises", "solutions")
#: Code that decides how pages look; the code that the cells run is the notebooks' business.
RENDERING_CODE = ("labsupport/authoring/book.py", "labsupport/authoring/sphinx_ext.py")
START_PAGE = "index.html"
#: Folder of what is known of the sources, which is no part of the pages and stays at a clean build.
NOTES = "authoring"
#: What the pages judge answers by, made from the records.
EXERCISES = Path("book", "_static", "exercises-data.js")
#: Part of the book -> its pages in order; `*` stands for what is there, by number.
PARTS = (
    ("Before you start", ("book/how-to-use", "book/notation")),
    ("Chapters", ("chapters/[0-9]*",)),
    ("Practice", ("exercises/[0-9]*",)),
    (
        "Reference",
        (
            "book/training-map",
            "book/operator-checklist",
            "book/self-check",
            "book/kernels",
            "book/measured-runs",
            "book/glossary",
            "book/references",
            "book/errata",
        ),
    ),
)
TOC_HEADER = """# The pages in reading order. `python -m labsupport.authoring book --toc` writes this file anew.
format: jb-book
root: book/intro
defaults:
  numbered: false
  titlesonly: true
parts:
"""
REDIRECT = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="refresh" content="0; url={target}">
</head><body><main><h1>{title}</h1><p><a href="{target}">Start reading</a></p></main></body></html>
"""


class BookError(Exception):
    """The book cannot be built; the message says what to do."""


def repository() -> Path:
    """Return the root of the repository that the book is built from.

    The working directory where it holds a book, otherwise the tree that this file lies in.
    Raises BookError where neither has a `_config.yml` and a `_toc.yml`.
    """
    for folder in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (folder / "_config.yml").exists() and (folder / "_toc.yml").exists():
            return folder
    raise BookError("There is no _config.yml here: run this in the root of the book's repository.")


def contents(root: Path) -> str:
    """Return the text of `_toc.yml` for the pages that the repository holds now, in the order of the book.

    Chapters and exercises go by number; each exercise notebook carries its solutions below it.
    """
    lines = [TOC_HEADER]
    for caption, pages in PARTS:
        entries = []
        for page in pages:
            for file in sorted(root.glob(f"{page}.md")) + sorted(root.glob(f"{page}.ipynb")):
                name = file.relative_to(root).with_suffix("").as_posix()
                entries.append(f"      - file: {name}\n")
                solutions = root / "solutions" / file.name
                if page.startswith("exercises/") and solutions.exists():
                    entries.append(f"        sections:\n          - file: solutions/{file.stem}\n")
        if entries:
            lines += [f"  - caption: {caption}\n    chapters:\n", *entries]
    return "".join(lines)


def source_files(root: Path) -> list[Path]:
    """List the files that the pages are made from, sorted: those of SOURCES, and the code that renders."""
    files: list[Path] = [root / name for name in RENDERING_CODE]
    for name in SOURCES:
        path = root / name
        files += path.rglob("*") if path.is_dir() else [path]
    return sorted(
        {file for file in files if file.is_file() and not set(file.parts) & {".ipynb_checkpoints", "__pycache__"}}
    )


def fingerprint(root: Path, files: Iterable[Path]) -> str:
    """Return a hash of the sources' names and contents and of the versions of what renders them."""
    digest = hashlib.blake2b()
    for name in ("jupyter-book", "Sphinx", "myst-nb", "sphinx-mathjax-offline"):
        digest.update(f"{name}=={version(name)}\n".encode())
    for file in files:
        digest.update(f"\0{file.relative_to(root).as_posix()}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def is_current(root: Path) -> bool:
    """Say whether `_build/html` shows the sources as they are now."""
    stamp = root / "_build" / "fingerprint"
    return (
        stamp.exists()
        and (root / "_build" / "html" / START_PAGE).exists()
        and stamp.read_text(encoding="utf-8") == fingerprint(root, source_files(root))
    )


def sphinx_config(root: Path, build: Path) -> dict[str, Any]:
    """Return the Sphinx configuration that Jupyter Book makes of `_config.yml`.

    Jupyter Book's own modules take longer to import than a page takes to render, so the result is kept in
    the build folder under a hash of `_config.yml` and the version.
    """
    text = (root / "_config.yml").read_text(encoding="utf-8")
    key = hashlib.sha256(f"{version('jupyter-book')}\n{text}".encode()).hexdigest()
    cache = build / "config.json"
    if cache.exists():
        kept = json.loads(cache.read_text(encoding="utf-8"))
        if kept["key"] == key:
            return dict(kept["config"])
    from jupyter_book.config import get_final_config

    config, _ = get_final_config(
        user_yaml=root / "_config.yml",
        cli_config={"external_toc_path": "_toc.yml", "latex_individualpages": False},
        sourcedir=root,
        raise_on_invalid=True,
    )
    build.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps({"key": key, "config": config}), encoding="utf-8")
    return dict(config)


def source_place(root: Path, notebook: str, position: int) -> str | None:
    """Return `book/chapters/NN-name.md:LINE` for a place that Sphinx names in a notebook.

    myst-nb counts ten thousand lines to a cell. None where the source does not have that place any more.
    """
    cell, line = divmod(position, 10000)
    source, cells = cell_lines(root, Path(notebook))
    if not 0 < cell <= len(cells):
        return None
    lines = cells[cell - 1]
    return f"{source.as_posix()}:{lines[min(max(line, 1), len(lines)) - 1]}"


@functools.cache
def cell_lines(root: Path, notebook: Path) -> tuple[Path, list[list[int]]]:
    """Return the source of a notebook and, for each cell of the notebook, the line numbers of its text there.

    Raises OSError where there is no such source, SourceError where it has a fault.
    """
    from labsupport.authoring.build import FOLDERS
    from labsupport.authoring.labels import for_solution
    from labsupport.authoring.solutions import split
    from labsupport.authoring.source import read

    folder = next(folder for folder, made in FOLDERS.items() if notebook.parent.as_posix() in made)
    source = Path(folder, f"{notebook.stem}.md")
    cells = read(root / source, source)
    if len(FOLDERS[folder]) > 1:
        opened, solved, *_ = split(cells, source)
        cells = opened if notebook.parent.name == "exercises" else for_solution(solved)
    return source, [[number for number, _ in cell.lines()] for cell in cells]


class SourceWarnings:
    """A stream for Sphinx's warnings that names the line of the source instead of the place in a notebook."""

    PAGE = re.compile(r"(?:\x1b\[\d+m)*(\S+?)\.(?:md|ipynb)(?::\d*)?:\s")
    PLACE = re.compile(r"\S*?((?:chapters|exercises|solutions)/[\w-]+\.ipynb):(\d+)")

    def __init__(self, root: Path, stream: TextIO) -> None:
        self.root, self.stream = root, stream
        #: The pages that gave a warning; None stands for a warning of no page.
        self.pages: set[str | None] = set()

    def write(self, text: str) -> int:
        """Write a warning, its place translated where it stands in a notebook, and remember its page."""
        if text.strip():
            match = self.PAGE.match(text)
            page = Path(os.path.relpath(match[1], self.root)).as_posix() if match else None
            self.pages.add(page)
        return self.stream.write(self.PLACE.sub(self._translated, text))

    def _translated(self, match: re.Match[str]) -> str:
        from labsupport.authoring.faults import SourceError

        try:
            return source_place(self.root, match[1], int(match[2])) or match[0]
        except (OSError, SourceError):  # no source, or none that reads: Sphinx's own words stay
            return match[0]

    def flush(self) -> None:
        """Flush the stream below."""
        self.stream.flush()

    def isatty(self) -> bool:
        """Say whether the stream below is a terminal."""
        return self.stream.isatty()


def forget(doctrees: Path, pages: set[str | None]) -> None:
    """Make Sphinx read these pages again, as it would otherwise skip them next time, and their warnings with them."""
    files = [doctrees / f"{page}.doctree" for page in pages]
    if None in pages or not all(file.exists() for file in files):
        shutil.rmtree(doctrees, ignore_errors=True)
        return
    for file in files:
        file.unlink()


def run_sphinx(root: Path, build: Path, show_progress: bool) -> int:
    """Render every page that changed; warnings count as failures. Return Sphinx's status, 0 for success."""
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    config = sphinx_config(root, build)
    warnings = SourceWarnings(root, sys.stderr)
    try:
        with patch_docutils(None), docutils_namespace():
            app = Sphinx(
                srcdir=root,
                confdir=None,
                outdir=build / "html",
                doctreedir=build / "doctrees",
                buildername="html",
                confoverrides=config,
                status=sys.stdout if show_progress else None,
                warning=warnings,  # type: ignore[arg-type]
                warningiserror=True,
                keep_going=True,
            )
            app.build()
            if app.statuscode != 0:
                forget(build / "doctrees", warnings.pages)
            return app.statuscode
    except SphinxError as error:
        raise BookError(f"{error.category}: {error}") from error


def write_start_page(root: Path, html: Path) -> None:
    """Write `index.html`, which leads to the first page of the table of contents."""
    import yaml

    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    title = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["title"]
    page = REDIRECT.format(title=title, target=f"{toc['root']}.html")
    (html / START_PAGE).write_text(page, encoding="utf-8")


def render(root: Path, clean: bool = False, show_progress: bool = False) -> bool:
    """Bring `_build/html` up to date; return False where nothing had to be done.

    Raises BookError when a page gave a warning or an error; the next run then starts again from what was
    already rendered.
    """
    build = root / "_build"
    if clean and build.exists():
        for made in build.iterdir():
            if made.name != NOTES:
                shutil.rmtree(made) if made.is_dir() else made.unlink()
    if is_current(root):
        return False
    stamp = build / "fingerprint"
    stamp.unlink(missing_ok=True)
    state = fingerprint(root, source_files(root))
    if run_sphinx(root, build, show_progress) != 0:
        raise BookError("The pages above gave warnings; mend them and run this again.")
    # Where no page changed Sphinx stops early, and a changed style or script of ours would stay behind.
    shutil.copytree(root / "book" / "_static", build / "html" / "_static", dirs_exist_ok=True)
    write_start_page(root, build / "html")
    stamp.write_text(state, encoding="utf-8")
    return True


def export_exercises(root: Path) -> None:
    """Write the exercises for the pages, unless the records are those of the last time. Raises BookError."""
    from labsupport.authoring.memory import Settled

    settled, files = Settled(root), [EXERCISES]
    if settled.facts("exercises", files) is not None:
        return
    from labsupport.authoring import export

    if export.main(["--root", str(root)]) != 0:
        raise BookError("The exercises could not be exported for the pages.")
    settled.note("exercises", files, True)
    settled.keep()


def start_page(root: Path) -> str:
    """Return the path of the start page as a reader types it: relative to the working directory where possible."""
    page = root / "_build" / "html" / START_PAGE
    return os.path.relpath(page) if page.is_relative_to(Path.cwd()) else str(page)


def main(argv: list[str] | None = None) -> int:
    """Build the notebooks that are not current, export the exercises, render the pages; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m labsupport.authoring book", description="Render the book.")
    parser.add_argument("--clean", action="store_true", help="render every page anew")
    parser.add_argument("--pages-only", action="store_true", help="render the notebooks as they are")
    parser.add_argument("--toc", action="store_true", help="write _toc.yml for the pages that exist, build nothing")
    options = parser.parse_args(argv)
    started = time.monotonic()
    # jsonschema looks for this optional checker of one string format; its grammar takes a second to build.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    try:
        root = repository()
        if options.toc:
            (root / "_toc.yml").write_text(contents(root), encoding="utf-8", newline="\n")
            return 0
        from labsupport.authoring import cli

        if not options.pages_only and cli.build(["--root", str(root)]) != 0:
            raise BookError("A notebook could not be built; the message above names the place.")
        export_exercises(root)
        rendered = render(root, clean=options.clean, show_progress=sys.stdout.isatty())
    except BookError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    print(f"The book is {'built' if rendered else 'up to date'} ({time.monotonic() - started:.1f} s).")
    print(f"Open {start_page(root)} in a browser.")
    return 0

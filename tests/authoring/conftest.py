"""A book of one chapter, small enough to be executed in a test."""

import shutil
from pathlib import Path

import pytest

from labsupport.authoring.build import Plan, build, survey

HEAD = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
---
"""
CHAPTER = """# 5. Tiny

Some prose.

```{code-cell} ipython3
from labsupport import check
from labsupport.ops.double import double
```

(sec-5-1)=
## 5.1 Doubling

More prose.

```{code-cell} ipython3
print(double(2))
```

**Predict.** What is it?

```{code-cell} ipython3
:tags: [check]

check("twice", ...)
```
"""
EXERCISES = """# Exercises 5

```{code-cell} ipython3
from labsupport import check
```

## Twice

Write `twice`.

```{code-cell} ipython3
:tags: [exercise]
:exercise: twice

def twice(x):
    # BEGIN SOLUTION
    doubled_value = x + x
    return doubled_value
    # END SOLUTION
```

```{code-cell} ipython3
:tags: [check]

check("twice", twice)
```

+++ {"tags": ["solution-only"]}

Because adding is doubling.
"""
PACKAGE = {
    "__init__.py": 'LAZY = {"check": "labsupport.grading", "explore": "labsupport.figures"}\n\n\ndef __getattr__(name):\n'
    "    from importlib import import_module\n\n    if name not in LAZY:\n        raise AttributeError(name)\n"
    "    return getattr(import_module(LAZY[name]), name)\n",
    "grading.py": "def check(name, answer):\n    print(name, 'open' if answer is ... or answer(1) is None else 'right')\n",
    "figures.py": "def explore(): ...\n",
    "exercises/__init__.py": "",
    "exercises/tiny.py": 'EXERCISES = (dict(id="twice"),)\n',
    "ops/__init__.py": "",
    "ops/double.py": "from labsupport.ops.add import add\n\n\ndef double(x):\n    return add(x, x)\n",
    "ops/add.py": "def add(x, y):\n    return x + y\n",
    "ops/unused.py": "",
}


def write_sources(root: Path) -> Path:
    """The sources of the tiny book, nothing built."""
    for name, text in {
        "book/chapters/05-tiny.md": HEAD + CHAPTER,
        "book/exercises/05-tiny.md": HEAD + EXERCISES,
        "requirements.txt": "numpy==2.4.6\n",
        **{f"labsupport/{name}": text for name, text in PACKAGE.items()},
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def bring_up_to_date(root: Path, *only: str) -> dict[str, str]:
    """Build, and say what was done with each notebook; every fault and failure is an error."""
    done: dict[str, str] = {}

    def report(planned: Plan, what: str) -> None:
        done[planned.notebook.as_posix()] = what

    surveyed = survey(root, only)
    assert surveyed.faults == []
    assert build(root, surveyed.plans, 2, report) == []
    return done


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The tiny book, not built. Its folder has a space in its name, because readers' folders have."""
    return write_sources(tmp_path / "a book")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny book, built; tests must not change it."""
    root = write_sources(tmp_path_factory.mktemp("built") / "a book")
    bring_up_to_date(root)
    return root


@pytest.fixture
def book(built: Path, tmp_path: Path) -> Path:
    """A built book that a test may change."""
    return Path(shutil.copytree(built, tmp_path / "another book"))

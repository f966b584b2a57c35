"""A source that did not change is not parsed again, and no memory can make it read wrong."""

import json
from pathlib import Path

import pytest

from labsupport.authoring import memory
from labsupport.authoring.faults import SourceError
from labsupport.authoring.memory import Settled, remembered
from labsupport.authoring.source import read

TEXT = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
---
# 1. One

Some text.

```{code-cell} ipython3
:tags: [hide-output]

print(1)
```
"""
SOURCE = Path("book/chapters/01-one.md")


@pytest.fixture
def root(tmp_path):
    (tmp_path / SOURCE).parent.mkdir(parents=True)
    (tmp_path / SOURCE).write_text(TEXT)
    return tmp_path


def kept(root):
    return root / "_build/authoring/chapters-01-one.json"


def test_an_unchanged_source_is_read_once(root, monkeypatch):
    first = remembered(root, SOURCE)
    assert first == read(root / SOURCE, SOURCE)
    monkeypatch.setattr(memory, "read", lambda *_: pytest.fail("it was parsed again"))
    assert remembered(root, SOURCE) == first


def test_a_changed_source_is_read_again(root):
    remembered(root, SOURCE)
    (root / SOURCE).write_text(TEXT.replace("Some text", "Other text"))
    assert any("Other text" in cell.source for cell in remembered(root, SOURCE))


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1}', '{"key": "KEY", "cells": [{}]}'])
def test_a_damaged_memory_is_made_anew(root, damage):
    expected = remembered(root, SOURCE)
    key = json.loads(kept(root).read_text())["key"]
    kept(root).write_text(damage.replace("KEY", key))
    assert remembered(root, SOURCE) == expected
    assert json.loads(kept(root).read_text())["key"] == key


def test_a_faulty_source_is_told_every_time(root):
    (root / SOURCE).write_text(TEXT.replace("hide-output", "hide-outptu"))
    for _ in range(2):
        with pytest.raises(SourceError):
            remembered(root, SOURCE)
    assert not kept(root).exists()


def test_a_place_that_cannot_be_written_only_costs_time(root):
    (root / "_build").write_text("a file where a folder is due")
    assert remembered(root, SOURCE) == read(root / SOURCE, SOURCE)


@pytest.fixture
def package(root):
    (root / "labsupport").mkdir()
    (root / "labsupport/ops.py").write_text("one = 1\n")
    (root / "requirements.txt").write_text("numpy==2\n")
    settled = Settled(root)
    settled.note("page", [SOURCE], {"lines": 3})
    settled.keep()
    return root


def test_what_was_found_holds_while_nothing_changes(package):
    assert Settled(package).facts("page", [SOURCE]) == {"lines": 3}
    assert Settled(package).facts("page", []) is None  # asked for other files than it was noted for
    assert Settled(package).facts("another page", [SOURCE]) is None
    assert Settled(package, trusting=False).facts("page", [SOURCE]) is None


@pytest.mark.parametrize("name", ["labsupport/ops.py", "labsupport/new.py", "requirements.txt", str(SOURCE)])
def test_a_change_of_anything_it_depends_on_ends_it(package, name):
    with (package / name).open("a") as file:
        file.write("# changed\n")
    assert Settled(package).facts("page", [SOURCE]) is None


@pytest.mark.parametrize("name", ["labsupport/ops.py", str(SOURCE)])
def test_a_file_that_is_gone_ends_it(package, name):
    (package / name).unlink()
    assert Settled(package).facts("page", [SOURCE]) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", "3", '{"code": 1}', '{"facts": {}}', '{"code": "CODE", "facts": 3}',
                                    '{"code": "CODE", "facts": {"page": 3}}', '{"code": "CODE", "facts": {"page": {}}}'])  # fmt: skip
def test_damaged_notes_are_no_notes(package, damage):
    place = package / "_build/authoring/settled.json"
    place.write_text(damage.replace("CODE", json.loads(place.read_text())["code"]))
    assert Settled(package).facts("page", [SOURCE]) is None
    again = Settled(package)
    again.note("page", [SOURCE], {"lines": 4})
    again.keep()
    assert Settled(package).facts("page", [SOURCE]) == {"lines": 4}

"""The benchmarks are found, can be called, and say so when a target is missed."""

import ast
from pathlib import Path

import pytest

from benchmarks.run import HERE, main, names
from benchmarks.table import show


def test_each_benchmark_has_a_main() -> None:
    assert {"imports", "notebooks", "book", "checks"} <= set(names())
    for name in names():
        tree = ast.parse(Path(HERE, f"{name}.py").read_text(encoding="utf-8"))
        assert "main" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_a_missed_target_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert show([("a, s", 1.0, 2.0), ("b", 5.0, None)]) == 0
    assert "MISSED" not in capsys.readouterr().out
    assert show([("a, s", 2.5, 2.0)]) == 1
    assert "2.50  (at most 2)  MISSED" in capsys.readouterr().out


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["imprts"]) == 2
    assert "there is no benchmark imprts; there are" in capsys.readouterr().err

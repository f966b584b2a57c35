"""The house stands as designed: what loads when, and what the repository may hold.

Style, types and the floors of the architecture are steps of tools/test.py, before these tests.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = (
    "torch",
    "matplotlib",
    "ipywidgets",
    "IPython",
    "triton",
    "numba",
    "scipy",
    "jupytext",
    "nbclient",
    "nbformat",
    "greenlet",
)
SIZE = 1_000_000
SWALLOWED = re.compile(r"except( Base)?( Exception)?:\s*(#.*)?\n\s*pass\b")
#: Where it stands on purpose: an answer that hides its own errors is what the judge is tested with.
SWALLOWED_ON_PURPOSE = {"tests/grading/test_hostile_answers.py"}
#: What no tracked text may hold, and why. Spelled in pieces, because this file is tracked too.
FORBIDDEN = {
    re.compile(r"/" + r"(work|root|home/\w+|Users/\w+)/(main|shared|repo|src|projects?)\b"): "a path of one machine",
    re.compile(r"/" + r"tmp/\w"): "a temporary path of one machine",
    re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b"): "a promise instead of the thing",
    re.compile(r"\|\| " + r"true\b|continue-on-" + r"error"): "a step that cannot fail",
    SWALLOWED: "an error that is swallowed",
    re.compile(r"^(<{7}|>{7}) ", re.MULTILINE): "an unfinished merge",
}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize(
    "module", ["labsupport", "labsupport.ops", "labsupport.grading", "labsupport.exercises", "labsupport.cost"]
)
def test_nothing_heavy_loads_with(module: str) -> None:
    code = f"import {module}, sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_name_of_the_vocabulary_exists() -> None:
    import labsupport

    for name in labsupport.__all__:
        assert callable(getattr(labsupport, name))
    with pytest.raises(AttributeError, match="offers check"):
        _ = labsupport.chekc


def test_tracked_files_hold_nothing_forbidden() -> None:
    found = []
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="ignore")
        name = path.relative_to(ROOT).as_posix()
        for pattern, why in FORBIDDEN.items():
            if not (pattern is SWALLOWED and name in SWALLOWED_ON_PURPOSE):
                found += [f"{name}:{text.count(chr(10), 0, hit.start()) + 1}: {why}" for hit in pattern.finditer(text)]
    assert not found, "\n".join(found)


def test_tracked_files_are_small() -> None:
    paths = tracked()
    assert paths
    assert {str(path.relative_to(ROOT)): size for path in paths if (size := path.stat().st_size) >= SIZE} == {}


def test_every_direct_dependency_says_what_it_is_for() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = re.findall(r'^  "[\w-]+[><=].*$', text, re.MULTILINE)
    assert lines
    assert [line for line in lines if "#" not in line] == []


def test_every_requirement_is_pinned_exactly() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins[0] == "-e ."
    assert [line for line in pins[1:] if not re.fullmatch(r'[\w.-]+==[\w.]+(; sys_platform [=!]= "\w+")?', line)] == []

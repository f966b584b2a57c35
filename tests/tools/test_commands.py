"""The commands that everything starts with: make, the script behind `make test`, and the one of the CI."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
needs_make = pytest.mark.skipif(
    shutil.which("make") is None, reason="make is not installed; every target has a plain command"
)


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("test_script", ROOT / "tools" / "test.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(*arguments: str) -> list[str]:
    """What make prints, unmoved by a make that runs these tests."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHON" and not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, env=clean)
    return done.stdout.splitlines()


@needs_make
@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("book", "-m labsupport.authoring book"),
        ("lab", "-m labsupport.authoring lab"),
        ("notebooks", "-m labsupport.authoring build"),
        ("test", "tools/test.py"),
        ("record", "-m labsupport.cuda record"),
        ("bench", "-m benchmarks"),
    ],
)
def test_every_target_installs_first_and_is_one_documented_command(target: str, command: str) -> None:
    assert make("-n", target) == ["python3 tools/install.py", f".venv/bin/python {command}"]


@needs_make
def test_help_names_every_target() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.findall(r"^  make ([a-z]+) ", "\n".join(make()), re.MULTILINE) == [
        name for name in targets if name != "install"
    ]


def test_the_first_failing_step_ends_the_run(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[list[str]] = []
    monkeypatch.chdir(ROOT)

    def call(command: list[str]) -> int:
        called.append(command[1:])
        return 3 if "mypy" in command else 0

    monkeypatch.setattr(script.subprocess, "call", call)
    assert script.main([]) == 3
    assert len(called) == 2
    assert "== types: failed; mend the types" in capsys.readouterr().err


def test_everything_ends_in_one_strict_pytest(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(script.subprocess, "call", lambda command: called.append(command[1:]) or 0)
    assert script.main(["-k", "softmax"]) == 0
    assert len(called) == len(script.STEPS) + 1
    last = called[-1]
    assert {"--nbval", "--nbval-current-env", "--dist", "loadfile", "-k", "softmax"} <= set(last)
    assert not {"--nbval-lax", "-x"} & set(last)
    assert (ROOT / last[last.index("--nbval-sanitize-with") + 1]).is_file()


@pytest.mark.skipif(os.name == "nt", reason="the CI runs on Linux")
def test_the_script_of_the_ci() -> None:
    path = ROOT / ".ci" / "run"
    text = path.read_text(encoding="utf-8")
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in text
    assert text.rstrip().endswith("exec make test")
    subprocess.run(["bash", "-n", str(path)], check=True)

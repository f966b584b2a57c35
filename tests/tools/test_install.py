"""The installer, met by everything that can stand in its way. Each failure is one sentence, a status, and no trap."""

import ast
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "install.py"
CLOSED_PORT = "http://127.0.0.1:9/simple"
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-ins for Python are shell scripts")


def wheel(folder: Path, name: str) -> str:
    """A wheel with one empty module, so that an installation needs no network."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}/__init__.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return f"./{path.name}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that looks like the book to the installer, small and complete."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "install.py").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "requirements.txt").write_text(
        "\n".join(wheel(tmp_path, name) for name in ("labsupport", "numpy")) + "\n"
    )
    return tmp_path


@pytest.fixture
def module(root: Path) -> ModuleType:
    """The installer as a module of that folder, for what a process cannot be made to meet."""
    spec = importlib.util.spec_from_file_location("install", root / "tools" / "install.py")
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def run(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("PIP_") or name == "PIP_CACHE_DIR"
    }
    return subprocess.run(
        [sys.executable, str(root / "tools" / "install.py")],
        capture_output=True,
        text=True,
        timeout=100,
        cwd="/",
        env={**clean, "PIP_RETRIES": "0", "PIP_TIMEOUT": "2", "PIP_INDEX_URL": CLOSED_PORT, **environment},
    )


def fake_python(root: Path, pip: str, proof: int = 0) -> None:
    """A .venv whose Python answers ``-m pip`` with a shell line and everything else with a status."""
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/sh\ncase "$*" in\n*"pip install"*) {pip};;\n*"import labsupport"*) exit {proof};;\n*) exit 0;;\nesac\n'
    )
    python.chmod(0o755)


def test_installs_then_does_nothing_then_notices_new_pins(root: Path) -> None:
    first = run(root)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "Installed in .venv" in first.stdout
    assert "[2/2]" in first.stdout
    assert not (root / ".venv" / "unfinished.txt").exists()
    assert not (root / ".venv" / "tmp").exists()
    log = root / ".venv" / "install.log"
    written = log.stat().st_mtime_ns
    second = run(root)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert log.stat().st_mtime_ns == written
    (root / "requirements.txt").write_text((root / "requirements.txt").read_text() + "no-such-package==1.0\n")
    third = run(root)
    assert third.returncode == 1
    assert "check the network connection" in third.stderr


def test_no_network_then_recovers(root: Path) -> None:
    good = (root / "requirements.txt").read_text()
    (root / "requirements.txt").write_text("no-such-package==1.0\n")
    failed = run(root)
    assert failed.returncode == 1
    assert "The packages could not be downloaded: check the network connection" in failed.stderr
    assert str(root / ".venv" / "install.log") in failed.stderr
    assert "no-such-package" in failed.stderr, "the last lines of the log are shown"
    assert "Traceback" not in failed.stderr
    (root / "requirements.txt").write_text(good)
    assert run(root).returncode == 0


@pytest.fixture
def quick(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The installer with an environment that is made in no time; the first two tests make real ones."""
    monkeypatch.setattr(module, "make_venv", lambda venv: fake_python(venv.parent, "exit 0"))
    return module


@pytest.mark.parametrize("state", ["interrupted", "empty", "file", "dangling", "moved", "no pip"])
def test_half_made_environments_are_made_anew(
    quick: ModuleType, root: Path, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    venv = root / ".venv"
    if state == "file":
        venv.write_text("")
    elif state == "dangling":
        venv.symlink_to(root / "gone")
    elif state == "empty":
        venv.mkdir()
    else:
        fake_python(root, "exit 0")
        name, text = {
            "interrupted": ("unfinished.txt", "begun"),
            "moved": ("origin.txt", "elsewhere\n"),
            "no pip": ("bin/python", "#!/bin/sh\nexit 1\n"),
        }[state]
        (venv / name).write_text(text)
    assert quick.main() == 0
    assert "starting afresh" in capsys.readouterr().out
    assert sorted(path.name for path in venv.iterdir()) == ["bin", "install.log", "installed.txt"]
    assert quick.main() == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "The disk is full"),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 30] Read-only file system",
            "could not be written",
        ),
        ("WARNING: Retrying after NewConnectionError: Failed to establish a new connection", "could not be downloaded"),
        ("ERROR: Package numba requires a different Python: 3.15.0 not in >=3.10,<3.15", "name another"),
        (
            "ERROR: Could not find a version (from versions: 1.0)  No matching distribution found for x==2",
            "has no build",
        ),
        ("ERROR: something new", "the lines above say why"),
    ],
)
def test_what_pip_says_becomes_one_sentence(root: Path, said: str, sentence: str) -> None:
    fake_python(root, f"echo '{said}'; exit 1")
    failed = run(root)
    assert failed.returncode == 1
    assert sentence in failed.stderr.splitlines()[-1]
    assert said in failed.stderr
    assert said in (root / ".venv" / "install.log").read_text()
    assert not (root / ".venv" / "installed.txt").exists()


@pytest.mark.parametrize("end", ["echo '[Errno 28]'; exit 1", "kill -9 $$"])
def test_pip_stopped_while_copying_starts_afresh(
    quick: ModuleType, root: Path, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_python(root, f"echo 'Installing collected packages: numpy'; {end}")
    assert quick.main() == 1
    assert ("The disk is full" in capsys.readouterr().err) == ("28" in end)
    assert quick.main() == 0
    assert "starting afresh" in capsys.readouterr().out


def test_an_installation_that_does_not_import_starts_afresh(
    quick: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_python(root, "exit 0", proof=1)
    assert quick.main() == 1
    assert "does not work" in capsys.readouterr().err
    assert quick.main() == 0


def test_too_little_space(
    module: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    assert module.main() == 1
    assert "The disk has 1.0 GB free and the installation needs about 3 GB" in capsys.readouterr().err
    assert not (root / ".venv").exists()


@pytest.mark.parametrize(
    ("code", "sentence"), [(30, "cannot be written: copy the book"), (13, "cannot be written"), (28, "disk is full")]
)
def test_a_folder_that_takes_no_file(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, sentence: str
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module.tempfile, "TemporaryFile", refuse)
    assert module.main() == 1
    assert sentence in capsys.readouterr().err


def test_no_venv_module(root: Path) -> None:
    shadow = root / "shadow"
    shadow.mkdir()
    (shadow / "venv.py").write_text(
        "raise SystemExit('The virtual environment was not created: ensurepip is not available')"
    )
    failed = run(root, PYTHONPATH=str(shadow))
    assert failed.returncode == 1
    assert f"sudo apt install python3.{sys.version_info[1]}-venv" in failed.stderr
    assert not (root / ".venv").exists(), "the next run starts from nothing"


def test_too_old_a_python(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    assert module.main() == 1
    said = capsys.readouterr().err
    assert "Python 3.11 or newer is needed and this is 3.9.2" in said
    assert "PYTHON=" in said


def test_an_old_python_hands_over_to_a_newer_one(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(module.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/bin/{name}" if name == "python3.12" else None)
    monkeypatch.setattr(module.subprocess, "call", lambda command: called.append(command) or 0)
    assert module.main() == 0
    assert called[0][0] == "/bin/python3.12"


@pytest.mark.parametrize("path", sorted(SCRIPT.parent.glob("*.py")), ids=lambda path: path.name)
def test_an_old_python_can_read_the_script(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names

"""Makes the folder .venv with everything the book needs, or says in one sentence what stands in the way.

Plain standard library, and a syntax that Python 3.8 still reads, so that an old Python can say that it is too
old. A second run finds the stamp of the first and does nothing. It must never leave a state that the next run
cannot recover from.

    python tools/install.py            (make does this before every target)
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
SPACE = {"fresh": 3 * 10**9, "update": 10**9}  # bytes free: wheels while they are unpacked, and what they become
STAMP = "installed.txt"
UNFINISHED = "unfinished.txt"
ORIGIN = "origin.txt"
LOG = "install.log"
LAST_LINES = 12

#: What pip's words mean for the reader: (pattern in the log, sentence).
CAUSES = (
    (
        r"No space left on device|\[Errno 28\]|There is not enough space on the disk|Disk quota exceeded",
        "The disk is full: free about 3 GB, then run the same command again.",
    ),
    (
        r"\[Errno 30\]|Read-only file system|\[Errno 13\]|Permission denied",
        "A file could not be written: see that this folder and everything in it is yours, then run the same command"
        " again.",
    ),
    (
        r"requires a different Python|Requires-Python",
        "A package does not support this Python ({version}): name another, as in: make book PYTHON=python3.12",
    ),
    (
        r"NewConnectionError|Failed to establish a new connection|Temporary failure in name resolution|Name or service"
        r" not known|getaddrinfo failed|Connection refused|ConnectTimeout|ReadTimeout|timed out|ProxyError|Network is"
        r" unreachable|No route to host|RemoteDisconnected|ConnectionResetError|IncompleteRead|SSLError"
        r"|\(from versions: none\)",
        "The packages could not be downloaded: check the network connection (or the proxy), then run the same command"
        " again; what has been downloaded is kept.",
    ),
    (
        r"No matching distribution found for",
        "A package has no build for this Python ({version}) on this system: name another Python, as in: make book"
        " PYTHON=python3.12",
    ),
    (
        r"error: command .*(gcc|cc|cl\.exe)|Failed building wheel",
        "A package has no ready build for this Python ({version}) on this system: name another Python, as in: make book"
        " PYTHON=python3.12",
    ),
)


class InstallError(Exception):
    """Installing cannot go on; the message is one sentence that says what to do."""


def main():
    """Install unless the stamp says that it is done; returns the exit status."""
    try:
        if sys.version_info < OLDEST:
            return run_newer()
        install(ROOT)
    except InstallError as error:
        print(str(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped. The next run starts afresh.", file=sys.stderr)
        return 130
    return 0


def install(root):
    """Bring root/.venv to what requirements.txt and pyproject.toml say. Raises InstallError."""
    venv = root / ".venv"
    began = time.time()
    try:
        wanted = fingerprint(root)
        if read(venv / STAMP) == wanted and python_of(venv).exists():
            return
        prepare(root, venv)
        run_pip(root, venv)
        prove(venv)
        (venv / STAMP).write_text(wanted)
    except OSError as error:
        raise InstallError(sentence_of(error, root)) from error
    print(f"Installed in .venv in {time.time() - began:.0f} s.")


def fingerprint(root):
    """What the installation depends on: the pins, the metadata, and the folder (an environment cannot be moved)."""
    parts = [(root / name).read_bytes() for name in ("requirements.txt", "pyproject.toml")]
    parts.append(os.fsencode(str(root)))
    return hashlib.sha256(b"\0".join(parts)).hexdigest() + "\n"


def prepare(root, venv):
    """A .venv whose Python and pip start, made anew where an interrupted run left half of one."""
    try:
        with tempfile.TemporaryFile(dir=str(root)):
            pass
    except OSError as error:
        raise InstallError(sentence_of(error, root)) from error
    if os.path.lexists(str(venv)) and ((venv / UNFINISHED).exists() or moved(root, venv) or not works(venv)):
        print(
            "The .venv that is here is incomplete, was moved, or belongs to another Python: starting afresh.",
            flush=True,
        )
        remove(venv)
    need = SPACE["update" if venv.exists() else "fresh"]
    free = shutil.disk_usage(str(root)).free
    if free < need:
        raise InstallError(
            f"The disk has {free / 1e9:.1f} GB free and the installation needs about {need / 1e9:.0f} GB: free some"
            " space, then run the same command again."
        )
    if not venv.exists():
        make_venv(venv)


def origin(root):
    """The folder and the Python that an environment is made for; it cannot be moved from either."""
    return f"{root}\nPython {sys.version_info[0]}.{sys.version_info[1]}\n"


def moved(root, venv):
    """Whether .venv was made by this script for another folder or another Python."""
    return read(venv / ORIGIN) not in ("", origin(root))


def works(venv):
    """Whether the Python of .venv starts, is new enough and has pip."""
    code = f"import sys, pip; sys.exit(sys.version_info < {OLDEST!r})"
    try:
        return (
            subprocess.run(
                [str(python_of(venv)), "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ).returncode
            == 0
        )
    except OSError:
        return False


def remove(venv):
    """Delete .venv, whether folder, link or file."""
    if venv.is_dir() and not venv.is_symlink():
        shutil.rmtree(str(venv))
    else:
        venv.unlink()


def make_venv(venv):
    """Create .venv with pip in it, marked unfinished until pip has ended."""
    print(f"Making .venv with Python {version()} ...", flush=True)
    venv.mkdir()
    (venv / UNFINISHED).write_text("An installation was begun and has not ended.\n")
    (venv / ORIGIN).write_text(origin(venv.parent))
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(venv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if made.returncode:
        said = made.stdout
        remove(venv)
        if re.search(r"ensurepip|No module named '?(venv|pip)", said):
            raise InstallError(
                "This Python ({}) lacks its venv module: install it (on Debian or Ubuntu: sudo apt install"
                " python{}.{}-venv), then run the same command again.".format(sys.executable, *sys.version_info[:2])
            )
        for pattern, sentence in CAUSES[:2]:
            if re.search(pattern, said):
                raise InstallError(sentence)
        raise InstallError(f"{said.strip()}\nPython could not make .venv: the lines above say why.")


def run_pip(root, venv):
    """Install the pins, showing how far it is; everything pip says goes to .venv/install.log."""
    if (venv / STAMP).exists():
        (venv / STAMP).unlink()
    (venv / UNFINISHED).write_text("An installation was begun and has not ended.\n")
    scratch = venv / "tmp"  # on the same disk as .venv, whose free space was looked at
    scratch.mkdir(exist_ok=True)
    environment = dict(os.environ, TMPDIR=str(scratch), TEMP=str(scratch), TMP=str(scratch), PYTHONUNBUFFERED="1")
    command = [str(python_of(venv)), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar", "off", "-r", "requirements.txt"]
    total = sum(1 for line in read(root / "requirements.txt").splitlines() if line and not line.startswith("#"))
    progress = Progress(total)
    with open(str(venv / LOG), "w", encoding="utf-8", errors="replace") as log:
        pip = subprocess.Popen(
            command,
            cwd=str(root),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            for line in pip.stdout:
                log.write(line)
                log.flush()
                progress.read(line)
        finally:
            progress.close()
            if pip.poll() is None and sys.exc_info()[0]:
                pip.kill()
            status = pip.wait()
    shutil.rmtree(str(scratch), ignore_errors=True)
    if status:
        # Whole unless pip was killed or stopped in the middle of copying files.
        if status > 0 and "Installing collected packages" not in read(venv / LOG):
            (venv / UNFINISHED).unlink()
        raise InstallError(failure(read(venv / LOG), venv / LOG))
    (venv / UNFINISHED).unlink()


def failure(said, log):
    """The last lines of pip's log, and one sentence for the reader."""
    lines = [line for line in said.splitlines() if line.strip()][-LAST_LINES:]
    sentence = "pip could not install the packages: the lines above say why."
    for pattern, meaning in CAUSES:
        if re.search(pattern, said):
            sentence = meaning.format(version=version())
            break
    shown = "\n".join("    " + line for line in lines)
    return f"{shown}\n{sentence} (All that pip said: {log})"


def prove(venv):
    """See that the package can be imported. Raises InstallError and has the next run start afresh."""
    done = subprocess.run(
        [str(python_of(venv)), "-c", "import labsupport, numpy"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        (venv / UNFINISHED).write_text("The installation could not be imported.\n")
        raise InstallError(
            f"{done.stdout.strip()}\nThe installation in .venv does not work: run the same command again, it will start"
            " afresh."
        )


def sentence_of(error, root):
    """An OSError in the reader's words."""
    if error.errno == 28:
        return CAUSES[0][1]
    if error.errno in (13, 30):
        return f"The folder {root} cannot be written: copy the book to a folder of yours and run the command there."
    return f"The installation stopped: {error}. Mend that, then run the same command again."


def run_newer():
    """Run this script with a newer Python of this machine. Raises InstallError where there is none."""
    for minor in range(OLDEST[1] + 3, OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return subprocess.call([found, os.path.abspath(__file__)])
    raise InstallError(
        f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed and this is {version()} ({sys.executable}): install one, or"
        " name it, as in: make book PYTHON=/path/to/python3.12"
    )


class Progress:
    """How far pip is: one line that is rewritten on a terminal, a line now and then in a log.

    A thread repeats the line, because pip is silent for a minute while it copies the files of PyTorch.
    """

    def __init__(self, total):
        self.total = total
        self.seen = set()
        self.doing = "starting"
        self.terminal = sys.stdout.isatty()
        self.began = time.time()
        self.ended = threading.Event()
        self.clock = threading.Thread(target=self.repeat, daemon=True)
        self.clock.start()

    def read(self, line):
        """Take in one line of pip's."""
        found = re.match(
            r"(Collecting|Requirement already satisfied:|Obtaining|Processing) ([A-Za-z0-9_./-]+|file:)", line
        )
        if found:
            self.seen.add(found.group(2))
        verb = re.match(r"\s*(Collecting|Downloading|Building|Installing|Preparing|Obtaining|Processing)\s?(\S*)", line)
        if verb and verb.group(1) == "Installing" and "collected packages" in line:
            self.doing = "copying the packages into .venv"
        elif verb:
            size = re.search(r"\([\d.]+ [kMG]B\)", line)
            self.doing = " ".join([verb.group(1).lower(), verb.group(2).split("/")[-1], size.group(0) if size else ""])

    def repeat(self):
        """Show the state, every second on a terminal and every ten seconds in a log, until it ends."""
        while not self.ended.wait(1 if self.terminal else 10):
            self.show()

    def show(self):
        """Show the state once."""
        done = f"[{min(len(self.seen), self.total)}/{self.total}]"
        text = f"{done} {self.doing.strip()} ({time.time() - self.began:.0f} s)"
        if self.terminal:
            print("\r" + text[:100].ljust(100), end="", flush=True)
        else:
            print(text, flush=True)

    def close(self):
        """Show the last state and leave the line."""
        self.ended.set()
        self.clock.join()
        self.show()
        if self.terminal:
            print()


def python_of(venv):
    """The Python inside an environment, on this system."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def read(path):
    """A text file, or an empty text where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def version():
    """This Python's version, as in 3.11.7."""
    return "{}.{}.{}".format(*sys.version_info[:3])


if __name__ == "__main__":
    sys.exit(main())

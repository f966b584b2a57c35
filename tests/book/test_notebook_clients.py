"""A reader's session in the real clients: JupyterLab and Notebook 7 on a working copy, driven by Chromium.

The server is started on loopback with a folder of its own, and nothing of it is left behind.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest
from playwright.sync_api import Locator, Page, expect

from labsupport.authoring.working_copy import lab_command, lab_environment, update
from labsupport.grading.progress import ProgressStore
from tests.book.browser import Problems, collect_problems, open_browser

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = "exercises/05-softmax-and-kl.ipynb"
SECONDS = 90
NOT_RUN, RUN = "[ ]:", re.compile(r"^\[\d+\]:$")
NAIVE = """def softmax(x):
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)"""
STABLE = """def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)"""


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its address, its secret and its working copy."""

    address: str
    token: str
    work: Path

    def url(self, path: str, client: str) -> str:
        return f"{self.address}/{client}/{path}?token={self.token}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(folder: Path) -> dict[str, str]:
    """The environment of a reader who has never used Jupyter: every setting in `folder`, every cell drawn."""
    settings = folder / "config" / "lab" / "user-settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    (settings / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "none"}), encoding="utf-8")
    given = lab_environment(folder / "work")
    kept = {name: value for name, value in given.items() if not name.startswith(("JUPYTER_PREFER", "LABSUPPORT"))}
    own = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
           "IPYTHONDIR": "ipython", "HOME": "home"}  # fmt: skip
    return {**kept, **{name: str(folder / place) for name, place in own.items()}}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    work, port, token = tmp_path / "work", free_port(), secrets.token_hex(16)
    update(ROOT, work)
    command = [
        *lab_command(work, port, browser=False),
        f"--IdentityProvider.token={token}",
        "--ServerApp.port_retries=0",
        "--ServerApp.allow_root=True",
    ]
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path
    )
    log: list[str] = []
    ready = threading.Event()

    def follow() -> None:
        assert server.stderr is not None
        for line in server.stderr:
            log.append(line)
            if "is running at:" in line:
                ready.set()
        ready.set()

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    try:
        ready.wait(SECONDS)
        assert server.poll() is None, "".join(log)
        yield Lab(f"http://127.0.0.1:{port}", token, work)
    finally:
        stop(server)
        reader.join(10)


def stop(server: subprocess.Popen[str]) -> None:
    """End the server and the kernels it started; fail when one of them outlives that."""
    family = psutil.Process(server.pid).children(recursive=True) if server.poll() is None else []
    server.terminate()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(10)
    _, alive = psutil.wait_procs(family, timeout=10)
    for process in alive:
        process.kill()
    assert not alive, f"left behind: {alive}"


@pytest.fixture
def seen(lab: Lab) -> Iterator[tuple[Page, Problems]]:
    with open_browser(viewport={"width": 1280, "height": 1000}) as browser:
        page = browser.new_page()
        page.set_default_timeout(SECONDS * 1000)
        expect.set_options(timeout=SECONDS * 1000)
        yield page, collect_problems(page)
    expect.set_options(timeout=5000)


def open_notebook(page: Page, lab: Lab, path: str, client: str = "lab/tree") -> None:
    page.goto(lab.url(path, client))
    expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible()
    kernel_rests(page, lab)
    # The committed notebook was executed. Without its numbers, a number is proof that a cell ran here.
    menu(page, "Edit", "Clear Outputs of All Cells")
    for prompt in page.locator(".jp-Notebook .jp-CodeCell .jp-InputArea-prompt").all():
        expect(prompt).to_have_text(NOT_RUN)


def menu(page: Page, name: str, entry: str) -> None:
    page.get_by_role("menuitem", name=name, exact=True).click()
    page.get_by_role("menuitem", name=entry).click()


def kernel_rests(page: Page, lab: Lab) -> None:
    """Wait until the notebook's kernel runs, the page is connected to it, and both say that it is idle."""
    deadline = time.monotonic() + SECONDS
    while True:
        kernels = page.request.get(f"{lab.address}/api/kernels?token={lab.token}").json()
        if kernels and all(one["connections"] and one["execution_state"] == "idle" for one in kernels):
            break
        assert time.monotonic() < deadline, f"no kernel is ready: {kernels}"
        page.wait_for_timeout(100)
    expect(page.locator(".jp-Notebook-ExecutionIndicator").first).to_have_attribute("data-status", "idle")


def code_cells(page: Page, lab: Lab) -> dict[str, Locator]:
    """The code cells by id: their places on the screen are those in the file."""
    cells = json.loads((lab.work / NOTEBOOK).read_text(encoding="utf-8"))["cells"]
    names = [cell["id"] for cell in cells if cell["cell_type"] == "code"]
    shown = page.locator(".jp-Notebook .jp-CodeCell")
    expect(shown).to_have_count(len(names))
    return {name: shown.nth(place) for place, name in enumerate(names)}


def run(cell: Locator, source: str | None = None) -> None:
    """Run a cell as a reader does: click into it, perhaps replace its text, press Shift-Enter, wait for its number."""
    editor = cell.locator(".cm-content")
    editor.click()
    if source is not None:
        editor.press("Control+a")
        cell.page.keyboard.insert_text(source)
    prompt = cell.locator(".jp-InputArea-prompt")
    before = prompt.inner_text()
    editor.press("Shift+Enter")
    expect(prompt).not_to_have_text(before)
    expect(prompt).to_have_text(RUN)


def verdict(cell: Locator) -> Locator:
    return cell.locator(".ls-verdict")


def test_a_reader_fails_learns_passes_and_sees_the_progress(lab: Lab, seen: tuple[Page, Problems]) -> None:
    page, problems = seen
    open_notebook(page, lab, NOTEBOOK)
    cells = code_cells(page, lab)
    answer, check = cells["softmax-stable"], cells["softmax-stable-check"]
    run(next(iter(cells.values())))  # the imports

    run(answer, NAIVE)
    run(check)
    expect(verdict(check)).to_have_attribute("data-state", "fail")
    expect(verdict(check)).to_contain_text("not right yet")
    expect(verdict(check)).to_contain_text("exp overflows on large logits")

    run(answer, STABLE)
    run(check)
    expect(verdict(check)).to_have_attribute("data-state", "pass")
    # Replaced by progress() and run as it stands; the notebook's text is given back below.
    text = 'check("softmax-stable", softmax)'
    run(check, "progress()")
    shown = check.locator(".ls-progress")
    expect(shown).to_contain_text("Progress: 1 of")
    expect(shown.get_by_role("row", name="5. Softmax and KL")).to_contain_text("1 of")
    expect(shown.get_by_text("Stable softmax: passed")).to_be_attached()
    run(check, text)

    kept = ProgressStore(lab.work / "progress.json")
    assert (kept.state("softmax-stable"), kept.attempts("softmax-stable")) == ("pass", 2)
    save(page)
    assert STABLE in sources(lab)
    expect(page.get_by_text("Jupyter news")).to_have_count(0)
    assert problems.external_requests == []
    assert problems.page_errors == []

    # An update of the book while the notebook is closed keeps what was typed.
    page.goto("about:blank")
    marked = lab.work / ".book" / NOTEBOOK
    marked.write_text(marked.read_text(encoding="utf-8").replace("Stable softmax", "Stable softmax, old"), "utf-8")
    update(ROOT, lab.work)
    assert STABLE in sources(lab)


def sources(lab: Lab) -> list[str]:
    cells = json.loads((lab.work / NOTEBOOK).read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells]


def save(page: Page) -> None:
    with page.expect_response(lambda response: response.request.method == "PUT" and "/api/contents/" in response.url):
        page.keyboard.press("Control+s")


def test_notebook_7_shows_what_jupyterlab_shows(lab: Lab, seen: tuple[Page, Problems]) -> None:
    page, problems = seen
    open_notebook(page, lab, NOTEBOOK, client="notebooks")
    config = json.loads(page.locator("#jupyter-config-data").text_content() or "")
    assert "Notebook" in config["appName"]
    loading = list(problems.page_errors)  # Notebook 7.6 stumbles over its own settings; from now on, nothing does
    cells = code_cells(page, lab)
    answer, check = cells["softmax-stable"], cells["softmax-stable-check"]
    run(next(iter(cells.values())))  # the imports

    run(answer, NAIVE)
    run(check)
    expect(verdict(check)).to_have_attribute("data-state", "fail")
    expect(verdict(check).locator(".ls-state")).to_have_text("not right yet")
    expect(verdict(check)).to_have_css("border-left", "4px solid rgb(207, 90, 60)")
    expect(verdict(check)).to_contain_text("exp overflows on large logits")

    run(answer, STABLE)
    run(check)
    expect(verdict(check)).to_have_attribute("data-state", "pass")
    run(check, 'hint("softmax-stable")')
    expect(check.locator(".ls-note")).to_contain_text("hint 1 of 3")
    run(check, "progress()")
    expect(check.locator(".ls-progress").get_by_role("row", name="5. Softmax and KL")).to_contain_text("1 of")
    run(check, 'check("softmax-shift")')  # a question with a formula, which needs no TeX
    expect(verdict(check).locator("sup").first).to_have_text("8")
    expect(verdict(check)).not_to_contain_text("\\")
    assert problems.external_requests == []
    assert problems.page_errors == loading


CURVE = """import time
from types import SimpleNamespace

from labsupport.figures.training_lab import LossCurve

with LossCurve(40, {"uniform": 3.0}, every=2) as curve:
    for step in range(40):
        curve.add(step, SimpleNamespace(loss=4 - step / 20), 0.1)
        time.sleep(0.1)"""


def test_a_loss_curve_grows_while_training_runs(lab: Lab, seen: tuple[Page, Problems]) -> None:
    page, problems = seen
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CURVE)], metadata={"kernelspec": kernel})
    nbformat.write(notebook, lab.work / "curve.ipynb")
    page.goto(lab.url("curve.ipynb", "lab/tree"))
    kernel_rests(page, lab)
    cell = page.locator(".jp-Notebook .jp-CodeCell").first
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")

    picture = cell.locator(".widget-html svg")
    drawn = set()
    for _ in range(200):
        if cell.locator(".jp-InputArea-prompt").inner_text() == "[1]:":
            break
        if picture.count():
            drawn.add(picture.first.inner_html())
        page.wait_for_timeout(50)
    assert len(drawn) >= 3  # several pictures before the cell was done
    expect(cell.locator(".widget-html")).to_contain_text("Loss of each step.")
    assert problems.external_requests == []
    assert problems.page_errors == []


def test_restart_and_run_all_in_an_untouched_notebook_never_stops(lab: Lab, seen: tuple[Page, Problems]) -> None:
    page, problems = seen
    open_notebook(page, lab, NOTEBOOK)
    given = json.loads((lab.work / NOTEBOOK).read_text(encoding="utf-8"))
    code = [cell for cell in given["cells"] if cell["cell_type"] == "code"]
    cells = list(code_cells(page, lab).values())

    menu(page, "Kernel", "Restart Kernel and Run All Cells")
    with page.expect_response(lambda response: response.url.split("?")[0].endswith("/restart")):
        page.get_by_role("button", name="Confirm Kernel Restart").click()
    for cell in cells:
        expect(cell.locator(".jp-InputArea-prompt")).to_have_text(RUN)
    kernel_rests(page, lab)

    checks = sum("check" in cell["metadata"].get("tags", []) for cell in code)
    assert checks >= 10
    expect(page.locator('.ls-verdict[data-state="todo"]')).to_have_count(checks)
    expect(page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.error"]')).to_have_count(0)
    expect(page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]')).to_have_count(0)
    assert not (lab.work / "progress.json").exists()  # nothing was tried, so nothing is remembered
    assert problems.external_requests == []
    assert problems.page_errors == []

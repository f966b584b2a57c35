"""Grading a class: right, wrong, hostile and broken notebooks in one folder, in child processes."""

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labsupport.classroom.batch import main

GOOD = """
import numpy as np
from labsupport import check, hint, progress
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
check("softmax-stable", softmax)
"""
NAIVE = GOOD.replace("x - x.max(axis=-1, keepdims=True)", "x")
MUTATES = GOOD.replace("    e = np", "    x -= 1\n    e = np")
ENDLESS = GOOD.replace("    e = np", "    while True: pass\n    e = np")
EXITS = GOOD.replace("    e = np", "    raise SystemExit(1)\n    e = np")
RAISES = GOOD.replace("    e = np", "    raise KeyError('lost')\n    e = np")
MASKED = GOOD.replace("return e / e", "return np.ma.masked_array(e) / e")
STUB = 'from labsupport import check\ndef softmax(x):\n    ...\ncheck("softmax-stable", softmax)'
CLAIMS = "import labsupport.grading.judge as j\nj.judge = lambda *a: None\n" + NAIVE
KILLS = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
HANGS = "import time\ntime.sleep(600)"
HUNGRY = "x = bytearray(64 * 2**30)\n" + GOOD
NETWORK = """
import socket
from labsupport import check
try:
    socket.create_connection(("127.0.0.1", PORT), timeout=2)
    reached = True
except OSError:
    reached = False
check("softmax-shift", "reached" if reached else "cut off")
"""


CLIPS_IN_PLACE = """
import numpy as np
from labsupport import check
def clip(grads, max_norm):
    norm = np.sqrt(sum(float((g.astype(float) ** 2).sum()) for g in grads))
    for g in grads:
        g *= g.dtype.type(max_norm / norm if norm > max_norm else 1)
    return grads
check("clip-global-norm", clip)
"""
CLIPS = CLIPS_IN_PLACE.replace("g *= g.dtype", "out.append(g * g.dtype").replace("else 1)", "else 1))")
CLIPS = CLIPS.replace("    for g", "    out = []\n    for g").replace("return grads", "return out")


def notebook(path, *cells):
    code = [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": []} for cell in cells]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


def rows(table):
    with table.open(newline="") as file:
        return {(row["submission"], row["exercise"]): row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    submissions = folder / "submissions"
    for name, cells in {
        "good": [GOOD],
        "another_order": ["check = None", GOOD],
        "naive": [NAIVE],
        "mutates": [MUTATES],
        "endless": [ENDLESS],
        "exits": [EXITS],
        "raises": [RAISES],
        "masked": [MASKED],
        "stub": [STUB],
        "claims": [CLAIMS],
        "kills": [KILLS, GOOD],
        "hungry": [HUNGRY, GOOD],
        "broken_cell": ["1 / 0", "%matplotlib inline\n" + GOOD],
        "empty": ["x = 1"],
    }.items():
        notebook(submissions / name / "answers.ipynb", *cells)
    (submissions / "not_json.ipynb").write_text("{ half a notebo")
    table = folder / "grades.csv"
    assert main([str(submissions), "-o", str(table), "--exercise", "softmax-stable", "--jobs", "2"]) == 0
    return submissions, table


@pytest.mark.parametrize(
    ("name", "state", "word"),
    [
        ("good/answers.ipynb", "pass", "right"),
        ("another_order/answers.ipynb", "pass", "right"),
        ("broken_cell/answers.ipynb", "pass", "right"),
        ("hungry/answers.ipynb", "pass", "right"),
        ("naive/answers.ipynb", "fail", "NaN"),
        ("claims/answers.ipynb", "fail", "NaN"),
        ("mutates/answers.ipynb", "fail", "changed its input"),
        ("endless/answers.ipynb", "fail", "did not end"),
        ("exits/answers.ipynb", "fail", "sys.exit"),
        ("raises/answers.ipynb", "fail", "KeyError"),
        ("masked/answers.ipynb", "fail", "object of type MaskedArray"),
        ("stub/answers.ipynb", "todo", ""),
        ("kills/answers.ipynb", "missing", "status -9"),
        ("empty/answers.ipynb", "missing", "no check"),
        ("not_json.ipynb", "missing", "not a notebook"),
    ],
)
def test_each_notebook_gets_its_row(graded, name, state, word):
    row = rows(graded[1])[name, "softmax-stable"]
    assert row["state"] == state
    assert word in row["reason"]
    assert int(row["points"]) == (int(row["possible"]) if state == "pass" else 0)


def test_a_known_mistake_is_named(graded):
    assert rows(graded[1])["naive/answers.ipynb", "softmax-stable"]["mistake"] == "naive-overflow"


def test_what_a_function_does_to_arrays_in_a_list_counts_too(tmp_path):
    notebook(tmp_path / "in" / "in_place.ipynb", CLIPS_IN_PLACE)
    notebook(tmp_path / "in" / "new.ipynb", CLIPS)
    assert main([str(tmp_path / "in"), "-o", str(tmp_path / "t.csv"), "--exercise", "clip-global-norm"]) == 0
    found = rows(tmp_path / "t.csv")
    assert found["new.ipynb", "clip-global-norm"]["state"] == "pass"
    assert found["in_place.ipynb", "clip-global-norm"]["state"] == "fail"
    assert "changed its input" in found["in_place.ipynb", "clip-global-norm"]["reason"]


def test_a_second_run_grades_only_what_changed(graded, capsys):
    submissions, table = graded
    notebook(submissions / "naive" / "answers.ipynb", GOOD)
    assert main([str(submissions), "-o", str(table), "--exercise", "softmax-stable"]) == 0
    assert "1 notebooks graded, 14 were done" in capsys.readouterr().out
    assert rows(table)["naive/answers.ipynb", "softmax-stable"]["state"] == "pass"


def test_a_notebook_that_hangs_is_stopped(tmp_path):
    notebook(tmp_path / "s" / "a.ipynb", HANGS)
    began = time.monotonic()
    assert main([str(tmp_path / "s"), "-o", str(tmp_path / "t.csv"), "--seconds", "6", "--exercise", "top-p"]) == 0
    assert time.monotonic() - began < 40
    assert "did not end within 6 seconds" in rows(tmp_path / "t.csv")["a.ipynb", "top-p"]["reason"]


def test_a_whole_chapter_is_expected_where_no_exercise_is_named(tmp_path):
    notebook(tmp_path / "s" / "a.ipynb", GOOD)
    assert main([str(tmp_path / "s"), "-o", str(tmp_path / "t.csv")]) == 0
    table = rows(tmp_path / "t.csv")
    assert {row["chapter"] for row in table.values()} == {"5"}
    assert table["a.ipynb", "softmax-stable"]["state"] == "pass"
    assert table["a.ipynb", "top-p"]["state"] == "missing"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has network namespaces")
def test_a_notebook_reaches_no_network_where_the_system_allows_to_cut_it_off(tmp_path):
    import ctypes
    import socket

    allowed = subprocess.run(
        [sys.executable, "-c", "import ctypes,sys; sys.exit(ctypes.CDLL(None).unshare(0x50000000) and 1)"]
    )
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        notebook(tmp_path / "s" / "a.ipynb", NETWORK.replace("PORT", str(server.getsockname()[1])))
        from labsupport.classroom import batch

        ran = batch._run(tmp_path / "s" / "a.ipynb", batch.Limits(60, 4 * 2**30))
    said = ran.delivery.structure["answers"]["softmax-shift"]
    text = json.dumps(said)
    assert ("cut off" in text) == (allowed.returncode == 0)
    assert ctypes


def test_bad_arguments_are_named(tmp_path, capsys):
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "no notebook" in capsys.readouterr().err
    notebook(tmp_path / "a.ipynb", GOOD)
    assert main([str(tmp_path), "--exercise", "softmax-stabel"]) == 2
    assert "softmax-stable" in capsys.readouterr().err
    foreign = tmp_path / "mine.csv"
    foreign.write_text("name,age\nx,3\n")
    with pytest.raises(SystemExit, match="no table of this command"):
        main([str(tmp_path), "-o", str(foreign)])
    assert foreign.read_text() == "name,age\nx,3\n"


def test_the_command_runs_as_documented(tmp_path):
    notebook(tmp_path / "s" / "a.ipynb", GOOD)
    command = [sys.executable, "-m", "labsupport.grade", "s", "-o", "grades.csv", "--exercise", "softmax-stable"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert "pass" in (tmp_path / "grades.csv").read_text()


def test_a_text_that_looks_like_a_formula_is_defused(tmp_path):
    notebook(tmp_path / "s" / "=cmd.ipynb", GOOD)
    main([str(tmp_path / "s"), "-o", str(tmp_path / "t.csv"), "--exercise", "softmax-stable"])
    assert "'=cmd.ipynb" in (tmp_path / "t.csv").read_text()


def test_the_nbgrader_export_raises_on_a_wrong_answer_and_not_on_a_right_one(tmp_path):
    source = next((Path(__file__).parents[2] / "exercises").glob("05*.ipynb"))
    target = tmp_path / "out.ipynb"
    assert main([str(source), "--nbgrader", str(target)]) == 0
    cells = json.loads(target.read_text())["cells"]
    tests = [c for c in cells if c["metadata"].get("nbgrader", {}).get("grade")]
    assert len(tests) >= 10
    assert all(c["source"].startswith("from labsupport.classroom import require") for c in tests)
    assert sum(c["metadata"].get("nbgrader", {}).get("solution", False) for c in cells) >= 10
    from labsupport.classroom import require

    os.environ["LABSUPPORT_PROGRESS"] = "off"
    require("softmax-stable", _softmax)
    with pytest.raises(AssertionError, match="softmax-stable"):
        require("softmax-stable", lambda x: x)
    with pytest.raises(AssertionError):
        require("softmax-stable", ...)


def _softmax(x):
    import numpy as np

    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)

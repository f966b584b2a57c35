"""run_ranks: real processes, results in rank order, failures that surface, nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from labsupport.distributed import RankError, run_ranks

SCALE = 3.0


def helper(x):
    return x * SCALE


def all_reduced_mean(rank, world_size, values, counts):
    import torch
    import torch.distributed as dist

    pair = torch.tensor([values[rank] * counts[rank], counts[rank]], dtype=torch.float64)
    dist.all_reduce(pair)
    return float(pair[0] / pair[1])


def uses_globals(rank, world_size):
    return float(np.sum(np.ones(4))) + helper(rank)


def broken_on_rank_one(rank, world_size):
    import torch.distributed as dist

    if rank == 1:
        raise ZeroDivisionError("the reader's own mistake")
    dist.barrier()


def killed_on_rank_one(rank, world_size):
    import os
    import signal

    import torch.distributed as dist

    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def waits_for_ever(rank, world_size):
    import time

    while rank == 0:
        time.sleep(0.1)


def says_its_process(rank, world_size):
    import os

    return os.getpid()


def test_a_weighted_mean_over_two_ranks_is_the_mean_of_all_tokens():
    results = run_ranks(all_reduced_mean, 2, (2.0, 3.0), (7, 5))
    assert results == [pytest.approx(29 / 12)] * 2


def test_modules_functions_and_values_that_the_function_names_travel_with_it():
    assert run_ranks(uses_globals, 2) == [4.0, 7.0]


def test_each_rank_is_a_process_of_its_own_and_none_is_left():
    pids = run_ranks(says_its_process, 2)
    assert len({*pids, os.getpid()}) == 3
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_traceback_of_the_rank_that_failed_first_surfaces():
    with pytest.raises(RankError, match="the reader's own mistake") as caught:
        run_ranks(broken_on_rank_one, 2)
    assert caught.value.rank == 1
    assert "broken_on_rank_one" in str(caught.value)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_rank_that_dies_is_named():
    with pytest.raises(RankError) as caught:
        run_ranks(killed_on_rank_one, 2)
    assert caught.value.rank in (0, 1)
    assert "rank" in str(caught.value)


def test_a_rank_that_never_ends_is_stopped_and_named():
    began = time.monotonic()
    with pytest.raises(RankError, match="did not finish within") as caught:
        run_ranks(waits_for_ever, 2, timeout=8)
    assert caught.value.rank == 0
    assert time.monotonic() - began < 20


def test_a_meeting_file_that_is_already_there_is_an_error(tmp_path):
    taken = tmp_path / "meeting"
    taken.write_text("")
    with pytest.raises(ValueError, match="already there"):
        run_ranks(says_its_process, 2, init_method=taken.as_uri())


def test_a_port_that_is_taken_is_an_error():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port}"):
            run_ranks(says_its_process, 2, init_method=f"tcp://127.0.0.1:{port}")


def test_ranks_can_meet_on_a_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = f"tcp://127.0.0.1:{port}"
    assert run_ranks(all_reduced_mean, 2, (1.0, 3.0), (1, 1), init_method=meeting) == [2.0, 2.0]


@pytest.mark.parametrize("world_size", [0, -1, 1.5, True, "2"])
def test_a_bad_number_of_ranks_is_an_error(world_size):
    with pytest.raises(ValueError, match="world_size"):
        run_ranks(says_its_process, world_size)


def test_a_lambda_or_a_closure_is_refused_with_a_reason():
    with pytest.raises(ValueError, match="def"):
        run_ranks(lambda rank, world_size: rank, 1)
    captured = 3

    def closure(rank, world_size):
        return captured

    with pytest.raises(ValueError, match="captured"):
        run_ranks(closure, 1)


def test_a_class_that_no_module_holds_is_refused_with_a_reason(monkeypatch):
    homeless = type("Homeless", (), {"__module__": "__main__"})
    monkeypatch.setitem(uses_a_class.__globals__, "Homeless", homeless)
    with pytest.raises(ValueError, match="class Homeless"):
        run_ranks(uses_a_class, 1)


def uses_a_class(rank, world_size):
    return Homeless()  # noqa: F821 (the test defines it)


NOTEBOOK = [
    """
    import os
    import numpy as np
    import torch.distributed as dist
    from labsupport.distributed import RankError, run_ranks
    SCALE = np.array([2.0, 3.0])
    """,
    """
    def helper(rank):
        return SCALE * (rank + 1)

    def summed(rank, world_size, offset):
        import torch
        total = torch.tensor(helper(rank))
        dist.all_reduce(total)
        return os.getpid(), (total + offset).tolist()

    results = run_ranks(summed, 2, 1.0, timeout=200)
    print([value for _, value in results])
    """,
    """
    def summed(rank, world_size):  # the same name again: the new body counts
        if rank == 1:
            raise KeyError("a slip in a cell")
        dist.barrier()

    try:
        run_ranks(summed, 2, timeout=200)
    except RankError as error:
        print(error.rank, "a slip in a cell" in str(error), 'raise KeyError("a slip in a cell")' in str(error))
    """,
    """
    import pathlib, signal, tempfile, threading, time

    def sleeper(rank, world_size, folder):
        pathlib.Path(folder, str(rank)).write_text(str(os.getpid()))
        time.sleep(300)

    folder = tempfile.mkdtemp()
    files = [pathlib.Path(folder, name) for name in "01"]

    def interrupt_when_ranks_run():
        while not all(file.exists() and file.read_text() for file in files):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)  # what the notebook's stop button sends

    threading.Thread(target=interrupt_when_ranks_run).start()
    try:
        run_ranks(sleeper, 2, folder, timeout=250)
    except KeyboardInterrupt:
        print("interrupted")
    """,
    """
    def gone(pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    pids = [pid for pid, _ in results] + [int(file.read_text()) for file in files]
    print(len(set(pids)), all(gone(pid) for pid in pids))
    """,
]


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ on Windows")
def test_cells_of_a_notebook_run_on_ranks_fail_with_their_traceback_and_leave_nothing():
    import nbformat
    from nbclient import NotebookClient

    cells = [nbformat.v4.new_code_cell(textwrap.dedent(source).strip()) for source in NOTEBOOK]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=280, kernel_name="python3").execute()
    said = ["".join(output.get("text", "") for output in cell.outputs).strip() for cell in notebook.cells]
    assert said == ["", "[[7.0, 10.0], [7.0, 10.0]]", "1 True True", "interrupted", "4 True"]


def test_an_argument_that_cannot_be_pickled_is_an_error():
    with pytest.raises(ValueError, match="arguments"):
        run_ranks(says_its_process, 1, lambda: None)


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ on Windows")
def test_ranks_end_when_their_parent_is_killed(tmp_path):
    program = tmp_path / "parent.py"
    program.write_text(
        textwrap.dedent(
            """
            from labsupport.distributed import run_ranks

            def sleeper(rank, world_size, folder):
                import os, pathlib, time
                pathlib.Path(folder, str(rank)).write_text(str(os.getpid()))
                time.sleep(120)

            run_ranks(sleeper, 2, FOLDER, timeout=100)
            """
        ).replace("FOLDER", repr(str(tmp_path)))
    )
    parent = subprocess.Popen([sys.executable, str(program)])
    files = [tmp_path / "0", tmp_path / "1"]
    wait_until(lambda: all(file.exists() and file.read_text() for file in files), 60)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not any(alive(int(file.read_text())) for file in files), 10)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = f"/proc/{pid}/stat"
    return not (os.path.exists(stat) and ") Z " in open(stat).read())


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)

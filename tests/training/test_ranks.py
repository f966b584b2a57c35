"""The command runs alone and under torchrun, and two ranks are one process cut in two."""

import os
from pathlib import Path

import numpy as np
import pytest

from labsupport import torch_twin, training
from labsupport.distributed import run_ranks
from labsupport.ops.transformer import IGNORE, Config
from labsupport.training import Saved, Settings, TorchEngine
from labsupport.training.__main__ import main

SMALL = Settings(model=Config(vocab=40, width=16, layers=1, hidden=16, heads=2))


def batch(rows: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.random.default_rng(5).integers(0, 40, (rows, 9))
    labels = np.roll(ids, -1, axis=1)
    labels[0, 2:] = IGNORE  # the ranks hold different numbers of labels
    return ids, labels


def gradients_of_a_rank(rank: int, ranks: int, rows: int) -> tuple[float, dict[str, np.ndarray]]:
    ids, labels = batch(rows)
    engine = TorchEngine(SMALL, Saved.fresh(SMALL.model, np.random.default_rng(0)))
    return engine.gradients(ids, labels), torch_twin.gradients(engine.model)


@pytest.mark.parametrize(("ranks", "rows"), [(2, 4), (2, 5), (3, 4)])
def test_gradients_of_all_ranks_are_those_of_one_process(ranks: int, rows: int) -> None:
    loss, wanted = gradients_of_a_rank(0, 1, rows)
    for found, grads in run_ranks(gradients_of_a_rank, ranks, rows):
        assert found == pytest.approx(loss, rel=1e-12)
        for name, grad in grads.items():
            np.testing.assert_allclose(grad, wanted[name], rtol=1e-9, atol=1e-14, err_msg=name)


def test_more_ranks_than_rows_are_refused() -> None:
    with pytest.raises(RuntimeError, match="2 ranks share 1 rows"):
        run_ranks(gradients_of_a_rank, 2, 1)


def test_torchrun_gives_the_run_of_one_process(tmp_path: Path) -> None:
    options = ["--steps", "8", "--every", "4", "--dtype", "float64", "--device", "cpu"]
    assert main([*options, "--record", str(tmp_path / "one.npz")]) == 0
    output = training.torchrun(2, [*options, "--record", str(tmp_path / "two.npz"), "--save", str(tmp_path / "w.npz")])
    assert "2 rank(s), cpu" in output
    assert output.count("step ") == 3  # rank 0 alone speaks
    with np.load(tmp_path / "one.npz") as one, np.load(tmp_path / "two.npz") as two:
        assert one.files == two.files
        for name in one.files:
            np.testing.assert_allclose(two[name], one[name], rtol=1e-7, atol=1e-11, err_msg=name)
    kept = training.load(tmp_path / "w.npz", Settings().model)
    assert kept.step == 8
    assert len(kept.tokens) == Settings().model.vocab


def test_a_failing_rank_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no_such\.npz"):
        training.torchrun(1, ["--steps", "1", "--device", "cpu", "--resume", str(tmp_path / "no_such.npz")])
    with pytest.raises(ValueError, match="at least 1"):
        training.torchrun(0, [])


def test_ranks_are_ended_when_the_time_is_up() -> None:
    import psutil

    with pytest.raises(RuntimeError, match="did not finish within 1 s"):
        training.torchrun(1, ["--steps", "100000", "--device", "cpu"], timeout=1)
    mine = psutil.Process(os.getpid()).children(recursive=True)
    assert [child for child in mine if "labsupport.training" in " ".join(child.cmdline())] == []


def test_both_engines_save_and_resume_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "run.npz")
    options = ["--steps", "6", "--dtype", "float64", "--device", "cpu"]
    assert main([*options, "--record", str(tmp_path / "whole.npz")]) == 0
    assert main([*options, "--engine", "numpy", "--until", "3", "--save", path]) == 0
    assert main([*options, "--resume", path, "--record", str(tmp_path / "rest.npz")]) == 0
    with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "rest.npz") as rest:
        np.testing.assert_allclose(rest["losses"], whole["losses"][3:], rtol=1e-9)
    assert "held-out loss" in capsys.readouterr().out
    (tmp_path / "run.npz").write_bytes(b"short")
    assert main([*options, "--resume", path]) == 2
    assert "damaged" in capsys.readouterr().err


def test_numpy_is_refused_under_torchrun(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert main(["--engine", "numpy", "--steps", "1"]) == 2
    assert "one process" in capsys.readouterr().err


def test_cuda_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert main(["--device", "cuda", "--steps", "1"]) == 2
    assert "it has 0; use --device cpu" in capsys.readouterr().err

"""A file of weights gives back what was saved, and says clearly why it does not."""

import json
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from labsupport import training
from labsupport.ops.transformer import Config
from labsupport.training import CheckpointError, NumpyEngine, Saved, Settings
from labsupport.training.files import FORMAT

CONFIG = Config(vocab=30, width=8, layers=1, hidden=8, heads=2)


@pytest.fixture
def saved() -> Saved:
    settings = Settings(model=CONFIG, rows=2, length=5, steps=4, warmup=1)
    engine = NumpyEngine(settings, Saved.fresh(CONFIG, np.random.default_rng(0)))
    training.train(settings, np.random.default_rng(1).integers(0, 30, 100), engine)
    return replace(engine.saved(), tokens=tuple("abc"))


def write(path: Path, saved: Saved, **changed: np.ndarray | None) -> Path:
    """A file as save writes it, with some arrays replaced (None: left out); keys with __ for a slash."""
    header = {"format": FORMAT, "config": asdict(saved.config), "step": saved.step, "tokens": list(saved.tokens)}
    arrays: dict[str, np.ndarray] = {"header": np.array(json.dumps(header))}
    for part in ("parameters", "m", "v"):
        arrays |= {f"{part}/{name}": array for name, array in getattr(saved, part).items()}
    for key, array in changed.items():
        if array is None:
            del arrays[key.replace("__", "/")]
        else:
            arrays[key.replace("__", "/")] = array
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return path


def test_what_was_saved_comes_back(tmp_path: Path, saved: Saved) -> None:
    path = tmp_path / "run.npz"
    training.save(path, saved)
    back = training.load(path, CONFIG)
    assert (back.config, back.step, back.tokens) == (CONFIG, 4, ("a", "b", "c"))
    for part in ("parameters", "m", "v"):
        for name, array in getattr(saved, part).items():
            np.testing.assert_array_equal(array, getattr(back, part)[name])
            assert array.dtype == getattr(back, part)[name].dtype
    assert back.nbytes == saved.nbytes == 3 * sum(array.nbytes for array in saved.parameters.values())
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]
    assert training.load(path).config == CONFIG


def test_weights_before_the_first_step_have_no_moments(tmp_path: Path) -> None:
    path = tmp_path / "fresh.npz"
    training.save(path, Saved.fresh(CONFIG, np.random.default_rng(0), np.float32))
    back = training.load(path)
    assert back.m == back.v == {}
    assert back.parameters["head"].dtype == np.float32


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file(tmp_path: Path, saved: Saved, share: float) -> None:
    path = tmp_path / "run.npz"
    training.save(path, saved)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(CheckpointError, match=r"run\.npz \([\d,]+ bytes\) is damaged, cut short"):
        training.load(path)


def test_a_flipped_bit_is_found(tmp_path: Path, saved: Saved) -> None:
    path = tmp_path / "run.npz"
    training.save(path, saved)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("parameters/head.npy")
    data = bytearray(path.read_bytes())
    data[info.header_offset + 400] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        training.load(path)


def test_another_configuration_is_named(tmp_path: Path, saved: Saved) -> None:
    path = tmp_path / "run.npz"
    training.save(path, saved)
    with pytest.raises(CheckpointError, match="layers 1, but 2 is asked for"):
        training.load(path, replace(CONFIG, layers=2))
    # More heads fit the same shapes: only the configuration in the file can tell.
    with pytest.raises(CheckpointError, match="heads 2, but 4 is asked for"):
        training.load(path, replace(CONFIG, heads=4))


def test_wrong_shapes_missing_names_and_nans_are_named(tmp_path: Path, saved: Saved) -> None:
    path = tmp_path / "run.npz"
    head = saved.parameters["head"]
    with pytest.raises(CheckpointError, match=r"parameters: head has shape \(30, 8\); this configuration needs"):
        training.load(write(path, saved, parameters__head=head.T))
    with pytest.raises(CheckpointError, match=r"m: .*head is missing"):
        training.load(write(path, saved, m__head=None))
    with pytest.raises(CheckpointError, match=r"v: .*extra is missing or left over"):
        training.load(write(path, saved, v__extra=head))
    with pytest.raises(CheckpointError, match="head holds a value that is not finite"):
        training.load(write(path, saved, parameters__head=np.full_like(head, np.nan)))
    bad = replace(saved, parameters={**saved.parameters, "head": np.full_like(head, np.inf)})
    with pytest.raises(CheckpointError, match="not finite"):
        training.save(tmp_path / "bad.npz", bad)
    assert not (tmp_path / "bad.npz").exists()


def test_other_files_are_refused(tmp_path: Path, saved: Saved) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, x=np.zeros(3))
    with pytest.raises(CheckpointError, match="no checkpoint"):
        training.load(path)
    np.savez(path, header=np.array('{"format": "another"}'))
    with pytest.raises(CheckpointError, match="does not say"):
        training.load(path)
    with path.open("wb") as file:
        np.save(file, np.array([object()]), allow_pickle=True)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        training.load(path)
    with pytest.raises(FileNotFoundError):
        training.load(tmp_path / "nothing.npz")

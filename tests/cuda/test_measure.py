"""Measuring without a GPU: order, statistics and refusals with a clock of the test's own; no run is pretended."""

import json
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

from labsupport.cuda import measuring, records
from labsupport.cuda.bench import Mismatch, compare, simt_arguments
from labsupport.cuda.catalogue import RUNS, Target, find, source_hash
from labsupport.cuda.device import NoGPUError, status
from labsupport.cuda.showing import NOT_YET, Recorded, in_short, record_table, recorded, target_table
from tests.cuda.fake_gpu import CEILINGS, DEVICE, FakeBench

MOMENT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def made(name="triton-softmax", **lengths):
    return measuring.measure_run(find(name), FakeBench(lengths), CEILINGS, lambda: MOMENT)


# -- order and statistics -------------------------------------------------------------------


def test_baselines_are_interleaved_and_take_turns_at_being_first():
    order = []
    calls = {name: (lambda n=name: n) for name in "abc"}
    times = measuring.interleave(calls, lambda call: float(order.append(call()) or len(order)), 4)
    assert "".join(order) == "abcbcacababc"
    assert times == {"a": [1, 6, 8, 10], "b": [2, 4, 9, 11], "c": [3, 5, 7, 12]}


def test_percentiles():
    assert measuring.percentiles(range(101)) == {"p5": 5.0, "p50": 50.0, "p95": 95.0, "runs": 101}


@pytest.mark.parametrize(("once", "rounds"), [(1e4, 5), (100.0, 40), (1e-9, 60)])
def test_slow_runs_have_fewer_rounds(once, rounds):
    assert measuring.rounds_for(once) == rounds


def test_the_result_is_checked_before_anything_is_timed_and_the_device_warmed_up():
    bench = FakeBench()
    measuring.measure_run(find("triton-softmax"), bench, CEILINGS)
    warm = [e for name in ("kernel", "eager", "compiled") for e in (*[name] * measuring.WARM_UP, "finish")]
    assert bench.log[: len(warm) + 2] == ["check", *warm, "finish"]
    assert set(bench.log[len(warm) + 2 :]) == {"kernel", "eager", "compiled"}


def test_a_baseline_that_does_not_run_is_left_out_and_named():
    run = find("triton-cross-entropy")
    record = measuring.measure_run(run, FakeBench(broken=("compiled",)), CEILINGS, lambda: MOMENT)
    assert set(record.data["times_ms"]) == {"kernel", "eager"}
    assert record.left_out == {"compiled": "RuntimeError: no compiler for compiled"}
    shown = str(Recorded(run, record))
    assert "share of compiled" in shown and "not known, it did not run (RuntimeError)" in shown
    assert "compiled" not in record_table({run.name: record}) and "not known" in in_short(record)
    record = measuring.measure_run(run, FakeBench(broken=("eager",)), CEILINGS, lambda: MOMENT)
    on_it = records.Record({**record.data, "device": {**DEVICE, "name": "NVIDIA H200"}})
    assert "eager did not run (NVIDIA H200, 2030-01-02)" in target_table({run.name: on_it})
    with pytest.raises(RuntimeError, match="no compiler for kernel"):
        measuring.measure_run(run, FakeBench(broken=("kernel",)), CEILINGS)


def test_a_time_that_the_memory_cannot_reach_is_no_time():
    """As where a kernel runs on another stream than the one that the clock sees."""
    for lengths in ({"kernel": 0.01}, {"eager": 0.01}):
        with pytest.raises(Mismatch, match=r"of triton-softmax was timed as if it moved 214748 GB/s"):
            made("triton-softmax", **lengths)
    assert made("triton-softmax", kernel=0.4).share("copy") == pytest.approx(2 * 2 * 2**29 / 0.4e-3 / 4e12)


def test_a_wrong_result_is_not_timed():
    bench = FakeBench(fault="triton-softmax")
    with pytest.raises(Mismatch):
        measuring.measure_run(find("triton-softmax"), bench, CEILINGS)
    assert bench.log == ["check"]


# -- records --------------------------------------------------------------------------------


def test_derived_figures_follow_from_times_and_shape():
    record = made("triton-matmul-bf16", kernel=2.0, **{"torch.matmul": 1.5})
    assert record.flop_per_s == pytest.approx(2 * 8192**3 / 2e-3)
    assert record.share("torch.matmul") == 0.75
    assert not record.meets(Target("torch.matmul", 0.85)) and record.meets(Target("torch.matmul", 0.75))
    record = made("triton-softmax", kernel=1.0)
    assert record.run.traffic == 2 * 2 * 2**29
    assert record.share("copy") == pytest.approx(2 * 2 * 2**29 / 1e-3 / 4e12)
    stored = json.dumps(record.data)
    assert not any(word in stored for word in ('share"', "tflop", "per_second", "speedup"))


def test_a_record_is_stale_when_source_or_shape_changed():
    record = made()
    assert record.stale is None and record.badge == "Test device, 2030-01-02"
    old = records.Record({**record.data, "source_hash": "0" * 16})
    assert "source changed" in old.stale and "stale" in old.badge
    assert "another shape" in records.Record({**record.data, "shape": {"rows": 1, "columns": 1}}).stale


def test_the_hash_is_that_of_the_sources(monkeypatch, tmp_path):
    from labsupport.cuda import catalogue

    run = find("triton-softmax")
    (tmp_path / "kernels").mkdir()
    for name in run.sources:
        (tmp_path / name).write_text(
            (catalogue.HERE / name).read_text(encoding="utf-8"), encoding="utf-8", newline="\r\n"
        )
    before = source_hash(run)
    monkeypatch.setattr(catalogue, "HERE", tmp_path)
    assert source_hash(run) == before
    with open(tmp_path / run.sources[0], "a", encoding="utf-8") as file:
        file.write("\n# changed")
    assert source_hash(run) != before


def test_records_are_stored_and_read_again(tmp_path):
    record = made()
    path = records.save(record, tmp_path)
    assert records.load("triton-softmax", tmp_path) == record
    assert records.load_all(tmp_path) == {"triton-softmax": record}
    assert records.load("triton-layer-norm", tmp_path) is None
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


MALFORMED = {
    "malformed at error.share_of_bound": {"error": {"largest": 1.0, "share_of_bound": 1.5}},
    "malformed at date": {"date": "yesterday"},
    "malformed at its top level": {"speed": 3.0},
    "malformed at times_ms: the baseline 'eager' of triton-softmax is missing": {"times_ms": None},
    "malformed at times_ms.kernel: p5, p50 and p95 are not in order": {"times_ms": "unordered"},
    "malformed at kernel: no kernel is called 'nothing'": {"kernel": "nothing"},
    "malformed at device": {"device": {"name": "x"}},
}


@pytest.mark.parametrize("sentence", MALFORMED)
def test_a_malformed_record_is_a_clear_error(tmp_path, sentence):
    data = json.loads(json.dumps(made().data))
    change = MALFORMED[sentence]
    if change.get("times_ms", "") is None:
        change = {"times_ms": {"kernel": data["times_ms"]["kernel"], "compiled": data["times_ms"]["compiled"]}}
    elif "times_ms" in change:
        data["times_ms"]["kernel"]["p5"] = 99.0
        change = {}
    (tmp_path / "triton-softmax.json").write_text(json.dumps({**data, **change}), encoding="utf-8")
    with pytest.raises(
        records.RecordError, match=f"triton-softmax.json is malformed.*{sentence.removeprefix('malformed')}"
    ):
        records.load("triton-softmax", tmp_path)


def test_no_json_and_strange_files_are_named(tmp_path):
    (tmp_path / "triton-softmax.json").write_text("{", encoding="utf-8")
    with pytest.raises(records.RecordError, match=r"triton-softmax\.json is no JSON"):
        records.load("triton-softmax", tmp_path)
    (tmp_path / "mine.json").write_text("{}", encoding="utf-8")
    with pytest.raises(records.RecordError, match=r"mine\.json belongs to no kernel"):
        records.load_all(tmp_path)


def test_every_stored_record_is_valid():
    for record in records.load_all().values():
        assert record.data["device"]["name"] != DEVICE["name"]


# -- recording everything -------------------------------------------------------------------


@pytest.mark.skipif(bool(status()), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_measured_and_the_reason_is_said(capsys):
    from labsupport.cuda.__main__ import main

    with pytest.raises(
        NoGPUError, match=r"measure.'triton-softmax'. needs a CUDA GPU.*Nothing was measured.*recorded\("
    ):
        measuring.measure("triton-softmax")
    assert main(["record"]) == 2
    told = capsys.readouterr().err
    assert "make record needs a CUDA GPU" in told and "Nothing was measured" in told
    assert main(["record", "triton-nothing"]) == 2
    assert "no kernel is called 'triton-nothing'" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not status(), reason=str(status()))
def test_measure_on_this_gpu():
    record = measuring.measure("triton-softmax").record
    assert record.share("copy") > 0.1


def test_the_verbs_load_when_used():
    import labsupport.cuda as cuda

    assert cuda.measure is measuring.measure and cuda.recorded is recorded
    with pytest.raises(AttributeError, match="it offers NoGPUError, check, measure, recorded"):
        cuda.guess


# -- what is missing ------------------------------------------------------------------------


def test_status_names_each_missing_part(monkeypatch):
    from labsupport.cuda import device

    monkeypatch.setattr(device, "_driver", lambda: ["no driver"])
    monkeypatch.setattr(device, "_torch", lambda: ["no torch"])
    monkeypatch.setattr(device.sys, "platform", "win32")
    found = device.status("triton")
    assert not found and found.missing[:2] == ("no driver", "no torch") and "Linux only" in found.missing[2]
    monkeypatch.setattr(device, "_numba", lambda: ["no numba"])
    assert device.status("simt").missing == ("no driver", "no torch")
    monkeypatch.setattr(device, "_driver", list)
    monkeypatch.setattr(device, "_torch", list)
    assert device.status("simt").missing == ("no numba",)
    monkeypatch.setattr(device, "_numba", list)
    assert device.status("simt") and str(device.status("simt")) == "a CUDA GPU is usable"


def fake_torch(monkeypatch, cuda="13.0", init=lambda: None, capability=(9, 0)):
    import sys
    from types import SimpleNamespace

    parts = SimpleNamespace(init=init, get_device_capability=lambda: capability)
    fake = SimpleNamespace(__version__="9.9", version=SimpleNamespace(cuda=cuda), cuda=parts, __spec__=object())
    monkeypatch.setitem(sys.modules, "torch", fake)


def test_status_says_what_torch_says(monkeypatch):
    from labsupport.cuda import device

    def old_driver():
        raise RuntimeError("The NVIDIA driver on your system is too old\n  (found version 11040).")

    fake_torch(monkeypatch)
    assert device._torch() == []
    fake_torch(monkeypatch, init=old_driver)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert device._torch() == [
        "PyTorch 9.9 cannot use a CUDA device (CUDA_VISIBLE_DEVICES='3'): "
        "The NVIDIA driver on your system is too old (found version 11040)."
    ]
    fake_torch(monkeypatch, cuda=None)
    assert device._torch() == ["PyTorch 9.9 is a build without CUDA"]
    fake_torch(monkeypatch, capability=(7, 5))
    assert device._torch() == ["the GPU has compute capability 7.5, and the kernels need 8.0"]


def test_the_device_is_described_with_and_without_nvidia_smi(monkeypatch, tmp_path):
    import sys
    from types import SimpleNamespace

    from labsupport.cuda import device

    properties = SimpleNamespace(
        name="G", major=9, minor=0, total_memory=1 << 37, multi_processor_count=132, uuid="1-2-3"
    )
    fake = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda number: properties))
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(device, "_served_cuda", lambda: "unknown, serves CUDA 13.0")
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))

    def answers(script):
        tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        tool.chmod(0o755)
        return device.describe()

    if sys.platform != "win32":
        asked = '[ "$1" = --id=GPU-1-2-3 ] || exit 9'
        told = answers(f"{asked}; echo '580.1, 345, 3201, 1980, [N/A]'")
        assert told["driver"] == "580.1"
        assert told["clocks"] == {"sm_mhz": 345, "memory_mhz": 3201, "sm_max_mhz": 1980, "power_limit_w": None}
        assert answers("exit 9")["driver"] == answers("echo nonsense")["driver"] == "unknown, serves CUDA 13.0"
    tool.unlink(missing_ok=True)
    told = device.describe()
    assert told["driver"] == "unknown, serves CUDA 13.0" and set(told["clocks"].values()) == {None}
    validated = made().data | {"device": told}
    assert records.validate(validated).data["device"] == told


def test_triton_that_is_too_old_or_broken_is_a_reason(monkeypatch):
    import sys
    from types import SimpleNamespace

    from labsupport.cuda import device

    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.2.0"))
    assert device._triton() == ["Triton 3.2.0 is too old, and the kernels need 3.4"]
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.6.0", knobs=object()))
    assert device._triton() == []
    monkeypatch.setitem(sys.modules, "triton", None)
    assert "Triton cannot be loaded (ModuleNotFoundError" in device._triton()[0]


def test_numba_that_cannot_be_loaded_is_a_reason(monkeypatch):
    pytest.importorskip("numba.cuda", reason="numba-cuda is made for Linux")
    from numba import config, cuda

    from labsupport.cuda import device, numba_backend

    def refuses():
        raise ImportError("Numba needs NumPy 2.3 or less")

    monkeypatch.setattr(cuda, "is_available", refuses)
    assert "numba-cuda cannot be loaded (ImportError: Numba needs NumPy 2.3 or less)" in device._numba()[0]
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(numba_backend, "has_nvvm", lambda: False)
    assert "numba-cuda[cu13]" in device._numba()[0]
    monkeypatch.setattr(numba_backend, "has_nvvm", lambda: True)
    assert device._numba() == []
    monkeypatch.setattr(config, "ENABLE_CUDASIM", True, raising=False)
    assert "NUMBA_ENABLE_CUDASIM=1" in device._numba()[0]


def test_where_jsonschema_is_missing_a_record_is_still_made(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "jsonschema", None)
    record = made()
    records.save(record, tmp_path)
    assert records.load("triton-softmax", tmp_path) == record
    with pytest.raises(records.RecordError, match="malformed at its top level: speed"):
        records.validate({**record.data, "speed": 1.0})


def test_a_machine_that_measures_needs_neither_the_simulator_s_package_nor_the_tests():
    """What a GPU's machine may lack, kept from being imported: the kernels, their launch and the records load."""
    import subprocess
    import sys

    absent = ("greenlet", "jsonschema", "tqdm", "matplotlib", "ipywidgets", "hypothesis", "scipy", "ml_dtypes")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent!r}))\n"
        "import labsupport.cuda.__main__, labsupport.cuda.recording, labsupport.cuda.measuring\n"
        "from labsupport.cuda.bench import launch_of\n"
        "from labsupport.cuda.catalogue import RUNS\n"
        "print(sum(callable(launch_of(run)[0]) for run in RUNS if run.family == 'simt'))\n"
        "from labsupport.cuda.kernels import ladder\n"
        "from labsupport.cuda import simt\n"
        "import numpy as np\n"
        "try: simt.launch(ladder.vector_add, 1, 32, *[np.zeros(3, np.float32)] * 3)\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [
        str(sum(run.family == "simt" for run in RUNS)),
        "the simulator needs the package greenlet: pip install greenlet",
    ], done.stderr


def test_the_precision_of_products_is_set_back():
    import torch

    from labsupport.cuda.bench import kept_precision

    before = torch.get_float32_matmul_precision()
    with kept_precision():
        torch.set_float32_matmul_precision("medium")
    assert torch.get_float32_matmul_precision() == before


def test_an_interpreting_process_cannot_measure(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" in str(status("triton")) or "Linux only" in str(status("triton"))


# -- what is shown --------------------------------------------------------------------------


def test_shown_with_badge_or_not_yet_measured():
    assert NOT_YET in str(Recorded(find("triton-softmax"), None))
    shown = Recorded(find("triton-softmax"), made(kernel=1.0))
    assert "Test device, 2030-01-02" in str(shown) and "1.000 ms" in str(shown)
    assert "Test device, 2030-01-02" in shown._repr_html_()
    with pytest.raises(ValueError, match="no kernel is called 'x'; there are triton-matmul-bf16"):
        recorded("x")


def test_tables_say_what_was_not_measured_and_count_an_h200_only():
    empty = record_table({})
    assert empty.count(NOT_YET) == len(RUNS)
    assert target_table({}).count(NOT_YET) == sum(len(run.targets) for run in RUNS)
    record = made("triton-matmul-bf16", kernel=1.0, **{"torch.matmul": 0.9})
    assert "90% of torch.matmul" in record_table({"triton-matmul-bf16": record})
    assert "met" not in target_table({"triton-matmul-bf16": record}).replace("met)", "")
    on_it = records.Record({**record.data, "device": {**DEVICE, "name": "NVIDIA H200"}})
    assert "0.90, met (NVIDIA H200, 2030-01-02)" in target_table({"triton-matmul-bf16": on_it})


# -- the real preparation, small and on the CPU ----------------------------------------------


@pytest.mark.parametrize("name", [run.name for run in RUNS if run.family == "simt"])
def test_the_ladder_is_launched_rightly(name):
    """The launch that numba-cuda makes on a GPU, made by the simulator; the comparison is the same."""
    import labsupport.cuda as cuda

    checked = cuda.check(name)
    assert checked, checked
    assert checked.report is not None


def test_a_wrong_result_is_seen_by_the_comparison():
    import torch

    from labsupport.cuda.bench import inputs_of
    from labsupport.cuda.checking import small

    for run in RUNS:
        if run.family == "simt":
            run = small(run)
            inputs = inputs_of(run, torch.Generator().manual_seed(0), "cpu")
            _, out = simt_arguments(run, inputs)
            with pytest.raises(Mismatch, match="times what rounding explains"):
                compare(run, inputs, lambda out=out: torch.ones_like(out))


def test_check_by_name_takes_the_name_alone():
    import labsupport.cuda as cuda

    with pytest.raises(TypeError, match="takes the name alone"):
        cuda.check("simt-vector-add", 1, 32)
    with pytest.raises(ValueError, match="no kernel is called 'vector-add'"):
        cuda.check("vector-add")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Triton is made for Linux only")
def test_triton_runs_are_prepared_and_compared():
    from pathlib import Path

    from labsupport.cuda.triton_interpreter import Interpreter

    calls = f"{Path(__file__).with_name('triton_calls.py')}:"
    with Interpreter() as interpreter:
        for run in RUNS:
            if run.family == "triton":
                largest, share, names, tile = interpreter.call(calls + "prepared", run.name)
                assert 0 <= share <= 1 and np.isfinite(largest), run.name
                assert names == "kernel " + " ".join(run.baselines) and "num_warps" in tile


def test_the_page_shows_the_stored_runs():
    from labsupport.cuda.__main__ import PAGE, filled

    text = PAGE.read_text(encoding="utf-8")
    assert filled(text) == text, "run `python -m labsupport.cuda page`"
    with pytest.raises(ValueError, match="must hold the marks of the table 'targets' once"):
        filled("# no marks")

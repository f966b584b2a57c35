"""Recording many runs: what is done is kept, whatever happens to the process that measures."""

import json
import time

import pytest

from labsupport.cuda import __main__ as command
from labsupport.cuda import recording, records, tuning
from labsupport.cuda.catalogue import RUNS, find
from tests.cuda import fake_gpu

NAMES = ("triton-softmax", "triton-layer-norm", "triton-rms-norm")


def record(worker, tmp_path, names=NAMES, **options):
    told = []
    outcome = recording.record_all(
        [find(name) for name in names], tmp_path, told.append, worker=getattr(fake_gpu, worker), **options
    )
    assert set(records.load_all(tmp_path)) == set(outcome.stored)
    assert set(outcome.stored) | set(outcome.failed) == set(names)
    return outcome, told


def test_every_run_is_stored_and_told(tmp_path):
    seen = []
    outcome, told = record("served", tmp_path, stored=seen.append)
    assert outcome.stored == seen == list(NAMES) and not outcome.failed
    assert "ceilings: a copy 4000 GB/s" in told[0]
    assert any("triton-softmax: stored after" in line and "% of a copy" in line for line in told)


def test_one_fault_costs_one_run(tmp_path):
    outcome, _ = record("one_is_wrong", tmp_path)
    assert outcome.stored == [NAMES[0], NAMES[2]]
    assert "Mismatch: triton-layer-norm misses float64" in outcome.failed[NAMES[1]]


def test_a_run_that_ends_the_process_is_tried_once_more_with_care(tmp_path):
    outcome, told = record("crashing", tmp_path)
    assert outcome.stored == [NAMES[0], NAMES[1]]
    assert outcome.failed == {NAMES[2]: "the process that measured ended with code 7"}
    assert sum("once more, in the first way of launching alone" in line for line in told) == 2


def test_a_spoilt_device_is_left_to_another_process(tmp_path):
    outcome, told = record("spoiling", tmp_path)
    assert outcome.stored == [NAMES[0], NAMES[2]]
    assert "illegal memory access" in outcome.failed[NAMES[1]]
    assert sum("ceilings" in line for line in told) == 1, "the ceilings are measured once"
    assert not any("ended with code" in line for line in told)


def test_a_run_that_never_ends_is_stopped(tmp_path):
    outcome, _ = record("hanging", tmp_path, each=6.0)
    assert outcome.stored == [NAMES[0], NAMES[2]]
    assert outcome.failed[NAMES[1]] == "not done after 6 s, and stopped"


def test_when_the_time_is_over_the_rest_is_named(tmp_path):
    began = time.monotonic()
    outcome, _ = record("hanging", tmp_path, seconds=15.0)
    assert time.monotonic() - began < 60
    assert outcome.failed[NAMES[1]] == "the time was over"
    assert outcome.failed[NAMES[2]] == "not measured: the time was over"


def test_a_worker_that_never_begins_is_not_started_for_ever(tmp_path):
    outcome, told = record("never_ready", tmp_path)
    assert told == ["the process that measures: the process that measured ended with code 3"] * 2
    assert set(outcome.failed.values()) == {"not measured: the process that measures did not come so far"}


def test_what_one_family_lacks_does_not_cost_the_other(tmp_path):
    names = ("triton-softmax", "simt-vector-add")
    outcome, _ = record("without_triton", tmp_path, names)
    assert outcome.stored == ["simt-vector-add"]
    assert outcome.failed == {"triton-softmax": "not measured: Triton is not installed"}


def test_an_interruption_keeps_what_is_done(tmp_path):
    def interrupt(name):
        raise KeyboardInterrupt

    outcome, _ = record("hanging", tmp_path, stored=interrupt)
    assert outcome.stored == [NAMES[0]]
    assert outcome.failed == dict.fromkeys(NAMES[1:], "not measured: interrupted")


def test_runs_with_a_target_come_first_and_those_done_can_be_left_out(tmp_path):
    order = recording.by_need(RUNS)
    targets = [bool(run.targets) for run in order]
    assert targets == sorted(targets, reverse=True) and sorted(run.name for run in order) == sorted(
        run.name for run in RUNS
    )
    record("served", tmp_path, NAMES[:1])
    assert [run.name for run in recording.still_to_do(RUNS, tmp_path)] == [
        run.name for run in RUNS if run.name != NAMES[0]
    ]
    path = tmp_path / f"{NAMES[0]}.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, "source_hash": "0" * 16}), encoding="utf-8")
    assert recording.still_to_do(RUNS, tmp_path) == list(RUNS)


def test_the_command_keeps_a_file_and_another_machine_adopts_it(tmp_path, monkeypatch, capsys):
    there, here = tmp_path / "there", tmp_path / "here"
    page = tmp_path / "page.md"
    page.write_text(command.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(command, "PAGE", page)
    monkeypatch.setattr(command, "driver_missing", lambda: False)
    monkeypatch.setattr(recording, "work", fake_gpu.served)
    for folder in (there, here):
        folder.mkdir()

    def at(folder):
        everything = recording.record_all
        monkeypatch.setattr(
            command.recording, "record_all", lambda runs, **options: everything(runs, folder=folder, **options)
        )
        load, save = records.load, records.save
        monkeypatch.setattr(command, "load", lambda name: load(name, folder))
        monkeypatch.setattr(command, "save", lambda record: save(record, folder))

    at(there)
    kept = tmp_path / "runs.json"
    assert command.main(["record", *NAMES[:2], "--also", str(kept)]) == 0
    told = capsys.readouterr().out
    assert "2 runs, at most" in told and "stored 2 of 2 runs" in told
    at(here)
    assert command.main(["adopt", str(kept)]) == 0
    assert records.load_all(here) == records.load_all(there)
    for text, sentence in (("{}", "no list of records"), ("[{}]", "runs.json, record 1 is malformed"), ("[", "line 1")):
        kept.write_text(text, encoding="utf-8")
        assert command.main(["adopt", str(kept)]) == 2
        assert sentence in capsys.readouterr().err


def test_where_every_family_lacks_something_nothing_is_measured_and_it_is_said(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, "driver_missing", lambda: False)
    monkeypatch.setattr(recording, "work", fake_gpu.without_triton)
    monkeypatch.setattr(recording, "FOLDER", tmp_path)
    assert command.main(["record", "triton-softmax"]) == 2
    assert "make record needs a CUDA GPU" in (told := capsys.readouterr().err) and "Triton is not installed" in told


# -- choosing a way --------------------------------------------------------------------------


@pytest.fixture
def launches():
    tuning.forget()
    yield []
    tuning.forget()


def test_the_fastest_way_is_taken_and_remembered(launches):
    times = {"slow": 3.0, "fast": 1.0, "even": 2.0}

    def choose(key):
        return tuning.choose("k", key, list(times), launches.append, lambda call: call() or times[launches[-1]])

    assert choose(1) == "fast" and tuning.latest("k") == "fast"
    assert len(launches) == 3 * (1 + tuning.LAUNCHES)
    assert choose(1) == "fast" and len(launches) == 3 * (1 + tuning.LAUNCHES)
    assert choose(2) == "fast" and len(launches) == 6 * (1 + tuning.LAUNCHES)


def test_a_way_that_fails_is_left_out_and_said(launches, monkeypatch):
    told = []
    monkeypatch.setattr(tuning, "_tell", [told.append])

    def launch(way):
        if way != "good":
            raise ValueError(f"{way} does not fit")

    assert tuning.choose("k", 1, ["bad", "good"], launch, lambda call: call() or 1.0) == "good"
    assert told == ["left out: bad: ValueError: bad does not fit"]
    with pytest.raises(RuntimeError, match="no way of launching works: bad: ValueError: bad does not fit; worse: Val"):
        tuning.choose("k", 2, ["bad", "worse"], launch, lambda call: call() or 1.0)


def test_where_nothing_is_to_be_timed_the_first_way_is_taken(launches):
    assert tuning.choose("k", 1, ["a", "b"], launches.append, None) == "a"
    with tuning.first_only():
        assert tuning.choose("k", 2, ["a", "b"], launches.append, lambda call: 1.0) == "a"
    with tuning.first_only(False):
        assert tuning.choose("k", 3, ["a", "b"], lambda way: None, lambda call: call() or 1.0) == "a"
    assert not launches

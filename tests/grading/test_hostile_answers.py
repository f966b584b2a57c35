"""Answers that hang, print, exit, recurse, or reach into the library: a verdict each, and nothing is left behind."""

import builtins
import copy
import dis
import html
import os
import random
import signal
import sys
import threading
import time
import types
import warnings
import weakref
from dataclasses import replace

import numpy as np
import pytest

from labsupport.grading import compare, function, guard, pristine, tolerance
from labsupport.grading.judge import judge
from labsupport.ops import softmax as softmax_ops


def right(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.fixture
def ask(softmax_record):
    """Judge one answer within half a second, then make sure that a right one still passes."""
    impatient = replace(softmax_record, seconds=0.5)

    def asked(answer):
        verdict = judge(impatient, answer)
        assert judge(softmax_record, right).state == "pass"
        return verdict

    return asked


def endless(x):
    while True:
        pass


def endless_under_bare_except(x):
    while True:
        try:
            while True:
                pass
        except:  # noqa: E722
            pass


def endless_under_nested_excepts(x):
    while True:
        try:
            try:
                while True:
                    len("")
            except BaseException:
                len("")
        except BaseException:
            len("")


def endless_in_finally(x):
    try:
        return right(x)
    finally:
        while True:
            pass


def asleep(x):
    time.sleep(100)


def endless_print(x):
    while True:
        print("y" * 1000)


def endless_far_down(x):
    """A stack so deep that looking through it takes longer than a tick."""
    sys.setrecursionlimit(10_000)

    def down(depth):
        while depth == 0:
            pass
        return down(depth - 1)

    return down(9_000)


def endless_in_callbacks(x):
    """Nearly all of the time is spent where the interpreter drops an exception."""

    class Thing:
        pass

    while True:
        watched = weakref.WeakKeyDictionary({(thing := Thing()): None})
        kept = weakref.ref(thing, lambda _: sum(range(20_000)))
        del thing
        assert kept() is None and not watched


@pytest.mark.parametrize(
    "answer",
    [
        endless,
        endless_under_bare_except,
        endless_under_nested_excepts,
        endless_in_finally,
        endless_far_down,
        endless_in_callbacks,
        asleep,
        endless_print,
    ],
)
def test_a_hung_answer_is_stopped(ask, answer):
    start = time.monotonic()
    verdict = ask(answer)
    assert time.monotonic() - start < 20
    assert verdict.state == "fail"
    assert "did not end within 0.5 seconds" in verdict.message


def test_a_tick_that_is_lost_in_a_callback_is_not_told(ask, monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    hook = sys.unraisablehook
    assert "did not end" in ask(endless_in_callbacks).message
    assert told == []
    assert sys.unraisablehook is hook


def test_an_endless_print_keeps_a_bounded_text(ask, capsys):
    ask(endless_print)
    assert capsys.readouterr() == ("", "")
    stream = guard._Capped()
    for _ in range(1000):
        stream.write("z" * 1000)
    assert sum(map(len, stream.kept)) == guard.OUTPUT_LIMIT


def test_an_alarm_set_before_the_check_still_rings(ask):
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 30)
        ask(right)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        time.sleep(0.1)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_without_a_timer_the_verdict_says_so(softmax_record):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(judge(softmax_record, right)))
    thread.start()
    thread.join()
    assert seen[0].state == "pass"
    assert seen[0].notes == (guard.NO_TIMER,)


def recursive(x):
    return recursive(x)


def recursive_without_a_limit(x):
    sys.setrecursionlimit(10**9)
    return recursive(x)


@pytest.mark.parametrize("answer", [recursive, recursive_without_a_limit])
def test_endless_recursion_is_told(ask, answer):
    limit = sys.getrecursionlimit()
    assert "calls itself without end" in ask(answer).message
    assert sys.getrecursionlimit() == limit


def raises_system_exit(x):
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (raises_system_exit, "sys.exit"),
        (lambda x: sys.exit(3), "sys.exit"),
        (lambda x: os._exit(0), "os._exit"),
        (lambda x: os.abort(), "os.abort"),
        (lambda x: os.kill(os.getpid(), signal.SIGKILL), "os.kill"),
        (lambda x: os.fork(), "os.fork"),
    ],
)
def test_an_exit_of_the_interpreter_is_told(ask, answer, name):
    assert f"called {name}, which would end the notebook's process" in ask(answer).message
    assert isinstance(os._exit, types.BuiltinFunctionType)
    assert isinstance(sys.setrecursionlimit, types.BuiltinFunctionType)


def test_memory_that_is_not_there_is_told(ask):
    assert "more memory than there is" in ask(lambda x: np.zeros((2**28, 2**28))).message


def test_the_interrupt_of_the_reader_passes_through_and_everything_is_put_back(softmax_record):
    def interrupted(x):
        np.seterr(all="raise")
        raise KeyboardInterrupt

    stdout, errors = sys.stdout, np.geterr()
    with pytest.raises(KeyboardInterrupt):
        judge(softmax_record, interrupted)
    assert sys.stdout is stdout
    assert np.geterr() == errors
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize(
    ("module", "name"),
    [(np, "exp"), (np, "allclose"), (np, "isfinite"), (np.linalg, "norm"),
     *((builtins, name) for name in ("abs", "tuple", "print", "hasattr", "repr", "len", "setattr", "vars")),
     (compare, "compare"), (function, "compare"), (function, "_finding"), (guard, "run"), (pristine, "replaced"),
     (tolerance, "Tolerance"), (softmax_ops, "softmax"), (copy, "deepcopy"), (dis, "get_instructions"),
     (html, "escape"), (os, "getcwd"), (time, "monotonic"), (warnings, "catch_warnings")],
)  # fmt: skip
def test_a_replaced_library_function_fails_and_is_put_back(softmax_record, module, name):
    original = getattr(module, name)

    def replacing(x):
        setattr(module, name, lambda *args, **kwargs: True)
        return np.zeros_like(x)

    verdict = judge(softmax_record, replacing)
    assert verdict.state == "fail"
    assert f"replaced {module.__name__}.{name}" in verdict.message
    assert getattr(module, name) is original


def ignores_the_alarm(x):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    endless(x)


def stops_the_timer(x):
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.alarm(0)
    endless(x)


def stops_the_clock(x):
    time.process_time = time.monotonic = lambda: 0.0
    endless(x)


@pytest.mark.parametrize("answer", [ignores_the_alarm, stops_the_timer, stops_the_clock])
def test_an_answer_that_stops_the_clock_is_stopped(ask, answer):
    assert "did not end within 0.5 seconds" in ask(answer).message
    assert isinstance(signal.setitimer, types.BuiltinFunctionType)
    assert isinstance(time.monotonic, types.BuiltinFunctionType)


def test_signal_handlers_are_put_back(ask):
    def meddling(x):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return right(x)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert ask(meddling).state == "pass"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize("name", ["numpy", "labsupport.grading.compare", "labsupport.grading.function"])
def test_modules_taken_out_of_the_table_are_put_back(ask, name):
    def meddling(x):
        sys.modules[name] = types.ModuleType(name)
        return right(x)

    before = sys.modules[name]
    assert ask(meddling).state == "pass"
    assert sys.modules[name] is before


def test_the_truth_and_the_tolerance_cannot_be_written_over(softmax_record):
    known = function.prepare(softmax_record, 0)
    for prepared in known.prepared:
        for leaf in function.leaves(prepared.truth):
            with pytest.raises(ValueError, match="read-only"):
                leaf.values[...] = 0
    with pytest.raises(TypeError):
        tolerance.EPS["float64"] = 1.0
    assert type(known.prepared) is tuple


def holds_itself(x):
    result = {}
    result["again"] = result
    return result


def nested_without_end(x):
    result = ()
    for _ in range(100_000):
        result = (result,)
    return result


@pytest.mark.parametrize("answer", [holds_itself, nested_without_end])
def test_containers_without_end_are_told(softmax_record, answer):
    record = replace(softmax_record, oracle=lambda x: {"again": (x, x)}, mistakes=(), diagnose=None)
    verdict = judge(record, answer)
    assert verdict.state == "fail", verdict


@pytest.mark.parametrize("shape", [(10**6, 10**6), (10**5, 10**4)])
def test_a_view_that_claims_more_than_there_is_memory_is_told(ask, shape):
    assert "far more numbers" in ask(lambda x: np.broadcast_to(np.float64(0.5), shape)).message


def test_a_library_replaced_beforehand_cannot_bend_the_ruler(softmax_record):
    original = np.exp
    np.exp = np.zeros_like
    try:
        verdict = judge(softmax_record, np.zeros_like)
        assert np.exp is original
    finally:
        np.exp = original
    assert verdict.state == "fail"
    assert "numpy.exp had been replaced" in verdict.notes[0]


def test_process_wide_settings_are_put_back(ask):
    def meddling(x):
        np.seterr(all="raise")
        np.set_printoptions(precision=1)
        np.random.seed(0)
        random.seed(0)
        warnings.simplefilter("error")
        sys.settrace(lambda *_: None)
        sys.setprofile(None)
        os.environ["A_NAME_OF_THE_TEST"] = "1"
        os.chdir("/")
        sys.stdout = None
        return right(x)

    def settings():
        return (
            np.geterr(),
            np.get_printoptions()["precision"],
            np.random.get_state()[1].tobytes(),
            random.getstate(),
            warnings.filters[:],
            sys.gettrace(),
            dict(os.environ),
            os.getcwd(),
            sys.stdout,
        )

    before = settings()
    assert ask(meddling).state == "pass"
    assert settings() == before


def test_settings_of_the_reader_do_not_reach_the_answer(ask):
    with np.errstate(all="raise"):
        assert ask(lambda x: right(x) + 0 * np.exp(-1e9)).state == "pass"


def test_what_an_answer_prints_is_kept_off_the_page(ask, capsys):
    def prints(x):
        print("here")
        print("there", file=sys.stderr)
        return right(x)

    assert ask(prints).state == "pass"
    assert capsys.readouterr() == ("", "")


class Clever(float):
    """Equal to everything, and loud when asked for anything."""

    def __eq__(self, other):
        raise AssertionError("the judge compared a foreign object")

    __hash__ = float.__hash__

    def __repr__(self):
        raise AssertionError("the judge printed a foreign object")

    __str__ = __repr__

    def __float__(self):
        raise AssertionError("the judge converted a foreign object")

    def __array__(self, *args, **kwargs):
        raise AssertionError("the judge converted a foreign object")

    def __bool__(self):
        raise AssertionError("the judge asked a foreign object for its truth")

    @property
    def __class__(self):
        return np.ndarray


class EqualsAll(np.ndarray):
    def __eq__(self, other):
        return np.ones(self.shape, bool)

    __hash__ = None


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (lambda x: Clever(), "Clever"),
        (lambda x: [Clever()], "a list"),
        (lambda x: np.zeros_like(x).view(EqualsAll), "EqualsAll"),
        (lambda x: np.ma.masked_array(right(x), mask=True), "masked array"),
        (lambda x: np.matrix(right(np.atleast_2d(x)[:1].reshape(1, -1))), "matrix"),
        (lambda x: right(x).astype(object), "dtype object"),
        (lambda x: (v for v in x), "generator"),
        (lambda x: "0.5", "a string"),
    ],
)
def test_only_plain_arrays_and_numbers_are_read(ask, answer, word):
    verdict = ask(answer)
    assert verdict.state == "fail"
    assert word in verdict.message


def test_a_foreign_type_name_is_escaped(ask):
    evil = type("<img src=x onerror=alert(1)>", (), {})
    html = ask(lambda x: evil()).html()
    assert "<img" not in html
    assert "&lt;img" in html


def test_a_foreign_exception_is_named_and_not_asked(ask):
    class Loud(Exception):
        def __str__(self):
            raise AssertionError("the judge printed a foreign exception")

    def raises(x):
        raise Loud

    assert "raised Loud on line 2 of raises" in ask(raises).message


def test_an_exception_is_told_with_its_line_and_without_addresses(ask):
    def raises(x):
        y = x
        raise ValueError(f"no <b>{object()}</b> {y.ndim}")

    verdict = ask(raises)
    assert "raised ValueError: no <b><object object at 0x…></b> 2 on line 3 of raises" in verdict.message
    assert "<b>" not in verdict.html()


def test_the_same_answer_gives_the_same_bytes(ask):
    answers = [right, endless, recursive, lambda x: Clever(), lambda x: 1 / 0, lambda x: x]
    for answer in answers:
        assert ask(answer)._repr_mimebundle_() == ask(answer)._repr_mimebundle_()


@pytest.mark.parametrize("wanted", ["view", "flag", "slice"])
def test_a_changed_input_is_told(ask, wanted):
    def changes(x):
        result = right(x)
        if wanted == "view":
            x.reshape(-1)[:] = 0
        elif wanted == "flag":
            np.exp(x, out=x)
        else:
            x[..., -1] = -0.0
        return result

    assert "changed its input (argument 1)" in ask(changes).message


def test_an_input_given_back_is_fine_where_it_is_right(softmax_record):
    record = replace(softmax_record, oracle=lambda x: x, mistakes=(), diagnose=None)
    assert judge(record, lambda x: x).state == "pass"


def test_one_buffer_for_all_results_is_fine(ask):
    buffer = np.empty(4096)

    def reuses(x):
        out = buffer[: x.size].reshape(x.shape)
        out[...] = right(x)
        return out

    assert ask(reuses).state == "pass"


def test_an_answer_that_knows_the_shown_cases_fails(softmax_record):
    from labsupport.grading.gates import SEEDS

    table = {case.args[0].tobytes(): right(case.args[0]) for case in softmax_record.cases(softmax_record.rng(SEEDS[0]))}

    def learned(x):
        return table.get(x.tobytes(), np.zeros_like(x))

    assert judge(softmax_record, learned, SEEDS[1]).state == "fail"


def test_an_import_is_never_cut_short(softmax_record, tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.9)\nready = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def imports(x):
        import slow_to_import

        if slow_to_import.ready:
            slow_to_import.ready = False
            time.sleep(0.3)
        return right(x)

    impatient = replace(softmax_record, seconds=0.4)
    assert judge(impatient, imports).message == judge(impatient, right).message


def test_a_busy_machine_makes_no_right_answer_late(softmax_record):
    """What counts is the answer's own computing time: waiting for the processor is not its fault."""
    waits = iter([0.6])

    def waiting(x):
        time.sleep(next(waits, 0))
        return right(x)

    assert judge(replace(softmax_record, seconds=0.4), waiting).state == "pass"


def test_an_endless_loop_after_an_import_is_stopped(ask, tmp_path, monkeypatch):
    (tmp_path / "slow_before_a_loop.py").write_text("import time\ntime.sleep(0.6)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def imports(x):
        import slow_before_a_loop  # noqa: F401

        endless_under_bare_except(x)

    assert "did not end within" in ask(imports).message


def test_an_answer_may_put_anything_into_the_table_of_modules(ask):
    def writes(x):
        sys.modules[0] = sys.modules["labsupport.ops.nothing"] = None
        return right(x)

    try:
        assert ask(writes).state == "pass"
    finally:
        sys.modules.pop(0, None)
        sys.modules.pop("labsupport.ops.nothing", None)


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_a_tensor_without_plain_numbers_is_refused(ask, kind):
    torch = pytest.importorskip("torch")

    def answer(x):
        dense = torch.from_numpy(np.ascontiguousarray(right(x)))
        return dense.to_sparse() if kind == "sparse" else dense.to("meta")

    verdict = ask(answer)
    assert verdict.state == "fail"
    assert "holds no plain array" in verdict.message


def test_a_complex_result_is_told_as_one(ask):
    assert "you returned complex128 (3, 5); floating-point numbers are due" in ask(lambda x: right(x) + 0j).message

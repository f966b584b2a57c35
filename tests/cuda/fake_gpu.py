"""A bench with a clock of the test's own, and workers that crash, hang or lack something: no run is pretended."""

import os
import time

import jsonschema  # noqa: F401  loaded before the first run, for runs of a test have little time

import labsupport.cuda.measuring  # noqa: F401
from labsupport.cuda.bench import Bench, Mismatch, Prepared
from labsupport.cuda.catalogue import find
from labsupport.cuda.recording import serve

DEVICE = {
    "name": "Test device",
    "capability": "9.0",
    "memory_bytes": 1 << 30,
    "multiprocessors": 1,
    "driver": "0",
    "clocks": {"sm_mhz": 1.0, "memory_mhz": None, "sm_max_mhz": 1.0, "power_limit_w": None},
}
CEILINGS = {"copy_bytes_per_s": 4e12, "gemm_flop_per_s": {"bfloat16": 7e14}}


class FakeBench(Bench):
    """Calls that only say their name, each of a known length; ``broken`` calls raise."""

    def __init__(self, lengths=None, error=(1e-3, 0.5), fault=None, broken=()):
        self.lengths, self.error, self.fault, self.broken, self.log = lengths or {}, error, fault, broken, []

    def prepare(self, run, seed):
        def check():
            self.log.append("check")
            if self.fault == run.name:
                raise Mismatch(f"{run.name} misses float64")
            return self.error

        def call(name):
            self.log.append(name)
            if name in self.broken:
                raise RuntimeError(f"no compiler for {name}")
            return name

        calls = {name: lambda n=name: call(n) for name in ("kernel", *run.baselines)}
        return Prepared(calls, check, lambda: {"BM": 1})

    def milliseconds(self, call):
        length = self.lengths.get(call(), 1.0)
        return next(length) if hasattr(length, "__next__") else length

    def finish(self):
        self.log.append("finish")

    def release(self):
        pass

    def ceilings(self):
        return CEILINGS

    def device(self):
        return DEVICE

    def versions(self):
        return {"torch": "0"}


def served(connection, names, folder, ceilings, careful, bench=None):
    serve(connection, [find(name) for name in names], bench or FakeBench(), folder, ceilings, careful)


def one_is_wrong(connection, names, folder, ceilings, careful):
    served(connection, names, folder, ceilings, careful, FakeBench(fault="triton-layer-norm"))


class Crashing(FakeBench):
    """RMSNorm ends the process whenever it is measured, softmax unless it is measured with care."""

    def __init__(self, careful):
        super().__init__()
        self.careful = careful

    def prepare(self, run, seed):
        if run.name == "triton-rms-norm" or (run.name == "triton-softmax" and run.name not in self.careful):
            os._exit(7)
        return super().prepare(run, seed)


def crashing(connection, names, folder, ceilings, careful):
    assert ceilings is None or ceilings == CEILINGS
    served(connection, names, folder, ceilings, careful, Crashing(careful))


class Spoiling(FakeBench):
    """After LayerNorm the device does not answer."""

    def prepare(self, run, seed):
        self.name = run.name
        if run.name == "triton-layer-norm":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return super().prepare(run, seed)

    def release(self):
        if self.name == "triton-layer-norm":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


def spoiling(connection, names, folder, ceilings, careful):
    served(connection, names, folder, ceilings, careful, Spoiling())


class Hanging(FakeBench):
    """LayerNorm never ends."""

    def prepare(self, run, seed):
        if run.name == "triton-layer-norm":
            time.sleep(600)
        return super().prepare(run, seed)


def hanging(connection, names, folder, ceilings, careful):
    served(connection, names, folder, ceilings, careful, Hanging())


def never_ready(connection, names, folder, ceilings, careful):
    os._exit(3)


def without_triton(connection, names, folder, ceilings, careful):
    connection.send(("lacking", {"triton": ("Triton is not installed",)}))
    served(connection, [n for n in names if n.startswith("simt")], folder, ceilings, careful)

"""Calls that a test makes inside the interpreter's process."""

from labsupport.cuda import triton_ops


def with_tile(a, b, kind, number, precision):
    return triton_ops.matmul(a, b, precision=precision, tile=triton_ops.CONFIGS[kind][number])


SMALL = {
    "matmul": {"M": 70, "N": 50, "K": 40},
    "flash_attention": {"batch": 2, "heads": 1, "length": 70, "D": 32},
    "cross_entropy": {"rows": 5, "columns": 300},
}


def prepared(name):
    """Prepare a run of the catalogue small and on the CPU, and hold its kernel against float64."""
    from dataclasses import replace

    from labsupport.cuda import bench
    from labsupport.cuda.catalogue import find

    run = find(name)
    causal = {"causal": run.shape["causal"]} if "causal" in run.shape else {}
    run = replace(run, shape=SMALL.get(run.operation, {"rows": 3, "columns": 200}) | causal)
    bench.CHUNK = 2 * 300  # several pieces
    made = bench.prepare(run, 0, "cpu")
    largest, share = made.check()
    return largest, share, " ".join(made.calls), str(made.tile())

"""The verb ``check``: a kernel of the reader's in the simulator, or one of the catalogue by its name.

A name chooses the judge that fits: the simulator for the SIMT ladder, Triton's interpreter for the
Triton kernels. Nothing here measures anything.
"""

from dataclasses import replace
from typing import Any

from labsupport.cuda.catalogue import Run, find
from labsupport.cuda.check import Checked
from labsupport.cuda.check import check as simulated
from labsupport.cuda.triton_check import Checked as CheckedByName
from labsupport.cuda.triton_check import check_triton

__all__ = ["SMALL", "check", "small"]

#: Small shapes that no tile divides, by rung or by operation; the register tile's block has 256 threads.
SMALL = {
    "register": {"M": 20, "N": 18, "K": 9},
    "matmul": {"M": 40, "N": 36, "K": 20},
    "transpose": {"rows": 40, "columns": 35},
    "add": {"N": 300},
    "sum": {"N": 300},
    "softmax": {"rows": 3, "columns": 200},
    "layer_norm": {"rows": 3, "columns": 200},
}


def check(kernel: Any, *launch: Any, **options: Any) -> Checked | CheckedByName:
    """Check a kernel on this machine's CPU.

    ``check(kernel, grid, block, *arguments, expected={...})`` runs a kernel in the dialect of
    ``numba.cuda`` in the simulator: see ``labsupport.cuda.check``. ``check("triton-softmax")`` holds a
    kernel of the catalogue against float64 on small shapes.

    Raises:
        ValueError: no kernel has that name.
        TypeError: a launch is given with a name, or the kernel is no function.
    """
    if not isinstance(kernel, str):
        return simulated(kernel, *launch, **options)
    if launch or options:
        raise TypeError(f"check({kernel!r}) takes the name alone: the catalogue knows the launch")
    run = find(kernel)
    return check_triton(kernel) if run.family == "triton" else _check_rung(small(run))


def small(run: Run) -> Run:
    """Return a run of the SIMT ladder at a shape that the simulator runs in a moment."""
    return replace(run, shape=SMALL.get(run.rung, SMALL[run.operation]))


def _check_rung(run: Run) -> Checked:
    """Run a rung of the ladder in the simulator with the launch that it has on a GPU, and compare as there."""
    import torch

    from labsupport.cuda.bench import Mismatch, compare, inputs_of, launch_of, simt_arguments

    inputs = inputs_of(run, torch.Generator().manual_seed(0), "cpu")
    kernel, grid, block = launch_of(run)
    arguments, out = simt_arguments(run, inputs)
    place = next(k for k, argument in enumerate(arguments) if argument is out)
    given = [a.numpy() if isinstance(a, torch.Tensor) else a for a in arguments]
    checked = simulated(kernel, grid, block, *given)
    if not checked:
        return checked
    written = torch.from_numpy(checked.results[kernel.__code__.co_varnames[place]])
    try:
        compare(run, inputs, lambda: written)
    except Mismatch as wrong:
        return replace(checked, fault=str(wrong))
    return checked

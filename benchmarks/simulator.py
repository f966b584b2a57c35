"""How much faster the book's simulator is than numba's own, on the same shared-tile product: at least 8×.

Both run the same kernel on the same matrices in one run, taking turns, each in a process of its own
(numba's simulator has to be chosen before numba is imported). Time is computing time.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
TARGET, REPEATS, N, T = 8.0, 5, 32, 16


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    A, B = (rng.normal(size=(N, N)).astype(np.float32) for _ in range(2))
    return A, B, np.zeros((N, N), np.float32)


def child(which: str) -> int:
    """Answer each line of input with the seconds of one launch; the first launch is not counted."""
    if which == "numba":
        from labsupport.cuda.kernels.ladder import make_matmul_shared
        from labsupport.cuda.numba_backend import for_gpu

        kernel = for_gpu(make_matmul_shared(T))

        def launch(A: np.ndarray, B: np.ndarray, C: np.ndarray) -> None:
            kernel[(N // T, N // T), (T, T)](A, B, C)

    else:
        from labsupport.cuda import simt
        from labsupport.cuda.kernels.ladder import make_matmul_shared

        kernel = make_matmul_shared(T)
        profile = which == "counting"

        def launch(A: np.ndarray, B: np.ndarray, C: np.ndarray) -> None:
            simt.launch(kernel, (N // T, N // T), (T, T), A, B, C, profile=profile)

    for _ in sys.stdin:
        A, B, C = operands()
        began = time.process_time()
        launch(A, B, C)
        seconds = time.process_time() - began
        assert np.allclose(C, A.astype(np.float64) @ B.astype(np.float64), atol=1e-4), (
            f"{which} computes a wrong product"
        )
        print(json.dumps(seconds), flush=True)
    return 0


def main() -> int:
    """Print the medians and the ratio; return 1 where it is below the target."""
    processes = {
        which: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.simulator", which],
            cwd=ROOT,
            env=os.environ | ({"NUMBA_ENABLE_CUDASIM": "1"} if which == "numba" else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for which in ("numba", "races only", "counting")
    }
    taken: dict[str, list[float]] = {which: [] for which in processes}
    for turn in range(REPEATS + 1):
        for which, process in processes.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                print(f"the {which} process ended with {process.wait()}", file=sys.stderr)
                return 2
            if turn:
                taken[which].append(json.loads(answer))
    for process in processes.values():
        process.communicate()
    print(f"product of {N}³ with {T}×{T} shared tiles, {REPEATS} turns, computing time")
    for which, times in taken.items():
        ratio = statistics.median(a / b for a, b in zip(taken["numba"], times, strict=True))
        print(f"  {which:<11} {1e3 * statistics.median(times):8.1f} ms   numba's simulator / this: {ratio:5.1f}")
    ratio = statistics.median(a / b for a, b in zip(taken["numba"], taken["races only"], strict=True))
    print(f"ratio {ratio:.1f}, target {TARGET:g}{'' if ratio >= TARGET else '  MISSED'}")
    return int(ratio < TARGET)


if __name__ == "__main__":
    sys.exit(child(sys.argv[1]) if len(sys.argv) > 1 else main())

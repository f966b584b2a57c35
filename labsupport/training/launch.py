"""Start `python -m labsupport.training` on several ranks with torchrun, and end all of them when the time is up.

It exists so that a notebook and a terminal start the very same command. It must never leave a rank behind.
"""

import os
import signal
import subprocess
import sys

__all__ = ["command", "torchrun"]


def command(ranks: int, arguments: list[str]) -> list[str]:
    """The command line: torchrun on this machine alone, then the module and its arguments."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    return [*launcher, f"--nproc-per-node={ranks}", "-m", "labsupport.training", *arguments]


#: Seconds in which torchrun has to end its ranks when it is asked to.
GRACE = 20.0


def _end(process: "subprocess.Popen[str]") -> None:
    """Stop torchrun and its ranks, which it starts in sessions of their own: only it knows them all."""
    process.terminate()
    try:
        process.communicate(timeout=GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def torchrun(ranks: int, arguments: list[str], timeout: float = 120.0) -> str:
    """Run the training module on ``ranks`` processes; returns what rank 0 printed.

    Args:
        ranks: processes on this machine, at least 1.
        arguments: of ``python -m labsupport.training``.
        timeout: seconds after which every process is ended.

    Raises:
        ValueError: fewer than 1 rank.
        RuntimeError: a rank failed or time ran out; the last lines of the output are in the message.
    """
    if ranks < 1:
        raise ValueError(f"ranks is {ranks}; start at least 1 process")
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if sys.platform.startswith("linux"):
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    process = subprocess.Popen(
        command(ranks, arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,  # a group of its own, so that the ranks can be ended together
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"the ranks did not finish within {timeout:g} s and were stopped") from late
    finally:
        if process.poll() is None:
            _end(process)
    if process.returncode != 0:
        raise RuntimeError(f"torchrun ended with exit code {process.returncode}:\n{(output + errors)[-3000:]}")
    return output

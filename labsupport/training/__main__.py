"""`python -m labsupport.training`: the training lab from a terminal, alone or under torchrun.

One process trains alone. Under torchrun each rank takes a share of every batch: NCCL where each rank has a GPU,
gloo on CPUs. Only rank 0 prints and writes.
"""

import argparse
import os
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np

from labsupport.training.corpus import entropy_per_token
from labsupport.training.files import CheckpointError, Saved, load, save
from labsupport.training.loop import Engine, NumpyEngine, Report, Settings, TorchEngine, evaluate, prepare, train


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m labsupport.training", description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=Settings.steps, help="steps of the schedule")
    parser.add_argument("--until", type=int, help="stop after this step, short of the schedule's end")
    parser.add_argument("--engine", choices=("torch", "numpy"), default="torch")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--checkpoint", action="store_true", help="recompute activations in the backward pass")
    parser.add_argument("--autocast", choices=("", "bfloat16"), default="", help="dtype of the forward products")
    parser.add_argument("--save", type=Path, help="write weights and optimizer state here")
    parser.add_argument("--resume", type=Path, help="go on from this file")
    parser.add_argument("--record", type=Path, help="write losses, norms and final weights here (.npz)")
    parser.add_argument("--every", type=int, default=20, help="print a line each so many steps")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Train, print, write; returns the exit code."""
    options = arguments(argv)
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    try:
        if ranks > 1 and options.engine == "numpy":
            raise ValueError("the NumPy engine runs in one process; leave --engine numpy out under torchrun")
        device = _device(options.device, ranks)
        if ranks > 1:
            _join(device)
        _train(options, rank, ranks, device)
    except (CheckpointError, FileNotFoundError, ValueError) as error:
        print(f"labsupport.training: {error}", file=sys.stderr)
        return 2
    finally:
        _leave(ranks)
    return 0


def _train(options: argparse.Namespace, rank: int, ranks: int, device: str) -> None:
    settings = replace(Settings(), steps=options.steps)
    tokenizer, stream, held_out = prepare(settings)
    if options.resume:
        start = load(options.resume, settings.model)
    else:
        start = Saved.fresh(settings.model, np.random.default_rng([settings.seed, 0]), options.dtype)
    engine: Engine
    if options.engine == "numpy":
        engine = NumpyEngine(settings, start)
    else:
        engine = TorchEngine(settings, start, device=device, checkpoint=options.checkpoint, autocast=options.autocast)

    def log(step: int, report: Report, rate: float) -> None:
        if rank == 0 and (step % options.every == 0 or step == settings.steps - 1):
            print(f"step {step:5}  loss {report.loss:.4f}  norm {report.norm:.4f}  lr {rate:.5f}", flush=True)

    run = train(settings, stream, engine, until=options.until, on_step=log)
    if rank:
        return
    end = replace(engine.saved(), tokens=tokenizer.tokens)
    loss = evaluate(settings.model, end.parameters, held_out, settings.length)
    floor = entropy_per_token(tokenizer)
    where = f"{ranks} rank(s), {device}"
    print(f"held-out loss {loss:.4f} nats a token; the language's own entropy is {floor:.4f} ({where})")
    if options.save:
        save(options.save, end)
    if options.record:
        np.savez(options.record, losses=run.losses, norms=run.norms, **end.parameters)  # type: ignore[arg-type]


def _device(wanted: str, ranks: int) -> str:
    """The device of this rank: its own GPU where every rank on this machine has one."""
    import torch

    gpus = torch.cuda.device_count() if wanted != "cpu" else 0
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    if wanted == "cuda" and gpus < here:
        raise ValueError(f"{here} rank(s) on this machine need a GPU each, and it has {gpus}; use --device cpu")
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if gpus >= here else "cpu"


def _join(device: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if device != "cpu":
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if device == "cpu" else "nccl", timeout=timedelta(seconds=60))


def _leave(ranks: int) -> None:
    if ranks > 1:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())

"""The real distributed job: PyTorch with gloo, of Debian's packages, in the image at $RAILNET_TORCH_IMAGE (scripts/job-image)."""

from tests.cluster.training_pods import Work

NAME = "docker.io/local/pytorch:1"
TENSOR_BYTES = 16 << 20
ROUNDS = 2
RENDEZVOUS = "RENDEZVOUS"
"""The variable with the URL where the ranks meet, if it is not the operator's MASTER_ADDR."""

# All else that it knows of its peers comes by the operator's environment. A ring of two sends each tensor once in each direction. At its end
# it says what its interfaces have counted, as `training_pods.carried` reads it.
_PROGRAM = f"""\
import os
import pathlib
import torch
from torch import distributed

said = [pathlib.Path("/proc/net/dev").read_text()]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
distributed.init_process_group("gloo", init_method=os.environ.get("{RENDEZVOUS}", "env://"), rank=rank, world_size=size)
tensor = torch.ones({TENSOR_BYTES} // 4)
for _ in range({ROUNDS}):
    distributed.all_reduce(tensor)
assert bool((tensor == distributed.get_world_size() ** {ROUNDS}).all()), tensor
said.append(pathlib.Path("/proc/net/dev").read_text())
pathlib.Path("/dev/termination-log").write_text("".join(said))
"""
WORK = Work(["/usr/bin/python3.11", "-c", _PROGRAM], NAME)

# Debian's torchrun 1.13 cannot run with Python 3.11 unless both are said: its default, Std(0), is no member that this Python iterates over.
# It then copies what its processes say, and writes it when there is much of it, unless Python's output is unbuffered.
DEBIANS_TORCHRUN = {"PET_REDIRECTS": "1", "PET_TEE": "1", "PYTHONUNBUFFERED": "1"}
"""Variables without which the image's torchrun does not run."""

SIDE = 1 << 18
"""How many numbers of four bytes each step of the checkpointed program adds up over all ranks."""

# Ranks that add up a tensor again and again, and write each step to a checkpoint of their own. After a restart all go on after the oldest
# of their checkpoints. At the end each says what its interfaces have counted.
_CHECKPOINTED = f"""\
import pathlib
import sys
import time
import torch
from torch import distributed

folder, hold = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
checkpoint = folder / f"rank-{{rank}}"
step = torch.tensor([int(checkpoint.read_text()) if checkpoint.exists() else 0])
distributed.all_reduce(step, distributed.ReduceOp.MIN)
step = int(step)
print("resumed" if step else "started", "at step", step, "as rank", rank, "of", size, flush=True)
while True:
    tensor = torch.ones({SIDE})
    distributed.all_reduce(tensor)
    assert bool((tensor == size).all()), tensor
    step += 1
    checkpoint.with_suffix(".new").write_text(str(step))
    checkpoint.with_suffix(".new").replace(checkpoint)
    # All look at `hold` at another moment, and an all-reduce needs all: the ranks agree on whether there is another step.
    more = torch.tensor([int(hold.exists() or step < 20)])
    distributed.all_reduce(more)
    if not int(more):
        break
    time.sleep(0.2)
for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
    name, _, counted = line.strip().partition(":")
    if counted:
        print("carried", name, counted.split()[0], counted.split()[8], flush=True)
print("complete at step", step, flush=True)
"""


def checkpointed(folder: str, hold: str) -> list[str]:
    """Return the command of a worker: torchrun, which takes all else from its variables, and the program. It goes on while `hold` exists."""
    python = "/usr/bin/python3.11"
    return [python, "-m", "torch.distributed.run", "--no_python", python, "-c", _CHECKPOINTED, folder, hold]

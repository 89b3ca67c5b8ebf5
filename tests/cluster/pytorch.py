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

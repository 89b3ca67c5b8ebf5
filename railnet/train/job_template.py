"""`railnet train init`: the file of a job to begin with, with a comment for each key that people change."""

import re
import sys
from pathlib import Path

from railnet.cli.messages import tell
from railnet.errors import Misconfigured
from railnet.train.failure import TrainFailed

NAME = "mnist"
_JOB_NAME = re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?")  # with room for -worker-9999

_HEAD = """\
# A job of `railnet train`. Look at it without a cluster:
#   railnet train up -f job.yaml --dry-run=client -o yaml
# Run it, see it, read its logs, end it:
#   railnet train up -f job.yaml; railnet train ls; railnet train logs NAME -f; railnet train down NAME
# All keys: docs/training/train.md. A line that begins with # does nothing.
"""
_COMMON = """\

# Where it runs
# namespace: ml                # the job's own name, if there is none here; it is created
cpu: "4"                       # of each task
memory: 32Gi                   # of each task, and its limit: a task that needs more is ended
# priority: iteration          # a PriorityClass of the cluster
# nodeSelector: {gpu: h100}
# tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
# topology: railnet.io/leaf    # all tasks start together, in one value of this label of nodes
# gang: true                   # all tasks start together, anywhere

# What it reads and writes
# imagePullSecrets: [registry]
# volumes:
#   checkpoints: /checkpoints  # a PersistentVolumeClaim of the namespace, and its path
#   scratch: {mountPath: /scratch, hostPath: {path: /mnt/nvme}}
# env: {NCCL_DEBUG: INFO}

# When a worker fails
# restart: OnFailure           # its container starts again; Never: a new pod, perhaps on another node
# retries: 6
"""
_PYTORCH = """\
kind: pytorch
name: {name}                    # of the job; its workers are {name}-worker-0, {name}-worker-1, …
image: registry.example/train:1

# torchrun gets the number of workers, of processes and where they meet by its variables (PET_NNODES, PET_RDZV_ENDPOINT, …).
# A program that is one process gets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK: [python, /train.py] with gpus: 1.
command: [torchrun, /train.py]
workers: 2                     # pods; worker 0 is where all meet
gpus: 8                        # of each worker
# processes: 8                 # of each worker: one for each GPU
# sharedMemory: 16Gi           # /dev/shm, which DataLoader uses: as much as memory, if there is no number here

# The InfiniBand network
rails: 1                       # VFs of each worker: a number, such as 8 where a node has 8 rails; or auto: a VF for each GPU
#                              # auto needs node.yaml to name the rails: a list under 'rails', or 'ipam.rails' of the network default
# rendezvous: eth0             # the workers meet on net1, if there are rails; this needs Railnet's controllers
"""
_TENSORFLOW = """\
kind: tensorflow
name: {name}                    # of the job; its tasks are {name}-ps-0, {name}-worker-0, …
image: registry.example/train:1

# Each task gets TF_CONFIG, and as arguments: the servers, the workers, its role, its index, the number of each.
command: [python, /train.py]
workers: 3                     # worker 0 is the chief
ps: 2                          # parameter servers; 0 for MultiWorkerMirroredStrategy
gpus: 1                        # of each worker

# The InfiniBand network
rails: 1                       # VFs of each task; 0: none, all goes over eth0
# rendezvous: eth0             # the names in TF_CONFIG lead to net1, if there are rails; this needs Railnet's controllers
"""
_MPI = """\
kind: mpi                      # needs no operator; with mpi-operator: railnet train up --as mpijob -f job.yaml
name: {name}                    # of the job; its workers are {name}-0, {name}-1, …
image: registry.example/train:1  # with Open MPI, ssh, sshd, and the program

# It runs in worker 0, and finds there the list of hosts and the options of ssh as variables of Open MPI.
command: [mpirun, --allow-run-as-root, -np, "16", python, /train.py]
workers: 2                     # pods; all but worker 0 run sshd
gpus: 8                        # of each worker
# processes: 8                 # slots of each worker: one for each GPU

# The InfiniBand network
rails: 1                       # VFs of each worker: a number, such as 8 where a node has 8 rails; or auto: a VF for each GPU
#                              # auto needs node.yaml to name the rails: a list under 'rails', or 'ipam.rails' of the network default
"""
_TEXTS = {"pytorch": _PYTORCH, "tensorflow": _TENSORFLOW, "mpi": _MPI}
KINDS = tuple(_TEXTS)


def text_of(kind: str, name: str = NAME) -> str:
    """Return the file of a kind.

    Raises:
        TrainFailed: a job cannot have this name.
    """
    if _JOB_NAME.fullmatch(name) is None:
        raise TrainFailed(
            f"--name is {name!r:.80}; it should have lower-case letters, digits and hyphens, a letter first, at most 50"
        )
    return _HEAD + _TEXTS[kind].format(name=name) + _COMMON


def write(kind: str, name: str, file: str | None, *, force: bool) -> None:
    """Write the file of a kind, or print it.

    Raises:
        TrainFailed: the file exists, and is not to be replaced.
        Misconfigured: it cannot be written.
    """
    text = text_of(kind, name)
    if file is None or file == "-":
        sys.stdout.writelines(text.splitlines(keepends=True))
        sys.stdout.flush()
        return
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as into:
            into.write(text)
    except FileExistsError:
        raise TrainFailed(f"{file} exists and stays as it is; name another file, or replace it with --force") from None
    except OSError as error:
        raise Misconfigured(
            f"{file} cannot be written: {error.strerror}; name a file in a folder that exists"
        ) from None
    tell(f"{file} is written; change image and command, and then: railnet train up -f {file}")

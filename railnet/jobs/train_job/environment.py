"""How the tasks of a job of `railnet train` know each other: arguments and variables, by the kind of the job.

TensorFlow: `TF_CONFIG`, and six arguments as the plain templates have them. PyTorch: variables that torchrun reads in place of its options
(`PET_…`, torch/distributed/argparse_util.py), and those of `init_method="env://"` where a worker is one process.
"""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from railnet.errors import Misconfigured
from railnet.jobs.train_job.train_job import LONGEST_ARGUMENT, PS, WORKER, Kind, Task, TrainingJob

_MOST_RESTARTS = 3  # of a worker's processes by its torchrun, before its container fails


class Peers(NamedTuple):
    """The addresses of all tasks, each with its port."""

    ps: list[str]
    workers: list[str]

    @classmethod
    def of(cls, job: TrainingJob) -> "Peers":
        """Return a job's addresses: the names of the tasks' Services.

        Raises:
            Misconfigured: they are more than a program may be started with; the message begins with a key.
        """
        addresses: dict[str, list[str]] = {PS: [], WORKER: []}
        for task in job.tasks:
            addresses[task.role].append(f"{task.host}:{job.port}")
        peers = cls(addresses[PS], addresses[WORKER])
        last = Task(job, WORKER, job.workers - 1)
        size = len(_tf_config(last, peers)) + len("TF_CONFIG=") + 1
        if job.kind == Kind.TENSORFLOW and size > LONGEST_ARGUMENT:
            raise Misconfigured(
                f"workers and ps make a TF_CONFIG of {size} bytes, and Linux starts no program with a variable of more than "
                f"{LONGEST_ARGUMENT}; use fewer and larger tasks"
            )
        return peers

    def arguments(self, task: Task) -> list[str]:
        """Return what follows the arguments of the command; PyTorch needs nothing there."""
        job = task.job
        if job.kind != Kind.TENSORFLOW:
            return []
        return [",".join(self.ps), ",".join(self.workers), task.role, str(task.index), str(job.ps), str(job.workers)]

    def variables(self, task: Task) -> Mapping[str, str]:
        """Return the variables of a task's container. The file's own `env` has precedence over those of PyTorch."""
        if task.job.kind == Kind.TENSORFLOW:
            return {**task.job.env, "TF_CONFIG": _tf_config(task, self)}
        return {**dict(_of_torch(task)), **task.job.env}


def _tf_config(task: Task, peers: Peers) -> str:
    roles = {PS: peers.ps, WORKER: peers.workers}
    document = {
        "cluster": {role: addresses for role, addresses in roles.items() if addresses},
        "task": {"type": task.role, "index": task.index},
        "environment": "cloud",
    }
    return json.dumps(document, separators=(",", ":"))


def _of_torch(task: Task) -> Iterator[tuple[str, str]]:
    """Yield torchrun's options as variables, then the variables of a process that no torchrun has started.

    torchrun compares the rendezvous' name with its own addresses to find out whether it is the host, and takes a pod's own host name for the
    address of rank 0. Neither works for the names of Services, so both are said (torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py).
    """
    job, host = task.job, Task(task.job, WORKER, 0).host
    yield "PET_NNODES", str(job.workers)
    yield "PET_NPROC_PER_NODE", str(job.processes_each)
    yield "PET_NODE_RANK", str(task.index)
    yield "PET_RDZV_BACKEND", "c10d"
    yield "PET_RDZV_ENDPOINT", f"{host}:{job.port}"
    yield "PET_RDZV_ID", job.name
    yield "PET_RDZV_CONF", f"is_host={int(task.index == 0)}"
    yield "PET_LOCAL_ADDR", task.host
    yield "PET_MAX_RESTARTS", str(_MOST_RESTARTS if job.retries is None else min(job.retries, _MOST_RESTARTS))
    yield "MASTER_ADDR", host
    yield "MASTER_PORT", str(job.port)
    yield "WORLD_SIZE", str(job.workers * job.processes_each)
    if job.processes_each == 1:
        yield "RANK", str(task.index)
        yield "LOCAL_RANK", "0"

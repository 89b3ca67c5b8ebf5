"""A training job of `railnet train`, as its file says it, and what its values may not contradict. Not here: its objects (`objects`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from railnet.errors import Misconfigured
from railnet.jobs.gang.gang_constraint import CONSTRAINT
from railnet.objects.quantity import parsed

PS, WORKER = "ps", "worker"
AUTO = "auto"  # of rails: as many as the worker has GPUs, but not more than its node has rails
NONE = "none"  # of sharedMemory: what the container runtime gives, which is 64 MiB
MEMORY = "4Gi"  # of each task, as the templates have it
TENSORFLOW_PORT, PYTORCH_PORT = 2222, 29500  # the templates' port; the default of torch.distributed
LONGEST_NAME = 63  # RFC 1035 label: a Service has the task's name, the pods' label has the job's, and JobSet wants it of a pod's name
LONGEST_ARGUMENT = 32 << 12  # execve(2): MAX_ARG_STRLEN, for one argument or variable with its final NUL
_ONE_PROCESS = frozenset({"python", "python3"})
_STARTS_PROCESSES = (
    "torch.distributed",
    "accelerate",
    "deepspeed",
    "torchrun",
)  # modules and programs, in any word of a command


class Kind(StrEnum):
    """The framework of a job, by which its tasks know each other."""

    TENSORFLOW = "tensorflow"
    PYTORCH = "pytorch"
    MPI = "mpi"


class Contradictions(Misconfigured):
    """Values of a job contradict each other. Each of `mistakes` begins with a key, and says what to do."""

    def __init__(self, mistakes: list[str]) -> None:
        """Keep what is wrong, in the order of its checks."""
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A job, as its file says it.

    Attributes:
        namespace: the job's name, if the file does not say another.
        kind: what its tasks run.
        ps: how many parameter servers; TensorFlow's only.
        command: the program and its first arguments; empty for the image's own.
        script: text for /bin/sh in place of a command; None for none.
        gpus: for each worker. Parameter servers get none.
        processes: how many processes of the job a worker runs; PyTorch's and MPI's only. None for one for each GPU, and at least one.
        cpu, memory: requests of each task. The memory is the limit as well, so that a task that needs more ends alone.
        shared_memory: the size of /dev/shm, in memory that counts as the task's; None for what the container runtime gives.
        rails: how many VFs each task gets; 0 for none, AUTO for as many as it has GPUs and its node has rails.
        rendezvous: the interface that the names of the tasks lead to, `net1` or `eth0`; None for net1 if there are rails.
        priority: the name of a PriorityClass; None for the cluster's default.
        annotations: of all pods, and of the owner: what Railnet's other parts do for this job.
        gang: whether all tasks start together or none does; None if `topology` decides it.
        topology: the key of a node's label whose value is the same for all tasks, which are a gang then; None for any nodes.
        volumes: by name, a path in the containers of a PersistentVolumeClaim of that name; or, as Kubernetes has them, `mountPath`
            (`readOnly`, `subPath`) and the source of a volume.
        node_selector, tolerations, affinity: of all pods, as Kubernetes has them.
        restart: `OnFailure`: a failed worker's container starts again in its pod; `Never`: in a new pod, perhaps on another node.
        retries: how often a failed worker is started again; None for Kubernetes' default.
    """

    name: str
    image: str
    workers: int
    kind: str = Kind.TENSORFLOW
    ps: int = 0
    namespace: str | None = None
    command: tuple[str, ...] = ()
    script: str | None = None
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    processes: int | None = None
    cpu: str = "500m"
    memory: str = MEMORY
    shared_memory: str | None = None
    rails: int | str = 1
    rendezvous: str | None = None
    priority: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    volumes: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)
    port: int = TENSORFLOW_PORT
    restart: str = "OnFailure"
    retries: int | None = None
    gang: bool | None = None
    topology: str | None = None

    def __post_init__(self) -> None:
        """Check what follows from several values.

        Raises:
            Contradictions: values contradict each other, or a name is too long; each message begins with a key.
        """
        mistakes = [*_of_network(self), *_of_tasks(self), *_of_processes(self)]
        if mistakes:
            raise Contradictions(mistakes)

    @property
    def in_namespace(self) -> str:
        """The namespace of all objects."""
        return self.namespace or self.name

    @property
    def on_net1(self) -> bool:
        """True if tasks find each other by names on net1."""
        return bool(self.rails) and self.rendezvous != "eth0"

    @property
    def in_gang(self) -> bool:
        """True if its tasks are one gang."""
        return bool(self.gang) or self.topology is not None

    @property
    def processes_each(self) -> int:
        """How many processes of the job each worker runs."""
        return self.processes or self.gpus or 1

    @property
    def tasks(self) -> Iterator["Task"]:
        """The parameter servers, then the workers."""
        yield from (Task(self, PS, index) for index in range(self.ps))
        yield from (Task(self, WORKER, index) for index in range(self.workers))


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a job."""

    job: TrainingJob
    role: str
    index: int

    @property
    def name(self) -> str:
        """The name of its objects and of its container: the recogniser knows the task by it."""
        return f"{self.job.name}-{self.role}-{self.index}"

    @property
    def host(self) -> str:
        """The name by which other tasks reach it: that of its Service."""
        return f"{self.name}.{self.job.in_namespace}.svc"

    @property
    def labels(self) -> dict[str, str]:
        """The templates' labels."""
        return {"name": self.job.name, "job": self.role, "task": str(self.index)}


def _of_network(job: TrainingJob) -> Iterator[str]:
    if job.rendezvous == "net1" and not job.rails:
        yield "rendezvous is net1, and rails is 0: without a rail a task has no net1; change one of them"
    if job.topology is not None and CONSTRAINT in job.annotations:
        yield f"topology and the annotation {CONSTRAINT} exclude each other; remove one of them"
    if job.topology is not None and job.gang is False:
        yield "gang is false, and the tasks of a topology are a gang; remove one of the two keys"


def _of_tasks(job: TrainingJob) -> Iterator[str]:
    if job.command and job.script is not None:
        yield "command and script exclude each other; remove one of them"
    longest = max((len(task.name) for task in job.tasks), default=0)
    if longest > LONGEST_NAME:
        yield f"name is {job.name!r}, so a task's name has {longest} characters; it may have {LONGEST_NAME}: shorten name"
    if job.script is not None and len(job.script.encode()) >= LONGEST_ARGUMENT:
        yield f"script has more than {LONGEST_ARGUMENT - 1} bytes; put it into the image"
    shared = parsed(job.shared_memory) if job.shared_memory else None
    if shared is not None and shared > (parsed(job.memory) or 0):
        yield (
            f"sharedMemory is {job.shared_memory}, and memory is {job.memory}: what is in /dev/shm counts as the task's memory; "
            "raise memory, or lower sharedMemory"
        )


def _of_processes(job: TrainingJob) -> Iterator[str]:
    """Find workers with several processes whose command starts Python once: all GPUs but one would be idle."""
    if job.kind != Kind.PYTORCH or job.processes is not None or job.gpus <= 1 or not job.command:
        return
    program = job.command[0].rpartition("/")[2]
    if program in _ONE_PROCESS and not any(word.startswith(_STARTS_PROCESSES) for word in job.command):
        yield (
            f"command starts {program} once, and a worker has {job.gpus} GPUs; begin it with torchrun in place of {program}, or say "
            "processes: 1 if that one process uses all of them"
        )

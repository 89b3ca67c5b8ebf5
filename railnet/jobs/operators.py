"""The table of training operators: one row for each operator. The first row that fits a pod is the pod's row.

To add an operator, add a row, pods as the operator makes them under `tests/railnet/admission/golden/`, and its page under `docs/training/`. Then
run `scripts/generate`, so that the API server sends reviews for its pods. Only `operator_job_pods`, which renders pods of jobs, names operators, too. The keys are quoted from the
operators' sources, which the golden pods name.

A mark must be a label that the operator's *controller* writes: selectors see no annotations, and the operator's webhook may add its labels
after Railnet's webhook was called.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from railnet.jobs import railnet_labels
from railnet.jobs.operator_pod_fields import (
    CONTROLLER_NAME,
    Field,
    address_count,
    always,
    either,
    env,
    first,
    key,
    label,
)

ANY: tuple[str, ...] = ()  # the values of a mark that may have any value


class Part(Enum):
    """The part of a role's pods in the exchange of the job's data."""

    TRAINS = "trains"
    LAUNCHES = "starts the others, and trains only if it asks for GPUs"
    WITH_GPUS = "trains only if it asks for GPUs"
    APART = "takes no part"


class Default(Enum):
    """The pods of an operator that get a rail without a label of Railnet."""

    GPUS = "those that ask for GPUs"
    GANG = "those that ask for GPUs, of jobs with more than one pod"
    NONE = "none"


class Servers(Enum):
    """The moment from which a job's parameter servers are of no use any more, and may be deleted."""

    OPERATOR = "never: the operator decides, and would make them again"
    FINISHED = "when all workers are complete and the job's own object says that it has succeeded"
    COMPLETE = "when all workers are complete"


@dataclass(frozen=True, slots=True)
class Operator:
    """One row of the table.

    Attributes:
        name: the operator's name for users.
        page: its page under `docs/training/`, without `.md`.
        marks: labels that all of its pods have, each with its possible values.
        job, role: the fields with the names of the job and the role.
        rank: the fields with the position among the role's pods, the most significant number first.
        size: the field with the number of the job's pods; None if the pods have no such field.
        containers: names of the container that trains; `{label}` stands for a label's value. If no container has one of these names, the
            first that asks for GPUs trains, else the first.
        named: whether only pods with a container of such a name are this operator's.
        roles: the roles that do not simply train, each with its part.
        also_trains: a field that only a launcher has that also trains, without asking for GPUs.
        several_roots: whether the pods of one job may begin with several objects: their author says by labels what belongs together.
        default: the pods that get a rail without a label of Railnet.
        ports: of each training container by its name, the name of the port at which it waits for its peers.
        off_host: why host-network mode cannot serve its jobs, a clause; empty if it can.
        servers: when its parameter servers may be deleted.
    """

    name: str
    page: str
    marks: Mapping[str, tuple[str, ...]]
    job: Field
    role: Field
    rank: tuple[Field, ...]
    size: Field | None = None
    containers: tuple[str, ...] = ()
    named: bool = False
    roles: Mapping[str, Part] = field(default_factory=dict)
    also_trains: Field | None = None
    several_roots: bool = False
    default: Default = Default.GPUS
    ports: Mapping[str, str] = field(default_factory=dict)
    off_host: str = ""
    servers: Servers = Servers.OPERATOR


_ONE_SERVICE = "its pods share one headless Service, which forwards no port to a pod's own"
_COMPLETION_INDEX = key("batch.kubernetes.io/job-completion-index")
_KUBEFLOW = "training.kubeflow.org/"
_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"

OPERATORS: tuple[Operator, ...] = (
    Operator(
        name="KubeDL",
        page="kubedl",
        marks={"group-name": ("training.kubedl.io",), "job-name": ANY, "replica-type": ANY},
        job=key("job-name"),
        role=key("replica-type"),
        rank=(key("replica-index"),),
        size=first(
            env("WORLD_SIZE"), key("kubedl.io/world-size"), address_count("TF_CONFIG"), address_count("XDL_CONFIG")
        ),
        containers=("tensorflow", "pytorch", "xgboostjob", "mpi", "xdl", "mars", "elasticdl"),
        roles={"launcher": Part.LAUNCHES, "evaluator": Part.APART, "aimaster": Part.APART, "webservice": Part.APART},
        ports={
            "tensorflow": "tfjob-port",
            "pytorch": "pytorchjob-port",
            "xgboostjob": "xgboostjob-port",
            "mpi": "mpi-port",
            "xdl": "xdljob-port",
            "mars": "mars-port",
            "elasticdl": "elasticdl-port",
        },
        servers=Servers.FINISHED,
    ),
    Operator(
        name="Kubeflow training-operator",
        page="kubeflow-training-operator",
        marks={
            _KUBEFLOW + "operator-name": (
                "tfjob-controller",
                "pytorchjob-controller",
                "mpijob-controller",
                "xgboostjob-controller",
                "paddlejob-controller",
                "jaxjob-controller",
            ),
            _KUBEFLOW + "job-name": ANY,
            _KUBEFLOW + "replica-type": ANY,
        },
        job=key(_KUBEFLOW + "job-name"),
        role=key(_KUBEFLOW + "replica-type"),
        rank=(key(_KUBEFLOW + "replica-index"),),
        # WORLD_SIZE comes last: in a PyTorchJob it counts processes, but a PyTorchJob always has PET_NNODES
        size=first(
            env("PET_NNODES"), env("PADDLE_NNODES"), env("NUM_PROCESSES"), address_count("TF_CONFIG"), env("WORLD_SIZE")
        ),
        containers=("tensorflow", "pytorch", "mpi", "xgboost", "paddle", "jax"),
        roles={"launcher": Part.LAUNCHES, "evaluator": Part.APART},
        ports={
            "tensorflow": "tfjob-port",
            "pytorch": "pytorchjob-port",
            "mpi": "mpi-port",
            "xgboost": "xgboostjob-port",
            "paddle": "master",
            "jax": "jaxjob-port",
        },
        servers=Servers.FINISHED,
    ),
    Operator(
        name="MPIJob v2 (mpi-operator)",
        page="mpi-operator",
        marks={
            _KUBEFLOW + "operator-name": ("mpi-operator",),
            _KUBEFLOW + "job-name": ANY,
            _KUBEFLOW + "job-role": ("launcher", "worker"),
        },
        job=key(_KUBEFLOW + "job-name"),
        role=key(_KUBEFLOW + "job-role"),
        rank=(key(_KUBEFLOW + "replica-index"),),
        roles={"launcher": Part.LAUNCHES},
        also_trains=key(_KUBEFLOW + "replica-index"),  # spec.runLauncherAsWorker
        off_host="its workers' sshd needs port 22, which the node's own sshd has",
    ),
    Operator(
        name="Trainer v2 and JobSet",
        page="jobset",
        off_host=_ONE_SERVICE,
        marks={_JOBSET + "jobset-name": ANY, _JOBSET + "replicatedjob-name": ANY},
        job=key(_JOBSET + "jobset-name"),
        role=key(_JOBSET + "replicatedjob-name"),
        rank=(key(_JOBSET + "job-index"), _COMPLETION_INDEX),
        size=env("PET_NNODES"),
        containers=("node",),
        # Trainer calls the launcher's container `node`, whether its mpi.runLauncherAsNode is true or not: the pod shows only its GPUs
        roles={"launcher": Part.LAUNCHES, "dataset-initializer": Part.APART, "model-initializer": Part.APART},
    ),
    Operator(
        name="Volcano",
        page="volcano",
        off_host=_ONE_SERVICE,
        marks={"volcano.sh/job-name": ANY, "volcano.sh/task-spec": ANY},
        job=key("volcano.sh/job-name"),
        role=key("volcano.sh/task-spec"),
        rank=(key("volcano.sh/task-index"),),
        size=first(env("WORLD_SIZE"), address_count("TF_CONFIG")),
        roles={"mpimaster": Part.LAUNCHES, "launcher": Part.LAUNCHES, "evaluator": Part.APART},
    ),
    Operator(
        name="KubeRay",
        page="kuberay",
        off_host="Ray's ports stand in the start command that KubeRay writes",
        marks={"ray.io/is-ray-node": ("yes",), "ray.io/cluster": ANY, "ray.io/node-type": ("head", "worker")},
        job=key("ray.io/cluster"),
        role=first(key("ray.io/group"), key("ray.io/node-type")),
        rank=(key("ray.io/worker-group-replica-index"), first(key("ray.io/replica-host-index"), always("0"))),
        roles={"headgroup": Part.WITH_GPUS},
    ),
    Operator(
        name="LeaderWorkerSet",
        page="leaderworkerset",
        off_host=_ONE_SERVICE,
        marks={_LWS + "name": ANY},
        job=key(_LWS + "name"),
        role=either(_LWS + "worker-index", "0", "leader", "worker"),
        rank=(key(_LWS + "group-index"), key(_LWS + "worker-index")),
        size=key(_LWS + "size"),
        default=Default.GANG,
    ),
    Operator(
        name="Indexed Job",
        page="indexed-job",
        off_host=_ONE_SERVICE,
        marks={"batch.kubernetes.io/job-name": ANY, "batch.kubernetes.io/job-completion-index": ANY},
        job=key("batch.kubernetes.io/job-name"),
        role=always("worker"),
        rank=(_COMPLETION_INDEX,),
        size=env("PET_NNODES"),
        default=Default.NONE,
    ),
    Operator(
        name="TensorFlow on Kubernetes, plain templates",
        page="tensorflow-templates",
        marks={"name": ANY, "job": ("ps", "worker"), "task": ANY},
        job=key("name"),
        role=key("job"),
        rank=(key("task"),),
        size=address_count("TF_CONFIG"),
        containers=("{name}-{job}-{task}", "tensorflow"),
        named=True,
        several_roots=True,
        default=Default.NONE,
        servers=Servers.COMPLETE,
    ),
    Operator(
        name="any pod with the label",
        page="any-pod",
        marks={railnet_labels.NET1: ("true",)},
        job=first(label(railnet_labels.JOB), key("batch.kubernetes.io/job-name"), CONTROLLER_NAME),
        role=first(label(railnet_labels.ROLE), always("worker")),
        rank=(first(label(railnet_labels.RANK), _COMPLETION_INDEX, key("apps.kubernetes.io/pod-index")),),
        several_roots=True,
        default=Default.NONE,
        servers=Servers.COMPLETE,
    ),
)

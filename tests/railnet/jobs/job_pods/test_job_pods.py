"""The pods that are rendered of a job are those that its controller makes: a review decides the same about both.

Each golden pod is taken apart into the job that its author wrote, and that job is rendered again.
"""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from railnet.admission.decision import Additions, Untouched, decide
from railnet.admission.review_configuration import Namespace
from railnet.errors import Misconfigured
from railnet.jobs.job_pods.job_pods import makes_pods, pods_of
from railnet.jobs.recogniser import recognise
from railnet.objects import pod as pod_module
from tests.railnet.admission.goldens import GOLDENS, Golden

JsonObject = dict[str, Any]
_MADE_KEYS = re.compile(
    r"(training\.kubeflow\.org|jobset\.sigs\.k8s\.io|leaderworkerset\.sigs\.k8s\.io|ray\.io|volcano\.sh|batch\.kubernetes\.io"
    r"|apps\.kubernetes\.io|statefulset\.kubernetes\.io)/.*|group-name|job-name|job-role|replica-(type|index)|controller-uid"
    r"|controller-revision-hash|pod-template-hash|scheduling\.k8s\.io/group-name"
)
_MADE_VARIABLES = {
    *("TF_CONFIG", "PET_NNODES", "WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", "PADDLE_NNODES", "NUM_PROCESSES"),
    *("PET_MASTER_ADDR", "PET_MASTER_PORT", "K_MPI_JOB_ROLE", "JOB_COMPLETION_INDEX"),
}
_BY_AUTHOR = (
    "indexed-job",
    "jobset",
)  # whose variables are the author's, or Trainer's, which writes them into the JobSet
_MADE_PARTS = ("hostname", "subdomain", "schedulerName", "ownerReferences")
# What no manifest has: pods that other webhooks have changed, or whose job is of a form that only the operator knows.
_NOT_OF_A_MANIFEST = {
    "kubedl/tfjob-host-network-by-kubedl": "the annotation of the job is not in the pod",
    "kubedl/xdljob-scheduler": "XDL_CONFIG has the size",
    "kubedl/xdljob-worker": "XDL_CONFIG has the size",
    "kuberay/worker-indexed": "a feature gate of KubeRay writes the index of one host",
    "leaderworkerset/leader-before-its-webhook": "its webhook writes the group's index",
    "leaderworkerset/worker-before-its-webhook": "its webhook writes the group's index",
}


def template(golden: Golden) -> JsonObject:
    """Return the pod template that a golden pod was made of."""
    spec = {key: copy.deepcopy(part) for key, part in golden.pod["spec"].items() if key not in _MADE_PARTS}
    for container in spec["containers"]:
        made_variables = () if golden.page in _BY_AUTHOR else _MADE_VARIABLES
        container["env"] = [one for one in container.get("env") or () if one["name"] not in made_variables]
    metadata = {
        part: {
            key: text for key, text in (golden.pod["metadata"].get(part) or {}).items() if not _MADE_KEYS.fullmatch(key)
        }
        for part in ("labels", "annotations")
    }
    return {"metadata": metadata, "spec": spec}


def labels(golden: Golden) -> Mapping[str, str]:
    found: Mapping[str, str] = golden.pod["metadata"].get("labels") or {}
    return found


def size(golden: Golden) -> int:
    member = recognise(pod_module.parse(golden.pod))
    return (member.size if member else None) or 1


def made(golden: Golden, version: str, kind: str, name: str, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": golden.namespace},
        "spec": spec,
    }


def of_replicas(golden: Golden) -> JsonObject:
    (owner,) = [one for one in golden.pod["metadata"]["ownerReferences"] if one.get("controller")]
    role = labels(golden).get("replica-type") or labels(golden)["training.kubeflow.org/replica-type"]
    specs = {role.capitalize(): {"replicas": size(golden), "template": template(golden)}}
    return made(golden, owner["apiVersion"], owner["kind"], owner["name"], {"anyReplicaSpecs": specs})


def of_mpi(golden: Golden) -> JsonObject:
    role = labels(golden)["training.kubeflow.org/job-role"]
    specs: JsonObject = {"mpiReplicaSpecs": {role.capitalize(): {"replicas": 1, "template": template(golden)}}}
    specs["runLauncherAsWorker"] = role == "launcher" and "training.kubeflow.org/replica-index" in labels(golden)
    return made(golden, "kubeflow.org/v2beta1", "MPIJob", labels(golden)["training.kubeflow.org/job-name"], specs)


def of_job_set(golden: Golden) -> JsonObject:
    meta = golden.pod["metadata"]["annotations"]
    job = {"parallelism": 2, "template": template(golden)}
    entry = {"name": meta["jobset.sigs.k8s.io/replicatedjob-name"], "replicas": 1, "template": {"spec": job}}
    return made(
        golden,
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        meta["jobset.sigs.k8s.io/jobset-name"],
        {"replicatedJobs": [entry]},
    )


def of_volcano(golden: Golden) -> JsonObject:
    task = {"name": labels(golden)["volcano.sh/task-spec"], "replicas": size(golden), "template": template(golden)}
    plugins = {"pytorch": []} if size(golden) > 1 else {}
    spec = {"plugins": plugins, "tasks": [task]}
    return made(golden, "batch.volcano.sh/v1alpha1", "Job", labels(golden)["volcano.sh/job-name"], spec)


def of_ray(golden: Golden) -> JsonObject:
    group = {"groupName": labels(golden)["ray.io/group"], "replicas": 1, "template": template(golden)}
    group["numOfHosts"] = 4 if "ray.io/replica-host-index" in labels(golden) else 1
    head = labels(golden)["ray.io/node-type"] == "head"
    other = {"template": {"spec": {"containers": [{"name": "other"}]}}}
    spec = {"headGroupSpec": group if head else other, "workerGroupSpecs": [] if head else [group]}
    return made(golden, "ray.io/v1", "RayCluster", labels(golden)["ray.io/cluster"], spec)


def of_group(golden: Golden) -> JsonObject:
    other = {"spec": {"containers": [{"name": "other"}]}}
    leads = labels(golden).get("leaderworkerset.sigs.k8s.io/worker-index") == "0"
    own = {"size": size(golden), "leaderTemplate": template(golden) if leads else other}
    own["workerTemplate"] = other if leads else template(golden)
    name = labels(golden)["leaderworkerset.sigs.k8s.io/name"]
    return made(
        golden, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, {"replicas": 2, "leaderWorkerTemplate": own}
    )


def of_indexed_job(golden: Golden) -> JsonObject:
    spec = {"completionMode": "Indexed", "parallelism": 5, "template": template(golden)}
    return made(golden, "batch/v1", "Job", labels(golden)["batch.kubernetes.io/job-name"], spec)


_JOBS: dict[str, Callable[[Golden], JsonObject]] = {
    "kubedl": of_replicas,
    "kubeflow-training-operator": of_replicas,
    "mpi-operator": of_mpi,
    "jobset": of_job_set,
    "volcano": of_volcano,
    "kuberay": of_ray,
    "leaderworkerset": of_group,
    "indexed-job": of_indexed_job,
}
_TAKEN_APART = [one for one in GOLDENS if one.page in _JOBS and one.name not in _NOT_OF_A_MANIFEST]


def judged(golden: Golden, document: JsonObject) -> Any:
    """Return what a review decides about a pod, without what differs from one replica to another."""
    pod = pod_module.parse(document)
    namespace = Namespace(golden.namespace, golden.net1)
    try:
        decision = decide(pod, namespace, golden.policy, golden.free_port)
    except Misconfigured as error:
        return str(error)
    if isinstance(decision, Untouched):
        return re.sub(r"\d+(\.\d+)?", "N", decision.why)
    assert isinstance(decision, Additions)
    member = decision.member
    variables = [variable.name for variable in decision.variables]
    replaced = [variable.name for variable in decision.replaced]
    return (
        *(member.operator.name, member.job, member.role, len(member.rank), member.container, member.part, member.size),
        *(
            decision.container,
            decision.vfs,
            decision.reason,
            decision.hidden,
            decision.priority_class,
            variables,
            replaced,
        ),
        sorted(decision.labels),
    )


@pytest.mark.parametrize("golden", _TAKEN_APART, ids=lambda golden: golden.name)
def test_review_decides_about_the_rendered_pod_as_about_the_controllers(golden: Golden) -> None:
    rendered = [one.pod for one in pods_of(_JOBS[golden.page](golden))]

    assert judged(golden, golden.pod) in [judged(golden, one) for one in rendered]


def test_each_golden_pod_that_is_left_out_exists() -> None:
    assert _NOT_OF_A_MANIFEST.keys() <= {one.name for one in GOLDENS}
    assert len(_TAKEN_APART) > 90


def container(name: str = "pytorch") -> JsonObject:
    return {"spec": {"containers": [{"name": name, "resources": {"limits": {"nvidia.com/gpu": 8}}}]}}


def job(kind: str, spec: Any, version: str = "kubeflow.org/v1") -> JsonObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "a", "namespace": "ml"}, "spec": spec}


def roles(**replicas: int) -> JsonObject:
    return {"xReplicaSpecs": {role: {"replicas": number, "template": container()} for role, number in replicas.items()}}


def test_each_role_has_a_pod_and_the_number_of_its_replicas() -> None:
    found = list(pods_of(job("PyTorchJob", roles(Master=1, Worker=127))))

    assert [(one.pod["metadata"]["name"], one.replicas) for one in found] == [("a-master-0", 1), ("a-worker-0", 127)]
    assert [recognised(one.pod) for one in found] == [("master 0 of a", 128), ("worker 0 of a", 128)]


def recognised(pod: JsonObject) -> tuple[str, int | None]:
    member = recognise(pod_module.parse(pod))
    assert member is not None
    return str(member), member.size


def test_tf_config_is_the_operators() -> None:
    (golden,) = [one for one in GOLDENS if one.name == "kubeflow-training-operator/tfjob-worker"]
    expected = next(one["value"] for one in golden.pod["spec"]["containers"][0]["env"] if one["name"] == "TF_CONFIG")
    document = job("TFJob", {"tfReplicaSpecs": {"PS": {"replicas": 2, "template": container("tensorflow")}}})
    document["spec"]["tfReplicaSpecs"]["Worker"] = {"replicas": 4, "template": container("tensorflow")}
    document["metadata"] = {"name": "dist-mnist", "namespace": "team-a"}

    _, worker = pods_of(document)

    (found,) = worker.pod["spec"]["containers"][0]["env"]
    assert found == {"name": "TF_CONFIG", "value": expected}


def test_what_the_author_set_stays() -> None:
    spec = roles(Worker=2)
    spec["xReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "PET_NNODES", "value": "1:9"}
    ]
    before = copy.deepcopy(spec)

    (made_pod,) = pods_of(job("PyTorchJob", spec))

    assert made_pod.pod["spec"]["containers"][0]["env"] == [{"name": "PET_NNODES", "value": "1:9"}]
    assert spec == before  # the job itself is not changed


_RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {
        "mlPolicy": {"numNodes": 3},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "dataset-initializer",
                        "template": {"spec": {"template": container("dataset-initializer")}},
                    },
                    {"name": "node", "template": {"spec": {"template": container("node")}}},
                ]
            }
        },
    },
}


def test_train_job_is_rendered_by_its_runtime_if_the_file_has_it() -> None:
    spec = {"runtimeRef": {"name": "torch"}, "trainer": {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}}}
    document = job("TrainJob", spec, "trainer.kubeflow.org/v1alpha1")

    first, node = pods_of(document, [document, _RUNTIME])
    (alone,) = pods_of(document, [document])

    assert [recognised(one.pod)[0] for one in (first, node)] == ["dataset-initializer 0.0 of a", "node 0.0 of a"]
    assert (node.replicas, recognised(node.pod)[1], node.note) == (3, 3, "")
    assert node.pod["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": 4}
    assert (alone.replicas, recognised(alone.pod)) == (1, ("node 0.0 of a", 1))
    assert alone.note == "the runtime torch is not in the file: what its template has is not seen here"


@pytest.mark.parametrize(
    ("version", "kind", "spec", "name", "replicas"),
    [
        ("apps/v1", "Deployment", {"replicas": 3, "template": container()}, "a-xxxxx-xxxxx", 3),
        ("apps/v1", "StatefulSet", {"template": container()}, "a-0", 1),
        ("apps/v1", "DaemonSet", {"template": container()}, "a-xxxxx", None),
        ("batch/v1", "Job", {"parallelism": 4, "template": container()}, "a-xxxxx", 4),
        ("batch/v1", "Job", {"completionMode": "Indexed", "template": container()}, "a-0-xxxxx", 1),
        ("batch/v1", "CronJob", {"jobTemplate": {"spec": {"template": container()}}}, "a-29000000-xxxxx", 1),
        (
            "ray.io/v1",
            "RayJob",
            {"rayClusterSpec": {"headGroupSpec": {"template": container()}}},
            "a-xxxxx-head-xxxxx",
            1,
        ),
        (
            "ray.io/v1",
            "RayService",
            {"rayClusterConfig": {"headGroupSpec": {"template": container()}}},
            "a-xxxxx-head-xxxxx",
            1,
        ),
    ],
)
def test_pods_of_each_kind_have_names_and_numbers(
    version: str, kind: str, spec: JsonObject, name: str, replicas: int | None
) -> None:
    document = job(kind, spec, version)
    (found,) = pods_of(document)

    assert makes_pods(document)
    assert (found.pod["metadata"]["name"], found.pod["metadata"]["namespace"], found.replicas) == (name, "ml", replicas)
    assert found.pod["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": 8}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (job("PyTorchJob", None), "PyTorchJob a: spec is missing; it should be a mapping"),
        (job("PyTorchJob", {}), "PyTorchJob a: spec has no …ReplicaSpecs; it should say how many pods"),
        (job("PyTorchJob", {"xReplicaSpecs": {"Master": 1}}), "PyTorchJob a: spec.xReplicaSpecs.Master is 1; it should be a mapping"),
        (job("PyTorchJob", {"xReplicaSpecs": {"Master": {}}}), "spec.xReplicaSpecs.Master.template is missing; it should be a mapping"),
        (job("PyTorchJob", roles(Master="2")), "spec.xReplicaSpecs.Master.replicas is '2'; it should be a whole number"),  # type: ignore[arg-type]
        (job("Job", {"template": {"spec": {}}}, "batch/v1"), "Job a: the containers of a pod template are None; they should be a list"),
        (job("JobSet", {"replicatedJobs": {}}, "jobset.x-k8s.io/v1alpha2"), "JobSet a: spec.replicatedJobs is {}; it should be a list"),
        (job("RayCluster", {}, "ray.io/v1"), "RayCluster a: spec.headGroupSpec is missing"),
        (job("LeaderWorkerSet", {}, "leaderworkerset.x-k8s.io/v1"), "spec.leaderWorkerTemplate is missing"),
        (job("TrainJob", {}, "trainer.kubeflow.org/v1alpha1"), "TrainJob a: spec.runtimeRef is missing"),
        (job("Rollout", {"template": container()}, "argoproj.io/v1"), "Rollout a .argoproj.io/v1. has pods, and which ones its controller"),
    ],
)  # fmt: skip
def test_job_of_another_form_is_named_with_the_field(document: JsonObject, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        list(pods_of(document))


@pytest.mark.parametrize("kind", ["ConfigMap", "Service", "PriorityClass"])
def test_object_without_pods_makes_none(kind: str) -> None:
    assert not makes_pods({"apiVersion": "v1", "kind": kind, "spec": {"ports": [{"port": 1}]}})
    assert not makes_pods({"apiVersion": "v1", "kind": kind})

"""The object that a job began with, by the chain of owners that the API server reports."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from railnet.apiserver.client import Answer, ApiServer, RequestFailed
from railnet.apiserver.request import Request
from railnet.controllers import owners as owners_module
from railnet.controllers.owners import Owners
from railnet.objects.owner_reference import OwnerReference

TRAIN_JOB = OwnerReference("trainer.kubeflow.org/v1alpha1", "TrainJob", "mnist", "1")
JOB_SET = OwnerReference("jobset.x-k8s.io/v1alpha2", "JobSet", "mnist", "2")
JOB = OwnerReference("batch/v1", "Job", "mnist-node-0", "3")
PATHS = {
    TRAIN_JOB: "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainjobs/mnist",
    JOB_SET: "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/mnist",
    JOB: "/apis/batch/v1/namespaces/ml/jobs/mnist-node-0",
}


class Objects:
    """An API server with some objects by path; an object may be a status in place of an answer."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self.objects = dict(objects)
        self.paths: list[str] = []

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        assert request.method == "GET"
        self.paths.append(request.path)
        found = self.objects.get(request.path, 404)
        status, body = (found, {"message": "planted"}) if isinstance(found, int) else (200, found)
        return Answer(status, "application/json", "", json.dumps(body).encode())


def owned(owner: OwnerReference, *above: OwnerReference, controller: bool = True) -> dict[str, Any]:
    references = [{**one.reference(), "controller": controller} for one in above]
    return {"metadata": {"name": owner.name, "uid": owner.uid, "ownerReferences": references}}


def finder(objects: Mapping[str, Any]) -> tuple[Owners, Objects]:
    api = Objects(objects)
    return Owners(ApiServer(api, lambda: "a-token", "test")), api


CHAIN = {PATHS[JOB]: owned(JOB, JOB_SET), PATHS[JOB_SET]: owned(JOB_SET, TRAIN_JOB), PATHS[TRAIN_JOB]: owned(TRAIN_JOB)}


def test_root_is_the_end_of_the_chain_and_each_owner_is_asked_for_once() -> None:
    owners, api = finder(CHAIN)

    assert [owners.root("ml", JOB) for _ in range(3)] == [TRAIN_JOB] * 3
    assert owners.root("ml", JOB_SET) == TRAIN_JOB
    assert api.paths == [PATHS[JOB], PATHS[JOB_SET], PATHS[TRAIN_JOB]]


def test_owner_that_does_not_reconcile_is_not_followed() -> None:
    owners, _ = finder({**CHAIN, PATHS[JOB_SET]: owned(JOB_SET, TRAIN_JOB, controller=False)})

    assert owners.root("ml", JOB) == JOB_SET


def test_kind_that_is_not_known_is_a_root_and_is_not_asked_for() -> None:
    owners, api = finder({})
    unknown = [
        OwnerReference("example.com/v1", "Job", "a", "1"),
        OwnerReference("v1", "Node", "a", "2"),
        OwnerReference("batch/v1", "job", "a", "3"),
    ]

    assert [owners.root("ml", one) for one in unknown] == unknown
    assert api.paths == []


@pytest.mark.parametrize(
    "schedule",
    [
        OwnerReference("batch/v1", "CronJob", "nightly", "9"),
        OwnerReference("apps.kubedl.io/v1alpha1", "Cron", "nightly", "9"),
        OwnerReference("ray.io/v1", "RayCronJob", "nightly", "9"),
    ],
    ids=lambda one: one.kind,
)
def test_schedule_is_no_root(schedule: OwnerReference) -> None:
    """It outlives the job, and all that belongs to the job would stay with it."""
    owners, _ = finder({PATHS[JOB]: owned(JOB, schedule)})

    assert owners.root("ml", JOB) == JOB


@pytest.mark.parametrize(
    "answer",
    [404, owned(OwnerReference("", "", "mnist", "another"), TRAIN_JOB), 403],
    ids=["absent", "another of its name", "forbidden"],
)
def test_owner_that_cannot_be_seen_is_the_root_and_is_asked_for_once(answer: Any) -> None:
    owners, api = finder({**CHAIN, PATHS[JOB_SET]: answer})

    assert [owners.root("ml", JOB) for _ in range(2)] == [JOB_SET] * 2
    assert api.paths == [PATHS[JOB], PATHS[JOB_SET]]


def test_missing_right_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    owners, _ = finder({PATHS[JOB]: 403})
    owners.root("ml", JOB)

    assert "lacks the right 'get' on jobs/mnist-node-0 in namespace ml" in caplog.text
    assert "it is taken for the job's root" in caplog.text


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_api_server_that_does_not_answer_is_asked_again(status: int) -> None:
    owners, api = finder({**CHAIN, PATHS[JOB_SET]: status})

    with pytest.raises(RequestFailed, match="cannot get jobsets/mnist in namespace ml"):
        owners.root("ml", JOB)
    api.objects = dict(CHAIN)
    assert owners.root("ml", JOB) == TRAIN_JOB


def test_cycle_of_owners_ends() -> None:
    owners, api = finder({PATHS[JOB]: owned(JOB, JOB_SET), PATHS[JOB_SET]: owned(JOB_SET, JOB)})

    assert owners.root("ml", JOB) in (JOB, JOB_SET)
    assert len(api.paths) == 2


def test_object_that_owns_itself_is_its_root() -> None:
    owners, _ = finder({PATHS[JOB]: owned(JOB, JOB)})

    assert owners.root("ml", JOB) == JOB


@pytest.mark.parametrize(
    "owner",
    [
        OwnerReference("batch/v1", "Job", "../secrets/tls", "1"),
        OwnerReference("batch/v1", "Job", "a?b", "1"),
        OwnerReference("batch/v1", "Job", "", "1"),
        OwnerReference("batch/v1?x=", "Job", "a", "1"),
        OwnerReference("batch/v1#", "Job", "a", "1"),
        OwnerReference("batch/..", "Job", "a", "1"),
        OwnerReference("batch/", "Job", "a", "1"),
        OwnerReference("batch/v1\r\nX: y", "Job", "a", "1"),
        OwnerReference("/", "Job", "a", "1"),
        OwnerReference("", "", "", ""),
    ],
    ids=repr,
)
def test_reference_that_anyone_may_write_asks_for_nothing_else(owner: OwnerReference) -> None:
    """The API server accepts any text as the version and the name of an owner."""
    owners, api = finder({})

    assert owners.root("ml", owner) == owner
    assert api.paths == []


@pytest.mark.parametrize(
    "forged",
    [
        OwnerReference("batch/v1", "Job", "no-such-job", JOB.uid),
        OwnerReference("batch/v1", "Job", JOB.name, JOB.uid),
        OwnerReference("apps/v1", "StatefulSet", JOB.name, JOB.uid),
    ],
    ids=["another name", "the same name", "another kind"],
)
def test_pod_that_names_another_namespaces_uid_changes_no_root_there(forged: OwnerReference) -> None:
    owners, _ = finder(CHAIN)

    assert owners.root("attacker", forged) == forged
    assert owners.root("ml", JOB) == TRAIN_JOB


def test_pod_that_names_another_namespaces_uid_is_not_told_its_root() -> None:
    owners, _ = finder(CHAIN)

    assert owners.root("ml", JOB) == TRAIN_JOB
    assert owners.root("attacker", JOB) == JOB


def test_pod_that_names_another_objects_uid_changes_no_root_in_its_own_namespace() -> None:
    owners, _ = finder(CHAIN)
    forged = OwnerReference("batch/v1", "Job", "no-such-job", JOB.uid)

    assert owners.root("ml", forged) == forged
    assert owners.root("ml", JOB) == TRAIN_JOB


def test_object_of_the_same_name_and_another_uid_gives_a_job_no_age() -> None:
    """The oldest of two jobs of one name has the names on net1, so a pod that names an old object must not be as old."""
    created = {"metadata": {"name": JOB.name, "uid": JOB.uid, "creationTimestamp": "2020-01-01T00:00:00Z"}}
    owners, _ = finder({PATHS[JOB]: created})

    assert owners.created("ml", JOB) == "2020-01-01T00:00:00Z"
    assert owners.created("ml", OwnerReference("batch/v1", "Job", JOB.name, "forged")) == ""


def test_reference_with_a_uid_that_no_object_has_is_not_asked_for() -> None:
    owners, api = finder(CHAIN)
    long = OwnerReference("batch/v1", "Job", JOB.name, "3" * 1_000_000)

    assert owners.root("ml", long) == long
    assert (api.paths, owners._above) == ([], {})


def test_namespace_with_many_owners_costs_no_other_namespace_what_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owners_module, "_REMEMBERED", 10)
    owners, api = finder(CHAIN)
    owners.root("ml", JOB)
    for number in range(100):
        owners.root("attacker", OwnerReference("batch/v1", "Job", f"j{number}", str(number)))
    asked = len(api.paths)

    assert sum(map(len, owners._above.values())) == 10
    assert owners.root("ml", JOB) == TRAIN_JOB
    assert len(api.paths) == asked


# `spec.group`, `spec.names.kind` and `spec.names.plural` of each CustomResourceDefinition, by its file.
DEFINED = {
    # kubeflow/training-operator 1.9, manifests/base/crds
    ("kubeflow.org", "TFJob"): "tfjobs",
    ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
    ("kubeflow.org", "MPIJob"): "mpijobs",
    ("kubeflow.org", "XGBoostJob"): "xgboostjobs",
    ("kubeflow.org", "PaddleJob"): "paddlejobs",
    ("kubeflow.org", "JAXJob"): "jaxjobs",
    # kubeflow/trainer, manifests/base/crds
    ("trainer.kubeflow.org", "TrainJob"): "trainjobs",
    # kubedl-io/kubedl, config/crd/bases
    ("training.kubedl.io", "TFJob"): "tfjobs",
    ("training.kubedl.io", "PyTorchJob"): "pytorchjobs",
    ("training.kubedl.io", "MPIJob"): "mpijobs",
    ("training.kubedl.io", "XGBoostJob"): "xgboostjobs",
    ("training.kubedl.io", "XDLJob"): "xdljobs",
    ("training.kubedl.io", "MarsJob"): "marsjobs",
    ("training.kubedl.io", "ElasticDLJob"): "elasticdljobs",
    # kubernetes-sigs/jobset, config/components/crd/bases; kubernetes-sigs/lws, config/crd/bases
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkersets",
    # volcano-sh/volcano, config/crd/volcano/bases
    ("batch.volcano.sh", "Job"): "jobs",
    # ray-project/kuberay, ray-operator/config/crd/bases
    ("ray.io", "RayCluster"): "rayclusters",
    ("ray.io", "RayJob"): "rayjobs",
    ("ray.io", "RayService"): "rayservices",
    # kubernetes/api
    ("batch", "Job"): "jobs",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "Deployment"): "deployments",
    ("apps", "StatefulSet"): "statefulsets",
}


def test_resources_are_those_of_the_operators_definitions() -> None:
    assert owners_module._RESOURCES == DEFINED

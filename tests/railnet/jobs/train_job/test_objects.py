"""The objects of a job, field by field as the templates of TensorFlow on Kubernetes have them."""

import json
from typing import Any

import pytest

from railnet.errors import Misconfigured
from railnet.jobs.gang.recogniser import gang_request
from railnet.jobs.gang.request import Constraint, GangRequest
from railnet.jobs.net1_names import task_service
from railnet.jobs.recogniser import recognise
from railnet.jobs.train_job.objects import objects, owned, owner
from railnet.jobs.train_job.train_job import TrainingJob
from railnet.objects import pod as pod_module
from tests.railnet.train.jobs import job, pods

PS_HOSTS = "mnist-ps-0.mnist.svc:2222,mnist-ps-1.mnist.svc:2222"
WORKER_HOSTS = "mnist-worker-0.mnist.svc:2222,mnist-worker-1.mnist.svc:2222,mnist-worker-2.mnist.svc:2222"
PLAIN: dict[str, Any] = {"rails": 0, "gpus": None, "priority": None, "volumes": None, "cpu": None, "memory": None}


def by_name(of: TrainingJob) -> dict[tuple[str, str], dict[str, Any]]:
    return {(made["kind"], made["metadata"]["name"]): made for made in objects(of)}


def container(of: TrainingJob, kind: str, name: str) -> dict[str, Any]:
    (found,) = by_name(of)[kind, name]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_parameter_server_is_the_templates_deployment() -> None:
    labels = {"name": "mnist", "job": "ps", "task": "1"}
    ours = {**labels, "railnet.io/train": "mnist"}
    tf_config = {
        "cluster": {"ps": PS_HOSTS.split(","), "worker": WORKER_HOSTS.split(",")},
        "task": {"type": "ps", "index": 1},
        "environment": "cloud",
    }

    assert by_name(job(**PLAIN, imagePullSecrets="[harborsecret]"))["Deployment", "mnist-ps-1"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "mnist-ps-1", "namespace": "mnist", "labels": ours},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": ours},
                "spec": {
                    "restartPolicy": "Always",
                    "imagePullSecrets": [{"name": "harborsecret"}],
                    "containers": [
                        {
                            "name": "mnist-ps-1",
                            "image": "registry.example/train:1",
                            "command": ["python", "/train.py"],
                            "args": [PS_HOSTS, WORKER_HOSTS, "ps", "1", "2", "3"],
                            "env": [{"name": "TF_CONFIG", "value": json.dumps(tf_config, separators=(",", ":"))}],
                            "ports": [{"name": "tf", "containerPort": 2222}],
                            "resources": {
                                "requests": {"cpu": "500m", "memory": "4Gi"},
                                "limits": {"memory": "4Gi"},
                            },
                        }
                    ],
                },
            },
        },
    }


def test_worker_is_the_templates_job_that_restarts_on_failure() -> None:
    made = by_name(job(**PLAIN))["Job", "mnist-worker-2"]

    assert (made["apiVersion"], made["spec"].keys()) == ("batch/v1", {"template"})
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert made["spec"]["template"]["metadata"]["labels"] == {
        "name": "mnist",
        "job": "worker",
        "task": "2",
        "railnet.io/train": "mnist",
    }
    found = container(job(**PLAIN), "Job", "mnist-worker-2")
    assert found["args"] == [PS_HOSTS, WORKER_HOSTS, "worker", "2", "2", "3"]


def test_each_task_has_a_headless_service_of_its_name() -> None:
    assert by_name(job(**PLAIN))["Service", "mnist-worker-0"] == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "mnist-worker-0",
            "namespace": "mnist",
            "labels": {"name": "mnist", "job": "worker", "task": "0", "railnet.io/train": "mnist"},
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"name": "mnist", "job": "worker", "task": "0"},
            "ports": [{"name": "tf", "port": 2222, "targetPort": 2222}],
        },
    }


def test_names_come_before_parameter_servers_and_those_before_workers() -> None:
    kinds = [made["kind"] for made in objects(job(rendezvous="eth0"))]

    assert kinds == ["Service"] * 5 + ["Deployment"] * 2 + ["Job"] * 3


def test_with_rails_the_names_are_left_to_the_controllers_and_the_pods_ask_for_a_rail() -> None:
    """The controllers make a Service of the task's name with its address on net1, and do not touch one that exists."""
    assert {made["kind"] for made in objects(job())} == {"Deployment", "Job"}
    template = by_name(job(rails=2))["Deployment", "mnist-ps-0"]["spec"]["template"]
    (found,) = template["spec"]["containers"]

    assert template["metadata"]["labels"]["railnet.io/net1"] == "true"
    assert template["metadata"]["annotations"] == {"railnet.io/vf": "2", "railnet.io/names": "task"}
    assert found["args"][0] == PS_HOSTS
    assert json.loads(found["env"][-1]["value"])["cluster"]["ps"] == found["args"][0].split(",")


def test_rails_with_names_on_eth0() -> None:
    template = by_name(job(rendezvous="eth0"))["Job", "mnist-worker-0"]["spec"]["template"]

    assert template["metadata"]["annotations"] == {"railnet.io/vf": "1"}
    assert template["spec"]["containers"][0]["args"][0] == PS_HOSTS


def test_only_workers_get_gpus_and_every_task_its_volumes_and_priority() -> None:
    ps, worker = (
        by_name(job())[key]["spec"]["template"]["spec"]
        for key in (("Deployment", "mnist-ps-0"), ("Job", "mnist-worker-0"))
    )

    assert "nvidia.com/gpu" not in ps["containers"][0]["resources"]["limits"]
    assert worker["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "4Gi", "nvidia.com/gpu": "1"},
    }
    for spec in (ps, worker):
        assert spec["priorityClassName"] == "iteration"
        assert spec["volumes"] == [{"name": "claim-0", "persistentVolumeClaim": {"claimName": "checkpoints"}}]
        assert spec["containers"][0]["volumeMounts"] == [{"name": "claim-0", "mountPath": "/checkpoints"}]


def test_script_gets_the_same_arguments_as_a_command() -> None:
    found = container(job(command=None, script="echo $3 $4"), "Job", "mnist-worker-1")

    assert found["command"] == ["/bin/sh", "-c", "echo $3 $4", "mnist-worker-1"]
    assert found["args"][2:4] == ["worker", "1"]


def test_more_of_the_file_is_in_the_objects() -> None:
    one = job(env="{LEVEL: 'debug'}", port=5000, retries=0, namespace="ml", gpuResource="amd.com/gpu", command=None)
    made = by_name(one)["Job", "mnist-worker-0"]
    (found,) = made["spec"]["template"]["spec"]["containers"]

    assert (made["metadata"]["namespace"], made["spec"]["backoffLimit"]) == ("ml", 0)
    assert found["env"][0] == {"name": "LEVEL", "value": "debug"}
    assert found["ports"] == [{"name": "tf", "containerPort": 5000}]
    assert found["resources"]["limits"]["amd.com/gpu"] == "1"
    assert found["args"][0].endswith("mnist-ps-1.ml.svc:5000")
    assert "command" not in found


def test_annotations_are_those_of_all_pods_and_of_the_owner() -> None:
    one = job(annotations="{railnet.io/ps-cleanup: 'false'}", rails=0)

    assert owner(one, "")["metadata"]["annotations"] == {"railnet.io/ps-cleanup": "false"}
    for pod in pods(one, {}):
        assert pod["metadata"]["annotations"] == {"railnet.io/ps-cleanup": "false"}


def test_name_of_a_task_is_the_one_that_the_controllers_make() -> None:
    for pod in pods(job(), {}):
        member = recognise(pod_module.parse(pod), lambda _: False)
        assert member is not None
        made = task_service(member.job, member.role, member.rank)
        assert f"{made}.mnist.svc:2222" in ",".join(pod["spec"]["containers"][0]["args"][:2])


@pytest.mark.parametrize(("role", "index"), [("ps", 0), ("worker", 2)])
def test_recogniser_knows_the_pods_by_the_templates_row(role: str, index: int) -> None:
    found = next(one for one in pods(job(), {}) if one["metadata"]["name"] == f"mnist-{role}-{index}-x")
    member = recognise(pod_module.parse(found), lambda _: False)

    assert member is not None
    assert (member.operator.page, member.job, member.role, member.rank) == (
        "tensorflow-templates",
        "mnist",
        role,
        (index,),
    )


def test_owner_has_the_file_and_all_others_belong_to_it() -> None:
    assert owner(job(), "text") == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mnist", "namespace": "mnist", "labels": {"railnet.io/train": "mnist"}},
        "data": {"job.yaml": "text"},
    }
    for made in objects(job()):
        assert owned(made, "a-uid")["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "mnist", "uid": "a-uid", "controller": True}
        ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"script": "echo"}, "command and script exclude each other"),
        ({"rails": 0, "rendezvous": "net1"}, "rendezvous is net1, and rails is 0"),
        ({"name": "a" * 60}, "so a task's name has 69 characters; it may have 63"),
        ({"workers": 5000}, "and Linux starts no program with a variable of more than 131072"),
        ({"command": None, "script": "x" * 200_000}, "script has more than 131071 bytes"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        job(**changes)


def test_thousand_workers_fit() -> None:
    assert sum(1 for _ in objects(job(workers=1000, ps=10))) == 1010


def requests(of: TrainingJob) -> list[GangRequest | None]:
    return [gang_request(pod_module.parse({"kind": "Pod", **pod})) for pod in pods(of, {})]


def test_all_tasks_of_a_gang_start_together() -> None:
    assert requests(job(gang="true")) == [GangRequest("mnist", 5)] * 5
    assert requests(job()) == [None] * 5


def test_topology_makes_the_tasks_a_gang_in_one_domain() -> None:
    one = GangRequest("mnist", 5, Constraint(required=("railnet.io/leaf",)))

    assert (
        requests(job(topology="railnet.io/leaf")) == requests(job(topology="railnet.io/leaf", gang="true")) == [one] * 5
    )


def test_constraint_of_a_gang_may_be_an_annotation_of_the_file() -> None:
    text = '{alibabacloud.com/topology-aware-constraint: \'{"preferred":{"topologies":[{"key":"zone"}]}}\'}'

    (first, *others) = requests(job(gang="true", annotations=text))

    assert first == GangRequest("mnist", 5, Constraint(preferred=("zone",)))
    assert others == [first] * 4

"""The objects of a PyTorch job: what torchrun and a process without it need to find each other, and what a pod may ask for besides."""

from typing import Any

import pytest

from railnet.jobs.gang.recogniser import gang_request
from railnet.jobs.recogniser import recognise
from railnet.jobs.train_job.objects import objects
from railnet.jobs.train_job.train_job import TrainingJob
from railnet.objects import pod as pod_module
from railnet.train.job_file import job_of
from tests.railnet.train.jobs import pods

MINIMAL = "kind: pytorch\nname: resnet\nimage: a\nworkers: 4\ncommand: [torchrun, /train.py]\n"
HOST = "resnet-worker-0.resnet.svc"


def job(more: str = "") -> TrainingJob:
    return job_of(MINIMAL + more, "job.yaml")


def made(more: str = "", kind: str = "Job") -> list[dict[str, Any]]:
    return [one for one in objects(job(more)) if one["kind"] == kind]


def pod_spec(more: str = "", index: int = 0) -> dict[str, Any]:
    spec: dict[str, Any] = made(more)[index]["spec"]["template"]["spec"]
    return spec


def env(more: str = "", index: int = 0) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in pod_spec(more, index)["containers"][0]["env"]}


def test_each_worker_is_a_job_of_one_pod_that_gets_the_command_and_nothing_more() -> None:
    workers = made()

    assert [worker["metadata"]["name"] for worker in workers] == [f"resnet-worker-{index}" for index in range(4)]
    (container,) = pod_spec()["containers"]
    assert (container["command"], "args" in container) == (["torchrun", "/train.py"], False)
    assert container["ports"] == [{"name": "torch", "containerPort": 29500}]


def test_worker_has_the_host_name_of_its_service_for_versions_of_torchrun_without_an_address() -> None:
    assert [pod_spec("", index)["hostname"] for index in range(4)] == [f"resnet-worker-{index}" for index in range(4)]


def test_torchrun_gets_its_options_as_variables() -> None:
    found = env("gpus: 8\n", 2)

    assert (
        found.items()
        >= {
            "PET_NNODES": "4",
            "PET_NPROC_PER_NODE": "8",
            "PET_NODE_RANK": "2",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{HOST}:29500",
            "PET_RDZV_ID": "resnet",
            "PET_LOCAL_ADDR": "resnet-worker-2.resnet.svc",
            "MASTER_ADDR": HOST,
            "MASTER_PORT": "29500",
            "WORLD_SIZE": "32",
        }.items()
    )
    assert found.keys().isdisjoint({"RANK", "LOCAL_RANK", "TF_CONFIG"})  # each of eight processes has its own


def test_worker_0_is_where_all_meet() -> None:
    assert [env("", index)["PET_RDZV_CONF"] for index in range(4)] == [
        "is_host=1",
        "is_host=0",
        "is_host=0",
        "is_host=0",
    ]


@pytest.mark.parametrize("more", ["", "gpus: 1\n", "gpus: 8\nprocesses: 1\n"])
def test_worker_of_one_process_has_a_rank(more: str) -> None:
    for index in range(4):
        found = env(more, index)
        assert (found["RANK"], found["LOCAL_RANK"], found["WORLD_SIZE"]) == (str(index), "0", "4")


@pytest.mark.parametrize(
    ("retries", "expected"), [("", "3"), ("retries: 0\n", "0"), ("retries: 2\n", "2"), ("retries: 9\n", "3")]
)
def test_torchrun_starts_processes_again_as_often_as_the_file_permits(retries: str, expected: str) -> None:
    assert env(retries)["PET_MAX_RESTARTS"] == expected


def test_variables_of_the_file_have_precedence() -> None:
    found = env("env: {PET_RDZV_BACKEND: static, NCCL_DEBUG: INFO}\nport: 1234\nnamespace: ml\n", 1)

    assert (found["PET_RDZV_BACKEND"], found["NCCL_DEBUG"]) == ("static", "INFO")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("resnet-worker-0.ml.svc", "1234")


def test_names_are_on_net1_with_rails_and_services_without() -> None:
    template = made()[0]["spec"]["template"]["metadata"]

    assert template["annotations"] == {"railnet.io/vf": "1", "railnet.io/names": "task", "railnet.io/size": "4"}
    assert template["labels"]["railnet.io/net1"] == "true"
    assert made("", "Service") == []
    for more in ("rails: 0\n", "rendezvous: eth0\n"):
        services = made(more, "Service")
        assert [one["metadata"]["name"] for one in services] == [f"resnet-worker-{index}" for index in range(4)]
        assert {one["spec"]["clusterIP"] for one in services} == {"None"}
        assert services[0]["spec"]["ports"] == [{"name": "torch", "port": 29500, "targetPort": 29500}]


def test_worker_of_eight_gpus_gets_all_rails_of_its_node_unless_the_file_says_otherwise() -> None:
    annotations = [
        made(more)[0]["spec"]["template"]["metadata"]["annotations"] for more in ("gpus: 8\n", "gpus: 8\nrails: 2\n")
    ]

    assert [one["railnet.io/vf"] for one in annotations] == ["auto", "2"]
    assert "railnet.io/vf" not in made("gpus: 8\nrails: 0\n")[0]["spec"]["template"]["metadata"]["annotations"]


def test_shared_memory_is_as_much_as_memory_unless_the_file_says_otherwise() -> None:
    def size(more: str) -> str | None:
        spec = pod_spec(more)
        if "volumes" not in spec:
            return None
        (volume,), (mount,) = spec["volumes"], spec["containers"][0]["volumeMounts"]
        assert (mount["name"], mount["mountPath"], volume["emptyDir"]["medium"]) == (
            volume["name"],
            "/dev/shm",
            "Memory",
        )
        return str(volume["emptyDir"]["sizeLimit"])

    assert [size(more) for more in ("", "memory: 8Gi\n", "sharedMemory: 1Gi\n", "sharedMemory: none\n")] == [
        "4Gi",
        "8Gi",
        "1Gi",
        None,
    ]


def test_placement_and_volumes_are_as_kubernetes_has_them() -> None:
    spec = pod_spec(
        "nodeSelector: {gpu: h100}\n"
        "tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]\n"
        "affinity: {podAntiAffinity: {x: []}}\n"
        "imagePullSecrets: [registry]\n"
        "priority: production\n"
        "sharedMemory: none\n"
        "volumes:\n  data: /data\n  local: {mountPath: /local, readOnly: true, hostPath: {path: /mnt}}\n"
    )

    assert spec["nodeSelector"] == {"gpu": "h100"}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert spec["affinity"] == {"podAntiAffinity": {"x": []}}
    assert (spec["imagePullSecrets"], spec["priorityClassName"]) == ([{"name": "registry"}], "production")
    assert spec["volumes"] == [
        {"name": "claim-0", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "local", "hostPath": {"path": "/mnt"}},
    ]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "claim-0", "mountPath": "/data"},
        {"name": "local", "mountPath": "/local", "readOnly": True},
    ]


def test_restart_and_retries_are_the_jobs() -> None:
    assert (pod_spec()["restartPolicy"], "backoffLimit" in made()[0]["spec"]) == ("OnFailure", False)
    again = made("restart: Never\nretries: 2\n")[0]["spec"]
    assert (again["template"]["spec"]["restartPolicy"], again["backoffLimit"]) == ("Never", 2)


def test_script_has_no_arguments() -> None:
    text = MINIMAL.replace("command: [torchrun, /train.py]", "script: torchrun /train.py")
    (container, *_) = [
        one["spec"]["template"]["spec"]["containers"][0]
        for one in objects(job_of(text, "job.yaml"))
        if one["kind"] == "Job"
    ]

    assert (container["command"], "args" in container) == (
        ["/bin/sh", "-c", "torchrun /train.py", "resnet-worker-0"],
        False,
    )


def test_pods_are_recognised_with_rank_and_size_and_are_one_gang() -> None:
    for index, document in enumerate(pods(job("topology: railnet.io/leaf\n"), {})):
        pod = pod_module.parse(document)
        member = recognise(pod)
        assert member is not None
        assert (str(member), member.size) == (f"worker {index} of resnet", 4)
        request = gang_request(pod)
        assert request is not None
        assert request.min_available == 4

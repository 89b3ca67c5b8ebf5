"""The manifests of `docs/training/platform/` fit each other, and only the pods that train get a rail."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.rendered import as_written
from tests.railnet.jobs.platform import FOLDER, NAMESPACES, PODS, WorkloadPod, documents, explained

ROOT = FOLDER.parents[2]
TRAINING = {"nightly"}
UNTOUCHED = "its labels match no training operator that Railnet knows"
EACH = pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod.workload)
CLASSES = {one["metadata"]["name"] for one in as_written("training-priorityclasses.yaml")}


def explain(folder: Path, pod: WorkloadPod) -> list[str]:
    """Return what `railnet admission explain -f FILE` prints about a pod and its namespace."""
    (folder / "pods.yaml").write_text(yaml.safe_dump_all([*NAMESPACES, pod.manifest]))
    (folder / "node.yaml").write_text("admission: {priorityClass: iteration}\n")
    command = [sys.executable, "-m", "railnet", "admission", "explain", "-f", "pods.yaml", "--config", "node.yaml"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.slow
@EACH
def test_only_training_pods_get_a_rail(tmp_path: Path, pod: WorkloadPod):
    lines = explain(tmp_path, pod)

    if pod.workload in TRAINING:
        container = pod.manifest["spec"]["containers"][0]["name"]
        assert f"  done:      added 1 rdma/ib_vf to container {container}" in lines
        assert any(line.startswith("  done:      set NCCL_SOCKET_IFNAME, ") for line in lines)
        assert "  kept:      kept its PriorityClass production" in lines
    else:
        assert lines[1:] == [f"  rails:     nothing is added: {UNTOUCHED}"]


def test_scheduled_training_gets_the_configured_class_without_its_own(tmp_path: Path):
    (nightly,) = (pod for pod in PODS if pod.workload == "nightly")
    spec = {key: value for key, value in nightly.manifest["spec"].items() if key != "priorityClassName"}
    pod = WorkloadPod(nightly.file, nightly.kind, nightly.workload, nightly.manifest | {"spec": spec})

    assert "  done:      set the PriorityClass iteration" in explain(tmp_path, pod)


def test_table_of_the_page_says_what_explain_says():
    assert {explained(pod) for pod in PODS if pod.workload not in TRAINING} == {UNTOUCHED}


def names(kind: str, namespace: str) -> set[str]:
    return {
        document["metadata"]["name"]
        for _, document in documents()
        if (document["kind"], document["metadata"].get("namespace")) == (kind, namespace)
    }


@pytest.mark.slow
@EACH
def test_pods_name_objects_that_the_files_have(pod: WorkloadPod):
    spec, namespace = pod.manifest["spec"], pod.manifest["metadata"]["namespace"]
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}

    claims = {
        volume["persistentVolumeClaim"]["claimName"] for volume in volumes.values() if "persistentVolumeClaim" in volume
    }
    maps = {volume["configMap"]["name"] for volume in volumes.values() if "configMap" in volume}
    assert claims <= names("PersistentVolumeClaim", namespace)
    assert maps <= names("ConfigMap", namespace)
    assert {spec.get("serviceAccountName", "default")} <= names("ServiceAccount", namespace) | {"default"}
    assert spec.get("priorityClassName") in {*CLASSES, None}
    for container in spec["containers"]:
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes.keys()
        assert re.search(r":v?\d+\.\d+", container["image"]), "an image has a version"
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}


@pytest.mark.parametrize(
    "service",
    [document for _, document in documents() if document["kind"] == "Service"],
    ids=lambda service: service["metadata"]["name"],
)
def test_service_selects_pods_that_have_its_ports(service: dict[str, Any]):
    selector = service["spec"]["selector"].items()
    chosen = [
        pod
        for pod in PODS
        if pod.manifest["metadata"]["namespace"] == service["metadata"]["namespace"]
        and selector <= pod.manifest["metadata"]["labels"].items()
    ]
    assert {pod.workload for pod in chosen} == {service["metadata"]["name"]}
    (pod,) = chosen
    assert pod.manifest["spec"].get("subdomain") in (None, service["metadata"]["name"])
    ports = {port["name"] for container in pod.manifest["spec"]["containers"] for port in container.get("ports", ())}
    assert {port["targetPort"] for port in service["spec"].get("ports", ())} <= ports


def workloads() -> Iterator[dict[str, Any]]:
    return (document for _, document in documents() if document["kind"] in ("Deployment", "DaemonSet"))


@pytest.mark.parametrize("workload", list(workloads()), ids=lambda one: one["metadata"]["name"])
def test_workload_selects_its_own_pods(workload: dict[str, Any]):
    spec = workload["spec"]

    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_every_object_is_in_a_namespace_of_the_files_or_in_railnets():
    known = {namespace["metadata"]["name"] for namespace in NAMESPACES} | {"railnet"}
    cluster_wide = {"Namespace", "ClusterRole", "ClusterRoleBinding"}

    found = {(file, document["kind"], document["metadata"].get("namespace")) for file, document in documents()}

    assert [one for one in found if one[1] not in cluster_wide and one[2] not in known] == []


def test_page_names_every_file():
    page = (ROOT / "docs/training/platform.md").read_text()

    assert [path.name for path in FOLDER.glob("*.yaml") if f"platform/{path.name}" not in page] == []


def test_commands_of_the_page_apply_files_that_exist():
    page = (ROOT / "docs/training/platform.md").read_text()
    applied = re.findall(r"kubectl apply -f (docs/\S+)", page)

    assert applied
    assert [path for path in applied if not (ROOT / path).exists()] == []

"""The pods of `docs/training/platform/`: each as its controller makes it, and what a review does to it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from railnet.admission import offline
from railnet.admission.review_configuration import Policy

FOLDER = Path(__file__).resolve().parents[3] / "docs/training/platform"
POLICY = Policy(priority_class="iteration")
_UID = "6f1c1c2e-0b0a-4a53-9c0c-6d5b1c7f2a11"
JsonObject = dict[str, Any]


@dataclass(frozen=True)
class WorkloadPod:
    """A pod of a workload; `file`, `kind` and `workload` say where the workload is."""

    file: str
    kind: str
    workload: str
    manifest: JsonObject


def documents() -> Iterator[tuple[str, JsonObject]]:
    """Yield each document with the name of its file."""
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.load_all(path.read_text(), yaml.CSafeLoader):
            yield path.name, document


def _pods() -> Iterator[WorkloadPod]:
    for file, document in documents():
        kind, name = document["kind"], document["metadata"]["name"]
        if kind in _MADE:
            spec = document["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else document["spec"]
            yield WorkloadPod(file, kind, name, _pod(document, spec))


def _pod(document: JsonObject, spec: JsonObject) -> JsonObject:
    """Return a pod with what its controller adds: k8s.io/kubernetes/pkg/controller/{deployment,daemon,job,cronjob}."""
    owner, suffix = _MADE[document["kind"]]
    name = document["metadata"]["name"]
    owned_by = f"{name}{'-29389080' if document['kind'] == 'CronJob' else suffix}"
    template = spec["template"]
    labels = dict(template.get("metadata", {}).get("labels", {}))
    if owner == "Job":
        labels |= {"job-name": owned_by, "batch.kubernetes.io/job-name": owned_by, "controller-uid": _UID}
    if spec.get("completionMode") == "Indexed":
        labels["batch.kubernetes.io/job-completion-index"] = "0"
    metadata = {
        "name": f"{owned_by}-0",
        "namespace": document["metadata"]["namespace"],
        "labels": labels,
        "ownerReferences": [{"kind": owner, "name": owned_by, "uid": _UID, "controller": True}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


# The kind of the pods' owner, and how the owner's name ends.
_MADE = {
    "Deployment": ("ReplicaSet", "-5d8c7b9f4"),
    "DaemonSet": ("DaemonSet", ""),
    "Job": ("Job", ""),
    "CronJob": ("Job", ""),
}
NAMESPACES = [document for _, document in documents() if document["kind"] == "Namespace"]
PODS = tuple(_pods())


def explained(pod: WorkloadPod) -> str:
    """Return what a review does to a pod, in one line of a table."""
    (found,) = offline.explain([*NAMESPACES, pod.manifest], POLICY)
    assert found.allowed, found.lines
    clauses = [
        re.sub(r"^\s*(done|kept|rails):\s+(nothing is added: )?", "", line)
        for line in found.lines
        if re.match(r"\s*(done|kept|rails):", line)
    ]
    return "; ".join(re.sub(r"set (\w+(?:, \w+)+) in", _counted, clause) for clause in clauses)


def _counted(names: re.Match[str]) -> str:
    return f"set {names[1].count(',') + 1} variables in"

"""A TFJob on the node, with the stand-in for its operator: what `tests.stand_ins.tfjob_operator` decides is done here."""

import copy
import random
import subprocess
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.cluster.kubectl import Kubectl
from tests.cluster.process import wait_until
from tests.cluster.railnet_on_node import IMAGE
from tests.stand_ins import tfjob_operator, toy_trainer
from tests.stand_ins.tfjob_operator import HOST_PORTS, KIND, KUBEFLOW, Changes, Operator

ARTICLE = Path(tfjob_operator.__file__).with_name("article_tfjob.yaml")
_EVERY_SECONDS = 0.3
_SERVED_SECONDS = 120.0
# KubeDL draws a random port and does not look which are in use; here no job's pod waits for another's port.
_PORTS = iter(random.sample(HOST_PORTS, len(HOST_PORTS)))
# `kubectl apply` looks first and then creates: of two at once, the second one fails with AlreadyExists.
_DEFINING = threading.Lock()
_REFUSED = "admission webhook"  # what the API server says of a review that refuses, and of one that does not answer


def articles_job(folder: Path, *options: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the article's TFJob for this node: the toy trainer in place of TensorFlow, no requests, checkpoints in `folder`.

    All else is the article's. The image is Railnet's own, which is on the node anyway and has Python.
    """
    job: dict[str, Any] = copy.deepcopy(yaml.safe_load(ARTICLE.read_text()))
    job["metadata"]["annotations"] = dict(annotations or {})
    program = Path(toy_trainer.__file__).read_text()
    for role in job["spec"]["tfReplicaSpecs"].values():
        role["template"] = copy.deepcopy(role["template"])  # both roles have one, by an alias
        spec = role["template"]["spec"]
        (container,), (volume,) = spec["containers"], spec["volumes"]
        (mount,) = container["volumeMounts"]
        container |= {
            "image": IMAGE,
            "command": ["python", "-c", program, f"--checkpoint={mount['mountPath']}", *options],
        }
        del container["resources"]
        volume["hostPath"]["path"] = str(folder)
        spec |= {"terminationGracePeriodSeconds": 5, "automountServiceAccountToken": False}
    return job


def kubeflows(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return KubeDL's TFJob as users of Kubeflow's operator write it: of another apiVersion, and with the annotations in the pod templates.

    That operator reads no annotation of the job, and gives the pods those of their template.
    """
    changed = copy.deepcopy(dict(job))
    changed["apiVersion"] = KUBEFLOW.api_version
    annotations = changed["metadata"].pop("annotations", {})
    for role in changed["spec"]["tfReplicaSpecs"].values():
        role["template"].setdefault("metadata", {})["annotations"] = annotations
    return changed


class TfJob:
    """A TFJob whose pods and Services are made and made again; a context manager, at whose end nothing of it is left.

    Attributes:
        name: of the job.
        namespace: is made with the job, and deleted with it.
        refusals: what the API server said when a webhook refused a pod or a Service; the operator tries again.
    """

    def __init__(self, kubectl: Kubectl, job: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> None:
        """Describe a job, in a namespace with these labels."""
        self._kubectl, self._job, self._labels = kubectl, job, dict(labels or {})
        self._operator = tfjob_operator.operator_of(job)
        self.name: str = job["metadata"]["name"]
        self.namespace: str = job["metadata"]["namespace"]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None
        self.refusals: list[str] = []

    def __enter__(self) -> Self:
        definition, namespace = _definition(self._operator), {"name": self.namespace, "labels": self._labels}
        with _DEFINING:
            self._kubectl.apply(definition)
        self._kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
        self._kubectl.run(
            "wait",
            f"crd/{definition['metadata']['name']}",
            "--for=condition=Established",
            f"--timeout={_SERVED_SECONDS:g}s",
        )
        # The API server refuses pods of a namespace without its service account, which a controller makes, and does not serve a kind at the moment
        # at which it is established.
        for about in ("serviceaccount/default", self._kind):
            command = ("get", about, f"--namespace={self.namespace}")
            wait_until(lambda one=command: self._kubectl.answers(*one), _SERVED_SECONDS, " ".join(command))
        self._kubectl.apply(dict(self._job))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Delete all of it.

        Raises:
            BaseException: what ended the controller before.
        """
        self._ending.set()
        self._thread.join()
        self._run_there("delete", self._kind, self.name, "--wait=false")
        self._run_there("delete", "pods,services", "--all", "--force", "--grace-period=0")
        self._kubectl.run("delete", "namespace", self.namespace)
        if self._error is not None and error is None:
            raise self._error

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the job's pods by name."""
        return {one["metadata"]["name"]: one for one in self._objects("pods")}

    def services(self) -> dict[str, dict[str, Any]]:
        """Return the job's Services by name."""
        return {one["metadata"]["name"]: one for one in self._objects("services")}

    def log(self, pod: str) -> str:
        """Return what a pod's container said; empty while there is no such pod, or it has no container yet."""
        try:
            return self._kubectl.run("logs", pod, f"--namespace={self.namespace}")
        except subprocess.CalledProcessError:
            return ""

    def _objects(self, kind: str) -> list[dict[str, Any]]:
        labels = ",".join(f"{key}={value}" for key, value in self._operator.labels(self.name).items())
        found: list[dict[str, Any]] = self._kubectl.get(kind, f"--namespace={self.namespace}", f"--selector={labels}")
        return found

    @property
    def _kind(self) -> str:
        return f"tfjobs.{self._operator.group}"

    def _run(self) -> None:
        try:
            while not self._ending.wait(_EVERY_SECONDS):
                job = self._kubectl.get(self._kind, self.name, f"--namespace={self.namespace}")
                self._do(
                    tfjob_operator.reconcile(job, self._objects("pods"), self._objects("services"), _PORTS.__next__)
                )
        except BaseException as error:  # noqa: BLE001 - it is raised at the end of the block
            self._error = error

    def _do(self, changes: Changes) -> None:
        if changes.created:
            self._create(changes.created)
        if changes.failed:
            # KubeDL waits until kubelet lets go of the pod; kubelet 1.20 does so ten seconds late.
            self._run_there("delete", "pods", *changes.failed, "--force", "--grace-period=0")
        for name, port in changes.target_ports.items():
            patch = f'[{{"op": "replace", "path": "/spec/ports/0/targetPort", "value": {port}}}]'
            self._run_there("patch", "service", name, "--type=json", f"--patch={patch}")

    def _create(self, objects: Iterable[Mapping[str, Any]]) -> None:
        try:
            self._kubectl.apply(*map(dict, objects))
        except subprocess.CalledProcessError as error:
            if _REFUSED not in error.stderr:
                raise
            self.refusals.append(error.stderr)

    def _run_there(self, *arguments: str) -> None:
        self._kubectl.run(*arguments, f"--namespace={self.namespace}")


def _definition(operator: Operator) -> dict[str, Any]:
    """Return of the operator's definition only what the API server and the garbage collector need."""
    version = {
        "name": operator.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"tfjobs.{operator.group}"},
        "spec": {
            "group": operator.group,
            "names": {"kind": KIND, "plural": "tfjobs", "singular": "tfjob"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }

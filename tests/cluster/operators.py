"""Operators of training jobs as their own manifests install them, each with an image of the program that scripts/build-cluster-programs builds.

Their pods are on the last node: what the first node has beside Railnet is pods' of tests.
"""

import contextlib
import itertools
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.cluster import busybox, images
from tests.cluster.ground import NODE
from tests.cluster.images import Image
from tests.cluster.kubectl import Kubectl
from tests.cluster.node import ClusterNode
from tests.cluster.process import wait_until
from tests.cluster.worker import Worker

_DEFINITION = "CustomResourceDefinition"
_SECONDS = 400.0
_LOOK_SECONDS = 5
_LOOKS = "railnet-tests/looks"
_NOBODY = 65532  # the user of the images that operators build on
_Object = dict[str, Any]


class Operator(NamedTuple):
    """What an operator is made of.

    Attributes:
        program: the name of its program, in PATH.
        path: where its published image has the program.
        manifests: files and folders of its module. A folder is one for kustomize, or one of files without a kustomization.
        namespace: of its pods.
        arguments: of the program, after those of the manifests.
        files: by path, the text of further files of its image.
        repairs: in the text of a file, what is replaced by what.
    """

    program: str
    path: str
    manifests: tuple[str, ...]
    namespace: str
    arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = {}
    repairs: Mapping[str, str] = {}

    @property
    def image(self) -> str:
        """The name of its image."""
        return f"docker.io/local/{self.program}:1"


# The kustomization of KubeDL 0.5.0 (config/default) has an image for its metrics that is not served any more; `all_in_one.yaml` is what its
# documents say to apply, and it is no YAML: one line of it is not as deep as its neighbour. It has the roles that 0.5.0 needs, but for the image.
KUBEDL = Operator(
    program="kubedl",
    path="manager",
    manifests=("config/crd/bases", "config/manager/all_in_one.yaml"),
    namespace="kubedl-system",
    # The coordinator of 0.5.0 ends with a nil pointer when a job leaves its queue, and the job stays Running for ever.
    arguments=("--feature-gates=JobCoordinator=false",),
    repairs={"     - containerrecreaterequests\n": "      - containerrecreaterequests\n"},
)
# Workers of a PyTorchJob wait in an init container for the name of their master. busybox's nslookup knows no search list; its ping does.
_INIT_CONTAINER = """\
- name: init-pytorch
  image: {{.InitContainerImage}}
  imagePullPolicy: Never
  resources: {limits: {cpu: 100m, memory: 20Mi}, requests: {cpu: 50m, memory: 10Mi}}
  command: [sh, -c, 'until ping -c 1 {{.MasterAddr}}; do sleep 0.2; done']
"""
TRAINING_OPERATOR = Operator(
    program="training-operator",
    path="manager",
    manifests=("manifests/overlays/standalone",),
    namespace="kubeflow",
    arguments=(
        f"--pytorch-init-container-image={busybox.NAME}",
        "--pytorch-init-container-template-file=/init-container.yaml",
    ),
    files={"init-container.yaml": _INIT_CONTAINER},
)
MPI_OPERATOR = Operator(
    program="mpi-operator",
    path="opt/mpi-operator",
    manifests=("manifests/overlays/standalone",),
    namespace="mpi-operator",
)
JOBSET = Operator(program="jobset", path="manager", manifests=("config/default",), namespace="jobset-system")


@contextlib.contextmanager
def installed(node: ClusterNode, operator: Operator, folder: Path) -> Iterator[None]:
    """Install an operator for the time of the block, at whose end no job of it may be there.

    Args:
        node: the cluster.
        operator: what is installed.
        folder: an empty one, for its image.
    """
    where = [NODE, *node.others][-1]
    _write_image(operator, folder)
    node.on(where, Worker.load, folder / "image.tar")
    objects = [_adapted(operator, where, thing) for thing in _objects(operator)]
    definitions = [thing for thing in objects if thing["kind"] == _DEFINITION]
    others = [thing for thing in objects if thing["kind"] != _DEFINITION]
    try:
        # KubeDL looks once which of its kinds there are.
        _apply(node.kubectl, definitions)
        _wait_until_served(node.kubectl, definitions)
        _apply(node.kubectl, others)
        _wait_until_ready(node.kubectl, operator, others)
        yield
    finally:
        node.kubectl.run("delete", "--ignore-not-found", "--filename=-", stdin=_list([*reversed(others), *definitions]))
        node.on(where, Worker.forget, operator.image)


def log(kubectl: Kubectl, operator: Operator) -> str:
    """Return what the pods of an operator have said."""
    pods = kubectl.get("pods", f"--namespace={operator.namespace}")
    return "".join(
        kubectl.run("logs", pod["metadata"]["name"], f"--namespace={operator.namespace}", "--tail=-1") for pod in pods
    )


def _write_image(operator: Operator, folder: Path) -> None:
    files = {operator.path: images.program(operator.program)}
    for name, text in operator.files.items():
        files[name] = folder / name
        files[name].write_text(text)
    Image(operator.image, files).write(folder / "image.tar")


def _objects(operator: Operator) -> list[_Object]:
    """Return what the manifests of a built program (scripts/build-cluster-programs) describe."""
    folder = images.program(operator.program).parent / "manifests"
    text = "\n---\n".join(_text(folder / name) for name in operator.manifests)
    for old, new in operator.repairs.items():
        text = text.replace(old, new)
    return [thing for thing in yaml.safe_load_all(text) if thing]


def _text(path: Path) -> str:
    if path.is_file():
        return path.read_text()
    if (path / "kustomization.yaml").exists():
        return subprocess.run(["kubectl", "kustomize", path], check=True, capture_output=True, text=True).stdout
    return "\n---\n".join(file.read_text() for file in sorted(path.glob("*.yaml")))


def _adapted(operator: Operator, where: str, thing: _Object) -> _Object:
    """Put the pods of an object on a node, with the image of the built program."""
    if thing["kind"] != "Deployment":
        return thing
    spec = thing["spec"]["template"]["spec"]
    spec |= {"nodeSelector": {"kubernetes.io/hostname": where}, "tolerations": [{"operator": "Exists"}]}
    if spec.get("securityContext", {}).get("runAsNonRoot"):
        spec["securityContext"]["runAsUser"] = _NOBODY  # of an image that is published, its user
    (container,) = spec["containers"]
    container |= {
        "image": operator.image,
        "imagePullPolicy": "Never",
        "command": [f"/{operator.path}"],  # of an image that is published, its entry point
        "args": [*container.get("args", ()), *operator.arguments],
    }
    return thing


def _apply(kubectl: Kubectl, objects: list[_Object]) -> None:
    """Apply them on the server's side: some definitions are too large for the annotation that kubectl writes else."""
    kubectl.run("apply", "--server-side", "--filename=-", stdin=_list(objects))


def _wait_until_served(kubectl: Kubectl, definitions: list[_Object]) -> None:
    """Wait until kinds are known; `kubectl wait` fails while a new definition has no conditions."""
    names = [f"customresourcedefinition/{thing['metadata']['name']}" for thing in definitions]
    command = ("wait", *names, "--for=condition=Established", "--timeout=10s")
    wait_until(lambda: kubectl.answers(*command), _SECONDS, " ".join(command))


def _wait_until_ready(kubectl: Kubectl, operator: Operator, objects: list[_Object]) -> None:
    """Wait for the Deployments of an operator.

    An operator makes its certificate itself, in a Secret that its pod has mounted. Kubelet gives a changed Secret to a pod when it looks at the
    pod, about once a minute, or at once when the pod has changed. So each look writes an annotation.
    """
    names = [f"deployment/{thing['metadata']['name']}" for thing in objects if thing["kind"] == "Deployment"]
    ready = ("rollout", "status", *names, f"--namespace={operator.namespace}", f"--timeout={_LOOK_SECONDS}s")
    looks = itertools.count(1)

    def are_ready() -> bool:
        if kubectl.answers(*ready):
            return True
        pods = ("pods", "--all", f"--namespace={operator.namespace}")
        kubectl.run("annotate", *pods, "--overwrite", f"{_LOOKS}={next(looks)}")
        return False

    try:
        wait_until(are_ready, _SECONDS, " ".join(ready))
    except TimeoutError as error:
        error.add_note(log(kubectl, operator)[-4000:])
        raise


def _list(objects: list[_Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})

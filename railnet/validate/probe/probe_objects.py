"""The objects of one run in the cluster: a ConfigMap with the probe, and a pod on each node. Pure.

The ConfigMap is the owner of the pods: when it is deleted, they are. All of them have one label with the run's name.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from railnet.apiserver.request import ApiObject, JsonObject
from railnet.apiserver.request import Collection as Objects
from railnet.fabric.topology_labels import RAILS
from railnet.jobs.railnet_labels import NET1
from railnet.objects.conditions import condition, is_ready
from railnet.objects.resource_amounts import allocatable
from railnet.validate.probe.rail_probe import TOOLS

LABEL = "railnet.io/validate"
CONTAINER = "probe"
_FOLDER = "/railnet"
PROBE_FILE, ALL_REDUCE_FILE = "rail_probe.py", "all_reduce_program.py"
PROBE = f"{_FOLDER}/{PROBE_FILE}"
IMAGE = "python:3-slim"
RESOURCE = "rdma/ib_vf"
LONGEST_RUN_SECONDS = 6 * 3600  # a pod whose run was killed ends by itself
LONGEST_IDLE_RUN_SECONDS = 1800  # of a run on idle nodes; charts/railnet/templates/validate has the same number
_NOBODY = 65534  # the user of Debian's and Alpine's images that owns no file


class Run(NamedTuple):
    """The properties that all objects of a run have in common.

    Attributes:
        name: of the run: of the ConfigMap, the beginning of the pods' names, and the label's value.
        resource: the resource whose devices are VFs of rails.
        gpu: the resource of GPUs, of which each pod requests one to try GPUDirect; empty to try none.
        memory: what a container may use, which the scheduler takes for needed; empty for that of the probe.
        priority_class: that of the pods; empty for the cluster's default.
        longest_seconds: after which a pod ends by itself, if its run was killed.
        other_resources: more resources whose devices are VFs of rails. The run requests none; a job with one of them has a rail.
    """

    name: str
    namespace: str
    image: str = IMAGE
    resource: str = RESOURCE
    gpu: str = ""
    memory: str = ""
    priority_class: str = ""
    longest_seconds: int = LONGEST_RUN_SECONDS
    other_resources: frozenset[str] = frozenset()

    @property
    def all_resources(self) -> frozenset[str]:
        """All resources whose devices are VFs of rails."""
        return self.other_resources | {self.resource}

    @property
    def owner(self) -> ApiObject:
        """Where the ConfigMap is."""
        return ApiObject("v1", "configmaps", self.name, self.namespace)

    @property
    def owners(self) -> Objects:
        """The ConfigMaps of the run: the one, or none."""
        return Objects("v1", "configmaps", self.namespace, f"{LABEL}={self.name}")

    @property
    def pods(self) -> Objects:
        """The pods of the run."""
        return Objects("v1", "pods", self.namespace, f"{LABEL}={self.name}")

    def pod(self, name: str) -> ApiObject:
        """Return where a pod is."""
        return ApiObject("v1", "pods", name, self.namespace)


class Target(NamedTuple):
    """A node that gets a pod, and how many VFs the pod requests."""

    node: str
    pod: str
    rails: int


class Chosen(NamedTuple):
    """The nodes to test, and those that cannot be: by name, with the reason."""

    targets: tuple[Target, ...]
    left_out: Mapping[str, str]


def parts(node: JsonObject) -> JsonObject:
    """Return a node with nothing but what is read of it: a whole one has tens of kilobytes, most of them names of images."""
    metadata, spec, status = (node.get(part) or {} for part in ("metadata", "spec", "status"))
    labels = metadata.get("labels") or {}
    return {
        "metadata": {"name": metadata["name"], "labels": {key: labels[key] for key in (RAILS,) if key in labels}},
        "spec": {key: spec[key] for key in ("unschedulable", "taints") if key in spec},
        "status": {key: status[key] for key in ("allocatable", "conditions") if key in status},
    }


def choose(
    nodes: Iterable[JsonObject], run: Run, wanted: Collection[str], rails: int | None, most: int | None
) -> Chosen:
    """Choose the nodes to test.

    Args:
        nodes: the cluster's nodes, as the API server has them, or the `parts` of each.
        run: the run.
        wanted: the names of the nodes to test; empty for all nodes that have the resource.
        rails: how many VFs each pod requests; None for as many as the node has rails by its label, or 1.
        most: at most so many nodes, the first by name; None for all.
    """
    by_name = {node["metadata"]["name"]: node for node in nodes}
    left_out = {name: "the cluster has no such node" for name in wanted if name not in by_name}
    requests: list[tuple[str, int]] = []
    for name, node in sorted(by_name.items()):
        if wanted and name not in wanted:
            continue
        available = allocatable(node).get(run.resource, 0)
        asked = rails or _labelled_rails(node)
        if not available and not wanted:
            continue
        if why := _why_not(node, run.resource, available, asked):
            left_out[name] = why
        else:
            requests.append((name, asked))
    targets = [Target(name, f"{run.name}-{number}", asked) for number, (name, asked) in enumerate(requests[:most])]
    return Chosen(tuple(targets), left_out)


def owner(run: Run, programs: Mapping[str, str]) -> JsonObject:
    """Return the ConfigMap, with the source of each program by its file's name."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(run, run.name), "data": dict(programs)}


def pod(run: Run, target: Target, owner_uid: str) -> JsonObject:
    """Return a node's pod, which serves until it is deleted.

    The scheduler binds it, as it does a DaemonSet's pods: kubelet alone would refuse it for good while the VFs are in use. Taints do not
    keep it away, because a node with a taint about its rails is one to look at. It obeys the Pod Security Standard `restricted`.
    """
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": run.name, "uid": owner_uid, "controller": True}
    on_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [target.node]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [on_node]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_metadata(run, target.pod),
            "labels": {LABEL: run.name, NET1: "false"},  # the pod asks for its rails itself
            "ownerReferences": [reference],
        },
        "spec": {
            "affinity": {"nodeAffinity": affinity},
            "tolerations": [{"operator": "Exists"}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "activeDeadlineSeconds": run.longest_seconds,
            **({"priorityClassName": run.priority_class} if run.priority_class else {}),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _NOBODY,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(run, target.rails)],
            "volumes": [{"name": CONTAINER, "configMap": {"name": run.name}}],
        },
    }


def measurement(
    netdev: str, source: str, peer: str, seconds: float, *, rdma: bool = True, gpu: bool = False
) -> list[str]:
    """Return the command by which a client's pod measures a rail, with `rdma` by its tools as well; `gpu` has these use a GPU's memory."""
    options = {"--netdev": netdev, "--source": source, "--peer": peer, "--seconds": f"{seconds:g}"}
    tools = [text for tool in (TOOLS if rdma else ()) for text in ("--tool", tool)]
    return [
        "python3",
        PROBE,
        *(text for option in options.items() for text in option),
        *tools,
        *(("--gpu",) if gpu and rdma else ()),
    ]


def reach_command(netdev: str, source: str, peer: str) -> list[str]:
    """Return the command by which a client's pod tries whether it reaches an address over a netdev."""
    return ["python3", PROBE, "--measure", "reach", "--netdev", netdev, "--source", source, "--peer", peer]


def all_reduce_command(
    rank: tuple[int, int], meet: str, netdev: str, sizes: Iterable[int], seconds: float, limits: tuple[float, float]
) -> list[str]:
    """Return the command of one rank of an all-reduce.

    Args:
        rank: its number, and how many there are.
        meet: the address and the port of rank 0.
        netdev: of the rail.
        sizes: in bytes.
        seconds: how long each size is measured.
        limits: seconds until all ranks have met, and from then to the end.
    """
    options = {
        "--rank": str(rank[0]),
        "--ranks": str(rank[1]),
        "--meet": meet,
        "--netdev": netdev,
        "--sizes": ",".join(map(str, sizes)),
        "--seconds": f"{seconds:g}",
        "--start-seconds": f"{limits[0]:g}",
        "--measure-seconds": f"{limits[1]:g}",
    }
    return ["python3", f"{_FOLDER}/{ALL_REDUCE_FILE}", *(text for option in options.items() for text in option)]


def _container(run: Run, rails: int) -> JsonObject:
    own = {"cpu": "100m", "memory": run.memory or "64Mi"}
    devices = {run.resource: rails, **({run.gpu: 1} if run.gpu else {})}
    most = {"memory": run.memory or ("4Gi" if run.gpu else "256Mi")}  # CUDA alone takes hundreds of MiB
    return {
        "name": CONTAINER,
        "image": run.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", PROBE],
        "resources": {"requests": {**own, **devices}, "limits": {**most, **devices}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": CONTAINER, "mountPath": _FOLDER, "readOnly": True}],
    }


def _metadata(run: Run, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": run.namespace, "labels": {LABEL: run.name}}


def _why_not(node: JsonObject, resource: str, available: int, asked: int) -> str:
    if not available:
        return f"it has no {resource}"
    if available < asked:
        return f"it has {available} {resource}, and {asked} rails are to be tested"
    if is_ready(node):
        return ""
    ready = condition(node, "Ready")
    return f"it is not ready: {(ready and ready.message) or 'no condition says why'}"


def _labelled_rails(node: JsonObject) -> int:
    text = (node["metadata"].get("labels") or {}).get(RAILS, "")
    return int(text) if text.isdecimal() and int(text) else 1

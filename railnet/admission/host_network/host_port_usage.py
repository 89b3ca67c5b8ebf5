"""The facts that host-network mode reads of the cluster's pods: their host ports, and which Service belongs to which pod.

Pure. Each pod is reduced at once, so that ten thousand pods fit into a few MB.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from sys import intern
from typing import Any, NamedTuple

from railnet.jobs.operators import OPERATORS, Operator
from railnet.jobs.railnet_labels import HOST_PORT
from railnet.jobs.recogniser import marked
from railnet.objects.metadata_times import is_deleted
from railnet.objects.pod_phase import ENDED, phase

_NAME_LABEL = "app.kubernetes.io/name"
_MOST_PORTS = (
    16  # that are kept of one pod: an object has room for ten thousand, and a cluster for ten thousand such pods
)


class Identity(NamedTuple):
    """One pod of a job for its operator: the labels that the operator writes to the pod, and to the selector of the pod's Service."""

    namespace: str
    values: tuple[str, ...]


class SeenPod(NamedTuple):
    """A pod as far as host-network mode reads it.

    Attributes:
        ports: the host's ports that it has, of very many the first ones; none if it has ended.
        identity: which pod of its job it is; None for a pod without a Service of its own.
        port_names: the names of its ports, if a review put it on the host's network; else None.
        replica: whether it is one of the webhook's own pods.
        namespace: its namespace.
        kept_port: the port that a review gave it, if it has a node. kube-scheduler keeps its other ports apart from those of the node's pods.
    """

    name: str
    ports: tuple[int, ...]
    identity: Identity | None
    port_names: tuple[str, ...] | None
    replica: bool
    namespace: str = ""
    kept_port: int | None = None


def seen_pod(document: Mapping[str, Any], webhook: tuple[str, str]) -> SeenPod | None:
    """Reduce a pod; None if nothing of it is read. `webhook` is the namespace and the name label of the webhook's own pods."""
    metadata, spec = document["metadata"], document["spec"]
    labels, namespace = metadata.get("labels") or {}, metadata.get("namespace") or ""
    annotations = metadata.get("annotations") or {}
    ended = phase(document) in ENDED
    given = None if ended else _given(annotations, spec)
    pod = SeenPod(
        name=metadata["name"],
        ports=() if ended else tuple(islice(_host_ports(spec, given), _MOST_PORTS)),
        # A pod that is being deleted has its ports, but its operator makes another one: that one decides about a new Service.
        identity=None if ended or is_deleted(metadata) else identity(namespace, labels),
        port_names=tuple(islice(_port_names(spec), _MOST_PORTS)) if HOST_PORT in annotations else None,
        replica=not ended and (namespace, labels.get(_NAME_LABEL)) == webhook,
        namespace=intern(namespace),
        kept_port=given if spec.get("nodeName") else None,
    )
    return pod if pod.ports or pod.identity or pod.replica else None


def identity(namespace: str, labels: Mapping[str, str]) -> Identity | None:
    """Return the pod that labels name; None if they name none, or a pod whose operator makes no Service for each pod.

    The labels are a pod's, or the selector of a Service.
    """
    row = next((row for row in OPERATORS if row.ports and _fits(row, labels)), None)
    if row is None:
        return None
    values = [labels.get(key) for key in _keys(row)]
    return Identity(intern(namespace), tuple(intern(str(value)) for value in values)) if all(values) else None


def _fits(operator: Operator, labels: Mapping[str, str]) -> bool:
    return all(marked(labels.get(key), values) for key, values in operator.marks.items())


def _keys(operator: Operator) -> Iterator[str]:
    yield from operator.marks
    yield from (field.key for field in operator.rank if field.key)


def _given(annotations: Mapping[str, str], spec: Mapping[str, Any]) -> int | None:
    """Return the port that a review gave; None if it gave none, or if the pod does not have the port."""
    text = annotations.get(HOST_PORT, "")
    return next((port for port in _all_host_ports(spec) if str(port) == text), None) if text else None


def _host_ports(spec: Mapping[str, Any], given: int | None) -> Iterator[int]:
    """Yield each port once, the one that a review gave first."""
    yield from dict.fromkeys((*(() if given is None else (given,)), *_all_host_ports(spec)))


def _all_host_ports(spec: Mapping[str, Any]) -> Iterator[int]:
    for port in _ports(spec):
        if isinstance(port.get("hostPort"), int):
            yield port["hostPort"]


def _port_names(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (intern(port["name"]) for port in _ports(spec) if port.get("name"))


def _ports(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        yield from container.get("ports") or ()

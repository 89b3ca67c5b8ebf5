"""The facts that host-network mode reads of the cluster's pods: their host ports, and which Service belongs to which pod.

Pure. Each pod is reduced at once, so that ten thousand pods fit into a few MB.
"""

from collections.abc import Iterator, Mapping
from sys import intern
from typing import Any, NamedTuple

from railnet.jobs.operators import OPERATORS, Operator
from railnet.jobs.railnet_labels import HOST_PORT
from railnet.jobs.recogniser import marked
from railnet.objects.metadata_times import is_deleted
from railnet.objects.pod_phase import ENDED, phase

_NAME_LABEL = "app.kubernetes.io/name"


class Identity(NamedTuple):
    """One pod of a job for its operator: the labels that the operator writes to the pod, and to the selector of the pod's Service."""

    namespace: str
    values: tuple[str, ...]


class SeenPod(NamedTuple):
    """A pod as far as host-network mode reads it.

    Attributes:
        ports: the host's ports that it has; none if it has ended.
        identity: which pod of its job it is; None for a pod without a Service of its own.
        port_names: the names of its ports, if a review put it on the host's network; else None.
        replica: whether it is one of the webhook's own pods.
    """

    name: str
    ports: tuple[int, ...]
    identity: Identity | None
    port_names: tuple[str, ...] | None
    replica: bool


def seen_pod(document: Mapping[str, Any], webhook: tuple[str, str]) -> SeenPod | None:
    """Reduce a pod; None if nothing of it is read. `webhook` is the namespace and the name label of the webhook's own pods."""
    metadata, spec = document["metadata"], document["spec"]
    labels, namespace = metadata.get("labels") or {}, metadata.get("namespace") or ""
    ended = phase(document) in ENDED
    pod = SeenPod(
        name=metadata["name"],
        ports=() if ended else tuple(_host_ports(spec)),
        # A pod that is being deleted has its ports, but its operator makes another one: that one decides about a new Service.
        identity=None if ended or is_deleted(metadata) else identity(namespace, labels),
        port_names=tuple(_port_names(spec)) if HOST_PORT in (metadata.get("annotations") or {}) else None,
        replica=not ended and (namespace, labels.get(_NAME_LABEL)) == webhook,
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


def _host_ports(spec: Mapping[str, Any]) -> Iterator[int]:
    for port in _ports(spec):
        if isinstance(port.get("hostPort"), int):
            yield port["hostPort"]


def _port_names(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (intern(port["name"]) for port in _ports(spec) if port.get("name"))


def _ports(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        yield from container.get("ports") or ()

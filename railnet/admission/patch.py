"""Additions as a JSON Patch (RFC 6902); empty if nothing is added.

The patch only adds, with these exceptions: the explanation, which keeps its earlier text; a TF_CONFIG that gets other names; the priority
that the API server computed for a pod without a PriorityClass; and what host-network mode must change: the container's port, where the
pod's framework reads that port, and `dnsPolicy`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from railnet.admission import explanation, railnet_annotations
from railnet.admission.decision import Additions
from railnet.admission.environment import Variable
from railnet.admission.host_network.host_network import DNS_POLICY, HostNetwork
from railnet.jobs.railnet_labels import HOST_PORT

Operation = dict[str, Any]
# The API server's plugin Priority has run when a webhook is called, and it runs again after a patch. It refuses a pod with another
# value than the one of its class (k8s.io/kubernetes/plugin/pkg/admission/priority), and sets a value that is absent.
_OF_THE_CLASS = ("priority", "preemptionPolicy")


def operations(document: Mapping[str, Any], additions: Additions) -> list[Operation]:
    """Return the operations that bring the additions into a pod as the API server sent it."""
    metadata = document["metadata"]
    host = additions.host
    changes = [
        *_container(document, additions),
        *_priority_class(document["spec"], additions.priority_class),
        *(() if host is None else _host_network(document, additions.member.container, host)),
        *entries(metadata, "/metadata", "labels", additions.labels),
    ]
    if changes or additions.annotations:
        text = explanation.annotation(additions, (metadata.get("annotations") or {}).get(railnet_annotations.EXPLAIN))
        port = {} if host is None else {HOST_PORT: str(host.port)}
        annotations = {**additions.annotations, railnet_annotations.EXPLAIN: text, **port}
        changes += entries(metadata, "/metadata", "annotations", annotations)
    return changes


def _host_network(document: Mapping[str, Any], position: int, host: HostNetwork) -> Iterator[Operation]:
    yield add("/spec/hostNetwork", value=True)
    if host.resolves:
        yield add("/spec/dnsPolicy", DNS_POLICY)
    path, ports = f"/spec/containers/{position}/ports", document["spec"]["containers"][position].get("ports")
    entry = {"name": host.name, "containerPort": host.port, "hostPort": host.port}
    if not ports:
        yield add(path, [entry])
        return
    path = f"{path}/{host.position}"
    if not host.named:
        yield add(f"{path}/name", host.name)
    # On the host's network both must be the same (k8s.io/kubernetes/pkg/apis/core/validation, validateHostNetwork).
    yield {"op": "replace", "path": f"{path}/containerPort", "value": host.port}
    yield add(f"{path}/hostPort", host.port)


def _container(document: Mapping[str, Any], additions: Additions) -> Iterator[Operation]:
    position = additions.member.container
    path, container = f"/spec/containers/{position}", document["spec"]["containers"][position]
    if additions.vfs:
        quantity = {additions.resource: str(additions.vfs)}  # an extended resource's limit and request must be equal
        resources = container.get("resources")
        if not resources:
            yield add(f"{path}/resources", {"limits": quantity, "requests": quantity})
        else:
            yield from entries(resources, f"{path}/resources", "limits", quantity)
            yield from entries(resources, f"{path}/resources", "requests", quantity)
    host = additions.host
    added, replaced = (additions.variables, additions.replaced) if host is None else _with_host(additions, host)
    # The API server leaves out a value that is empty.
    variables = [{"name": variable.name, **({"value": variable.value} if variable.value else {})} for variable in added]
    if variables and not container.get("env"):
        yield add(f"{path}/env", variables)
    else:
        yield from (add(f"{path}/env/-", variable) for variable in variables)
    for variable in replaced:
        # If a name occurs twice, kubelet takes the last entry, and so does railnet.objects.pod.
        place = max(number for number, entry in enumerate(container["env"]) if entry["name"] == variable.name)
        yield {"op": "replace", "path": f"{path}/env/{place}/value", "value": variable.value}


def _priority_class(spec: Mapping[str, Any], name: str) -> Iterator[Operation]:
    if name:
        yield add("/spec/priorityClassName", name)
        yield from ({"op": "remove", "path": f"/spec/{key}"} for key in _OF_THE_CLASS if spec.get(key) is not None)


def _with_host(additions: Additions, host: HostNetwork) -> tuple[tuple[Variable, ...], tuple[Variable, ...]]:
    return (*additions.variables, *host.added), (*additions.replaced, *host.replaced)


def entries(parent: Mapping[str, Any], path: str, name: str, added: Mapping[str, str]) -> Iterator[Operation]:
    """Add entries to the mapping `name` of `parent`; add the whole mapping if it is missing or empty."""
    if added and not parent.get(name):
        yield add(f"{path}/{name}", dict(added))
    else:
        yield from (add(f"{path}/{name}/{_pointer(key)}", value) for key, value in added.items())


def add(path: str, value: Any) -> Operation:
    """Return the operation that adds a value, or replaces a mapping's."""
    return {"op": "add", "path": path, "value": value}


def _pointer(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")  # RFC 6901

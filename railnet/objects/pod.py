"""A pod, parsed once from the API server's JSON or from the YAML of a file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from railnet.objects.owner_reference import controlling
from railnet.vf.errors import Misconfigured

# This annotation marks the API server's mirror of a static pod: kubelet runs the pod from its file, so changing the mirror has no effect.
_MIRROR = "kubernetes.io/config.mirror"
_OS = "kubernetes.io/os"


@dataclass(frozen=True, slots=True)
class ContainerPort:
    """A declared port of a container; `name` is empty if it has none."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Container:
    """A container of `spec.containers`, or an init container that is a sidecar; other init containers end before the pod does.

    Attributes:
        env: the variables of `env` by name; None for a value that comes from another object (`valueFrom`).
        env_from: whether more variables come from ConfigMaps or Secrets, which cannot be seen here.
        resources: limits and requests united, as written; the limit if a resource has both.
        ports: the declared ports, in their order.
    """

    name: str
    env: Mapping[str, str | None]
    env_from: bool
    resources: Mapping[str, str]
    ports: tuple[ContainerPort, ...] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod.

    Attributes:
        name: its name, or its `generateName` if it has no name yet.
        owner: the name of its controller; None if it has none.
        subdomain: its headless Service; None if it has none.
        windows: whether it is for Windows.
        sidecars: the init containers that live as long as the pod, and so keep their devices.
        priority_class: its PriorityClass; None if it has none.
        dns_policy: its `dnsPolicy`; empty if it has none yet.
        owner_kind: the kind of its controller; empty if it has none.
        scheduler: the scheduler that it names; empty for the default one.
        gates: the names of its scheduling gates.
        node: the node that it is on, or that its author chose; empty before it has one.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[Container, ...]
    host_network: bool = False
    owner: str | None = None
    subdomain: str | None = None
    windows: bool = False
    sidecars: tuple[Container, ...] = ()
    priority_class: str | None = None
    dns_policy: str = ""
    owner_kind: str = ""
    scheduler: str = ""
    gates: tuple[str, ...] = ()
    node: str = ""

    @property
    def mirror(self) -> bool:
        """True if the pod is the API server's mirror of a static pod."""
        return _MIRROR in self.annotations

    def read(self, key: str) -> str | None:
        """Return a label, else the annotation of the same name: operators and versions of Kubernetes write one or the other."""
        return self.labels.get(key, self.annotations.get(key))


def parse(document: Any) -> Pod:
    """Read a pod.

    Raises:
        Misconfigured: the document is not a pod; the message names the field. The API server sends no such object to a webhook.
    """
    pod = _mapping(document, "the pod")
    metadata = _mapping(pod.get("metadata"), "metadata")
    spec = _mapping(pod.get("spec"), "spec")
    containers = tuple(_container(entry, path) for entry, path in _entries(spec.get("containers"), "spec.containers"))
    if not containers:
        raise Misconfigured("spec.containers is empty; it should have at least one container")
    owners = _entries(metadata.get("ownerReferences"), "metadata.ownerReferences")
    controller = controlling(_mapping(*owner) for owner in owners)
    return Pod(
        name=_text(metadata.get("name") or metadata.get("generateName") or "", "metadata.name"),
        namespace=_text(metadata.get("namespace") or "", "metadata.namespace"),
        labels=_texts(metadata.get("labels"), "metadata.labels"),
        annotations=_texts(metadata.get("annotations"), "metadata.annotations"),
        containers=containers,
        host_network=spec.get("hostNetwork") is True,
        owner=None if controller is None else _text(controller.get("name"), "metadata.ownerReferences.name"),
        subdomain=_text(spec.get("subdomain") or "", "spec.subdomain") or None,
        windows=_is_windows(spec),
        sidecars=tuple(_sidecars(spec.get("initContainers"))),
        priority_class=_text(spec.get("priorityClassName") or "", "spec.priorityClassName") or None,
        dns_policy=_text(spec.get("dnsPolicy") or "", "spec.dnsPolicy"),
        owner_kind=_text((controller or {}).get("kind") or "", "metadata.ownerReferences.kind"),
        scheduler=_text(spec.get("schedulerName") or "", "spec.schedulerName"),
        gates=tuple(_gates(spec.get("schedulingGates"))),
        node=_text(spec.get("nodeName") or "", "spec.nodeName"),
    )


def _sidecars(init: Any) -> Iterator[Container]:
    for entry, path in _entries(init, "spec.initContainers"):
        if _mapping(entry, path).get("restartPolicy") == "Always":
            yield _container(entry, path)


def _is_windows(spec: dict[str, Any]) -> bool:
    systems = (
        _mapping(spec.get("os"), "spec.os").get("name"),
        _mapping(spec.get("nodeSelector"), "spec.nodeSelector").get(_OS),
    )
    return "windows" in systems


def _container(entry: Any, path: str) -> Container:
    container = _mapping(entry, path)
    resources = _mapping(container.get("resources"), f"{path}.resources")
    quantities = {
        **_mapping(resources.get("requests"), f"{path}.resources.requests"),
        **_mapping(resources.get("limits"), f"{path}.resources.limits"),
    }
    variables = [_mapping(*variable) for variable in _entries(container.get("env"), f"{path}.env")]
    return Container(
        name=_text(container.get("name"), f"{path}.name"),
        env={_text(variable.get("name"), f"{path}.env"): _value(variable, path) for variable in variables},
        env_from=bool(container.get("envFrom")),
        resources={str(resource): str(quantity) for resource, quantity in quantities.items()},
        ports=tuple(_port(*port) for port in _entries(container.get("ports"), f"{path}.ports")),
    )


def _port(entry: Any, path: str) -> ContainerPort:
    port = _mapping(entry, path)
    number = port.get("containerPort")
    if not isinstance(number, int):
        raise Misconfigured(f"{path}.containerPort is {number!r:.60}; it should be a number")
    return ContainerPort(_text(port.get("name") or "", f"{path}.name"), number)


def _value(variable: dict[str, Any], path: str) -> str | None:
    if variable.get("valueFrom") is not None:
        return None
    return _text(variable.get("value") or "", f"{path}.env")


def _gates(gates: Any) -> Iterator[str]:
    for entry, path in _entries(gates, "spec.schedulingGates"):
        yield _text(_mapping(entry, path).get("name"), f"{path}.name")


def _entries(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Yield a list's entries, each with its path; null counts as an empty list, as in the API server."""
    if not isinstance(value, list | None):
        raise Misconfigured(f"{path} is {value!r:.60}; it should be a list")
    for position, entry in enumerate(value or ()):
        yield entry, f"{path}[{position}]"


def _mapping(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        raise Misconfigured(f"{path} is {value!r:.60}; it should be a mapping")
    return value or {}


def _texts(value: Any, path: str) -> dict[str, str]:
    return {str(key): _text(entry, f"{path}.{key}") for key, entry in _mapping(value, path).items()}


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise Misconfigured(f"{path} is {value!r:.60}; it should be a string: put it into quotes")
    return value

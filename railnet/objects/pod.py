"""A pod, parsed once from the API server's JSON or from the YAML of a file."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from railnet.errors import Misconfigured
from railnet.objects.owner_reference import controlling

# This annotation marks the API server's mirror of a static pod: kubelet runs the pod from its file, so changing the mirror has no effect.
_MIRROR = "kubernetes.io/config.mirror"
_OS = "kubernetes.io/os"
_LONGEST_NAME = 253  # a DNS subdomain


class ContainerPort(NamedTuple):
    """A declared port of a container; `name` is empty if it has none."""

    name: str
    number: int


class NamedClaim(NamedTuple):
    """An entry of `spec.resourceClaims`: a ResourceClaim, or the ResourceClaimTemplate that one is made of; the other one is empty."""

    claim: str
    template: str


class Container(NamedTuple):
    """A container of `spec.containers`, or an init container that is a sidecar; other init containers end before the pod does.

    Attributes:
        env: the variables of `env` by name; None for a value that comes from another object (`valueFrom`).
        env_from: whether more variables come from ConfigMaps or Secrets, which cannot be seen here.
        resources: limits and requests united, as written; the limit if a resource has both.
        ports: the declared ports, in their order.
        words: its command and arguments.
        privileged: whether it may use all devices of its node.
        claims: the entries of the pod's claims whose devices it gets.
    """

    name: str
    env: Mapping[str, str | None]
    env_from: bool
    resources: Mapping[str, str]
    ports: tuple[ContainerPort, ...] = ()
    words: tuple[str, ...] = ()
    privileged: bool = False
    claims: tuple[str, ...] = ()


class Pod(NamedTuple):
    """A pod.

    Attributes:
        name: its name, or its `generateName` if it has no name yet.
        owner: the name of its controller; None if it has none.
        subdomain: its headless Service; None if it has none.
        sidecars: the init containers that live as long as the pod, and so keep their devices.
        priority_class: its PriorityClass; None if it has none.
        dns_policy: its `dnsPolicy`; empty if it has none yet.
        owner_kind: the kind of its controller; empty if it has none.
        scheduler: the scheduler that it names; empty for the default one.
        gates: the names of its scheduling gates.
        node: the node that it is on, or that its author chose; empty before it has one.
        claims: the claims that it names.
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
    claims: tuple[NamedClaim, ...] = ()

    @property
    def mirror(self) -> bool:
        """True if the pod is the API server's mirror of a static pod."""
        return _MIRROR in self.annotations

    def read(self, key: str) -> str | None:
        """Return a label, else the annotation of the same name: operators and versions of Kubernetes write one or the other.

        An annotation that is longer than any name counts as absent: its author may write 256 KiB.
        """
        text = self.labels.get(key, self.annotations.get(key))
        return None if text is None or len(text) > _LONGEST_NAME else text


def parse(document: Any) -> Pod:
    """Read a pod.

    Raises:
        Misconfigured: the document is not a pod; the message names the field. The API server sends no such object to a webhook.
    """
    pod = _mapping(document, "the pod")
    metadata = _mapping(pod.get("metadata"), "metadata")
    spec = _mapping(pod.get("spec"), "spec")
    entries = _mappings(spec.get("containers"), "spec.containers")
    if not entries:
        raise Misconfigured("spec.containers is empty; it should have at least one container")
    containers = [_container(entry, f"spec.containers[{position}]") for position, entry in enumerate(entries)]
    controller = controlling(_mappings(metadata.get("ownerReferences"), "metadata.ownerReferences"))
    return Pod(
        name=_text(metadata.get("name") or metadata.get("generateName") or "", "metadata.name"),
        namespace=_text(metadata.get("namespace") or "", "metadata.namespace"),
        labels=_texts(metadata.get("labels"), "metadata.labels"),
        annotations=_texts(metadata.get("annotations"), "metadata.annotations"),
        containers=tuple(containers),
        host_network=spec.get("hostNetwork") is True,
        owner=None if controller is None else _text(controller.get("name"), "metadata.ownerReferences.name"),
        subdomain=_text(spec.get("subdomain") or "", "spec.subdomain") or None,
        windows=_is_windows(spec),
        sidecars=tuple(_sidecars(_mappings(spec.get("initContainers"), "spec.initContainers"))),
        priority_class=_text(spec.get("priorityClassName") or "", "spec.priorityClassName") or None,
        dns_policy=_text(spec.get("dnsPolicy") or "", "spec.dnsPolicy"),
        owner_kind=_text((controller or {}).get("kind") or "", "metadata.ownerReferences.kind"),
        scheduler=_text(spec.get("schedulerName") or "", "spec.schedulerName"),
        gates=tuple(_gates(_mappings(spec.get("schedulingGates"), "spec.schedulingGates"))),
        node=_text(spec.get("nodeName") or "", "spec.nodeName"),
        claims=tuple(_claims(_mappings(spec.get("resourceClaims"), "spec.resourceClaims"))),
    )


def _sidecars(init: list[dict[str, Any]]) -> Iterator[Container]:
    for position, container in enumerate(init):
        if container.get("restartPolicy") == "Always":
            yield _container(container, f"spec.initContainers[{position}]")


def _gates(gates: list[dict[str, Any]]) -> Iterator[str]:
    for position, gate in enumerate(gates):
        yield _text(gate.get("name"), f"spec.schedulingGates[{position}].name")


def _claims(claims: list[dict[str, Any]]) -> Iterator[NamedClaim]:
    for position, entry in enumerate(claims):
        claim, template = (entry.get(key) or "" for key in ("resourceClaimName", "resourceClaimTemplateName"))
        path = f"spec.resourceClaims[{position}]"
        yield NamedClaim(_text(claim, path, ".resourceClaimName"), _text(template, path, ".resourceClaimTemplateName"))


def _is_windows(spec: dict[str, Any]) -> bool:
    systems = (
        _mapping(spec.get("os"), "spec.os").get("name"),
        _mapping(spec.get("nodeSelector"), "spec.nodeSelector").get(_OS),
    )
    return "windows" in systems


def _container(container: dict[str, Any], path: str) -> Container:
    resources = _mapping(container.get("resources"), path, ".resources")
    quantities = {
        **_mapping(resources.get("requests"), path, ".resources.requests"),
        **_mapping(resources.get("limits"), path, ".resources.limits"),
    }
    return Container(
        name=_text(container.get("name"), path, ".name"),
        env=_env(_mappings(container.get("env"), path, ".env"), path),
        env_from=bool(container.get("envFrom")),
        resources={str(resource): str(quantity) for resource, quantity in quantities.items()},
        ports=tuple(_ports(_mappings(container.get("ports"), path, ".ports"), path)),
        words=(*_words(container.get("command"), path, ".command"), *_words(container.get("args"), path, ".args")),
        privileged=_mapping(container.get("securityContext"), path, ".securityContext").get("privileged") is True,
        claims=tuple(_entries(_mappings(resources.get("claims"), path, ".resources.claims"), path)),
    )


def _entries(claims: list[dict[str, Any]], path: str) -> Iterator[str]:
    for claim in claims:
        yield _text(claim.get("name"), path, ".resources.claims.name")


def _words(value: Any, path: str, key: str) -> Iterator[str]:
    if not isinstance(value, list | None):
        raise Misconfigured(f"{path}{key} is {value!r:.60}; it should be a list")
    for word in value or ():
        yield word if type(word) is str else _text(word, path, key)


def _env(variables: list[dict[str, Any]], path: str) -> dict[str, str | None]:
    env: dict[str, str | None] = {}
    for variable in variables:
        name, value = variable.get("name"), variable.get("value") or ""
        if variable.get("valueFrom") is not None:
            value = None
        elif type(value) is not str:
            value = _text(value, path, ".env")
        env[name if type(name) is str else _text(name, path, ".env")] = value
    return env


def _ports(ports: list[dict[str, Any]], path: str) -> Iterator[ContainerPort]:
    for position, port in enumerate(ports):
        number = port.get("containerPort")
        if not isinstance(number, int):
            raise Misconfigured(f"{path}.ports[{position}].containerPort is {number!r:.60}; it should be a number")
        yield ContainerPort(_text(port.get("name") or "", f"{path}.ports[{position}].name"), number)


# A pod has a hundred fields, and nearly each is as it should be. So the checks below compare the type first, and name a field late.


def _mappings(value: Any, path: str, key: str = "") -> list[dict[str, Any]]:
    """Return the entries of a list; null counts as an empty list or mapping, as in the API server."""
    if not isinstance(value, list):
        if value is None:
            return []
        raise Misconfigured(f"{path}{key} is {value!r:.60}; it should be a list")
    for entry in value:
        if type(entry) is not dict:
            return [_mapping(any_entry, f"{path}{key}[{position}]") for position, any_entry in enumerate(value)]
    return value


def _mapping(value: Any, path: str, key: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if value is None:
        return {}
    raise Misconfigured(f"{path}{key} is {value!r:.60}; it should be a mapping")


def _texts(value: Any, path: str) -> dict[str, str]:
    texts = _mapping(value, path)
    for key, text in texts.items():
        if type(text) is not str or type(key) is not str:
            return {str(any_key): _text(any_text, f"{path}.{any_key}") for any_key, any_text in texts.items()}
    return dict(texts)


def _text(value: Any, path: str, key: str = "") -> str:
    if isinstance(value, str):
        return value
    raise Misconfigured(f"{path}{key} is {value!r:.60}; it should be a string: put it into quotes")

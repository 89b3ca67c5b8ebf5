"""Which addresses a name of the cluster has, by Services, EndpointSlices and namespaces, as CoreDNS decides it.

Pure. Source: coredns/coredns at 4b26cce, plugin/kubernetes/{parse,kubernetes,handler}.go and object/{service,endpoint}.go, with
the plugin's defaults (pods disabled, no endpoint_pod_names). Left out: SRV, PTR and TXT records, Services of the type
ExternalName, endpoints of the address type FQDN, names of pods, multi-cluster and zonal names. A type of record that is left out
is answered like any other type that a name does not have.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from typing import Any

ZONE = "cluster.local"
TTL_SECONDS = 5  # defaultTTL in kubernetes.go

_Object = Mapping[str, Any]


class Outcome(Enum):
    """What an answer says of a name; the values are the RCODEs of RFC 1035, section 4.1.1."""

    FOUND = 0
    """The name exists. An answer without addresses is NODATA: the name has no record of the type."""

    NXDOMAIN = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered to one question.

    Attributes:
        addresses: of the asked type, without duplicates, in the order of the objects.
        authoritative: whether the name is of the cluster's zone. CoreDNS forwards the others; here no other name exists.
    """

    outcome: Outcome
    addresses: tuple[str, ...] = ()
    authoritative: bool = True


@dataclass(frozen=True, slots=True)
class _Question:
    """The parts of a name below `svc`; a part that a name does not have is empty.

    Attributes:
        port: with `protocol`, of a name of the form `_port._protocol.service.namespace.svc`.
    """

    namespace: str = ""
    service: str = ""
    endpoint: str = ""
    port: str = ""
    protocol: str = ""


class ClusterRecords:
    """The names of one cluster. Objects are as the API server writes them, EndpointSlices in version v1 or v1beta1."""

    def __init__(self, services: Iterable[_Object], slices: Iterable[_Object], namespaces: Iterable[str]) -> None:
        self._services = {_key(service): service for service in services}
        self._slices: dict[tuple[str, str], list[_Object]] = {}
        for one in slices:
            name = one["metadata"].get("labels", {}).get("kubernetes.io/service-name", "")
            self._slices.setdefault((one["metadata"]["namespace"], name), []).append(one)
        self._namespaces = frozenset(namespaces)

    def answer(self, name: str, version: int) -> Answer:
        """Answer a question for addresses of an IP version: 4 for type A, 6 for AAAA, and 0 for a type that no name has."""
        labels = name.lower().rstrip(".").split(".")
        zone = ZONE.split(".")
        if labels[-len(zone) :] != zone:
            return Answer(Outcome.NXDOMAIN, authoritative=False)
        below = labels[: -len(zone)]
        if not below or below in (["svc"], ["pod"]):
            return Answer(Outcome.FOUND)
        question = _parse(below)
        if question is None or question.namespace not in self._namespaces:
            return Answer(Outcome.NXDOMAIN)
        if not question.service:
            return Answer(Outcome.FOUND)
        found = dict.fromkeys(self._addresses(question))
        if not found:
            return Answer(Outcome.NXDOMAIN)
        return Answer(Outcome.FOUND, tuple(address for address in found if ip_address(address).version == version))

    def _addresses(self, question: _Question) -> Iterator[str]:
        key = question.namespace, question.service
        service = self._services.get(key)
        if service is None or service["spec"].get("type") == "ExternalName":
            return
        if question.endpoint or service["spec"].get("clusterIP") == "None":
            for one in self._slices.get(key, ()):
                yield from _endpoint_addresses(one, question)
        elif _has_port(service["spec"].get("ports"), question):
            yield from service["spec"].get("clusterIPs") or [service["spec"]["clusterIP"]]


def _key(service: _Object) -> tuple[str, str]:
    return service["metadata"]["namespace"], service["metadata"]["name"]


def _parse(labels: Sequence[str]) -> _Question | None:
    """Read the labels left of the zone; None if they are not those of a Service's name."""
    match labels:
        case ["svc"]:
            return _Question()
        case [namespace, "svc"]:
            return _Question(namespace)
        case [service, namespace, "svc"]:
            return _Question(namespace, service)
        case [endpoint, service, namespace, "svc"]:
            return _Question(namespace, service, endpoint)
        case [port, protocol, service, namespace, "svc"]:
            return _Question(namespace, service, port=port.removeprefix("_"), protocol=protocol.removeprefix("_"))
        case _:
            return None


def _endpoint_addresses(endpoint_slice: _Object, question: _Question) -> Iterator[str]:
    """Yield the addresses of ready endpoints.

    Service.spec.publishNotReadyAddresses is not read: CoreDNS does not read it. The controller that writes a slice says with
    `conditions.ready` that an endpoint is to be published. An endpoint without the condition counts as ready.
    """
    if endpoint_slice["addressType"] == "FQDN" or not _has_port(endpoint_slice.get("ports"), question):
        return
    for endpoint in endpoint_slice.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready") is False:
            continue
        for address in endpoint["addresses"]:
            if question.endpoint in ("", endpoint_hostname(endpoint, address)):
                yield address


def endpoint_hostname(endpoint: _Object, address: str) -> str:
    """Return the label of an endpoint: its `hostname`, or its address with dashes, to which a 0 is added after a last dash."""
    hostname: str = endpoint.get("hostname") or ""
    if hostname:
        return hostname.lower()
    dashed = address.replace(".", "-").replace(":", "-")
    return f"{dashed}0" if dashed.endswith("-") else dashed


def _has_port(ports: Iterable[_Object] | None, question: _Question) -> bool:
    """Return whether a port has the name and the protocol asked for; without them, a question is not about a port."""
    if not question.port and not question.protocol:
        return True
    return any(
        question.port in ("", (port.get("name") or "").lower())
        and question.protocol in ("", (port.get("protocol") or "TCP").lower())
        for port in ports or ()
    )

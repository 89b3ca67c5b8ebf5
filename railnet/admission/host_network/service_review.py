"""The answer to a review of a Service: the Service of a pod in host-network mode forwards to the pod's port by the port's *name*.

Pure, as `railnet.admission.review`. An operator makes a headless Service, which forwards no port, and names the port by its number, which each pod
in this mode has another of. With a cluster IP and the port's name, Kubernetes' own endpoints controller follows the pod to its next
address and port. A Service with a cluster IP is its maker's: KubeDL makes such Services for jobs that it puts on the host's network itself.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

from railnet.admission.host_network.host_network import HOST
from railnet.admission.host_network.host_port_usage import Identity, SeenPod, identity
from railnet.admission.patch import Operation
from railnet.admission.review import Reviewed, denied, namespace_of, patched, read, reviewed
from railnet.errors import Misconfigured, NotReady
from railnet.jobs.railnet_labels import NETWORK_MODE

_SERVICE = {"group": "", "version": "v1", "kind": "Service"}
_HEADLESS = "None"


class ServiceAsked(NamedTuple):
    """A review of a Service.

    Attributes:
        pod: which pod decides what the Service becomes; None if no pod needs to be known.
    """

    request: Mapping[str, Any]
    pod: Identity | None


def asked(body: bytes) -> ServiceAsked:
    """Read a review.

    Raises:
        UnreadableReview: as `railnet.admission.review.review`.
    """
    request = read(body)
    return ServiceAsked(request, _pod(request))


def answered(review: ServiceAsked, pod: SeenPod | None) -> Reviewed:
    """Answer a review; `pod` is the one that was asked for, None if it has not been seen."""
    try:
        answer = patched(list(_operations(review, pod)), "", {"allowed": True})
    except (Misconfigured, NotReady) as error:
        answer = denied(error)
    return reviewed(review.request, answer)


def _pod(request: Mapping[str, Any]) -> Identity | None:
    service = _headless_service(request)
    if service is None or _labelled(service):
        return None
    selector = service["spec"].get("selector") or {}
    return identity(namespace_of(request), selector)


def _operations(review: ServiceAsked, pod: SeenPod | None) -> Iterator[Operation]:
    service = _headless_service(review.request)
    if service is None:
        return
    if _labelled(service):
        yield from _forwarding(service, None)
    elif review.pod is not None:
        if pod is None:
            raise NotReady(
                "it is not known whether the pod of this Service is in host-network mode, because the pod has not been seen yet. Its "
                "operator makes the pod first, and makes the Service when it tries again"
            )
        if pod.port_names is not None:
            yield from _forwarding(service, pod.port_names)


def _forwarding(service: Mapping[str, Any], names: tuple[str, ...] | None) -> Iterator[Operation]:
    """Yield what makes a Service forward; `names` are the pod's ports, None if any name may be one."""
    spec = service["spec"]
    yield from ({"op": "remove", "path": f"/spec/{key}"} for key in ("clusterIP", "clusterIPs") if spec.get(key))
    for place, port in enumerate(spec.get("ports") or ()):
        if isinstance(port.get("targetPort"), str):
            continue
        name = _name(port, names)
        if name:
            yield {"op": "add", "path": f"/spec/ports/{place}/targetPort", "value": name}


def _name(port: Mapping[str, Any], names: tuple[str, ...] | None) -> str:
    """Return the name of the pod's port; empty if the Service's port is another one, which keeps its number."""
    name = str(port.get("name") or "")
    if names is None and not name:
        raise Misconfigured(
            f"the Service has the label {NETWORK_MODE}: {HOST}, but its port {port.get('port')} names no port of the pod: give it the "
            "name of the pod's port as targetPort"
        )
    if names is not None and not name and len(names) == 1:
        return names[0]
    return name if names is None or name in names else ""


def _headless_service(request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if request.get("operation") != "CREATE" or request.get("kind") != _SERVICE or request.get("subResource"):
        return None
    service = request.get("object")
    return service if _is_service(service) and service["spec"].get("clusterIP") == _HEADLESS else None


def _is_service(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether the parts of a Service that are read have their types. The API server sends no other."""
    if not (
        isinstance(value, dict) and isinstance(value.get("metadata"), dict) and isinstance(value.get("spec"), dict)
    ):
        return False
    labels, selector, ports = value["metadata"].get("labels"), value["spec"].get("selector"), value["spec"].get("ports")
    return (
        isinstance(labels, dict | None)
        and isinstance(selector, dict | None)
        and all(isinstance(text, str) for text in (selector or {}).values())
        and isinstance(ports, list | None)
        and all(isinstance(port, dict) for port in ports or ())
    )


def _labelled(service: Mapping[str, Any]) -> bool:
    return (service["metadata"].get("labels") or {}).get(NETWORK_MODE) == HOST

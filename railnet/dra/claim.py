"""A ResourceClaim as the API server has it: which VFs it gives to which of its requests, and for which pods. Pure.

Not here: whether the VFs may be given (`railnet.dra.preparation`), and reading the claim (`railnet.dra.service`).

Source: kubernetes/api, resource/v1/types.go (`ResourceClaim`, `DeviceRequestAllocationResult`, `OpaqueDeviceConfiguration`).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from railnet.errors import NotOurs, NotReady
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.vf.dra_device_name import vf_of
from railnet.vf.pci_address import PciAddress

_API_SERVER = "the API server"
# Of the claim that the scheduler makes for the limits of a pod's containers (kubernetes/kubernetes, pkg/scheduler/framework/plugins/
# dynamicresources/extendeddynamicresources.go): its annotation, and the names of its requests.
_OF_LIMITS = "resource.kubernetes.io/extended-resource-claim"
_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"  # PodResourceClaimAnnotation of resource/v1/types.go
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_CONTAINER = re.compile(r"(container-\d+)-request-\d+", re.ASCII)


class ClaimIdentity(NamedTuple):
    """A claim as kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """Name the claim in a message."""
        return f"claim {self.namespace}/{self.name}"


class AllocatedRequest(NamedTuple):
    """One request of a claim and the VFs that the scheduler chose for it, in PCI order."""

    name: str
    vfs: tuple[PciAddress, ...]


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim with VFs of this node.

    Attributes:
        requests: in the claim's order.
        pod_uids: the pods that the claim is reserved for.
        of_limits: whether the scheduler made the claim for the limits of a pod's containers.
        pod_claim: of a claim of a template, the name by which its pod refers to it; "" for another claim.
    """

    identity: ClaimIdentity
    requests: tuple[AllocatedRequest, ...]
    pod_uids: frozenset[str]
    of_limits: bool = False
    pod_claim: str = ""

    @property
    def vfs(self) -> tuple[PciAddress, ...]:
        """The VFs of all requests."""
        return tuple(vf for request in self.requests for vf in request.vfs)

    def vfs_beside(self, request: AllocatedRequest) -> tuple[PciAddress, ...]:
        """Return all VFs that a container with this request may have by this claim.

        A container may name several requests of a claim, or none, which means all. Of limits, each container has requests of its own.
        """
        container = self._container(request)
        return tuple(vf for other in self.requests if self._container(other) == container for vf in other.vfs)

    def _container(self, request: AllocatedRequest) -> str | None:
        match = _CONTAINER.fullmatch(request.name) if self.of_limits else None
        return None if match is None else match[1]


def read(document: Mapping[str, Any], identity: ClaimIdentity, pool: str) -> AllocatedClaim:
    """Read a claim that kubelet asks to prepare; `pool` is the name of this node's pool.

    Raises:
        NotReady: the claim is not allocated, is reserved for no pod, or is another one of the same name.
        NotOurs: the claim asks for what this node does not have, or cannot do; or the API server's object is not understood.
    """
    try:
        return _read(document, identity, pool)
    except (AttributeError, KeyError, TypeError) as error:
        raise NotOurs(f"{identity} is not understood: {type(error).__name__}: {error!s:.200}") from None


def _read(document: Mapping[str, Any], identity: ClaimIdentity, pool: str) -> AllocatedClaim:
    uid, status = document["metadata"]["uid"], document.get("status") or {}
    if uid != identity.uid:
        raise NotReady(
            f"{identity} has the UID {uid!s:.80} in {_API_SERVER}, and kubelet asks for {identity.uid}: the claim was deleted and made "
            "again; kubelet asks for the new one when the pod is made again"
        )
    allocation, reserved = status.get("allocation"), status.get("reservedFor") or []
    if not allocation:
        raise NotReady(f"{identity} is not allocated: the scheduler has taken its devices away")
    if not reserved:
        raise NotReady(f"{identity} is reserved for no pod: its pod has ended, or is not scheduled yet")
    devices = allocation.get("devices") or {}
    results = [result for result in devices.get("results") or [] if result["driver"] == DRIVER]
    if not results:
        raise NotOurs(f"{identity} has no device of {DRIVER}")
    _check_parameters(identity, devices.get("config") or [])
    pod_uids = frozenset(str(consumer["uid"]) for consumer in reserved if consumer["resource"] == "pods")
    annotations = document["metadata"].get("annotations") or {}
    of_limits, pod_claim = annotations.get(_OF_LIMITS) == "true", _label(annotations.get(_POD_CLAIM, ""))
    return AllocatedClaim(identity, _requests(identity, results, pool), pod_uids, of_limits, pod_claim)


def _requests(identity: ClaimIdentity, results: Iterable[Mapping[str, Any]], pool: str) -> tuple[AllocatedRequest, ...]:
    by_request: dict[str, set[PciAddress]] = {}
    for result in results:
        vf = _vf(identity, result, pool)
        if any(vf in vfs for vfs in by_request.values()):
            raise NotOurs(f"{identity} has VF {vf} twice: the scheduler's view of this node is wrong")
        # `<request>/<subrequest>` with firstAvailable: containers name the request alone.
        request = _label(_text(result["request"]).partition("/")[0])
        if not request:
            raise NotOurs(f"{identity} has request {result['request']!s:.80}, which is no name of Kubernetes")
        by_request.setdefault(request, set()).add(vf)
    return tuple(AllocatedRequest(request, tuple(sorted(vfs))) for request, vfs in by_request.items())


def _vf(identity: ClaimIdentity, result: Mapping[str, Any], pool: str) -> PciAddress:
    if result["pool"] != pool:
        raise NotOurs(f"{identity} has a device of pool {result['pool']!s:.253}, and this node's pool is {pool}")
    if result.get("adminAccess"):
        raise NotOurs(f"{identity} asks for adminAccess, which {DRIVER} does not have: a VF is one pod's alone")
    if result.get("shareID"):
        raise NotOurs(f"{identity} has a share of a device, and a VF is one pod's alone")
    try:
        return vf_of(_text(result["device"]))
    except ValueError as error:
        raise NotOurs(f"{identity}: {error}") from None


def _check_parameters(identity: ClaimIdentity, configurations: Iterable[Mapping[str, Any]]) -> None:
    """Make sure that the claim and its class give this driver no parameters: there are none yet.

    Raises:
        NotOurs: they do.
    """
    for configuration in configurations:
        opaque = configuration.get("opaque") or {}
        parameters = opaque.get("parameters")
        if opaque.get("driver") != DRIVER or not parameters:
            continue
        where = "its DeviceClass" if configuration.get("source") == "FromClass" else "the claim"
        keys = ", ".join(sorted(map(str, parameters))) if isinstance(parameters, dict) else "no object"
        raise NotOurs(
            f"{identity}: the parameters that {where} has for {DRIVER} are not known: {keys:.200}; {DRIVER} has no parameters, so "
            f"remove opaque.parameters from {where}"
        )


def _label(value: object) -> str:
    """Return a name that becomes a part of a path; "" for what is no label of RFC 1123."""
    return value if isinstance(value, str) and _LABEL.fullmatch(value) else ""


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r:.40} is where a name should be")
    return value

"""What pods ask of a node by ResourceClaims that they name themselves, joined to what they ask by their resources. No I/O, no clock.

A claim that the scheduler makes for a pod's extended resources is not counted: the pod's requests say the same.

Sources: kubernetes/api, resource/v1/types.go (`ResourceClaim`, `DeviceRequest`), core/v1/types.go (`PodResourceClaimStatus`).
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from railnet.gangs.placement.pod_shape import Shape
from railnet.gangs.pod import GangPod
from railnet.gangs.slice_devices import BY_CLAIM, Device
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.objects.pod_name import PodName
from railnet.objects.resource_amounts import Amounts

_OF_THE_SCHEDULER = "resource.kubernetes.io/extended-resource-claim"
_MOST_SHAPES = 1000
_NO_NAME = re.compile(r"[^a-z0-9]+")
ClaimKey = tuple[str, str]  # namespace and name


class DeviceClaim(NamedTuple):
    """A claim.

    Attributes:
        classes: the DeviceClasses that it asks for, each with how many devices.
        held: the devices of this driver that it has.
    """

    namespace: str
    name: str
    classes: tuple[tuple[str, int], ...]
    held: tuple[Device, ...] = ()


def device_claim(document: Mapping[str, Any]) -> DeviceClaim:
    """Read a claim as the API server has it.

    A request of all devices of a node counts as one device, and of a request with alternatives the first counts: the scheduler alone knows more.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: the API server sends no such object.
    """
    metadata = document["metadata"]
    devices = document["spec"].get("devices") or {}
    asks = Counter[str]()
    if (metadata.get("annotations") or {}).get(_OF_THE_SCHEDULER) != "true":
        for device_class, number in _asks(devices.get("requests") or ()):
            asks[device_class] += number
    allocation = (document.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    held = tuple((str(result["pool"]), str(result["device"])) for result in results if result["driver"] == DRIVER)
    return DeviceClaim(str(metadata["namespace"]), str(metadata["name"]), tuple(sorted(asks.items())), held)


def class_of(resource: str) -> str:
    """Return the name of the DeviceClass by which the chart has a resource served, such as `rdma-ib-vf`."""
    return _NO_NAME.sub("-", resource.lower()).strip("-")


def amounts(claim: DeviceClaim, resources: Collection[str]) -> Amounts:
    """Return what a claim takes of its node; nothing if it asks for no class of Railnet's.

    The class `rdma.railnet.io` has any device. If nodes offer several resources, it is not known of which one the device is.
    """
    by_class = {class_of(resource): resource for resource in resources}
    if len(by_class) == 1:
        by_class[DRIVER] = next(iter(by_class.values()))
    taken: Counter[str] = Counter()
    for device_class, number in claim.classes:
        if device_class in by_class:
            taken[by_class[device_class]] += number
        if device_class in by_class or device_class == DRIVER:
            taken[BY_CLAIM] += number
    return taken


class ClaimingPods:
    """Keeps the claims, and the pods that name any. One thread uses it.

    A claim that several pods share counts for the first of them: they all are on one node.

    Attributes:
        is_watched: whether claims are known. Until then, and in a cluster without devices of this driver, they count as nothing.
    """

    def __init__(self) -> None:
        """Begin without claims."""
        self.is_watched = False
        self._claims: dict[ClaimKey, DeviceClaim] = {}
        self._reported: dict[PodName, GangPod] = {}
        self._joined: dict[PodName, GangPod | None] = {}
        self._of: dict[ClaimKey, dict[PodName, None]] = {}  # in the order in which they came
        self._shapes: dict[tuple[Shape, tuple[tuple[str, int], ...]], Shape] = {}

    def change_claim(self, before: DeviceClaim | None, after: DeviceClaim | None) -> Collection[PodName]:
        """Replace a claim by its newer state; None where it was or is not. Return the pods that name it."""
        either = after or before
        if either is None:
            return ()
        key = either.namespace, either.name
        if after is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = after
        return tuple(self._of.get(key, ()))

    def names(self) -> Collection[PodName]:
        """Return all pods that name claims."""
        return tuple(self._reported)

    def replace(
        self, before: GangPod | None, after: GangPod | None, resources: Collection[str]
    ) -> tuple[GangPod | None, GangPod | None, Collection[PodName]]:
        """Replace a reported pod by its newer state; None where it was or is not.

        Returns:
            The pod before and after, with what its claims ask for, and the pods that are to be joined again because they share a claim with it.
            None for a pod that waits, and of which it is not known yet what its claims ask for: it may not be placed without.
        """
        old, sharing = before, set[PodName]()
        if before is not None and before.name in self._reported:
            old = self._joined[before.name]
            if after is None or _named(after) != _named(before):
                sharing = self._forget(before)
        return old, self._joined_pod(after, resources), sharing

    def joined_again(self, name: PodName, resources: Collection[str]) -> tuple[GangPod | None, GangPod | None]:
        """Return a pod as it was joined to its claims last, and as it is now."""
        before = self._joined[name]
        after = self._joined[name] = self._join(self._reported[name], resources)
        return before, after

    def _joined_pod(self, reported: GangPod | None, resources: Collection[str]) -> GangPod | None:
        if reported is None or not (reported.claims or reported.claims_to_come):
            return reported
        self._reported[reported.name] = reported
        for key in _keys(reported):
            self._of.setdefault(key, {})[reported.name] = None
        joined = self._joined[reported.name] = self._join(reported, resources)
        return joined

    def _forget(self, reported: GangPod) -> set[PodName]:
        """Forget a pod; return those that shared claims with it."""
        sharing: set[PodName] = set()
        del self._reported[reported.name], self._joined[reported.name]
        for key in _keys(reported):
            self._of[key].pop(reported.name, None)
            sharing |= self._of[key].keys()
            if not self._of[key]:
                del self._of[key]
        return sharing

    def _join(self, pod: GangPod, resources: Collection[str]) -> GangPod | None:
        if not self.is_watched:
            return pod
        # The claims of a pod of a PodGroup may be made after the PodGroup, which its place comes before.
        waits = pod.gated is not None and not pod.node
        if waits and (pod.claims_to_come or not all(key in self._claims for key in _keys(pod))):
            return None
        taken = Counter[str]()
        for key in _keys(pod):
            if key in self._claims and next(iter(self._of[key])) == pod.name:
                taken.update(amounts(self._claims[key], resources))
        return replace(pod, shape=self._with(pod.shape, taken)) if taken else pod

    def _with(self, shape: Shape, taken: Counter[str]) -> Shape:
        key = shape, tuple(sorted(taken.items()))
        if key not in self._shapes:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            sums = Counter(dict(shape.requests)) + taken
            self._shapes[key] = replace(shape, requests=tuple(sorted(sums.items())))
        return self._shapes[key]


def _named(pod: GangPod) -> tuple[PodName, tuple[str, ...], bool]:
    return pod.name, pod.claims, pod.claims_to_come


def _keys(pod: GangPod) -> Iterator[ClaimKey]:
    return ((pod.name.namespace, claim) for claim in pod.claims)


def _asks(requests: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    for request in requests:
        alternatives = request.get("firstAvailable") or ()
        asked = request.get("exactly") or (alternatives[0] if alternatives else {})
        if not asked.get("deviceClassName") or asked.get("adminAccess"):
            continue
        count = asked.get("count", 1) if asked.get("allocationMode", "ExactCount") == "ExactCount" else 1
        if type(count) is not int or count < 1:
            raise ValueError(f"{count!r:.40} is where a number of devices should be")
        yield str(asked["deviceClassName"]), count

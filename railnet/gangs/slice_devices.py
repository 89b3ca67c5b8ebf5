"""The devices that nodes offer to pods by DRA, counted from ResourceSlices. No I/O, no clock.

The scheduler serves a resource from slices on a node that has none of it in `allocatable`. It takes the devices of a pool only if all slices of
the pool's highest generation are there, and none with a taint of NoSchedule or NoExecute, unless a claim tolerates the taint. So it is counted
here. Of a slice only numbers are kept, and the names of tainted devices: a node may have a thousand devices.

Sources: kubernetes/api, resource/v1/types.go (`ResourceSliceSpec`, `ResourcePool`, `DeviceTaint`); kubernetes/kubernetes,
pkg/scheduler/framework/plugins/noderesources/fit.go.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

from railnet.kubelet.dra_driver_name import DRIVER
from railnet.objects.resource_amounts import Amounts, is_extended

BY_CLAIM: Final = f"{DRIVER}/devices"
"""A resource that only the planner knows: all devices that a node offers to claims. A node of the device plugin has none."""

Device = tuple[str, str]  # pool and device
_RESOURCE = "resource"  # the attribute of a device that names the resource of its pool
_KEEPS_PODS_OFF = ("NoSchedule", "NoExecute")


class PoolSlice(NamedTuple):
    """A slice of this driver, in numbers.

    Attributes:
        slices: how many the pool has, as this slice says.
        healthy: how many devices have no taint that keeps pods off, by resource; the empty text is for devices without one.
        tainted: the others: their names, and their resources.
    """

    node: str
    pool: str
    name: str
    generation: int
    slices: int
    healthy: tuple[tuple[str, int], ...]
    tainted: tuple[tuple[str, str], ...] = ()


class NodeDevices(NamedTuple):
    """The devices of a node by resource, and together by `BY_CLAIM`: those that pods can have now, and those that they can have when all are well."""

    now: Amounts
    at_best: Amounts


_NONE = NodeDevices({}, {})


def pool_slice(document: Mapping[str, Any]) -> PoolSlice | None:
    """Read a slice as the API server has it; None of another driver, or if it is not of one node.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: the API server sends no such object.
    """
    spec = document["spec"]
    node = spec.get("nodeName")
    if spec["driver"] != DRIVER or not node:
        return None
    pool, healthy, tainted = spec["pool"], Counter[str](), []
    for device in spec.get("devices") or ():
        resource = _resource(device)
        if any(taint.get("effect") in _KEEPS_PODS_OFF for taint in device.get("taints") or ()):
            tainted.append((str(device["name"]), resource))
        else:
            healthy[resource] += 1
    return PoolSlice(
        str(node),
        str(pool["name"]),
        str(document["metadata"]["name"]),
        _number(pool["generation"]),
        _number(pool["resourceSliceCount"]),
        tuple(sorted(healthy.items())),
        tuple(tainted),
    )


class SliceDevices:
    """Keeps the slices of all nodes. One thread uses it.

    Attributes:
        resources: those that any node has offered.
    """

    def __init__(self) -> None:
        """Begin without slices."""
        self.resources: frozenset[str] = frozenset()
        self._slices: dict[str, dict[str, PoolSlice]] = {}
        self._of: dict[str, NodeDevices] = {}
        self._held: set[Device] = set()

    def change_slice(self, before: PoolSlice | None, after: PoolSlice | None) -> set[str]:
        """Replace a slice by its newer state; None where it was or is not. Return the nodes that may have other devices now."""
        nodes = {part.node for part in (before, after) if part is not None}
        if before is not None:
            self._slices.setdefault(before.node, {}).pop(before.name, None)
        if after is not None:
            self._slices.setdefault(after.node, {})[after.name] = after
        for node in nodes:
            self._count(node)
        return nodes

    def change_held(self, before: Iterable[Device], after: Iterable[Device]) -> set[str]:
        """Take in which devices a claim has, and had. Return the nodes that may have other devices now.

        A pod keeps a device that gets a taint. It counts as used, so it also counts as one that the node has.
        """
        changed = {*before} ^ {*after}
        self._held.difference_update(before)
        self._held.update(after)
        pools = {pool for pool, _ in changed}  # a pool of Railnet's has the name of its node
        nodes = {pool for pool in pools if any(part.tainted for part in self._slices.get(pool, {}).values())}
        for node in nodes:
            self._count(node)
        return nodes

    def of(self, node: str) -> NodeDevices:
        """Return the devices of a node. After its slices have gone, `at_best` stays: kubelet deletes them when it starts."""
        return self._of.get(node, _NONE)

    def forget(self, node: str) -> None:
        """Forget the devices of a node that is gone and has no slices."""
        if not self._slices.get(node):
            self._slices.pop(node, None)
            self._of.pop(node, None)

    def _count(self, node: str) -> None:
        now: Counter[str] = Counter()
        best: Counter[str] = Counter()
        pools = (pool for pool in newest(self._slices[node].values()) if is_complete(pool))
        for part in chain.from_iterable(pools):
            now.update(dict(part.healthy))
            now.update(resource for device, resource in part.tainted if (part.pool, device) in self._held)
            best.update(dict(part.healthy))
            best.update(resource for _, resource in part.tainted)
        at_best = _by_resource(best) if best else self.of(node).at_best
        self._of[node] = NodeDevices(_by_resource(now), at_best)
        self.resources |= {resource for resource in at_best if resource != BY_CLAIM}


def newest(slices: Iterable[PoolSlice]) -> list[list[PoolSlice]]:
    """Return, of each pool, the slices of its highest generation."""
    pools: dict[tuple[str, str], list[PoolSlice]] = {}
    for part in slices:
        known = pools.setdefault((part.node, part.pool), [])
        if known and part.generation > known[0].generation:
            known.clear()
        if not known or part.generation == known[0].generation:
            known.append(part)
    return list(pools.values())


def is_complete(pool: Collection[PoolSlice]) -> bool:
    """Return whether all slices of a pool are there, of those of one generation."""
    return all(part.slices == len(pool) for part in pool)


def with_devices(allocatable: Amounts, devices: Amounts) -> dict[str, int]:
    """Return what a node has: of a resource of which `allocatable` has any, the scheduler takes no device of a slice."""
    return {**allocatable, **devices, **{resource: amount for resource, amount in allocatable.items() if amount > 0}}


def _by_resource(devices: Counter[str]) -> dict[str, int]:
    """Return the amounts by resource. A name without a domain is none that a device can have: a slice cannot make up `cpu`."""
    amounts = {resource: number for resource, number in devices.items() if is_extended(resource) and number > 0}
    total = devices.total()
    return {**amounts, BY_CLAIM: total} if total else amounts


def _number(written: object) -> int:
    if type(written) is not int:
        raise TypeError(f"{written!r:.40} is where a whole number should be")
    return written


def _resource(device: Mapping[str, Any]) -> str:
    attributes = device.get("attributes") or {}
    value = attributes.get(_RESOURCE) or attributes.get(f"{DRIVER}/{_RESOURCE}") or {}
    return str(value.get("string") or "")

"""Keeps what the watches have reported: all pods that hold something or wait, by gang, and the planner's cluster, which is kept up with them.

One thread uses it.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from railnet.gangs.device_claims import ClaimingPods, DeviceClaim
from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import GangKey
from railnet.gangs.placement.node import Node
from railnet.gangs.pod import GangPod
from railnet.gangs.slice_devices import NodeDevices, PoolSlice, SliceDevices, with_devices
from railnet.objects.pod_name import PodName


class ObservedState:
    """The cluster as the watches have reported it.

    Attributes:
        cluster: nodes, and what pods hold of them.
        changed: the gangs of which a pod has changed; the reader takes them out.
        without_gang: pods behind the gate that are of no gang, or whose gang cannot be read.
        off: the namespaces in which gangs are switched off.
    """

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.changed: set[GangKey] = set()
        self.without_gang: dict[PodName, GangPod] = {}
        self.off: set[str] = set()
        self._nodes: dict[str, Node] = {}  # as reported, without devices of slices
        self._devices = SliceDevices()
        self._claiming = ClaimingPods()
        self._gangs: dict[GangKey, dict[str, GangPod]] = {}
        self._named: dict[PodName, GangPod] = {}  # those of gangs, and `without_gang`

    def of(self, key: GangKey) -> Iterable[GangPod]:
        """Return the pods of a gang."""
        return self._gangs.get(key, {}).values()

    def named(self, name: PodName) -> GangPod | None:
        """Return a pod of a gang, or one behind the gate; None if it is gone."""
        return self._named.get(name)

    def gangs(self) -> Collection[GangKey]:
        """Return all gangs."""
        return self._gangs.keys()

    def change_pod(self, before: GangPod | None, after: GangPod | None) -> None:
        """Replace a pod by its newer state; None where it was or is not."""
        old, new, sharing = self._claiming.replace(before, after, self._devices.resources)
        self._replace(old, new)
        self._join_again(sharing)

    def change_node(self, before: Node | None, after: Node | None) -> None:
        """Replace a node by its newer state; None where it was or is not."""
        if after is not None:
            self._nodes[after.name] = after
            self._set_nodes((after.name,))
        elif before is not None:
            self._nodes.pop(before.name, None)
            self._devices.forget(before.name)
            self.cluster.remove_node(before.name)

    def change_slice(self, before: PoolSlice | None, after: PoolSlice | None) -> None:
        """Replace a ResourceSlice by its newer state; None where it was or is not."""
        resources = self._devices.resources
        self._set_nodes(self._devices.change_slice(before, after))
        if self._devices.resources != resources:
            self._join_again(self._claiming.names())

    def change_claim(self, before: DeviceClaim | None, after: DeviceClaim | None) -> None:
        """Replace a ResourceClaim by its newer state; None where it was or is not."""
        held = [() if claim is None else claim.held for claim in (before, after)]
        self._set_nodes(self._devices.change_held(*held))
        self._join_again(self._claiming.change_claim(before, after))

    def claims_listed(self) -> None:
        """Take in that all ResourceClaims are known: pods that wait for one that is not there are not placed from now on."""
        self._claiming.is_watched = True
        self._join_again(self._claiming.names())

    def switch(self, namespace: str, *, off: bool) -> None:
        """Take in that gangs of a namespace are switched off, or on again."""
        (self.off.add if off else self.off.discard)(namespace)
        self.changed |= {key for key in self._gangs if key[0] == namespace}

    def _set_nodes(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._nodes:
                self.cluster.set_node(_with_devices(self._nodes[name], self._devices.of(name)))
            else:
                self._devices.forget(name)

    def _join_again(self, names: Iterable[PodName]) -> None:
        for name in names:
            before, after = self._claiming.joined_again(name, self._devices.resources)
            if before != after:
                self._replace(before, after)

    def _replace(self, before: GangPod | None, after: GangPod | None) -> None:
        if before is not None:
            self._remove(before, after)
        if after is not None:
            self._add(before, after)

    def _remove(self, before: GangPod, after: GangPod | None) -> None:
        if before.node and (after is None or not after.node):
            self.cluster.release(before.name[:2])
        self.without_gang.pop(before.name, None)
        self._named.pop(before.name, None)
        key = _key(before)
        if key is not None:
            gang = self._gangs[key]
            del gang[before.name.name]
            if not gang:
                del self._gangs[key]
            self.changed.add(key)

    def _add(self, before: GangPod | None, after: GangPod) -> None:
        key = _key(after)
        if after.node:
            self.cluster.hold(after.name[:2], after.node, after.shape, stays=after.stays, plain=key is None)
        elif key is not None and after.gated is not None and before is not None and before.shape != after.shape:
            self.cluster.unreserve(key)  # what was reserved for it may not be what it asks for now
        if key is not None:
            self._gangs.setdefault(key, {})[after.name.name] = after
            self.changed.add(key)
        elif after.gated is not None:
            self.without_gang[after.name] = after
        else:
            return
        self._named[after.name] = after


def _key(pod: GangPod) -> GangKey | None:
    return None if pod.request is None else (pod.name.namespace, pod.request.name)


def _with_devices(node: Node, devices: NodeDevices) -> Node:
    """Return a node with the devices of its slices."""
    if not devices.at_best:
        return node
    best = {resource: max(amount, node.at_best.get(resource, 0)) for resource, amount in devices.at_best.items()}
    return replace(
        node,
        allocatable=with_devices(node.allocatable, devices.now),
        at_best={**node.allocatable, **node.at_best, **best},
    )

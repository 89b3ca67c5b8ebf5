"""A scheduler for pods and nodes in memory: it knows selectors, resources, nominations and PodGroups, as far as these tests need them.

Pods of one PodGroup are bound together: so many as start together, or none; all in one domain of its label, and the node for which a pod is
nominated is tried first. Nothing is preempted.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from railnet.gangs.placement.free_capacity import FreeCapacity
from railnet.gangs.placement.node import Node, node
from railnet.gangs.placement.pod_shape import shape
from railnet.jobs.gang.engine import named_pod_group
from railnet.objects.pod_phase import ENDED, phase

JsonObject = dict[str, Any]
Rooms = Mapping[str, FreeCapacity]


def chosen_nodes(
    nodes: Iterable[JsonObject], pods: Sequence[JsonObject], groups: Mapping[str, JsonObject]
) -> dict[str, str | None]:
    """Return the node of each pod that is looked at, by name: None for one that is unschedulable. One that waits for something is left out."""
    cycle = _Cycle({one["metadata"]["name"]: node(one) for one in nodes}, pods, groups)
    pending = [pod for pod in pods if not _node_of(pod) and not pod["spec"].get("schedulingGates")]
    for pod in pending:
        if _name(pod) not in cycle.chosen:
            cycle.look_at(pod, pending)
    return cycle.chosen


class _Cycle:
    """What there is room for, while pods are bound one after the other."""

    def __init__(self, nodes: Mapping[str, Node], pods: Sequence[JsonObject], groups: Mapping[str, JsonObject]) -> None:
        self._nodes, self._pods, self._groups = nodes, pods, groups
        self.chosen: dict[str, str | None] = {}
        self._rooms = {name: FreeCapacity(of.allocatable) for name, of in nodes.items()}
        for pod in pods:
            if _node_of(pod) in self._rooms and phase(pod) not in ENDED:
                self._rooms[_node_of(pod)].take(shape(pod["spec"]))

    def look_at(self, pod: JsonObject, pending: Sequence[JsonObject]) -> None:
        name = named_pod_group(pod["spec"])
        if not name:
            self._bind_each([pod])
        elif name in self._groups:
            policy = self._groups[name]["spec"]["schedulingPolicy"]
            members = [other for other in pending if named_pod_group(other["spec"]) == name]
            if "gang" in policy:
                self._bind_whole(name, policy["gang"]["minCount"], members)
            else:
                self._bind_each(members)

    def _bind_each(self, pods: Sequence[JsonObject]) -> None:
        for pod in pods:
            rooms = self._rooms_without_nominated([pod])
            self._bind([pod], _seats([pod], self._nodes, rooms))

    def _bind_whole(self, name: str, least: int, members: Sequence[JsonObject]) -> None:
        bound = [pod for pod in self._pods if named_pod_group(pod["spec"]) == name and _node_of(pod)]
        bound = [pod for pod in bound if "deletionTimestamp" not in pod["metadata"]]
        if len(members) + len(bound) < least:
            return
        rooms = self._rooms_without_nominated(members)
        for nodes in self._domains(name, {_node_of(pod) for pod in bound}):
            seats = _seats(members, nodes, {at: room.copy() for at, room in rooms.items()})
            if len(seats) + len(bound) >= least and seats:
                self._bind(members, seats)
                return
        self._bind(members, {})

    def _domains(self, name: str, used: set[str]) -> list[dict[str, Node]]:
        """Return the nodes of each domain of a PodGroup; of one that has pods with nodes, those of their domain alone."""
        topology = self._groups[name]["spec"].get("schedulingConstraints", {}).get("topology", [])
        if not topology:
            return [dict(self._nodes)]
        domains: defaultdict[str, dict[str, Node]] = defaultdict(dict)
        for at, of in self._nodes.items():
            if topology[0]["key"] in of.labels:
                domains[of.labels[topology[0]["key"]]][at] = of
        return [nodes for _, nodes in sorted(domains.items()) if not used or used & nodes.keys()]

    def _rooms_without_nominated(self, pods: Sequence[JsonObject]) -> dict[str, FreeCapacity]:
        """Return the room for some pods: without that of others for which it is kept."""
        rooms = {at: room.copy() for at, room in self._rooms.items()}
        own, least = {_name(pod) for pod in pods}, min(pod["spec"]["priority"] for pod in pods)
        for other in self._pods:
            at = other["status"].get("nominatedNodeName")
            waits = not _node_of(other) and _name(other) not in own and self.chosen.get(_name(other)) is None
            if waits and at in rooms and other["spec"]["priority"] >= least:
                rooms[at].take(shape(other["spec"]))
        return rooms

    def _bind(self, pods: Iterable[JsonObject], seats: Mapping[str, str]) -> None:
        for pod in pods:
            at = self.chosen[_name(pod)] = seats.get(_name(pod))
            if at is not None:
                self._rooms[at].take(shape(pod["spec"]))


def _seats(pods: Iterable[JsonObject], nodes: Mapping[str, Node], rooms: Rooms) -> dict[str, str]:
    """Return a node for each pod that fits, among some nodes; what is given is taken from the room."""
    seats: dict[str, str] = {}
    for pod in pods:
        asks, nominated = shape(pod["spec"]), pod["status"].get("nominatedNodeName")
        order = sorted(nodes, key=lambda at: (at != nominated, at))
        fits = (at for at in order if asks.may_be_on(at, nodes[at].labels) and rooms[at].slots(asks))
        at = next(fits, None)
        if at is not None:
            rooms[at].take(asks)
            seats[_name(pod)] = at
    return seats


def _name(pod: JsonObject) -> str:
    name: str = pod["metadata"]["name"]
    return name


def _node_of(pod: JsonObject) -> str:
    return pod["spec"].get("nodeName") or ""

"""The facts that `railnet doctor --pod` looks at: a pod, and what the cluster says of it, at one moment. Objects are as the API server sends them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from railnet.doctor.dra_checks import ClaimOfPod
from railnet.doctor.facts import Unread
from railnet.gangs.slice_devices import PoolSlice

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodFacts:
    """All facts. None is for what was not asked, or could not be: `unread` says why.

    Attributes:
        rails: the resources whose devices are VFs of rails.
        webhook: whether the admission helper's webhook exists.
        events: those about the pod, the oldest first.
        gang_events: those that say what a gang of the namespace waits for.
        nodes: all nodes, for a pod that waits for one.
        node: the node of a pod that has one.
        daemons: Railnet's pods on that node.
        claims: those that the pod names itself.
        neighbours: the pods of the namespace, for a pod that has rails: those of its job are among them.
        reach: by two rails, whether they reach each other, as `railnet validate` has found; rails that are not there are not known.
        slices: what nodes offer by DRA, for a pod that waits for a node; none also where the API server has no slices.
    """

    pod: JsonObject
    rails: frozenset[str]
    namespace: JsonObject | None = None
    webhook: bool | None = None
    events: tuple[JsonObject, ...] | None = None
    gang_events: tuple[JsonObject, ...] | None = None
    nodes: tuple[JsonObject, ...] | None = None
    node: JsonObject | None = None
    daemons: tuple[JsonObject, ...] | None = None
    neighbours: tuple[JsonObject, ...] | None = None
    reach: Mapping[frozenset[int], bool] = field(default_factory=dict)
    claims: tuple[ClaimOfPod, ...] = ()
    slices: tuple[PoolSlice, ...] = ()
    unread: tuple[Unread, ...] = ()

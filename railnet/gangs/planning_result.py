"""The result of a pass over all gangs: what is written to pods, and events; and what became of the writes of earlier passes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from railnet.gangs.gate_removal_patch import Gated
from railnet.gangs.placement.gang import GangKey
from railnet.gangs.placement_annotation import Placed
from railnet.gangs.pod_group import Grouped, PodGroup
from railnet.gangs.pod_templates import PodTemplate
from railnet.jobs.eviction_tolerance import UNREAD, Tolerance
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.owner_reference import OwnerReference
from railnet.objects.pod_name import PodName


class Asked(NamedTuple):
    """The owner of a gang's pod."""

    namespace: str
    owner: OwnerReference


class Root(NamedTuple):
    """The last of a gang's owners.

    Attributes:
        templates: what the highest owner with templates makes; empty if that is unknown.
        tolerance: what an eviction of the pods means for the owners.
        stages: what its later pods wait for, if an owner creates them in stages; see `staged_creation`. Empty if none does.
    """

    owner: OwnerReference
    templates: tuple[PodTemplate, ...]
    tolerance: Tolerance = Tolerance(UNREAD, unread=True)
    stages: str = ""


class Admit(NamedTuple):
    """Give a pod its place: remove its gate, or tell one that waits for a PodGroup.

    Attributes:
        placed: None for a pod that is of no gang any more.
        host: the host name of the node that it should have; empty for any.
        nominates: whether the pod is nominated for that node before.
    """

    gated: Gated | Grouped
    placed: Placed | None
    host: str = ""
    nominates: bool = True


class Withdraw(NamedTuple):
    """Take back the nomination of a pod that waits: the scheduler keeps room for it on a node that is not its place any more."""


class Recall(NamedTuple):
    """Take back what a pod was told of its place: its PodGroup does not exist yet, and the place is lost."""


class Annotate(NamedTuple):
    """Write the placement of a pod again: its gang is being evicted, or all members have existed and no room is kept for them any more."""

    placed: Placed


class Evict(NamedTuple):
    """Evict a pod."""


Write = Admit | Withdraw | Recall | Annotate | Evict


class WriteOutcome(NamedTuple):
    """The outcome of a write.

    Attributes:
        refusal: what the API server said; empty if the write is done.
        waits: whether the write is sent again.
        forbidden: whether a right is missing.
    """

    pod: PodName
    write: Write
    refusal: str = ""
    waits: bool = False
    forbidden: bool = False


class About(NamedTuple):
    """The object that an event is about: the one that the pod's owner began with; the pod if it has no owner."""

    pod: InvolvedObject
    owner: Asked | None


class Said(NamedTuple):
    """One event. `reason` is one word in UpperCamelCase."""

    about: About
    reason: str
    text: str
    type: Literal["Normal", "Warning"] = "Normal"


class GangFailure(NamedTuple):
    """A gang that stays as it is, because a step for it has failed; `pause` is until the next try, in seconds."""

    gang: GangKey
    error: Exception
    pause: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Everything that a pass decides.

    Attributes:
        writes: the pods that are to be written.
        groups: the PodGroups that are to be created; None: to be deleted.
        said: events.
        asked_again: owners whose objects are to be read once more: a job may have been scaled.
        impossible: errors of Railnet itself that are for its log: what happened to gangs that the table of their life does not have.
        failures: errors of Railnet itself in the steps for some gangs.
        again: the seconds after which to decide again although nothing has changed; None: never.
        waiting: how many gangs have pods that wait for a place.
        placed: how many gangs have a place; `failed` of how many the last try has failed, which are none of these.
    """

    writes: Mapping[PodName, Write] = field(default_factory=dict)
    groups: Mapping[GangKey, PodGroup | None] = field(default_factory=dict)
    said: tuple[Said, ...] = ()
    asked_again: tuple[Asked, ...] = ()
    impossible: tuple[str, ...] = ()
    failures: tuple[GangFailure, ...] = ()
    again: float | None = None
    waiting: int = 0
    placed: int = 0
    failed: int = 0

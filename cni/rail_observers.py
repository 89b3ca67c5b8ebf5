"""The daemon reports these events of rails to other parts of the program: attached, refused, reclaimed, lost and back.

Here are the events and the types of the functions that receive them. Publishing them is `railnet.daemon.network_status_and_events`'s, counting
them `railnet.daemon.metrics`'s.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cni.host.errors import CniError
from railnet.vf.record import Record, SandboxPod


@dataclass(frozen=True, slots=True)
class RailsAttached:
    """An ADD attached rails to a pod, and the runtime has its answer.

    `result` is the primary network's result, byte for byte. `static` as `Request.static` has it.
    """

    record: Record
    result: bytes
    static: bool


@dataclass(frozen=True, slots=True)
class AddRefused:
    """An ADD of a pod with rails failed: nothing of this ADD is left, and the runtime has the error."""

    pod: SandboxPod
    error: CniError


@dataclass(frozen=True, slots=True)
class RailChanged:
    """A rail of the node began (`warning`) or ceased to count as not ACTIVE or to have errors, or a pod has lost its rail. `reason` is one word, `text` names the rail.

    `pods` have a VF of the rail, or had it.
    """

    reason: str
    text: str
    warning: bool
    pods: tuple[SandboxPod, ...]


Observer = Callable[[RailsAttached | AddRefused | RailChanged], None]  # must not block, and must not raise
# Takes the kind of a leaked resource that was reclaimed, one of a few words. Called from any thread; must not block or raise.
TookBack = Callable[[str], None]


def ignore(_event: RailsAttached | AddRefused | RailChanged) -> None:
    """Observe nothing."""


def count_nothing(_kind: str) -> None:
    """Count nothing."""

"""What came of an ADD with rails, for whoever wants to tell others. Told after the runtime has its answer."""

from collections.abc import Callable
from dataclasses import dataclass

from cni.host.errors import CniError
from vf.record import Pod, Record


@dataclass(frozen=True, slots=True)
class Attached:
    """The pod has its rails; `result` is the primary's, byte for byte. `static` pods are kubelet's own (`Request.static`)."""

    record: Record
    result: bytes
    static: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod was given rails by kubelet and has none: nothing of this ADD is left."""

    pod: Pod
    error: CniError


# What nobody had any more is back: what kind of thing, one of a few words. Must not block, and not raise; from any thread.
TookBack = Callable[[str], None]
Observer = Callable[[Attached | Refused], None]  # must not block, and not raise


def ignore(_outcome: Attached | Refused) -> None:
    """Tell nobody."""


def count_nothing(_kind: str) -> None:
    """Tell nobody."""

"""The rules of recovery as tables: for a state of a record and a state of its namespace the action, with its reason. Pure.

The states are observed in `cni.recovery.namespace_observation`, and the actions are done in `cni.recovery.sweep`. A row that
is missing is a KeyError; a test proves that none is.
"""

from enum import Enum
from typing import NamedTuple

from railnet.vf.record import Record


class RecordState(Enum):
    """A record says this of its sandbox: the stage, and what is still to be done."""

    PLANNED = "ADD has begun and is not confirmed"
    ATTACHED = "ADD is confirmed"
    DETACHING = "taking back has begun and is not finished"
    UNNAMED = "rebuilt from the kernel, and the runtime's name of the container is not known"
    UNNAMED_DETACHING = "as UNNAMED, and taking back has begun"
    RETURNED = "all VFs are back, and no address waits for its release"
    AWAITS_IPAM = "all VFs are back, and the IPAM plugin has not released their addresses"


class NamespaceState(Enum):
    """The kernel shows this of a sandbox's network namespace."""

    ALIVE = "it is at its recorded path"
    MOVED = "it is not at its recorded path, and a VF of the sandbox is in it at another path"
    GONE = "it is not at its recorded path, and no VF of the sandbox is in it"
    OLDER_BOOT = "it was made before the present boot, so it is gone"
    UNKNOWN = "the kernel did not answer"


class GcState(Enum):
    """The runtime's GC request says this of a record."""

    LISTED = "the runtime lists the attachment"
    UNLISTED = "the runtime does not list it, and it is older than an ADD may take"
    UNLISTED_YOUNG = "the runtime does not list it, and its ADD may have begun after the runtime made its list"
    UNLISTED_UNNAMED = "the runtime cannot list it, since its own name of the container is not known"


class RecoveryAction(Enum):
    """Recovery does this with a record."""

    LEAVE = "do nothing"
    TRY_AGAIN = "report the kernel's error; the next sweep or GC tries again"
    FOLLOW = "write the namespace's new path to the record"
    FREE_RETURNED = "release the VFs whose netdevs are back on the node; leave the others"
    FREE_RETURNED_THEN_TAKE_BACK = (
        "release the VFs whose netdevs are back on the node; take back the others; keep the record"
    )
    TAKE_BACK = "take back the VFs; keep the record"
    TAKE_BACK_AND_FORGET = "take back the VFs; remove the record, unless addresses wait for their release"
    FORGET = "remove the record"
    RELEASE_IPAM = "run the IPAM plugin's DEL, then remove the record"
    TAKE_BACK_WHOLLY = "take back the VFs, run the IPAM plugin's DEL, then remove the record"


class RecoveryRule(NamedTuple):
    """One row: what is done, and why."""

    action: RecoveryAction
    reason: str


_ENDED = "no process is left that could use the VFs"
_MOVED = "the sandbox is alive: its VFs stay, and CHECK and DEL must find its namespace"
_UNKNOWN = "without the kernel's answer the sandbox may be alive"
_NO_ADD = "the sandbox's lock is free, so no request works on it: the ADD or DEL that began has died"
_NEEDS_DEL = f"{_NO_ADD}; the runtime's DEL will need the recorded primary"

_R, _N, _A = RecordState, NamespaceState, RecoveryAction
SWEEP = {
    (_R.PLANNED, _N.ALIVE): RecoveryRule(_A.TAKE_BACK, _NEEDS_DEL),
    (_R.PLANNED, _N.MOVED): RecoveryRule(_A.FOLLOW, _MOVED),
    (_R.PLANNED, _N.GONE): RecoveryRule(_A.TAKE_BACK_AND_FORGET, _ENDED),
    (_R.PLANNED, _N.OLDER_BOOT): RecoveryRule(_A.TAKE_BACK_AND_FORGET, _ENDED),
    (_R.PLANNED, _N.UNKNOWN): RecoveryRule(_A.TRY_AGAIN, _UNKNOWN),
    (_R.ATTACHED, _N.ALIVE): RecoveryRule(_A.LEAVE, "the sandbox is in use"),
    (_R.ATTACHED, _N.MOVED): RecoveryRule(_A.FOLLOW, _MOVED),
    (_R.ATTACHED, _N.GONE): RecoveryRule(_A.TAKE_BACK_AND_FORGET, _ENDED),
    (_R.ATTACHED, _N.OLDER_BOOT): RecoveryRule(_A.TAKE_BACK_AND_FORGET, _ENDED),
    (_R.ATTACHED, _N.UNKNOWN): RecoveryRule(_A.TRY_AGAIN, _UNKNOWN),
    (_R.DETACHING, _N.ALIVE): RecoveryRule(_A.TAKE_BACK, _NEEDS_DEL),
    (_R.DETACHING, _N.MOVED): RecoveryRule(_A.FOLLOW, _MOVED),
    (_R.DETACHING, _N.GONE): RecoveryRule(_A.TAKE_BACK_AND_FORGET, _ENDED),
    (_R.DETACHING, _N.OLDER_BOOT): RecoveryRule(_A.TAKE_BACK_AND_FORGET, _ENDED),
    (_R.DETACHING, _N.UNKNOWN): RecoveryRule(_A.TRY_AGAIN, _UNKNOWN),
    (_R.UNNAMED, _N.ALIVE): RecoveryRule(
        _A.FREE_RETURNED, "the runtime's DEL will not name this record: a VF that is back is free"
    ),
    (_R.UNNAMED, _N.MOVED): RecoveryRule(_A.FOLLOW, _MOVED),
    (_R.UNNAMED, _N.GONE): RecoveryRule(_A.TAKE_BACK_AND_FORGET, _ENDED),
    (_R.UNNAMED, _N.OLDER_BOOT): RecoveryRule(_A.TAKE_BACK_AND_FORGET, _ENDED),
    (_R.UNNAMED, _N.UNKNOWN): RecoveryRule(_A.TRY_AGAIN, _UNKNOWN),
    (_R.UNNAMED_DETACHING, _N.ALIVE): RecoveryRule(
        _A.FREE_RETURNED_THEN_TAKE_BACK, "the DEL that found its namespace has died"
    ),
    (_R.UNNAMED_DETACHING, _N.MOVED): RecoveryRule(_A.FOLLOW, _MOVED),
    (_R.UNNAMED_DETACHING, _N.GONE): RecoveryRule(_A.TAKE_BACK_AND_FORGET, _ENDED),
    (_R.UNNAMED_DETACHING, _N.OLDER_BOOT): RecoveryRule(_A.TAKE_BACK_AND_FORGET, _ENDED),
    (_R.UNNAMED_DETACHING, _N.UNKNOWN): RecoveryRule(_A.TRY_AGAIN, _UNKNOWN),
    (_R.RETURNED, _N.ALIVE): RecoveryRule(_A.LEAVE, "the runtime's DEL will need the recorded primary"),
    (_R.RETURNED, _N.MOVED): RecoveryRule(
        _A.LEAVE, "it has no VF by which its namespace could be found at another path"
    ),
    (_R.RETURNED, _N.GONE): RecoveryRule(_A.FORGET, "the runtime's DEL works without a record, too"),
    (_R.RETURNED, _N.OLDER_BOOT): RecoveryRule(_A.FORGET, "the runtime's DEL works without a record, too"),
    (_R.RETURNED, _N.UNKNOWN): RecoveryRule(_A.TRY_AGAIN, _UNKNOWN),
    (_R.AWAITS_IPAM, _N.ALIVE): RecoveryRule(
        _A.LEAVE, "the runtime's DEL runs the IPAM plugin, and the recorded primary"
    ),
    (_R.AWAITS_IPAM, _N.MOVED): RecoveryRule(
        _A.LEAVE, "it has no VF by which its namespace could be found at another path"
    ),
    (_R.AWAITS_IPAM, _N.GONE): RecoveryRule(_A.RELEASE_IPAM, "the runtime may send no DEL any more"),
    (_R.AWAITS_IPAM, _N.OLDER_BOOT): RecoveryRule(_A.RELEASE_IPAM, "the runtime may send no DEL any more"),
    (_R.AWAITS_IPAM, _N.UNKNOWN): RecoveryRule(_A.TRY_AGAIN, _UNKNOWN),
}

_G = GcState
_YOUNG = "its ADD may have begun after the runtime made its list"
_UNNAMEABLE = "the runtime's list cannot name it, so only its namespace tells whether it is alive"
_NOT_LISTED = "the runtime does not have the sandbox any more, whatever keeps its namespace"
GC = {
    (_G.LISTED, _N.ALIVE): RecoveryRule(_A.LEAVE, "the runtime has the sandbox"),
    (_G.LISTED, _N.MOVED): RecoveryRule(_A.LEAVE, "the runtime has the sandbox"),
    (_G.LISTED, _N.GONE): RecoveryRule(_A.LEAVE, "the runtime will send its DEL; if not, the sweep takes it back"),
    (_G.LISTED, _N.OLDER_BOOT): RecoveryRule(
        _A.LEAVE, "the runtime will send its DEL; if not, the sweep takes it back"
    ),
    (_G.LISTED, _N.UNKNOWN): RecoveryRule(_A.LEAVE, "the runtime has the sandbox"),
    (_G.UNLISTED, _N.ALIVE): RecoveryRule(_A.TAKE_BACK_WHOLLY, _NOT_LISTED),
    (_G.UNLISTED, _N.MOVED): RecoveryRule(_A.TAKE_BACK_WHOLLY, _NOT_LISTED),
    (_G.UNLISTED, _N.GONE): RecoveryRule(_A.TAKE_BACK_WHOLLY, _NOT_LISTED),
    (_G.UNLISTED, _N.OLDER_BOOT): RecoveryRule(_A.TAKE_BACK_WHOLLY, _NOT_LISTED),
    (_G.UNLISTED, _N.UNKNOWN): RecoveryRule(_A.TAKE_BACK_WHOLLY, _NOT_LISTED),
    (_G.UNLISTED_YOUNG, _N.ALIVE): RecoveryRule(_A.LEAVE, _YOUNG),
    (_G.UNLISTED_YOUNG, _N.MOVED): RecoveryRule(_A.LEAVE, _YOUNG),
    (_G.UNLISTED_YOUNG, _N.GONE): RecoveryRule(_A.TAKE_BACK_WHOLLY, _ENDED),
    (_G.UNLISTED_YOUNG, _N.OLDER_BOOT): RecoveryRule(_A.TAKE_BACK_WHOLLY, _ENDED),
    (_G.UNLISTED_YOUNG, _N.UNKNOWN): RecoveryRule(_A.TRY_AGAIN, _UNKNOWN),
    (_G.UNLISTED_UNNAMED, _N.ALIVE): RecoveryRule(_A.LEAVE, _UNNAMEABLE),
    (_G.UNLISTED_UNNAMED, _N.MOVED): RecoveryRule(_A.LEAVE, _UNNAMEABLE),
    (_G.UNLISTED_UNNAMED, _N.GONE): RecoveryRule(_A.TAKE_BACK_WHOLLY, _ENDED),
    (_G.UNLISTED_UNNAMED, _N.OLDER_BOOT): RecoveryRule(_A.TAKE_BACK_WHOLLY, _ENDED),
    (_G.UNLISTED_UNNAMED, _N.UNKNOWN): RecoveryRule(_A.TRY_AGAIN, _UNKNOWN),
}


def record_state(record: Record) -> RecordState:
    """Return the state of a record."""
    if not record.attachments:
        return RecordState.RETURNED if record.ipam is None else RecordState.AWAITS_IPAM
    if not record.named:
        return RecordState.UNNAMED if record.stage == "attached" else RecordState.UNNAMED_DETACHING
    return RecordState[record.stage.upper()]


def gc_state(record: Record, valid: frozenset[str], age: float, younger_than: float) -> GcState:
    """Return what a GC request with the list `valid` says of a record that was written `age` seconds ago."""
    if record.key in valid:
        return GcState.LISTED
    if not record.named:
        return GcState.UNLISTED_UNNAMED
    return GcState.UNLISTED_YOUNG if age < younger_than else GcState.UNLISTED

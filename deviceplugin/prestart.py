"""The last check before a container starts: its VFs are attached to its own pod's sandbox.

Pure. Kubelet asks (PreStartContainer) after CNI ADD and before each container start, with device ids only. Whatever went
wrong before, a container that asked for a rail does not start without it. Not here: attaching.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vf.address import PciAddress
from vf.table import Owner

Attached = Callable[[PciAddress], Owner | None]
"""Who has a VF attached: the owner of a finished attachment, None for a free VF and for one claimed but not yet attached."""


class Holders(NamedTuple):
    """The pods kubelet's checkpoint lists for one device; `known` is off where the checkpoint cannot be read."""

    known: bool
    pod_uids: frozenset[str] = frozenset()


def refusal(ids: Sequence[str], attached: Attached, holders: Mapping[str, Holders]) -> str | None:
    """Return why the container must not start, and what to do; None if it may."""
    return next((words for device in ids if (words := _refusal(device, attached, holders[device]))), None)


def _refusal(device: str, attached: Attached, holders: Holders) -> str | None:
    try:
        owner = attached(PciAddress.parse(device))
    except ValueError as error:
        return f"device {device!r} is not one of Railnet's: {error}"
    if owner is None:
        return (
            f"VF {device} is not attached to a pod: the sandbox was set up without Railnet, so check that its plugin "
            "configuration is the first in the CNI folder, then delete the pod (a pod on the host network cannot have one)"
        )
    # A runtime that tells CNI no pod UID leaves the owner's empty: then being attached is all that can be known.
    if holders.known and owner.pod_uid and owner.pod_uid not in holders.pod_uids:
        return (
            f"VF {device} is attached to sandbox {owner.container_id} of pod UID {owner.pod_uid}, but kubelet gave it to "
            f"{', '.join(sorted(holders.pod_uids)) or 'no pod'}: wait for that sandbox's removal, or delete this pod"
        )
    return None

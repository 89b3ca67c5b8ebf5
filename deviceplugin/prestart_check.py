"""The last check before a container starts (PreStartContainer): its VFs are attached to its own pod's sandbox.

Pure. Kubelet calls PreStartContainer after CNI ADD and before each start of a container, with device ids only. The check ensures that a
container never starts without the rail that it asked for, after any earlier fault. Not here: attaching (`cni.attachment`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vf.pci_address import PciAddress
from vf.table import Owner

FindAttachedOwner = Callable[[PciAddress], Owner | None]
"""Returns the owner of a VF's finished attachment; None for a free VF, and for a VF that is claimed but not yet attached."""


class Holders(NamedTuple):
    """The pods that kubelet's checkpoint lists for one device; `why_unknown` says why the checkpoint cannot be read."""

    pod_uids: frozenset[str] = frozenset()
    why_unknown: str = ""


def refusal(ids: Sequence[str], attached: FindAttachedOwner, holders: Mapping[str, Holders]) -> str | None:
    """Return why the container must not start, and what to do; None if it may."""
    return next((words for device in ids if (words := _refusal(device, attached, holders[device]))), None)


def _refusal(device: str, attached: FindAttachedOwner, holders: Holders) -> str | None:
    try:
        owner = attached(PciAddress.parse(device))
    except ValueError as error:
        return f"device {device!r} is not one of Railnet's: {error}"
    if owner is None and holders.why_unknown:
        # kubelet lists sidecars, and no init container that ends (pkg/kubelet/apis/podresources/server_v1.go, List).
        return (
            f"VF {device} is not attached to a pod, and kubelet's checkpoint cannot be read: {holders.why_unknown}. Until it can, "
            "Railnet knows no VF that only an init container has: kubelet's pod-resources do not list init containers. Have a "
            "container of the pod that is no init container ask for as many VFs, or make the checkpoint readable (kubelet writes "
            "it again when the next pod gets a device); then delete the pod"
        )
    if owner is None:
        return (
            f"VF {device} is not attached to a pod: the sandbox was set up without Railnet, so check that its plugin "
            "configuration is the first in the CNI folder, then delete the pod (a pod on the host network cannot have one)"
        )
    # If the container runtime passes no pod UID to CNI, the owner's is empty. Then only the attachment itself can be checked.
    if not holders.why_unknown and owner.pod_uid and owner.pod_uid not in holders.pod_uids:
        return (
            f"VF {device} is attached to sandbox {owner.container_id} of pod UID {owner.pod_uid}, but kubelet gave it to "
            f"{', '.join(sorted(holders.pod_uids)) or 'no pod'}: wait for that sandbox's removal, or delete this pod"
        )
    return None

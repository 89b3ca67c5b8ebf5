"""The last check before a container starts (PreStartContainer): its VFs are attached to its own pod's sandbox.

Pure. Kubelet calls PreStartContainer after CNI ADD and before each start of a container, with device ids only. The check ensures that a
container never starts without the rail that it asked for, after any earlier fault. A pod on the host's network has no sandbox to which
CNI could attach a VF: it uses the VF's RDMA device only, which kubelet gave to it. Not here: attaching (`cni.attachment`), and asking
the container runtime which pods are on the host's network (`railnet.kubelet.cri`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import Owner

FindAttachedOwner = Callable[[PciAddress], Owner | None]
"""Returns the owner of a VF's finished attachment; None for a free VF, and for a VF that is claimed but not yet attached."""


class Holders(NamedTuple):
    """The pods that kubelet's checkpoint lists for one device; `why_unknown` says why the checkpoint cannot be read."""

    pod_uids: frozenset[str] = frozenset()
    why_unknown: str = ""


class HostNetworkPods(NamedTuple):
    """The pods that the container runtime has on the host's network; `why_unknown` says why it cannot be asked."""

    pod_uids: frozenset[str] = frozenset()
    why_unknown: str = ""


NOT_ASKED = HostNetworkPods()


def without_attachment(
    ids: Sequence[str], attached: FindAttachedOwner, holders: Mapping[str, Holders]
) -> frozenset[str]:
    """Return the UIDs of the pods that have a VF which is attached to no pod: only on the host's network may they start."""
    return frozenset(
        uid for device in ids if _is_free(device, attached) and (uid := _only_holder(holders[device])) is not None
    )


def refusal(
    ids: Sequence[str],
    attached: FindAttachedOwner,
    holders: Mapping[str, Holders],
    on_host: HostNetworkPods = NOT_ASKED,
) -> str | None:
    """Return why the container must not start, and what to do; None if it may."""
    return next((words for device in ids if (words := _refusal(device, attached, holders[device], on_host))), None)


def _is_free(device: str, attached: FindAttachedOwner) -> bool:
    try:
        return attached(PciAddress.parse(device)) is None
    except ValueError:
        return False


def _only_holder(holders: Holders) -> str | None:
    """Return the pod to which alone kubelet gave a device; None if several have it, as for a moment after a pod's end, or none."""
    if holders.why_unknown or len(holders.pod_uids) != 1:
        return None
    (uid,) = holders.pod_uids
    return uid


def _refusal(device: str, attached: FindAttachedOwner, holders: Holders, on_host: HostNetworkPods) -> str | None:
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
    if owner is None and _only_holder(holders) in on_host.pod_uids:
        return None
    if owner is None:
        unknown = f". Whether the pod is on the host's network is not known: {on_host.why_unknown}" * bool(
            on_host.why_unknown
        )
        return (
            f"VF {device} is not attached to a pod: the sandbox was set up without Railnet, so check that its plugin "
            f"configuration is the first in the CNI folder, then delete the pod{unknown}"
        )
    # If the container runtime passes no pod UID to CNI, the owner's is empty. Then only the attachment itself can be checked.
    if not holders.why_unknown and owner.pod_uid and owner.pod_uid not in holders.pod_uids:
        return (
            f"VF {device} is attached to sandbox {owner.container_id} of pod UID {owner.pod_uid}, but kubelet gave it to "
            f"{', '.join(sorted(holders.pod_uids)) or 'no pod'}: wait for that sandbox's removal, or delete this pod"
        )
    return None

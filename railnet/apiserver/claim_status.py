"""What became of a ResourceClaim's devices, as a patch of the claim's status: interface, addresses and hardware address of each.

Source: kubernetes/api v0.37, resource/v1/types.go (`AllocatedDeviceStatus`, `NetworkDeviceData`; KEP-4817).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from railnet.apiserver.request import ApiObject, Request, apply
from railnet.vf.dra_device_name import device_name
from railnet.vf.record import Attachment

_MOST_IPS = 16  # of one device
_API = "resource.k8s.io/v1"


def of_devices(
    driver: str, pool: str, attachments: Sequence[Attachment], macs: Mapping[str, str], since: datetime
) -> list[dict[str, Any]]:
    """Describe the devices of a claim that are attached to its pod.

    Args:
        driver: the driver that has the devices.
        pool: the pool of the devices: the node's name.
        attachments: the rails that the pod has of this claim.
        macs: hardware addresses by interface name; one that is not known is left out.
        since: when the rails were attached.
    """
    place = {"driver": driver, "pool": pool}
    return [place | _device(attachment, macs.get(attachment.ifname), since) for attachment in attachments]


def _device(attachment: Attachment, mac: str | None, since: datetime) -> dict[str, Any]:
    return {
        "device": device_name(attachment.vf),
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Attached",
                "message": f"VF {attachment.vf} of rail {attachment.rail} is in the pod as {attachment.ifname}",
                "lastTransitionTime": since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        ],
        "networkData": network_data(attachment, mac),
    }


def network_data(attachment: Attachment, mac: str | None) -> dict[str, Any]:
    """Describe a rail as the interface that a pod has; `mac` is its hardware address, None if it is not known."""
    return {
        "interfaceName": attachment.ifname,
        "ips": [str(address) for address in attachment.addresses[:_MOST_IPS]],
        **({} if mac is None else {"hardwareAddress": mac}),
    }


@dataclass(frozen=True, slots=True)
class ClaimStatus:
    """The devices' part of a claim's status, written by server-side apply: other drivers' devices stay.

    Attributes:
        driver: the driver that has the devices, which is the owner of what is applied.
        namespace: the claim's.
        name: the claim's.
        uid: the claim's; another claim of the same name is left alone.
        devices: returns the entries; called when the message is sent, and may block.
    """

    driver: str
    namespace: str
    name: str
    uid: str
    devices: Callable[[], list[dict[str, Any]]]

    def __str__(self) -> str:
        """Name the message in the log."""
        return f"status of the devices of claim {self.namespace}/{self.name}"

    @property
    def key(self) -> Hashable:
        """Only the newest status of a claim counts."""
        return ("claim-status", self.uid)

    def requests(self) -> Sequence[Request]:
        """Apply the entries to the claim, unless it is another claim of the same name."""
        claim = ApiObject(_API, "resourceclaims", self.name, self.namespace, "status")
        body = {
            "apiVersion": _API,
            "kind": "ResourceClaim",
            "metadata": {"name": self.name, "namespace": self.namespace, "uid": self.uid},
            "status": {"devices": self.devices()},
        }
        return (apply(claim, body, self.driver),)

"""A pod's networks in the form of the Network Plumbing Working Group, as a patch of the pod; `railnet.objects.network_status` reads it.

Source: k8snetworkplumbingwg/multi-net-spec v1.3, and its types in k8snetworkplumbingwg/network-attachment-definition-client,
pkg/apis/k8s.cni.cncf.io/v1/types.go.
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from railnet.apiserver.request import ApiObject, Request, json_patch, merge_patch
from railnet.objects.network_status import ANNOTATION, OF_RAILNET
from railnet.vf.record import Attachment, Record, SandboxPod

_MIRROR = "kubernetes.io/config.mirror"
_DEVICE_INFO_VERSION = "1.1.0"
_EVERYWHERE = ("0.0.0.0/0", "::/0")


def of_pod(record: Record, result: bytes, macs: Mapping[str, str]) -> list[dict[str, Any]]:
    """Describe `eth0` by the primary network's result, and each attachment by the record.

    Args:
        record: the pod's record.
        result: the CNI result of the primary network.
        macs: hardware addresses by interface name.

    Raises:
        ValueError: the result is not a CNI result.
    """
    name = record.primary["conf"]["name"]
    return [
        _primary(name, record.ifname, result),
        *(_rail(record.network, attachment, macs) for attachment in record.attachments),
    ]


def _primary(name: str, ifname: str, raw: bytes) -> dict[str, Any]:
    try:
        result = json.loads(raw)
        interfaces = result.get("interfaces") or []
        # The result also lists the host's end and the bridge; only an interface in the sandbox has `sandbox`.
        ours = {
            number: interface
            for number, interface in enumerate(interfaces)
            if interface["name"] == ifname and interface.get("sandbox")
        }
        ips = [ip for ip in result.get("ips") or [] if ip.get("interface") is None or ip["interface"] in ours]
        element = {
            "name": name,
            "interface": ifname,
            "ips": [ip["address"].partition("/")[0] for ip in ips],
            "mac": next((interface["mac"] for interface in ours.values() if interface.get("mac")), None),
            "mtu": next((interface["mtu"] for interface in ours.values() if interface.get("mtu")), None),
            "default": True,
            "dns": result.get("dns") or {},
            "gateway": [way["gw"] for way in result.get("routes") or [] if way["dst"] in _EVERYWHERE and way.get("gw")],
        }
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the primary network's result cannot be read: {type(error).__name__}: {error}") from None
    return {key: value for key, value in element.items() if value not in (None, [])}


def _rail(network: str, attachment: Attachment, macs: Mapping[str, str]) -> dict[str, Any]:
    pci = {"pci-address": str(attachment.vf), **({} if attachment.rdma is None else {"rdma-device": attachment.rdma})}
    mac = macs.get(attachment.ifname)
    return {
        "name": f"{OF_RAILNET}{network}",
        "interface": attachment.ifname,
        "ips": [str(address.ip) for address in attachment.addresses],
        **({} if mac is None else {"mac": mac}),
        "mtu": attachment.mtu,
        "dns": {},
        "device-info": {"type": "pci", "version": _DEVICE_INFO_VERSION, "pci": pci},
        "rail": attachment.rail,  # Railnet's own key: netN is the N-th rail that the pod has, not rail N-1 of the node
    }


@dataclass(frozen=True, slots=True)
class NetworkStatus:
    """The annotation to write on a pod.

    Attributes:
        pod: the pod, by the UID that the runtime reports.
        static: whether the pod is a static pod of kubelet: its UID in the runtime is the hash of its configuration, while its
            mirror pod in the API server has another UID, and that hash as an annotation.
        elements: returns the content of the annotation; called when the message is sent, and may block.
    """

    pod: SandboxPod
    static: bool
    elements: Callable[[], list[dict[str, Any]]]

    def __str__(self) -> str:
        """Name the message in the log."""
        return f"network-status of pod {self.pod.namespace}/{self.pod.name}"

    @property
    def key(self) -> Hashable:
        """Only the newest status of a pod counts."""
        return ("network-status", self.pod)

    def requests(self) -> Sequence[Request]:
        """Patch the pod, unless it is another pod of the same name.

        The patch is of `pods/status`, through which the specification cannot be changed. A UID in a merge patch is a
        precondition, because the UID is immutable (kubernetes/kubernetes#86320).
        """
        status = ApiObject("v1", "pods", self.pod.name, self.pod.namespace, "status")
        text = json.dumps(self.elements(), indent=4)
        if not self.static:
            return (merge_patch(status, {"metadata": {"uid": self.pod.uid, "annotations": {ANNOTATION: text}}}),)
        steps = [
            {"op": "test", "path": _pointer(_MIRROR), "value": self.pod.uid},
            {"op": "add", "path": _pointer(ANNOTATION), "value": text},
        ]
        return (json_patch(status, steps),)


def _pointer(annotation: str) -> str:
    return "/metadata/annotations/" + annotation.replace("~", "~0").replace("/", "~1")  # RFC 6901

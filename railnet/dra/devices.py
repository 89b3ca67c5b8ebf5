"""The VFs that a node offers as devices of DRA: the name, the attributes, and why a device is unhealthy. Pure.

An attribute says what does not change because a pod has the VF: an attach and a detach leave every device as it is.

Source: kubernetes/api, resource/v1/types.go (`Device`, `DeviceAttribute`, `DeviceTaint`); k8s.io/dynamic-resource-allocation,
deviceattribute/attribute.go (the names of domain resource.kubernetes.io).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from deviceplugin.devices import OfferedVf
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.vf.dra_device_name import device_name
from railnet.vf.guid import Guid
from railnet.vf.inventory import PhysicalFunction, VirtualFunction
from railnet.vf.pci_address import PciAddress

UNHEALTHY: Final = f"{DRIVER}/unhealthy"
"""The key of the taint of an unhealthy device; its value is the reason."""

_STANDARD = "resource.kubernetes.io"
_LONGEST_TEXT = 64  # DeviceAttributeMaxValueLength
_LONGEST_LABEL_VALUE = 63
_NO_LABEL_CHARACTERS = re.compile(r"[^a-z0-9]+")
_LINK_TYPES = {"InfiniBand": "infiniband", "Ethernet": "ether"}

AttributeValue = bool | int | str


@dataclass(frozen=True, slots=True)
class DraDevice:
    """A VF as a device.

    Attributes:
        rail: the number of its rail; None if that is not certain.
        attributes: by name, in the order of the names. A name without a domain belongs to the driver.
        reason: why the VF is unhealthy; None if it is healthy.
    """

    vf: PciAddress
    rail: int | None
    attributes: tuple[tuple[str, AttributeValue], ...]
    reason: str | None = None

    @property
    def name(self) -> str:
        """The name of the device."""
        return device_name(self.vf)

    @property
    def taint(self) -> str | None:
        """The value of the taint of an unhealthy device; None if the device is healthy."""
        return None if self.reason is None else label_value(self.reason)


class CardFacts(NamedTuple):
    """What is known of a VF's card beside its inventory; None of what is not known.

    Attributes:
        pcie_root: the PCIe root complex, such as `pci0000:00`.
        rate: of the port, in Gb/s, such as `400`.
        leaf: the node GUID of the leaf switch, in 16 hexadecimal digits.
    """

    pcie_root: str | None = None
    rate: str | None = None
    leaf: str | None = None


class Devices:
    """The devices of a node, computed again and again. A VF whose facts have not changed keeps its device.

    The RDMA device of a VF may be away for a moment, as during a rebind. So the GUID that a VF showed last stays.
    """

    def __init__(self) -> None:
        self._known: dict[PciAddress, tuple[_DeviceFacts, DraDevice]] = {}
        self._guids: dict[PciAddress, Guid] = {}

    def now(
        self,
        offered: Mapping[str, Iterable[OfferedVf]],
        pfs: Mapping[PciAddress, PhysicalFunction],
        cards: Mapping[PciAddress, CardFacts],
    ) -> tuple[DraDevice, ...]:
        """Return the devices in (rail, PCI address) order; those without a certain rail are the last.

        Args:
            offered: the VFs of each pool, by resource.
            pfs: the PFs of the node.
            cards: what else is known of each card, by `OfferedVf.card`.
        """
        port_facts = {address: _PortFacts.of(pf) for address, pf in pfs.items()}
        known, self._known = self._known, {}
        for resource, offers in offered.items():
            for offer in offers:
                facts = self._facts(resource, offer, port_facts, cards)
                before = known.get(offer.vf.address)
                unchanged = before is not None and before[0] == facts
                self._known[offer.vf.address] = (
                    before if before is not None and unchanged else (facts, _device(offer.vf.address, facts))
                )
        return tuple(sorted((device for _, device in self._known.values()), key=_place))

    def _facts(
        self,
        resource: str,
        offer: OfferedVf,
        ports: "Mapping[PciAddress, _PortFacts]",
        cards: Mapping[PciAddress, CardFacts],
    ) -> "_DeviceFacts":
        vf = offer.vf
        if vf.rdma is not None and vf.rdma.node_guid.usable:
            self._guids[vf.address] = vf.rdma.node_guid
        pf = None if vf.pf is None else ports.get(vf.pf)
        return _DeviceFacts(
            resource,
            offer.rail,
            vf.pf,
            _PortFacts.of(vf) if pf is None else pf,
            cards.get(offer.card, CardFacts()),
            self._guids.get(vf.address),
            vf.numa_node,
            offer.rdma,
            offer.reason,
        )


def label_value(text: str) -> str:
    """Return a text as the value of a label or of a taint: lower case, at most 63 characters, and a dash for everything else."""
    return _NO_LABEL_CHARACTERS.sub("-", text.lower()).strip("-")[:_LONGEST_LABEL_VALUE].strip("-") or "unhealthy"


def device_object(device: DraDevice) -> dict[str, Any]:
    """Return a device as it stands in a ResourceSlice."""
    taint = device.taint
    taints = [] if taint is None else [{"key": UNHEALTHY, "value": taint, "effect": "NoSchedule"}]
    return {"name": device.name, "attributes": attributes_object(device), **({"taints": taints} if taints else {})}


def attributes_object(device: DraDevice) -> dict[str, Any]:
    """Return a device's attributes as they stand in a ResourceSlice."""
    return {name: {_kind(value): value} for name, value in device.attributes}


class _PortFacts(NamedTuple):
    """What a card's port says; `mtu` is in bytes."""

    link_type: str
    state: str | None
    mtu: int | None

    @classmethod
    def of(cls, function: PhysicalFunction | VirtualFunction) -> "_PortFacts":
        port = None if function.rdma is None else function.rdma.port
        # A VF's netdev is away while a pod has the VF, and a pod's MTU is the network's.
        mtu = function.netdev.mtu if isinstance(function, PhysicalFunction) and function.netdev is not None else None
        return cls(_LINK_TYPES[function.link_layer], None if port is None else port.state.rpartition(" ")[2], mtu)


class _DeviceFacts(NamedTuple):
    """All that a device follows from."""

    resource: str
    rail: int | None
    pf: PciAddress | None
    port: _PortFacts
    card: CardFacts
    guid: Guid | None
    numa_node: int
    rdma: bool
    reason: str | None


def _device(vf: PciAddress, facts: _DeviceFacts) -> DraDevice:
    values: dict[str, AttributeValue | None] = {
        "rail": facts.rail,
        "pf": None if facts.pf is None else str(facts.pf),
        "resource": facts.resource,
        "guid": None if facts.guid is None else str(facts.guid),
        "mtu": facts.port.mtu,
        "rate": facts.card.rate,
        "linkType": facts.port.link_type,
        "portState": facts.port.state,
        "rdma": facts.rdma,
        "leaf": facts.card.leaf,
        f"{_STANDARD}/pcieRoot": facts.card.pcie_root,
        f"{_STANDARD}/pciBusID": str(vf),
        f"{_STANDARD}/numaNode": facts.numa_node if facts.numa_node >= 0 else None,
    }
    attributes = sorted((name, value) for name, value in values.items() if value is not None and _fits(value))
    return DraDevice(vf, facts.rail, tuple(attributes), facts.reason)


def _fits(value: AttributeValue) -> bool:
    """Return whether the API server takes a value: a resource's name may be longer than an attribute."""
    return not isinstance(value, str) or 0 < len(value) <= _LONGEST_TEXT


def _kind(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "string"


def _place(device: DraDevice) -> tuple[bool, int, PciAddress]:
    return device.rail is None, device.rail or 0, device.vf

"""The names of VFs as devices of DRA: a name follows from the VF's PCI address, and the address from the name.

Source of the rule for names: kubernetes/api, resource/v1/types.go (`Device.Name` is a DNS label).
"""

import re

from railnet.vf.pci_address import PciAddress

_NAME = re.compile(r"pci-([0-9a-f]{4,8})-([0-9a-f]{2})-([01][0-9a-f])-([0-7])")


def device_name(vf: PciAddress) -> str:
    """Return the name of a VF's device, such as `pci-0000-03-00-1`."""
    return "pci-" + str(vf).replace(":", "-").replace(".", "-")


def vf_of(device: str) -> PciAddress:
    """Return the VF of a device.

    Raises:
        ValueError: the name is no VF's.
    """
    match = _NAME.fullmatch(device)
    if match is None:
        raise ValueError(f"{device!r:.80} is not the name of a VF's device, of the form pci-0000-03-00-1")
    domain, bus, slot, function = match.groups()
    return PciAddress.parse(f"{domain}:{bus}:{slot}.{function}")

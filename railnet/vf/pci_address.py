"""PCI addresses: the only identity of a PF or VF that survives renames, moves and rebinds."""

import re
from functools import lru_cache
from typing import NamedTuple, Self

# The kernel's form, "%04x:%02x:%02x.%d" (drivers/pci/probe.c, pci_setup_device); a domain may have
# more digits (Intel VMD starts at 0x10000).
_FORM = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])")


class PciAddress(NamedTuple):
    """Domain, bus, device and function number of one PCI function. Addresses sort in PCI order."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `dddd:bb:dd.f`, lower case, as sysfs writes it.

        Raises:
            ValueError: any other text.
        """
        return cls(*_numbers(text))

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"


@lru_cache(maxsize=4096)  # each look at a node reads the same addresses, and a node has some thousand functions at most
def _numbers(text: str) -> tuple[int, int, int, int]:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.80} is not a PCI address of the form 0000:03:00.1")
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return domain, bus, device, function

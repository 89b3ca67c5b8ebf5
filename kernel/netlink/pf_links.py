"""The links of PFs: whether they are up, whether they have a carrier, and their MAC.

They are asked for through pyroute2 (`kernel.netlink.link_requests`), which is imported with the first of them: it takes a tenth of a
second, for which the first ADD after a daemon's start would wait. How changes arrive is `kernel.netlink.link_changes`'s.
"""

from collections.abc import Iterable
from errno import ENODEV
from typing import NamedTuple

from vf.address import PciAddress
from vf.inventory import PhysicalFunction
from vf.mac import Mac


class PfLink(NamedTuple):
    """The state of a PF's link. `up` is IFF_UP; `operstate` is in the words of `ip link`, such as UP and LOWERLAYERDOWN.

    `address` is the hardware address that the link came with, which bonding does not change; the present one where the
    driver does not report it.
    """

    up: bool
    carrier: bool
    operstate: str
    address: str

    @property
    def known_carrier(self) -> bool | None:
        """Return whether the link has a carrier; None for a link that is administratively down, which shows none."""
        return self.carrier if self.up else None


def read(ifindexes: Iterable[int]) -> dict[int, PfLink]:
    """Read links; one that is gone is left out.

    Raises:
        OSError: what the kernel refused.
    """
    found: dict[int, PfLink] = {}
    wanted = tuple(ifindexes)
    if not wanted:
        return found
    from kernel.netlink.link_requests import opened  # noqa: PLC0415 - the module's docstring says why

    with opened() as route:
        for ifindex in wanted:
            try:
                found[ifindex] = route.link(ifindex)
            except OSError as error:
                if error.errno != ENODEV:
                    raise
    return found


def macs(pfs: Iterable[PhysicalFunction]) -> dict[PciAddress, Mac]:
    """Read the MACs of the PFs that are Ethernet and have a netdev here.

    Raises:
        OSError: what the kernel refused; ENODEV, a PF's netdev is gone.
    """
    ifindexes = {pf.address: pf.netdev.ifindex for pf in pfs if pf.link_layer == "Ethernet" and pf.netdev is not None}
    if not ifindexes:
        return {}
    from kernel.netlink.link_requests import opened  # noqa: PLC0415 - the module's docstring says why

    with opened() as route:
        return {pf: Mac.parse(route.link(ifindex).address) for pf, ifindex in ifindexes.items()}

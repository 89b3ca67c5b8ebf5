"""The state of a PF's link, as a value."""

from typing import NamedTuple


class PfLink(NamedTuple):
    """The state of a PF's link. `up` is IFF_UP; `operstate` has the words of `ip link`, such as UP and LOWERLAYERDOWN.

    `address` is the permanent hardware address, which bonding does not change, or the present one if the driver does not
    report a permanent one.
    """

    up: bool
    carrier: bool
    operstate: str
    address: str

    @property
    def known_carrier(self) -> bool | None:
        """Return whether the link has a carrier; None if the link is administratively down, since it then reports none."""
        return self.carrier if self.up else None

"""Addresses for rails without an IPAM plugin: from the node's slice of a range, or from the pod's annotation.

The slice follows from flannel's subnet.env; the journal is the allocation table. Addresses of IPAM plugins are
`cni.attachment.ipam_plugin`'s.
"""

from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from cni.attachment.journal import Journal
from cni.daemon_exhaustion import is_own_shortage
from railnet.errors import Misconfigured, NoAddress
from railnet.kernel.files import read_below
from railnet.kernel.sockets.local_address_check import is_local
from railnet.vf.address_slice import AddressSlice, choose, node_slice, parse_subnet_env, route_to_other_rails
from railnet.vf.attachment_plan import Assigned
from railnet.vf.inventory import Inventory
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import ChosenNetwork, Networks, SliceIpam, StaticIpam, StickyIpam
from railnet.vf.rail_number_address_check import why_no_address
from railnet.vf.steps import Given, IpInterface


class LocalIpam:
    """The addresses of this node's sandboxes; `subnet_env` is flannel's file on the host, whose root folder is at `root`."""

    def __init__(self, subnet_env: Path, root: Path = Path("/")) -> None:
        self._subnet_env = subnet_env
        self._root = root

    def give(
        self, chosen: ChosenNetwork, assigned: Sequence[Assigned], inventory: Inventory, journal: Journal
    ) -> dict[PciAddress, Given]:
        """Choose the addresses and routes of a sandbox's VFs; they are allocated when the record with them is written.

        None are chosen if the network has none, or if its IPAM plugin gives them later.

        Raises:
            NoAddress: flannel has no lease, its file is malformed, the slice is used up, or another sandbox has the address.
            Misconfigured: the range is too small, or the numbers of the node's rails are not certain.
        """
        ipam = chosen.network.ipam
        if isinstance(ipam, SliceIpam):
            return self._sliced(ipam, assigned, inventory, journal)
        if isinstance(ipam, StaticIpam | StickyIpam):
            return _static(chosen.static, assigned, journal)
        return {assignment.vf.address: Given() for assignment in assigned}

    def check(self, networks: Networks, inventory: Inventory, vfs: Container[PciAddress]) -> None:
        """Make sure that in every network each rail's slice has an address for each VF of `vfs`, the VFs that pools offer.

        A network that can give no address on this node now, since the node's rails are not certain, is left out.

        Raises:
            Misconfigured: a slice is too small; the message has the numbers.
            NoAddress: flannel has no lease yet.
        """
        for network in networks:
            if isinstance(network.ipam, SliceIpam) and why_no_address(network.ipam, inventory) is None:
                self._check(network.name, network.ipam, inventory, vfs)

    def _check(self, network: str, ipam: SliceIpam, inventory: Inventory, vfs: Container[PciAddress]) -> None:
        for number, rail in enumerate(inventory.rails):
            count = sum(vf.address in vfs for vf in rail.vfs)
            if not count:
                continue  # no pool offers a VF of this rail
            slice_ = self._slice(ipam, number, inventory)
            if slice_.capacity < count:
                raise Misconfigured(
                    f"networks.{network}: range {ipam.range} gives this node {slice_.part} on rail {number}: "
                    f"{slice_.capacity} addresses for the {count} VFs of {rail.address}; "
                    "use a larger range or fewer VFs"
                )

    def _sliced(
        self, ipam: SliceIpam, assigned: Iterable[Assigned], inventory: Inventory, journal: Journal
    ) -> dict[PciAddress, Given]:
        taken = set(journal.addresses())
        given: dict[PciAddress, Given] = {}
        for assignment in assigned:
            address = choose(self._slice(ipam, assignment.rail, inventory), assignment.vf.index, taken)
            taken.add(address.ip)
            # One route to the other rails is enough, and the kernel refuses a second equal one.
            given[assignment.vf.address] = Given((address,), () if given else route_to_other_rails(ipam.range, address))
        return given

    def _slice(self, ipam: SliceIpam, rail: int, inventory: Inventory) -> AddressSlice:
        why = why_no_address(ipam, inventory)
        if why is not None:
            raise Misconfigured(why)
        rails = ipam.rails or len(inventory.rails)
        if rail >= rails:
            raise Misconfigured(f"ipam.rails is {rails}, but this node has {len(inventory.rails)} rails")
        try:
            text = self._lease().decode()
        except UnicodeDecodeError as error:
            raise NoAddress(f"flannel's {self._subnet_env} cannot be read: {error}") from None
        return node_slice(ipam.range, rail, rails, parse_subnet_env(text))

    def _lease(self) -> bytes:
        try:
            return self._read()
        except FileNotFoundError:
            raise NoAddress(f"flannel's {self._subnet_env} does not exist; is flanneld running on this node?") from None
        except OSError as error:
            if is_own_shortage(error):
                raise  # the daemon's own lack says nothing about flanneld
            raise NoAddress(f"flannel's {self._subnet_env} cannot be read: {error}") from None

    def _read(self) -> bytes:
        """Read flannel's file as the host has it now: a mount of its folder would go on showing a folder that was removed.

        A path that only the daemon's container has, by a mount of its own, is read there.
        """
        try:
            return read_below(self._root, str(self._subnet_env))
        except FileNotFoundError:
            return read_below(Path("/"), str(self._subnet_env))


def _static(
    addresses: Sequence[IpInterface], assigned: Sequence[Assigned], journal: Journal
) -> dict[PciAddress, Given]:
    taken = journal.addresses()
    for address in addresses:
        if address.ip in taken:
            raise NoAddress(f"{address.ip}, which the pod asks for, belongs to another pod of this node")
        if is_local(address.ip):
            raise NoAddress(f"{address.ip}, which the pod asks for, belongs to this node itself")
    return {assignment.vf.address: Given((address,)) for assignment, address in zip(assigned, addresses, strict=True)}

"""Wait until the ports of a sandbox's VFs can be used: the subnet manager configures them some time after the VFs appear."""

from collections import deque
from collections.abc import Callable
from functools import partial

from railnet.errors import PortInactive, RailnetError, Unusable
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.waiting import until_awaited
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import Network, why_not_in_partition
from railnet.vf.record import Attachment

_LOOK_SECONDS = 0.01
_ACTIVE = "4: ACTIVE"  # /sys/class/infiniband/<dev>/ports/1/state


async def wait(
    network: Network,
    attachments: tuple[Attachment, ...],
    sysfs: Sysfs,
    card: Callable[[PciAddress], PciAddress] = lambda vf: vf,
) -> None:
    """Wait for the ports of VFs that have an RDMA device; `network.wait` seconds for all of them together.

    `card` returns the card of a VF.

    Raises:
        PortInactive: a port is not active by then. Unusable: it is no member of the network's partition by then.
    """
    left = deque(attachment for attachment in attachments if attachment.rdma is not None)
    problems: list[RailnetError] = []

    async def all_usable() -> bool:
        problems.clear()
        while left and not problems:
            # Each of these files is a command to the card's firmware, and a PKey table has 128.
            problem = await _problem(network, left[0], sysfs, card(left[0].vf))
            problems.append(problem) if problem is not None else left.popleft()
        return not problems

    if not await until_awaited(all_usable, network.wait, _LOOK_SECONDS):
        raise problems[0]


async def _problem(network: Network, attachment: Attachment, sysfs: Sysfs, card: PciAddress) -> RailnetError | None:
    try:
        return await sysfs.reads.read(card, attachment.vf, partial(_problem_of_port, network, attachment, sysfs))
    except OSError as error:
        return Unusable(
            f"the port of VF {attachment.vf} ({attachment.rdma}) cannot be read: {error.strerror}; kubelet tries again"
        )


def _problem_of_port(network: Network, attachment: Attachment, sysfs: Sysfs) -> RailnetError | None:
    port = sysfs.port(attachment.vf)
    if port is None or port.state != _ACTIVE:
        return PortInactive(
            f"the port of VF {attachment.vf} ({attachment.rdma}) is not ACTIVE after {network.wait:g} s: does a subnet "
            "manager with virtualization run on its fabric? kubelet tries again"
        )
    if network.pkey is None or (why := why_not_in_partition(network.pkey, sysfs.pkeys(attachment.vf))) is None:
        return None
    return Unusable(
        f"VF {attachment.vf} ({attachment.rdma}) cannot use network {network.name!r}, which is partition 0x{network.pkey:04x}: {why}; "
        f"let the subnet manager's partition configuration have its GUID {attachment.guid} as a member"
    )

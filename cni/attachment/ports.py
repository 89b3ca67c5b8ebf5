"""Wait until the ports of a sandbox's VFs can be used: the subnet manager notices a VF in its own time."""

import asyncio

from kernel.sysfs import Sysfs
from vf.errors import PortInactive, RailnetError, Unusable
from vf.network import Network, lacks
from vf.record import Attachment

_LOOK_SECONDS = 0.01
_ACTIVE = "4: ACTIVE"  # /sys/class/infiniband/<dev>/ports/1/state


async def wait(network: Network, attachments: tuple[Attachment, ...], sysfs: Sysfs) -> None:
    """Wait for the ports of VFs that have an RDMA device, for all of them as long as the network says.

    Raises:
        PortInactive: one is not active by then. Unusable: one is no member of the network's partition by then.
    """
    give_up = asyncio.get_running_loop().time() + network.wait
    for one in attachments:
        # In a thread: each of these files is a command to the card's firmware, and a PKey table has 128.
        while one.rdma is not None and (wrong := await asyncio.to_thread(_wrong, network, one, sysfs)) is not None:
            if asyncio.get_running_loop().time() > give_up:
                raise wrong
            await asyncio.sleep(_LOOK_SECONDS)


def _wrong(network: Network, one: Attachment, sysfs: Sysfs) -> RailnetError | None:
    port = sysfs.port(one.vf)
    if port is None or port.state != _ACTIVE:
        return PortInactive(
            f"the port of VF {one.vf} ({one.rdma}) is not ACTIVE after {network.wait:g} s: does a subnet "
            "manager with virtualization run on its fabric? kubelet tries again"
        )
    if network.pkey is None or (why := lacks(network.pkey, sysfs.pkeys(one.vf))) is None:
        return None
    return Unusable(
        f"VF {one.vf} ({one.rdma}) cannot use network {network.name!r}, which is partition 0x{network.pkey:04x}: {why}; "
        f"let the subnet manager's partition configuration have its GUID {one.guid} as a member"
    )

"""What a PF's netdev is told of its VFs, in the network namespace of the calling thread: MAC, GUIDs, link state.

The messages are those of `ip link set PF vf N …`, byte for byte (`iplink_parse_vf()` in iproute2's ip/iplink.c).
Numbers and structures: include/uapi/linux/if_link.h.
"""

import socket
import struct
from collections.abc import Iterable
from typing import Literal

from kernel.netlink.links import NEWLINK, link_message, links
from kernel.netlink.protocol import Netlink, attributes, opened
from vf.address import PciAddress
from vf.guid import Guid
from vf.inventory import PhysicalFunction
from vf.mac import Mac

LinkState = Literal["auto", "enable", "disable"]

_IFLA_VFINFO_LIST, _IFLA_VF_INFO = 22, 1
_IFLA_VF_MAC, _IFLA_VF_LINK_STATE, _IFLA_VF_IB_NODE_GUID, _IFLA_VF_IB_PORT_GUID = 1, 5, 10, 11
_LINK_STATES: dict[LinkState, int] = {"auto": 0, "enable": 1, "disable": 2}

_VF_MAC = struct.Struct("=I32s")  # struct ifla_vf_mac: MAX_ADDR_LEN octets
_VF_GUID = struct.Struct("=I4xQ")  # struct ifla_vf_guid, the GUID as a number of this machine
_VF_LINK_STATE = struct.Struct("=II")  # struct ifla_vf_link_state


def macs(pfs: Iterable[PhysicalFunction]) -> dict[PciAddress, Mac]:
    """Read the MACs of PFs: of those that are Ethernet and have a netdev here."""
    with links() as node:
        return {
            pf.address: Mac.parse(node.permanent_address(pf.netdev.ifindex))
            for pf in pfs
            if pf.link_layer == "Ethernet" and pf.netdev is not None
        }


def set_mac(pf_ifindex: int, vf: int, mac: Mac) -> None:
    """Set a VF's MAC; its driver reads it when it is bound.

    A RoCE VF of mlx5 gets its node GUID from it, too (node_guid_gen_from_mac(), mlx5/core/eswitch.c).

    Raises:
        OSError: EINVAL, no such VF or no unicast MAC; EOPNOTSUPP, the driver cannot; ENODEV, the PF's netdev is gone.
    """
    _send(pf_ifindex, vf, f"MAC {mac}", attributes((_IFLA_VF_MAC, _VF_MAC.pack(vf, bytes(mac)))))


def set_guids(pf_ifindex: int, vf: int, guid: Guid) -> None:
    """Set a VF's node and port GUID and let its link follow the port's; its driver reads them when it is bound.

    Raises:
        OSError: EINVAL, no such VF; EOPNOTSUPP, the driver cannot; ENODEV, the PF's netdev is gone.
    """
    value = _VF_GUID.pack(vf, guid.value)
    guids = attributes((_IFLA_VF_IB_NODE_GUID, value), (_IFLA_VF_IB_PORT_GUID, value))
    _send(pf_ifindex, vf, f"GUID {guid}", guids + _link_state(vf, "auto"))


def set_link_state(pf_ifindex: int, vf: int, state: LinkState) -> None:
    """Let a VF's link follow the port's (`auto`), or be up or down whatever the port is.

    Raises:
        OSError: as `set_guids`.
    """
    _send(pf_ifindex, vf, f"link state {state}", _link_state(vf, state))


def _link_state(vf: int, state: LinkState) -> bytes:
    return attributes((_IFLA_VF_LINK_STATE, _VF_LINK_STATE.pack(vf, _LINK_STATES[state])))


def _send(pf_ifindex: int, vf: int, what: str, told: bytes) -> None:
    message = link_message(pf_ifindex) + attributes((_IFLA_VFINFO_LIST, attributes((_IFLA_VF_INFO, told))))
    with opened(socket.NETLINK_ROUTE) as route:
        Netlink(route).ask(f"set {what} of VF {vf} through PF link {pf_ifindex}", NEWLINK, message)

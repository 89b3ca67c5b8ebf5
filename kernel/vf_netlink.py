"""What a PF's netdev is told of its VFs, in the network namespace of the calling thread: MAC, GUIDs, link state.

The messages are those of `ip link set PF vf N …`, byte for byte (`iplink_parse_vf()` in iproute2's ip/iplink.c). pyroute2
has them too, but its GUID is longer than the kernel's struct. Numbers and structures: include/uapi/linux/if_link.h.
"""

import os
import socket
import struct
from collections.abc import Iterable
from typing import Literal

from kernel.rtnetlink import links
from vf.address import PciAddress
from vf.function import PhysicalFunction
from vf.guid import Guid
from vf.mac import Mac

LinkState = Literal["auto", "enable", "disable"]

_RTM_NEWLINK = 16  # include/uapi/linux/rtnetlink.h
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_ACK_TLVS = 0x1, 0x4, 0x200  # include/uapi/linux/netlink.h
_SOL_NETLINK, _NETLINK_CAP_ACK, _NETLINK_EXT_ACK = 270, 10, 11
_NLMSGERR_ATTR_MSG = 1
_ERRNO, _ERROR_ATTRIBUTES = 16, 36  # where struct nlmsgerr begins, and what follows it and the request's header

_IFLA_VFINFO_LIST, _IFLA_VF_INFO = 22, 1
_IFLA_VF_MAC, _IFLA_VF_LINK_STATE, _IFLA_VF_IB_NODE_GUID, _IFLA_VF_IB_PORT_GUID = 1, 5, 10, 11
_LINK_STATES: dict[LinkState, int] = {"auto": 0, "enable": 1, "disable": 2}

_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_IFINFOMSG = struct.Struct("=BxHiII")
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
    _send(pf_ifindex, vf, f"MAC {mac}", _attribute(_IFLA_VF_MAC, _VF_MAC.pack(vf, bytes(mac))))


def set_guids(pf_ifindex: int, vf: int, guid: Guid) -> None:
    """Set a VF's node and port GUID and let its link follow the port's; its driver reads them when it is bound.

    Raises:
        OSError: EINVAL, no such VF; EOPNOTSUPP, the driver cannot; ENODEV, the PF's netdev is gone.
    """
    value = _VF_GUID.pack(vf, guid.value)
    guids = _attribute(_IFLA_VF_IB_NODE_GUID, value) + _attribute(_IFLA_VF_IB_PORT_GUID, value)
    _send(pf_ifindex, vf, f"GUID {guid}", guids + _link_state(vf, "auto"))


def set_link_state(pf_ifindex: int, vf: int, state: LinkState) -> None:
    """Let a VF's link follow the port's (`auto`), or be up or down whatever the port is.

    Raises:
        OSError: as `set_guids`.
    """
    _send(pf_ifindex, vf, f"link state {state}", _link_state(vf, state))


def _link_state(vf: int, state: LinkState) -> bytes:
    return _attribute(_IFLA_VF_LINK_STATE, _VF_LINK_STATE.pack(vf, _LINK_STATES[state]))


def _attribute(kind: int, value: bytes) -> bytes:
    """Give a netlink attribute; all values here are multiples of four, so none is padded."""
    return struct.pack("=HH", 4 + len(value), kind) + value


def _send(pf_ifindex: int, vf: int, what: str, attributes: bytes) -> None:
    body = _IFINFOMSG.pack(socket.AF_UNSPEC, 0, pf_ifindex, 0, 0)
    body += _attribute(_IFLA_VFINFO_LIST, _attribute(_IFLA_VF_INFO, attributes))
    header = _HEADER.pack(_HEADER.size + len(body), _RTM_NEWLINK, _NLM_F_REQUEST | _NLM_F_ACK, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as route:
        route.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, 1)
        route.setsockopt(_SOL_NETLINK, _NETLINK_EXT_ACK, 1)
        route.sendto(header + body, (0, 0))
        answer = route.recv(1 << 16)
    (error,) = struct.unpack_from("=i", answer, _ERRNO)
    if error:
        because = _message(answer) or os.strerror(-error)
        raise OSError(-error, f"set {what} of VF {vf} through PF link {pf_ifindex}: {because}")


def _message(answer: bytes) -> str:
    """Find what the kernel says in words; most drivers say nothing."""
    _, _, flags, _, _ = _HEADER.unpack_from(answer)
    attributes = answer[_ERROR_ATTRIBUTES:] if flags & _NLM_F_ACK_TLVS else b""
    while attributes:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind == _NLMSGERR_ATTR_MSG:
            return attributes[4:length].rstrip(b"\0").decode(errors="replace")
        attributes = attributes[(length + 3) & ~3 :]
    return ""

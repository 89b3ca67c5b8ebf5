"""Tells a PF's netdev the MAC, the GUIDs and the link state of its VFs, in the network namespace of the calling thread.

The messages are those of `ip link set PF vf N …`, byte for byte (`iplink_parse_vf()` in iproute2's ip/iplink.c). pyroute2
encodes them, but for the GUID: its class has 36 bytes, and struct ifla_vf_guid of include/uapi/linux/if_link.h has 16.
"""

from typing import Any

from railnet.kernel.netlink.minimal_pyroute2 import classes
from railnet.kernel.netlink.rtnetlink import NEWLINK, links
from railnet.vf.guid import Guid
from railnet.vf.mac import Mac

_AUTO = 0  # IFLA_VF_LINK_STATE_AUTO
_HEADER_BYTES = 16  # struct nlmsghdr, which `railnet.kernel.netlink.protocol` writes
_Attribute = tuple[str, dict[str, Any]]  # of IFLA_VF_INFO
# pyroute2 has no types.
nla, nlmsg, ifinfbase, ifinfmsg = classes.nla, classes.nlmsg, classes.ifinfbase, classes.ifinfmsg


class _VfGuid(nla):  # type: ignore[misc, valid-type]
    """struct ifla_vf_guid: the GUID is a number of this machine."""

    fields = (("vf", "I"), ("padding", "I"), ("guid", "Q"))


# None of these is derived from pyroute2's class of the same purpose: that keeps a table of its attributes' classes after its first
# use (`compile_nla_table()`), and a class derived from it would use that table.
class _VfInfo(nla):  # type: ignore[misc, valid-type]
    nla_map = (
        (1, "IFLA_VF_MAC", "vf_mac"),
        (5, "IFLA_VF_LINK_STATE", "vf_link_state"),
        (10, "IFLA_VF_IB_NODE_GUID", "vf_guid"),
        (11, "IFLA_VF_IB_PORT_GUID", "vf_guid"),
    )
    vf_mac = ifinfmsg.vflist.vfinfo.vf_mac
    vf_link_state = ifinfmsg.vflist.vfinfo.vf_link_state
    vf_guid = _VfGuid


class _VfList(nla):  # type: ignore[misc, valid-type]
    nla_map = ifinfmsg.vflist.nla_map
    vfinfo = _VfInfo


class _LinkMessage(ifinfbase, nlmsg):  # type: ignore[misc, valid-type]
    vflist = _VfList


def set_mac(pf_ifindex: int, vf: int, mac: Mac) -> None:
    """Set a VF's MAC; its driver reads it when it is bound.

    A RoCE VF of mlx5 gets its node GUID from it, too (node_guid_gen_from_mac(), mlx5/core/eswitch.c).

    Raises:
        OSError: EINVAL, no such VF or no unicast MAC; EOPNOTSUPP, the driver cannot; ENODEV, the PF's netdev is gone.
    """
    _send(pf_ifindex, vf, f"MAC {mac}", ("IFLA_VF_MAC", {"vf": vf, "mac": str(mac)}))


def set_guids(pf_ifindex: int, vf: int, guid: Guid) -> None:
    """Set a VF's node and port GUID and let its link follow the port's; its driver reads them when it is bound.

    Raises:
        OSError: EINVAL, no such VF; EOPNOTSUPP, the driver cannot; ENODEV, the PF's netdev is gone.
    """
    guids = [
        (name, {"vf": vf, "padding": 0, "guid": guid.value})
        for name in ("IFLA_VF_IB_NODE_GUID", "IFLA_VF_IB_PORT_GUID")
    ]
    _send(pf_ifindex, vf, f"GUID {guid}", *guids, ("IFLA_VF_LINK_STATE", {"vf": vf, "link_state": _AUTO}))


def _send(pf_ifindex: int, vf: int, what: str, *attributes: _Attribute) -> None:
    message = _LinkMessage()
    message["index"] = pf_ifindex
    message["attrs"] = [("IFLA_VFINFO_LIST", {"attrs": [("IFLA_VF_INFO", {"attrs": list(attributes)})]})]
    message.encode()
    with links() as route:
        route.ask(f"set {what} of VF {vf} through PF link {pf_ifindex}", NEWLINK, bytes(message.data[_HEADER_BYTES:]))

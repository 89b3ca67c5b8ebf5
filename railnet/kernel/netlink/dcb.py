"""Data Center Bridging of an Ethernet netdev: which priorities are lossless, and whether DSCP chooses the priority. Reads only.

Source: include/uapi/linux/dcbnl.h, whose names are in the comments.
"""

import struct
from errno import EOPNOTSUPP

from railnet.fabric.roce import FlowControl
from railnet.kernel.netlink.protocol import (
    Netlink,
    attributes,
    decode_attributes,
    decode_repeated,
    opened,
    string,
    understanding,
)

_NETLINK_ROUTE = 0
_GETDCB = 78  # RTM_GETDCB, include/uapi/linux/rtnetlink.h
_DCBMSG = struct.Struct("=BBH")  # struct dcbmsg: family, command, padding
_IEEE_GET = 21  # DCB_CMD_IEEE_GET
_IFNAME, _IEEE = 1, 13  # DCB_ATTR_*
_IEEE_PFC, _IEEE_APP_TABLE, _IEEE_APP = 2, 3, 1  # DCB_ATTR_IEEE_*
_BY_DSCP = 5  # IEEE_8021QAZ_APP_SEL_DSCP, the first byte of a struct dcb_app
_ENABLED = 1  # pfc_en in struct ieee_pfc: a bit for each priority
_PRIORITIES = 8
_OPERATION = "read DCB of {}"


def flow_control(netdev: str) -> FlowControl | None:
    """Read the flow control of a netdev in this namespace; None if its driver or the kernel has no DCB.

    Raises:
        OSError: ENODEV, there is no such netdev; or the kernel's answer is malformed.
    """
    request = _DCBMSG.pack(0, _IEEE_GET, 0) + attributes((_IFNAME, string(netdev)))
    operation = _OPERATION.format(netdev)
    with opened(_NETLINK_ROUTE) as route:
        try:
            answers = Netlink(route).ask(operation, _GETDCB, request)
        except OSError as error:
            if error.errno != EOPNOTSUPP:
                raise
            return None
    with understanding(operation):
        return decode(answers[0])


def decode(answer: bytes) -> FlowControl | None:
    """Read the kernel's answer; None if the driver tells nothing of flow control.

    Raises:
        ValueError, LookupError: it is malformed.
    """
    ieee = decode_attributes(decode_attributes(answer[_DCBMSG.size :]).get(_IEEE, b""))
    if _IEEE_PFC not in ieee:
        return None
    enabled = ieee[_IEEE_PFC][_ENABLED]
    lossless = tuple(priority for priority in range(_PRIORITIES) if enabled >> priority & 1)
    applications = decode_repeated(ieee.get(_IEEE_APP_TABLE, b""), _IEEE_APP)
    return FlowControl(lossless, any(application[0] == _BY_DSCP for application in applications))

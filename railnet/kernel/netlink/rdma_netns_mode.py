"""The namespace mode of RDMA devices, by netlink. Not here: a PCI function's RDMA device, which sysfs shows (`railnet.kernel.sysfs.functions`).

Source: include/uapi/rdma/rdma_netlink.h (whose names are in the comments), drivers/infiniband/core/nldev.c.
"""

from errno import EOPNOTSUPP, EPROTONOSUPPORT
from typing import Literal

from railnet.kernel.netlink.protocol import Netlink, Socket, decode_attributes, opened, understanding

NetnsMode = Literal["shared", "exclusive"]

_NETLINK_RDMA = 20  # linux/netlink.h
_SYS_GET = (5 << 10) + 6  # RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SYS_GET)
_NETNS_MODE = 66  # RDMA_NLDEV_SYS_ATTR_NETNS_MODE, u8
_OPERATION = "read the RDMA namespace mode"


def netns_mode() -> NetnsMode | None:
    """Return `shared` if every namespace sees every RDMA device, `exclusive` if each sees its own; None without RDMA."""
    try:
        with opened(_NETLINK_RDMA) as kernel:
            return ask(kernel)
    except OSError as error:
        if error.errno != EPROTONOSUPPORT:  # this kernel has no module ib_core
            raise
        return None


def ask(kernel: Socket) -> NetnsMode:
    """Ask through an open socket. A kernel before 5.2 knows only shared mode, and does not report it."""
    answers = Netlink(kernel).ask(_OPERATION, _SYS_GET)
    if not answers:
        raise OSError(EOPNOTSUPP, f"{_OPERATION}: the kernel sent no answer")
    with understanding(_OPERATION):
        return "exclusive" if decode_attributes(answers[0]).get(_NETNS_MODE, b"\1") == b"\0" else "shared"

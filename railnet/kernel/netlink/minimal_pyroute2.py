"""pyroute2's class of messages about links, without the rest of pyroute2, and what Railnet reads of such a message.

`import pyroute2` imports each of its 128 modules and the standard library's `unittest`: 7.4 MiB, of which the class of these messages needs 1.4
(`scripts/bench netlink`). So the modules that this class needs are imported below an empty package. A later
`import pyroute2` imports the whole package as ever.

No ADD waits for this import (docs/decisions/0035).
"""

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any

from railnet.kernel.netlink.pf_link_state import PfLink

LinkMessage = Any  # pyroute2's ifinfmsg, which has no types
_PACKAGE = "pyroute2"
_IFF_UP = 0x1  # include/uapi/linux/if.h


def _import_modules() -> tuple[Any, Any]:
    """Import the module of the classes, and the one of errors. It is not for two threads at the same time."""
    if is_alone := _PACKAGE not in sys.modules:
        spec = find_spec(_PACKAGE)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {_PACKAGE!r}", name=_PACKAGE)
        sys.modules[_PACKAGE] = module_from_spec(spec)  # its path is known, and its code is not run
    try:
        from pyroute2.netlink import exceptions  # noqa: PLC0415 - below the empty package
        from pyroute2.netlink.rtnl import ifinfmsg  # noqa: PLC0415 - below the empty package

        return ifinfmsg, exceptions
    finally:
        if is_alone:
            del sys.modules[_PACKAGE]


classes, _exceptions = _import_modules()


def parse(datagram: bytes) -> PfLink:
    """Return the state of a link from one netlink message with its header.

    Raises:
        LookupError, ValueError: the message or an attribute that every kernel sends is missing or malformed.
    """
    message: LinkMessage = classes.ifinfmsg(datagram)
    try:
        message.decode()
    except _exceptions.NetlinkDecodeError as error:
        raise ValueError(str(error)) from None
    address = message.get_attr("IFLA_PERM_ADDRESS") or message.get_attr("IFLA_ADDRESS")
    carrier, operstate = message.get_attr("IFLA_CARRIER"), message.get_attr("IFLA_OPERSTATE")
    if carrier is None or operstate is None:
        raise ValueError("the message of a link has no carrier or no operational state")
    return PfLink(bool(message["flags"] & _IFF_UP), bool(carrier), str(operstate), str(address or ""))

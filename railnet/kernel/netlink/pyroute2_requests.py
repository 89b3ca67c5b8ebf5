"""Requests about links by pyroute2, with a separate socket for each caller, and the kernel's refusals.

No ADD waits for these requests; an ADD uses `railnet.kernel.netlink.rtnetlink` (docs/decisions/0035). Links are addressed by ifindex. No
request asks for VF information (RTEXT_FILTER_VF): some kernels answer EMSGSIZE for an InfiniBand PF with 16 VFs or more.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyroute2 import IPRSocket
from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR
from pyroute2.netlink.rtnl import RTM_GETLINK
from pyroute2.netlink.rtnl.ifinfmsg import IFF_UP, ifinfmsg

from railnet.kernel.netlink.pf_link import PfLink
from railnet.kernel.netlink.protocol import understanding

LinkMessage = Any  # pyroute2's ifinfmsg, which has no types
_NO_GROUPS = 0


class LinkRequests:
    """Requests about links on an open pyroute2 socket. A failure is an OSError with the kernel's errno and message."""

    def __init__(self, route: IPRSocket) -> None:
        self._route = route
        self._sequence = 0

    def ask(self, operation: str, kind: int, message: LinkMessage) -> list[LinkMessage]:
        """Send one request. Return the messages of the answer, up to the acknowledgement.

        Raises:
            OSError: the kernel refused the request; the message names `operation`. EBADMSG, the answer is malformed.
        """
        self._sequence += 1
        # The port id is 0, as in iproute2's requests: the kernel identifies the sender by its socket.
        message["header"].update(type=kind, flags=NLM_F_REQUEST | NLM_F_ACK, sequence_number=self._sequence, pid=0)
        message.encode()
        self._route.send(bytes(message.data))
        with understanding(operation):
            return self._answers(operation)

    def link(self, ifindex: int) -> PfLink:
        """Read one link.

        Raises:
            OSError: ENODEV, there is no such link. EBADMSG, the answer is malformed.
        """
        operation, message = f"read link {ifindex}", ifinfmsg()
        message["index"] = ifindex
        answers = self.ask(operation, RTM_GETLINK, message)
        with understanding(operation):
            (answer,) = answers
            return parse(answer)

    def _answers(self, operation: str) -> list[LinkMessage]:
        answers: list[LinkMessage] = []
        while True:
            for message in self._route.get():
                if message["header"]["sequence_number"] != self._sequence:
                    continue
                if message["header"]["type"] == NLMSG_ERROR:
                    _raise_if_refused(message, operation)
                    return answers
                answers.append(message)


@contextmanager
def opened() -> Iterator[LinkRequests]:
    """Open a socket for requests in the calling thread's network namespace. It needs no event loop and no thread."""
    with IPRSocket(groups=_NO_GROUPS, ext_ack=True) as route:
        yield LinkRequests(route)


def parse(message: LinkMessage) -> PfLink:
    """Return the state of a link from a pyroute2 message.

    Raises:
        LookupError, ValueError: an attribute that every kernel sends is missing or malformed.
    """
    address = message.get_attr("IFLA_PERM_ADDRESS") or message.get_attr("IFLA_ADDRESS")
    carrier, operstate = message.get_attr("IFLA_CARRIER"), message.get_attr("IFLA_OPERSTATE")
    if carrier is None or operstate is None:
        raise ValueError("the message of a link has no carrier or no operational state")
    return PfLink(bool(message["flags"] & IFF_UP), bool(carrier), str(operstate), str(address or ""))


def _raise_if_refused(message: LinkMessage, operation: str) -> None:
    error = message["header"]["error"]
    if error is not None:
        code = getattr(error, "code", None) or error.errno
        raise OSError(code, f"{operation}: {message.get_attr('NLMSGERR_ATTR_MSG') or os.strerror(code)}")

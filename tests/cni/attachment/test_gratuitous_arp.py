"""Announcements of addresses: when they are made, how often, and what ends them."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, ip_interface
from pathlib import Path

import pytest

from cni.attachment import gratuitous_arp
from cni.attachment.attachments import Attachments
from tests.cni.attachment_node import KEY, Node, a_node, attached


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


class Wire:
    """A link that has a carrier from the `carrier_at`-th look on; notes the announcements."""

    def __init__(self, carrier_at: int = 1, then: Callable[[], None] = lambda: None) -> None:
        self.looks = 0
        self.announced: list[tuple[str, list[str]]] = []
        self._carrier_at, self._then = carrier_at, then

    def announce(self, ifname: str, addresses: list[IPv4Address]) -> bool:
        self.looks += 1
        self._then()
        if self.looks < self._carrier_at:
            return False
        self.announced.append((ifname, [str(address) for address in addresses]))
        return True


@pytest.fixture
def announcing(node: Node, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Attach net1 with an IPv4 and an IPv6 address, or with the given ones, and announce on a wire until that ends."""

    def run(wire: Wire, *addresses: str) -> None:
        monkeypatch.setattr(gratuitous_arp, "inside", lambda netns_fd, function: function())
        monkeypatch.setattr(gratuitous_arp, "announce", wire.announce)
        monkeypatch.setattr(gratuitous_arp, "_LOOK_SECONDS", 0.001)

        async def main(attachments: Attachments, netns_fd: int) -> None:
            record = await attached(attachments, netns_fd)
            given = tuple(map(ip_interface, addresses or ("10.56.3.1/16", "2001:db8::1/64")))
            (one,) = record.attachments
            attachments.announce(replace(record, attachments=(replace(one, addresses=given),)))
            await asyncio.wait(tuple(attachments._announcements._running))

        node.run(main)

    return run


@pytest.mark.parametrize("carrier_at", [1, 3])
def test_addresses_are_announced_once_when_there_is_a_carrier(
    node: Node, announcing: Callable[..., None], carrier_at: int
) -> None:
    node.network = replace(node.network, wait=10.0)  # how long it looks: a busy machine makes few looks in a short time
    wire = Wire(carrier_at)

    announcing(wire)

    assert (wire.looks, wire.announced) == (carrier_at, [("net1", ["10.56.3.1"])])


def test_ipv6_addresses_are_left_to_the_kernel(announcing: Callable[..., None]) -> None:
    announcing(wire := Wire(), "2001:db8::1/64")

    assert wire.looks == 0


def test_announcing_ends_when_the_namespace_is_gone(node: Node, announcing: Callable[..., None]) -> None:
    announcing(wire := Wire(1000, node.netns.unlink))

    assert wire.looks == 1


def test_announcing_ends_when_the_rail_is_detached(node: Node, announcing: Callable[..., None]) -> None:
    announcing(wire := Wire(1000, lambda: node.journal.remove(node.journal.get(KEY))))

    assert wire.looks == 1


def test_announcing_ends_when_no_carrier_comes(announcing: Callable[..., None]) -> None:
    announcing(wire := Wire(1_000_000))

    assert wire.announced == []


def test_refused_announcement_is_logged_and_ends_it(announcing: Callable[..., None], caplog) -> None:
    def refuse() -> None:
        raise OSError(19, "No such device")

    announcing(Wire(1, refuse))

    assert "were not announced to its neighbours" in caplog.text

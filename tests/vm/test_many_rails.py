"""Rails of one pod are kept apart by the real kernel: both cards are on one Ethernet segment, and both pods have a VF of each card.

Each test looks at real ARP and at the packets of each netdev. On network `mixed`, which says `routing: none`, the same looks show what
happens without the settings.
"""

import os
import socket
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address, ip_interface
from itertools import product
from pathlib import Path

import pytest

from railnet.kernel.namespaces.netns import inside
from simnode.ping import SILENT_SECONDS, ping
from tests.vm.guest import Guest, Pod, answers, mac_of

_LISTEN_SECONDS = 6.0  # an emulated processor is slow
_ECHOES = 5
_ARP, _ALL = 0x0806, 0x0003  # ETH_P_ARP, ETH_P_ALL
_REPLY = 2  # ARPOP_REPLY
_FRAMES = 32 << 20  # bytes; the socket must lose none
_CONF = Path("/proc/sys/net/ipv4/conf")
# struct arphdr of Ethernet and IPv4: hardware, protocol, two lengths, operation, then hardware and IP address of sender and target
_ARP_PACKET = struct.Struct("!HHBBH6s4s6s4s")
IFNAMES = ("net1", "net2")
JOINED, MIXED = ({"railnet.io/network": "default"},) * 2, ({"railnet.io/network": "mixed"},) * 2
SUBNET, SUBNET6 = (
    tuple({"railnet.io/network": "subnet", "railnet.io/net1-ip": addresses} for addresses in both)
    for both in (
        ("10.60.0.1/24,10.60.0.2/24", "10.60.0.3/24,10.60.0.4/24"),
        ("fd60::1/64,fd60::2/64", "fd60::3/64,fd60::4/64"),
    )
)


@contextmanager
def reverse_path_filter(value: int) -> Iterator[None]:
    """Set the host's filter of the reverse path, strict is 1: a new namespace takes these values over from the first one."""
    files = [_CONF / name / "rp_filter" for name in ("all", "default")]
    before = [file.read_text() for file in files]
    for file in files:
        file.write_text(f"{value}\n")
    try:
        yield
    finally:
        for file, text in zip(files, before, strict=True):
            file.write_text(text)


@contextmanager
def two_pods(guest: Guest, annotations: tuple[dict[str, str], ...]) -> Iterator[tuple[Pod, Pod]]:
    """Run two pods, each with a VF of each card."""
    asking, asked = (guest.run(name, 2, found) for name, found in zip(("asking", "asked"), annotations, strict=True))
    try:
        assert [list(cards(pod)) for pod in (asking, asked)] == [[0, 1], [0, 1]]
        yield asking, asked
    finally:
        guest.remove(asking)
        guest.remove(asked)


def cards(pod: Pod) -> list[int]:
    return [int(rail["rail"]) for rail in pod.rails]


def addresses(pod: Pod) -> dict[str, str]:
    """Return the address of each rail, by its interface name."""
    return {rail["ifname"]: str(ip_interface(rail["addresses"][0]).ip) for rail in pod.rails}


def macs(pod: Pod) -> dict[str, str]:
    links = pod.links()
    return {ifname: str(links[ifname]["address"]) for ifname in IFNAMES}


def packet_socket(pod: Pod, kind: socket.SocketKind, protocol: int) -> socket.socket:
    """Open a packet socket in a pod's namespace: it gets each packet of every link, with the link's name."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, kind | socket.SOCK_CLOEXEC, socket.htons(protocol))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _FRAMES)
        return made

    fd = os.open(pod.sandbox.netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return inside(fd, make)
    finally:
        os.close(fd)


def answering_macs(asking: Pod, ifname: str, asked: str) -> set[str]:
    """Ask for an address by ARP through one link. Return the MACs of all answers."""
    own, mac = ip_address(addresses(asking)[ifname]).packed, bytes.fromhex(macs(asking)[ifname].replace(":", ""))
    request = _ARP_PACKET.pack(1, 0x0800, 6, 4, 1, mac, own, bytes(6), ip_address(asked).packed)
    found = set()
    with packet_socket(asking, socket.SOCK_DGRAM, _ARP) as packets:
        packets.sendto(request, (ifname, _ARP, 0, 0, b"\xff" * 6))
        end = time.monotonic() + _LISTEN_SECONDS
        while (left := end - time.monotonic()) > 0:
            packets.settimeout(left)
            try:
                _, _, _, _, operation, sender, source, *_ = _ARP_PACKET.unpack_from(packets.recv(2048))
            except TimeoutError:
                break
            if operation == _REPLY and source == ip_address(asked).packed:
                found.add(sender.hex(":"))
    return found


def echoes(asking: Pod, source: str, asked: Pod, destination: str) -> tuple[Counter[str], Counter[str]]:
    """Send echo requests from one address to another; return how many of them and of their answers each link of `asked` carried."""
    requests, replies = Counter[str](), Counter[str]()
    with packet_socket(asked, socket.SOCK_DGRAM, _ALL) as packets:
        command = ["ping", "-q", "-c", str(_ECHOES), "-i", "0.2", "-W", "2", "-I", source, destination]
        subprocess.run(["nsenter", f"--net={asking.sandbox.netns}", *command], capture_output=True, check=False)
        packets.settimeout(0.1)
        while True:
            try:
                packet, (ifname, _, kind, *_) = packets.recvfrom(2048)
            except TimeoutError:
                return requests, replies
            outgoing = kind == socket.PACKET_OUTGOING
            if outgoing and is_echo(packet, destination, source, reply=True):
                replies[ifname] += 1
            elif not outgoing and is_echo(packet, source, destination, reply=False):
                requests[ifname] += 1


def is_echo(packet: bytes, source: str, destination: str, *, reply: bool) -> bool:
    """Return whether an IP packet without options is an echo request or reply between two addresses."""
    both = ip_address(source).packed + ip_address(destination).packed
    if len(both) == 8:
        return (
            packet[0] == 0x45
            and packet[9] == socket.IPPROTO_ICMP
            and packet[12:21] == both + bytes((0 if reply else 8,))
        )
    return packet[:1] == b"\x60" and packet[6] == socket.IPPROTO_ICMPV6 and packet[8:41] == both + bytes((128 + reply,))


def await_answers(asking: Pod, asked: Pod) -> None:
    """Wait until each address has been reached once: a VF gets its carrier a little after it is up."""
    for source, destination in product(addresses(asking).values(), addresses(asked).values()):
        assert answers(partial(ping, asking.sandbox.netns, destination, ifname=source, seconds=SILENT_SECONDS)), (
            source,
            destination,
        )


@pytest.mark.parametrize(("annotations", "rp_filter"), [(JOINED, 0), (SUBNET, 1)], ids=["joined range", "one subnet"])
def test_each_address_is_answered_by_its_own_rails_mac_alone(
    guest: Guest, annotations: tuple[dict[str, str], ...], rp_filter: int
) -> None:
    with reverse_path_filter(rp_filter), two_pods(guest, annotations) as (asking, asked):
        await_answers(asking, asked)
        expected = {(via, ifname): {mac} for via in IFNAMES for ifname, mac in macs(asked).items()}
        found = {
            (via, ifname): answering_macs(asking, via, address)
            for via in IFNAMES
            for ifname, address in addresses(asked).items()
        }

    assert found == expected


@pytest.mark.parametrize(
    ("annotations", "rp_filter"),
    [(JOINED, 0), (JOINED, 1), (SUBNET, 1), (SUBNET6, 0)],
    ids=["joined range", "joined range, strict host", "one subnet, strict host", "IPv6"],
)
def test_each_answer_leaves_by_the_rail_that_was_asked(
    guest: Guest, annotations: tuple[dict[str, str], ...], rp_filter: int
) -> None:
    with reverse_path_filter(rp_filter), two_pods(guest, annotations) as (asking, asked):
        await_answers(asking, asked)
        found = {
            (source, ifname): echoes(asking, source, asked, address)
            for source in addresses(asking).values()
            for ifname, address in addresses(asked).items()
        }
        inherited = asked.output("cat", str(_CONF / "all" / "rp_filter"))

    assert inherited == f"{rp_filter}\n"
    assert len(found) == 4
    assert found == {(source, ifname): (Counter({ifname: _ECHOES}),) * 2 for source, ifname in found}


def test_without_routing_each_rail_answers_for_each_address(guest: Guest) -> None:
    with reverse_path_filter(0), two_pods(guest, MIXED) as (asking, asked):
        await_answers(asking, asked)
        found = answering_macs(asking, "net1", addresses(asked)["net2"])
        both = set(macs(asked).values())

    assert found == both


@pytest.mark.parametrize(
    ("rp_filter", "answered"),
    [(0, Counter(net1=_ECHOES)), (1, Counter())],
    ids=["by another rail", "strict host: none"],
)
def test_without_routing_no_answer_leaves_by_the_rail_that_was_asked(
    guest: Guest, rp_filter: int, answered: Counter[str]
) -> None:
    with reverse_path_filter(rp_filter), two_pods(guest, MIXED) as (asking, asked):
        source, destination = addresses(asking)["net1"], addresses(asked)["net2"]
        for ifname in IFNAMES:
            assert answers(
                partial(ping, asking.sandbox.netns, addresses(asked)[ifname], ifname=ifname, seconds=SILENT_SECONDS)
            )
        # Which of the pod's MACs the asking pod has learned is an accident; this test is about the right one.
        asking.output("ip", "neighbour", "replace", destination, "lladdr", macs(asked)["net2"], "dev", "net2")
        requests, replies = echoes(asking, source, asked, destination)

    assert requests == Counter(net2=_ECHOES)
    assert replies == answered


def test_netdevs_that_are_back_on_the_node_have_none_of_the_settings(guest: Guest) -> None:
    pod = guest.run("train", 2)
    names = [str(rail["host_ifname"]) for rail in pod.rails]
    had = [pod.output("cat", str(_CONF / ifname / "arp_ignore")) for ifname in IFNAMES]
    guest.remove(pod)

    assert had == ["1\n", "1\n"]
    assert [mac_of(name) != "" for name in names] == [True, True]
    assert [
        (_CONF / name / key).read_text() for name in names for key in ("arp_ignore", "arp_announce", "rp_filter")
    ] == ["0\n"] * 6

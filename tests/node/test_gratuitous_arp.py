"""A gratuitous announcement replaces the hardware address that a neighbour remembers for an address."""

import json
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address, ip_interface
from pathlib import Path

import pytest

from railnet.kernel.netlink.arp import announce
from railnet.kernel.perform import attach
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.steps import ConfigureLink
from simnode.linux import netns
from simnode.waiting import wait_until

NEIGHBOUR, POD = Path("/run/netns/neighbour"), Path("/run/netns/announcer")


def ip(where: Path, *arguments: str) -> str:
    command = ["nsenter", f"--net={where}", "ip", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def remembered(address: str) -> str:
    (entry,) = json.loads(ip(NEIGHBOUR, "-json", "neighbour", "show", address))
    return str(entry["lladdr"])


@pytest.fixture
def mac() -> Iterator[str]:
    """Connect two namespaces by a veth pair and return the MAC of `net1`. The other end is up and has addresses."""
    for path in (NEIGHBOUR, POD):
        netns.create(path)
    ip(NEIGHBOUR, "link", "add", "wire", "type", "veth", "peer", "name", "net1")
    ip(NEIGHBOUR, "link", "set", "net1", "netns", POD.name)
    for address in ("192.0.2.1/24", "2001:db8::1/64"):
        ip(NEIGHBOUR, "address", "add", address, "dev", "wire")
    ip(NEIGHBOUR, "link", "set", "wire", "up")
    (link,) = json.loads(ip(POD, "-json", "link", "show", "net1"))
    yield str(link["address"])
    for path in (NEIGHBOUR, POD):
        netns.remove(path)


@pytest.mark.parametrize("text", ["192.0.2.9/24", "2001:db8::9/64"])
def test_stale_entry_of_a_neighbour_is_replaced(mac: str, text: str) -> None:
    address = ip_interface(text)
    host = str(address.ip)
    ip(NEIGHBOUR, "neighbour", "add", host, "lladdr", "02:00:00:00:00:99", "dev", "wire", "nud", "stale")

    ip(POD, "link", "set", "net1", "up")
    with POD.open("rb") as pod:
        attach((ConfigureLink("net1", (address,), ()),), pod.fileno(), Path("/"), Sysfs(Path("/sys")))
    if address.version == 4:
        wait_until(lambda: netns.run_inside(POD, lambda: announce("net1", [IPv4Address(host)])), 60, "a carrier")

    wait_until(lambda: remembered(host) == mac, 60, "the announcement")


def test_nothing_is_announced_without_a_carrier(mac: str) -> None:
    ip(NEIGHBOUR, "link", "set", "wire", "down")
    ip(POD, "link", "set", "net1", "up")

    assert not netns.run_inside(POD, lambda: announce("net1", [IPv4Address("192.0.2.9")]))

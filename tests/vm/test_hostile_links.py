"""A pod with NET_ADMIN changes all that it can on a real VF's netdev: nothing of it is left on the node or for the next pod."""

import ctypes
import json
import os
import platform
import shlex
import struct
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from railnet.kernel.netlink.protocol import attributes, u32
from railnet.kernel.netlink.rtnetlink import link_message, links
from simnode.linux import kernel_before_5_14, netns
from tests.vm.guest import Guest, Pod, netdevs

# Facts of `ip link` that come and go with the carrier and the state of the link.
_VOLATILE = {"ifindex", "operstate", "flags", "qdisc"}
_VOLATILE_FLAGS = {"UP", "LOWER_UP", "NO-CARRIER", "RUNNING"}
_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]  # __NR_bpf
_PROG_LOAD, _XDP = 5, 6  # BPF_PROG_LOAD, BPF_PROG_TYPE_XDP
_PASS = bytes.fromhex("b700000002000000 9500000000000000")  # r0 = XDP_PASS; exit
_IFLA_XDP, _IFLA_XDP_FD, _IFLA_XDP_FLAGS, _SKB_MODE = 43 | 1 << 15, 1, 3, 1 << 1

ROWS: dict[str, tuple[str, ...]] = {
    "MTU": ("ip link set net1 mtu 1400",),
    "txqueuelen": ("ip link set net1 txqueuelen 7",),
    "group": ("ip link set net1 group 7",),
    "alias": ("ip link set net1 alias evil",),
    "alternative names": ("ip link property add dev net1 altname evil altname cni0",),
    "name": ("ip link set net1 down", "ip link set net1 name cni0"),
    "flags": (
        "ip link set net1 arp off",
        "ip link set net1 promisc on",
        "ip link set net1 allmulticast on",
        "ip link set net1 multicast off",
    ),
    "broadcast": ("ip link set net1 broadcast ff:ff:ff:ff:ff:00",),
    "mode": ("ip link set net1 mode dormant",),
    "GSO and GRO": ("ip link set net1 gso_max_size 4096 gso_max_segs 7 gro_max_size 4096",),
    "master": ("ip link add br0 type bridge", "ip link set net1 master br0"),
    "VLAN": ("ip link add link net1 name v type vlan id 7", "ip link set v up"),
    "macvlan in promiscuous mode": ("ip link add link net1 name m type macvlan mode passthru",),
    "qdisc": ("tc qdisc replace dev net1 root pfifo limit 3",),
    "filter": ("tc qdisc add dev net1 clsact", "tc filter add dev net1 ingress matchall classid 1:1"),
    "neighbour": ("ip neighbour add 10.56.9.9 lladdr 52:54:00:00:00:99 dev net1 nud permanent",),
    "sysctls": ("sysctl -w net.ipv6.conf.net1.disable_ipv6=1 net.ipv4.conf.net1.proxy_arp=1",),
    "addrgenmode": ("ip link set net1 addrgenmode none",),
    "multicast": ("ip maddress add 33:33:00:00:00:05 dev net1",),
}


@pytest.mark.parametrize("commands", ROWS.values(), ids=ROWS.keys())
def test_nothing_that_a_pod_sets_is_left(guest: Guest, commands: tuple[str, ...]) -> None:
    def change(pod: Pod) -> None:
        for command in commands:
            pod.output(*command.split())

    before, after = states(guest, change)

    assert after == before


def test_xdp_program_is_removed(guest: Guest) -> None:
    before, after = states(guest, attach_xdp)

    assert after == before


def test_settings_of_the_operator_are_there_again(guest: Guest) -> None:
    name = next(iter(netdevs().values()))
    on_node("ip", "link", "set", name, "txqueuelen", "77", "group", "5", "alias", "rack 7")
    on_node("ip", "link", "property", "add", "dev", name, "altname", "rail0vf0")

    before, after = states(guest, lambda pod: pod.output("ip", "link", "set", "net1", "txqueuelen", "7", "group", "0"))

    on_node("ip", "link", "property", "del", "dev", name, "altname", "rail0vf0")
    on_node("ip", "link", "set", name, "txqueuelen", "1000", "group", "0", "alias", "")
    assert after == before


def test_links_that_a_pod_made_on_its_netdev_are_gone_though_its_namespace_lives(guest: Guest) -> None:
    pod = guest.run("hostile")
    held = os.open(pod.sandbox.netns, os.O_RDONLY)
    try:
        pod.output("ip", "link", "add", "link", "net1", "name", "v", "type", "vlan", "id", "7")
        guest.remove(pod)
        netns_links = subprocess.run(
            ["nsenter", f"--net=/proc/{os.getpid()}/fd/{held}", "ip", "-brief", "link"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    finally:
        os.close(held)

    assert "v@" not in netns_links


def test_forged_tun_with_our_mark_is_left_alone(guest: Guest) -> None:
    before = netdevs()
    pod = guest.run("hostile")
    vf, host_ifname = pod.rails[0]["vf"], pod.rails[0]["host_ifname"]
    netns.create(path := pod.sandbox.netns.with_name("held"))
    try:
        pod.output("ip", "tuntap", "add", "dev", "forged", "mode", "tun")
        pod.output("ip", "link", "set", "forged", "alias", f"railnet {vf} {host_ifname}")
        pod.output("ip", "link", "set", "lo", "alias", f"railnet {vf} {host_ifname}")
        subprocess.run(
            ["nsenter", f"--net={pod.sandbox.netns}", "ip", "link", "set", "net1", "netns", "held"], check=True
        )
        guest.remove(pod)
    finally:
        netns.remove(path)

    assert netdevs() == before


@pytest.fixture
def kernel_names_no_devices(guest: Guest) -> Iterator[None]:
    """Run the daemon as on a kernel of 5.6 to 5.13."""
    guest.stop_daemon()
    guest.daemon.starter = kernel_before_5_14.STARTER
    guest.start_daemon()
    yield
    guest.stop_daemon()
    guest.daemon.starter = ()
    guest.start_daemon()


HIDINGS = {
    "another name and another alias": ("ip link set net1 name evil", "ip link set evil alias evil"),
    "no alias": ("ip link set net1 name evil", "ip link set evil alias ''"),
    "the mark of another VF": ("ip link set net1 alias 'railnet 0000:02:10.0 evil'",),
}


@pytest.mark.usefixtures("kernel_names_no_devices")
@pytest.mark.parametrize("dies", [False, True], ids=["DEL", "its namespace ends first"])
@pytest.mark.parametrize("commands", HIDINGS.values(), ids=HIDINGS.keys())
def test_netdev_that_a_pod_hides_comes_back_as_ours_where_the_kernel_names_no_devices(
    guest: Guest, commands: tuple[str, ...], dies: bool
) -> None:
    before, log = netdevs(), len(guest.daemon.log())
    pod = guest.run("hostile")
    pod.output("ip", "link", "set", "net1", "down")
    for command in commands:
        pod.output(*shlex.split(command))
    if dies:
        guest.runtime.remove_sandbox(pod.sandbox)
    guest.remove(pod)
    guest.wait_until_healthy()

    assert netdevs() == before
    assert dies or "binding" not in guest.daemon.log()[log:]  # the driver named the netdev, so no new one was made


def states(guest: Guest, change: Callable[[Pod], object]) -> tuple[list[Any], list[Any]]:
    """Return what a netdev is on the node and in a pod, before and after another pod had changed it."""
    free = {vf: on_node_state(name) for vf, name in netdevs().items()}
    pod = guest.run("hostile")
    vf = pod.rails[0]["vf"]
    before = [free[vf], in_pod_state(pod)]
    try:
        change(pod)
    finally:
        guest.remove(pod)
    returned = on_node_state(netdevs()[vf])
    other = guest.run("next")
    after, same = [returned, in_pod_state(other)], other.rails[0]["vf"]
    guest.remove(other)
    assert same == vf
    return before, after


def on_node_state(name: str) -> dict[str, Any]:
    (link,) = json.loads(on_node("ip", "-json", "-details", "link", "show", name))
    return stable(link)


def in_pod_state(pod: Pod) -> list[Any]:
    (link,) = json.loads(pod.output("ip", "-json", "-details", "link", "show", "net1"))
    addresses = [a["local"] for a in pod.links()["net1"]["addr_info"] if a["scope"] == "global"]
    sysctls = pod.output("sysctl", "-a", "--pattern", r"^net\.ipv[46]\.conf\.net1\.")
    filters = (
        pod.output("tc", "qdisc", "show", "dev", "net1"),
        pod.output("ip", "neighbour", "show", "nud", "permanent"),
    )
    multicast = pod.output("ip", "maddress", "show", "dev", "net1").count("33:33:00:00:00:05")
    link.pop("ifalias", None)
    return [stable(link), addresses, sysctls, [one.replace("dev net1 ", "") for one in filters], multicast]


def stable(link: dict[str, Any]) -> dict[str, Any]:
    flags = sorted(set(link["flags"]) - _VOLATILE_FLAGS)
    return {key: value for key, value in link.items() if key not in _VOLATILE} | {"stable flags": flags}


def on_node(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def attach_xdp(pod: Pod) -> None:
    """Attach a program that passes each packet, as a pod with BPF and NET_ADMIN can."""
    code, license_ = ctypes.create_string_buffer(_PASS), ctypes.create_string_buffer(b"GPL")
    wanted = struct.pack("=IIQQ", _XDP, len(_PASS) // 8, ctypes.addressof(code), ctypes.addressof(license_))
    attr = ctypes.create_string_buffer(wanted.ljust(128, b"\0"))
    libc = ctypes.CDLL(None, use_errno=True)
    program = libc.syscall(_BPF, _PROG_LOAD, attr, 128)
    assert program >= 0, os.strerror(ctypes.get_errno())
    fd = os.open(pod.sandbox.netns, os.O_RDONLY)
    try:
        with links(fd) as there:
            ifindex = there.ifindex("net1")
            assert ifindex is not None
            change = attributes((_IFLA_XDP_FD, u32(program)), (_IFLA_XDP_FLAGS, u32(_SKB_MODE)))
            there.change("attach XDP", link_message(ifindex), (_IFLA_XDP, change))
    finally:
        os.close(fd)
        os.close(program)
    assert "xdp" in pod.output("ip", "link", "show", "net1")

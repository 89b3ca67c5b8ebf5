"""A pod with NET_ADMIN does what it can to its links: its VFs come back all the same, and as they were."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from simnode.node import RESOURCE, Node, Pod
from tests.node.primaries import RUN, left_over, node_links

_MOST = 496  # rtnl_alt_ifname(), net/core/rtnetlink.c: all names of a link together have less than 64 KiB
_LONGEST = 127  # ALTIFNAMSIZ with the NUL at its end, include/uapi/linux/if.h


def in_pod(pod: Pod, *command: str) -> str:
    run = ["nsenter", f"--net={pod.netns}", *command]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout


def give_altname(pod: Pod, altname: str) -> None:
    in_pod(pod, "ip", "link", "property", "add", "dev", "net1", "altname", altname)


def altnames_on_node(ifname: str) -> str:
    shown = subprocess.run(
        ["ip", "-oneline", "link", "show", ifname], check=True, capture_output=True, text=True
    ).stdout
    return shown.partition("altname")[2]


@pytest.mark.parametrize("altname", ["cni0", "ibs5v1", "ibs5v0"])
def test_del_brings_a_netdev_back_though_its_alternative_name_exists_on_the_node(node: Node, altname: str) -> None:
    pod = node.run_pod("hostile", vfs=1)
    give_altname(pod, altname)

    node.remove_pod(pod)

    assert "ibs5v0" in node_links()
    assert altnames_on_node("ibs5v0") == ""
    assert left_over(node) == []


def test_del_brings_a_netdev_back_though_each_of_its_names_exists_on_the_node(node: Node) -> None:
    pod = node.run_pod("hostile", vfs=1)
    in_pod(pod, "ip", "link", "set", "net1", "down")
    in_pod(pod, "ip", "link", "set", "net1", "name", "cni0")
    in_pod(pod, "ip", "link", "property", "add", "dev", "cni0", "altname", "ibs5v1")

    node.remove_pod(pod)

    assert "ibs5v0" in node_links()
    assert left_over(node) == []


def test_del_brings_back_a_netdev_with_as_many_alternative_names_as_the_kernel_permits(node: Node) -> None:
    pod = node.run_pod("hostile", vfs=1)
    for first in range(0, _MOST, 31):
        options = [word for n in range(first, first + 31) for word in ("altname", f"{n:x<{_LONGEST}}")]
        in_pod(pod, "ip", "link", "property", "add", "dev", "net1", *options)

    node.remove_pod(pod)

    assert "ibs5v0" in node_links()
    assert altnames_on_node("ibs5v0") == ""


def test_next_pod_gets_a_vf_that_returned_with_its_last_pods_alternative_name(node: Node) -> None:
    pod = node.run_pod("hostile", vfs=1)
    in_pod(pod, "ip", "link", "set", "net1", "down")
    in_pod(pod, "ip", "link", "set", "net1", "name", "x")
    in_pod(pod, "ip", "link", "property", "add", "dev", "x", "altname", "net1")
    node.destroy_netns(pod)  # without DEL: the kernel returns the netdev with the names that the pod gave it
    node.remove_pod(pod)

    other = node.run_pod("other", vfs=1)
    links = in_pod(other, "ip", "-oneline", "link")
    node.remove_pod(other)

    assert "net1" in links
    assert "altname" not in links


# The kernel names no PCI device for the netdevs of a simulated node, as kernels before 5.14 do for all, and their drivers name none.

HIDINGS = {
    "another name and another alias": ("ip link set net1 name evil", "ip link set evil alias evil"),
    "another name and no alias": ("ip link set net1 name evil", "ip link set evil alias ''"),
    "the mark of another VF": ("ip link set net1 alias 'railnet 0000:03:00.7 ibs5v6'", "ip link set net1 name ibs5v6"),
    "settings": ("ip link set net1 name evil", "ip link set evil mtu 1400 txqueuelen 7 group 7 alias evil"),
}


@pytest.mark.parametrize("dies", [False, True], ids=["DEL", "its namespace ends first"])
@pytest.mark.parametrize("commands", HIDINGS.values(), ids=HIDINGS.keys())
def test_netdev_that_a_pod_hides_comes_back_as_ours(node: Node, commands: tuple[str, ...], dies: bool) -> None:
    before = {name: settings_on_node(name) for name in ("ibs5v0", "ibs5v6")}
    pod = node.run_pod("hostile", vfs=1)
    in_pod(pod, "ip", "link", "set", "net1", "down")
    for command in commands:
        in_pod(pod, *shlex.split(command))

    if dies:
        node.destroy_netns(pod)
    node.remove_pod(pod)
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, 60)
    other = node.run_pod("other", vfs=1)
    (rail,) = rails_of(other)
    node.remove_pod(other)

    assert (rail["host_ifname"], rail["mtu"]) == ("ibs5v0", 4092)
    assert left_over(node) == []
    assert {name: settings_on_node(name) for name in before} == before


def test_names_that_a_pod_gives_its_netdevs_crosswise_are_ours_again(node: Node) -> None:
    pod = node.run_pod("hostile", vfs=2)
    first, second = rails_of(pod)
    for ifname, other in (("net1", second), ("net2", first)):
        in_pod(pod, "ip", "link", "set", ifname, "alias", f"railnet {other['vf']} {other['host_ifname']}")
    node.remove_pod(pod)
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, 60)

    assert left_over(node) == []
    names = {path.parent.parent.name: path.name for path in Path("/sys/bus/pci/devices").glob("*/net/*")}
    assert [names[vf] for vf in sorted(names)][1:] == [f"ibs5v{index}" for index in range(node.vfs)]


def rails_of(pod: Pod) -> list[dict[str, Any]]:
    record = json.loads((RUN / "journal" / f"{pod.container_id}@eth0.json").read_text())
    rails: list[dict[str, Any]] = record["attachments"]
    return rails


def settings_on_node(ifname: str) -> dict[str, object]:
    shown = subprocess.run(["ip", "-json", "link", "show", ifname], check=True, capture_output=True, text=True).stdout
    (link,) = json.loads(shown)
    return {name: link.get(name) for name in ("mtu", "txqlen", "group", "ifalias", "altnames")}

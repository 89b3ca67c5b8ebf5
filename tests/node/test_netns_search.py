"""The addresses in a node's namespaces are found, whether a mount or a process keeps the namespace. A veth is deleted only by name and address."""

import subprocess
import uuid
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from railnet.kernel.namespaces import netns_search
from railnet.kernel.netlink import veth_deletion
from simnode.linux import netns

ROOT = Path("/")


@pytest.fixture(params=["/run/netns/living-", "/run/odd place/living-"])
def bound(request: pytest.FixtureRequest) -> Iterator[Path]:
    path = Path(f"{request.param}{uuid.uuid4()}")
    path.parent.mkdir(exist_ok=True)
    netns.create(path)
    yield path
    if path.exists():
        netns.remove(path)


def give(path: Path, address: str) -> None:
    subprocess.run(["nsenter", f"--net={path}", "ip", "address", "add", address, "dev", "lo"], check=True)


def has(address: str) -> bool:
    return ip_address(address) in netns_search.addresses(ROOT)


def test_namespace_is_found_while_it_is_bound(bound: Path) -> None:
    give(bound, "10.7.7.7/32")
    give(bound, "fd77::7/128")
    assert (has("10.7.7.7"), has("fd77::7"), netns_search.is_bound(ROOT, str(bound))) == (True, True, True)

    netns.remove(bound)

    assert (has("10.7.7.7"), has("fd77::7"), netns_search.is_bound(ROOT, str(bound))) == (False, False, False)


def test_namespace_is_found_by_its_mount_point(bound: Path) -> None:
    inode = bound.stat().st_ino

    found = {one.path: one.inode for one, _ in netns_search.namespaces(ROOT)}

    assert found[str(bound)] == inode


def test_namespace_is_found_while_a_process_is_in_it(bound: Path) -> None:
    give(bound, "10.7.7.8/32")
    command = ["nsenter", f"--net={bound}", "sh", "-c", "echo; cat"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()  # it has entered the namespace
    netns.remove(bound)

    lives = has("10.7.7.8")
    process.communicate()

    assert (lives, has("10.7.7.8")) == (True, False)


def test_addresses_of_the_nodes_own_namespace_do_not_count(bound: Path) -> None:
    subprocess.run(["ip", "address", "add", "10.7.7.9/32", "dev", "lo"], check=True)

    assert not has("10.7.7.9")

    subprocess.run(["ip", "address", "del", "10.7.7.9/32", "dev", "lo"], check=True)


@pytest.mark.parametrize("path", ["/proc/self/status", "/run", "/nowhere", "/run/\0"])
def test_path_of_another_kind_is_no_namespace(path: str) -> None:
    assert not netns_search.is_bound(ROOT, path)


@pytest.mark.parametrize(
    ("kind", "ifname", "address", "deleted"),
    [
        (["veth", "peer", "name", "living1"], "living0", "02:00:00:00:00:07", True),
        (["veth", "peer", "name", "living1"], "living0", "02:00:00:00:00:08", False),
        (["veth", "peer", "name", "living1"], "living9", "02:00:00:00:00:07", False),
        (["bridge"], "living0", "02:00:00:00:00:07", False),
    ],
    ids=["both match", "another address", "another name", "no veth"],
)
def test_veth_is_deleted_by_name_and_address_together(
    kind: list[str], ifname: str, address: str, deleted: bool
) -> None:
    made = ["ip", "link", "add", "living0", "address", "02:00:00:00:00:07", "type", *kind]
    subprocess.run(made, check=True)

    found = veth_deletion.delete(ifname, address.upper())

    left = "living0" in Path("/proc/net/dev").read_text()
    if left:
        subprocess.run(["ip", "link", "del", "living0"], check=True)
    assert (found, left) == (deleted, not deleted)

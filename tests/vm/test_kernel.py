"""The real kernel's behaviour on which kernel/ and vf/ depend."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EEXIST, EINVAL, ENODEV, EOPNOTSUPP
from ipaddress import ip_interface
from pathlib import Path
from select import select
from socket import AF_NETLINK, NETLINK_ROUTE, SOCK_RAW, socket

import pytest

from railnet.kernel.inventory import reread
from railnet.kernel.namespaces.netns import inside
from railnet.kernel.netlink import pf_link_query, uevents, vf_configuration
from railnet.kernel.netlink.rtnetlink import Link, links
from railnet.kernel.sockets.socket_filter import attach, uevents_of_hardware
from railnet.kernel.sockets.socket_filter import links as links_that_pass
from railnet.kernel.sysfs.folder import SysfsFolder
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.changed_functions import ChangedFunction, changed_functions
from railnet.vf.guid import Guid
from railnet.vf.mac import Mac
from railnet.vf.pci_address import PciAddress
from simnode.linux import netns
from simnode.ping import SILENT_SECONDS, ping
from simnode.waiting import wait_until
from tests.vm.guest import DEVICES, PFS, Guest, answers, netdevs, vfs

SYSFS = Sysfs(Path("/sys"))
NETLINK_KOBJECT_UEVENT = 15  # include/uapi/linux/netlink.h
_SECONDS = 180.0  # an emulated processor is slow


@pytest.fixture
def node_alone(guest: Guest) -> Guest:
    """Return the guest without a daemon: it would take the namespaces of these tests for pods whose records are lost."""
    guest.stop_daemon()
    return guest


def test_vf_cannot_be_bound_while_its_pf_forbids_drivers(guest: Guest) -> None:
    pf, vf = PciAddress.parse(PFS[0]), PciAddress.parse(vfs()[0])
    SYSFS.unbind(vf, "igbvf")
    SYSFS.set_drivers_autoprobe(pf, False)
    with pytest.raises(OSError, match="No such device") as refused:
        SYSFS.bind(vf, "igbvf")
    SYSFS.set_drivers_autoprobe(pf, True)
    SYSFS.bind(vf, "igbvf")

    assert refused.value.errno == ENODEV


def test_number_of_vfs_cannot_change_while_there_are_vfs(guest: Guest) -> None:
    with pytest.raises(OSError, match="Device or resource busy"):
        SYSFS.set_numvfs(PciAddress.parse(PFS[0]), 2)


def test_netlink_reports_the_pci_device_of_a_netdev_in_every_namespace(node_alone: Guest) -> None:
    vf, name = first_vf()
    with links() as node, namespace() as there:
        here = find(node.listed(), vf)
        node.move(here.ifindex, there, "net1")
        moved = find(inside(there, listed), vf)
        inside(there, lambda: send_back(moved.ifindex, name))

    assert (here.ifname, moved.ifname, moved.parent) == (name, "net1", vf)


def test_move_to_a_taken_name_fails_but_moves_the_link_under_its_old_name(node_alone: Guest) -> None:
    vf, name = first_vf()
    with links() as node, namespace() as there:
        inside(there, lambda: subprocess.run(["ip", "link", "add", "net1", "type", "bridge"], check=True))
        with pytest.raises(OSError, match="to another namespace as 'net1'") as refused:
            node.move(find(node.listed(), vf).ifindex, there, "net1")
        moved = find(inside(there, listed), vf)
        inside(there, lambda: send_back(moved.ifindex, name))

    assert refused.value.errno == EEXIST
    assert moved.ifname == name


def test_netdev_of_a_namespace_that_dies_returns_under_the_name_it_had_there(node_alone: Guest) -> None:
    vf, name = first_vf()
    with links() as node:
        ifindex = find(node.listed(), vf).ifindex
        with namespace() as there:
            node.move(ifindex, there, "net1")
        wait_until(lambda: vf in netdevs(), _SECONDS, "the netdev to return")
        returned = netdevs()[vf]
        node.rename(find(node.listed(), vf).ifindex, name)

    assert returned == "net1"


def test_vfs_of_two_cards_reach_each_other(node_alone: Guest) -> None:
    names, ends = netdevs(), (vfs()[0], vfs()[-1])
    with namespace() as here, namespace() as there:
        for vf, fd, address in zip(ends, (here, there), ("192.0.2.1/24", "192.0.2.2/24"), strict=True):
            with links() as node:
                node.move(find(node.listed(), vf).ifindex, fd, "net1")
            inside(fd, lambda address=address: plug_in(address))
        end = Path(f"/proc/{os.getpid()}/fd/{here}")
        answered = answers(lambda: ping(end, "192.0.2.2", seconds=SILENT_SECONDS))
        for vf, fd in zip(ends, (here, there), strict=True):
            moved = find(inside(fd, listed), vf)
            inside(fd, lambda moved=moved, vf=vf: send_back(moved.ifindex, names[vf]))

    assert answered


def test_card_without_infiniband_refuses_a_guid(guest: Guest) -> None:
    with pytest.raises(OSError, match="set GUID") as refused:
        vf_configuration.set_guids(pf_ifindex(), 0, Guid.parse("ba59:9f03:01f9:8f86"))

    assert refused.value.errno == EOPNOTSUPP


def test_pf_refuses_a_mac_for_a_missing_vf(guest: Guest) -> None:
    with pytest.raises(OSError, match=r"set MAC 52:54:09:00:00:01 of VF 99 through PF link \d+: ") as refused:
        vf_configuration.set_mac(pf_ifindex(), 99, Mac.parse("52:54:09:00:00:01"))

    assert refused.value.errno == EINVAL


def test_macs_are_read_from_the_pfs(guest: Guest) -> None:
    macs = pf_link_query.macs(SYSFS.inventory().pfs)

    assert {str(pf): str(mac) for pf, mac in macs.items()} == {
        "0000:01:00.0": "52:54:00:00:00:01",
        "0000:02:00.0": "52:54:00:00:00:02",
    }


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (f"/sys/bus/pci/devices/{PFS[0]}", {ChangedFunction(PciAddress.parse(PFS[0]), with_card=False)}),
        ("/sys/class/net/lo", set()),
    ],
    ids=["hardware", "a virtual link"],
)
def test_uevent_names_hardware_and_no_virtual_link(guest: Guest, path: str, named: set[ChangedFunction]) -> None:
    found = asyncio.run(named_by(lambda: Path(path, "uevent").write_text("change")))

    assert found == named


def test_uevents_of_a_move_name_the_vf_alone_and_no_other_function_is_read(
    node_alone: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    vf, name = first_vf()
    before = SYSFS.inventory()
    address = PciAddress.parse(vf)

    def move_and_return() -> None:
        with links() as node, namespace() as there:
            node.move(find(node.listed(), vf).ifindex, there, "net1")
            moved = find(inside(there, listed), vf)
            inside(there, lambda: send_back(moved.ifindex, name))

    found = asyncio.run(named_by(move_and_return))
    opened = opened_by(monkeypatch)
    read = asyncio.run(reread(SYSFS, before, changed_functions(found)))
    monkeypatch.undo()

    assert found == {ChangedFunction(address, with_card=False)}
    assert tuple(opened) == (address,)
    assert read.merged_into(before) == SYSFS.inventory() == before


def test_vf_without_a_driver_and_with_one_again_is_read_alone(guest: Guest) -> None:
    """Its driver's netdev has another ifindex then."""
    vf, before = PciAddress.parse(vfs()[0]), SYSFS.inventory()

    def bind_again() -> None:
        SYSFS.unbind(vf, "igbvf")
        SYSFS.bind(vf, "igbvf")
        wait_until(lambda: str(vf) in netdevs(), _SECONDS, "the netdev to return")

    found = asyncio.run(named_by(bind_again))
    read = asyncio.run(reread(SYSFS, before, changed_functions(found)))

    assert found == {ChangedFunction(vf, with_card=False)}
    assert list(read.vfs) == [vf]
    assert read.merged_into(before) == SYSFS.inventory() != before


def test_kernel_drops_what_it_says_of_a_plain_pods_veth(node_alone: Guest) -> None:
    pf = next((DEVICES / PFS[0] / "net").iterdir()).name
    with listening(NETLINK_KOBJECT_UEVENT) as devices, listening(NETLINK_ROUTE) as routes:
        attach(devices, uevents_of_hardware())
        attach(routes, links_that_pass({pf_ifindex()}))
        run("ip link add name veth8 numtxqueues 32 numrxqueues 32 type veth peer name veth9")
        run("ip link set dev veth8 up")
        run("ip link delete dev veth8")
        of_the_veth = [is_readable(one) for one in (devices, routes)]
        (DEVICES / PFS[0] / "uevent").write_text("change")
        run(f"ip link set dev {pf} promisc on")
        run(f"ip link set dev {pf} promisc off")
        of_the_pf = [is_readable(one) for one in (devices, routes)]

    assert of_the_veth == [False, False]
    assert of_the_pf == [True, True]


def run(command: str) -> None:
    subprocess.run(command.split(), check=True)


@contextmanager
def listening(family: int) -> Iterator[socket]:
    """Yield a socket that receives uevents, or the changes of links. Both are the family's first group."""
    with socket(AF_NETLINK, SOCK_RAW, family) as receiver:
        receiver.bind((0, 1))
        yield receiver


def is_readable(receiver: socket) -> bool:
    return bool(select([receiver], [], [], 0.2)[0])


async def named_by(work: Callable[[], object]) -> set[ChangedFunction]:
    """Do something, and return which functions the kernel's uevents name meanwhile and half a second after it. No uevent was lost."""
    found: set[ChangedFunction | None] = set()
    with uevents.changes(found.add):
        await asyncio.to_thread(work)
        await asyncio.sleep(0.5)
    return {one for one in found if one is not None} if None not in found else set()


def opened_by(monkeypatch: pytest.MonkeyPatch) -> list[PciAddress]:
    """Return a list to which the functions whose folders are opened are added from now on."""
    found: list[PciAddress] = []
    folder = SYSFS.folder

    def noted(function: PciAddress) -> SysfsFolder:
        found.append(function)
        return folder(function)

    monkeypatch.setattr(SYSFS, "folder", noted)
    return found


def first_vf() -> tuple[str, str]:
    """Return the first VF and the name of its netdev."""
    return next(iter(netdevs().items()))


def pf_ifindex() -> int:
    netdev = SYSFS.netdev(PciAddress.parse(PFS[0]))
    assert netdev is not None
    return netdev.ifindex


@contextmanager
def namespace() -> Iterator[int]:
    """Create a network namespace, and remove it at the end."""
    path = Path(f"/run/netns/test-{os.urandom(4).hex()}")
    netns.create(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)
        netns.remove(path)


def listed() -> tuple[Link, ...]:
    with links() as here:
        return here.listed()


def find(found: tuple[Link, ...], vf: str) -> Link:
    (link,) = (link for link in found if link.parent == vf)
    return link


def send_back(ifindex: int, name: str) -> None:
    node = os.open("/proc/1/ns/net", os.O_RDONLY)
    try:
        with links() as here:
            here.move(ifindex, node, name)
    finally:
        os.close(node)


def plug_in(address: str) -> None:
    with links() as here:
        ifindex = next(link.ifindex for link in here.listed() if link.ifname == "net1")
        here.add_address(ifindex, ip_interface(address))
        here.set_up(ifindex)

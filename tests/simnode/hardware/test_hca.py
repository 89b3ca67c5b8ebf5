import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from railnet.vf.pci_address import PciAddress
from simnode.hardware.infiniband_tun import read_netdev
from simnode.hardware.pf_properties import SimulatedPf
from simnode.hardware.spoiled_files import bad_value, hanging
from simnode.linux import netns
from simnode.waiting import wait_until

PF = Path("/sys/bus/pci/devices/0000:03:00.0")
VF0 = Path("/sys/bus/pci/devices/0000:03:00.1")
DRIVER = Path("/sys/bus/pci/drivers/mlx5_core")


def names(folder):
    return sorted(child.name for child in folder.iterdir())


def enable(hca, count, autoprobe=1):
    (PF / "sriov_drivers_autoprobe").write_text(str(autoprobe))
    (PF / "sriov_numvfs").write_text(str(count))
    hca.settle()


def set_guid(index, guid):
    for name in ("node", "port"):
        (PF / f"sriov/{index}/{name}").write_text(guid)


def text_if_any(path):
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def move(link, path, name):
    subprocess.run(["ip", "link", "set", link, "netns", path.name, "name", name], check=True)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("vendor", "0x15b3\n"),
        ("device", "0x1021\n"),
        ("class", "0x020700\n"),
        ("numa_node", "0\n"),
        ("driver_override", "(null)\n"),
        ("sriov_totalvfs", "16\n"),
        ("sriov_numvfs", "0\n"),
        ("sriov_vf_device", "101e\n"),
        ("sriov_drivers_autoprobe", "1\n"),
        ("infiniband/mlx5_0/node_guid", "b859:9f03:00f9:8f86\n"),
        ("infiniband/mlx5_0/node_type", "1: CA\n"),
        ("infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
        ("infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n"),
        ("infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:b859:9f03:00f9:8f86\n"),
        ("infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
        ("infiniband_verbs/uverbs0/dev", "231:192\n"),
        ("infiniband_mad/umad0/dev", "231:0\n"),
        ("infiniband_mad/issm0/dev", "231:64\n"),
        ("net/ibs5/type", "32\n"),
        ("net/ibs5/mtu", "4092\n"),
    ],
)
def test_pf_has_files_with_the_kernels_bytes(hca, path, content):
    assert (PF / path).read_bytes() == content.encode()


def test_address_of_a_pfs_netdev_ends_in_its_port_guid(hca):
    assert (PF / "net/ibs5/address").read_text().endswith(":fe:80:00:00:00:00:00:00:b8:59:9f:03:00:f9:8f:86\n")


def test_symbolic_links_have_the_same_targets_as_the_kernels(hca):
    enable(hca, 8)

    assert str(PF.readlink()) == "../../../devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0"
    assert str((PF / "driver").readlink()) == "../../../../../../bus/pci/drivers/mlx5_core"
    assert str((PF / "virtfn7").readlink()) == "../0000:03:01.0"
    assert str((VF0 / "physfn").readlink()) == "../0000:03:00.0"
    assert str((VF0 / "net/ibs5v0/device").readlink()) == "../../../0000:03:00.1"


def test_autoprobe_binds_a_vf_at_once(hca):
    enable(hca, 2)

    assert (PF / "sriov_numvfs").read_text() == "2\n"
    assert (VF0 / "driver").is_symlink()
    assert (VF0 / "infiniband/mlx5_1/node_guid").read_text() == "0000:0000:0000:0000\n"
    assert (VF0 / "infiniband/mlx5_1/ports/1/state").read_text() == "1: DOWN\n"


def test_number_of_vfs_cannot_change_while_vfs_exist(hca):
    enable(hca, 2)
    enable(hca, 4)

    assert (PF / "sriov_numvfs").read_text() == "2\n"
    assert not (PF / "virtfn2").exists()


@pytest.mark.parametrize("wrong", ["17", "-1", "many", "", "²"])
def test_wrong_number_of_vfs_changes_nothing(hca, wrong):
    (PF / "sriov_numvfs").write_text(wrong)
    hca.settle()

    assert (PF / "sriov_numvfs").read_text() == "0\n"


def test_disabled_vfs_leave_nothing_over(hca):
    enable(hca, 3)
    enable(hca, 0)

    assert names(Path("/sys/class/net")) == ["ibs5"]
    assert names(Path("/sys/bus/pci/devices")) == ["0000:03:00.0"]
    assert names(Path("/dev/infiniband")) == ["issm0", "rdma_cm", "umad0", "uverbs0"]
    assert read_netdev("ibs5v0") is None


def test_bind_without_autoprobe_and_override_is_refused_as_by_pci_device_can_probe(hca):
    enable(hca, 1, autoprobe=0)
    (DRIVER / "bind").write_text("0000:03:00.1")
    hca.settle()

    assert not (VF0 / "driver").exists()
    assert not (VF0 / "net").exists()


@pytest.mark.parametrize("allow", [PF / "sriov_drivers_autoprobe", VF0 / "driver_override"], ids=lambda path: path.name)
def test_bind_reads_the_guid_that_is_set_at_that_moment(hca, allow):
    enable(hca, 1, autoprobe=0)
    set_guid(0, "02:00:00:00:00:00:00:01")
    allow.write_text("1" if allow.name == "sriov_drivers_autoprobe" else "mlx5_core")
    (DRIVER / "bind").write_text("0000:03:00.1")
    hca.settle()
    set_guid(0, "02:00:00:00:00:00:00:02")
    hca.settle()

    assert (PF / "sriov/0/node").read_text() == "02:00:00:00:00:00:00:02\n"
    assert (VF0 / "infiniband/mlx5_1/node_guid").read_text() == "0200:0000:0000:0001\n"
    assert (VF0 / "infiniband/mlx5_1/ports/1/state").read_text() == "4: ACTIVE\n"
    assert (VF0 / "net/ibs5v0/address").read_text().endswith(":02:00:00:00:00:00:00:01\n")


def test_invalid_guid_changes_nothing(hca):
    enable(hca, 1)
    set_guid(0, "rubbish")
    hca.settle()

    assert (PF / "sriov/0/port").read_text() == "00:00:00:00:00:00:00:00\n"


def test_many_writes_to_bind_at_once_bind_all_vfs(hca):
    enable(hca, 16, autoprobe=0)
    (PF / "sriov_drivers_autoprobe").write_text("1")
    for index in range(16):
        (DRIVER / "bind").write_text((PF / f"virtfn{index}").readlink().name)
    hca.settle()

    assert len(names(Path("/sys/class/infiniband"))) == 17
    assert len(names(Path("/sys/class/net"))) == 17


def test_unbind_removes_netdev_and_rdma_device_and_frees_their_numbers(hca):
    enable(hca, 2)
    (VF0 / "driver/unbind").write_text("0000:03:00.1\n")
    hca.settle()
    unbound = not (VF0 / "net").exists() and not Path("/dev/infiniband/uverbs1").exists()
    (DRIVER / "bind").write_text("0000:03:00.1\n")
    hca.settle()

    assert unbound
    assert (VF0 / "infiniband_verbs/uverbs1/dev").read_text() == "231:193\n"


def test_device_node_has_the_numbers_that_sysfs_shows(hca):
    node = Path("/dev/infiniband/uverbs0").stat()

    assert stat.S_ISCHR(node.st_mode)
    assert (os.major(node.st_rdev), os.minor(node.st_rdev)) == (231, 192)


def test_sysfs_follows_a_netdev_that_leaves_the_node_and_returns(hca, pod_netns):
    enable(hca, 1)
    pod = pod_netns("pod")
    move("ibs5v0", pod, "net1")
    hca.settle()
    away = names(VF0 / "net"), Path("/sys/class/net/ibs5v0").is_symlink()
    netns.run_inside(pod, lambda: subprocess.run(["ip", "link", "set", "net1", "mtu", "2044"], check=True))
    subprocess.run(["ip", "-n", "pod", "link", "set", "net1", "netns", str(os.getpid()), "name", "ibs5v9"], check=True)
    hca.settle()

    assert away == ([], False)
    assert names(VF0 / "net") == ["ibs5v9"]
    assert (VF0 / "net/ibs5v9/mtu").read_text() == "2044\n"
    assert int((VF0 / "net/ibs5v9/ifindex").read_text()) == read_netdev("ibs5v9").ifindex


def test_sysfs_follows_a_new_name_and_mtu(hca):
    enable(hca, 1)
    subprocess.run(["ip", "link", "set", "ibs5v0", "name", "rail0", "mtu", "2044"], check=True)
    hca.settle()

    assert names(VF0 / "net") == ["rail0"]
    assert Path("/sys/class/net/rail0/mtu").read_text() == "2044\n"


def test_sysfs_follows_changes_without_a_call_of_settle(hca, pod_netns):
    enable(hca, 3)
    pod = pod_netns("pod")
    subprocess.run(["ip", "link", "set", "ibs5v1", "name", "rail1"], check=True)
    wait_until(lambda: names(PF / "virtfn1/net") == ["rail1"], 60, "the new name")
    move("rail1", pod, "net1")
    wait_until(lambda: names(PF / "virtfn1/net") == [], 60, "the move")
    subprocess.run(["ip", "-n", "pod", "link", "set", "net1", "netns", str(os.getpid()), "name", "ibs5v9"], check=True)
    wait_until(lambda: names(PF / "virtfn1/net") == ["ibs5v9"], 60, "the move back")

    assert names(VF0 / "net") == ["ibs5v0"]


def test_netdev_returns_under_its_name_in_the_pod_when_the_network_namespace_dies(hca, pod_netns):
    enable(hca, 1)
    pod = pod_netns("pod")
    move("ibs5v0", pod, "net1")
    hca.settle()
    netns.remove(pod)
    wait_until((VF0 / "net/net1/ifindex").exists, 60, "the netdev's return")

    assert int((VF0 / "net/net1/ifindex").read_text()) == read_netdev("net1").ifindex


def test_netdev_that_died_and_returned_between_two_updates_has_its_new_ifindex(hca, pod_netns):
    enable(hca, 1)
    pod = pod_netns("pod")
    old = (VF0 / "net/ibs5v0/ifindex").read_text()

    def between_two_updates():
        move("ibs5v0", pod, "ibs5v0")
        netns.remove(pod)
        wait_until(lambda: PciAddress(0, 3, 0, 1) not in dict(hca._places()), 60, "the netdev's death")

    hca.call(between_two_updates)
    wait_until(lambda: text_if_any(VF0 / "net/ibs5v0/ifindex") not in (None, old), 60, "the netdev's return")

    assert int((VF0 / "net/ibs5v0/ifindex").read_text()) == read_netdev("ibs5v0").ifindex


def test_netdevs_that_exchange_their_names_between_two_updates_are_distinguished(hca):
    enable(hca, 2)

    def between_two_updates():
        for old, new in (("ibs5v0", "other"), ("ibs5v1", "ibs5v0"), ("other", "ibs5v1")):
            subprocess.run(["ip", "link", "set", old, "name", new], check=True)

    hca.call(between_two_updates)
    hca.settle()

    assert (names(VF0 / "net"), names(PF / "virtfn1/net")) == (["ibs5v1"], ["ibs5v0"])
    assert Path("/sys/class/net/ibs5v0").resolve() == (PF / "virtfn1/net/ibs5v0").resolve()


def test_removed_vf_disappears_from_the_pod_that_has_it(hca, pod_netns):
    enable(hca, 1)
    pod = pod_netns("pod")
    move("ibs5v0", pod, "net1")
    enable(hca, 0)

    assert netns.run_inside(pod, lambda: read_netdev("net1")) is None


def test_set_port_sets_the_port_down_and_up(hca):
    hca.set_port(PciAddress(0, 3, 0, 0), active=False)
    down = (PF / "infiniband/mlx5_0/ports/1/state").read_text()
    hca.set_port(PciAddress(0, 3, 0, 0), active=True)

    assert down == "1: DOWN\n"
    assert (PF / "infiniband/mlx5_0/ports/1/state").read_text() == "4: ACTIVE\n"


def test_card_that_is_removed_takes_its_netdevs_along_and_comes_back_without_vfs(hca, fabric, pod_netns):
    enable(hca, 1)
    pod = pod_netns("pod")
    move("ibs5v0", pod, "net1")
    before = names(Path("/sys/class/infiniband"))

    hca.pull_out(PciAddress(0, 3, 0, 0))
    gone = (PF.exists(), read_netdev("ibs5"), netns.run_inside(pod, lambda: read_netdev("net1")))
    hca.plug_in(SimulatedPf(), fabric)

    assert gone == (False, None, None)
    assert (PF / "sriov_numvfs").read_text() == "0\n"
    enable(hca, 1)
    assert names(Path("/sys/class/infiniband")) == before
    assert (PF / "virtfn0/net/ibs5v0").exists()


def test_file_with_a_bad_value_has_its_own_value_again(hca):
    with bad_value(hca, PF / "class", ""):
        bad = (PF / "class").read_text()

    assert (bad, (PF / "class").read_text()) == ("", "0x020700\n")


def test_file_that_hangs_releases_its_readers(hca):
    read: list[str] = []
    with hanging(hca, PF / "class"):
        reader = threading.Thread(target=lambda: read.append((PF / "class").read_text()))
        reader.start()
        reader.join(0.2)
        hung = reader.is_alive()
    reader.join(10)

    assert (hung, read) == (True, [""])
    assert (PF / "class").read_text() == "0x020700\n"

"""Values of sysfs that cannot be understood: each costs the function whose file it is, and no other."""

from pathlib import Path

import pytest

from railnet.kernel.sysfs.folder import Unreadable
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.pci_address import PciAddress
from tests.railnet.kernel.tree import IN_POD, ON_NODE, PF, UNBOUND, Tree

UNRELATED = "0000:65:00.0"
VALUES = ["", "garbage", "-7", "0x", "9" * 200, "1_0", "\udcff\udcfe", "0:0:0"]
VF_FILES = [
    "class",
    "vendor",
    "net/ibs5v0/mtu",
    "net/ibs5v0/ifindex",
    "infiniband/mlx5_4/node_guid",
    "infiniband/mlx5_4/ports/1/link_layer",
    "infiniband_verbs/uverbs4/dev",
    "infiniband_mad/umad4/dev",
]
PF_FILES = [
    "class",
    "device",
    "numa_node",
    "sriov_totalvfs",
    "sriov_numvfs",
    "net/ibs5/mtu",
    "infiniband/mlx5_0/node_guid",
]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.whole()
    tree.function(UNRELATED, {"class": "0x010802\n", "sriov_totalvfs": "8\n", "sriov_numvfs": "0\n"})
    return tree


def put(tree: Tree, address: str, file: str, value: str) -> None:
    (tree.devices / address / file).write_bytes(value.encode(errors="surrogateescape"))


def faults(tree: Tree) -> dict[str, str]:
    inventory = Sysfs(tree.root).inventory()
    return {str(one.address): one.fault for one in (*inventory.pfs, *inventory.vfs()) if one.fault is not None}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("file", VF_FILES)
def test_bad_value_of_a_vf_is_the_fault_of_this_vf_alone(tree: Tree, file: str, value: str) -> None:
    put(tree, ON_NODE, file, value)

    found = faults(tree)

    assert found.keys() == {ON_NODE}
    assert f"{ON_NODE}/{file}: " in found[ON_NODE]
    assert "look in dmesg" in found[ON_NODE]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("file", PF_FILES)
def test_bad_value_of_a_pf_is_the_fault_of_this_pf_and_its_vfs_stay_listed(tree: Tree, file: str, value: str) -> None:
    put(tree, PF, file, value)

    assert faults(tree).keys() == {PF}
    assert [str(vf.address) for vf in Sysfs(tree.root).inventory().vfs()] == [ON_NODE, IN_POD, UNBOUND]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("file", ["class", "sriov_totalvfs"])
def test_unrelated_device_with_a_bad_value_is_passed_over(tree: Tree, file: str, value: str) -> None:
    put(tree, UNRELATED, file, value)

    assert faults(tree) == {}
    assert len(Sysfs(tree.root).inventory().pfs) == 1


def test_name_that_is_no_pci_address_is_passed_over(tree: Tree) -> None:
    (tree.devices / "0000:03:00.9").mkdir()
    (tree.devices / "lost+found").mkdir()
    (tree.devices / "0000:66:00.0").write_text("a file")

    assert faults(tree) == {}


def test_link_to_a_vf_that_leads_to_no_address_is_the_fault_of_the_pf(tree: Tree) -> None:
    (tree.devices / PF / "virtfn3").symlink_to("../nowhere")

    assert faults(tree).keys() == {PF}


@pytest.mark.parametrize("file", VF_FILES)
def test_fault_ends_when_the_value_is_good_again(tree: Tree, file: str) -> None:
    sysfs = Sysfs(tree.root)
    good = (tree.devices / ON_NODE / file).read_text()
    before = sysfs.inventory()
    put(tree, ON_NODE, file, "")
    vf = sysfs.inventory().vf(PciAddress.parse(ON_NODE))
    put(tree, ON_NODE, file, good)

    assert vf is not None
    assert sysfs.reread(vf).fault is None
    assert sysfs.inventory() == before


@pytest.mark.parametrize(
    "file", ["class", "vendor", "infiniband/mlx5_4/node_guid", "infiniband/mlx5_4/ports/1/link_layer"]
)
def test_function_with_a_fault_keeps_what_identifies_it(tree: Tree, file: str) -> None:
    sysfs = Sysfs(tree.root)
    before = sysfs.inventory()
    put(tree, ON_NODE, file, "")

    recalled = sysfs.inventory().recalling(before)

    vf, known = (each.vf(PciAddress.parse(ON_NODE)) for each in (recalled, before))
    assert vf is not None
    assert known is not None
    assert (vf.vendor, vf.device, vf.class_code, vf.rdma, vf.link_layer) == (
        known.vendor,
        known.device,
        known.class_code,
        known.rdma,
        known.link_layer,
    )


@pytest.mark.parametrize("file", PF_FILES)
def test_bad_value_of_a_pf_changes_no_rail(tree: Tree, file: str) -> None:
    sysfs = Sysfs(tree.root)
    before = sysfs.inventory()
    put(tree, PF, file, "")

    rails = sysfs.inventory().recalling(before).rails

    assert [rail.address for rail in rails] == [rail.address for rail in before.rails]


def test_netdev_on_the_node_is_known_in_spite_of_a_bad_mtu(tree: Tree) -> None:
    put(tree, ON_NODE, "net/ibs5v0/mtu", "")

    netdev = Sysfs(tree.root).netdev(PciAddress.parse(ON_NODE))

    assert netdev is not None
    assert netdev.name == "ibs5v0"


def test_whether_a_netdev_is_on_the_node_is_not_guessed(tree: Tree) -> None:
    put(tree, ON_NODE, "net/ibs5v0/ifindex", "")

    with pytest.raises(Unreadable, match="net/ibs5v0/ifindex"):
        Sysfs(tree.root).netdev(PciAddress.parse(ON_NODE))

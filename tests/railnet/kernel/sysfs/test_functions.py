"""PFs and VFs, read from a sysfs tree in the kernel's form, and the writes that change them."""

import re
import shutil
from pathlib import Path

import pytest

from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.guid import Guid
from railnet.vf.inventory import DeviceNode, Netdev, PhysicalFunction, Port, RdmaDevice, VirtualFunction
from railnet.vf.pci_address import PciAddress
from tests.railnet.kernel.tree import IN_POD, ON_NODE, PF, UNBOUND, Function, Tree, netdev, rdma

PF_ADDRESS = PciAddress.parse(PF)
SRIOV = {"sriov_totalvfs": "8\n", "sriov_numvfs": "0\n"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def whole(tree: Tree) -> Tree:
    tree.whole()
    return tree


def the_pf(tree: Tree) -> PhysicalFunction:
    (pf,) = Sysfs(tree.root).inventory().pfs
    return pf


def an_rdma_device(number: int, port: Port) -> RdmaDevice:
    return RdmaDevice(
        name=f"mlx5_{number}",
        node_guid=Guid.parse(f"b859:9f03:00f9:8f8{number}"),
        port=port,
        uverbs=DeviceNode(f"uverbs{number}", 231, 192 + number),
        umad=DeviceNode(f"umad{number}", 231, number),
        issm=DeviceNode(f"issm{number}", 231, 64 + number),
    )


def a_vf(address: str, index: int, **changes: object) -> VirtualFunction:
    facts = {"driver": "mlx5_core", "netdev": None, "rdma": None, **changes}
    return VirtualFunction(
        PciAddress.parse(address), index, PF_ADDRESS, "15b3", "101c", class_code=0x020700, numa_node=1, **facts
    )


def test_inventory_has_every_pf_with_every_vf(whole: Tree) -> None:
    down = Port("1: DOWN", "3: Disabled", "InfiniBand")

    assert the_pf(whole) == PhysicalFunction(
        address=PF_ADDRESS,
        vendor="15b3",
        device="101b",
        class_code=0x020700,
        driver="mlx5_core",
        numa_node=1,
        totalvfs=16,
        numvfs=3,
        netdev=Netdev("ibs5", 4, 4092),
        rdma=an_rdma_device(0, Port("4: ACTIVE", "5: LinkUp", "InfiniBand")),
        ofed_guid_files=False,
        vfs=(
            a_vf(ON_NODE, 0, netdev=Netdev("ibs5v0", 9, 4092), rdma=an_rdma_device(4, down)),
            a_vf(IN_POD, 1),
            a_vf(UNBOUND, 2, driver=None),
        ),
    )


def test_pfs_are_in_pci_order_not_in_text_order(tree: Tree) -> None:
    addresses = ["0000:83:00.0", "10000:01:00.0", "0000:0a:00.0"]
    for address in addresses:
        tree.function(address, SRIOV)

    pfs = Sysfs(tree.root).inventory().pfs

    assert [str(pf.address) for pf in pfs] == ["0000:0a:00.0", "0000:83:00.0", "10000:01:00.0"]


def test_more_than_ten_vfs_are_in_index_order(tree: Tree) -> None:
    pf = tree.function(PF, SRIOV)
    for index in range(12):
        address = f"0000:03:{(index + 1) // 8:02x}.{(index + 1) % 8}"
        tree.function(address, {})
        (pf / f"virtfn{index}").symlink_to(f"../{address}")

    assert [vf.index for vf in the_pf(tree).vfs] == list(range(12))


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"class": "0x020000\n", **SRIOV}, 1),
        ({"class": "0x020700\n"}, 0),
        ({"class": "0x010802\n", **SRIOV}, 0),
        ({"class": "0x030200\n", **SRIOV}, 0),
    ],
    ids=["Ethernet", "without SR-IOV", "NVMe", "GPU"],
)
def test_pf_is_a_network_controller_with_sriov(tree: Tree, files: dict[str, str], count: int) -> None:
    tree.function(PF, files)

    assert len(Sysfs(tree.root).inventory().pfs) == count


@pytest.mark.parametrize(("text", "node"), [("-1\n", -1), ("0\n", 0), (None, -1)], ids=["none", "first", "no file"])
def test_numa_node_is_the_firmwares_or_minus_one(tree: Tree, text: str | None, node: int) -> None:
    tree.function(PF, {**SRIOV, **({} if text is None else {"numa_node": text})})

    assert the_pf(tree).numa_node == node


def test_inventory_is_empty_if_there_is_no_pci_device(tree: Tree) -> None:
    assert Sysfs(tree.root).inventory().pfs == ()


def test_inventory_needs_a_sysfs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path))):
        Sysfs(tmp_path).inventory()


def test_inventory_of_a_machine_without_pci_is_empty(tmp_path: Path) -> None:
    (tmp_path / "bus").mkdir()

    assert Sysfs(tmp_path).inventory().pfs == ()


@pytest.mark.parametrize("kind", ["umad", "issm", "uverbs"])
def test_device_node_is_none_if_the_kernel_has_none(whole: Tree, kind: str) -> None:
    family = "infiniband_verbs" if kind == "uverbs" else "infiniband_mad"
    shutil.rmtree(whole.devices / PF / family / f"{kind}0")

    assert getattr(the_pf(whole).rdma, kind) is None


def test_port_is_none_when_the_device_shows_none(whole: Tree) -> None:
    shutil.rmtree(whole.devices / PF / "infiniband/mlx5_0/ports")

    assert the_pf(whole).rdma.port is None


def test_link_layer_of_a_roce_port_is_ethernet(whole: Tree) -> None:
    (whole.devices / PF / "infiniband/mlx5_0/ports/1/link_layer").write_text("Ethernet\n")

    assert the_pf(whole).link_layer == "Ethernet"


def test_rdma_device_that_is_going_away_is_none(whole: Tree) -> None:
    (whole.devices / PF / "infiniband/mlx5_0/node_guid").unlink()

    assert the_pf(whole).rdma is None


@pytest.mark.parametrize("gone", ["ifindex", "."], ids=["its ifindex", "all of it"])
def test_netdev_that_is_being_moved_is_none(whole: Tree, gone: str) -> None:
    path = whole.devices / PF / "net/ibs5"
    shutil.rmtree(path) if gone == "." else (path / gone).unlink()

    assert the_pf(whole).netdev is None


def test_ofed_guid_files_are_found(whole: Tree) -> None:
    (whole.devices / PF / "sriov/0").mkdir(parents=True)

    assert the_pf(whole).ofed_guid_files


def test_netdev_of_one_function_is_read_alone(whole: Tree) -> None:
    sysfs = Sysfs(whole.root)

    found = [sysfs.netdev(PciAddress.parse(address)) for address in (ON_NODE, IN_POD, UNBOUND, "0000:99:00.0")]

    assert found == [Netdev("ibs5v0", 9, 4092), None, None, None]


def test_reread_vf_has_its_present_facts(whole: Tree) -> None:
    sysfs = Sysfs(whole.root)
    before = sysfs.inventory().vf(PciAddress.parse(ON_NODE))
    shutil.rmtree(whole.devices / ON_NODE / "net")
    shutil.rmtree(whole.devices / ON_NODE / "infiniband")

    assert sysfs.reread(before) == a_vf(ON_NODE, 0)


def test_reread_pf_has_its_present_facts_and_its_earlier_vfs(whole: Tree) -> None:
    before = the_pf(whole)
    shutil.rmtree(whole.devices / PF / "net")
    (whole.devices / PF / "infiniband/mlx5_0/ports/1/state").write_text("4: ACTIVE\n")

    pf = Sysfs(whole.root).reread_pf(before)

    assert (pf.netdev, pf.rdma and pf.rdma.port and pf.rdma.port.state) == (None, "4: ACTIVE")
    assert pf.vfs == before.vfs


def test_reread_of_a_removed_pf_has_no_driver_netdev_and_rdma_device(whole: Tree) -> None:
    before = the_pf(whole)
    (whole.devices / PF).unlink()

    pf = Sysfs(whole.root).reread_pf(before)

    assert (pf.driver, pf.netdev, pf.rdma, pf.address) == (None, None, None, before.address)


# Writes that change PFs and VFs.


def test_guid_is_written_to_ofeds_files(whole: Tree) -> None:
    folder = whole.devices / PF / "sriov/2"
    folder.mkdir(parents=True)
    for name in ("node", "port", "policy"):
        (folder / name).touch()

    guid = "ba:59:9f:03:01:f9:8f:86"
    Sysfs(whole.root).set_guid(PF_ADDRESS, 2, Guid.parse(guid))

    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert written == {"node": f"{guid}\n", "port": f"{guid}\n", "policy": "Follow\n"}


def test_guid_cannot_be_set_if_ofeds_files_are_missing(whole: Tree) -> None:
    with pytest.raises(FileNotFoundError):
        Sysfs(whole.root).set_guid(PF_ADDRESS, 2, Guid(7))


def test_numvfs_and_autoprobe_are_written(whole: Tree) -> None:
    sysfs = Sysfs(whole.root)
    (whole.devices / PF / "sriov_numvfs").write_text("")
    (whole.devices / PF / "sriov_drivers_autoprobe").write_text("")

    sysfs.set_numvfs(PF_ADDRESS, 16)
    sysfs.set_drivers_autoprobe(PF_ADDRESS, False)

    assert (whole.devices / PF / "sriov_numvfs").read_text() == "16\n"
    assert (whole.devices / PF / "sriov_drivers_autoprobe").read_text() == "0\n"


@pytest.mark.parametrize("verb", ["bind", "unbind"])
def test_bind_and_unbind_write_the_address_to_the_driver(whole: Tree, verb: str) -> None:
    getattr(Sysfs(whole.root), verb)(PciAddress.parse(UNBOUND), "mlx5_core")

    assert (whole.root / "bus/pci/drivers/mlx5_core" / verb).read_text() == f"{UNBOUND}\n"


def test_bind_creates_no_file_if_the_driver_is_not_loaded(whole: Tree) -> None:
    with pytest.raises(FileNotFoundError):
        Sysfs(whole.root).bind(PciAddress.parse(UNBOUND), "mlx4_core")


def rate_file(tree: Tree) -> Path:
    return tree.root / "bus/pci/devices" / PF / "infiniband/mlx5_0/ports/1/rate"


def test_rate_is_the_number_of_gigabits(whole: Tree) -> None:
    rate_file(whole).write_text("400 Gb/sec (4X NDR)\n")

    assert Sysfs(whole.root).rate(PF_ADDRESS) == "400"


def test_rate_is_none_if_it_cannot_be_understood_or_there_is_no_port(whole: Tree) -> None:
    sysfs = Sysfs(whole.root)
    rate_file(whole).write_text("fast\n")

    assert sysfs.rate(PF_ADDRESS) is None
    assert sysfs.rate(PciAddress(0, 0x99, 0, 0)) is None


def test_netdev_is_the_first_of_several(tree: Tree) -> None:
    tree.function(PF, {**SRIOV, **netdev("ib0", 7), **netdev("ib0.8001", 8), **rdma(0, "4: ACTIVE", "5: LinkUp")})

    assert the_pf(tree).netdev == Netdev("ib0", 7, 4092)


@pytest.mark.parametrize("function", [PF, ON_NODE, IN_POD, UNBOUND, "0000:99:00.0"])
def test_driver_and_netdev_in_one_look_are_those_of_two_looks(whole: Tree, function: str) -> None:
    sysfs, address = Sysfs(whole.root), PciAddress.parse(function)

    assert sysfs.driver_and_netdev(address) == (sysfs.has_driver(address), sysfs.netdev(address))


@pytest.mark.parametrize(
    ("bridges", "root"),
    [
        ("pci0000:00", "pci0000:00"),
        ("pci10000:e0/10000:e0:01.0", "pci10000:e0"),
        ("LNXSYSTM:00/pci0000:00", None),
        ("platform/soc", None),
    ],
)
def test_pcie_root_is_the_first_folder_below_devices(tree: Tree, bridges: str, root: str | None) -> None:
    tree.write([Function(PF, SRIOV, bridges=bridges)])

    assert Sysfs(tree.root).pcie_root(PF_ADDRESS) == root


def test_function_that_has_gone_away_has_no_pcie_root(tree: Tree) -> None:
    assert Sysfs(tree.root).pcie_root(PF_ADDRESS) is None

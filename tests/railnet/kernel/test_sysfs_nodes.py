"""The complete inventory of every known kind of node, and which files an inventory opens."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.guid import Guid
from railnet.vf.inventory import DeviceNode, Inventory, Netdev, PhysicalFunction, Port, RdmaDevice, VirtualFunction
from railnet.vf.pci_address import PciAddress
from tests.railnet.kernel import nodes
from tests.railnet.kernel.tree import Function, Tree

ACTIVE = Port("4: ACTIVE", "5: LinkUp", "InfiniBand")
DOWN = Port("1: DOWN", "3: Disabled", "InfiniBand")
ROCE = Port("4: ACTIVE", "5: LinkUp", "Ethernet")
PF = "0000:03:00.0"


def device(number: int, guid: str, port: Port = DOWN, **changes: Any) -> RdmaDevice:
    """Return an RDMA device. Its character devices have the numbers of kernels with 32 fixed minors for uverbs."""
    return replace(
        RdmaDevice(
            name=f"mlx5_{number}",
            node_guid=Guid.parse(guid),
            port=port,
            uverbs=DeviceNode(f"uverbs{number}", *((231, 192 + number) if number < 32 else (508, number - 32))),
            umad=DeviceNode(f"umad{number}", *((231, number) if number < 64 else (507, number - 64))),
            issm=DeviceNode(f"issm{number}", *((231, 64 + number) if number < 64 else (507, number))),
        ),
        **changes,
    )


def the_pf(*vfs: VirtualFunction, address: str = PF, number: int = 0, **changes: Any) -> PhysicalFunction:
    pf = PhysicalFunction(
        address=PciAddress.parse(address),
        vendor="15b3",
        device="1021",
        class_code=0x020700,
        driver="mlx5_core",
        numa_node=0,
        totalvfs=max(len(vfs), 16),
        numvfs=len(vfs),
        netdev=Netdev(f"ibs{number}", 10 + number, 4092),
        rdma=device(number, f"b859:9f{address[5:7]}:00f9:8f86", ACTIVE),
        ofed_guid_files=False,
        vfs=vfs,
    )
    return replace(pf, **changes)


def the_vf(address: str, index: int, *, number: int | None = None, **changes: Any) -> VirtualFunction:
    number = index + 1 if number is None else number
    bus = address[5:7]
    vf = VirtualFunction(
        address=PciAddress.parse(address),
        index=index,
        pf=PciAddress.parse(f"0000:{bus}:00.0"),
        vendor="15b3",
        device="101e",
        class_code=0x020700,
        driver="mlx5_core",
        numa_node=0,
        netdev=Netdev(f"ibv{number}", 100 + number, 4092),
        rdma=device(number, f"b859:9f{bus}:00f9:{0x8F87 + index:04x}"),
    )
    return replace(vf, **changes)


V0, V1 = the_vf("0000:03:00.1", 0), the_vf("0000:03:00.2", 1)
EIGHT_VFS = tuple(the_vf(f"0000:03:0{(i + 1) // 8}.{(i + 1) % 8}", i) for i in range(8))
IN_A_POD = {"netdev": None, "rdma": None}


def two_vfs(pf: dict[str, Any], *vfs: dict[str, Any]) -> Inventory:
    """Return the usual PF with two VFs, with changes to each."""
    changed = (replace(vf, **changes) for vf, changes in zip((V0, V1), vfs, strict=True))
    return Inventory((the_pf(*changed, **pf),))


def without_issm(number: int, guid: str, port: Port = DOWN) -> dict[str, Any]:
    return {"rdma": device(number, guid, port, issm=None)}


CX3 = the_pf(
    device="1003",
    driver="mlx4_core",
    totalvfs=8,
    netdev=Netdev("ibs5", 7, 4092),
    rdma=device(9, "b859:9f03:00f9:8f86", ACTIVE, name="mlx4_0", port_numbers=(1, 2)),
)


def rails_of_eight() -> tuple[PhysicalFunction, ...]:
    pfs = []
    for rail, bus in enumerate(("18", "28", "38", "48", "58", "68", "78", "88")):
        numa_node = 0 if rail < 4 else 1
        vf = the_vf(f"0000:{bus}:00.1", 0, number=8 + rail, device="101c", numa_node=numa_node)
        pfs.append(the_pf(vf, address=f"0000:{bus}:00.0", number=rail, device="101b", numa_node=numa_node))
    return tuple(pfs)


def lone_vf(address: str, number: int, **changes: Any) -> VirtualFunction:
    netdev = Netdev(f"ibP{257 + number}s{100 + number}", 5 + number, 4092)
    rdma = device(number, f"b859:9f00:00f9:{0x8F87 + number:04x}", ACTIVE)
    vf = the_vf(address, 0, pf=None, numa_node=number, netdev=netdev, rdma=rdma)
    return replace(vf, **changes)


NODES = {
    "VFs in pods under exclusive mode": (
        nodes.IN_PODS,
        Inventory((the_pf(*(replace(vf, **IN_A_POD) if vf.index in {2, 5} else vf for vf in EIGHT_VFS)),)),
    ),
    "eight rails, two NUMA nodes, GPUs": (nodes.EIGHT_RAILS_AND_GPUS, Inventory(rails_of_eight())),
    "GUIDs never set, no ib_ipoib": (
        nodes.ZERO_GUIDS,
        two_vfs({}, *({"netdev": None, "rdma": device(n, "0000:0000:0000:0000")} for n in (1, 2))),
    ),
    "no cable, and no subnet manager": (
        nodes.NO_LINK_AND_NO_SUBNET_MANAGER,
        Inventory(
            (
                the_pf(rdma=device(0, "b859:9f03:00f9:8f86", Port("1: DOWN", "2: Polling", "InfiniBand"))),
                the_pf(
                    address="0000:04:00.0",
                    number=1,
                    rdma=device(1, "b859:9f04:00f9:8f86", Port("2: INIT", "5: LinkUp", "InfiniBand")),
                ),
            )
        ),
    ),
    "InfiniBand and Ethernet on one function": (nodes.TWO_PORTS_ON_ONE_FUNCTION, Inventory((CX3,))),
    "the same without ib_ipoib": (nodes.TWO_PORTS_WITHOUT_IPOIB, Inventory((replace(CX3, netdev=None),))),
    "InfiniBand and Ethernet on two functions": (
        nodes.TWO_PORTS_ON_TWO_FUNCTIONS,
        Inventory(
            (
                the_pf(the_vf("0000:03:00.2", 0)),
                the_pf(
                    address="0000:03:00.1",
                    class_code=0x020000,
                    netdev=Netdev("ens5f1np1", 12, 1500),
                    rdma=device(2, "b859:9f03:00f9:8f8e", ROCE),
                ),
            )
        ),
    ),
    "one VF bound to vfio-pci, one unbound": (
        nodes.FOR_A_GUEST_AND_UNBOUND,
        two_vfs({}, {**IN_A_POD, "driver": "vfio-pci"}, {**IN_A_POD, "driver": None}),
    ),
    "no ib_ipoib": (nodes.NO_IPOIB, two_vfs({"netdev": None}, {"netdev": None}, {"netdev": None})),
    "VFs without a PF": (
        nodes.AZURE,
        Inventory(
            lone_vfs=(
                lone_vf("0101:00:00.0", 0),
                lone_vf("0102:00:00.0", 1),
                lone_vf(
                    "7ae6:00:02.0",
                    0,
                    device="101a",
                    class_code=0x020000,
                    netdev=Netdev("enP31462s1", 4, 1500),
                    rdma=device(2, "b859:9f00:00f9:8f86", ROCE),
                ),
            )
        ),
    ),
    "127 VFs": (
        nodes.VFS_127,
        Inventory((the_pf(*(the_vf(f"0000:03:{n // 8:02x}.{n % 8}", n - 1) for n in range(1, 128))),)),
    ),
    "one name is the beginning of others": (
        nodes.PREFIX_NAMES,
        Inventory(
            (
                the_pf(
                    *(the_vf(f"0000:03:0{(i + 1) // 8}.{(i + 1) % 8}", i, number=10 + i) for i in range(10)), number=1
                ),
            )
        ),
    ),
    "no NUMA node": (nodes.NO_NUMA_NODE, two_vfs(*3 * [{"numa_node": -1}])),
    "MLNX_OFED": (nodes.OFED, two_vfs({"ofed_guid_files": True}, {}, {})),
    "no issm": (
        nodes.NO_ISSM,
        two_vfs(
            without_issm(0, "b859:9f03:00f9:8f86", ACTIVE),
            without_issm(1, "b859:9f03:00f9:8f87"),
            without_issm(2, "b859:9f03:00f9:8f88"),
        ),
    ),
    "Ethernet, and NICs that are not HCAs": (
        nodes.ETHERNET_ONLY,
        Inventory(
            (
                the_pf(
                    address="0000:3b:00.0",
                    device="101d",
                    class_code=0x020000,
                    totalvfs=8,
                    netdev=Netdev("ens1np0", 3, 1500),
                    rdma=device(0, "b859:9f3b:00f9:8f86", ROCE),
                ),
                the_pf(
                    the_vf(
                        "0000:5e:10.0",
                        0,
                        vendor="8086",
                        device="1520",
                        class_code=0x020000,
                        driver="igbvf",
                        netdev=Netdev("eno1v0", 8, 1500),
                        rdma=None,
                    ),
                    address="0000:5e:00.0",
                    vendor="8086",
                    device="1521",
                    class_code=0x020000,
                    driver="igb",
                    totalvfs=7,
                    netdev=Netdev("eno1", 2, 1500),
                    rdma=None,
                ),
            )
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("node", "inventory"), NODES.values(), ids=NODES.keys())
def test_inventory_is_complete(tmp_path: Path, node: tuple[Function, ...], inventory: Inventory) -> None:
    tree = Tree(tmp_path)
    tree.write(node)

    assert Sysfs(tree.root).inventory() == inventory


@pytest.mark.slow
@pytest.mark.parametrize("name", ["VFs in pods under exclusive mode", "VFs without a PF", "no issm", "127 VFs"])
def test_every_reread_vf_equals_the_inventorys(tmp_path: Path, name: str) -> None:
    node, inventory = NODES[name]
    Tree(tmp_path).write(node)
    sysfs = Sysfs(tmp_path)

    assert [sysfs.reread(vf) for vf in inventory.vfs()] == list(inventory.vfs())


@pytest.mark.parametrize("name", ["mlx5_10", "mlx5_1"])
def test_link_classes_lead_to_the_function(tmp_path: Path, name: str) -> None:
    """Check the test tree itself: as on a real kernel, a link below /sys/class leads into the function's folder."""
    Tree(tmp_path).write(nodes.PREFIX_NAMES)

    device = (tmp_path / "class/infiniband" / name).resolve()

    assert str(device).startswith(f"{tmp_path}/devices/{nodes.ROOT}/0000:03:00.")


# Opens are counted by real path, in a separate process, because `os` is patched for it.
COUNT = """
import collections, json, os, sys
from pathlib import Path
from railnet.kernel.sysfs.functions import Sysfs
opened, really_open, really_list = collections.Counter(), os.open, os.listdir
def count_open(path, flags, mode=0o777, *, dir_fd=None):
    fd = really_open(path, flags, mode, dir_fd=dir_fd)
    opened[os.readlink(f"/proc/self/fd/{fd}")] += 1
    return fd
def count_list(path):
    opened[f"{os.path.realpath(path)}/"] += 1
    return really_list(path)
sysfs, os.open, os.listdir = Sysfs(Path(sys.argv[1])), count_open, count_list
inventory = sysfs.inventory()
once, opened = opened, collections.Counter()
for vf in list(inventory.vfs())[:1]:
    sysfs.reread(vf)
print(json.dumps([once, opened]))
"""


def is_a_card(path: str) -> bool:
    """Return whether a path is a function's folder, which is opened to look at it, and again to read it as a card."""
    return re.fullmatch(r".*/[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", path) is not None


def opens(root: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Count how often each path is opened or, with a slash at its end, listed: by an inventory, and by a reread of its first VF."""
    done = subprocess.run([sys.executable, "-c", COUNT, root], stdout=subprocess.PIPE, check=True, timeout=60)
    inventory, again = json.loads(done.stdout)
    return inventory, again


@pytest.mark.slow
@pytest.mark.parametrize(
    "node",
    [nodes.many_vfs(pfs=2, vfs=20), nodes.OFED, nodes.AZURE, nodes.TWO_PORTS_ON_TWO_FUNCTIONS, nodes.ETHERNET_ONLY],
    ids=["many VFs", "OFED", "Azure", "two ports", "Ethernet"],
)
def test_each_file_is_opened_once(tmp_path: Path, node: tuple[Function, ...]) -> None:
    Tree(tmp_path).write(node)

    inventory, _ = opens(tmp_path)

    assert {Path(path).name for path in inventory} >= {"class", "vendor", "ifindex"}
    assert {path: count for path, count in inventory.items() if count > 1 and not is_a_card(path)} == {}


def test_each_file_of_two_ports_on_one_function_is_opened_once(tmp_path: Path) -> None:
    """Only two folders are listed twice: they also say whether a netdev belongs to port 2."""
    Tree(tmp_path).write(nodes.TWO_PORTS_ON_ONE_FUNCTION)

    inventory, _ = opens(tmp_path)

    assert [path for path, count in inventory.items() if count > 1 and not is_a_card(path)] == [
        f"{tmp_path}/devices/{nodes.ROOT}/{PF}/{folder}/" for folder in ("infiniband", "infiniband/mlx4_0/ports")
    ]


@pytest.mark.slow
def test_reread_of_one_vf_opens_no_file_of_another(tmp_path: Path) -> None:
    Tree(tmp_path).write(nodes.many_vfs(pfs=2, vfs=20))

    _, again = opens(tmp_path)

    assert len(again) == 16  # the folder, five lists, ten files
    assert [path for path in again if "/0000:10:00.1" not in path] == []


# Facts of one function that are read on demand.


def test_pkeys_are_the_used_entries_of_port_1(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write(nodes.cx7())
    table = tree.devices / "0000:03:00.1/infiniband/mlx5_1/ports/1/pkeys"
    for index, text in {0: "0x7fff", 2: "0x8001", 3: "0x8000", 10: "0x0002"}.items():
        (table / str(index)).write_text(f"{text}\n")

    assert Sysfs(tmp_path).pkeys(V0.address) == (0x7FFF, 0x8001, 0x0002)


def test_port_is_read_alone(tmp_path: Path) -> None:
    Tree(tmp_path).write(nodes.cx7())

    assert [Sysfs(tmp_path).port(address) for address in (PciAddress.parse(PF), V0.address)] == [ACTIVE, DOWN]


def test_function_without_a_visible_rdma_device_has_no_port_and_no_pkeys(tmp_path: Path) -> None:
    Tree(tmp_path).write(nodes.IN_PODS)
    sysfs, vf = Sysfs(tmp_path), EIGHT_VFS[2].address

    assert (sysfs.port(vf), sysfs.pkeys(vf)) == (None, ())


def test_vf_that_is_being_removed_is_left_out(tmp_path: Path) -> None:
    """The kernel removes the VF's folder before the PF's `virtfn1`."""
    tree = Tree(tmp_path)
    tree.write(nodes.cx7())
    shutil.rmtree((tree.devices / "0000:03:00.2").resolve())

    (pf,) = Sysfs(tmp_path).inventory().pfs

    assert pf.vfs == (V0,)


def test_reread_of_a_removed_vf_has_no_driver_netdev_and_rdma_device(tmp_path: Path) -> None:
    Tree(tmp_path).write(())
    sysfs = Sysfs(tmp_path)

    assert sysfs.reread(V0) == replace(V0, driver=None, netdev=None, rdma=None)
    assert (sysfs.port(V0.address), sysfs.pkeys(V0.address)) == (None, ())


def test_ethernet_card_is_not_a_rail_if_rails_are_infiniband(tmp_path: Path) -> None:
    Tree(tmp_path).write(nodes.AZURE)

    inventory = Sysfs(tmp_path, link_layers=frozenset({"InfiniBand"})).inventory()

    assert {rail.vfs[0].link_layer for rail in inventory.rails} == {"InfiniBand"}
    assert len(inventory.rails) == len(list(inventory.vfs())) - 1


def test_rails_are_in_the_configured_order(tmp_path: Path) -> None:
    Tree(tmp_path).write(nodes.EIGHT_RAILS_AND_GPUS)
    named = (PciAddress.parse("0000:88:00.0"), PciAddress.parse("0000:18:00.0"))

    inventory = Sysfs(tmp_path, named).inventory()

    assert [rail.address for rail in inventory.rails] == list(named)

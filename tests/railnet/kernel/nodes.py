"""Real nodes as values: each constant is the PCI functions of one node. `tree` writes them as a sysfs tree.

Formats and numbers come from dumps of nodes with ConnectX-4 to ConnectX-7. Each value combines several dumps.
"""

import struct
from collections.abc import Iterable, Mapping

from tests.railnet.kernel.tree import Function

IB, ETHERNET, GPU = 0x020700, 0x020000, 0x030200
ROOT = "pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0"  # root port, switch upstream, switch downstream
BROADCAST = "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff"
ZERO = "0000:0000:0000:0000"
Files = dict[str, str]


def lines(values: Mapping[str, object], folder: str = "") -> Files:
    return {f"{folder}{name}": f"{value}\n" for name, value in values.items()}


def pci(address: str, device: int, class_code: int = IB, *, vendor: int = 0x15B3, numa_node: int = 0) -> Files:
    ids = f"PCI_CLASS={class_code:X}\nPCI_ID={vendor:04X}:{device:04X}\nPCI_SUBSYS_ID={vendor:04X}:0023\n"
    return lines(
        {
            "vendor": f"{vendor:#06x}",
            "device": f"{device:#06x}",
            "class": f"{class_code:#08x}",
            "subsystem_vendor": f"{vendor:#06x}",
            "subsystem_device": "0x0023",
            "revision": "0x00",
            "numa_node": numa_node,
            "local_cpulist": "0-31,64-95",
            "enable": 1,
            "driver_override": "(null)",
            "current_link_speed": "32.0 GT/s PCIe",
            "current_link_width": 16,
            "uevent": f"{ids}PCI_SLOT_NAME={address}",
        }
    )


def sriov(total: int, vfs: int, vf_device: int, offset: int = 1) -> Files:
    return lines(
        {
            "sriov_totalvfs": total,
            "sriov_numvfs": vfs,
            "sriov_offset": offset,
            "sriov_stride": 1,
            "sriov_vf_device": f"{vf_device:x}",
            "sriov_drivers_autoprobe": 1,
            "sriov_vf_total_msix": 0,
        }
    )


def ipoib(name: str, ifindex: int, guid: str, *, dev_port: int = 0, pkey: int = 0xFFFF) -> Files:
    address = f"00:00:10:47:fe:80:00:00:00:00:00:00:{in_ips_form(guid)}"
    return lines(
        {
            "type": 32,
            "addr_len": 20,
            "address": address,
            "broadcast": BROADCAST,
            "ifindex": ifindex,
            "mtu": 4092,
            "tx_queue_len": 256,
            "operstate": "down",
            "dev_id": "0x0",
            "dev_port": dev_port,
            "mode": "datagram",
            "pkey": f"{pkey:#06x}",
        },
        f"net/{name}/",
    )


def ethernet(name: str, ifindex: int, *, dev_port: int = 0) -> Files:
    facts = {"type": 1, "addr_len": 6, "address": "b8:59:9f:f9:8f:86", "ifindex": ifindex, "mtu": 1500}
    return lines({**facts, "operstate": "up", "dev_id": "0x0", "dev_port": dev_port}, f"net/{name}/")


def port(number: int = 1, *, state: str = "4: ACTIVE", phys_state: str = "5: LinkUp", sm_lid: str = "0x2") -> Files:
    active = state == "4: ACTIVE"
    facts = {
        "state": state,
        "phys_state": phys_state,
        "link_layer": "InfiniBand",
        "rate": "400 Gb/sec (4X NDR)" if active else "10 Gb/sec (4X SDR)",
        "lid": "0x1d" if active else "0x0",
        "sm_lid": sm_lid,
        "sm_sl": 0,
        "lid_mask_count": 0,
        "cap_mask": "0xa651e848",
    }
    pkeys = {f"pkeys/{index}": "0xffff" if index == 0 else "0x0000" for index in range(16)}
    return lines(facts | pkeys, f"ports/{number}/")


def roce_port(number: int = 1) -> Files:
    return port(number, sm_lid="0x0") | lines(
        {"link_layer": "Ethernet", "lid": "0x0", "rate": "100 Gb/sec (4X EDR)"}, f"ports/{number}/"
    )


def gids(*used: tuple[int, str, str], number: int = 1, size: int = 64) -> Files:
    """Return the GID table of a RoCE port: (index, version as sysfs names it, GID); the other entries are unused."""
    table = dict.fromkeys(range(size), "0000:0000:0000:0000:0000:0000:0000:0000") | {
        index: gid for index, _, gid in used
    }
    # The kernel refuses to read the type of an unused entry. A file cannot do that, so it is empty here.
    types = dict.fromkeys(range(size), "") | {index: version for index, version, _ in used}
    return lines({f"gids/{index}": gid for index, gid in table.items()}, f"ports/{number}/") | lines(
        {f"gid_attrs/types/{index}": version for index, version in types.items()}, f"ports/{number}/"
    )


DOWN = port(state="1: DOWN", phys_state="3: Disabled")


def rdma(number: int, guid: str, port: Files = DOWN, *, name: str = "", hca_type: str = "MT4126") -> Files:
    """Return the files of an RDMA device with one port, and of its character devices, numbered from 0."""
    name = name or f"mlx5_{number}"
    # From the 33rd device on, the kernel allocates the major (IB_UVERBS_NUM_FIXED_MINOR, uverbs_main.c).
    uverbs = f"231:{192 + number}" if number < 32 else f"508:{number - 32}"
    device = {"node_guid": guid, "sys_image_guid": guid, "node_type": "1: CA", "node_desc": f"node1 {name}"}
    firmware = {"fw_ver": "28.39.1002", "hca_type": hca_type, "board_id": "MT_0000000838", "hw_rev": 0}
    return (
        lines(device | firmware, f"infiniband/{name}/")
        | {f"infiniband/{name}/{file}": text for file, text in port.items()}
        | lines({"ibdev": name, "dev": uverbs, "abi_version": 1}, f"infiniband_verbs/uverbs{number}/")
        | mad(name, number, 1)
    )


def mad(ibdev: str, number: int, port: int) -> Files:
    umad, issm = (f"231:{number}", f"231:{64 + number}") if number < 64 else (f"507:{number - 64}", f"507:{number}")
    return lines({"ibdev": ibdev, "port": port, "dev": umad}, f"infiniband_mad/umad{number}/") | lines(
        {"ibdev": ibdev, "port": port, "dev": issm}, f"infiniband_mad/issm{number}/"
    )


def in_ips_form(guid: str) -> str:
    return bytes.fromhex(guid.replace(":", "")).hex(":")


def vf_address(pf: str, index: int, offset: int = 1) -> str:
    """Return the address of a VF: its routing id is the PF's plus offset and index (SR-IOV specification, 2.1.2)."""
    domain, bus, device, function = int(pf[:4], 16), int(pf[5:7], 16), int(pf[8:10], 16), int(pf[11])
    number = (bus << 8 | device << 3 | function) + offset + index
    return f"{domain:04x}:{number >> 8:02x}:{number >> 3 & 0x1F:02x}.{number & 7}"


def pf_with_vfs(pf: Function, vfs: Iterable[Function]) -> tuple[Function, ...]:
    """Link a PF and its VFs, in index order, to each other."""
    vfs = tuple(vf._replace(bridges=pf.bridges, links={"physfn": pf.address}) for vf in vfs)
    return (pf._replace(links={f"virtfn{index}": vf.address for index, vf in enumerate(vfs)}), *vfs)


def without(function: Function, *prefixes: str) -> Function:
    files = {name: text for name, text in function.files.items() if not name.startswith(prefixes)}
    return function._replace(files=files)


def plus(function: Function, files: Files) -> Function:
    return function._replace(files={**function.files, **files})


# A ConnectX-7, built from the functions above.


def guid(pf: str, index: int = -1) -> str:
    """Return a GUID that contains the PF's bus and the VF's index."""
    return f"b859:9f{pf[5:7]}:00f9:{0x8F86 + index + 1:04x}"


def cx7_pf(address: str, vfs: int, *, bridges: str = ROOT, numa_node: int = 0, number: int = 0) -> Function:
    files = (
        pci(address, 0x1021, numa_node=numa_node)
        | sriov(max(vfs, 16), vfs, 0x101E)
        | ipoib(f"ibs{number}", 10 + number, guid(address))
        | rdma(number, guid(address), port(), hca_type="MT4129")
    )
    return Function(address, files, bridges=bridges)


def cx7_vf(pf: str, index: int, *, numa_node: int = 0, number: int | None = None, offset: int = 1) -> Function:
    number = index + 1 if number is None else number
    address = vf_address(pf, index, offset)
    files = (
        pci(address, 0x101E, numa_node=numa_node)
        | ipoib(f"ibv{number}", 100 + number, guid(pf, index))
        | rdma(number, guid(pf, index))
    )
    return Function(address, files)


def cx7(address: str = "0000:03:00.0", vfs: int = 2) -> tuple[Function, ...]:
    return pf_with_vfs(cx7_pf(address, vfs), (cx7_vf(address, index) for index in range(vfs)))


def many_vfs(pfs: int = 8, vfs: int = 127) -> tuple[Function, ...]:
    """Return a node with several PFs and many VFs each, on eight root ports and two NUMA nodes."""
    functions: list[Function] = []
    for rail in range(pfs):
        address, numa_node, first = f"0000:{0x10 + 0x10 * rail:02x}:00.0", rail * 2 // pfs, rail * (vfs + 1)
        bridges = ROOT.replace("01.1", f"{rail + 1:02x}.1")
        pf = cx7_pf(address, vfs, bridges=bridges, numa_node=numa_node, number=first)
        indices = range(vfs)
        functions += pf_with_vfs(
            pf, (cx7_vf(address, index, numa_node=numa_node, number=first + 1 + index) for index in indices)
        )
    return tuple(functions)


# The nodes.

_PF = "0000:03:00.0"


def _changed(node: tuple[Function, ...], *changes: Function) -> tuple[Function, ...]:
    newer = {function.address: function for function in changes}
    return tuple(newer.get(function.address, function) for function in node)


_EIGHT = cx7(vfs=8)
# In a pod under exclusive RDMA netns mode: `net` and `infiniband` are in the pod, character devices stay visible here.
IN_PODS = _changed(_EIGHT, *(without(_EIGHT[1 + index], "net/", "infiniband/") for index in (2, 5)))

ZERO_GUIDS = pf_with_vfs(
    cx7_pf(_PF, 2),
    (
        Function(vf_address(_PF, index), pci(vf_address(_PF, index), 0x101E) | rdma(index + 1, ZERO))
        for index in range(2)
    ),
)

NO_LINK_AND_NO_SUBNET_MANAGER = (
    plus(
        cx7_pf(_PF, 0),
        rdma(0, guid(_PF), port(state="1: DOWN", phys_state="2: Polling", sm_lid="0x0"), hca_type="MT4129"),
    ),
    plus(
        cx7_pf("0000:04:00.0", 0, number=1),
        rdma(1, guid("0000:04:00.0"), port(state="2: INIT", sm_lid="0x0"), hca_type="MT4129"),
    ),
)

# A ConnectX-3: mlx4 has both ports on one function. The devices of port 2 come first by name.
TWO_PORTS_ON_ONE_FUNCTION = (
    Function(
        _PF,
        pci(_PF, 0x1003)
        | sriov(8, 0, 0x1004)
        | ethernet("ens5d1", 6, dev_port=1)
        | ipoib("ibs5", 7, guid(_PF))
        | rdma(9, guid(_PF), port(1) | roce_port(2), name="mlx4_0", hca_type="MT4099")
        | mad("mlx4_0", 10, 2),
        driver="mlx4_core",
        bridges=ROOT,
    ),
)
TWO_PORTS_WITHOUT_IPOIB = (without(TWO_PORTS_ON_ONE_FUNCTION[0], "net/ibs5"),)

_SECOND_PORT = "0000:03:00.1"
TWO_PORTS_ON_TWO_FUNCTIONS = (
    *pf_with_vfs(plus(cx7_pf(_PF, 1), sriov(16, 1, 0x101E, offset=2)), [cx7_vf(_PF, 0, offset=2)]),
    Function(
        _SECOND_PORT,
        pci(_SECOND_PORT, 0x1021, ETHERNET)
        | sriov(16, 0, 0x101E, offset=17)
        | ethernet("ens5f1np1", 12)
        | rdma(2, guid(_SECOND_PORT, 7), roce_port(), hca_type="MT4129"),
        bridges=ROOT,
    ),
)

_TWO = cx7()
FOR_A_GUEST_AND_UNBOUND = _changed(
    _TWO,
    without(_TWO[1], "net/", "infiniband")._replace(driver="vfio-pci"),
    without(_TWO[2], "net/", "infiniband")._replace(driver=None),
)
NO_IPOIB = tuple(without(function, "net/") for function in _TWO)
NO_NUMA_NODE = tuple(plus(function, {"numa_node": "-1\n"}) for function in _TWO)
NO_ISSM = tuple(without(function, f"infiniband_mad/issm{number}/") for number, function in enumerate(_TWO))
OFED = _changed(
    _TWO,
    plus(
        _TWO[0],
        {
            f"sriov/{index}/{name}": text
            for index in range(2)
            for name, text in {
                "node": f"{in_ips_form(guid(_PF, index))}\n",
                "port": f"{in_ips_form(guid(_PF, index))}\n",
                "policy": "Follow\n",
            }.items()
        },
    ),
)
VFS_127 = cx7(vfs=127)

# One name is the beginning of others: mlx5_1 is a PF, mlx5_10 to mlx5_19 are its VFs.
PREFIX_NAMES = pf_with_vfs(cx7_pf(_PF, 10, number=1), (cx7_vf(_PF, index, number=10 + index) for index in range(10)))


def _eight_rails() -> Iterable[Function]:
    for rail in range(8):
        pf, numa_node = f"0000:{0x18 + 0x10 * rail:02x}:00.0", rail // 4
        bridges = (
            f"pci0000:{0x10 + 0x10 * rail:02x}/0000:{0x10 + 0x10 * rail:02x}:01.1/0000:{0x16 + 0x10 * rail:02x}:00.0"
        )
        cx6 = {"device": "0x101b\n"}
        yield from pf_with_vfs(
            plus(cx7_pf(pf, 1, bridges=bridges, numa_node=numa_node, number=rail), cx6),
            [plus(cx7_vf(pf, 0, numa_node=numa_node, number=8 + rail), {"device": "0x101c\n"})],
        )
        gpu = f"0000:{0x19 + 0x10 * rail:02x}:00.0"
        files = pci(gpu, 0x2330, GPU, vendor=0x10DE, numa_node=numa_node) | sriov(16, 0, 0x2330)
        yield Function(gpu, files, driver="nvidia", bridges=bridges)


EIGHT_RAILS_AND_GPUS = tuple(_eight_rails())


# A card and a GPU below two downstream ports of one PCI switch.

UPSTREAM, TO_CARD, TO_GPU = "0000:01:00.0", "0000:02:00.0", "0000:02:01.0"
BESIDE_CARD = "0000:19:00.0"


def configuration_space(acs_control: int | None) -> str:
    """Return a bridge's configuration space as text: advanced error reporting at 0x100, and ACS at 0x140 if the bridge has it."""
    space = bytearray(4096)
    space[0x100:0x104] = struct.pack("<I", 0x0001 | 1 << 16 | (0 if acs_control is None else 0x140 << 20))
    if acs_control is not None:
        space[0x140:0x148] = struct.pack("<IHH", 0x000D | 1 << 16, 0x5F, acs_control)
    return space.decode("ascii")


def bridge(address: str, above: str, acs_control: int | None) -> Function:
    files = pci(address, 0xC030, 0x060400, vendor=0x1000) | {"config": configuration_space(acs_control)}
    return Function(address, files, driver="pcieport", bridges=above)


def with_gpu(card: tuple[Function, ...], to_card: int | None, to_gpu: int | None) -> tuple[Function, ...]:
    """Return a card below `ROOT` with a GPU behind the same switch; both downstream ports have these ACS controls, or no ACS."""
    root_port, switch = ROOT.rsplit("/", 2)[0], ROOT.rsplit("/", 1)[0]
    bridges = (
        # A root port isolates everything below it from other root ports: here that is right.
        bridge(root_port.rsplit("/", 1)[1], root_port.rsplit("/", 1)[0], 0x1D),
        bridge(UPSTREAM, root_port, None),
        bridge(TO_CARD, switch, to_card),
        bridge(TO_GPU, switch, to_gpu),
    )
    gpu = pci(BESIDE_CARD, 0x2330, GPU, vendor=0x10DE)
    return (*bridges, *card, Function(BESIDE_CARD, gpu, driver="nvidia", bridges=f"{switch}/{TO_GPU}"))


# Azure: a virtual machine has VFs without PFs, each below a separate PCI root, and an Ethernet VF for its first network.
_VMBUS = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/MSFT1000:00"


def _azure() -> Iterable[Function]:
    for number in range(2):
        address = f"{0x101 + number:04x}:00:00.0"
        facts = pci(address, 0x101E, numa_node=number)
        name = f"ibP{257 + number}s{100 + number}"
        hca = ipoib(name, 5 + number, guid(address, number)) | rdma(number, guid(address, number), port())
        uuid = f"0000010{number}-0000-1000-8000-00155dbbccdd"
        yield Function(address, facts | hca, bridges=f"{_VMBUS}/{uuid}/pci{address[:7]}")
    address = "7ae6:00:02.0"
    facts = pci(address, 0x101A, ETHERNET) | ethernet("enP31462s1", 4) | rdma(2, guid(address), roce_port())
    yield Function(address, facts, bridges=f"{_VMBUS}/7ae6e1c2-7ae6-11ee-8000-6045bd000000/pci7ae6:00")


AZURE = tuple(_azure())

_CX6DX, _I350, _I350_VF = "0000:3b:00.0", "0000:5e:00.0", "0000:5e:10.0"
ETHERNET_ONLY = (
    Function(
        _CX6DX,
        pci(_CX6DX, 0x101D, ETHERNET)
        | sriov(8, 0, 0x101E)
        | ethernet("ens1np0", 3)
        | rdma(0, guid(_CX6DX), roce_port(), hca_type="MT4125"),
    ),
    *pf_with_vfs(
        Function(
            _I350,
            pci(_I350, 0x1521, ETHERNET, vendor=0x8086) | sriov(7, 1, 0x1520, offset=128) | ethernet("eno1", 2),
            driver="igb",
        ),
        [Function(_I350_VF, pci(_I350_VF, 0x1520, ETHERNET, vendor=0x8086) | ethernet("eno1v0", 8), driver="igbvf")],
    ),
    # A virtual machine's NIC and NVMe disk: no file shows that they are VFs.
    Function(
        "0000:00:03.0",
        pci("0000:00:03.0", 0x1000, ETHERNET, vendor=0x1AF4) | ethernet("eth0", 9),
        driver="virtio-pci",
    ),
    Function("0000:00:04.0", pci("0000:00:04.0", 0x0010, 0x010802, vendor=0x1B36) | sriov(8, 0, 0x0010), driver="nvme"),
)

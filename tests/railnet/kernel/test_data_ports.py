"""The ports that carry data: of cards with one port, with two networks, and with several planes."""

from pathlib import Path

import pytest

from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.sysfs.rdma_counters import read_counters
from railnet.vf.inventory import Port, data_ports
from railnet.vf.pci_address import PciAddress
from tests.railnet.kernel import nodes
from tests.railnet.kernel.tree import Function, Tree

PF, VF = (PciAddress.parse(address) for address in ("0000:03:00.0", "0000:03:00.1"))
ACTIVE, DOWN = ("4: ACTIVE", "5: LinkUp"), ("1: DOWN", "2: Polling")


def ports(*numbers: int, active: tuple[int, ...]) -> list[Port]:
    return [Port(*(ACTIVE if number in active else DOWN), "InfiniBand", number) for number in numbers]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], []),
        (ports(1, active=(1,)), [1]),
        (ports(1, active=()), [1]),
        (ports(3, active=(3,)), [3]),
        (ports(3, active=()), [3]),
        (ports(1, 2, active=(2,)), [1]),
        (ports(1, 2, active=(1, 2)), [1]),
        (ports(*range(1, 13), active=(3, 6, 9, 12)), [3, 6, 9, 12]),
        (ports(*range(1, 13), active=(6,)), [6]),
        (ports(*range(1, 13), active=()), [1]),
        (ports(3, 6, 9, 12, active=(3, 6, 9)), [3, 6, 9]),
    ],
)
def test_ports_that_carry_data(found: list[Port], expected: list[int]) -> None:
    assert [port.number for port in data_ports(found)] == expected


def with_ports(function: Function, *numbers: int, active: tuple[int, ...]) -> Function:
    """Return a function whose RDMA device has these ports, and no port 1 unless it is one of them."""
    (device,) = {path.split("/")[1] for path in function.files if path.startswith("infiniband/")}
    kept = {path: text for path, text in function.files.items() if "/ports/" not in path}
    for number in numbers:
        state, phys_state = ACTIVE if number in active else DOWN
        told = {
            "state": state,
            "phys_state": phys_state,
            "link_layer": "InfiniBand",
            "rate": f"{number}00 Gb/sec (4X NDR)",
        }
        told |= {"pkeys/0": hex(0x8000 + number), "counters/port_rcv_packets": str(number)}
        kept |= {f"infiniband/{device}/ports/{number}/{name}": f"{text}\n" for name, text in told.items()}
    return function._replace(files=kept)


def test_device_without_port_1_is_read_by_the_port_that_it_has(tmp_path: Path) -> None:
    pf, vf, *others = nodes.cx7()
    Tree(tmp_path).write((with_ports(pf, 3, active=(3,)), with_ports(vf, 3, active=(3,)), *others))
    sysfs = Sysfs(tmp_path)

    (found, *_) = sysfs.inventory().pfs
    rdma = found.vfs[0].rdma

    assert rdma is not None
    assert (rdma.port, rdma.data_ports) == (Port(*ACTIVE, "InfiniBand", 3), (3,))
    assert (sysfs.port(VF), sysfs.rate(VF), sysfs.pkeys(VF)) == (rdma.port, "300", (0x8003,))
    counters = read_counters(sysfs, VF, rdma.name, rdma.data_ports, ["counters/port_rcv_packets"])
    assert counters == {"ports/3/counters/port_rcv_packets": 3}


def test_card_of_several_planes_is_read_by_its_active_ports(tmp_path: Path) -> None:
    pf, *others = nodes.cx7()
    Tree(tmp_path).write((with_ports(pf, *range(1, 13), active=(3, 6, 9, 12)), *others))
    sysfs = Sysfs(tmp_path)

    (found, *_) = sysfs.inventory().pfs

    assert found.rdma is not None
    assert (found.rdma.data_ports, found.rdma.port_numbers) == ((3, 6, 9, 12), tuple(range(1, 13)))
    counters = read_counters(sysfs, PF, found.rdma.name, found.rdma.data_ports, ["counters/port_rcv_packets"])
    assert counters == {f"ports/{port}/counters/port_rcv_packets": port for port in (3, 6, 9, 12)}
    assert (sysfs.port(PF), sysfs.rate(PF), sysfs.pkeys(PF)) == (found.rdma.port, "300", (0x8003,))

"""What the kernel says of devices, and that it may say too much at once."""

import errno
from types import SimpleNamespace

import pytest

from railnet.kernel.netlink import uevents
from railnet.vf.changed_functions import ChangedFunction
from railnet.vf.pci_address import PciAddress

VF = PciAddress.parse("0000:03:00.1")
VF_PATH = "/devices/pci0000:00/0000:00:01.1/0000:03:00.1"
VETH = ("add", "/devices/virtual/net/veth1", "net")
NETDEV = ("remove", f"{VF_PATH}/net/ib0", "net")
NAMED = ChangedFunction(VF, with_card=False)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (NETDEV, NAMED),
        (("move", f"{VF_PATH}/net/net1", "net"), NAMED),
        (("add", f"{VF_PATH}/infiniband/mlx5_1", "infiniband"), NAMED),
        (("bind", VF_PATH, "pci"), NAMED),
        (("unbind", VF_PATH, "pci"), NAMED),
        (("change", VF_PATH, "pci"), NAMED),
        (("add", VF_PATH, "pci"), ChangedFunction(VF, with_card=True)),
        (("remove", VF_PATH, "pci"), ChangedFunction(VF, with_card=True)),
        (
            ("add", "/devices/LNXSYSTM:00/ACPI0004:00/MSFT1000:00/00000101-7ae6/pci0101:00/0101:00:00.0/net/eth1", "net"),
            ChangedFunction(PciAddress.parse("0101:00:00.0"), with_card=False),
        ),
        (
            ("add", "/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0", "net"),
            ChangedFunction(PciAddress.parse("0000:00:03.0"), with_card=False),
        ),
        (VETH, None),
        (("add", "/devices/virtual/net/0000:03:00.1", "net"), None),
        (("add", "/devices/platform/soc/ethernet/net/eth0", "net"), None),
        (("", "", ""), None),
    ],
    ids=[
        "moved out", "renamed", "RDMA device", "driver", "no driver", "by hand", "new VF", "VF gone", "Azure", "virtio",
        "veth", "veth with a colon, which no kernel lets pass", "no PCI", "nothing",
    ],
)  # fmt: skip
def test_uevent_names_the_last_function_in_its_path(said: tuple[str, str, str], named: ChangedFunction | None) -> None:
    assert uevents.named_function(*said) == named


class Monitor:
    """Gives uevents; an errno is raised."""

    def __init__(self, *said: tuple[str, str, str] | int) -> None:
        self._said = list(said)

    def poll(self, timeout: float) -> SimpleNamespace | None:
        one = self._said.pop(0) if self._said else None
        if isinstance(one, int):
            raise OSError(one, "refused")
        if one is None:
            return None
        action, path, subsystem = one
        return SimpleNamespace(action=action, device_path=path, subsystem=subsystem)


@pytest.mark.parametrize(
    ("said", "reported"),
    [
        ((VETH, NETDEV), [NAMED]),
        ((VETH,), []),
        ((), []),
        ((errno.ENOBUFS,), [None]),
        ((NETDEV, errno.ENOBUFS), [NAMED, None]),
    ],
    ids=["hardware", "a plain pod's veth", "nothing", "some were lost", "some were lost later"],
)
def test_functions_are_reported_and_where_it_is_not_known_which_none(
    said: tuple[tuple[str, str, str] | int, ...], reported: list[ChangedFunction | None]
) -> None:
    found: list[ChangedFunction | None] = []

    uevents._read(Monitor(*said), found.append)  # type: ignore[arg-type]

    assert found == reported


class Unreadable:
    """A uevent of a netdev that has, on its return from a pod, a name that is no UTF-8."""

    action, subsystem = "add", "net"

    @property
    def device_path(self) -> str:
        return b"\xff".decode()


def test_name_that_is_no_text_may_be_of_any_function() -> None:
    found: list[ChangedFunction | None] = []

    uevents._report(Unreadable(), found.append)  # type: ignore[arg-type]

    assert found == [None]


def test_flood_of_uevents_leaves_the_event_loop_to_others() -> None:
    monitor, found = Monitor(*[NETDEV] * 1000), []
    uevents._read(monitor, found.append)  # type: ignore[arg-type]

    assert 0 < len(found) < 100
    assert monitor.poll(0) is not None

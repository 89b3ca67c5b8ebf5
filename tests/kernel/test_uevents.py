"""What the kernel says of devices, and that it may say too much at once."""

import asyncio
import errno
from types import SimpleNamespace

import pytest

from kernel import uevents

VETH, VF = "/devices/virtual/net/veth1", "/devices/pci0000:00/0000:03:00.1/net/ib0"


class Monitor:
    """Gives device paths; an errno is raised."""

    def __init__(self, *said: str | int) -> None:
        self._said = list(said)

    def poll(self, timeout: float) -> SimpleNamespace | None:
        one = self._said.pop(0) if self._said else None
        if isinstance(one, int):
            raise OSError(one, "refused")
        return one and SimpleNamespace(device_path=one)


@pytest.mark.parametrize(
    ("said", "is_news"),
    [((VETH, VF), True), ((VETH,), False), ((), False), ((errno.ENOBUFS,), True), ((VETH, errno.ENOBUFS), True)],
    ids=["hardware", "a plain pod's veth", "nothing", "some were lost", "some were lost later"],
)
def test_change_is_told_of_hardware_and_where_it_cannot_be_known(said: tuple[str | int, ...], is_news: bool) -> None:
    changed = asyncio.Event()

    uevents._read(Monitor(*said), changed)  # type: ignore[arg-type]

    assert changed.is_set() is is_news

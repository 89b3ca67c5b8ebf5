"""CHECK of real VFs: a link is known by the PCI device that the kernel tells with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.kubernetes.runtime import CniFailed
from simnode.waiting import wait_until
from tests.vm.guest import Guest

OURS, PRIMARY = (Path(f"/etc/cni/net.d/{name}.conflist") for name in ("00-railnet", "10-flannel"))


@pytest.fixture
def version_with_check(guest: Guest) -> Iterator[None]:
    """The primary's version is one that has CHECK, and so is Railnet's."""
    primary, ours = PRIMARY.read_text(), OURS.read_text()
    assert '"0.3.1"' in primary
    assert '"0.3.1"' in ours
    PRIMARY.write_text(primary.replace('"0.3.1"', '"0.4.0"'))
    # Only the daemon's own hand: what another writes there, it mends by what it has last seen of the primary.
    wait_until(lambda: '"0.4.0"' in OURS.read_text(), 60, "Railnet's configuration to follow")
    yield
    PRIMARY.write_text(primary)
    wait_until(lambda: OURS.read_text() == ours, 60, "Railnet's configuration to follow")


def test_check_passes_and_then_names_what_the_pod_changed(guest: Guest, version_with_check: None) -> None:
    pod = guest.run("train", vfs=2)
    guest.runtime.check(pod.sandbox)
    pod.output("ip", "link", "set", "net2", "down")

    with pytest.raises(CniFailed) as raised:
        guest.runtime.check(pod.sandbox)

    guest.remove(pod)
    assert (raised.value.code, "its state is down; it should be up" in raised.value.msg) == (107, True)
    assert raised.value.msg.startswith("net2 (VF ")

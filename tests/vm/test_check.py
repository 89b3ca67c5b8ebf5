"""CHECK of real VFs: the kernel reports a link's PCI device, which identifies the link."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.kubernetes.runtime import CniFailed
from simnode.waiting import wait_until
from tests.vm.guest import Guest

RAILNET, PRIMARY = (Path(f"/etc/cni/net.d/{name}.conflist") for name in ("00-railnet", "10-flannel"))


@pytest.fixture
def version_with_check(guest: Guest) -> Iterator[None]:
    """Give the primary's and Railnet's configurations a CNI version that has CHECK."""
    primary, railnet = PRIMARY.read_text(), RAILNET.read_text()
    assert '"0.3.1"' in primary
    assert '"0.3.1"' in railnet
    PRIMARY.write_text(primary.replace('"0.3.1"', '"0.4.0"'))
    # The test changes only the primary's file. Railnet's file is the daemon's: it would overwrite a change of another program.
    wait_until(lambda: '"0.4.0"' in RAILNET.read_text(), 60, "Railnet's configuration to follow")
    yield
    PRIMARY.write_text(primary)
    wait_until(lambda: RAILNET.read_text() == railnet, 60, "Railnet's configuration to follow")


def test_check_passes_and_after_a_change_by_the_pod_names_the_difference(
    guest: Guest, version_with_check: None
) -> None:
    pod = guest.run("train", vfs=2)
    guest.runtime.check(pod.sandbox)
    pod.output("ip", "link", "set", "net2", "down")

    with pytest.raises(CniFailed) as raised:
        guest.runtime.check(pod.sandbox)

    guest.remove(pod)
    assert (raised.value.code, "its state is down; it should be up" in raised.value.msg) == (107, True)
    assert raised.value.msg.startswith("net2 (VF ")

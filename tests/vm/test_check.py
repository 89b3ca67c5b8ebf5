"""CHECK of real VFs: a link is known by the PCI device that the kernel tells with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.runtime import CniFailed
from tests.vm.guest import Guest

CONFIGURATIONS = tuple(Path(f"/etc/cni/net.d/{name}.conflist") for name in ("00-railnet", "10-flannel"))


@pytest.fixture
def version_with_check(guest: Guest) -> Iterator[None]:
    """The primary's version is one that has CHECK, and so is Railnet's."""
    before = {path: path.read_text() for path in CONFIGURATIONS}
    for path, text in before.items():
        assert '"0.3.1"' in text
        path.write_text(text.replace('"0.3.1"', '"0.4.0"'))
    yield
    for path, text in before.items():
        path.write_text(text)


def test_check_passes_and_then_names_what_the_pod_changed(guest: Guest, version_with_check: None) -> None:
    pod = guest.run("train", vfs=2)
    guest.runtime.check(pod.sandbox)
    pod.output("ip", "link", "set", "net2", "down")

    with pytest.raises(CniFailed) as raised:
        guest.runtime.check(pod.sandbox)

    guest.remove(pod)
    assert (raised.value.code, "its state is down; it should be up" in raised.value.msg) == (107, True)
    assert raised.value.msg.startswith("net2 (VF ")

"""The collector on a host's files, as far as it takes no namespaces; tests/node has the rest."""

import asyncio
import logging
from pathlib import Path

import pytest

from cni.primary_gc.collector import Host, PrimaryGc
from tests.cni.primary_gc.state_files import FLANNEL


@pytest.fixture
def host(tmp_path: Path) -> Host:
    address = tmp_path / "var/lib/cni/networks/cbr0/10.244.3.7"
    address.parent.mkdir(parents=True)
    address.write_text("c0ffee\r\neth0")
    return Host(tmp_path, Path("/run/cri.sock"), "/opt/cni/bin", 5, 0, tmp_path / "lock")


def test_runtime_that_does_not_answer_is_told_once_and_nothing_is_taken_back(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        leftovers = PrimaryGc(host, tuple)
        await leftovers.sweep(FLANNEL)
        await leftovers.sweep(FLANNEL)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())

    (said,) = caplog.messages
    assert said.startswith("host.cri /run/cri.sock: [Errno 2] No such file or directory")
    assert list(host.root.glob("var/lib/cni/networks/cbr0/*"))


def test_node_without_leftovers_asks_nobody(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    next(host.root.glob("var/lib/cni/networks/cbr0/*")).unlink()

    with caplog.at_level(logging.WARNING):
        asyncio.run(PrimaryGc(host, tuple).sweep(FLANNEL))

    assert caplog.messages == []

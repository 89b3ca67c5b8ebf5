"""The collector on a host's files, without network namespaces; tests/node has the rest."""

import asyncio
import logging
from pathlib import Path

import pytest

from cni.host_delegates import HostDelegates
from cni.primary_gc.collector import PrimaryGc
from tests.cni.primary_gc.state_files import FLANNEL


@pytest.fixture
def root(tmp_path: Path) -> Path:
    address = tmp_path / "var/lib/cni/networks/cbr0/10.244.3.7"
    address.parent.mkdir(parents=True)
    address.write_text("c0ffee\r\neth0")
    return tmp_path


def primary_gc(root: Path) -> PrimaryGc:
    return PrimaryGc(
        root=root,
        cri_socket=Path("/run/cri.sock"),
        cni_path="/opt/cni/bin",
        add_seconds=0,
        delegates=HostDelegates(root, 5, root / "lock"),
        records=tuple,
    )


def test_runtime_that_does_not_answer_is_logged_once_and_nothing_is_reclaimed(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        collector = primary_gc(root)
        await collector.sweep(FLANNEL)
        await collector.sweep(FLANNEL)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())

    (said,) = caplog.messages
    assert said.startswith("host.cri /run/cri.sock: [Errno 2] No such file or directory")
    assert list(root.glob("var/lib/cni/networks/cbr0/*"))


def test_runtime_is_not_asked_on_a_node_without_leftovers(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    next(root.glob("var/lib/cni/networks/cbr0/*")).unlink()

    with caplog.at_level(logging.WARNING):
        asyncio.run(primary_gc(root).sweep(FLANNEL))

    assert caplog.messages == []

"""The collector on a host's files, without network namespaces; tests/node has the rest."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from cni.host.chain import Primary
from cni.host_delegates import HostDelegates
from cni.primary_gc.collector import PrimaryGc
from cni.primary_gc.liveness import DeadContainer
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


class Plugins:
    """The primary's DELs of many dead containers, each of which takes a moment."""

    def __init__(self, collector: PrimaryGc, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        dead = tuple(DeadContainer(str(number), "", ()) for number in range(count))
        self.ended: list[str | None] = []
        self.most_at_once = 0
        self._now, self._lock, self._together = 0, threading.Lock(), threading.Event()
        monkeypatch.setattr(collector, "_without_namespace", lambda *_: dead)
        monkeypatch.setattr(collector, "_reclaim", self._reclaim)

    def _reclaim(self, _: Primary, dead: DeadContainer, __: threading.Event) -> None:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        if self.most_at_once > 1:
            self._together.set()
        self._together.wait(60)  # until another one runs, too
        with self._lock:
            self._now -= 1
            self.ended.append(dead.container_id)


def test_many_dead_containers_are_taken_back_several_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = primary_gc(root)
    plugins = Plugins(collector, 40, monkeypatch)

    assert asyncio.run(collector.collect(FLANNEL, frozenset(), 60)) == []
    assert sorted(map(int, filter(None, plugins.ended))) == list(range(40))
    assert 1 < plugins.most_at_once <= 4


def test_dead_containers_for_which_there_is_no_time_are_counted_and_left(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = primary_gc(root)
    plugins = Plugins(collector, 40, monkeypatch)

    failures = asyncio.run(collector.collect(FLANNEL, frozenset(), 0.0))

    assert plugins.ended == []
    assert failures == ["the time was over before what 40 more containers left was taken back; that goes on"]


def test_gc_does_not_wait_for_ever_for_a_search_that_runs(root: Path) -> None:
    async def main() -> list[str]:
        collector = primary_gc(root)
        async with collector._one_at_a_time:
            return await collector.collect(FLANNEL, frozenset(), 0.05)

    assert asyncio.run(main()) == [
        "leftovers of the primary network are being taken back already, and that takes longer"
    ]

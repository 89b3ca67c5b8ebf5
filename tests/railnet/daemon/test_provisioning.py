"""VFs that the daemon makes: how long its start waits for them, and what a PF that does not answer costs."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon import provisioning
from railnet.daemon.allocated_vfs import AllocatedVfs
from railnet.daemon.kubelet_folder import KubeletSearch
from railnet.kernel import waiting
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import PfSelector
from railnet.vf.provision import Provision, ProvisionBySelector
from railnet.vf.steps import BindDriver, CreateVfs, ProvisionStep
from railnet.vf.vf_table import Owner, VfTable
from tests.jittered import jittered
from tests.railnet.kernel.begun_jobs import Hangs, wait_for_begin
from tests.railnet.kernel.tree import IN_POD, OTHER_PF, OTHER_VF, PF, UNBOUND, Tree, link

NOWHERE = PciAddress.parse(IN_POD)  # it has a driver, and its netdev is not on the node


class Start:
    """A node whose VFs are all made, the kernel doing nothing; time passes only when the daemon sleeps, and then at once."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._folder = folder
        self.tree = Tree(folder)
        self.tree.whole()
        self.sysfs = Sysfs(folder)
        self.table = VfTable(self.sysfs.inventory())
        self.table.claim(PciAddress.parse(UNBOUND), Owner("c0ffee", "eth0", ""))
        loop = SimpleNamespace(time=lambda: self.now)
        monkeypatch.setattr(waiting, "asyncio", SimpleNamespace(get_running_loop=lambda: loop, sleep=self._sleep))
        self.steps: list[object] = []
        kernel = SimpleNamespace(provision=lambda steps, sysfs: self.steps.extend(steps))
        monkeypatch.setattr(provisioning, "vf_provisioning", kernel)
        monkeypatch.setattr(provisioning, "pf_link_query", SimpleNamespace(macs=lambda pfs: {}))

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def kubelet_wrote(self, checkpoint: str) -> None:
        (self._folder / "device-plugins").mkdir()
        (self._folder / "device-plugins/kubelet_internal_checkpoint").write_text(checkpoint)

    async def make(self, configuration: Configuration, *, serving: bool = False) -> None:
        """Make the VFs; kubelet's files say which are in use."""
        allocated = AllocatedVfs(configuration, KubeletSearch(configuration.host), lambda: False)
        await provisioning.make_vfs(configuration, self.table, self.sysfs, allocated.vfs, serving=serving)

    def make_vfs(self, *wanted: int) -> None:
        host = HostConfiguration(device_plugins=self._folder / "device-plugins", kubelet=self._folder, root=Path("/"))
        configuration = Configuration(
            host=host, provision=tuple(Provision(PciAddress.parse(PF), vfs) for vfs in wanted)
        )
        asyncio.run(self.make(configuration))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    return Start(tmp_path, monkeypatch)


def test_provisioning_waits_a_little_for_a_netdev_and_names_its_vf(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        start.make_vfs(3)

    assert 5 <= start.now < 6
    assert caplog.messages == [f"no netdev or RDMA device yet: {NOWHERE}"]


def test_provisioning_does_not_wait_for_a_withheld_vf(start: Start) -> None:
    start.table.withhold({NOWHERE: "it has no network interface in any network namespace"})

    start.make_vfs(3)

    assert start.now == 0


@pytest.mark.parametrize("is_bound", [False, True])
def test_only_a_vf_without_a_driver_is_bound(start: Start, is_bound: bool) -> None:
    start.table.withhold({NOWHERE: "it has no network interface in any network namespace"})
    if is_bound:  # after the daemon has looked
        link(start.tree.devices / UNBOUND / "driver", start.tree.root / "bus/pci/drivers/mlx5_core")

    start.make_vfs(3)

    bound = [step.vf for step in start.steps if isinstance(step, BindDriver)]
    assert bound == ([] if is_bound else [PciAddress.parse(UNBOUND)])


@pytest.mark.parametrize("wanted", [(), (3,)], ids=["nothing is provisioned", "all are made"])
def test_unknown_checkpoint_format_is_ignored_when_no_vfs_are_made(start: Start, wanted: tuple[int, ...]) -> None:
    start.kubelet_wrote('{"Data": {"OfANewerKubelet": []}}')

    start.make_vfs(*wanted)

    assert not [step for step in start.steps if isinstance(step, CreateVfs)]


def test_no_vf_is_replaced_while_it_is_unknown_which_vfs_are_in_use(start: Start) -> None:
    start.kubelet_wrote('{"Data": {"OfANewerKubelet": []}}')

    start.make_vfs(4)

    assert start.steps == []
    assert "it is not known which VFs pods use" in start.table.unprovisioned[PciAddress.parse(PF)]


def test_damaged_file_of_claims_keeps_no_vf_from_being_made_where_no_claim_is_recorded(
    start: Start, tmp_path: Path
) -> None:
    start.table.release(PciAddress.parse(UNBOUND), Owner("c0ffee", "eth0", ""))
    (start.tree.devices / IN_POD / "driver").unlink()
    start.table.refresh(start.sysfs.inventory())
    (tmp_path / "dra_manager_state").write_text("{")

    start.make_vfs(4)

    assert CreateVfs(PciAddress.parse(PF), 4, replaced=3) in start.steps


def test_log_names_the_pf_that_keeps_another_number_of_vfs(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    start.table.withhold({NOWHERE: "it has no network interface in any network namespace"})

    with caplog.at_level(logging.WARNING):
        start.make_vfs(4)

    assert not [step for step in start.steps if isinstance(step, CreateVfs)]
    assert caplog.messages == [
        f"PF {PF} keeps its 3 VFs, because pods use some of them: 4 are made when the daemon starts while no pod uses any"
    ]


def made_by(start: Start, *entries: Provision | ProvisionBySelector, serving: bool = False) -> list[CreateVfs]:
    start.table.withhold({NOWHERE: "it has no network interface in any network namespace"})
    host = HostConfiguration(device_plugins=start.tree.root, kubelet=start.tree.root, root=Path("/"))
    start.table.refresh(start.sysfs.inventory())
    asyncio.run(start.make(Configuration(host=host, provision=entries), serving=serving))
    return [step for step in start.steps if isinstance(step, CreateVfs)]


def without_vfs(start: Start) -> PciAddress:
    """Add a card that has no VFs."""
    start.tree.second_card()
    (start.tree.devices / OTHER_PF / "sriov_numvfs").write_text("0\n")
    (start.tree.devices / OTHER_PF / "virtfn0").unlink()
    return PciAddress.parse(OTHER_PF)


def test_vfs_are_made_on_each_pf_that_a_selector_matches(start: Start) -> None:
    other = without_vfs(start)

    made = made_by(start, ProvisionBySelector(3, PfSelector(vendor=("15b3",))))

    assert made == [CreateVfs(other, 3, replaced=0)]
    assert start.table.unprovisioned == {}


def test_pf_that_two_entries_match_is_not_touched_and_the_other_pf_is_served(start: Start) -> None:
    other = without_vfs(start)
    pf = PciAddress.parse(PF)

    made = made_by(start, ProvisionBySelector(3, PfSelector()), Provision(pf, 3))

    assert made == [CreateVfs(other, 3, replaced=0)]
    assert start.table.unprovisioned.keys() == {pf}
    assert "is matched by provision[0] and provision[1]" in start.table.unprovisioned[pf]


def test_selectors_that_match_none_of_the_nodes_pfs_are_said_of_those_without_vfs(start: Start) -> None:
    other = without_vfs(start)

    assert made_by(start, ProvisionBySelector(3, PfSelector(pf_device=("1099",)))) == []
    assert start.table.unprovisioned.keys() == {other}
    assert "no entry of `provision` in node.yaml matches a PF of this node" in start.table.unprovisioned[other]


def test_card_that_comes_while_the_daemon_serves_gets_the_vfs_of_its_selector(start: Start) -> None:
    select = ProvisionBySelector(3, PfSelector(vendor=("15b3",)))
    before = made_by(start, select)
    other = without_vfs(start)

    made = made_by(start, select, serving=True)

    assert (before, made) == ([], [CreateVfs(other, 3, replaced=0)])


@pytest.mark.slow
def test_pf_with_a_hung_write_costs_itself_alone_and_is_tried_again_when_it_has_returned(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioning, "_START_SECONDS", 0.2)
    start.table.withhold({NOWHERE: "it has no network interface in any network namespace"})
    start.tree.second_card()
    (start.tree.devices / OTHER_VF / "driver").unlink()
    other, hangs, begun = PciAddress.parse(OTHER_PF), Hangs(), list[Sequence[ProvisionStep]]()
    wait_for_begin(monkeypatch, hangs)

    def provision(steps: Sequence[ProvisionStep], sysfs: Sysfs) -> None:
        if any(isinstance(step, BindDriver) and str(step.vf) == OTHER_VF for step in steps):
            begun.append(steps)
            hangs.wait()
        start.steps.extend(steps)

    monkeypatch.setattr(provisioning, "vf_provisioning", SimpleNamespace(provision=provision))
    configuration = Configuration(
        host=HostConfiguration(
            device_plugins=start.tree.root / "device-plugins", kubelet=start.tree.root, root=Path("/")
        ),
        provision=(Provision(PciAddress.parse(PF), 3), Provision(other, 1)),
    )

    async def main() -> None:
        make = partial(start.make, configuration)
        start.table.refresh(start.sysfs.inventory())
        await make()
        assert f"files of {OTHER_PF} has not been done in 0.2 s" in start.table.unprovisioned[other]
        assert [step.vf for step in start.steps if isinstance(step, BindDriver)] == [PciAddress.parse(UNBOUND)]
        monkeypatch.setattr(provisioning, "_WRITE_SECONDS", 3600.0)
        await make(serving=True)  # it has an hour while the daemon serves, and does not wait for it
        assert (start.table.unprovisioned.keys(), len(begun)) == ({other}, 1)
        hangs.alive.set()
        while start.sysfs.writes.hung:  # noqa: ASYNC110 - the thread reports to no event of this test
            await asyncio.sleep(0.01)
        await make(serving=True)
        assert (start.table.unprovisioned, len(begun)) == ({}, 2)

    asyncio.run(asyncio.wait_for(main(), 120))


def test_later_looks_become_rare(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 7:
            raise asyncio.CancelledError

    monkeypatch.setattr(provisioning, "asyncio", SimpleNamespace(sleep=sleep))

    async def none() -> set[PciAddress]:
        return set()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(provisioning.retrying(Configuration(), start.table, start.sysfs, none, lambda: None))

    assert slept == [jittered(one) for one in (1, 2, 4, 8, 10, 10, 10)]

"""Attachments from plan to detach: which sandbox owns which VF, and when the record is written."""

import asyncio
import json
import shutil
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from errno import ENODEV
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from cni import request as requests
from cni.attachment import attachments as attachments_module
from cni.attachment import host_netdev_lookup, netdev_return
from cni.attachment.attachments import Attachments
from cni.attachment.host_netdev_lookup import NetdevLookup
from cni.attachment.netdev_return import NodeNetdevs
from railnet.errors import Misconfigured, NotPermitted, NotReady, Unusable
from railnet.kernel import vf_netdev_recognition
from railnet.kernel.namespaces import orphan_netdev_return
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.inventory import Netdev, Port
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import DEFAULT, NoIpam, PluginIpam, SliceIpam, StaticIpam
from railnet.vf.record import Netns, Record, RecordedIpam
from railnet.vf.restored_link_settings import Settings
from railnet.vf.sandbox_difference import SandboxLink
from railnet.vf.steps import ConfigureLink, Given, MoveLinkIn, MoveLinkOut, ProbeAgain, RenameLink, Route
from railnet.vf.vf_table import Owner
from tests.cni.attachment_node import KEY, NO_DRIVER, PRIMARY, VF, Node, a_node, attached, planned
from tests.cni.fake_executable import CONF, ENVIRON
from tests.railnet.kernel.tree import ON_NODE, PF, UNBOUND
from tests.railnet.vf.builders import a_record, an_attachment


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


# Plan, attach, confirm.


def test_plan_is_written_and_owned_before_anything_is_done(node: Node) -> None:
    record = node.run(planned)

    assert node.journal.get(KEY) == record
    assert [(one.ifname, one.vf, one.host_ifname) for one in record.attachments] == [("net1", VF, "ibs5v0")]
    assert (node.state, node.kernel.steps) == (("planned", True), [])


def test_netdev_with_a_pods_name_is_renamed_before_it_is_attached(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.netdev_is("net1")  # a namespace ended, and no sweep has run since
    monkeypatch.setattr(orphan_netdev_return, "written_names", lambda vfs: dict.fromkeys(vfs, "ibs5v0"))
    node.kernel.then = lambda: node.netdev_is("ibs5v0")

    record = node.run(planned)

    assert (node.kernel.steps, record.attachments[0].host_ifname) == ([RENAMED], "ibs5v0")


def test_netdev_that_comes_with_a_pods_name_after_the_first_wait_is_renamed_too(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends the namespace of the last pod while the ADD looks for the netdev a second time."""

    async def come_then_get(lookup: NetdevLookup, vf: PciAddress) -> Netdev:
        node.netdev_is("net1")
        return await get(lookup, vf)

    get = NetdevLookup.get
    node.netdev_is(None)
    monkeypatch.setattr(NetdevLookup, "get", come_then_get)
    monkeypatch.setattr(orphan_netdev_return, "written_names", lambda vfs: dict.fromkeys(vfs, "ibs5v0"))
    node.kernel.then = lambda: node.netdev_is("ibs5v0")

    record = node.run(planned)

    assert (node.kernel.steps, record.attachments[0].host_ifname) == ([RENAMED], "ibs5v0")


def test_new_name_that_sysfs_shows_late_is_waited_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.netdev_is("net1")
    monkeypatch.setattr(orphan_netdev_return, "written_names", lambda vfs: dict.fromkeys(vfs, "ibs5v0"))

    async def main(attachments: Attachments, netns_fd: int) -> Record:
        asyncio.get_running_loop().call_later(0.03, node.netdev_is, "ibs5v0")
        return await planned(attachments, netns_fd)

    assert node.run(main).attachments[0].host_ifname == "ibs5v0"


def test_netdev_whose_name_another_link_has_is_attached_without_a_wait(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look_once(condition: Callable[[], Awaitable[bool]], *_: object) -> bool:
        assert await condition(), "it waits for a name that the kernel has refused"
        return True

    node.netdev_is("net1")
    monkeypatch.setattr(orphan_netdev_return, "written_names", lambda vfs: dict.fromkeys(vfs, "ibs5v0"))
    monkeypatch.setattr(host_netdev_lookup, "until_awaited", look_once)
    node.kernel.taken_names = frozenset({"ibs5v0"})

    record = node.run(planned)

    assert (node.kernel.steps, record.attachments[0].vf) == ([RENAMED], VF)


def test_plan_without_a_namespace_is_refused(node: Node) -> None:
    with pytest.raises(NotReady, match="has no network namespace any more"):
        node.run(lambda attachments, _: planned(attachments, None))

    assert node.state == (None, False)


def test_second_plan_of_a_sandbox_is_refused_and_the_first_stays(node: Node) -> None:
    node.run(planned)

    with pytest.raises(NotReady, match="still has a record"):
        node.run(planned)

    assert node.state == ("planned", True)


def test_plan_that_fails_frees_its_vfs(node: Node) -> None:
    with pytest.raises(Unusable, match=f"VF {UNBOUND} has no netdev"):
        node.run(lambda attachments, netns_fd: planned(attachments, netns_fd, VF, NO_DRIVER))

    assert node.state == (None, False)
    assert node.table.owner(NO_DRIVER) is None


def test_plan_waits_for_a_vf_whose_sandbox_is_being_taken_down(node: Node) -> None:
    dying = Owner("dying", "eth0", "uid-0")
    node.table.claim(VF, dying)

    async def main(attachments: Attachments, netns_fd: int) -> Record:
        asyncio.get_running_loop().call_later(0.02, node.table.release, VF, dying)
        return await planned(attachments, netns_fd)

    assert node.run(main).container_id == "c0ffee"


def test_attach_moves_and_configures_and_the_record_stays_planned(node: Node) -> None:
    async def main(attachments: Attachments, netns_fd: int) -> object:
        await attachments.attach(await planned(attachments, netns_fd), netns_fd)
        return attachments.attached(VF)

    assert node.run(main) is None
    assert node.state == ("planned", True)
    assert node.kernel.steps == [MoveLinkIn(VF, 9, "ibs5v0", "net1", 4092)]


def test_attach_without_a_descriptor_is_refused(node: Node) -> None:
    async def main(attachments: Attachments, netns_fd: int) -> None:
        await attachments.attach(await planned(attachments, netns_fd), None)

    with pytest.raises(NotReady, match=f"sandbox {KEY} has no network namespace any more"):
        node.run(main)


@pytest.mark.parametrize(("mtu", "given"), [("pf", 4092), (2044, 2044), (4092, 4092)])
def test_mtu_is_the_pfs_or_the_configured_one(node: Node, mtu: int | str, given: int) -> None:
    node.network = replace(node.network, mtu=mtu)

    node.run(attached)

    assert node.kernel.steps[-1].mtu == given


def test_mtu_above_the_pfs_is_misconfigured_and_nothing_is_done(node: Node) -> None:
    node.network = replace(node.network, mtu=9000)

    with pytest.raises(Misconfigured, match=r"mtu is 9000, but the PF of VF 0000:03:00\.1 has 4092"):
        node.run(attached)

    assert node.kernel.steps == []


def test_confirmed_record_says_that_it_is_attached(node: Node) -> None:
    async def main(attachments: Attachments, netns_fd: int) -> object:
        await attached(attachments, netns_fd)
        return attachments.attached(VF)

    assert node.run(main) == Owner("c0ffee", "eth0", "uid-1")
    assert node.state == ("attached", True)


def test_netdev_that_goes_away_during_attach_is_tried_again(node: Node) -> None:
    node.kernel.refuses = OSError(ENODEV, "move link 31: No such device")

    with pytest.raises(NotReady, match="link 31"):
        node.run(attached)


def test_netdev_that_was_replaced_since_the_plan_is_looked_up_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def attach(steps: Sequence[MoveLinkIn], netns_fd: int, root: Path, sysfs: Sysfs) -> dict[PciAddress, Settings]:
        tried.append(steps[0].ifindex)
        if tried == [9]:  # the driver was bound again meanwhile
            node.netdev_is("ibs5v0", 32)
            raise OSError(ENODEV, "No such device")
        return {}

    monkeypatch.setattr(node.kernel, "attach", attach)

    node.run(attached)

    assert (tried, node.state) == ([9, 32], ("attached", True))


@pytest.mark.parametrize("shown", ["netdev of the last pod", "none"])
def test_netdev_that_sysfs_does_not_show_yet_is_tried_again(
    node: Node, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    """Netlink has named it after a DEL, and a busy machine's sysfs is later than the ADD waits."""

    def attach(steps: Sequence[MoveLinkIn], netns_fd: int, root: Path, sysfs: Sysfs) -> dict[PciAddress, Settings]:
        node.netdev_is(None)
        raise OSError(ENODEV, "link 'ibs5v0' is not the netdev of VF 0000:03:00.1 any more")

    monkeypatch.setattr(node.kernel, "attach", attach)
    if shown == "none":
        node.netdev_is(None)

    with pytest.raises(NotReady, match=f"sysfs does not show the netdev of VF {VF} yet"):
        node.run(attached)


def test_netdev_of_a_vf_whose_pf_has_none_is_not_coming(node: Node) -> None:
    node.netdev_is(None)
    shutil.rmtree(node.tree.devices / PF / "net")
    node.table.refresh(node.sysfs.inventory())

    with pytest.raises(Unusable, match="is its driver bound and ib_ipoib loaded"):
        node.run(planned)


def test_attach_whose_undo_failed_is_not_tried_again_at_once(node: Node) -> None:
    node.kernel.refuses = OSError(ENODEV, "No such device")
    node.kernel.refuses.add_note("and its undo failed: busy")

    with pytest.raises(NotReady, match="went away while it was attached: No such device; and its undo failed: busy"):
        node.run(attached)

    assert node.kernel.tries == 1


def test_attach_reads_no_file_of_a_netdev_that_the_plan_has_read(node: Node) -> None:
    async def main(attachments: Attachments, netns_fd: int) -> None:
        record = await planned(attachments, netns_fd)
        node.netdev_is(None)
        await attachments.attach(record, netns_fd)

    node.run(main)

    assert [step.ifindex for step in node.kernel.steps if isinstance(step, MoveLinkIn)] == [9]


def test_attach_that_is_cancelled_ends_only_when_the_kernel_is_done(node: Node) -> None:
    async def main(attachments: Attachments, netns_fd: int) -> None:
        record = await planned(attachments, netns_fd)
        attaching = asyncio.create_task(attachments.attach(record, netns_fd))
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        def then() -> None:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop).result()
            node.kernel.steps.append("done")

        node.kernel.then = then
        await begun.wait()
        attaching.cancel()
        await asyncio.wait((attaching,))
        assert attaching.cancelled()

    node.run(main)

    assert node.kernel.steps[-1] == "done"


def test_attach_that_hangs_on_one_card_holds_up_no_add_of_another_card(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netdev_return, "_THREADS_OF_A_CARD", 1)  # so the one that hangs has all threads of its card
    other, alive = node.add_card(), threading.Event()

    async def main(attachments: Attachments, netns_fd: int) -> tuple[str, bool]:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def then() -> None:
            if [step.vf for step in node.kernel.steps] == [VF]:
                loop.call_soon_threadsafe(begun.set)
                alive.wait(60)

        node.kernel.then = then
        hanging = asyncio.create_task(attached(attachments, netns_fd))
        await begun.wait()
        environ = ENVIRON | {b"CNI_CONTAINERID": b"f00"}
        record = await attachments.plan(requests.parse(environ, CONF, netns_fd), (other,), PRIMARY)
        try:
            await asyncio.wait_for(attachments.attach(record, netns_fd), 15)
            attachments.confirm(record)
            return attachments.attached(other).container_id, hanging.done()
        finally:
            alive.set()
            await hanging

    assert node.run(main) == ("f00", False)
    assert node.state == ("attached", True)


# Detach.


async def detached(attachments: Attachments, netns_fd: int | None) -> Record:
    return await attachments.detach(attachments.record(KEY), netns_fd)


OUT, RENAMED = MoveLinkOut(VF, "ibs5v0", {}), RenameLink(31, "ibs5v0")
AGAIN = ProbeAgain(VF, "mlx5_core")


@pytest.mark.parametrize("by", ["descriptor", "record"])
@pytest.mark.parametrize(("name", "steps"), [("ibs5v0", [OUT]), ("net1", [OUT, RENAMED]), ("dev31", [OUT, RENAMED])])
def test_detach_from_a_living_sandbox_always_moves_out_then_renames(node: Node, by, name: str, steps) -> None:
    node.run(attached)
    node.kernel.steps.clear()
    node.netdev_is(name)

    left = node.run(lambda attachments, netns_fd: detached(attachments, netns_fd if by == "descriptor" else None))

    assert node.kernel.steps == steps
    assert left.attachments == ()
    assert node.state == ("detaching", False)


def test_netdev_that_was_moved_under_its_own_name_is_looked_for_in_no_file(node: Node) -> None:
    node.run(attached)
    node.kernel.resets.clear()
    node.netdev_is(None)  # sysfs is not asked: else this waited for a netdev
    node.kernel.moved = {VF: Netdev("ibs5v0", 47, 2044)}

    node.run(detached)

    assert (node.kernel.steps[-1], node.kernel.resets) == (OUT, [])
    assert node.table.inventory.vf(VF).netdev == Netdev("ibs5v0", 47, 2044)
    assert node.state == ("detaching", False)


@pytest.mark.parametrize("change", [{"fault": "mtu: Input/output error"}, {"driver": None}, {"rdma": None}])
def test_vf_that_was_not_whole_at_the_last_look_is_read_again_when_it_is_back(
    node: Node, change: dict[str, object]
) -> None:
    node.run(attached)
    whole = node.table.inventory.vf(VF)
    node.table.reread({VF: replace(whole, netdev=None, **change)})
    node.kernel.moved = {VF: whole.netdev}

    node.run(detached)

    assert node.table.inventory.vf(VF) == whole


@pytest.mark.parametrize("given", [False, True], ids=["no descriptor", "descriptor of another namespace"])
def test_detach_from_a_namespace_that_is_gone_only_renames(node: Node, tmp_path: Path, given: bool) -> None:
    node.run(attached)
    node.kernel.steps.clear()
    node.netns.rename(tmp_path / "was")
    node.netns.touch()
    node.netdev_is("net1")

    node.run(lambda attachments, netns_fd: detached(attachments, netns_fd if given else None))

    assert (node.kernel.steps, node.state) == ([RENAMED], ("detaching", False))


def test_detach_waits_for_a_netdev_that_is_coming(node: Node) -> None:
    node.run(attached)
    node.netdev_is(None)

    async def main(attachments: Attachments, netns_fd: int) -> None:
        asyncio.get_running_loop().call_later(0.03, node.netdev_is, "net1")
        await detached(attachments, netns_fd)

    node.run(main)

    assert node.kernel.steps[-1] == RENAMED


@pytest.mark.parametrize("driver", [True, False], ids=["bound", "unbound"])
def test_detach_succeeds_though_the_netdev_never_comes_back(node: Node, driver: bool) -> None:
    node.run(attached)
    node.netdev_is(None)
    if not driver:
        (node.tree.devices / ON_NODE / "driver").unlink()

    node.run(detached)

    assert node.state == ("detaching", False)
    assert node.table.inventory.vf(VF).netdev is None


@pytest.mark.parametrize("names_devices", [True, False], ids=["kernel names devices", "kernel names none"])
def test_netdev_that_a_pod_may_have_hidden_is_replaced_before_the_vf_is_free(
    node: Node, monkeypatch: pytest.MonkeyPatch, names_devices: bool
) -> None:
    release = "6.12" if names_devices else "5.13"
    monkeypatch.setattr(vf_netdev_recognition, "_kinds", [*vf_netdev_recognition.kinds_without_device(release)])
    node.run(attached)
    node.kernel.steps.clear()
    node.netdev_is(None)

    def then() -> None:
        if AGAIN in node.kernel.steps:
            node.netdev_is("ib3" if RENAMED not in node.kernel.steps else "ibs5v0")

    node.kernel.then = then
    node.run(detached)

    assert node.kernel.steps == ([OUT] if names_devices else [OUT, AGAIN, RENAMED])
    assert node.state == ("detaching", False)


def test_driver_of_a_netdev_that_netlink_shows_before_sysfs_is_not_bound_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vf_netdev_recognition, "_kinds", [*vf_netdev_recognition.kinds_without_device("5.13")])
    node.run(attached)
    node.netdev_is(None)
    node.kernel.names_in_netlink = frozenset({"ibs5v0"})

    node.run(detached)

    assert AGAIN not in node.kernel.steps
    assert "taken back from a pod without its netdev" in node.table.withheld(VF)


def test_netdev_that_goes_again_while_it_is_renamed_is_not_recorded_under_a_pods_name(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look meets it with the pod's name, and then it is away: the ADD is refused, and the runtime's next ADD renames it."""

    async def come_and_go(lookup: NetdevLookup, vf: PciAddress) -> Netdev:
        node.netdev_is("net1")
        netdev = await get(lookup, vf)
        node.netdev_is(None)
        return netdev

    get = NetdevLookup.get
    node.netdev_is(None)
    monkeypatch.setattr(NetdevLookup, "get", come_and_go)

    with pytest.raises(NotReady, match="does not show the netdev"):
        node.run(planned)

    assert node.table.owner(VF) is None


def test_vf_whose_netdev_comes_at_the_end_of_the_detach_is_withheld_until_it_has_its_name(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last look for the netdev, the kernel ends the namespace, and the netdev has the pod's name."""

    async def come(netdevs: NodeNetdevs, attachments: object) -> dict[PciAddress, Netdev]:
        node.netdev_is("net1")
        return {}

    monkeypatch.setattr(NodeNetdevs, "_replaced", come)
    node.run(attached)
    node.netdev_is(None)

    node.run(detached)

    assert node.state == ("detaching", False)
    assert "taken back from a pod without its netdev" in node.table.withheld(VF)


def test_driver_of_a_vf_whose_pf_has_no_netdev_is_not_bound_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vf_netdev_recognition, "_kinds", [*vf_netdev_recognition.kinds_without_device("5.13")])
    node.run(attached)
    node.netdev_is(None)
    shutil.rmtree(node.tree.devices / PF / "net")  # ib_ipoib is not loaded
    node.table.refresh(node.sysfs.inventory())

    node.run(detached)

    assert AGAIN not in node.kernel.steps
    assert node.state == ("detaching", False)


def test_detach_that_is_refused_keeps_record_and_vf_for_another_try(node: Node) -> None:
    node.run(attached)
    node.kernel.refuses = OSError(16, "busy")

    with pytest.raises(OSError, match="busy"):
        node.run(detached)
    refused = node.state, node.journal.get(KEY).attachments != ()
    node.kernel.refuses = None
    node.run(detached)

    assert refused == (("detaching", True), True)
    assert node.state == ("detaching", False)


def test_detach_may_be_repeated(node: Node) -> None:
    node.run(attached)

    node.run(detached)
    node.kernel.steps.clear()
    node.run(detached)

    assert (node.kernel.steps, node.state) == ([], ("detaching", False))


def test_detach_and_forget_moves_out_frees_the_vf_and_removes_the_record(node: Node) -> None:
    node.run(attached)
    node.kernel.steps.clear()

    async def late(attachments: Attachments, netns_fd: int | None) -> None:
        await attachments.detach_and_forget(attachments.begin_detach(attachments.record(KEY)), netns_fd)

    node.run(late)

    assert node.kernel.steps[0] == OUT
    assert (node.journal.get(KEY), node.table.owner(VF)) == (None, None)


def test_record_that_says_detaching_already_is_not_written_again(node: Node) -> None:
    async def twice(attachments: Attachments, netns_fd: int | None) -> None:
        record = await planned(attachments, netns_fd)
        first = attachments.begin_detach(record)
        assert first.attachments[0].before is None  # the ADD was not done, so no container has changed a setting
        assert attachments.begin_detach(first) is first

    node.run(twice)


@pytest.mark.parametrize(
    ("ipam", "elsewhere"), [(SliceIpam(), False), (NoIpam(), False), (StaticIpam(), True), (None, True)]
)
def test_only_addresses_of_the_nodes_slice_are_surely_no_other_nodes(node: Node, ipam: object, elsewhere: bool) -> None:
    record = a_record(
        an_attachment(addresses=(ip_interface("10.60.0.5/24"),)), network="rails" if ipam is None else DEFAULT
    )
    if ipam is not None:
        node.network = replace(node.network, ipam=ipam)

    async def asked(attachments: Attachments, netns_fd: int | None) -> tuple[bool, bool]:
        without = replace(record, attachments=(replace(record.attachments[0], addresses=()),))
        return attachments.addresses_may_be_elsewhere(record), attachments.addresses_may_be_elsewhere(without)

    assert node.run(asked) == (elsewhere, False)


def test_detach_and_forget_that_is_refused_keeps_record_and_vf_for_the_sweep(node: Node) -> None:
    node.run(attached)
    node.kernel.refuses = OSError(16, "busy")

    async def late(attachments: Attachments, netns_fd: int | None) -> None:
        await attachments.detach_and_forget(attachments.begin_detach(attachments.record(KEY)), netns_fd)

    with pytest.raises(OSError, match="busy"):
        node.run(late)

    assert node.state == ("detaching", True)
    assert node.journal.get(KEY).attachments != ()


def test_detach_leaves_alone_a_vf_that_another_sandbox_has_now(node: Node) -> None:
    record = node.run(attached)
    other = Owner("f00", "eth0", "uid-2")
    node.table.release(VF, Owner("c0ffee", "eth0", "uid-1"))
    node.table.claim(VF, other)
    node.kernel.steps.clear()
    node.netdev_is("net1")

    left = node.run(detached)

    assert (record.attachments != (), left.attachments) == (True, ())
    assert (node.kernel.steps, node.table.owner(VF)) == ([], other)


def test_vf_without_an_owner_is_claimed_while_it_is_taken_back(node: Node) -> None:
    node.run(attached)
    owner, owners = Owner("c0ffee", "eth0", "uid-1"), []
    node.table.release(VF, owner)  # as after a second record of it had it
    node.kernel.then = lambda: owners.append(node.table.owner(VF))

    node.run(detached)

    assert (set(owners), node.table.owner(VF)) == ({owner}, None)


def test_detach_of_a_record_of_an_older_boot_enters_no_namespace(node: Node) -> None:
    node.boot = "boot-1"
    node.run(attached)
    node.kernel.steps.clear()
    node.boot = "boot-2"

    node.run(detached)

    assert (node.kernel.steps, node.state) == ([], ("detaching", False))


def test_detach_finds_a_netdev_that_another_program_moved(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.run(attached)
    node.kernel.steps.clear()
    node.netdev_is(None)

    def move_to_node(steps: tuple[object, ...], found: object, root: Path) -> None:
        node.kernel.detach(steps, None)
        node.netdev_is("net1")

    orphan = OrphanNetdev(Netns("/run/netns/x", 4, 7), NET1, None)
    monkeypatch.setattr(orphan_netdev_return, "find_orphans", lambda vfs, root: {VF: orphan})
    monkeypatch.setattr(orphan_netdev_return, "move_to_node", move_to_node)
    node.run(detached)

    assert node.kernel.steps == [OUT, OUT, RENAMED]


def test_detach_renames_a_netdev_that_comes_back_during_the_search(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.run(attached)
    node.kernel.steps.clear()
    node.netdev_is(None)
    monkeypatch.setattr(orphan_netdev_return, "find_orphans", lambda vfs, root: node.netdev_is("net1") or {})

    node.run(detached)

    assert node.kernel.steps == [OUT, RENAMED]


# CHECK.


async def difference(attachments: Attachments, netns_fd: int) -> str | None:
    record = await attached(attachments, netns_fd)
    netns = requests.parse(ENVIRON, CONF, netns_fd).netns
    return await attachments.difference(attachments.record(record.key), netns, netns_fd)


NET1 = SandboxLink("net1", "InfiniBand", 4092, up=True, addresses=frozenset())


@pytest.mark.parametrize(
    ("link", "says"),
    [(NET1, None), (replace(NET1, mtu=1500), "its MTU is 1500"), (None, "is not in the sandbox")],
    ids=["same", "another MTU", "gone"],
)
def test_difference_compares_the_kernel_with_the_record(node: Node, monkeypatch, link, says: str | None) -> None:
    monkeypatch.setattr(attachments_module, "link_states", lambda vfs, netns_fd: {VF: link} if link else {})

    found = node.run(difference)

    assert found is None if says is None else says in found


def test_difference_of_a_namespace_that_is_gone_is_reported_without_opening_it(node: Node) -> None:
    async def main(attachments: Attachments, netns_fd: int) -> str | None:
        record = await attached(attachments, netns_fd)
        return await attachments.difference(attachments.record(record.key), None, None)

    assert "is gone" in node.run(main)


def test_difference_names_an_rdma_device_that_is_gone(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def unbound(vfs: object, netns_fd: int) -> dict[PciAddress, SandboxLink]:
        shutil.rmtree(node.tree.devices / ON_NODE / "infiniband")
        return {VF: NET1}

    monkeypatch.setattr(attachments_module, "link_states", unbound)

    assert "its RDMA device is missing" in node.run(difference)


# Networks.


def annotated(**annotations: str) -> bytes:
    runtime_config = {"io.kubernetes.cri.pod-annotations": {f"railnet.io/{key}": to for key, to in annotations.items()}}
    return json.dumps({**json.loads(CONF), "runtimeConfig": runtime_config}).encode()


def test_network_is_chosen_before_anything_is_claimed(node: Node) -> None:
    with pytest.raises(NotPermitted, match="may not use network 'fast'"):
        node.run(lambda attachments, netns_fd: planned(attachments, netns_fd, conf=annotated(network="fast")))

    assert node.state == (None, False)


def test_record_has_the_network_and_the_configuration_of_its_ipam_plugin(node: Node) -> None:
    node.network = replace(node.network, ipam=PluginIpam({"type": "host-local"}))

    record = node.run(planned)

    conf = {"cniVersion": "1.0.0", "name": "railnet-default", "type": "railnet", "ipam": {"type": "host-local"}}
    assert (record.network, record.ipam) == ("default", RecordedIpam(conf, ("net1",), "/opt/cni/bin"))


def test_addresses_of_an_ipam_plugin_are_recorded_and_configured(node: Node) -> None:
    address, route = ip_interface("10.61.0.2/24"), Route(ip_network("10.0.0.0/8"), None)

    async def main(attachments: Attachments, netns_fd: int) -> None:
        record = attachments.record_addresses(
            await planned(attachments, netns_fd), {"net1": Given((address,), (route,))}
        )
        assert node.journal.get(KEY) == record
        await attachments.attach(record, netns_fd)

    node.run(main)

    assert node.kernel.steps[-1] == ConfigureLink("net1", (address,), (route,))


def test_port_in_the_networks_partition_is_usable(node: Node) -> None:
    node.network = replace(node.network, pkey=0x8001)
    node.pkeys_are("0xffff", "0x8001")

    node.run(attached)

    assert node.state == ("attached", True)


@pytest.mark.parametrize(
    ("pkeys", "why"),
    [(["0xffff"], "its port is in the partitions 0xffff"), (["0xffff", "0x0001"], "its port is only a limited member")],
)
def test_port_outside_the_networks_partition_is_unusable(node: Node, pkeys: list[str], why: str) -> None:
    node.network = replace(node.network, pkey=0x8001)
    node.pkeys_are(*pkeys)

    with pytest.raises(
        Unusable, match=rf"network 'default', which is partition 0x8001: {why}.*its GUID \S+ as a member"
    ):
        node.run(attached)


def test_firmware_commands_are_not_sent_from_the_event_loops_thread(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[threading.Thread] = []

    def port(self: Sysfs, vf: PciAddress) -> Port:
        asked.append(threading.current_thread())
        return Port("4: ACTIVE", "5: LinkUp", "InfiniBand")

    monkeypatch.setattr(Sysfs, "port", port)

    node.run(attached)

    assert asked
    assert threading.main_thread() not in asked


def test_partition_that_comes_within_the_wait_is_enough(node: Node) -> None:
    node.network = replace(node.network, pkey=0x8001, wait=10.0)
    node.pkeys_are("0xffff")

    async def main(attachments: Attachments, netns_fd: int) -> None:
        loop, moved = asyncio.get_running_loop(), asyncio.Event()
        node.kernel.then = lambda: loop.call_soon_threadsafe(moved.set)  # type: ignore[assignment]
        attaching = asyncio.create_task(attached(attachments, netns_fd))
        await moved.wait()
        node.pkeys_are("0x8001")
        await attaching

    node.run(main)

    assert node.state == ("attached", True)


# A netdev that keeps a setting.


def test_setting_that_cannot_be_given_back_ends_in_the_driver_being_bound_again(node: Node) -> None:
    node.run(attached)
    node.kernel.steps.clear()
    node.kernel.keeps = {"group": 0}

    def then() -> None:
        if AGAIN in node.kernel.steps:
            node.netdev_is("ibs5v0")  # a new netdev, with another index

    node.kernel.then = then
    node.run(detached)

    assert node.kernel.steps == [OUT, AGAIN]
    assert [step.ifindex for step in node.kernel.resets] == [9, 31]
    assert node.state == ("detaching", False)


@pytest.mark.parametrize("refused", ["unbind", "bind"])
def test_driver_that_is_not_bound_again_keeps_record_and_vf_until_the_next_del(
    node: Node, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    node.run(attached)
    node.kernel.keeps = {"group": 0}

    def refuse(step: object, sysfs: Sysfs) -> None:
        if refused == "bind":
            (node.tree.devices / ON_NODE / "driver").unlink()
            node.netdev_is(None)
        raise OSError(16, "busy")

    with monkeypatch.context() as refusing:
        refusing.setattr(node.kernel, "probe_again", refuse)
        with pytest.raises(OSError, match="busy"):
            node.run(detached)
    first = node.state, node.journal.get(KEY).attachments != ()
    node.run(detached)

    assert first == (("detaching", True), True)
    assert node.state == ("detaching", False)
    # A VF without a driver is free and unhealthy: it has no netdev that a setting could be on.
    assert node.kernel.steps.count(AGAIN) == (1 if refused == "unbind" else 0)
    assert (node.table.inventory.vf(VF).netdev is None) == (refused == "bind")

"""Rails from plan to detach: who owns what, and what is written when."""

import asyncio
from pathlib import Path

import pytest

from cni import rails as rails_module
from cni.rails import Host, Rails
from tests.cni.railway import KEY, NO_DRIVER, VF, Kernel, Node, attached, planned
from tests.deviceplugin.builders import two_rails
from tests.kernel.tree import AT_HOME, UNBOUND
from vf.errors import Misconfigured, NotReady, Unusable
from vf.record import Record
from vf.step import ConfigureLink, MoveLinkIn, MoveLinkOut, RenameLink
from vf.table import Owner, VfTable


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    kernel = Kernel()
    monkeypatch.setattr(rails_module, "perform", kernel)
    monkeypatch.setattr(rails_module, "_NETDEV_SECONDS", 0.1)
    return Node(tmp_path, kernel)


# Plan, attach, confirm.


def test_plan_is_written_and_owned_before_anything_is_done(node: Node) -> None:
    record = node.run(planned)

    assert node.journal.get(KEY) == record
    assert [(one.ifname, one.vf, one.host_ifname) for one in record.attachments] == [("net1", VF, "ibs5v0")]
    assert (node.state, node.kernel.steps) == (("planned", True), [])


def test_plan_without_a_namespace_is_refused(node: Node) -> None:
    with pytest.raises(NotReady, match="has no network namespace any more"):
        node.run(lambda rails, _: planned(rails, None))

    assert node.state == (None, False)


def test_second_plan_of_a_sandbox_is_refused_and_takes_nothing_from_the_first(node: Node) -> None:
    node.run(planned)

    with pytest.raises(NotReady, match="still has a record"):
        node.run(planned)

    assert node.state == ("planned", True)


def test_plan_that_fails_frees_its_vfs(node: Node) -> None:
    with pytest.raises(Unusable, match=f"VF {UNBOUND} has no netdev"):
        node.run(lambda rails, netns_fd: planned(rails, netns_fd, VF, NO_DRIVER))

    assert node.state == (None, False)
    assert node.table.owner(NO_DRIVER) is None


def test_plan_waits_for_a_vf_whose_sandbox_is_being_taken_down(node: Node) -> None:
    dying = Owner("dying", "eth0", "uid-0")
    node.table.claim(VF, dying)

    async def main(rails: Rails, netns_fd: int) -> Record:
        asyncio.get_running_loop().call_later(0.02, node.table.release, VF, dying)
        return await planned(rails, netns_fd)

    assert node.run(main).container_id == "c0ffee"


def test_attach_moves_and_configures_and_the_record_stays_planned(node: Node) -> None:
    async def main(rails: Rails, netns_fd: int) -> object:
        await rails.attach(await planned(rails, netns_fd), netns_fd)
        return rails.attached(VF)

    assert node.run(main) is None
    assert node.state == ("planned", True)
    assert node.kernel.steps == [MoveLinkIn(VF, 9, "ibs5v0", "net1"), ConfigureLink("net1", 4092, ())]


def test_attach_without_a_descriptor_is_refused(node: Node) -> None:
    async def main(rails: Rails, netns_fd: int) -> None:
        await rails.attach(await planned(rails, netns_fd), None)

    with pytest.raises(NotReady, match=f"sandbox {KEY} has no network namespace any more"):
        node.run(main)


@pytest.mark.parametrize(("mtu", "given"), [("pf", 4092), (2044, 2044), (4092, 4092)])
def test_mtu_is_the_pfs_or_the_configured_one(node: Node, mtu: int | str, given: int) -> None:
    node.mtu = mtu

    node.run(attached)

    assert node.kernel.steps[-1].mtu == given


def test_mtu_above_the_pfs_is_misconfigured_and_nothing_is_done(node: Node) -> None:
    node.mtu = 9000

    with pytest.raises(Misconfigured, match=r"mtu is 9000, but the PF of VF 0000:03:00\.1 has 4092"):
        node.run(attached)

    assert node.kernel.steps == []


def test_confirmed_record_says_that_it_is_attached(node: Node) -> None:
    async def main(rails: Rails, netns_fd: int) -> object:
        await attached(rails, netns_fd)
        return rails.attached(VF)

    assert node.run(main) == Owner("c0ffee", "eth0", "uid-1")
    assert node.state == ("attached", True)


def test_attach_that_is_cancelled_ends_only_when_the_kernel_is_done(node: Node) -> None:
    async def main(rails: Rails, netns_fd: int) -> None:
        record = await planned(rails, netns_fd)
        attaching = asyncio.create_task(rails.attach(record, netns_fd))
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


# Detach.


async def detached(rails: Rails, netns_fd: int | None) -> Record:
    return await rails.detach(rails.record(KEY), netns_fd)


OUT, NAMED = MoveLinkOut(VF, "ibs5v0"), RenameLink(31, "ibs5v0")


@pytest.mark.parametrize("by", ["descriptor", "record"])
@pytest.mark.parametrize(("name", "steps"), [("ibs5v0", [OUT]), ("net1", [OUT, NAMED]), ("dev31", [OUT, NAMED])])
def test_detach_from_a_living_sandbox_always_moves_out_then_names(node: Node, by, name: str, steps) -> None:
    node.run(attached)
    node.kernel.steps.clear()
    node.netdev_is(name)

    left = node.run(lambda rails, netns_fd: detached(rails, netns_fd if by == "descriptor" else None))

    assert node.kernel.steps == steps
    assert left.attachments == ()
    assert node.state == ("detaching", False)


@pytest.mark.parametrize("given", [False, True], ids=["no descriptor", "another's descriptor"])
def test_detach_from_a_namespace_that_is_gone_only_names(node: Node, tmp_path: Path, given: bool) -> None:
    node.run(attached)
    node.kernel.steps.clear()
    node.netns.rename(tmp_path / "was")
    node.netns.touch()
    node.netdev_is("net1")

    node.run(lambda rails, netns_fd: detached(rails, netns_fd if given else None))

    assert (node.kernel.steps, node.state) == ([NAMED], ("detaching", False))


def test_detach_waits_for_a_netdev_that_is_coming(node: Node) -> None:
    node.run(attached)
    node.netdev_is(None)

    async def main(rails: Rails, netns_fd: int) -> None:
        asyncio.get_running_loop().call_later(0.03, node.netdev_is, "net1")
        await detached(rails, netns_fd)

    node.run(main)

    assert node.kernel.steps[-1] == NAMED


@pytest.mark.parametrize("driver", [True, False], ids=["bound", "unbound"])
def test_detach_succeeds_though_the_netdev_never_comes_back(node: Node, driver: bool) -> None:
    node.run(attached)
    node.netdev_is(None)
    if not driver:
        (node.tree.devices / AT_HOME / "driver").unlink()

    node.run(detached)

    assert node.state == ("detaching", False)
    assert node.table.inventory.vf(VF).netdev is None


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


# Who gets a VF that somebody still has.


def test_two_sandboxes_that_wait_for_one_vf_do_not_wake_each_other() -> None:
    table = VfTable(two_rails())
    (first, busy), (second, _) = ([vf.address for vf in pf.vfs] for pf in two_rails().pfs)
    table.claim(busy, Owner("dying", "eth0", "uid-0"))
    changes = []
    table.observe(lambda: changes.append(1))

    async def main() -> list[object]:
        rails = Rails(table, None, None, None, Host(Path("/"), 0.2))
        waiting = (rails._claim((vf, busy), Owner(name, "eth0", name)) for vf, name in ((first, "a"), (second, "b")))
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(ended) for ended in asyncio.run(main())] == [NotReady, NotReady]
    assert changes == []

"""The checker is checked: on a node at rest it finds nothing, and what is planted it finds, each kind by its name."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path

import pytest

from simnode.judge import facts
from simnode.judge.facts import Facts, Place
from simnode.judge.invariants import Living, Violation, of_sandboxes, violations
from simnode.node import Node
from tests.simnode.leaks import CBR0, DEAD, FREE, FREE_VF, LEAKS, Ground, path_of, record, written
from vf.record import encode

_SECONDS = 10.0


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"])) as node:
        node.install()
        node.start_daemon()
        yield Ground(node)


@pytest.fixture(autouse=True)
def _nothing_is_left_of_a_test(ground: Ground) -> Iterator[None]:
    yield
    assert judged(ground.judge, set()) == []


def judged(judge: Callable[[], list[Violation]], expected: set[str]) -> list[Violation]:
    """Judge until all of these kinds are found and no other, for some seconds: the daemon and kubelet are not idle all the time.

    What the daemon has open while it looks at its node is a descriptor too many for that moment, and kubelet's next checkpoint a file.
    """
    give_up = time.monotonic() + _SECONDS
    while kinds(found := judge()) != expected and time.monotonic() < give_up:
        time.sleep(0.05)
    return found


def kinds(found: list[Violation]) -> set[str]:
    return {one.kind for one in found}


def test_node_with_pods_at_rest_has_no_violation(ground: Ground) -> None:
    assert judged(ground.judge, set()) == []
    assert ground.judge_resting() == []


@pytest.mark.parametrize("leak", LEAKS)
def test_planted_leak_is_found(ground: Ground, leak: str) -> None:
    expected, planted = LEAKS[leak]

    with planted(ground):
        found = judged(ground.judge, expected)

    assert kinds(found) == expected


IN_PASSING = [
    "a VF in two records",
    "an address in two pods",
    "a record that is gone",
    "a link in a pod",
    "host-local's address that is gone",
    "a rail under another name",
    "a rail that is down",
]


@pytest.mark.parametrize("leak", IN_PASSING)
def test_resting_pods_are_judged_while_others_come_and_go(ground: Ground, leak: str) -> None:
    expected, planted = LEAKS[leak]

    with planted(ground):
        found = ground.judge_resting()

    assert kinds(found) == expected - {"record left over"}


def test_sandboxes_that_live_no_more_are_left_over_with_all_they_have(ground: Ground) -> None:
    expected = {
        *(
            "VF misplaced",
            "address left over",
            "file left over",
            "iptables rule left over",
            "link left over",
            "link wrong",
        ),
        *("mount left over", "network namespace left over", "record left over"),
    }

    found = judged(lambda: ground.judge([]), expected)

    assert kinds(found) == expected


def test_living_sandbox_that_is_gone_is_missed(ground: Ground) -> None:
    gone = Living(DEAD, Path("/run/netns/gone"))
    expected = {"network namespace missing"}
    assert kinds(judged(lambda: ground.judge([*ground.living, gone]), expected)) == expected


def test_living_sandbox_that_lacks_a_vf_of_kubelets_is_wrong(ground: Ground) -> None:
    living = [replace(one, vfs=one.vfs | {FREE_VF}) for one in ground.living[:1]]
    expected = {"record wrong"}
    assert kinds(judged(lambda: ground.judge([*living, *ground.living[1:]]), expected)) == expected


@contextmanager
def another_in_place_of_the_daemon(ground: Ground, **descriptors: object) -> Iterator[None]:
    real = ground.node.daemon.process
    with Path("/run/simnode/railnet.log").open("ab") as log:
        usual = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        holder = subprocess.Popen(["sleep", "60"], **{**usual, **descriptors})
    ground.node.daemon.process = holder
    yield
    ground.node.daemon.process = real
    holder.kill()
    holder.wait()


def test_network_namespace_held_by_an_idle_daemon_is_found(ground: Ground) -> None:
    with ground.one.netns.open() as held, another_in_place_of_the_daemon(ground, stdin=held):
        found = ground.judge()

    assert [one.what for one in found if one.kind == "descriptor left over"] == [
        "the daemon, which is idle, holds 1 network namespaces open"
    ]


def test_descriptor_more_than_at_rest_is_found(ground: Ground) -> None:
    fd = os.memfd_create("planted")
    with another_in_place_of_the_daemon(ground, pass_fds=[fd]):
        found = ground.judge()
    os.close(fd)

    assert [one.what for one in found if one.kind == "descriptor left over"] == [
        "the daemon has 1 of /memfd:planted (deleted), at rest it had 0"
    ]


@pytest.mark.parametrize(
    "hardware",
    [("02:00:00:00:00:01", "02:00:00:00:00:02"), (f"00:00:01:00:{'00:' * 15}01", f"00:00:01:00:{'00:' * 15}02")],
)
def test_another_hardware_address_than_at_rest_is_found(ground: Ground, hardware: tuple[str, str]) -> None:
    before, now = (with_hardware(ground.before, one) for one in hardware)
    assert kinds(of_sandboxes(before, now, [])) == set()
    assert [one for one in violations(before, now, []) if one.kind == "MAC wrong"] == [
        ("MAC wrong", f"VF {FREE_VF} has {hardware[1][-23:]}, at rest {hardware[0][-23:]}")
    ]


def test_ipoibs_queue_pair_may_change(ground: Ground) -> None:
    before = with_hardware(ground.before, f"00:00:01:00:{'00:' * 15}01")
    now = with_hardware(ground.before, f"00:00:01:77:{'00:' * 15}01")
    assert violations(before, now, []) == []


def with_hardware(found: Facts, address: str) -> Facts:
    links = tuple(link._replace(hardware=address) if link.ifname == FREE else link for link in found.links[found.own])
    return replace(found, links={**found.links, found.own: links})


def test_vf_that_is_gone_is_found(ground: Ground) -> None:
    vfs = {address: vf for address, vf in ground.before.vfs.items() if address != FREE_VF}
    assert kinds(violations(ground.before, replace(ground.before, vfs=vfs), [])) == {"VF misplaced"}


def test_netdev_is_placed_by_the_device_that_its_link_names() -> None:
    link = facts.Link(7, "ens3v1", None, 1500, False, frozenset(), None, str(FREE_VF), None)
    assert facts.told_by_links({4: (link,)}) == {FREE_VF: Place(4, "ens3v1")}


def test_address_of_a_living_sandboxs_rail_may_be_an_ipam_plugins(ground: Ground) -> None:
    rail = record(ground.one).attachments[0]
    address = ip_interface("10.61.3.2/24")
    changed = replace(record(ground.one), attachments=(replace(rail, addresses=(address,)),))
    with (
        written(path_of(ground.one), encode(changed)),
        written(CBR0.with_name("railnet-leased") / "10.61.3.2", f"{ground.one.container_id}\r\nnet1".encode()),
    ):
        expected = {"address wrong", "file left over"}  # the link's, and the folder
        found = judged(ground.judge, expected)

    assert kinds(found) == expected

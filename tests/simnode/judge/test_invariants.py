"""The judge is tested: it finds nothing on a node at rest, and it finds each planted leak with the right kind."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path

import pytest

from railnet.kernel.waiting import block_until
from railnet.vf.record import encode
from simnode.judge import node_state
from simnode.judge.invariants import LiveSandbox, Violation, of_sandboxes, violations
from simnode.judge.node_state import NetdevPlace, NodeState
from simnode.node import Node
from tests.simnode.judge.planted_leaks import CBR0, DEAD, FREE, FREE_VF, LEAKS, JudgedNode, path_of, record, written

_SECONDS = 60.0


@pytest.fixture(scope="module")
def judged_node() -> Iterator[JudgedNode]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"])) as node:
        node.install()
        node.start_daemon()
        judged = JudgedNode(node)
        yield judged
        judged.remove_pods()


@pytest.fixture(autouse=True)
def _no_leak_stays_after_a_test(judged_node: JudgedNode) -> Iterator[None]:
    yield
    assert judged(judged_node.judge, set()) == []


def judged(judge: Callable[[], list[Violation]], expected: set[str]) -> list[Violation]:
    """Judge until exactly these kinds are found, for some seconds, because the daemon and kubelet are not always idle.

    The daemon opens more descriptors while it reads the node, and kubelet writes a temporary file for its checkpoint.
    """
    found: list[Violation] = []

    def is_expected() -> bool:
        found[:] = judge()
        return kinds(found) == expected

    block_until(is_expected, _SECONDS, every=0.05)
    return found


def kinds(found: list[Violation]) -> set[str]:
    return {one.kind for one in found}


def test_judge_finds_nothing_on_a_node_with_pods_at_rest(judged_node: JudgedNode) -> None:
    assert judged(judged_node.judge, set()) == []
    assert judged_node.judge_resting() == []


@pytest.mark.parametrize("leak", LEAKS)
def test_judge_finds_a_planted_leak(judged_node: JudgedNode, leak: str) -> None:
    expected, planted = LEAKS[leak]

    with planted(judged_node):
        found = judged(judged_node.judge, expected)

    assert kinds(found) == expected


LEAKS_OF_SANDBOXES = [
    "a VF in two records",
    "an address in two pods",
    "a record that is gone",
    "a link in a pod",
    "host-local's address that is gone",
    "a rail under another name",
    "a rail that is down",
]


@pytest.mark.parametrize("leak", LEAKS_OF_SANDBOXES)
def test_judge_finds_leaks_of_resting_pods_while_others_come_and_go(judged_node: JudgedNode, leak: str) -> None:
    expected, planted = LEAKS[leak]

    with planted(judged_node):
        found = judged_node.judge_resting()

    assert kinds(found) == expected - {"record left over"}


def test_judge_finds_all_objects_of_sandboxes_that_are_no_longer_live(judged_node: JudgedNode) -> None:
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

    found = judged(lambda: judged_node.judge([]), expected)

    assert kinds(found) == expected


def test_judge_finds_that_a_live_sandbox_is_missing(judged_node: JudgedNode) -> None:
    gone = LiveSandbox(DEAD, Path("/run/netns/gone"))
    expected = {"network namespace missing"}
    assert kinds(judged(lambda: judged_node.judge([*judged_node.living, gone]), expected)) == expected


def test_judge_finds_a_live_sandbox_without_a_vf_that_kubelet_allocated(judged_node: JudgedNode) -> None:
    living = [replace(one, vfs=one.vfs | {FREE_VF}) for one in judged_node.living[:1]]
    expected = {"record wrong"}
    assert kinds(judged(lambda: judged_node.judge([*living, *judged_node.living[1:]]), expected)) == expected


@contextmanager
def process_in_place_of_the_daemon(judged_node: JudgedNode, **descriptors: object) -> Iterator[None]:
    real = judged_node.node.daemon.process
    with Path("/run/simnode/railnet.log").open("ab") as log:
        usual = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        holder = subprocess.Popen(["sleep", "60"], **{**usual, **descriptors})
    judged_node.node.daemon.process = holder
    yield
    judged_node.node.daemon.process = real
    holder.kill()
    holder.wait()


def test_judge_finds_a_network_namespace_that_an_idle_daemon_has_open(judged_node: JudgedNode) -> None:
    with judged_node.one.netns.open() as held, process_in_place_of_the_daemon(judged_node, stdin=held):
        found = judged_node.judge()

    assert [one.what for one in found if one.kind == "descriptor left over"] == [
        "the daemon is idle and has 1 network namespaces open"
    ]


def test_judge_finds_a_descriptor_more_than_at_rest(judged_node: JudgedNode) -> None:
    fd = os.memfd_create("planted")
    with process_in_place_of_the_daemon(judged_node, pass_fds=[fd]):
        found = judged_node.judge()
    os.close(fd)

    assert [one.what for one in found if one.kind == "descriptor left over"] == [
        "the daemon has 1 of /memfd:planted (deleted), at rest it had 0"
    ]


@pytest.mark.parametrize(
    "hardware",
    [("02:00:00:00:00:01", "02:00:00:00:00:02"), (f"00:00:01:00:{'00:' * 15}01", f"00:00:01:00:{'00:' * 15}02")],
)
def test_judge_finds_another_hardware_address_than_at_rest(judged_node: JudgedNode, hardware: tuple[str, str]) -> None:
    before, now = (with_hardware(judged_node.before, one) for one in hardware)
    assert kinds(of_sandboxes(before, now, [])) == set()
    assert [one for one in violations(before, now, []) if one.kind == "MAC wrong"] == [
        ("MAC wrong", f"VF {FREE_VF} has {hardware[1][-23:]}, at rest {hardware[0][-23:]}")
    ]


def test_judge_accepts_another_queue_pair_of_ipoib(judged_node: JudgedNode) -> None:
    before = with_hardware(judged_node.before, f"00:00:01:00:{'00:' * 15}01")
    now = with_hardware(judged_node.before, f"00:00:01:77:{'00:' * 15}01")
    assert violations(before, now, []) == []


def with_hardware(found: NodeState, address: str) -> NodeState:
    links = tuple(link._replace(hardware=address) if link.ifname == FREE else link for link in found.links[found.own])
    return replace(found, links={**found.links, found.own: links})


def test_judge_finds_that_a_vf_is_gone(judged_node: JudgedNode) -> None:
    vfs = {address: vf for address, vf in judged_node.before.vfs.items() if address != FREE_VF}
    assert kinds(violations(judged_node.before, replace(judged_node.before, vfs=vfs), [])) == {"VF misplaced"}


def test_place_of_a_netdev_is_found_by_the_pci_device_of_its_link() -> None:
    link = node_state.Link(7, "ens3v1", None, 1500, False, frozenset(), None, str(FREE_VF), None)
    assert node_state.places_by_links({4: (link,)}) == {FREE_VF: NetdevPlace(4, "ens3v1")}


def test_judge_accepts_a_rail_address_that_an_ipam_plugin_reserved(judged_node: JudgedNode) -> None:
    rail = record(judged_node.one).attachments[0]
    address = ip_interface("10.61.3.2/24")
    changed = replace(record(judged_node.one), attachments=(replace(rail, addresses=(address,)),))
    with (
        written(path_of(judged_node.one), encode(changed)),
        written(CBR0.with_name("railnet-leased") / "10.61.3.2", f"{judged_node.one.container_id}\r\nnet1".encode()),
    ):
        expected = {"address wrong", "file left over"}  # of the link, and the folder
        found = judged(judged_node.judge, expected)

    assert kinds(found) == expected

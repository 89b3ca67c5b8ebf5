"""The churn reports a leak with its history, and judges nothing too early."""

from pathlib import Path

import pytest

from simnode.chaos.churn_operations import ChurnOperations
from simnode.chaos.churn_statistics import ChurnStatistics
from simnode.kubernetes.kubelet import Allocation, PodIdentity
from simnode.node import Node
from tests.simnode.judge.planted_leaks import locked


def test_leak_is_reported_with_the_operations_on_its_sandbox(node: Node) -> None:
    node.remove_pod(node.run_pod("first"))  # this pod makes the bridge
    statistics = ChurnStatistics(seed=7)
    operations = ChurnOperations(node, statistics, quiet_seconds=0)
    before = node.look()
    identity = PodIdentity("leaking", "default", "uid-leaking")
    sandbox = operations.make_sandbox(identity, None)
    assert operations.add(sandbox)
    operations.tear_down(sandbox)
    planted = Path("/run/railnet/lock", f"{sandbox.container_id}@eth0")

    with locked(planted):
        operations.look(before)

    # The daemon may have descriptors open meanwhile, which count as left over, too.
    (reported,) = (one for one in statistics.violations if one.startswith("file left over"))
    assert reported.startswith(f"file left over: file {planted}")
    assert f"ADD without rails: ok, {sandbox.container_id[:12]}" in reported
    assert f"DEL: ok, {sandbox.container_id[:12]}" in reported
    assert f"INFO cni.request_handler: DEL {sandbox.container_id[:12]} of pod default/leaking took" in reported


def test_forgotten_sandbox_is_not_judged_before_the_daemon_may_collect_it(node: Node) -> None:
    statistics = ChurnStatistics(seed=7)
    # A veth disappears a moment after the namespace of its peer.
    operations = ChurnOperations(node, statistics, quiet_seconds=10)
    first = operations.make_sandbox(PodIdentity("first", "default", "uid-first"), 20001)
    assert operations.add(first)  # this ADD makes the bridge, and the chains that all port mappings share
    operations.tear_down(first)
    before = node.look()
    forgotten = operations.make_sandbox(PodIdentity("forgotten", "default", "uid-forgotten"), 20001)
    assert operations.add(forgotten)
    operations.forget(forgotten)

    operations.look(before)

    operations.tear_down(forgotten)
    assert statistics.violations == []


def test_address_without_an_owner_is_not_judged_before_the_daemon_may_collect_it(node: Node) -> None:
    statistics = ChurnStatistics(seed=7)
    operations = ChurnOperations(node, statistics, quiet_seconds=10)
    node.remove_pod(node.run_pod("first"))
    before = node.look()
    planted = Path("/var/lib/cni/networks/cbr0/10.244.3.200")
    planted.touch()  # host-local leaves an empty file if it is killed before it writes the owner

    operations.look(before)

    planted.unlink()
    assert statistics.violations == []


def test_allocate_that_is_refused_for_a_vf_whose_namespace_has_just_died_is_tried_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    statistics = ChurnStatistics(seed=7)
    operations = ChurnOperations(node, statistics)
    dying, following = (PodIdentity(name, "default", f"uid-{name}") for name in ("dying", "following"))
    operations.admit(dying, 1)
    sandbox = operations.make_sandbox(dying, None)
    assert operations.add(sandbox)
    (vf,) = map(str, operations.live_sandbox(sandbox).vfs)
    operations.destroy_namespace(sandbox)
    node.kubelet.remove(dying)
    operations.tear_down(sandbox)
    refusals, allocate = iter([ValueError(f"VF {vf} has no network interface")]), node.kubelet.allocate

    def refuse_once(pod: PodIdentity, resource: str, count: int) -> Allocation:
        for refusal in refusals:
            raise refusal
        return allocate(pod, resource, count)

    monkeypatch.setattr(node.kubelet, "allocate", refuse_once)
    operations.admit(following, 1)

    node.kubelet.remove(following)
    assert statistics.violations == []

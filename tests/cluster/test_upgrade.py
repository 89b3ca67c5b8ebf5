"""Upgrades: the DaemonSet's pod is replaced while pods come and go, and pods that run do not notice."""

from tests.cluster.churn import Churn
from tests.cluster.node import ClusterNode
from tests.cluster.owners import Owners
from tests.cluster.process import wait_until

# kubelet refuses a pod that is bound while the daemon is away; the pod's controller makes another.
REFUSED = "UnexpectedAdmissionError"
_SECONDS = 150.0  # the last daemon's grace and the next pod's start


def test_rolling_updates_fail_no_plain_pod_and_touch_no_running_one(node: ClusterNode) -> None:
    one, other = node.run("one", 2), node.run("other", 2)
    before = [(node.containerd.sandbox(name), node.records(name)) for name in (one, other)]
    node.forget_events()
    with Owners() as owners, Churn(node, 0) as plain, Churn(node, 1) as rail:
        node.railnet.restart()
        node.railnet.roll_out()
        node.railnet.apply(timeouts={"daemon": "6s"})  # another configuration is an upgrade, too
        node.railnet.roll_out()
    late = node.run("late", 1)

    assert {*plain.outcomes} == {(("eth0",), None)}
    assert {*rail.outcomes} <= {(("eth0", "net1"), None), ((), REFUSED)}
    assert list(node.addresses(late)) == ["eth0", "net1"]
    assert (owners.most, len(owners.processes)) == (1, 3)
    assert [(node.containerd.sandbox(name), node.records(name)) for name in (one, other)] == before
    assert node.pings(one, "net1", node.addresses(other)["net1"])


def test_daemon_that_comes_before_the_last_one_has_ended_waits_for_it(node: ClusterNode) -> None:
    with Owners() as owners:
        wait_until(lambda: len(owners.processes) == 1, _SECONDS, "the owner to be seen")
        node.railnet.lose_pod()
        wait_until(lambda: len(owners.processes) == 2, _SECONDS, "another owner")

    assert owners.most == 1

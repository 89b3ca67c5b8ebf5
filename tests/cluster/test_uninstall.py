"""Railnet is taken away, in its own way and in the wrong one, and comes back."""

from tests.cluster.admission_on_node import REPLICAS, Admission
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.process import until_found, wait_until
from tests.cluster.railnet_on_node import BUNDLES, CONFLIST, EXECUTABLE, STATE, why_not_ready

OURS = (EXECUTABLE, BUNDLES, CONFLIST, STATE)
_LOOK_SECONDS = 180.0  # the last daemon's grace, and the next one is a new pod
_REASON = (_LOOK_SECONDS, "the daemon to say what it waits for")


def test_uninstall_keeps_rails_of_running_pods_then_leaves_nothing_and_a_new_install_works(node: ClusterNode) -> None:
    one, other = node.run("one", 2), node.run("other", 2)
    node.railnet.uninstall()
    wait_until(lambda: not CONFLIST.exists(), _LOOK_SECONDS, "flannel's configuration to be the runtime's")
    node.wait_for_vfs(0)
    plain = node.run("plain")
    late = node.bring("late", 1)
    node.wait_for_event(late, "Insufficient rdma/ib_vf")
    until_found(lambda: reason_with("still need it"), *_REASON)
    answered = node.pings(one, "net1", node.addresses(other)["net1"])
    node.delete(one, other, late)
    said = node.railnet.roll_out()
    left = [path for path in OURS if path.exists()]
    node.railnet.delete()
    left += [path for path in OURS if path.exists()]
    exists = node.railnet.exists()
    node.railnet.forget()
    node.railnet.load()
    node.railnet.start()
    back = node.run("back", 1)

    assert answered
    assert list(node.addresses(plain)) == ["eth0"]
    assert "successfully rolled out" in said
    assert left == []
    assert not exists
    assert "net1" in node.addresses(back)


def test_uninstall_with_the_admission_helper_waits_for_pods_with_rails_alone_and_leaves_nothing(
    node: ClusterNode,
) -> None:
    """The steps are those of docs/install.md. The helper's own pods and a plain pod were made through Railnet, and run to the end."""
    train, plain = node.run("train", 1), node.run("plain")
    with Admission(node) as admission:
        admission.delete_webhooks()
        node.railnet.uninstall()
        waits_for = until_found(lambda: reason_with(f"1 still need it (pod default/{train} has a rail)"), *_REASON)
        node.delete(train)
        said = node.railnet.roll_out()
        left = [path for path in OURS if path.exists()]
        helpers, addresses = admission.running(), node.addresses(plain)
        admission.delete()
        exists = node.railnet.exists()
    nothing_left = node.forget_pods()

    assert waits_for.count("pod ") == 1
    assert "successfully rolled out" in said
    assert left == []
    assert helpers == REPLICAS
    assert list(addresses) == ["eth0"]
    assert not exists
    assert nothing_left == []


def reason_with(words: str) -> str:
    """Return what the daemon says, if it has these words; else an empty text."""
    said = why_not_ready() or ""
    return said if words in said else ""


def test_plain_delete_changes_nothing_for_pods_without_a_rail_and_a_new_install_works(node: ClusterNode) -> None:
    train = node.run("train", 1)
    before = node.addresses(train)
    node.forget_events()
    node.railnet.delete()
    plain = node.run("plain")
    warnings = node.warnings([train, plain])
    installed = CONFLIST.exists() and EXECUTABLE.exists()
    same = node.addresses(train) == before
    node.delete(train, plain)
    node.railnet.start()
    node.wait_for_vfs(VFS * len(PFS))
    node.forget_pods()
    wide = node.run("wide", VFS * len(PFS))

    assert installed
    assert same
    assert warnings == []
    assert len(node.addresses(wide)) == 1 + VFS * len(PFS)

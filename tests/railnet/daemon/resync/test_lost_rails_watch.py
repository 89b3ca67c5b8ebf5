"""The watch tells of each lost rail once, when two looks have seen it."""

from dataclasses import replace

from cni.rail_observers import AddRefused, RailChanged, RailsAttached
from railnet.daemon.resync.lost_rails_watch import LostRailsWatch
from railnet.vf.record import Record, SandboxPod
from railnet.vf.vf_table import VfTable
from tests.deviceplugin.builders import two_rails
from tests.railnet.vf.builders import a_record, an_attachment

NODE = two_rails()
VF = NODE.pfs[0].vfs[0]
IN_POD = NODE.with_vfs({VF.address: replace(VF, netdev=None)})
POD = SandboxPod("ml", "train-0", "uid-1")


class Watched:
    """A watch of a node with one pod, and the events that it reports."""

    def __init__(self) -> None:
        self.table = VfTable(IN_POD)
        self.events: list[RailsAttached | AddRefused | RailChanged] = []
        self.records: list[Record] = [a_record(an_attachment(vf=VF.address, rail=3), pod=POD, stage="attached")]
        self.seconds = 60.0
        self.watch = LostRailsWatch(
            self.table, lambda: [(record, self.seconds) for record in self.records], self.events.append
        )


def test_rail_that_two_looks_see_lost_is_told_once_to_its_pod() -> None:
    node = Watched()
    node.table.refresh(NODE)
    for _ in range(3):
        node.watch.look()

    (event,) = node.events
    assert isinstance(event, RailChanged)
    assert (event.reason, event.warning, event.pods) == ("RailnetRailLost", True, (POD,))
    assert "pod ml/train-0 has lost net1" in event.text
    assert node.watch.by_rail() == {3: 1}


def test_rail_that_one_look_sees_lost_is_not_told() -> None:
    node = Watched()
    node.table.refresh(NODE)
    node.watch.look()
    node.table.refresh(IN_POD)
    node.watch.look()
    node.watch.look()

    assert node.events == []
    assert node.watch.lost == {}


def test_rail_is_forgotten_with_its_sandbox() -> None:
    node = Watched()
    node.table.refresh(NODE)
    node.watch.look()
    node.watch.look()
    node.records = []
    node.watch.look()

    assert node.watch.lost == {}
    assert node.watch.by_rail() == {}


def test_rail_of_a_pod_that_has_just_begun_is_not_told_since_the_table_may_be_older() -> None:
    node = Watched()
    node.seconds = 20.0
    node.table.refresh(NODE)
    node.watch.look()
    node.watch.look()

    assert node.events == []

"""How the proposal differs from what runs."""

from dataclasses import replace

from railnet.plan.differences import Difference, differences, lines
from railnet.plan.running_configuration import running
from tests.railnet.plan.reports import COMPUTE, eight, four, planned, seen

NODES = tuple(seen(f"gpu-{number}", four()) for number in range(2))
SELECT = '{select: {pfDevice: ["101b"]}, vfs: 8}'


def test_proposal_that_runs_has_no_difference() -> None:
    now = running(
        {
            "": f"provision: [{SELECT}]\nnetworks: {{default: {{mtu: 2044, ipam: {{type: slice, rails: 4}}}}}}\nrails: auto"
        }
    )

    assert differences(planned(*NODES), NODES, now) == ()
    assert list(lines(())) == ["The proposal is what runs."]


def test_difference_names_the_nodes_the_key_and_both_values() -> None:
    now = running({"": "rails: auto", "old": f"rails: ['0000:21:00.0']\nprovision: [{SELECT}]"})
    nodes = (*NODES, replace(seen("gpu-9", four()), group="old"))

    changes = differences(planned(*nodes), nodes, now)

    provision = [{"select": {"pfDevice": ["101b"]}, "vfs": 8}]
    assert changes == (
        Difference(("gpu-0", "gpu-1"), "provision", None, provision),
        Difference(("gpu-0", "gpu-1", "gpu-9"), "networks.default.ipam.rails", None, 4),
        Difference(("gpu-9",), "rails", ["0000:21:00.0"], "auto"),
    )
    assert list(lines(changes))[:6] == [
        "gpu-0, gpu-1: provision",
        "- (absent)",
        "+ - select:",
        "+     pfDevice:",
        '+     - "101b"',
        "+   vfs: 8",
    ]


def test_group_that_gets_rails_by_address_differs_from_auto() -> None:
    nodes = (seen("gpu", eight()), seen("old", four(), 4))

    changes = {
        (each.nodes, each.key): each.proposed for each in differences(planned(*nodes), nodes, running({"": "{}"}))
    }

    assert changes[("gpu",), "rails"] == list(COMPUTE)


def test_node_whose_configuration_is_not_known_has_no_difference() -> None:
    assert differences(planned(*NODES), NODES, running({})) == ()

"""What runs: what the proposal takes of it, and how the proposal differs from it."""

from dataclasses import replace
from ipaddress import ip_network

import pytest

from railnet.plan.running_configuration import Difference, differences, lines, running
from railnet.plan.vf_count import RunningNetwork
from tests.railnet.plan.reports import COMPUTE, eight, four, planned, seen

NODES = tuple(seen(f"gpu-{number}", four()) for number in range(2))
SELECT = '{select: {pfDevice: ["101b"]}, vfs: 8}'


def test_nothing_is_read_and_the_defaults_stand_for_it() -> None:
    now = running({})

    assert (now.link_types, now.network, now.unread) == ({"infiniband"}, RunningNetwork(), ())


def test_pools_and_range_are_those_that_run() -> None:
    text = "pools: [{resource: rdma/x}]\nnetworks: {default: {ipam: {type: slice, range: 10.60.0.0/15}}}"
    now = running({"": text})

    assert now.link_types == {"infiniband", "ether"}
    assert now.network == RunningNetwork(range=ip_network("10.60.0.0/15"))


@pytest.mark.parametrize("text", ["rails: 1", "{", "a: &a [*a]", "x" * (2 << 20)])
def test_configuration_that_cannot_be_used_is_said_and_the_others_count(text: str) -> None:
    now = running({"broken": text, "": "networks: {default: {ipam: {type: none}}}"})

    assert (set(now.documents), now.network.is_slice) == ({""}, False)
    (unread,) = now.unread
    assert unread.startswith("the configuration that runs in group broken was not used: ")
    assert len(unread) < 400


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
        Difference(("gpu-9",), "rails", ["0000:21:00.0"], None),
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

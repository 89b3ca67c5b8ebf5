"""What runs: what the proposal takes of it."""

from ipaddress import ip_network

import pytest

from railnet.plan.running_configuration import running
from railnet.plan.vf_count import RunningNetwork


def test_nothing_is_read_and_the_defaults_stand_for_it() -> None:
    now = running({})

    assert (now.link_types_of(""), now.network, now.unread) == ({"infiniband"}, RunningNetwork(), ())


def test_pools_and_range_are_those_that_run() -> None:
    text = "pools: [{resource: rdma/x}]\nnetworks: {default: {ipam: {type: slice, range: 10.60.0.0/15}}}"
    now = running({"": text})

    assert now.link_types == {"": {"infiniband", "ether"}}
    assert now.network == RunningNetwork(range=ip_network("10.60.0.0/15"))


@pytest.mark.parametrize("text", ["rails: 1", "{", "a: &a [*a]", "x" * (2 << 20)])
def test_configuration_that_cannot_be_used_is_said_and_the_others_count(text: str) -> None:
    now = running({"broken": text, "": "networks: {default: {ipam: {type: none}}}"})

    assert (set(now.documents), now.network.is_slice) == ({""}, False)
    (unread,) = now.unread
    assert unread.startswith("the configuration that runs in group broken was not used: ")
    assert len(unread) < 400


@pytest.mark.parametrize("depth", [60, 90, 200, 500])
def test_configuration_that_is_nested_deeply_is_said(depth: int) -> None:
    nested = '{"type": "plugin", "a": ' * depth + "1" + "}" * depth
    now = running({"": f'{{"networks": {{"x": {{"ipam": {nested}}}}}}}'})

    assert (dict(now.documents), len(now.unread)) == ({}, 1)
    assert "nested too deeply" in now.unread[0]

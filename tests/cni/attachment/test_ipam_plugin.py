"""IPAM plugins for rails: how they are run, and what is parsed of their results."""

import json
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from cni.attachment import ipam_plugin
from cni.host.chain import ExecOutput
from cni.host.errors import CniError, NotExecuted
from railnet.vf.permitted_networks import PluginIpam
from railnet.vf.record import RecordedIpam
from railnet.vf.steps import Given, Route
from tests.cni.host.fake_runner import Runner, printed

CONF = {"type": "host-local", "ranges": [[{"subnet": "10.61.0.0/24"}]]}
IPAM = ipam_plugin.as_recorded("fast", PluginIpam(CONF), "0.4.0", ("net1", "net2"), "/opt/cni/bin")
FAILED = ExecOutput(1 << 8, b'{"code": 100, "msg": "no range has a free address"}', b"")


def added(answer: object, of: RecordedIpam = IPAM) -> dict[str, Given]:
    return Runner({("host-local", "ADD"): printed(answer)}).drive(ipam_plugin.add(of))


def test_plugin_is_run_for_each_interface_with_a_network_name_that_is_not_the_primarys() -> None:
    runner = Runner({("host-local", "ADD"): printed({"ips": []})})

    runner.drive(ipam_plugin.add(IPAM))

    assert runner.calls == ["ADD host-local net1", "ADD host-local net2"]
    assert [step.environ()[b"CNI_IFNAME"] for step in runner.executed] == [b"net1", b"net2"]
    assert json.loads(runner.executed[0].stdin) == {
        "cniVersion": "0.4.0",
        "name": "railnet-fast",
        "type": "railnet",
        "ipam": CONF,
    }


def test_addresses_and_routes_are_parsed() -> None:
    answer = {
        "ips": [
            {"version": "4", "address": "10.61.0.2/24", "gateway": "10.61.0.1"},
            {"version": "6", "address": "fd61::2/64"},
        ],
        "routes": [
            {"dst": "10.0.0.0/8"},
            {"dst": "10.62.0.0/16", "gw": "10.61.0.9"},
            {"dst": "fd00::/8"},
        ],
        "dns": {},
    }

    assert added(answer)["net2"] == Given(
        (ip_interface("10.61.0.2/24"), ip_interface("fd61::2/64")),
        (
            Route(ip_network("10.0.0.0/8"), ip_address("10.61.0.1")),
            Route(ip_network("10.62.0.0/16"), ip_address("10.61.0.9")),
            Route(ip_network("fd00::/8"), None),
        ),
    )


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"ips": None},
        {"ips": {"address": "10.61.0.2/24"}},
        {"ips": ["10.61.0.2/24"]},
        {"ips": [{}]},
        {"ips": [{"address": "10.61.0"}]},
        {"ips": [{"address": 171048962}]},
        {"ips": [{"address": "10.61.0.2/24", "gateway": True}]},
        {"ips": [], "routes": [{"dst": 0}]},
        {"ips": [{"address": "10.61.0.2/24", "gateway": "here"}]},
        {"ips": [], "routes": [{"gw": "10.61.0.1"}]},
        {"ips": [], "routes": [{"dst": "10.61.0.1/8"}]},
    ],
    ids=json.dumps,
)
def test_output_that_is_no_result_is_reported_with_the_plugins_name(answer: object) -> None:
    with pytest.raises(CniError, match="IPAM plugin 'host-local' printed a result without usable 'ips'") as raised:
        added(answer)

    assert raised.value.code == 105
    assert json.loads(raised.value.details) == answer


def test_plugins_own_error_is_raised() -> None:
    with pytest.raises(CniError, match="no range has a free address") as raised:
        Runner({("host-local", "ADD"): FAILED}).drive(ipam_plugin.add(IPAM))

    assert raised.value.code == 100


@pytest.mark.parametrize(("there", "undone"), [(0, False), (1, True)])
def test_plugin_that_goes_away_between_two_interfaces_has_something_to_undo(there: int, undone: bool) -> None:
    steps = ipam_plugin.add(IPAM)
    next(steps)
    for _ in range(there):
        steps.send(printed({"ips": []}))

    with pytest.raises(CniError) as raised:
        steps.send(ExecOutput(-2, b"", b"no folder of CNI_PATH has it"))

    assert isinstance(raised.value, NotExecuted) is not undone


def test_delete_runs_for_every_interface_then_raises_the_first_failure() -> None:
    runner = Runner({("host-local", "DEL"): FAILED})

    with pytest.raises(CniError, match="no range has a free address"):
        runner.drive(ipam_plugin.delete(IPAM))

    assert runner.calls == ["DEL host-local net2", "DEL host-local net1"]

"""Multus whose default network is Railnet is refused as Railnet's primary network, by what its configuration names."""

import json
from typing import Any

import pytest

from cni.host.chain import Exec, parse
from cni.host.multus_circle import LeadsBack

PATH = "/etc/cni/net.d/20-multus.conf"
OURS = "/host/etc/cni/net.d/00-railnet.conflist"


def multus(**settings: Any) -> bytes:
    return json.dumps({"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus-shim", **settings}).encode()


@pytest.mark.parametrize(
    "settings",
    [
        {"clusterNetwork": OURS},
        {
            "clusterNetwork": "/etc/cni/net.d/10-flannel.conflist",
            "defaultNetworks": ["/etc/cni/net.d/00-railnet.conflist"],
        },
        {"delegates": [{"type": "railnet", "primary": PATH}]},
        {"delegates": [{"name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "railnet"}]}]},
        {"type": "multus", "clusterNetwork": OURS},
    ],
    ids=repr,
)
def test_multus_that_leads_back_is_refused_with_what_to_change(settings: dict[str, Any]) -> None:
    with pytest.raises(LeadsBack, match=r"20-multus\.conf is Multus and .*set Multus' clusterNetwork") as raised:
        parse(multus(**settings), PATH)

    assert raised.value.code == 7


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"clusterNetwork": "/host/etc/cni/net.d/10-flannel.conflist"},
        {"clusterNetwork": "cbr0", "defaultNetworks": 5, "delegates": 5},
        {"clusterNetwork": 5, "defaultNetworks": [5], "delegates": [5, {"plugins": 5}, {"plugins": [5]}]},
    ],
    ids=repr,
)
def test_multus_before_another_network_is_a_primary(settings: dict[str, Any]) -> None:
    assert parse(multus(**settings), PATH).name == "multus-cni-network"


def test_multus_is_marked_and_other_plugins_get_the_runtimes_environment_alone() -> None:
    assert Exec("multus", "ADD", b"").environ() == {b"CNI_COMMAND": b"ADD", b"RAILNET_CALLS_MULTUS": b"1"}
    assert Exec("flannel", "ADD", b"").environ() == {b"CNI_COMMAND": b"ADD"}

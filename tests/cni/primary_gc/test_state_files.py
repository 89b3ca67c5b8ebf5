"""Which state files a primary has, and what is parsed of them; no file of another network."""

import json
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cni.host.chain import Primary
from cni.primary_gc.state_files import StateFolder, parse, state_folders
from railnet.kernel.foreign_state_files import Entry
from railnet.vf.record import SandboxPod
from tests.cni.primary_gc.state_files import (
    ADDRESSES,
    FLANNEL,
    NETNS,
    RESULTS,
    STATES,
    a_result,
    a_state,
    an_address,
    cached,
)


def folders_of(*plugins: dict[str, Any], name: str = "cbr0") -> tuple[StateFolder, ...]:
    return state_folders(Primary(name, "1.0.0", list(plugins)))


def test_flannel_has_its_own_folder_host_locals_and_libcnis() -> None:
    assert state_folders(FLANNEL) == (STATES, ADDRESSES, RESULTS)


def test_other_folders_are_found_where_the_configuration_says() -> None:
    ipam = {"type": "host-local", "dataDir": "/run/ips"}

    assert folders_of({"type": "flannel", "dataDir": "/run/flannel-states/", "ipam": ipam}) == (
        StateFolder("flannel", "/run/flannel-states"),
        StateFolder("host-local", "/run/ips/cbr0"),
        RESULTS,
    )
    assert folders_of({"type": "bridge", "ipam": ipam}, {"type": "tuning"}) == (
        StateFolder("host-local", "/run/ips/cbr0"),
        RESULTS,
    )


@pytest.mark.parametrize(
    "plugin",
    [
        {"type": "bridge", "ipam": {"type": "dhcp"}},
        {"type": "bridge"},
        {"type": "bridge", "ipam": "odd"},
        {"type": "flannel", "dataDir": "relative", "ipam": {"type": "dhcp"}},
    ],
    ids=["dhcp", "no ipam", "odd ipam", "relative"],
)
def test_plugin_without_state_files_has_libcnis_folder_alone(plugin: dict[str, Any]) -> None:
    assert folders_of(plugin) == (RESULTS,)


@pytest.mark.parametrize("name", ["", ".", "..", "../networks/other", "a/b"])
def test_network_whose_name_is_no_folders_name_has_no_folders(name: str) -> None:
    assert folders_of({"type": "flannel"}, name=name) == ()


def test_address_file_names_container_and_interface() -> None:
    found = an_address("c0ffee", "10.244.3.7")

    assert (found.container_id, found.ifname, found.addresses) == ("c0ffee", "eth0", (ip_address("10.244.3.7"),))


def test_address_file_of_an_old_host_local_names_the_container_alone() -> None:
    found = parse(ADDRESSES, Entry("10.244.3.7", b"c0ffee\n", 0), "cbr0")

    assert found is not None
    assert (found.container_id, found.ifname) == ("c0ffee", "")


def test_empty_address_file_names_no_container() -> None:
    assert an_address("").container_id is None


def test_flannel_state_names_its_network_and_container() -> None:
    assert (a_state().container_id, a_state().readable) == ("c0ffee", True)
    assert parse(STATES, Entry("c0ffee", b'{"name": "other"}', 0), "cbr0") is None


def test_second_name_of_a_flannel_state_is_of_the_same_container() -> None:
    found = parse(STATES, Entry(".c0ffee.railnet", b'{"name": "cbr0"}', 0), "cbr0")

    assert found is not None
    assert found.container_id == "c0ffee"


@pytest.mark.parametrize("content", [b"", b'{"na', b"[]", b"\xff", b"{}"])
def test_flannel_state_that_cannot_be_read_is_not_readable(content: bytes) -> None:
    found = parse(STATES, Entry("c0ffee", content, 0), "cbr0")

    assert found is not None
    assert (found.container_id, found.readable) == ("c0ffee", False)


def test_cached_result_has_all_that_a_del_needs() -> None:
    found = a_result()

    assert found.cached is not None
    assert (found.container_id, found.ifname, found.addresses) == ("c0ffee", "eth0", (ip_address("10.244.3.7"),))
    assert found.cached.sandboxes == (NETNS,)
    assert found.cached.host_links == (("cni0", "2e:85:7f:06:c5:91"), ("veth0a1b2c3d", "D6:4F:55:B8:9B:8F"))
    assert found.cached.pod == SandboxPod("ml", "train-0", "")
    assert list(found.cached.runtime_config) == ["portMappings"]


@pytest.mark.parametrize(
    ("folder", "name", "content"),
    [
        (ADDRESSES, "last_reserved_ip.0", b"10.244.3.7"),
        (ADDRESSES, "lock", b""),
        (ADDRESSES, "10.244.3.7", b"../../etc\r\neth0"),
        (ADDRESSES, "10.244.3.7", b"\xff\xfe"),
        (STATES, "..odd", b"{}"),
        (STATES, "-c0ffee", b'{"name": "cbr0"}'),
        (RESULTS, "cbr0-c0ffee-eth0", b""),
        (RESULTS, "cbr0-c0ffee-eth0", b"[]"),
        (RESULTS, "cbr0-c0ffee-eth0", b"[" * 100_000),
        (RESULTS, "cbr0-c0ffee-eth0", b'{"kind": "cniCacheV1", "networkName": "cbr0", "containerId": 7}'),
        (RESULTS, "cbr0-c0ffee-eth0", cached().replace(b"cniCacheV1", b"cniCacheV9")),
        (RESULTS, "cbr0-c0ffee-eth0", cached("../c0ffee")),
        (RESULTS, "cbr0-c0ffee-eth0", cached(network="other")),
        (RESULTS, "cbr0-c0ffee-eth0", cached().replace(b"10.244.3.7/24", b"odd")),
    ],
)
def test_other_file_or_file_of_another_network_is_passed_over(folder: StateFolder, name: str, content: bytes) -> None:
    assert parse(folder, Entry(name, content, 0), "cbr0") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("10.0.0.1/24") | st.just("cbr0"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["name", "mac", "address"]), inner),
    max_leaves=20,
)
KEYS = (
    "kind",
    "networkName",
    "containerId",
    "ifName",
    "result",
    "cniArgs",
    "capabilityArgs",
    "interfaces",
    "ips",
    "name",
)


@given(st.sampled_from(state_folders(FLANNEL)), st.text(), st.binary())
def test_no_file_is_odd_enough_to_be_an_error(folder: StateFolder, name: str, content: bytes) -> None:
    parse(folder, Entry(name, content, 0), "cbr0")


@pytest.mark.slow
@given(st.booleans(), st.sampled_from(KEYS), JSON)
@example(inside=True, key="interfaces", value=True)
@example(inside=True, key="ips", value=[{"address": False}])
@example(inside=True, key="ips", value=5)
def test_no_value_in_a_result_is_odd_enough_to_be_an_error(inside: bool, key: str, value: object) -> None:
    document = json.loads(cached())
    (document["result"] if inside else document)[key] = value

    file = parse(RESULTS, Entry("cbr0-c0ffee-eth0", json.dumps(document).encode(), 0), "cbr0")

    if file is not None and file.cached is not None:
        assert all(file.cached.sandboxes)
        assert all(len(link) == 2 for link in file.cached.host_links)

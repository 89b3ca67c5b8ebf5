"""What libcni remembers of an ADD, as it writes it down."""

import base64
import json
from ipaddress import ip_address

import pytest

from cni import libcni_cache
from railnet.vf.record import SandboxPod
from tests.cni.primary_gc.state_files import NETNS, cached


def an_entry(**changes: object) -> bytes:
    return json.dumps({**json.loads(cached()), **changes}).encode()


def configured(text: str) -> bytes:
    return an_entry(config=base64.b64encode(text.encode()).decode())


def test_entry_names_attachment_network_and_pod() -> None:
    found = libcni_cache.parse(cached())

    assert (found.container_id, found.ifname, found.network) == ("c0ffee", "eth0", "cbr0")
    assert found.pod == SandboxPod("ml", "train-0", "")
    assert list(found.runtime_config) == ["portMappings"]


def test_result_names_addresses_namespaces_and_links_of_the_node() -> None:
    found = libcni_cache.parse(cached())

    assert found.addresses == (ip_address("10.244.3.7"),)
    assert found.sandboxes == (NETNS,)
    assert found.host_links == (("cni0", "2e:85:7f:06:c5:91"), ("veth0a1b2c3d", "D6:4F:55:B8:9B:8F"))


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ('{"plugins": [{"type": "railnet"}, {"type": "tuning"}]}', ("railnet", "tuning")),
        ('{"type": "railnet"}', ("railnet",)),
        ('{"plugins": []}', ()),
    ],
    ids=["list", "single", "none"],
)
def test_plugins_are_those_of_a_list_or_of_a_single_configuration(text: str, types: tuple[str, ...]) -> None:
    assert libcni_cache.parse(configured(text)).plugins == types


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"plugins": [7]}', "[" * 100_000])
def test_configuration_that_cannot_be_read_is_a_value_error(text: str) -> None:
    entry = libcni_cache.parse(configured(text))

    with pytest.raises(ValueError, match=r"."):
        _ = entry.plugins


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"[" * 100_000, cached("../c0ffee"), an_entry(kind="cniCacheV9"), an_entry(result=7)],
    ids=["empty", "list", "no keys", "deep", "odd id", "another version", "odd result"],
)
def test_file_that_is_no_entry_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match="no entry of libcni's cache"):
        libcni_cache.parse(content)

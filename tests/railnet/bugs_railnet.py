"""Faults of the configuration. Not collected until they are mended: then these belong into the tests beside this file."""

import json

import pytest

from railnet.configuration import Configuration, parse
from railnet.conflist import compose
from vf.errors import Misconfigured


@pytest.mark.parametrize("version", [{}, {"cniVersion": "0.2.0"}, {"cniVersion": "latest"}], ids=repr)
def test_primary_of_a_version_railnet_does_not_speak_is_misconfigured(version: dict[str, str]) -> None:
    primary = {"name": "cbr0", "plugins": [{"type": "flannel"}], **version}

    with pytest.raises(Misconfigured):
        compose(json.dumps(primary).encode(), "/p", Configuration())


def test_primary_whose_capabilities_are_no_object_is_misconfigured() -> None:
    with pytest.raises(Misconfigured):
        compose(b'{"cniVersion": "1.0.0", "plugins": [{"type": "a", "capabilities": ["b"]}]}', "/p", Configuration())


@pytest.mark.parametrize(
    "text",
    [
        "primary: 2026-99-99",
        "primary: !!timestamp x",
        f"networks: {{default: {{mtu: {'9' * 5000}}}}}",
        "timeouts: {add: 80000m}",
        "provision: [{pf: '0000:03:00.0', vfs: 8}, {pf: '0000:03:00.0', vfs: 4}]",
        "primary: /a\nprimary: /b",
        'primary: "/a\\0b"',
    ],
    ids=["no date", "no timestamp", "huge number", "50 days", "a PF twice", "a key twice", "NUL"],
)
def test_odd_value_is_misconfigured(text: str) -> None:
    with pytest.raises(Misconfigured):
        parse(text, "node.yaml")

"""A plugin that stands in Railnet's configuration and in the primary's runs once."""

import json

import pytest

from cni.host.appended_plugins import after_railnet, may_repeat, run_once
from cni.host.chain import Primary
from cni.host.errors import CniError


def primary(*types: str) -> Primary:
    return Primary("n", "0.4.0", [{"type": kind} for kind in types])


def railnets(*types: str) -> bytes:
    return json.dumps({"plugins": [{"type": kind} for kind in ("railnet", *types)]}).encode()


def types(kept: Primary) -> list[str]:
    return [plugin["type"] for plugin in kept.plugins]


def test_plugins_that_the_daemon_knows_of_are_left_out() -> None:
    assert types(run_once(primary("flannel", "portmap", "mesh"), ["mesh"], None)) == ["flannel", "portmap"]


def test_plugin_that_was_appended_just_now_is_left_out() -> None:
    assert types(run_once(primary("flannel", "mesh", "other"), [], railnets("mesh"))) == ["flannel", "other"]


def test_plugin_that_the_daemon_copied_runs_for_a_request_with_the_list_of_before() -> None:
    own = {"type": "railnet", "omit": ["mesh"], "copies": {"mesh": {"type": "mesh"}}}
    raw = json.dumps({"plugins": [own, {"type": "mesh"}, {"type": "other"}]}).encode()

    assert types(run_once(primary("flannel", "mesh", "other"), [], raw)) == ["flannel", "mesh"]


def test_first_plugin_and_reference_plugins_stay() -> None:
    assert types(run_once(primary("flannel", "tuning"), [], railnets("flannel", "tuning"))) == ["flannel", "tuning"]


@pytest.mark.parametrize("raw", [None, b"", b"{", b"[]", b'{"plugins": 5}', b'{"plugins": [{"type": "mesh"}]}'])
def test_configuration_that_is_not_railnets_changes_nothing(raw: bytes | None) -> None:
    assert types(run_once(primary("flannel", "mesh"), [], raw)) == ["flannel", "mesh"]


@pytest.mark.parametrize(
    ("kept", "omit", "looks"),
    [
        (("flannel", "portmap", "bandwidth"), [], False),
        (("flannel", "portmap", "mesh"), [], True),
        (("flannel", "portmap", "mesh"), ["mesh"], False),
        (("mesh",), [], False),
    ],
)
def test_railnets_file_is_read_only_where_a_plugin_may_repeat(
    kept: tuple[str, ...], omit: list[str], looks: bool
) -> None:
    assert may_repeat(primary(*kept), omit) is looks


def test_plugins_beside_railnets_are_those_before_and_after_it() -> None:
    raw = json.dumps({"plugins": [{"type": "a"}, {"type": "railnet"}, 5, {"type": "b"}]}).encode()

    assert after_railnet(raw) == [{"type": "a"}, {"type": "b"}]


def test_file_without_railnet_is_refused() -> None:
    with pytest.raises(CniError, match="has no plugin 'railnet'"):
        after_railnet(b'{"plugins": [{"type": "bridge"}]}')

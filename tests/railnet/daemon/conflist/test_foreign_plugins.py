"""Plugins of other programs beside Railnet's in Railnet's conflist: which stay, which come, which go."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni.host.appended_plugins import REFERENCE_TYPES
from railnet.daemon.conflist.foreign_plugins import Elsewhere, ForeignPlugins, Plugin, decide, elsewhere, parse

FLANNEL, PORTMAP = {"type": "flannel"}, {"type": "portmap"}
ISTIO, LINKERD = {"type": "istio-cni", "name": "istio-cni"}, {"type": "linkerd-cni"}
TUNING = {"type": "tuning", "sysctl": {"net.core.somaxconn": "512"}}


def others(*primary: Plugin, copied: tuple[Plugin, ...] = (), own_list: bool = True) -> Elsewhere:
    return elsewhere([FLANNEL, *primary], own_list, copied)


def appended(*plugins: Plugin, omit: tuple[str, ...] = ()) -> ForeignPlugins:
    return ForeignPlugins(plugins, omit)


def types(foreign: ForeignPlugins) -> list[str]:
    return [plugin["type"] for plugin in foreign.plugins]


def test_appended_plugins_stay_in_their_order() -> None:
    assert decide(appended(LINKERD, TUNING, ISTIO), others(PORTMAP)) == appended(LINKERD, TUNING, ISTIO)


def test_plugin_that_the_primary_has_as_well_is_left_out_of_its_chain() -> None:
    assert decide(appended(LINKERD), others(PORTMAP, LINKERD)).omit == ("linkerd-cni",)


@pytest.mark.parametrize("primary", [PORTMAP, {"type": "mesh"}, {"type": "egress-cni"}])
def test_plugin_of_the_primarys_own_stays_in_its_chain(primary: Plugin) -> None:
    assert decide(appended(), others(primary)) == ForeignPlugins()


def test_plugin_that_an_installer_appended_to_the_primary_is_copied() -> None:
    foreign = decide(appended(), others(PORTMAP, ISTIO))

    assert (types(foreign), foreign.omit, foreign.copies) == (["istio-cni"], ("istio-cni",), {"istio-cni": ISTIO})


def test_plugin_before_one_of_the_primarys_own_is_not_copied() -> None:
    assert decide(appended(), others(ISTIO, PORTMAP)) == ForeignPlugins()


def test_plugin_before_those_of_the_networks_folder_is_not_copied() -> None:
    assert decide(appended(), others(ISTIO, own_list=False)) == ForeignPlugins()


def test_copy_follows_its_original() -> None:
    copied, newer = decide(appended(), others(ISTIO)), {**ISTIO, "plugin_log_level": "debug"}

    assert decide(copied, others(newer)).plugins == (newer,)


def test_copy_goes_with_its_original() -> None:
    assert decide(decide(appended(), others(ISTIO)), others()) == ForeignPlugins()


def test_plugin_that_its_installer_has_written_here_stays_when_the_primary_loses_it() -> None:
    copied, newer = decide(appended(), others(ISTIO)), {**ISTIO, "plugin_log_level": "debug"}
    rewritten = copied._replace(plugins=(newer,))

    assert decide(rewritten, others(ISTIO)).plugins == (newer,)
    assert decide(decide(rewritten, others(ISTIO)), others()) == appended(newer)


def test_plugin_that_its_installer_took_out_here_comes_back_from_nowhere() -> None:
    """Istio's installer cleans the file that it wrote last, and removes its executable."""
    copied = decide(appended(), others(ISTIO))

    taken_out = decide(copied._replace(plugins=()), others(ISTIO))

    assert (taken_out.plugins, taken_out.omit, taken_out.copies) == ((), ("istio-cni",), {})


def test_plugin_that_was_taken_out_of_both_is_a_new_one_when_it_comes_back() -> None:
    taken_out = decide(decide(appended(), others(ISTIO))._replace(plugins=()), others())

    assert types(decide(taken_out, others(ISTIO))) == ["istio-cni"]


def test_plugin_in_a_copy_of_railnets_conflist_is_copied() -> None:
    assert types(decide(appended(), others(copied=({"type": "mesh"},)))) == ["mesh"]


def test_two_reference_plugins_that_differ_both_run() -> None:
    other = {"type": "tuning", "sysctl": {"net.ipv4.tcp_mtu_probing": "1"}}

    assert decide(appended(TUNING), others(other)).omit == ()
    assert decide(appended(TUNING), others(TUNING)).omit == ("tuning",)
    assert decide(appended(omit=("tuning",)), others(TUNING)).omit == ()


def conflist(*plugins: object, **own: object) -> bytes:
    return json.dumps({"name": "n", "plugins": [{"type": "railnet", **own}, *plugins]}).encode()


def test_conflist_is_parsed() -> None:
    content = conflist(ISTIO, TUNING, omit=["istio-cni"], copies={"istio-cni": ISTIO})

    assert parse(content) == ForeignPlugins((ISTIO, TUNING), ("istio-cni",), {"istio-cni": ISTIO})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"plugins": 5}', b'{"plugins": [{"type": "bridge"}]}'])
def test_file_that_is_not_railnets_or_not_whole_is_none(content: bytes) -> None:
    assert parse(content) is None


@pytest.mark.parametrize("plugin", [5, None, {}, {"type": 5}, {"type": ""}, {"type": "../x"}], ids=repr)
def test_plugin_that_no_runtime_runs_is_dropped(plugin: object) -> None:
    assert parse(conflist(plugin, ISTIO)) == appended(ISTIO)


@pytest.mark.parametrize("own", [{"omit": 5}, {"omit": [5]}, {"copies": 5}, {"copies": {"a": 5}}], ids=repr)
def test_odd_notes_of_railnets_own_are_dropped(own: dict[str, Any]) -> None:
    assert parse(conflist(ISTIO, **own)) == appended(ISTIO)


KINDS = st.sampled_from(["portmap", "tuning", "istio-cni", "linkerd-cni", "mesh", "egress"])
PLUGINS = st.lists(st.builds(lambda kind, level: {"type": kind, "level": level}, KINDS, st.integers(0, 1)), max_size=5)
ELSEWHERE = st.builds(elsewhere, PLUGINS, st.booleans(), PLUGINS)
FOREIGN = st.builds(
    lambda plugins, omit, copies: ForeignPlugins(
        tuple(plugins), tuple(omit), {plugin["type"]: plugin for plugin in copies}
    ),
    PLUGINS,
    st.lists(KINDS),
    PLUGINS,
)


@given(FOREIGN, ELSEWHERE)
def test_decision_settles_at_once(present: ForeignPlugins, others: Elsewhere) -> None:
    decided = decide(present, others)

    assert decide(decided, others) == decided
    assert parse(conflist(*decided.plugins, omit=decided.omit, copies=decided.copies)) == decided


@given(FOREIGN, ELSEWHERE)
def test_what_others_appended_stays_in_its_order_each_once(present: ForeignPlugins, others: Elsewhere) -> None:
    decided = decide(present, others)
    of_others = [plugin for plugin in present.plugins if present.copies.get(plugin["type"]) != plugin]

    positions = [decided.plugins.index(plugin) for plugin in of_others]
    first = list(dict.fromkeys(positions))
    assert first == sorted(first)
    assert all(decided.plugins.count(plugin) == 1 for plugin in decided.plugins)


@given(FOREIGN, ELSEWHERE)
def test_plugin_of_an_installer_runs_here_or_in_the_primarys_chain(present: ForeignPlugins, others: Elsewhere) -> None:
    decided = decide(present, others)

    for kind in {plugin["type"] for plugin in others.plugins} - REFERENCE_TYPES:
        assert not (kind in types(decided) and kind not in decided.omit)

"""Railnet's CNI configuration: what stands in it, and whether a runtime would use it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cni.host import netconf
from deviceplugin.pools import Pool
from railnet.configuration import Configuration, HostConfiguration, Timeouts
from railnet.daemon.conflist_content import FOLDER, NAME, compose, copies, find_primary, why_inactive
from vf.errors import Misconfigured

DEFAULT = Configuration()
PATH = f"{FOLDER}/10-flannel.conflist"
FLANNEL = {
    "name": "cbr0",
    "cniVersion": "0.3.1",
    "plugins": [
        {"type": "flannel", "delegate": {"hairpinMode": True, "isDefaultGateway": True}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}


def composed(primary: dict[str, Any] = FLANNEL, configuration: Configuration = DEFAULT) -> dict[str, Any]:
    return json.loads(compose(json.dumps(primary).encode(), PATH, configuration))


class Host:
    """A host's /etc/cni/net.d."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / FOLDER.lstrip("/")
        self.folder.mkdir(parents=True)

    def has(self, *names: str, content: str = '{"type": "bridge"}') -> None:
        for name in names:
            (self.folder / name).write_text(content)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_conflist_names_the_primary_and_puts_railnet_before_it() -> None:
    assert composed() == {
        "cniVersion": "0.3.1",
        "cniVersions": ["1.0.0", "1.1.0"],
        "name": "cbr0",
        "loadOnlyInlinedPlugins": True,
        "plugins": [
            {
                "type": "railnet",
                "primary": PATH,
                "capabilities": {"portMappings": True, "io.kubernetes.cri.pod-annotations": True},
                "resources": ["rdma/ib_vf"],
                "kubelet": "/var/lib/kubelet",
                "seconds": {"daemon": 5.0, "delegate": 30.0},
            }
        ],
    }


def test_conflist_carries_what_the_slow_lane_needs_of_the_configuration() -> None:
    configuration = Configuration(
        host=replace(HostConfiguration(), kubelet=Path("/k")),
        pools=(Pool("b/b"), Pool("a/a")),
        timeouts=Timeouts(daemon=1.5, delegate=9.0),
    )

    (plugin,) = composed(configuration=configuration)["plugins"]

    assert (plugin["resources"], plugin["kubelet"]) == (["a/a", "b/b"], "/k")
    assert plugin["seconds"] == {"daemon": 1.5, "delegate": 9.0}


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_plugin_understands_what_is_composed(version: str) -> None:
    conflist = composed({**FLANNEL, "cniVersion": version})
    sent = {**conflist["plugins"][0], "cniVersion": conflist["cniVersion"], "name": conflist["name"]}

    assert netconf.parse(json.dumps(sent).encode()).primary == PATH


@pytest.mark.parametrize(
    ("primary", "ours"),
    [
        ("0.3.1", "0.3.1"),
        ("0.4.0", "0.4.0"),
        ("1.0.0", "1.0.0"),
        ("1.1.0", "1.0.0"),
        ("1.0.1", "1.0.0"),
        ("2.0.0", "1.0.0"),
    ],
)
def test_version_is_the_primarys_but_at_most_1_0_0(primary: str, ours: str) -> None:
    assert composed({**FLANNEL, "cniVersion": primary})["cniVersion"] == ours


def test_version_for_an_older_libcni_is_the_one_it_would_take_of_the_primary() -> None:
    assert composed({**FLANNEL, "cniVersions": ["1.0.0", "1.1.0"]})["cniVersion"] == "0.3.1"


@pytest.mark.parametrize("disabled", [True, "true", False, None])
def test_gc_that_the_primarys_author_disabled_stays_disabled(disabled: object) -> None:
    assert composed({**FLANNEL, "disableGC": disabled}).get("disableGC", False) is bool(disabled)


def test_capabilities_are_the_union_of_what_is_on() -> None:
    plugins = [
        {"type": "a", "capabilities": {"bandwidth": True, "mac": False}},
        {"type": "b", "capabilities": None},
        {"type": "c"},
        {"type": "d", "capabilities": {"portMappings": True}},
    ]

    (plugin,) = composed({**FLANNEL, "plugins": plugins})["plugins"]

    assert plugin["capabilities"] == {
        "bandwidth": True,
        "portMappings": True,
        "io.kubernetes.cri.pod-annotations": True,
    }


def test_single_plugin_may_be_the_primary() -> None:
    assert composed({"cniVersion": "0.4.0", "name": "n", "type": "bridge"})["name"] == "n"


@pytest.mark.parametrize(
    "primary",
    [b"", b"{", b"[]", b"{}", b'{"plugins": []}', b'{"type": "railnet"}', b'{"plugins": [{"type": "railnet"}]}'],
)
def test_primary_that_is_broken_or_railnet_is_misconfigured(primary: bytes) -> None:
    with pytest.raises(Misconfigured, match=PATH):
        compose(primary, PATH, Configuration())


# Finding the primary.


def test_primary_is_the_first_valid_configuration_that_is_not_ours(host: Host) -> None:
    host.has(NAME, "10-b.conflist", "99-c.conf")
    host.has("00-broken.conf", content="{")
    host.has("01-railnet.conflist", content='{"plugins": [{"type": "railnet"}]}')
    host.has("02-notes.txt", "05-x.conflist.bak")
    (host.folder / "03-folder.conf").mkdir()

    assert find_primary(host.root, Configuration()) == f"{FOLDER}/10-b.conflist"


def test_primary_may_be_any_kind_of_file_libcni_reads(host: Host) -> None:
    host.has("c.conflist", "b.json", "a.conf")

    assert find_primary(host.root, Configuration()) == f"{FOLDER}/a.conf"


def test_primary_that_is_configured_is_not_looked_for(host: Host) -> None:
    host.has("10-b.conflist")

    assert find_primary(host.root, Configuration(primary="/elsewhere/x.conflist")) == "/elsewhere/x.conflist"


@pytest.mark.parametrize("names", [(), (NAME,)], ids=["an empty folder", "ours alone"])
def test_primary_that_is_not_there_is_misconfigured(host: Host, names: tuple[str, ...]) -> None:
    host.has(*names)

    with pytest.raises(Misconfigured, match=r"has no CNI configuration but Railnet's: install flannel"):
        find_primary(host.root, Configuration())


@pytest.mark.parametrize("content", ["", '{"cniVers'], ids=["empty", "half"])
def test_primary_in_use_that_is_broken_is_not_passed_over(host: Host, content: str) -> None:
    host.has(NAME, content=json.dumps(composed()))
    host.has("10-flannel.conflist", content=content)
    host.has("87-podman-bridge.conflist")

    with pytest.raises(Misconfigured, match=r"10-flannel\.conflist is not JSON.*stays as it is"):
        find_primary(host.root, Configuration())


def test_primary_in_use_that_was_moved_away_is_followed_by_the_next(host: Host) -> None:
    host.has(NAME, content=json.dumps(composed()))
    host.has("10-flannel.conflist.cilium_bak", "05-cilium.conflist", "87-podman-bridge.conflist")

    assert find_primary(host.root, Configuration()) == f"{FOLDER}/05-cilium.conflist"


@pytest.mark.parametrize("ours", ["", "[]", '{"plugins": []}', '{"plugins": [5]}'])
def test_primary_is_found_although_our_own_file_is_broken(host: Host, ours: str) -> None:
    host.has(NAME, content=ours)
    host.has("10-b.conflist")

    assert find_primary(host.root, Configuration()) == f"{FOLDER}/10-b.conflist"


def test_primary_is_misconfigured_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured):
        find_primary(tmp_path, Configuration())


# Whether a runtime would use ours.


@pytest.mark.parametrize("others", [(), ("10-flannel.conflist", "00-z.conf")], ids=["alone", "first"])
def test_conflist_is_active_when_it_is_the_first(host: Host, others: tuple[str, ...]) -> None:
    host.has(NAME, *others)

    assert why_inactive(host.root) is None


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ((), "there is none"),
        (("10-flannel.conflist",), "it takes 10-flannel.conflist"),
        ((NAME, "00-multus.conf"), "it takes 00-multus.conf"),
        ((NAME, "00-a.json"), "it takes 00-a.json"),
    ],
    ids=["no file", "not installed", "another before it", "JSON before it"],
)
def test_conflist_is_inactive_when_another_comes_first(host: Host, names: tuple[str, ...], found: str) -> None:
    host.has(*names)

    assert f"does not use {FOLDER}/{NAME} ({found})" in why_inactive(host.root)


def test_who_must_move_is_told_when_another_sorts_before_it_and_only_then(host: Host) -> None:
    host.has("10-flannel.conflist")
    absent = why_inactive(host.root)
    host.has(NAME, "00-multus.conf")

    assert "rename" not in absent
    assert "rename what sorts before it" in why_inactive(host.root)


def test_copies_are_ours_under_whatever_other_tools_have_called_them(host: Host) -> None:
    host.has(NAME, f"{NAME}.cilium_bak", f"{NAME}.bak", "10-flannel.conflist", "10-flannel.conflist.bak")

    assert [path.name for path in copies(host.root)] == [NAME, f"{NAME}.bak", f"{NAME}.cilium_bak"]


@pytest.mark.parametrize("name", ["00-a.conflist.bak", "00-README", "00-a.yaml"])
def test_file_that_no_runtime_reads_does_not_make_it_inactive(host: Host, name: str) -> None:
    host.has(NAME, name)

    assert why_inactive(host.root) is None


def test_conflist_is_inactive_where_there_is_no_folder(tmp_path: Path) -> None:
    assert "there is none" in why_inactive(tmp_path)


@pytest.mark.parametrize("version", [{}, {"cniVersion": "0.2.0"}, {"cniVersion": "latest"}], ids=repr)
def test_primary_of_a_version_railnet_does_not_speak_is_misconfigured(version: dict[str, str]) -> None:
    primary = {"name": "cbr0", "plugins": [{"type": "flannel"}], **version}

    with pytest.raises(Misconfigured):
        compose(json.dumps(primary).encode(), "/p", Configuration())


def test_primary_whose_capabilities_are_no_object_is_misconfigured() -> None:
    with pytest.raises(Misconfigured):
        compose(b'{"cniVersion": "1.0.0", "plugins": [{"type": "a", "capabilities": ["b"]}]}', "/p", Configuration())

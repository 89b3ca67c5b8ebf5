"""Railnet's CNI configuration: what stands in it, and whether a runtime would use it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cni.host import netconf
from deviceplugin.pool_selection import Pool
from railnet.configuration import Configuration, HostConfiguration, Timeouts
from railnet.daemon.conflist.conflist import (
    NAME,
    ConflistFolder,
    compose,
    copies,
    find_primary,
    require_plugins,
    why_inactive,
)
from railnet.errors import Misconfigured
from railnet.kubelet import root_folder

DEFAULT = Configuration()
FOLDER = str(HostConfiguration().cni_conf)
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
                "devicePlugins": "/var/lib/kubelet/device-plugins",
                "seconds": {"daemon": 5.0, "delegate": 30.0},
            }
        ],
    }


def test_conflist_names_itself_where_its_folder_is_not_the_usual_one() -> None:
    configuration = Configuration(host=replace(HostConfiguration(), cni_conf=Path("/var/lib/rancher/net.d")))

    content = compose(json.dumps(FLANNEL).encode(), PATH, configuration)

    assert json.loads(content)["plugins"][0]["conflist"] == f"/var/lib/rancher/net.d/{NAME}"


def test_primary_is_looked_for_in_the_folder_behind_an_absolute_link(host: Host) -> None:
    host.has("10-b.conflist")
    (host.root / "snap").symlink_to("/etc/cni")

    folder = ConflistFolder(host.root, "/snap/net.d")

    assert find_primary(folder, Configuration()) == "/snap/net.d/10-b.conflist"
    assert "does not use /snap/net.d/00-railnet.conflist (it takes 10-b.conflist)" in str(why_inactive(folder))


@pytest.mark.parametrize("folder", ["/elsewhere/net.d", "/host/elsewhere/net.d", "/host/etc/cni/net.d"])
def test_multus_that_names_another_folder_of_the_runtime_is_passed_over(tmp_path: Path, folder: str) -> None:
    files = tmp_path / "elsewhere/net.d"
    files.mkdir(parents=True)
    (files / "05-multus.conf").write_text(multus(clusterNetwork=folder))
    (files / "10-flannel.conflist").write_text(json.dumps(FLANNEL))

    found = find_primary(ConflistFolder(tmp_path, "/elsewhere/net.d"), Configuration())

    assert found == "/elsewhere/net.d/10-flannel.conflist"


def test_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        Misconfigured, match=r"/net\.d has no CNI configuration .*this host has no such folder.*host\.cniConf"
    ):
        find_primary(ConflistFolder(tmp_path, "/net.d"), Configuration())


NOT_THE_RUNTIMES = r"host\.cniBin is /bin, which has no plugin of .* \(flannel, portmap\)"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ((), NOT_THE_RUNTIMES),
        (("bridge", "railnet"), NOT_THE_RUNTIMES),
        (("flannel",), "/bin/railnet is absent.* run `railnet install`"),
        (("portmap", "railnet"), None),
    ],
)
def test_configured_folder_of_plugins_has_railnet_and_a_plugin_of_the_primary(
    host: Host, made: tuple[str, ...], words: str | None
) -> None:
    host.has("10-flannel.conflist", content=json.dumps(FLANNEL))
    settings = replace(HostConfiguration(), root=host.root, cni_bin=Path("/bin"))
    (host.root / "bin").mkdir()
    for name in made:
        (host.root / "bin" / name).symlink_to("/not/here")

    if words is None:
        require_plugins(settings, PATH)
    else:
        with pytest.raises(Misconfigured, match=words):
            require_plugins(settings, PATH)


def test_usual_folder_of_plugins_is_looked_at_beside_another_folder_of_configurations(host: Host) -> None:
    host.has("10-flannel.conflist", content=json.dumps(FLANNEL))
    settings = replace(HostConfiguration(), root=host.root, cni_conf=Path("/etc/kubernetes/cni/net.d"))

    with pytest.raises(Misconfigured, match=r"host\.cniBin is /opt/cni/bin, which has no plugin of"):
        require_plugins(settings, PATH)


def test_usual_folder_of_plugins_is_not_looked_at(host: Host) -> None:
    host.has("10-flannel.conflist")

    require_plugins(replace(HostConfiguration(), root=host.root), PATH)


def test_conflist_carries_the_settings_that_the_executable_needs_without_the_daemon() -> None:
    configuration = Configuration(
        host=replace(HostConfiguration(), device_plugins=Path("/k")),
        pools=(Pool("b/b"), Pool("a/a")),
        timeouts=Timeouts(daemon=1.5, delegate=9.0),
    )

    (plugin,) = composed(configuration=configuration)["plugins"]

    assert (plugin["resources"], plugin["devicePlugins"]) == (["a/a", "b/b"], "/k")
    assert plugin["seconds"] == {"daemon": 1.5, "delegate": 9.0}


def test_conflist_names_kubelets_root_folder_where_it_is_not_the_default() -> None:
    text = json.dumps(FLANNEL).encode()
    (plugin,) = json.loads(compose(text, PATH, DEFAULT, kubelet="/var/lib/k0s/kubelet"))["plugins"]

    assert (plugin["kubelet"], netconf.DEFAULT_KUBELET) == ("/var/lib/k0s/kubelet", root_folder.DEFAULT)


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_plugin_parses_the_composed_conflist(version: str) -> None:
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


def test_older_libcni_reads_the_primarys_version() -> None:
    assert composed({**FLANNEL, "cniVersions": ["1.0.0", "1.1.0"]})["cniVersion"] == "0.3.1"


@pytest.mark.parametrize("disabled", [True, "true", False, None])
def test_gc_disabled_by_the_primary_stays_disabled(disabled: object) -> None:
    assert composed({**FLANNEL, "disableGC": disabled}).get("disableGC", False) is bool(disabled)


def test_capabilities_are_the_union_of_the_enabled_ones() -> None:
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
def test_broken_primary_and_railnet_as_primary_are_misconfigured(primary: bytes) -> None:
    with pytest.raises(Misconfigured, match=PATH):
        compose(primary, PATH, Configuration())


# Finding the primary.


def test_primary_is_the_first_valid_configuration_other_than_railnets(host: Host) -> None:
    host.has(NAME, "10-b.conflist", "99-c.conf")
    host.has("00-broken.conf", content="{")
    host.has("01-railnet.conflist", content='{"plugins": [{"type": "railnet"}]}')
    host.has("02-notes.txt", "05-x.conflist.bak")
    (host.folder / "03-folder.conf").mkdir()

    assert find_primary(ConflistFolder(host.root), Configuration()) == f"{FOLDER}/10-b.conflist"


def test_primary_may_have_any_file_name_that_libcni_reads(host: Host) -> None:
    host.has("c.conflist", "b.json", "a.conf")

    assert find_primary(ConflistFolder(host.root), Configuration()) == f"{FOLDER}/a.conf"


def test_configured_primary_is_not_searched_for(host: Host) -> None:
    host.has("10-b.conflist")

    assert (
        find_primary(ConflistFolder(host.root), Configuration(primary="/elsewhere/x.conflist"))
        == "/elsewhere/x.conflist"
    )


@pytest.mark.parametrize("names", [(), (NAME,)], ids=["an empty folder", "ours alone"])
def test_missing_primary_is_misconfigured(host: Host, names: tuple[str, ...]) -> None:
    host.has(*names)

    with pytest.raises(Misconfigured, match=r"has no CNI configuration but Railnet's: install flannel"):
        find_primary(ConflistFolder(host.root), Configuration())


@pytest.mark.parametrize("content", ["", '{"cniVers'], ids=["empty", "half"])
def test_broken_primary_in_use_is_not_skipped(host: Host, content: str) -> None:
    host.has(NAME, content=json.dumps(composed()))
    host.has("10-flannel.conflist", content=content)
    host.has("87-podman-bridge.conflist")

    with pytest.raises(Misconfigured, match=r"10-flannel\.conflist is not JSON.*stays as it is"):
        find_primary(ConflistFolder(host.root), Configuration())


def test_next_configuration_follows_a_primary_that_was_moved_away(host: Host) -> None:
    host.has(NAME, content=json.dumps(composed()))
    host.has("10-flannel.conflist.cilium_bak", "05-cilium.conflist", "87-podman-bridge.conflist")

    assert find_primary(ConflistFolder(host.root), Configuration()) == f"{FOLDER}/05-cilium.conflist"


@pytest.mark.parametrize("ours", ["", "[]", '{"plugins": []}', '{"plugins": [5]}'])
def test_primary_is_found_although_railnets_own_file_is_broken(host: Host, ours: str) -> None:
    host.has(NAME, content=ours)
    host.has("10-b.conflist")

    assert find_primary(ConflistFolder(host.root), Configuration()) == f"{FOLDER}/10-b.conflist"


def test_missing_cni_folder_is_misconfigured(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured):
        find_primary(ConflistFolder(tmp_path), Configuration())


# Whether a runtime would use ours.


@pytest.mark.parametrize("others", [(), ("10-flannel.conflist", "00-z.conf")], ids=["alone", "first"])
def test_conflist_is_active_when_it_sorts_first(host: Host, others: tuple[str, ...]) -> None:
    host.has(NAME, *others)

    assert why_inactive(ConflistFolder(host.root)) is None


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
def test_conflist_is_inactive_when_another_file_sorts_first(host: Host, names: tuple[str, ...], found: str) -> None:
    host.has(*names)

    assert f"does not use {FOLDER}/{NAME} ({found})" in why_inactive(ConflistFolder(host.root))


def test_remedy_names_the_file_that_sorts_before_the_conflist(host: Host) -> None:
    host.has("10-flannel.conflist")
    absent = why_inactive(ConflistFolder(host.root))
    host.has(NAME, "00-multus.conf")

    assert "rename" not in absent
    assert "rename what sorts before it" in why_inactive(ConflistFolder(host.root))


def test_copies_that_other_tools_renamed_are_found(host: Host) -> None:
    host.has(NAME, f"{NAME}.cilium_bak", f"{NAME}.bak", "10-flannel.conflist", "10-flannel.conflist.bak")

    assert [path.name for path in copies(ConflistFolder(host.root))] == [NAME, f"{NAME}.bak", f"{NAME}.cilium_bak"]


@pytest.mark.parametrize("name", ["00-a.conflist.bak", "00-README", "00-a.yaml"])
def test_file_that_no_runtime_reads_does_not_make_the_conflist_inactive(host: Host, name: str) -> None:
    host.has(NAME, name)

    assert why_inactive(ConflistFolder(host.root)) is None


def test_conflist_is_inactive_without_the_cni_folder(tmp_path: Path) -> None:
    assert "there is none" in why_inactive(ConflistFolder(tmp_path))


@pytest.mark.parametrize("version", [{}, {"cniVersion": "0.2.0"}, {"cniVersion": "latest"}], ids=repr)
def test_primary_with_an_unsupported_version_is_misconfigured(version: dict[str, str]) -> None:
    primary = {"name": "cbr0", "plugins": [{"type": "flannel"}], **version}

    with pytest.raises(Misconfigured):
        compose(json.dumps(primary).encode(), "/p", Configuration())


def test_primary_with_malformed_capabilities_is_misconfigured() -> None:
    with pytest.raises(Misconfigured):
        compose(b'{"cniVersion": "1.0.0", "plugins": [{"type": "a", "capabilities": ["b"]}]}', "/p", Configuration())


# Multus as the primary.


def multus(**settings: object) -> str:
    return json.dumps({"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus", **settings})


CIRCLES = {
    "file": {"clusterNetwork": f"/host{FOLDER}/{NAME}"},
    "folder": {"clusterNetwork": f"/host{FOLDER}"},
    "name": {"clusterNetwork": "multus-cni-network", "confDir": f"/host{FOLDER}"},
    "delegate": {"delegates": [{"type": "railnet"}]},
}


@pytest.mark.parametrize("settings", CIRCLES.values(), ids=list(CIRCLES))
def test_multus_that_leads_back_to_railnet_is_passed_over(host: Host, settings: dict[str, object]) -> None:
    host.has("05-multus.conf", content=multus(**settings))
    host.has("10-flannel.conflist", content=json.dumps(FLANNEL))

    assert find_primary(ConflistFolder(host.root), Configuration()) == PATH


@pytest.mark.parametrize("settings", CIRCLES.values(), ids=list(CIRCLES))
def test_multus_that_leads_back_to_railnet_alone_is_named(host: Host, settings: dict[str, object]) -> None:
    host.has("05-multus.conf", content=multus(**settings))

    with pytest.raises(Misconfigured, match=r"05-multus\.conf is Multus and .*set Multus' clusterNetwork"):
        find_primary(ConflistFolder(host.root), Configuration())


LONGER_CIRCLES = {
    "another Multus": {"03-b.conf": multus(clusterNetwork=f"/host{FOLDER}/{NAME}")},
    "two others": {
        "03-b.conf": multus(clusterNetwork="c", confDir=FOLDER),
        "04-c.conflist": json.dumps(
            {"name": "c", "plugins": [{"type": "multus", "defaultNetworks": [f"{FOLDER}/{NAME}"]}]}
        ),
    },
    "a copy of Railnet's conflist": {
        "03-b.conf": json.dumps({"name": "copy", "plugins": [{"type": "railnet"}, {"type": "istio-cni"}]})
    },
}


@pytest.mark.parametrize("files", LONGER_CIRCLES.values(), ids=list(LONGER_CIRCLES))
def test_multus_that_leads_back_by_other_files_is_passed_over_and_named(host: Host, files: dict[str, str]) -> None:
    host.has("01-multus.conf", content=multus(clusterNetwork=f"/host{FOLDER}/03-b.conf"))
    for name, content in files.items():
        host.has(name, content=content)

    with pytest.raises(Misconfigured, match=r"01-multus\.conf is Multus and .*which is 03-b\.conf.*set Multus'"):
        find_primary(ConflistFolder(host.root), Configuration())

    host.has("10-flannel.conflist", content=json.dumps(FLANNEL))
    assert find_primary(ConflistFolder(host.root), Configuration()) == PATH


def test_circle_of_two_multus_without_railnet_ends(host: Host) -> None:
    host.has("01-multus.conf", content=multus(clusterNetwork=f"{FOLDER}/03-b.conf"))
    host.has("03-b.conf", content=multus(clusterNetwork=f"{FOLDER}/01-multus.conf"))

    assert find_primary(ConflistFolder(host.root), Configuration()) == f"{FOLDER}/01-multus.conf"


@pytest.mark.parametrize(
    "settings",
    [
        {"clusterNetwork": "cbr0", "confDir": FOLDER},
        {"clusterNetwork": "multus-cni-network"},
        {"clusterNetwork": "multus-cni-network", "confDir": "/etc/cni/multus/net.d"},
        {"clusterNetwork": f"{FOLDER}/10-flannel.conflist"},
        {"clusterNetwork": "/etc/cni/multus/net.d"},
    ],
    ids=repr,
)
def test_multus_before_another_network_may_be_the_primary(host: Host, settings: dict[str, object]) -> None:
    host.has("05-multus.conf", content=multus(**settings))
    host.has("10-flannel.conflist", content=json.dumps(FLANNEL))

    assert find_primary(ConflistFolder(host.root), Configuration()) == f"{FOLDER}/05-multus.conf"

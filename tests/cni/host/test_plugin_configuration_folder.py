"""The folder of a network's further plugins: its files are a part of the primary's chain, as libcni 1.3 loads them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cni import primary_configuration
from cni.host import chain, plugin_configuration_folder
from cni.host.errors import CniError

LIST: dict[str, Any] = {"cniVersion": "0.4.0", "name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}


class Network:
    """A primary's file and the folder beside it."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "10-flannel.conflist"
        self.folder = root / "cbr0"
        self.folder.mkdir()
        self.has_list()

    def has_list(self, **changes: Any) -> None:
        conf = {key: value for key, value in {**LIST, **changes}.items() if value is not None}
        self.path.write_text(json.dumps(conf))

    def has(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content)

    def types(self) -> list[str]:
        """Return what the executable loads; the daemon must load the same."""
        on_host = [plugin["type"] for plugin in chain.load(str(self.path)).plugins]
        of_daemon = primary_configuration.load(self.root, f"/{self.path.name}").plugins
        assert on_host == [plugin["type"] for plugin in of_daemon]
        return on_host


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return Network(tmp_path)


def test_plugins_of_the_folder_follow_those_of_the_list_in_the_order_of_their_names(network: Network) -> None:
    network.has("20-b.conf", '{"type": "tuning"}')
    network.has("10-a.conf", '{"type": "bandwidth"}')
    network.has(os.fsdecode(b"15-\xff.conf"), '{"type": "sbr"}')

    assert network.types() == ["flannel", "portmap", "bandwidth", "sbr", "tuning"]


def test_other_files_and_folders_do_not_count(network: Network) -> None:
    for name in ("a.conflist", "b.json", "c.conf.bak", "README"):
        network.has(name, "{")
    (network.folder / "folder.conf").mkdir()

    assert network.types() == ["flannel", "portmap"]


@pytest.mark.parametrize("value", [True, "true", "TRUE"])
def test_list_of_inlined_plugins_alone_has_no_folder(network: Network, value: object) -> None:
    network.has("10-a.conf", '{"type": "tuning"}')
    network.has_list(loadOnlyInlinedPlugins=value)

    assert network.types() == ["flannel", "portmap"]


def test_list_may_have_all_its_plugins_in_the_folder(network: Network) -> None:
    network.has("10-a.conf", '{"type": "bridge"}')
    network.has_list(plugins=None)

    assert network.types() == ["bridge"]


def test_single_plugin_has_no_folder(network: Network) -> None:
    network.has("10-a.conf", '{"type": "tuning"}')
    network.path.write_text('{"cniVersion": "0.4.0", "name": "cbr0", "type": "bridge"}')

    assert network.types() == ["bridge"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/../cbr0", "/cbr0", "a\0b"])
def test_name_that_libcni_refuses_leads_to_no_folder(name: str) -> None:
    assert plugin_configuration_folder.of({**LIST, "name": name}, "/etc/cni/net.d/10-flannel.conflist") is None


def test_file_in_the_place_of_the_folder_is_none(network: Network) -> None:
    network.folder.rmdir()
    network.folder.write_text("")

    assert network.types() == ["flannel", "portmap"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"type": "../x"}', '{"type": "railnet"}'])
def test_broken_file_is_named(network: Network, content: str) -> None:
    network.has("10-a.conf", content)

    for load in (
        lambda: chain.load(str(network.path)),
        lambda: primary_configuration.load(network.root, f"/{network.path.name}"),
    ):
        with pytest.raises(CniError, match=r"cbr0/10-a\.conf"):
            load()


def test_file_that_cannot_be_read_is_named(network: Network) -> None:
    (network.folder / "10-a.conf").symlink_to("nothing")

    with pytest.raises(CniError, match=r"10-flannel\.conflist, whose plugin configuration .*10-a\.conf cannot be read"):
        chain.load(str(network.path))

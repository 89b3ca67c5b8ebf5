"""The primary configuration: read from the host, and kept in a record."""

import asyncio
import json
from pathlib import Path

import pytest

from cni import primary_configuration
from cni.host import netconf
from cni.host.chain import Primary, parse
from cni.host.errors import CniError
from cni.host.netconf import ANNOTATIONS
from tests.cni.fake_executable import CONF, PRIMARY


def test_primary_is_recorded_with_the_runtime_config_that_its_plugins_take() -> None:
    plugins = (
        b'[{"type": "bridge", "odd": [1]}, {"type": "portmap", "capabilities": {"portMappings": true, "mac": false}}]'
    )
    primary = parse(b'{"cniVersion": "0.4.0", "name": "n", "plugins": ' + plugins + b"}", "/p")

    recorded = primary_configuration.as_recorded(primary, {"portMappings": [], "mac": "", ANNOTATIONS: {"long": "x"}})

    assert recorded["runtimeConfig"] == {"portMappings": []}
    conf = recorded["conf"]
    again = Primary(conf["name"], conf["cniVersion"], conf["plugins"])
    assert (again.name, again.version, again.plugins) == (primary.name, primary.version, primary.plugins)


def test_plugins_that_were_appended_in_another_folder_run_once(tmp_path: Path) -> None:
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d/10-n.conflist").write_text(
        '{"name": "n", "cniVersion": "0.4.0", "plugins": [{"type": "bridge"}, {"type": "mesh"}]}'
    )
    (tmp_path / "net.d/00-railnet.conflist").write_text('{"plugins": [{"type": "railnet"}, {"type": "mesh"}]}')
    stdin = CONF.replace(PRIMARY.encode(), b"/net.d/10-n.conflist")
    ours = json.dumps({**json.loads(stdin), "conflist": "/net.d/00-railnet.conflist"}).encode()

    primary = asyncio.run(primary_configuration.read(netconf.parse(ours), tmp_path, "ADD"))
    of_the_usual_folder = asyncio.run(primary_configuration.read(netconf.parse(stdin), tmp_path, "ADD"))

    assert [plugin["type"] for plugin in primary.plugins] == ["bridge"]
    assert [plugin["type"] for plugin in of_the_usual_folder.plugins] == ["bridge", "mesh"]


def test_links_on_the_host_are_followed_below_the_hosts_root(tmp_path: Path) -> None:
    (tmp_path / "etc/cni/net.d").mkdir(parents=True)
    (tmp_path / "elsewhere").write_text('{"name": "n", "cniVersion": "0.4.0", "type": "bridge"}')
    (tmp_path / PRIMARY.lstrip("/")).symlink_to("/elsewhere")

    assert asyncio.run(primary_configuration.read(netconf.parse(CONF), tmp_path)).name == "n"


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (CONF, "the primary configuration /etc/cni/net.d/10-flannel.conflist cannot be read: No such file"),
        (CONF.replace(b"10-flannel", b"\\u0000"), "cannot be read: the path contains a NUL"),
        (CONF.replace(b"/10-flannel.conflist", b""), "cannot be read: Is a directory"),
    ],
    ids=["missing", "NUL", "folder"],
)
def test_primary_that_cannot_be_read_is_refused_with_its_path(tmp_path: Path, stdin: bytes, words: str) -> None:
    (tmp_path / "etc/cni/net.d").mkdir(parents=True)

    with pytest.raises(CniError, match=words) as raised:
        asyncio.run(primary_configuration.read(netconf.parse(stdin), tmp_path))

    assert raised.value.code == 7

"""One request as the daemon sees it."""

import os
from pathlib import Path

import pytest

from cni.host.chain import Primary, parse
from cni.host.errors import CniError
from cni.request import parse as parse_request
from cni.request import primary_as_recorded
from tests.cni.executable import CONF, ENVIRON, PRIMARY
from vf.record import Pod


def test_request_names_the_pod_as_the_runtime_did() -> None:
    assert parse_request(ENVIRON, CONF, None).pod == Pod("ml", "train-0", "uid-1")


def test_request_names_no_pod_where_the_runtime_did_not() -> None:
    assert parse_request({**ENVIRON, b"CNI_ARGS": b""}, CONF, None).pod == Pod("", "", "")


def test_request_names_the_namespace_by_path_device_and_inode() -> None:
    reading, writing = os.pipe()
    facts = os.fstat(reading)

    netns = parse_request(ENVIRON, CONF, reading).netns

    os.close(reading)
    os.close(writing)
    assert netns == ("/run/netns/cni-1", facts.st_dev, facts.st_ino)


def test_request_has_no_namespace_when_it_is_gone() -> None:
    assert parse_request(ENVIRON, CONF, None).netns is None


@pytest.mark.parametrize(
    ("environ", "stdin", "code"),
    [
        ({}, CONF, 4),
        (ENVIRON, b"{", 6),
        (ENVIRON, b'{"cniVersion": "9.0.0"}', 1),
        (ENVIRON, b'{"cniVersion": "1.0.0"}', 7),
    ],
    ids=["environment", "JSON", "version", "key"],
)
def test_request_that_is_odd_is_refused_with_its_code(environ: dict[bytes, bytes], stdin: bytes, code: int) -> None:
    with pytest.raises(CniError) as raised:
        parse_request(environ, stdin, None)

    assert raised.value.code == code


def test_primary_is_recorded_with_what_it_was_run_with() -> None:
    primary = parse(b'{"cniVersion": "0.4.0", "name": "n", "plugins": [{"type": "bridge", "odd": [1]}]}', "/p")

    recorded = primary_as_recorded(primary, {"portMappings": []})

    assert recorded["runtimeConfig"] == {"portMappings": []}
    conf = recorded["conf"]
    again = Primary(conf["name"], conf["cniVersion"], conf["plugins"])
    assert (again.name, again.version, again.plugins) == (primary.name, primary.version, primary.plugins)


def test_primary_is_read_on_the_host_whose_links_lead_to_where_they_lead_there(tmp_path: Path) -> None:
    (tmp_path / "etc/cni/net.d").mkdir(parents=True)
    (tmp_path / "elsewhere").write_text('{"name": "n", "cniVersion": "0.4.0", "type": "bridge"}')
    (tmp_path / PRIMARY.lstrip("/")).symlink_to("/elsewhere")

    assert parse_request(ENVIRON, CONF, None).primary(tmp_path).name == "n"


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (CONF, "the primary configuration /etc/cni/net.d/10-flannel.conflist cannot be read: No such file"),
        (CONF.replace(b"10-flannel", b"\\u0000"), "cannot be read: there is a NUL in it"),
        (CONF.replace(b"/10-flannel.conflist", b""), "cannot be read: Is a directory"),
    ],
    ids=["missing", "NUL", "folder"],
)
def test_primary_that_cannot_be_read_is_told_with_its_path(tmp_path: Path, stdin: bytes, words: str) -> None:
    (tmp_path / "etc/cni/net.d").mkdir(parents=True)

    with pytest.raises(CniError, match=words) as raised:
        parse_request(ENVIRON, stdin, None).primary(tmp_path)

    assert raised.value.code == 7

"""The primary configuration: read from the host, refused when it is broken."""

import json
from pathlib import Path

import pytest

from cni.host import chain
from cni.host.errors import CONFIGURATION, CniError


def test_parse_reads_a_list() -> None:
    primary = chain.parse(b'{"cniVersion": "0.4.0", "name": "n", "plugins": [{"type": "a"}, {"type": "b"}]}', "/p")

    assert (primary.name, primary.version, primary.plugins) == ("n", "0.4.0", [{"type": "a"}, {"type": "b"}])


def test_parse_takes_a_single_plugin_for_a_list_of_one() -> None:
    conf = {"cniVersion": "0.3.1", "name": "n", "type": "bridge", "mtu": 9000}

    primary = chain.parse(json.dumps(conf).encode(), "/p")

    assert (primary.name, primary.version, primary.plugins) == ("n", "0.3.1", [conf])


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "the primary configuration /p is not JSON"),
        (b"{", "is not JSON"),
        (b"[]", "is a JSON list, not an object"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"{}", "has the type None"),
        (b'{"plugins": []}', "a list of at least one plugin"),
        (b'{"plugins": {}}', "a list of at least one plugin"),
        (b'{"plugins": null}', "a list of at least one plugin"),
        (b'{"plugins": ["bridge"]}', "a list of at least one plugin"),
        (b'{"plugins": [{}]}', "has the type None"),
        (b'{"plugins": [{"type": ""}]}', "has the type ''"),
        (b'{"plugins": [{"type": 7}]}', "has the type 7"),
        (b'{"plugins": [{"type": "../sh"}]}', "has the type '../sh'"),
        (b'{"plugins": [{"type": "/bin/sh"}]}', "has the type '/bin/sh'"),
        (b'{"plugins": [{"type": ".."}]}', "has the type '..'"),
        (b'{"plugins": [{"type": "railnet"}]}', "/p names Railnet itself"),
        (b'{"plugins": [{"type": "bridge"}, {"type": "railnet"}]}', "/p names Railnet itself"),
        (b'{"type": "railnet"}', "/p names Railnet itself"),
        (b'{"type": "bridge", "cniVersions": "1.0.0"}', "'cniVersions' in /p should be a list of versions"),
        (b'{"type": "bridge", "cniVersions": [1.0]}', "'cniVersions' in /p should be a list of versions"),
    ],
    ids=lambda value: repr(value[:52]) if isinstance(value, bytes) else "refused",
)
def test_parse_refuses_a_broken_configuration(raw: bytes, words: str) -> None:
    with pytest.raises(CniError, match=words.replace("[", r"\[")) as raised:
        chain.parse(raw, "/p")

    assert raised.value.code == CONFIGURATION


def test_load_reads_the_file(tmp_path: Path) -> None:
    (tmp_path / "p.conf").write_bytes(b'{"type": "bridge"}')

    assert chain.load(f"{tmp_path}/p.conf").plugins == [{"type": "bridge"}]


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing", "No such file"), ("", "Is a directory"), ("file/below", "Not a directory")],
)
def test_load_names_the_file_and_why_it_cannot_be_read(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        CniError, match=rf"the primary configuration {tmp_path}/{name} cannot be read: {words}"
    ) as raised:
        chain.load(f"{tmp_path}/{name}")

    assert raised.value.code == CONFIGURATION


@pytest.mark.parametrize(
    ("declared", "version"),
    [("0.3.1", "0.3.1"), ("1.0.0", "1.0.0"), ("1.1.0", "1.0.0"), ("2.0.0", "1.0.0"), ("latest", "latest")],
)
def test_parse_takes_the_version_but_1_0_0_at_most(declared: str, version: str) -> None:
    assert chain.parse(json.dumps({"type": "bridge", "cniVersion": declared}).encode(), "/p").version == version


@pytest.mark.parametrize(
    ("declared", "listed", "asked", "version"),
    [
        ("0.3.1", [], "1.1.0", "0.3.1"),
        ("0.3.1", ["1.0.0", "1.1.0"], "1.1.0", "1.1.0"),
        ("0.3.1", ["1.0.0", "1.1.0"], "0.3.1", "0.3.1"),
        ("1.0.0", ["0.4.0"], "1.1.0", "1.0.0"),
        (None, ["0.4.0", "2.0.0"], "1.1.0", "0.4.0"),
        ("1.1.0", [], "1.1.0", "1.1.0"),
        ("1.1.0", [], "1.0.0", "1.0.0"),
    ],
)
def test_parse_takes_the_version_that_libcni_would_take_without_railnet(declared, listed, asked, version) -> None:
    conf = {"type": "bridge", "cniVersions": listed} | ({} if declared is None else {"cniVersion": declared})

    assert chain.parse(json.dumps(conf).encode(), "/p", asked).version == version

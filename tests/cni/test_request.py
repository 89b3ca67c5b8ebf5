"""One request as the daemon has it."""

import os

import pytest

from cni.host.errors import CniError
from cni.request import parse as parse_request
from railnet.vf.record import SandboxPod
from tests.cni.fake_executable import CONF, ENVIRON


def test_request_names_the_pod_as_the_runtime_did() -> None:
    assert parse_request(ENVIRON, CONF, None).pod == SandboxPod("ml", "train-0", "uid-1")


def test_request_names_no_pod_where_the_runtime_did_not() -> None:
    assert parse_request({**ENVIRON, b"CNI_ARGS": b""}, CONF, None).pod == SandboxPod("", "", "")


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


@pytest.mark.parametrize("command", [b"ADD", b"CHECK"])
def test_nodes_own_namespace_is_refused(command: bytes) -> None:
    """The executable refuses it, too; a daemon that trusted it would move a VF's netdev and address nowhere."""
    netns = os.open("/proc/self/ns/net", os.O_RDONLY)

    with pytest.raises(CniError, match="is the node's own network namespace; it should be the sandbox's") as raised:
        parse_request({**ENVIRON, b"CNI_COMMAND": command}, CONF, netns)

    os.close(netns)
    assert raised.value.code == 4


def test_del_with_the_nodes_own_namespace_is_served() -> None:
    netns = os.open("/proc/self/ns/net", os.O_RDONLY)

    request = parse_request({**ENVIRON, b"CNI_COMMAND": b"DEL"}, CONF, netns)

    os.close(netns)
    assert request.environment.command == "DEL"

"""The executable itself: bad input, its imports, its lock, and its frames against a real daemon."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cni.host import frames
from simnode.kubernetes.runtime import Sandbox
from simnode.node import Node
from simnode.waiting import wait_until
from tests.node.primaries import OURS, PLUGINS, RUN, primary_of, write_stub

EXECUTABLE = PLUGINS / "railnet"


@pytest.fixture
def sandbox(node: Node) -> Iterator[Sandbox]:
    box = node.runtime.create_sandbox("default", "plain", "uid-plain")
    yield box
    node.runtime.remove_sandbox(box)


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ({"CNI_COMMAND": None}, 4, "CNI_COMMAND"),
        ({"CNI_COMMAND": "FORMAT"}, 4, "'FORMAT'"),
        ({"CNI_CONTAINERID": None}, 4, "CNI_CONTAINERID"),
        ({"CNI_CONTAINERID": "a/b"}, 4, "a/b"),
        ({"CNI_CONTAINERID": ".."}, 4, ".."),
        ({"CNI_CONTAINERID": "a\nb"}, 4, "a\\nb"),
        ({"CNI_CONTAINERID": "a" * 129}, 4, "128"),
        ({"CNI_IFNAME": None}, 4, "CNI_IFNAME"),
        ({"CNI_IFNAME": "../../x"}, 4, "../../x"),
        ({"CNI_IFNAME": ".."}, 4, ".."),
        ({"CNI_IFNAME": "e\nth"}, 4, "e\\nth"),
        ({"CNI_IFNAME": "a" * 16}, 4, "15 bytes"),
        ({"CNI_NETNS": None}, 4, "CNI_NETNS"),
        ({"CNI_NETNS": "/nowhere"}, 4, "/nowhere"),
        ({"CNI_NETNS": "/etc/hostname"}, 4, "is not a network namespace"),
        ({"CNI_NETNS": "/proc/self/ns/mnt"}, 4, "is not a network namespace"),
        ({"CNI_NETNS": "/proc/self/ns/net"}, 4, "node's own"),
        ({"CNI_PATH": None}, 4, "CNI_PATH"),
    ],
    ids=lambda value: None if isinstance(value, int) else str(value)[:40],
)
def test_odd_environment_is_code_4_and_named(
    node: Node, sandbox: Sandbox, daemon: str, change: dict[str, str | None], code: int, says: str
) -> None:
    environ = {name: value for name, value in {**environment(node, sandbox), **change}.items() if value is not None}

    answer = run(environ, configuration())

    assert (answer["code"], says in answer["msg"]) == (code, True), answer


@pytest.mark.parametrize(
    ("stdin", "code"),
    [
        (b"", 6),
        (b"{", 6),
        (b"[]", 6),
        (b"\xff\xfe", 6),
        (b'{"a":' * 100_000, 6),
        (b" " * 2_000_000, 6),
        (b'{"cniVersion":"0.2.0","primary":"/x"}', 1),
        (b'{"cniVersion":"2.0.0","primary":"/x"}', 1),
        (b'{"cniVersion":["1.0.0"],"primary":"/x"}', 1),
        (b'{"cniVersion":"1.0.0"}', 7),
        (b'{"cniVersion":"1.0.0","primary":5}', 7),
        (b'{"cniVersion":"1.0.0","primary":"/x","resources":"rdma/ib_vf"}', 7),
    ],
    ids=[
        "empty",
        "broken",
        "list",
        "no-text",
        "deep",
        "huge",
        "old",
        "new",
        "odd-version",
        "no-primary",
        "odd-primary",
        "odd-resources",
    ],
)
def test_odd_configuration_has_its_code(node: Node, sandbox: Sandbox, daemon: str, stdin: bytes, code: int) -> None:
    answer = run(environment(node, sandbox), stdin)

    assert answer["code"] == code, answer


def test_version_is_answered_in_every_state_of_the_daemon(node: Node, daemon: str) -> None:
    answer = run({"CNI_COMMAND": "VERSION"}, b'{"cniVersion":"0.4.0"}', status=0)

    assert answer == {"cniVersion": "0.4.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]}


def test_request_to_the_daemon_imports_only_built_in_modules(node: Node, sandbox: Sandbox) -> None:
    write_stub("stub", 'cat >/dev/null; [ $CNI_COMMAND = DEL ] || printf \'{"cniVersion":"0.3.1"}\'')
    primary_of({"type": "stub"}, version="0.3.1")
    text = EXECUTABLE.read_text().splitlines()
    interpreter = [*text[0].removeprefix("#!").split(), "-X", "importtime"]
    bare = imported([*interpreter, "-c", "pass"], environment(node, sandbox))

    loaded = imported([*interpreter, str(EXECUTABLE)], environment(node, sandbox)) - bare
    node.runtime.delete(sandbox)

    foreign = {name for name in loaded if name not in sys.builtin_module_names and name.split(".")[0] != "cni"}
    assert "cni.host.plugin" in loaded
    assert foreign == set()


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"RN\x02\x01\x00\x00\x00\x00", "version 2"),
        (b"RN\x01\x01\x00\x50\x00\x00", "larger than a frame"),
        (b"XX\x01\x01\x00\x00\x00\x00", "does not begin a frame"),
        (b"RN\x01\x01\x00\x00\x00\x04\x00\x00\x00\x09", "truncated"),
        (frames.frame(frames.GO), "in place of REQUEST"),
    ],
    ids=["other-version", "too-large", "no-frame", "truncated", "wrong-type"],
)
def test_daemon_answers_a_bad_frame_with_code_11(node: Node, sent: bytes, says: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(30)
        client.connect(str(RUN / "cni.sock"))
        client.sendall(sent)
        kind, length = frames.parse_header(client.recv(frames.HEADER_BYTES, socket.MSG_WAITALL))
        payload = client.recv(length, socket.MSG_WAITALL)

    answer = json.loads(frames.parse_blobs(payload[1:], 1)[0])
    assert (kind, payload[0], answer["code"]) == (frames.DONE, 1, 11)
    assert says in answer["msg"]


def test_daemon_does_nothing_without_go(node: Node, sandbox: Sandbox) -> None:
    write_stub("stub", "echo >/run/stub-ran")
    primary_of({"type": "stub"})
    environ = {name.encode(): value.encode() for name, value in environment(node, sandbox).items()}
    request = frames.frame(frames.REQUEST, frames.blobs(frames.environ_blob(environ), configuration()))

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(RUN / "cni.sock"))
        client.sendall(request)
        kind, _ = frames.parse_header(client.recv(frames.HEADER_BYTES, socket.MSG_WAITALL))
    time.sleep(0.2)

    assert kind == frames.HELLO
    assert not Path("/run/stub-ran").exists()


def test_idle_daemon_holds_no_namespace(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    node.remove_pod(pod)
    pid = node.daemon.process.pid

    wait_until(
        lambda: not [target for target in opened(pid) if target.startswith("net:")],
        60,
        "the end of its last namespace descriptor",
    )


def test_socket_and_folder_are_roots_alone(node: Node) -> None:
    modes = [oct((path).stat().st_mode & 0o777) for path in (RUN, RUN / "cni.sock")]

    assert modes == ["0o700", "0o600"]


def test_unknown_configuration_key_stops_the_daemon_with_its_path(node: Node, tmp_path: Path) -> None:
    conf = tmp_path / "node.yaml"
    conf.write_text("timeouts: {ad: 5s}\n")

    done = subprocess.run(
        [sys.executable, "-m", "railnet", "node", "--config", conf], capture_output=True, timeout=60, check=False
    )

    assert done.returncode == 3
    assert b"timeouts.ad is an unknown key" in done.stderr


def opened(pid: int) -> list[str]:
    """Return the targets of a process's descriptors, without those that it closes meanwhile."""
    targets = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            targets.append(str(path.readlink()))
    return targets


def environment(node: Node, box: Sandbox) -> dict[str, str]:
    return node.runtime.environment("ADD", box)


def configuration() -> bytes:
    conflist = json.loads(OURS.read_text())
    return json.dumps(
        {**conflist["plugins"][0], "name": conflist["name"], "cniVersion": conflist["cniVersion"]}
    ).encode()


def run(environ: Mapping[str, str], stdin: bytes, status: int = 1) -> dict[str, Any]:
    """Execute the plugin, assert its status and an empty stderr, and return its JSON."""
    done = subprocess.run([EXECUTABLE], env=dict(environ), input=stdin, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (status, b"")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def imported(argv: list[str], environ: Mapping[str, str]) -> set[str]:
    done = subprocess.run(argv, env=dict(environ), input=configuration(), capture_output=True, timeout=60, check=True)
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}

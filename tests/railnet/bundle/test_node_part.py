"""What of a node is in a bundle: a dead daemon or a file that cannot be read costs its part alone, and a secret is in no part."""

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cni.host import frames
from railnet import __main__ as command
from railnet.bundle import archive, node_part
from railnet.bundle.node_part import NodeFiles, gather
from railnet.doctor.facts import Daemon, Facts
from railnet.vf.inventory import Inventory
from railnet.vf.record import encode
from tests.railnet.bundle.planted_secret import PLANTED
from tests.railnet.vf.builders import a_record, an_attachment

TOLD = {"version": "0.5.1", "reasons": [], "rails": [], "vfs": [], "sandboxes": []}


class OnNode:
    """A node's files below a folder, with the secret in each file that may have one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places = NodeFiles(root / "node.yaml", root / "cni.sock", root / "journal")
        for folder in ("etc/cni/net.d", "device-plugins", "journal", "var/lib/railnet"):
            (root / folder).mkdir(parents=True)
        host = {"root": str(root), "devicePlugins": str(root / "device-plugins")}
        ipam = {"type": "whereabouts", "etcd": {"password": PLANTED}}
        networks = {"leased": {"ipam": ipam}}
        self.places.configuration.write_text(json.dumps({"host": host, "networks": networks}))
        (root / "etc/os-release").write_text('NAME=x\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n')
        (root / "etc/cni/net.d/10-calico.conflist").write_text(
            json.dumps({"name": "k8s", "plugins": [{"type": "calico", "k8s_auth_token": PLANTED}]})
        )
        entry = {
            "PodUID": "u",
            "ContainerName": "c",
            "ResourceName": "rdma/ib_vf",
            "DeviceIDs": {"-1": ["0000:03:00.1"]},
            "AllocResp": PLANTED,
        }
        checkpoint = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1}
        (root / "device-plugins/kubelet_internal_checkpoint").write_text(json.dumps(checkpoint))
        record = a_record(an_attachment(), primary={"name": "cbr0", "token": PLANTED})
        (root / f"journal/{record.key}.json").write_bytes(encode(record))
        self.record = record

    def gathered(self, facts: Facts | None = None) -> node_part.BundleParts:
        return gather(self.places, lambda _: facts or Facts(Inventory(), Daemon(None, "it does not answer")))

    @contextmanager
    def daemon(self, answer: Callable[[socket.socket], None]) -> Iterator[None]:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self.places.socket))
            listening.listen()
            thread = threading.Thread(target=lambda: answer(listening.accept()[0]))
            thread.start()
            yield
            thread.join(60)


@pytest.fixture
def node(tmp_path: Path) -> OnNode:
    return OnNode(tmp_path)


def says(connection: socket.socket) -> None:
    with connection:
        frames.receive(connection.recv)
        connection.sendall(frames.frame(frames.ANSWER, json.dumps(TOLD).encode()))


def test_all_parts_of_a_node_are_there_without_the_secret(node: OnNode) -> None:
    with node.daemon(says):
        parts = node.gathered()

    assert parts.left_out == []
    assert parts.texts.keys() == {
        "versions.json",
        "doctor.json",
        "status.json",
        "node.yaml.json",
        "kubelet/devices.json",
        "rails.json",
        "conflists/10-calico.conflist",
        f"journal/{node.record.key}.json",
    }
    assert PLANTED not in json.dumps(parts.as_json())
    assert json.loads(parts.texts["status.json"]) == TOLD
    assert json.loads(parts.texts["versions.json"])["os"] == "Debian GNU/Linux 13 (trixie)"
    assert json.loads(parts.texts["kubelet/devices.json"])[0]["devices"] == ["0000:03:00.1"]
    assert "absent" in json.loads(parts.texts["rails.json"])
    assert json.loads(parts.texts["doctor.json"])["findings"][0]["name"] == "daemon-silent"


def test_node_yaml_that_is_broken_tells_nobody_its_secret(node: OnNode) -> None:
    node.places.configuration.write_text(f"networks:\n  leased:\n    ipam: {{password: {PLANTED}: x\n")

    parts = gather(node.places)

    assert "line 3, column" in dict(parts.left_out)["node.yaml.json"]
    assert PLANTED not in json.dumps(parts.as_json())
    assert PLANTED not in str(parts.left_out)


def gone(connection: socket.socket) -> None:
    connection.close()


def nonsense(connection: socket.socket) -> None:
    with connection:
        frames.receive(connection.recv)
        connection.sendall(frames.frame(frames.ANSWER, b"no JSON"))


@pytest.mark.parametrize("answer", [None, gone, nonsense], ids=["no daemon", "it ends", "it says something else"])
def test_daemon_that_does_not_answer_costs_its_part_alone(
    node: OnNode, answer: Callable[[socket.socket], None] | None
) -> None:
    if answer is None:
        parts = node.gathered()
    else:
        with node.daemon(answer):
            parts = node.gathered()

    assert [entry.what for entry in parts.left_out] == ["status.json"]
    assert len(parts.texts) == 7


@pytest.mark.parametrize(
    ("path", "content", "missing"),
    [
        ("journal/x@eth0.json", b"{", "journal/x@eth0.json"),
        ("etc/cni/net.d/05-x.conf", b"[" * 100_000, "conflists/05-x.conf"),
        ("etc/cni/net.d/05-x.conf", b"\xff", "conflists/05-x.conf"),
        ("etc/cni/net.d/05-x.conf", bytes(2 << 20), "conflists/05-x.conf"),
        ("device-plugins/kubelet_internal_checkpoint", b"{}", "kubelet/devices.json"),
        ("var/lib/railnet/rails.json", b"{}", "rails.json"),
    ],
)
def test_file_that_cannot_be_understood_costs_its_part_alone(
    node: OnNode, path: str, content: bytes, missing: str
) -> None:
    (node.root / path).write_bytes(content)

    parts = node.gathered()

    assert sorted(entry.what for entry in parts.left_out) == sorted([missing, "status.json"])


def test_wrong_configuration_costs_its_part_alone(node: OnNode) -> None:
    node.places.configuration.write_text("host: [")

    parts = node.gathered()

    assert {"node.yaml.json", "the configured paths"} <= {entry.what for entry in parts.left_out}
    assert "doctor.json" in parts.texts


def test_look_that_fails_costs_its_part_alone(node: OnNode) -> None:
    def refuse(_: object) -> Facts:
        raise FileNotFoundError(2, "No such file or directory", "/sys/bus")

    parts = gather(node.places, refuse)

    assert json.loads(parts.texts["doctor.json"]) == {"absent": "/sys/bus"}
    assert "versions.json" in parts.texts


def test_very_many_records_are_bounded_and_said(node: OnNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_part, "_MOST_RECORDS", 2)
    for number in range(4):
        (node.root / f"journal/a{number}@eth0.json").write_bytes(encode(node.record))

    parts = node.gathered()

    assert [entry.why for entry in parts.left_out if entry.what == "journal"] == ["3 files beside the first 2"]


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr("sys.argv", ["railnet", "bundle", *arguments])
    with pytest.raises(SystemExit) as end:
        command.main()
    return end.value.code


def test_command_writes_the_archive_of_its_node_and_says_what_is_left_out(
    node: OnNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(node_part, "gather", lambda _: node.gathered())
    file = node.root / "bundle.tar.gz"

    assert ended(monkeypatch, str(file)) == 6
    said = capsys.readouterr()
    assert said.out.startswith(f"{file} has 7 files, ")
    assert "left out: nodes/" in said.err
    assert {name.split("/")[0] for name in archive.read(file).files} == {"nodes"}


def test_part_is_printed_as_another_machine_takes_it(
    node: OnNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(node_part, "gather", lambda _: node.gathered())

    assert ended(monkeypatch, "--print") == 0
    taken = node_part.BundleParts(1 << 20)
    taken.take(json.load(io.StringIO(capsys.readouterr().out)), "nodes/a")
    assert "nodes/a/versions.json" in taken.texts


def test_only_root_makes_a_bundle_of_its_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert ended(monkeypatch) == 4
    assert "railnet bundle needs root" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--node", "a", "--all"], ["--timeout", "0"], ["--timeout", "nan"], ["a", "b"], ["--print", "-l", "x"]],
)
def test_wrong_command_line_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    assert ended(monkeypatch, *arguments) == 2

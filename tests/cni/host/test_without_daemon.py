"""The slow lane: has this pod a rail, and what a request gets that the daemon lost."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from cni.host import daemon, frames, netconf, plugin, without_daemon
from cni.host.daemon import ExecutedDelegate
from cni.host.errors import TRY_AGAIN, CniError
from cni.host.lock import Lock
from cni.host.netconf import NetConf
from tests.cni.host.shell_plugins import a_plugin, an_environment
from tests.railnet.kubelet.dra_state import a_claim, a_state

RAIL = "rdma/ib_vf"
FREE = Lock("")


def a_conf(kubelet: Path) -> NetConf:
    return netconf.parse(
        json.dumps(
            {
                "cniVersion": "1.0.0",
                "primary": "/p",
                "devicePlugins": f"{kubelet}/device-plugins",
                "kubelet": str(kubelet),
            }
        ).encode()
    )


def checkpoint(kubelet: Path, content: bytes) -> None:
    (kubelet / "device-plugins").mkdir()
    (kubelet / "device-plugins/kubelet_internal_checkpoint").write_bytes(content)


def entries(pod_uid: str, resource: str) -> bytes:
    entry = {"PodUID": pod_uid, "ResourceName": resource, "DeviceIDs": {"0": ["0000:03:00.1"]}}
    return json.dumps({"Data": {"PodDeviceEntries": [entry]}}).encode()


@pytest.mark.parametrize(
    ("pod_uid", "resource", "expected"),
    [("uid-1", RAIL, True), ("uid-2", RAIL, False), ("uid-1", "nvidia.com/gpu", False)],
    ids=["its own", "another pod's", "another resource"],
)
def test_pod_has_a_rail_when_the_checkpoint_lists_one(tmp_path, pod_uid: str, resource: str, expected: bool) -> None:
    checkpoint(tmp_path, entries(pod_uid, resource))

    assert without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path)) is expected


def test_pod_has_no_rail_when_kubelet_never_gave_any_device(tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()

    assert without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path)) is False


def test_sandbox_that_is_no_pod_has_no_rail(tmp_path: Path) -> None:
    assert without_daemon.has_rails(an_environment(tmp_path, CNI_ARGS=""), a_conf(tmp_path / "missing")) is False


def test_folder_that_every_kubelet_has_is_read_if_the_configured_one_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(without_daemon, "DEFAULT_DEVICE_PLUGINS", f"{tmp_path}/device-plugins")
    checkpoint(tmp_path, entries("uid-1", RAIL))

    assert without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path / "elsewhere"))


def test_pod_has_no_rail_where_no_kubelet_has_a_folder_of_device_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(without_daemon, "DEFAULT_DEVICE_PLUGINS", f"{tmp_path}/none")

    assert not without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path / "elsewhere"))


def test_pod_must_try_again_when_kubelets_checkpoint_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "device-plugins/kubelet_internal_checkpoint").mkdir(parents=True)

    with pytest.raises(CniError, match=rf"checkpoint in {tmp_path}/device-plugins cannot be read") as raised:
        without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path))

    assert raised.value.code == TRY_AGAIN


UNKNOWN = b'{"apiVersion": "v2", "pods": [{"uid": "%s", "claims": ["%s=0000:03:00.1"]}]}'


@pytest.mark.parametrize(
    ("content", "args"),
    [
        (b"{}", "K8S_POD_NAME=plain;K8S_POD_UID=uid-1"),
        (UNKNOWN % (b"uid-2", b"rdma/ib_vf"), "K8S_POD_NAME=plain;K8S_POD_UID=uid-1"),
        (UNKNOWN % (b"uid-1", b"nvidia.com/gpu"), "K8S_POD_NAME=plain;K8S_POD_UID=uid-1"),
        (UNKNOWN % (b"uid-1", b"nvidia.com/gpu"), "K8S_POD_NAME=plain"),
        (entries("uid-2", "nvidia.com/gpu"), "K8S_POD_NAME=plain"),
    ],
    ids=["nothing", "another pod's", "another resource", "no rail on the node", "no rail on the node, known format"],
)
def test_pod_has_no_rail_when_a_checkpoint_of_any_format_does_not_name_it(tmp_path: Path, content: bytes, args) -> None:
    checkpoint(tmp_path, content)

    assert without_daemon.has_rails(an_environment(tmp_path, CNI_ARGS=args), a_conf(tmp_path)) is False


@pytest.mark.parametrize(
    "content",
    [b"", b'{"Data": {"PodDevi', b"[" * 100_000, UNKNOWN % (b"uid-1", rb"rdma\/ib_vf")],
    ids=["empty", "cut short", "deep", "names the pod and the resource"],
)
def test_pod_must_try_again_when_the_checkpoint_is_not_understood(tmp_path: Path, content: bytes) -> None:
    checkpoint(tmp_path, content)

    with pytest.raises(CniError, match="cannot be read") as raised:
        without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path))

    assert raised.value.code == TRY_AGAIN


def test_pod_must_try_again_when_the_runtime_did_not_say_its_uid(tmp_path: Path) -> None:
    checkpoint(tmp_path, entries("uid-1", RAIL))

    with pytest.raises(CniError, match="did not pass K8S_POD_UID") as raised:
        without_daemon.has_rails(an_environment(tmp_path, CNI_ARGS="K8S_POD_NAME=train-0"), a_conf(tmp_path))

    assert raised.value.code == TRY_AGAIN


# Claims of DRA.


@pytest.fixture(autouse=True)
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the record of a prepared claim is, if a test has one."""
    record = tmp_path / "recorded/a1b2.json"
    record.parent.mkdir()
    monkeypatch.setattr(without_daemon, "_RECORDED_CLAIMS", str(record.parent))
    return record


def claims(kubelet: Path, content: bytes) -> None:
    (kubelet / "device-plugins").mkdir()
    (kubelet / "recorded/a1b2.json").touch()
    (kubelet / "dra_manager_state").write_bytes(content)


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (a_claim(), True),
        (a_claim(devices=()), True),
        (a_claim(pods=("uid-2",)), False),
        (a_claim(DriverState={"gpu.example.com": {"Devices": []}}), False),
    ],
    ids=["its own", "its own, not prepared", "another pod's", "another driver"],
)
def test_pod_has_a_rail_when_a_claim_of_it_has_one(tmp_path: Path, claim: object, expected: bool) -> None:
    claims(tmp_path, a_state(claim))

    assert without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path)) is expected


@pytest.mark.parametrize(
    "content",
    [b'{"claims": ["uid-2 rdma.railnet.io"]}', b'{"claims": ["uid-1 gpu.example.com"]}', a_state()],
    ids=["another pod", "another driver", "no claim"],
)
def test_plain_pod_starts_when_claims_of_any_format_do_not_name_it(tmp_path: Path, content: bytes) -> None:
    claims(tmp_path, content)

    assert without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path)) is False


@pytest.mark.parametrize(
    ("content", "args", "words"),
    [
        (b"", "K8S_POD_NAME=train;K8S_POD_UID=uid-2", "not JSON"),
        (a_state(a_claim()).replace(b"train-vf", b"train-vg"), "K8S_POD_NAME=train;K8S_POD_UID=uid-1", "checksum"),
        (b'{"claims": ["uid-1 rdma.railnet.io"]}', "K8S_POD_NAME=train;K8S_POD_UID=uid-1", "not a text"),
        (a_state(a_claim()), "K8S_POD_NAME=train", "did not pass K8S_POD_UID"),
    ],
    ids=["empty", "another checksum", "another format", "no UID"],
)
def test_pod_must_try_again_when_it_is_unknown_whether_it_has_a_claim(
    tmp_path, content: bytes, args: str, words: str
) -> None:
    claims(tmp_path, content)

    with pytest.raises(CniError, match=words) as raised:
        without_daemon.has_rails(an_environment(tmp_path, CNI_ARGS=args), a_conf(tmp_path))

    assert raised.value.code == TRY_AGAIN


def test_pod_must_try_again_when_its_claims_cannot_be_read(tmp_path: Path, recorded: Path) -> None:
    recorded.touch()
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "dra_manager_state").mkdir()

    with pytest.raises(CniError, match=rf"dra_manager_state in {tmp_path} cannot be read"):
        without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path))


def test_pod_must_try_again_when_kubelets_folder_has_no_file_of_the_claims_that_are_recorded(tmp_path: Path) -> None:
    claims(tmp_path, b"")
    (tmp_path / "dra_manager_state").unlink()

    with pytest.raises(CniError, match=f"{tmp_path} has no dra_manager_state") as raised:
        without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path))

    assert raised.value.code == TRY_AGAIN


@pytest.mark.parametrize("folder", ["empty", "absent"])
@pytest.mark.parametrize(
    "content", [b"", a_state(a_claim())[:-40], bytes((16 << 20) + 1)], ids=["empty", "cut", "huge"]
)
def test_plain_pod_starts_beside_any_file_of_claims_where_no_claim_is_recorded(
    tmp_path: Path, recorded: Path, content: bytes, folder: str
) -> None:
    claims(tmp_path, content)
    recorded.unlink()
    if folder == "absent":
        recorded.parent.rmdir()

    assert without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path)) is False


def test_huge_file_of_claims_is_not_read_to_its_end(tmp_path: Path) -> None:
    claims(tmp_path, bytes((16 << 20) + 1))

    with pytest.raises(CniError, match="it is larger than 16777216 bytes"):
        without_daemon.has_rails(an_environment(tmp_path), a_conf(tmp_path))


# A request that the daemon began and lost.


class Host:
    """A host with one plugin, which notes what it was run for, and no daemon."""

    def __init__(self, folder: Path, script: str = "echo '{}'") -> None:
        self.folder = folder
        a_plugin(folder, "bridge", f'echo "$CNI_COMMAND" >> {folder}/log; {script}')
        (folder / "primary").write_text('{"cniVersion": "1.0.0", "name": "n", "type": "bridge"}')
        checkpoint(folder, entries("uid-1", RAIL))

    def conf(self, resource: str) -> bytes:
        paths = {
            "primary": f"{self.folder}/primary",
            "devicePlugins": f"{self.folder}/device-plugins",
            "kubelet": str(self.folder),
        }
        seconds = {"daemon": 0.1, "delegate": 20}
        return json.dumps({"cniVersion": "1.0.0", "resources": [resource], "seconds": seconds, **paths}).encode()

    def serve_on(
        self, command: str, resource: str = "a/other", executed: Sequence[ExecutedDelegate | None] = (None,)
    ) -> tuple[int, bytes]:
        return without_daemon.serve_on(
            an_environment(self.folder, command), self.conf(resource), -1, FREE, time.monotonic(), list(executed)
        )

    def done(self, command: str, status: int = 0, stdout: bytes = b"", plugin: bytes = b"bridge") -> ExecutedDelegate:
        """Return a delegate that was run for the daemon as the chain begins."""
        environ = frames.environ_blob(an_environment(self.folder, command).raw)
        stdin = b'{"cniVersion": "1.0.0", "name": "n", "type": "bridge"}'
        return ExecutedDelegate(frames.blobs(plugin, environ, stdin), status, stdout, b"")

    def ran(self) -> list[str]:
        return (self.folder / "log").read_text().split()


def test_add_of_a_plain_pod_that_was_lost_is_undone_and_served(tmp_path: Path) -> None:
    host = Host(tmp_path)

    assert host.serve_on("ADD") == (0, b"{}\n")
    assert host.ran() == ["DEL", "ADD"]


def test_del_that_was_lost_is_served_once(tmp_path: Path) -> None:
    host = Host(tmp_path)

    assert host.serve_on("DEL") == (0, b"")
    assert host.ran() == ["DEL"]


def test_plain_pod_gets_the_result_of_what_was_executed_and_nothing_runs_again(tmp_path: Path) -> None:
    host = Host(tmp_path)

    assert host.serve_on("ADD", executed=[host.done("ADD", stdout=b'{"ips": []}')]) == (0, b'{"ips": []}')
    assert host.serve_on("DEL", executed=[host.done("DEL")]) == (0, b"")
    assert not (tmp_path / "log").exists()


def test_plain_pod_gets_the_error_of_a_first_plugin_that_refused_and_nothing_is_undone(tmp_path: Path) -> None:
    host = Host(tmp_path)
    error = b'{"code": 7, "msg": "no"}'

    assert host.serve_on("ADD", executed=[host.done("ADD", 256, error)]) == (1, error)
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("other", ["other plugin", "more than the chain"])
def test_add_of_which_another_chain_was_executed_is_undone_and_served(tmp_path: Path, other: str) -> None:
    host = Host(tmp_path)
    done = host.done("ADD", stdout=b'{"ips": []}', plugin=b"flannel" if other == "other plugin" else b"bridge")

    assert host.serve_on("ADD", executed=[done, done]) == (0, b"{}\n")
    assert host.ran() == ["DEL", "ADD"]


def test_add_that_was_lost_is_served_also_when_its_undo_fails(tmp_path: Path) -> None:
    host = Host(tmp_path, 'test "$CNI_COMMAND" = ADD && echo "{}"')

    assert host.serve_on("ADD") == (0, b"{}\n")
    assert host.ran() == ["DEL", "ADD"]


def test_add_of_a_pod_with_a_rail_that_was_lost_is_undone_and_to_be_tried_again(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(daemon, "SOCKET", f"{tmp_path}/cni.sock")
    host = Host(tmp_path)

    status, stdout = host.serve_on("ADD", RAIL)

    assert (status, json.loads(stdout)["code"], host.ran()) == (1, TRY_AGAIN, ["DEL"])


@pytest.mark.parametrize("stdin", [b"{", b'{"cniVersion": "1.0.0", "primary": "/nonexistent"}'], ids=["odd", "missing"])
def test_add_that_was_lost_and_cannot_be_undone_tells_why(tmp_path: Path, stdin: bytes) -> None:
    status, stdout = without_daemon.serve_on(
        an_environment(tmp_path, CNI_ARGS=""), stdin, -1, FREE, time.monotonic(), [None]
    )

    assert status == 1
    assert json.loads(stdout)["code"] in (6, 7)


@pytest.mark.parametrize(
    ("failure", "ran"),
    [
        (daemon.NoDaemon("absent"), ["ADD"]),
        (daemon.RequestLost("went away"), ["ADD"]),
        (daemon.RequestLost("went away", [None]), ["DEL", "ADD"]),
    ],
)
def test_plain_pod_is_served_without_the_daemon_however_it_went(tmp_path, monkeypatch, failure, ran: list[str]) -> None:
    def ask(*_: object) -> tuple[int, bytes]:
        raise failure

    monkeypatch.setattr(daemon, "ask", ask)
    host = Host(tmp_path)

    assert plugin._serve(an_environment(tmp_path), host.conf("a/other"), -1, FREE) == (0, b"{}\n")
    assert host.ran() == ran


def test_check_of_a_plain_pod_is_the_chains(tmp_path: Path) -> None:
    host = Host(tmp_path, "exit 0")

    assert without_daemon.serve(
        an_environment(tmp_path, "CHECK"), host.conf("a/other"), -1, FREE, time.monotonic()
    ) == (0, b"")
    assert host.ran() == ["CHECK"]


def test_check_of_a_pod_with_a_rail_waits_for_the_daemon_and_is_to_be_tried_again(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(daemon, "SOCKET", f"{tmp_path}/cni.sock")
    host = Host(tmp_path)

    status, stdout = without_daemon.serve(
        an_environment(tmp_path, "CHECK"), host.conf(RAIL), -1, FREE, time.monotonic()
    )

    assert (status, json.loads(stdout)["code"], (tmp_path / "log").exists()) == (1, TRY_AGAIN, False)

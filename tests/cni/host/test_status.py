"""STATUS: what of the primary is looked at, and that nothing else is."""

import json
import time
from pathlib import Path

import pytest

from cni.host import daemon, plugin, status, without_daemon
from cni.host.errors import NOT_AVAILABLE, CniError
from cni.host.lock import Lock
from tests.cni.host.shell_plugins import a_plugin, an_environment

LEASE = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\n"


class Host:
    """A host's primary configuration, plugins and flannel's lease."""

    def __init__(self, folder: Path) -> None:
        self.kubelet = folder / "kubelet"
        (self.kubelet / "device-plugins").mkdir(parents=True)
        self.folder = folder
        self.lease = folder / "subnet.env"
        self.lease.write_text(LEASE)
        self.has_primary("0.3.1", {"type": "flannel", "subnetFile": str(self.lease)}, {"type": "portmap"})

    def has_primary(self, version: str, *plugins: dict[str, str]) -> None:
        conf = {"cniVersion": version, "name": "cbr0", "plugins": plugins}
        (self.folder / "primary").write_text(json.dumps(conf))

    def status(self) -> tuple[int, dict[str, object]]:
        conf = {
            "cniVersion": "1.1.0",
            "primary": str(self.folder / "primary"),
            "devicePlugins": f"{self.kubelet}/device-plugins",
        }
        code, stdout = without_daemon.serve(
            an_environment(self.folder, "STATUS"), json.dumps(conf).encode(), -1, Lock(""), time.monotonic()
        )
        return code, json.loads(stdout or b"{}")

    def ran(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().split() if log.exists() else []


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_flannel_with_a_lease_is_available_and_no_plugin_of_an_old_version_is_run(host: Host) -> None:
    a_plugin(host.folder, "flannel", f"echo ran >> {host.folder}/log; exit 1")

    assert (host.status(), host.ran()) == ((0, {}), [])


@pytest.mark.parametrize(
    "lease", [None, "", "FLANNEL_NETWORK=10.244.0.0/16\n", "FLANNEL_SUBNET=\n", "# FLANNEL_SUBNET=1"]
)
def test_flannel_without_a_lease_is_code_50(host: Host, lease: str | None) -> None:
    host.lease.unlink() if lease is None else host.lease.write_text(lease)

    code, error = host.status()

    assert (code, error["code"], error["cniVersion"]) == (1, 50, "1.1.0")
    assert str(error["msg"]).startswith("flannel has no lease for this node: ")
    assert str(host.lease) in str(error["msg"])


def test_flannel_with_a_lease_of_ipv6_alone_is_available(host: Host) -> None:
    host.lease.write_text("FLANNEL_IPV6_SUBNET=fd00:10:244:3::1/64\n")

    assert host.status() == (0, {})


def test_lease_is_where_flannels_plugin_looks_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "primary").write_text('{"cniVersion": "0.3.1", "name": "n", "type": "flannel"}')
    monkeypatch.setattr(status, "SUBNET_FILE", str(tmp_path / "elsewhere.env"))
    with pytest.raises(CniError, match=r"elsewhere\.env cannot be read"):
        status.available(str(tmp_path / "primary"), "1.1.0")

    (tmp_path / "elsewhere.env").write_text(LEASE)

    assert status.available(str(tmp_path / "primary"), "1.1.0").plugins == [
        {"cniVersion": "0.3.1", "name": "n", "type": "flannel"}
    ]


@pytest.mark.parametrize("content", [None, "", "{", '{"plugins": []}'], ids=repr)
def test_primary_that_is_missing_or_broken_is_code_50(host: Host, content: str | None) -> None:
    primary = host.folder / "primary"
    primary.unlink() if content is None else primary.write_text(content)

    code, error = host.status()

    assert (code, error["code"], str(primary) in str(error["msg"])) == (1, NOT_AVAILABLE, True)


def test_primary_without_flannel_needs_no_lease(host: Host) -> None:
    host.lease.unlink()
    host.has_primary("1.0.0", {"type": "bridge"})

    assert host.status() == (0, {})


def test_primary_that_speaks_1_1_0_is_asked_and_its_own_error_is_the_answer(host: Host) -> None:
    host.has_primary("1.1.0", {"type": "first"}, {"type": "second"}, {"type": "third"})
    own = {"cniVersion": "1.1.0", "code": 51, "msg": "its uplink is gone"}
    a_plugin(host.folder, "first", f"echo $CNI_COMMAND >> {host.folder}/log")
    a_plugin(host.folder, "second", f"cat >> {host.folder}/log; echo '{json.dumps(own)}'; exit 1")

    assert host.status() == (1, own)
    asked, conf = host.ran()[0], json.loads(" ".join(host.ran()[1:]))
    assert (asked, conf) == ("STATUS", {"type": "second", "name": "cbr0", "cniVersion": "1.1.0"})


def test_executable_answers_by_itself_and_never_asks_the_daemon(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object) -> tuple[int, bytes]:
        raise AssertionError("STATUS asked the daemon")

    listed = {
        "cniVersion": "1.1.0",
        "primary": str(host.folder / "primary"),
        "devicePlugins": f"{host.kubelet}/device-plugins",
    }
    conf = json.dumps(listed).encode()
    monkeypatch.setattr(daemon, "ask", ask)
    monkeypatch.setattr(plugin, "_read_stdin", lambda: conf)
    raw = {b"CNI_COMMAND": b"STATUS", b"CNI_PATH": str(host.folder).encode()}

    assert plugin.answer(raw) == (0, b"")

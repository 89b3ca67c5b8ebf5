"""When flannel's delegate is executed in place of flannel: a host's files below a folder, and no process."""

import json
import os
from pathlib import Path

import pytest

from cni.flannel_shortcut import Delegated, FlannelDelegates, FlannelState, StateComparison, compared, delegate_of
from cni.host.chain import Exec

STATE = b'{"name":"cbr0","type":"bridge","mtu":1450}'
CONF = {"name": "cbr0", "cniVersion": "0.3.1", "type": "flannel", "delegate": {"isDefaultGateway": True}}
ELF = b"\x7fELF, and then a program"


class Host:
    """A host's root with flannel's files, and what the daemon knows of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("/opt/cni/bin/flannel", ELF)
        (root / "opt/cni/bin/flannel").chmod(0o755)
        self.write("/run/flannel/subnet.env", b"FLANNEL_SUBNET=10.244.1.1/24\n")
        self.delegates = FlannelDelegates(root)

    def write(self, path: str, content: bytes) -> None:
        """Write a file as a new one, as a rename does."""
        here = self.root / path.lstrip("/")
        here.parent.mkdir(parents=True, exist_ok=True)
        here.unlink(missing_ok=True)
        here.write_bytes(content)

    def environ(self, container_id: str) -> dict[bytes, bytes]:
        return {b"CNI_CONTAINERID": container_id.encode(), b"CNI_PATH": b"/nowhere:/opt/cni/bin"}

    def add(
        self, container_id: str, state: bytes = STATE, folder: str = "/var/lib/cni/flannel", **conf: object
    ) -> Delegated | None:
        """Run an ADD: flannel leaves `state`, unless its delegate is executed in its place, which is returned."""
        step = Exec("flannel", "ADD", json.dumps({**CONF, **conf}).encode())
        run = self.delegates.run(step, self.environ(container_id))
        if run is None:
            return None
        if run.delegated is None:
            self.write(f"{folder}/{container_id}", state)
            run.succeeded(self.delegates.run(step, self.environ(container_id)))
        return run.delegated

    def delete(self, container_id: str) -> Delegated | None:
        run = self.delegates.run(Exec("flannel", "DEL", json.dumps(CONF).encode()), self.environ(container_id))
        return None if run is None else run.delegated


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def two_pods(host: Host, **conf: object) -> None:
    """Run two pods by flannel itself."""
    assert [host.add(name, **conf) for name in ("c1", "c2")] == [None, None]  # type: ignore[arg-type]


def test_third_pod_gets_the_state_that_flannel_left_for_two(host: Host) -> None:
    two_pods(host)

    assert host.add("c3") == Delegated("bridge", "/var/lib/cni/flannel/c3", STATE)


def test_state_lies_in_flannels_data_dir(host: Host) -> None:
    two_pods(host, dataDir="/srv/states", folder="/srv/states")

    assert host.add("c3", dataDir="/srv/states") == Delegated("bridge", "/srv/states/c3", STATE)


def test_one_container_twice_is_not_two_pods(host: Host) -> None:
    assert [host.add(name) for name in ("c1", "c1", "c1")] == [None] * 3


@pytest.mark.parametrize("path", ["/run/flannel/subnet.env", "/opt/cni/bin/flannel"])
def test_flannel_is_asked_again_when_a_file_of_its_own_was_replaced(host: Host, path: str) -> None:
    two_pods(host)

    host.write(path, (host.root / path.lstrip("/")).read_bytes())
    (host.root / "opt/cni/bin/flannel").chmod(0o755)

    two_pods(host)
    assert host.add("c3") is not None


def test_flannel_is_asked_again_when_subnet_env_was_written_in_place(host: Host) -> None:
    two_pods(host)
    path = host.root / "run/flannel/subnet.env"

    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(1, 1))  # even with the same time of modification

    assert host.add("c3") is None


def test_each_configuration_is_asked_about(host: Host) -> None:
    two_pods(host)

    assert host.add("c3", runtimeConfig={"portMappings": []}) is None


def test_flannel_whose_states_differ_serves_every_pod(host: Host) -> None:
    states = [b'{"type":"bridge","name":"c1"}', *[b'{"type":"bridge","name":"c2"}'] * 4]

    assert [host.add(f"c{number}", state) for number, state in enumerate(states)] == [None] * 5


@pytest.mark.parametrize("state", [b"", b"{}", b'{"type":"../bridge"}', b'{"type":"flannel"}', b'{"type":7}', b"[]"])
def test_state_without_a_plugin_that_can_be_right_is_never_used(host: Host, state: bytes) -> None:
    assert [host.add(name, state) for name in ("c1", "c2", "c3")] == [None] * 3
    assert host.delete("c1") is None


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0"])
def test_flannel_prints_results_that_may_have_new_fields(host: Host, version: str) -> None:
    assert [host.add(name, cniVersion=version) for name in ("c1", "c2", "c3")] == [None] * 3


def test_flannel_that_is_a_script_serves_every_pod(host: Host) -> None:
    host.write("/opt/cni/bin/flannel", b"#!/bin/sh\necho a pod >>/log; exec /opt/cni/bin/.flannel")
    (host.root / "opt/cni/bin/flannel").chmod(0o755)

    assert [host.add(name) for name in ("c1", "c2", "c3")] == [None] * 3
    host.write("/var/lib/cni/flannel/c1", STATE)
    assert host.delete("c1") is None


def test_flannel_is_the_first_one_in_cni_path_that_can_be_executed(host: Host) -> None:
    host.write("/nowhere/flannel", b"#!/bin/sh\n")  # not executable, so no plugin

    two_pods(host)
    assert host.add("c3") is not None


def test_nothing_is_learnt_when_subnet_env_changed_while_flannel_ran(host: Host) -> None:
    step = Exec("flannel", "ADD", json.dumps(CONF).encode())
    for name in ("c1", "c2"):
        run = host.delegates.run(step, host.environ(name))
        host.write(f"/var/lib/cni/flannel/{name}", STATE)
        host.write("/run/flannel/subnet.env", f"FLANNEL_SUBNET=10.244.{name[1]}.1/24\n".encode())
        assert run is not None
        run.succeeded(host.delegates.run(step, host.environ(name)))

    assert host.add("c3") is None


def test_node_without_subnet_env_has_flannel_say_so(host: Host) -> None:
    two_pods(host)
    (host.root / "run/flannel/subnet.env").unlink()

    assert host.add("c3") is None


def test_del_executes_what_the_state_says_also_that_of_another_daemon(host: Host) -> None:
    host.write("/var/lib/cni/flannel/c1", b'{"type":"ptp"}')

    assert host.delete("c1") == Delegated("ptp", "/var/lib/cni/flannel/c1", b'{"type":"ptp"}')


def test_del_without_a_state_is_flannels(host: Host) -> None:
    assert host.delete("c1") is None


def test_state_that_is_a_link_within_the_host_or_a_folder_is_no_danger(host: Host) -> None:
    host.write("/etc/secret", b"no state")
    states = host.root / "var/lib/cni/flannel"
    states.mkdir(parents=True)
    (states / "c1").symlink_to("/etc/secret")
    (states / "c2").mkdir()
    os.mkfifo(states / "c3")

    assert [host.delete(name) for name in ("c1", "c2", "c3")] == [None] * 3


@pytest.mark.parametrize("container_id", ["", "../c1", ".c1.railnet", "c\xff"])
def test_odd_container_id_is_flannels(host: Host, container_id: str) -> None:
    two_pods(host)

    assert host.add(container_id) is None


@pytest.mark.parametrize("command", ["CHECK", "STATUS", "GC", "VERSION"])
def test_other_commands_are_flannels(host: Host, command: str) -> None:
    two_pods(host)

    assert host.delegates.run(Exec("flannel", command, json.dumps(CONF).encode()), host.environ("c3")) is None


def test_other_plugins_are_executed_as_they_are(host: Host) -> None:
    assert host.delegates.run(Exec("bridge", "ADD", STATE), host.environ("c1")) is None


@pytest.mark.parametrize("stdin", [b"", b"[]", b"{", b'{"type": "flannel", "pad": "' + b"x" * 20000 + b'"}'])
def test_configuration_that_cannot_be_read_is_flannels(host: Host, stdin: bytes) -> None:
    assert host.delegates.run(Exec("flannel", "ADD", stdin), host.environ("c1")) is None


def test_memory_is_bounded(host: Host) -> None:
    for number in range(100):
        host.add(f"c{number}", pad=number)

    assert len(host.delegates._seen) == 8


def test_states_that_differed_once_differ_for_ever() -> None:
    seen = compared(compared(compared(None, "a", b"1"), "b", b"2"), "c", b"1")

    assert seen == FlannelState("a", b"1", StateComparison.DIFFERENT)


@pytest.mark.parametrize(
    ("state", "plugin"), [(STATE, "bridge"), (b'{"type":"railnet"}', None), (b'{"type":""}', None), (b"\xff", None)]
)
def test_delegate_of_a_state(state: bytes, plugin: str | None) -> None:
    assert delegate_of(state) == plugin

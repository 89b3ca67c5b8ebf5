"""A request whose primary fails ends with the right code and leaves nothing half done, with and without a daemon."""

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest

from simnode.kubernetes.runtime import CniFailed
from simnode.node import Node
from simnode.waiting import wait_until
from tests.node.primaries import left_over, point_to, primary_of, set_seconds, write_primary, write_stub

GOOD = 'cat >/dev/null; [ $CNI_COMMAND = DEL ] || printf \'{"cniVersion":"0.4.0"}\''
ITS_OWN = '{ "code": 4711,  "msg":"odd", "cniVersion":"0.4.0" }'


@pytest.fixture(params=["running", "absent"])
def either_lane(request: pytest.FixtureRequest, node: Node) -> str:
    """Serve requests by the daemon, or by the executable alone."""
    if request.param == "absent":
        node.stop_daemon()
    return str(request.param)


def test_delegates_own_error_passes_byte_for_byte(node: Node, either_lane: str) -> None:
    write_stub("stub", f"cat >/dev/null; [ $CNI_COMMAND = DEL ] && exit 0; printf '%s' '{ITS_OWN}'; exit 1")
    primary_of({"type": "stub"})

    failure = failed(node)

    assert failure.invocation.stdout == ITS_OWN.encode()


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("kill -KILL $$", 105, "signal 9"),
        ("kill -SEGV $$", 105, "signal 11"),
        ("echo broken >&2; exit 3", 105, "status 3"),
        ("echo not json; exit 1", 105, "status 1"),
        ("echo not json", 105, "not JSON"),
        ("echo '[]'", 105, "not an object"),
        ("head -c 3000000 /dev/zero", 105, "not JSON"),
    ],
    ids=["killed", "crashed", "status", "rubbish-and-status", "rubbish", "no-object", "huge"],
)
def test_broken_delegate_is_code_105(node: Node, either_lane: str, script: str, code: int, says: str) -> None:
    write_stub("stub", f"cat >/dev/null; [ $CNI_COMMAND = DEL ] && exit 0; {script}")
    primary_of({"type": "stub"})

    failure = failed(node)

    assert (failure.code, says in failure.msg) == (code, True), failure


def test_hanging_delegate_is_ended_with_its_children_and_is_code_106(node: Node) -> None:
    node.stop_daemon()
    set_seconds(delegate=1.0)
    write_stub("stub", "cat >/dev/null; [ $CNI_COMMAND = DEL ] && exit 0; sleep 4711 & wait")
    primary_of({"type": "stub"})

    began = time.monotonic()
    failure = failed(node)

    assert failure.code == 106
    assert time.monotonic() - began < 60  # the delegate would take more than an hour
    wait_until(lambda: running("sleep 4711") == [], 60, "the end of its child, which has been sent SIGKILL")


def test_delegate_that_reads_nothing_is_no_failure(node: Node, either_lane: str) -> None:
    write_stub("stub", '[ $CNI_COMMAND = DEL ] || printf \'{"cniVersion":"0.4.0"}\'')
    primary_of({"type": "stub", "ballast": "x" * 300_000})

    pod = node.run_pod("plain")
    node.remove_pod(pod)

    assert json.loads(pod.result) == {"cniVersion": "0.4.0"}


def test_missing_delegate_is_code_7_and_named(node: Node, either_lane: str) -> None:
    primary_of({"type": "stub-that-is-not-there"})

    failure = failed(node, with_del=False)

    assert failure.code == 7
    assert "stub-that-is-not-there" in failure.msg


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"name": "x", "plugins": []}', "plugins"),
        ('{"name": "x", "plugins": [{"type": "../stub"}]}', "../stub"),
        ('{"name": "x", "plugins": [{"type": "railnet"}]}', "Railnet itself"),
        ("[" * 100_000, "nested too deeply"),
    ],
    ids=["broken", "no-object", "empty", "path", "ourselves", "deep"],
)
def test_bad_primary_is_code_7(node: Node, either_lane: str, text: str, says: str) -> None:
    write_primary(text)

    failure = failed(node, with_del=False)

    assert (failure.code, says in failure.msg) == (7, True), failure


def test_missing_primary_is_code_7_with_its_path(node: Node, either_lane: str) -> None:
    point_to("/etc/cni/net.d/99-nothing.conflist")

    failure = failed(node, with_del=False)

    assert failure.code == 7
    assert "99-nothing.conflist" in failure.msg


def test_second_delegates_failure_undoes_the_first(node: Node, either_lane: str) -> None:
    write_stub("stub", f"echo $CNI_COMMAND >>/run/stub-calls; {GOOD}")
    write_stub("stub2", "echo 2$CNI_COMMAND >>/run/stub-calls; [ $CNI_COMMAND = DEL ] && exit 0; exit 1")
    primary_of({"type": "stub"}, {"type": "stub2"})

    failed(node, with_del=False)

    assert Path("/run/stub-calls").read_text().split() == ["ADD", "2ADD", "2DEL", "DEL"]


@pytest.mark.parametrize(("content", "code"), [(None, None), ("FLANNEL_NETWORK\n", 105)], ids=["missing", "malformed"])
def test_flannel_without_its_lease_fails_with_flannels_error(
    node: Node, either_lane: str, content: str | None, code: int | None
) -> None:
    lease = Path("/run/flannel/subnet.env")
    good = lease.read_text()
    lease.unlink() if content is None else lease.write_text(content)

    failure = failed(node)

    lease.write_text(good)
    assert "subnet.env" in failure.msg if code is None else failure.code == code


def failed(node: Node, *, with_del: bool = True) -> CniFailed:
    """Run an ADD of a plain pod that fails. Assert that it left nothing even before the runtime's DEL, and return the failure."""
    box = node.runtime.create_sandbox("default", "plain", "uid-plain")
    with pytest.raises(CniFailed) as failure:
        node.runtime.add(box)
    if node.daemon.process is not None:
        assert left_over(node) == []
    if with_del:
        node.runtime.delete(box)
    node.runtime.remove_sandbox(box)
    return failure.value


def running(command: str) -> list[str]:
    """Return the processes of this command, without those that end during the search."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode().strip())
    return [line for line in lines if line == command]

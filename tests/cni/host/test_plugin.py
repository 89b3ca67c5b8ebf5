"""The executable as containerd starts it: a process, its environment, its stdin; with every path below a folder of the test.

ADD into a real sandbox needs a network namespace and is tested in the node tier.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cni.host.shell_plugins import a_plugin

REPOSITORY = Path(__file__).resolve().parents[3]
LAUNCHER = """
import sys
sys.path.insert(0, {repository!r})
from cni.host import daemon, lock, plugin
lock.RUN, lock.FOLDER = {run!r}, {run!r} + "/lock"
daemon.SOCKET = {run!r} + "/cni.sock"
plugin.main()
"""


class Runtime:
    """A container runtime without a daemon beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        self.environ = {
            "CNI_CONTAINERID": "c0ffee",
            "CNI_NETNS": f"{folder}/netns",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": f"{folder}/bin",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=ml;K8S_POD_NAME=train-0;K8S_POD_UID=uid-1",
            "PATH": "/usr/bin:/bin",
        }

    def call(self, command: str, stdin: bytes = b"", **changes: str | None) -> subprocess.CompletedProcess[bytes]:
        environ = {name: value for name, value in {**self.environ, "CNI_COMMAND": command, **changes}.items() if value}
        code = LAUNCHER.format(repository=str(REPOSITORY), run=str(self.run))
        return subprocess.run(
            ["/usr/bin/python3", "-ISE", "-c", code],
            env=environ,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
        )

    def conf(self, *plugins: dict[str, Any], **changes: object) -> bytes:
        """Write a primary configuration and give ours for stdin."""
        primary = self.folder / "10-primary.conflist"
        primary.write_text(json.dumps({"cniVersion": "0.3.1", "name": "cbr0", "plugins": plugins}))
        conf = {"cniVersion": "0.3.1", "name": "cbr0", "type": "railnet", "primary": str(primary)}
        return json.dumps({**conf, **changes}).encode()

    def left_over(self) -> list[str]:
        return sorted(path.name for path in self.run.rglob("*") if path.is_file())


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(tmp_path)


def error(done: subprocess.CompletedProcess[bytes]) -> tuple[int, str]:
    """Return code and message of an answer that is an error, and nothing but an error."""
    assert (done.returncode, done.stderr) == (1, b"")
    answer = json.loads(done.stdout)
    assert set(answer) <= {"cniVersion", "code", "msg", "details"}
    return answer["code"], answer["msg"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"CNI_COMMAND": None}, "CNI_COMMAND"),
        ({"CNI_COMMAND": "FROB"}, "CNI_COMMAND"),
        ({"CNI_CONTAINERID": None}, "CNI_CONTAINERID"),
        ({"CNI_CONTAINERID": "../../etc"}, "CNI_CONTAINERID"),
        ({"CNI_CONTAINERID": "a\nb"}, "CNI_CONTAINERID"),
        ({"CNI_CONTAINERID": "a" * 200}, "CNI_CONTAINERID"),
        ({"CNI_IFNAME": None}, "CNI_IFNAME"),
        ({"CNI_IFNAME": "../eth0"}, "CNI_IFNAME"),
        ({"CNI_IFNAME": "a" * 16}, "CNI_IFNAME"),
        ({"CNI_NETNS": None}, "CNI_NETNS"),
        ({"CNI_PATH": None}, "CNI_PATH"),
    ],
    ids=repr,
)
def test_odd_environment_is_an_error_of_code_4_and_leaves_nothing(runtime: Runtime, changes, words: str) -> None:
    code, message = error(runtime.call("ADD", b"{}", **changes))

    assert code == 4
    assert words in message
    assert not runtime.run.exists()


@pytest.mark.parametrize(
    ("netns", "words"),
    [
        ("missing", "cannot be opened: No such file or directory"),
        ("file", "is not a network namespace"),
        ("fifo", "is not a network namespace"),
        ("/proc/self/ns/uts", "is not a network namespace"),
        ("/dev/null", "is not a network namespace"),
        ("/proc/self/ns/net", "is the node's own network namespace"),
    ],
)
def test_add_is_an_error_of_code_4_when_netns_is_none(runtime: Runtime, netns: str, words: str) -> None:
    subprocess.run(["mkfifo", runtime.folder / "fifo"], check=True)
    (runtime.folder / "file").touch()
    path = runtime.folder / netns

    code, message = error(runtime.call("ADD", runtime.conf({"type": "bridge"}), CNI_NETNS=str(path)))

    assert (code, message) == (4, f"CNI_NETNS '{path}' {words}; it should be the sandbox's network namespace")
    assert runtime.left_over() == []


@pytest.mark.slow
def test_stdin_without_end_is_an_error_of_code_6(runtime: Runtime) -> None:
    code, message = error(runtime.call("ADD", b" " * (65 << 20)))

    assert (code, message) == (6, "the configuration on stdin is larger than 67108864 bytes")
    assert not runtime.run.exists()


@pytest.mark.parametrize(
    ("stdin", "code", "words"),
    [
        (b"", 6, "is not JSON"),
        (b"{", 6, "is not JSON"),
        (b"[" * 400_000, 6, "is nested too deeply"),
        (b"[]", 6, "not an object"),
        (b'{"cniVersion": "9.9.9"}', 1, "'9.9.9' is not supported"),
        (b'{"cniVersion": "1.0.0"}', 7, "'primary' is None"),
        (b'{"cniVersion": "1.0.0", "primary": "/nonexistent"}', 7, "/nonexistent cannot be read"),
    ],
    ids=["empty", "broken", "deep", "a list", "version", "no primary", "primary missing"],
)
def test_odd_configuration_is_an_error(runtime: Runtime, stdin: bytes, code: int, words: str) -> None:
    found, message = error(runtime.call("DEL", stdin))

    assert found == code
    assert words in message
    assert runtime.left_over() == []


def test_error_is_in_the_version_of_the_request(runtime: Runtime) -> None:
    done = runtime.call("DEL", b'{"cniVersion": "0.3.1", "primary": "/nonexistent"}')

    assert json.loads(done.stdout)["cniVersion"] == "0.3.1"


@pytest.mark.parametrize(
    ("stdin", "version"), [(b"", "1.0.0"), (b'{"cniVersion": "0.4.0"}', "0.4.0"), (b"{}", "1.0.0")]
)
def test_version_lists_what_railnet_speaks(runtime: Runtime, stdin: bytes, version: str) -> None:
    done = runtime.call("VERSION", stdin, CNI_CONTAINERID=None, CNI_IFNAME=None, CNI_NETNS=None, CNI_PATH=None)

    supported = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]
    assert json.loads(done.stdout) == {"cniVersion": version, "supportedVersions": supported}
    assert (done.returncode, done.stderr) == (0, b"")


def test_version_of_broken_stdin_is_an_error_of_code_6(runtime: Runtime) -> None:
    assert error(runtime.call("VERSION", b"{"))[0] == 6


@pytest.mark.parametrize("version", ["7", "null", "[]", "true"])
def test_version_that_is_no_string_is_an_error_of_code_6(runtime: Runtime, version: str) -> None:
    code, message = error(runtime.call("VERSION", b'{"cniVersion": %s}' % version.encode()))

    assert code == 6
    assert "it should be a string" in message


def test_del_without_a_daemon_runs_the_primary_chain_last_first_and_leaves_nothing(runtime: Runtime) -> None:
    log = runtime.folder / "log"
    a_plugin(runtime.folder / "bin", "bridge", f'echo "bridge $CNI_COMMAND $CNI_NETNS" >> {log}')
    a_plugin(runtime.folder / "bin", "tuning", f'echo "tuning $CNI_COMMAND" >> {log}')

    done = runtime.call("DEL", runtime.conf({"type": "bridge"}, {"type": "tuning"}))

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert log.read_text() == f"tuning DEL\nbridge DEL {runtime.folder}/netns\n"
    assert runtime.left_over() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("exit 1", 105, "failed with status 1"),
        ("kill -9 $$", 105, "was ended by signal 9"),
        ("exec sleep 60", 106, "took longer"),
        (None, 7, "cannot be executed"),
    ],
    ids=["fails", "dies", "hangs", "missing"],
)
def test_delegate_that_breaks_is_an_error(runtime: Runtime, script: str | None, code: int, words: str) -> None:
    a_plugin(runtime.folder / "bin", "bridge" if script else "another", script or "")

    found, message = error(runtime.call("DEL", runtime.conf({"type": "bridge"}, seconds={"delegate": 0.5})))

    assert found == code
    assert words in message
    assert runtime.left_over() == []


def test_delegates_own_error_is_printed_byte_for_byte(runtime: Runtime) -> None:
    a_plugin(runtime.folder / "bin", "bridge", """printf '{ "msg":"x" ,"code" : 999}  \\n\\n'; exit 1""")

    done = runtime.call("DEL", runtime.conf({"type": "bridge"}))

    assert (done.returncode, done.stdout) == (1, b'{ "msg":"x" ,"code" : 999}  \n\n')


def test_primary_that_names_railnet_is_an_error_of_code_7(runtime: Runtime) -> None:
    assert error(runtime.call("DEL", runtime.conf({"type": "railnet"})))[0] == 7

"""`scripts/demo --kubernetes` as users run it. It has a cluster of its own, inside this one's namespaces."""

import errno
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster.demo import job
from tests.cluster.demo.forwarding import Forwarding
from tests.cluster.demo.steps import Steps
from tests.cluster.manifests import ROOT

DEMO = ["scripts/demo", "--kubernetes"]
_SECONDS = 600.0  # it takes one minute on two processors that do nothing else
_NOTHING = "✓ left over: 0 "


class Played(NamedTuple):
    """A demo that stays, and how long it took until then.

    Attributes:
        printed: until it stays.
        shell: the line that it prints for a shell.
    """

    process: "subprocess.Popen[str]"
    printed: str
    shell: str
    seconds: float

    def run(self, command: str) -> str:
        """Run a command in a shell that has run the line."""
        done = subprocess.run(
            ["sh", "-c", f"{self.shell}; {command}"], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


class Ended(NamedTuple):
    """What a demo printed, and its exit status."""

    status: int
    printed: str


def started(command: Sequence[str], **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})


def read_until(process: "subprocess.Popen[str]", pattern: str) -> str:
    """Read lines up to the one that has a match; fails if there is none."""
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if re.search(pattern, line):
            return printed
    pytest.fail(f"no line with {pattern}:\n{printed}")


def end(process: "subprocess.Popen[str]") -> Ended:
    """End it as Ctrl-C does."""
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=_SECONDS)
    return Ended(process.returncode, printed)


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(os.environ.get("RAILNET_CACHE") or Path.home() / ".cache/railnet") / "demo-on-kubernetes"


@pytest.fixture(scope="module")
def played(measured: Callable[[str], None]) -> Iterator[Played]:
    began = time.monotonic()
    process = started([*DEMO, "--keep"])
    try:
        printed = read_until(process, "No registry can be reached")
        seconds = time.monotonic() - began
        measured(f"scripts/demo --kubernetes until it stays: {seconds:.1f} s")
        (shell,) = re.findall(r"^ *(export KUBECONFIG=.*)$", printed, re.MULTILINE)
        yield Played(process, printed, shell, seconds)
    finally:
        if process.poll() is None:
            end(process)


@pytest.fixture(scope="module")
def ended(played: Played) -> Ended:
    return end(played.process)


def test_each_step_has_a_line_with_its_seconds(played: Played) -> None:
    steps = re.findall(r"^  ✓ (\w+ .*?)  +\d+\.\d s$", played.printed, re.MULTILINE)

    assert [step.split()[0] for step in steps] == [
        *("starting", "starting", "waiting", "importing", "installing", "importing", "running", "measuring"),
    ]
    assert "✗" not in played.printed


def test_gang_has_run_on_both_nodes_and_its_tensors_went_over_net1(played: Played) -> None:
    workers = re.findall(r"(node-\w), net1 ([\d.]+): rank (\d) of (\d)", played.printed)
    carried = [dict(re.findall(r"(\w+) ([\d.]+) MB", line)) for line in re.findall(r"carried: (.*)", played.printed)]

    assert sorted(node for node, *_ in workers) == ["node-a", "node-a", "node-b", "node-b"]
    assert sorted(rank for *_, rank, _ in workers) == ["0", "1", "2", "3"]
    assert len({address for _, address, *_ in workers}) == job.WORKERS
    assert all(float(counts["net1"]) > job.ROUNDS * job.MEBIBYTES > 8 * float(counts["eth0"]) for counts in carried)


def test_report_has_no_finding_and_is_a_page(played: Played, folder: Path) -> None:
    assert re.search(r"2 pairs on 2 rails of 2 nodes", played.printed)
    assert "node-b" in (folder / "validate.html").read_text()


def test_printed_line_gives_a_shell_kubectl_helm_and_railnet(played: Played) -> None:
    nodes = json.loads(played.run("kubectl get nodes --output=json"))["items"]
    releases = json.loads(played.run("helm list --namespace=railnet --output=json"))
    jobs = played.run("railnet train ls --all-namespaces")
    shown = played.run(f"kubectl logs --namespace={job.NAME} job/{job.NAME}-worker-0")

    assert {one["metadata"]["name"]: one["status"]["allocatable"]["rdma/ib_vf"] for one in nodes} == {
        "node-a": "8",
        "node-b": "8",
    }
    assert [one["status"] for one in releases] == ["deployed"]
    assert "completed" in jobs
    assert job.ended(shown)


def test_only_root_may_read_how_to_reach_the_cluster(played: Played, folder: Path) -> None:
    anonymous = json.loads(played.run("kubectl get --raw=/api/v1/nodes --token=of-admin || true") or "{}")
    modes = [path.stat().st_mode & 0o077 for path in (folder, folder / "kubeconfig")]

    assert anonymous == {}
    assert modes == [0, 0]


def test_second_demo_is_refused_in_one_line(played: Played, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.cluster.demo", f"--folder={folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_SECONDS)
    refusal = f"scripts/demo: another demo uses {folder}; end it, or set RAILNET_CACHE to another folder\n"

    assert (done.returncode, done.stdout, done.stderr) == (3, "", refusal)


def test_folder_with_files_of_others_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    file.write_text("mine")
    command = [sys.executable, "-m", "tests.cluster.demo", f"--folder={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_SECONDS)

    assert (done.returncode, done.stdout, file.read_text()) == (3, "", "mine")
    assert done.stderr.startswith(f"scripts/demo: {tmp_path} has files that no demo made")


def test_connections_are_handed_on_after_a_time_without_descriptors() -> None:
    class Short(socket.socket):
        refusals = 3

        def accept(self) -> tuple[socket.socket, Any]:
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    with socket.create_server(("127.0.0.1", 0)) as server, Short() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        Forwarding(listener, *server.getsockname()).start()
        with socket.create_connection(listener.getsockname(), _SECONDS) as client:
            client.sendall(b"hello")
            handed_on, _ = server.accept()
            with handed_on:
                received = handed_on.recv(5)

    assert received == b"hello"


def test_ctrl_c_ends_all_of_it(ended: Ended, folder: Path) -> None:
    assert ended.status == 0
    assert _NOTHING in ended.printed
    assert sorted(path.name for path in folder.iterdir()) == [".made-by-a-demo", "validate.html"]


def test_ctrl_c_in_a_step_leaves_nothing(tmp_path: Path) -> None:
    process = started([sys.executable, "-m", "tests.cluster.demo", f"--folder={tmp_path}"])
    read_until(process, "starting etcd")
    ended = end(process)

    assert ended.status == 130
    assert _NOTHING in ended.printed


def test_program_that_does_not_start_is_named_with_the_logs(tmp_path: Path) -> None:
    program = tmp_path / "kube-apiserver"
    program.write_text("#!/bin/sh\necho no disk; exit 1\n")
    program.chmod(0o755)
    command = [sys.executable, "-m", "tests.cluster.demo", f"--folder={tmp_path / 'demo'}"]
    process = started(command, PATH=f"{tmp_path}:{os.environ['PATH']}")
    printed, _ = process.communicate(timeout=_SECONDS)

    assert process.returncode == 1
    assert "✗ starting etcd" in printed
    assert "kube-apiserver has ended" in printed
    assert _NOTHING in printed
    assert f"logs of all programs and pods are in {tmp_path / 'demo/logs'}" in printed
    assert (tmp_path / "demo/logs/node-a/kube-apiserver.log").read_text() == "no disk\n"


def test_user_who_is_not_root_gets_one_line() -> None:
    command = ["setpriv", "--reuid=65534", "--clear-groups", *DEMO]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_SECONDS)

    assert (done.returncode, done.stdout) == (3, "")
    assert (
        done.stderr == "scripts/demo: --kubernetes must run as root, for kubelet and the container runtime; use sudo\n"
    )


class Terminal(io.StringIO):
    """A file that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_terminal_shows_the_step_that_goes_on_until_its_line_replaces_it() -> None:
    terminal = Terminal()
    steps = Steps(terminal, iter((1.0, 3.5)).__next__)
    steps.begin("waiting")
    while_waiting = terminal.getvalue()
    steps.end()

    assert while_waiting == "  … waiting"
    assert re.fullmatch(r"  … waiting\r\033\[K  ✓ waiting +2\.5 s\n", terminal.getvalue())


def test_failed_step_says_what_the_error_and_its_notes_say() -> None:
    file = io.StringIO()
    steps = Steps(file, iter((0.0, 1.0)).__next__)
    error = TimeoutError("waited 240 s")
    error.add_note("first\nsecond")
    steps.begin("waiting")
    steps.fail(error)

    lines = [line.strip() for line in file.getvalue().splitlines()]
    assert [lines[0][:9], *lines[1:]] == ["✗ waiting", "TimeoutError: waited 240 s", "first", "second"]

"""A daemon in other namespaces runs programs of the host."""

import os
import subprocess
import time
from pathlib import Path

from railnet.kernel.processes.host_process import Terms, execute
from tests.railnet.kernel.processes.test_host_process import ENVIRON, a_program


def test_program_runs_in_the_namespaces_of_the_process_whose_root_is_given(tmp_path: Path) -> None:
    program = a_program(tmp_path, "readlink /proc/self/ns/net /proc/self/ns/mnt; pwd")
    apart = ["unshare", "--net", "--mount", "--propagation", "private", "sleep", "60"]
    with subprocess.Popen(apart) as other:
        try:
            await_namespace(other.pid)
            expected = [str(Path(f"/proc/{other.pid}/ns/{name}").readlink()) for name in ("net", "mnt")]

            ended = execute(Path(f"/proc/{other.pid}/root"), program, ENVIRON, b"", Terms(60))
        finally:
            other.kill()

    assert ended.stdout.decode().split() == [*expected, "/"]


def test_missing_program_on_another_root_is_reported(tmp_path: Path) -> None:
    ended = execute(tmp_path, "/missing", ENVIRON, b"", Terms(60))

    assert os.waitstatus_to_exitcode(ended.status) == 126
    assert b"/missing on the host at" in ended.stderr


def await_namespace(pid: int) -> None:
    """Wait until a process has namespaces of its own."""
    for name in ("net", "mnt"):
        while Path(f"/proc/{pid}/ns/{name}").readlink() == Path(f"/proc/self/ns/{name}").readlink():
            time.sleep(0.01)

"""What a person or a probe runs for one answer starts without the libraries of the daemon."""

import subprocess
import sys

import pytest

HEAVY = ("pyroute2", "grpc", "kubernetes", "argcomplete")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["version", "status", "doctor"])
def test_command_imports_no_library_of_the_daemon_of_the_api_server_or_of_completion(command: str) -> None:
    ran = [sys.executable, "-X", "importtime", "-m", "railnet", command]

    imported = subprocess.run(ran, capture_output=True, check=False, text=True, timeout=60).stderr

    assert "| railnet" in imported
    assert not [line for line in imported.splitlines() for name in HEAVY if f" {name}" in line]


@pytest.mark.slow
def test_daemon_that_names_no_vfs_needs_no_pyroute2() -> None:
    program = (
        "import sys, railnet.daemon.composition; from railnet.kernel.netlink import pf_link_query; "
        "pf_link_query.read([1]); print(any('pyroute2' in name for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"False\n"


@pytest.mark.slow
def test_supervised_daemon_imports_neither_the_parser_of_command_lines_nor_yaml() -> None:
    program = "import sys, railnet.daemon_process, railnet.daemon.composition; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)

    modules = set(done.stdout.split())
    assert "railnet.configuration" in modules
    assert modules.isdisjoint({"argparse", "platform", "railnet.__main__", "railnet.train", "uuid", "yaml"})

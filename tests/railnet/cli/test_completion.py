"""A shell completes command lines by a script that the program prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from railnet.cli.completion import SHELLS, script

PROGRAM = [sys.executable, "-m", "railnet"]


def completions(tmp_path: Path, line: str) -> list[str]:
    """Return what the program answers to bash for a command line that ends at the cursor."""
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "bash",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    subprocess.run(PROGRAM, env={**os.environ, **asked}, capture_output=True, check=True, timeout=60)
    return [one.strip() for one in answer.read_text().splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
def test_script_completes_the_program_and_the_plugin_of_kubectl(shell: str) -> None:
    text = script(shell)

    assert "_ARGCOMPLETE" in text
    assert "railnet" in text
    assert "kubectl-railnet" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("railnet tr", {"train"}),
        ("railnet train ", {"init", "up", "down", "ls", "logs", "top"}),
        ("railnet train init ", {"pytorch", "tensorflow", "mpi"}),
        ("railnet train up --as ", {"pytorchjob", "jobset", "mpijob"}),
        ("railnet train up --dry-run ", {"client", "server"}),
        ("kubectl-railnet train ls -o ", {"json", "yaml", "wide"}),
        ("railnet doctor --kubec", {"--kubeconfig"}),
        ("railnet config ", {"check"}),
        ("railnet bundle --", {"--node", "--all", "--selector", "--kubeconfig"}),
        ("railnet doctor --b", {"--bundle"}),
        ("railnet plan --", {"--diff", "--vfs", "--bundle", "--kubeconfig"}),
        ("railnet config check --on", {"--on-node"}),
        ("railnet node --be", set()),
    ],
)
def test_shell_is_told_what_may_follow(tmp_path: Path, line: str, expected: set[str]) -> None:
    assert expected - set(completions(tmp_path, line)) == set()
    assert expected or completions(tmp_path, line) == []


@pytest.mark.slow
def test_bash_runs_the_script(tmp_path: Path) -> None:
    (tmp_path / "railnet").write_text(f"#!{sys.executable}\nfrom railnet.__main__ import main\nmain()\n")
    (tmp_path / "railnet").chmod(0o755)
    program = (
        'eval "$(railnet completion bash)"; COMP_LINE="railnet train d"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; '
        '_python_argcomplete railnet; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", program], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout.strip()) == (0, "down"), done.stderr

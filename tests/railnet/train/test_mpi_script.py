"""The script of an MPI job's pods, as the shells run it that are /bin/sh in images: what a worker does, and what a rank finds."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from railnet.jobs.train_mpi_objects import mpi_objects
from railnet.train.job_file import job_of
from railnet.train.ssh_keys import ssh_keys

_TEXT = "kind: mpi\nname: a\nimage: b\nworkers: 3\ncommand: [mpirun, x]\n"
_ENVIRONMENT = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
_SSH = """\
#!/bin/sh
echo "$*" >>calls
echo "$SSH_SAYS" >&2
exit "$SSH_STATUS"
"""


class Ended(NamedTuple):
    """A script that has ended."""

    status: int
    said: str
    printed: str


class Container:
    """A folder in the place of a container's files. Its programs end at once: `sleep`, and an `ssh` that says what a test wants."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder, self._programs = folder, folder / "programs"
        self._of_user = str(shutil.which({"dash": "bash", "bash": "dash"}[shell]))
        self._programs.mkdir()
        for name in ("cp", "cat"):
            (self._programs / name).symlink_to(str(shutil.which(name)))
        (self._programs / "sh").symlink_to(str(shutil.which(shell)))
        self.add("sleep", "#!/bin/sh\n")
        secret, job = self._objects()
        for name in ("secret", "keys"):
            (folder / name).mkdir()
        for name, text in secret["stringData"].items():
            (folder / "secret" / name).write_text(self._here(text))
        (container,) = job["spec"]["template"]["spec"]["containers"]
        self._script = self._here(container["command"][2])
        self.user("root:x:0:0:root:/root:/bin/sh", "root:*:1::::::")

    def _objects(self) -> tuple[Any, Any]:
        secret, _, job = mpi_objects(job_of(_TEXT, "job.yaml"), ssh_keys())
        return secret, job

    def _here(self, text: str) -> str:
        places = {"/run/railnet-ssh": "keys", "/etc/railnet-ssh": "secret", "/etc/": "etc-", "/proc/self/": "proc-"}
        for there, name in places.items():
            text = text.replace(there, str(self.folder / name))
        return text.replace("/bin/sh", str(self._programs / "sh"))

    def add(self, program: str, text: str) -> None:
        (self._programs / program).write_text(text)
        (self._programs / program).chmod(0o755)

    def user(self, line: str, shadow: str | None) -> None:
        """Say the user of the container, by uid 0, and the line of /etc/shadow, if there is one."""
        (self.folder / "proc-status").write_text("Name:\tsh\nUid:\t0\t0\t0\t0\n")
        (self.folder / "etc-passwd").write_text(f"other:x:7:7::/:/sbin/nologin\n{line}\n")
        (self.folder / "etc-shadow").unlink(missing_ok=True)
        if shadow is not None:
            (self.folder / "etc-shadow").write_text(f"other:!:1::::::\n{shadow}\n")

    def starts(self, index: int, more: Mapping[str, str]) -> Ended:
        """Run the pod's script as worker `index`, with these variables more; the command prints its environment."""
        words = [str(self._programs / "sh"), "-c", self._script, "railnet", *_ENVIRONMENT]
        return self._run(words, {"JOB_COMPLETION_INDEX": str(index), **more})

    def rank(self) -> dict[str, str]:
        """Return the environment of a program that sshd starts by the key's command, in a shell of the user that is not /bin/sh."""
        words = (self.folder / "keys" / "authorized_keys").read_text().partition('command="')[2].rpartition('" ssh-')[0]
        program = f"{sys.executable} -c '{_ENVIRONMENT[2]}'"
        ended = self._run([self._of_user, "-c", words.replace('\\"', '"')], {"SSH_ORIGINAL_COMMAND": program})
        assert ended.status == 0, ended.said
        found: dict[str, str] = json.loads(ended.printed)
        return found

    def _run(self, words: list[str], variables: Mapping[str, str]) -> Ended:
        env = {"PATH": str(self._programs), **variables}
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=self.folder, env=env, timeout=60)
        return Ended(done.returncode, done.stderr, done.stdout)


@pytest.fixture(params=["dash", "bash"])
def container(request: pytest.FixtureRequest, tmp_path: Path) -> Container:
    return Container(tmp_path, request.param)


_ODD = ["a'b\"c\nd$HOME`id`\\ x", "", "\n", "a\tb", "\u00e4 \u65e5", "two\n\n", "-n", "$(id)"]


def test_rank_has_each_variable_of_its_worker_whatever_its_value_is(container: Container) -> None:
    variables = {f"V{number}": value for number, value in enumerate(_ODD)}
    container.starts(1, variables)

    assert container.rank().items() >= variables.items()


def test_rank_starts_where_the_image_has_a_variable_that_bash_does_not_let_change(container: Container) -> None:
    container.starts(1, {"UID": "1000", "EUID": "1000", "SHELLOPTS": "braceexpand", "V": "x"})

    assert container.rank()["V"] == "x"

"""The script of an MPI job's pods, as the shells run it that are /bin/sh in images: what a worker does, and what a rank finds."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from railnet.jobs.train_job.mpi_objects import mpi_objects
from railnet.train.job_file import job_of
from railnet.train.ssh_keys import ssh_keys

_TEXT = "kind: mpi\nname: a\nimage: b\nworkers: 3\ncommand: [mpirun, x]\n"
_ENVIRONMENT = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
_SSH = """\
#!/bin/sh
read -r calls <calls || calls=0
echo $((calls + 1)) >calls
read -r uptime _ <uptime
echo "$((${uptime%.*} + ${TAKES-1})).50 9.99" >uptime
[ "$calls" -lt "$FAILURES" ] || exit 0
echo "$SAYS" >&2
exit "$STATUS"
"""
_SSHD = """\
#!/bin/sh
echo "sshd $*"
"""


class Ended(NamedTuple):
    """A script that has ended."""

    status: int
    said: str
    printed: str


class Container:
    """A folder in the place of a container's files. Its `sleep`, `ssh` and `sshd` end at once."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder, self._programs = folder, folder / "programs"
        self._of_user = str(shutil.which({"dash": "bash", "bash": "dash"}[shell]))
        self._programs.mkdir()
        for name in ("cp", "cat"):
            (self._programs / name).symlink_to(str(shutil.which(name)))
        (self._programs / "sh").symlink_to(str(shutil.which(shell)))
        self.add("sleep", "#!/bin/sh\n")
        self.add("ssh", _SSH)
        self.add("sshd", _SSHD)
        (folder / "calls").touch()
        (folder / "uptime").write_text("7000.50 9.99\n")
        secret, job = self._objects()
        for name in ("secret", "keys"):
            (folder / name).mkdir()
        for name, text in secret["stringData"].items():
            (folder / "secret" / name).write_text(self._here(text).replace("/bin/sh", str(self._programs / "sh")))
        (container,) = job["spec"]["template"]["spec"]["containers"]
        self._script = self._here(container["command"][2])
        self.user("root:x:0:0:root:/root:/bin/sh", "root:*:1::::::")

    def _objects(self) -> tuple[Any, Any]:
        secret, _, job = mpi_objects(job_of(_TEXT, "job.yaml"), ssh_keys())
        return secret, job

    def _here(self, text: str) -> str:
        places = {
            "/run/railnet-ssh": "keys",
            "/etc/railnet-ssh": "secret",
            "/etc/": "etc-",
            "/proc/self/": "proc-",
            "/proc/uptime": "uptime",
            "/usr/sbin/": "sbin-",
        }
        for there, name in places.items():
            text = text.replace(there, str(self.folder / name))
        return text

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

    def reaches(self, failures: int, status: int, says: str, takes: int = 1) -> Ended:
        """Run it as worker 0, whose ssh fails so many times, with this status and these words, and takes so many seconds each time."""
        variables = {"FAILURES": str(failures), "STATUS": str(status), "SAYS": says, "TAKES": str(takes)}
        ended = self.starts(0, {**variables, "host": "mine", "user": "me"})
        return ended._replace(said=ended.said.strip())

    @property
    def calls(self) -> int:
        """How often ssh was called."""
        return int((self.folder / "calls").read_text() or 0)

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


_DENIED = "root@a-1.a.a.svc: Permission denied (publickey)."


def test_worker_0_waits_until_ssh_reaches_all_others_and_starts_the_command_with_its_own_environment(
    container: Container,
) -> None:
    refused = "ssh: connect to host a-1.a.a.svc port 2222: Connection refused"
    ended = container.reaches(65, 255, refused)

    assert ended.status == 0
    assert ended.said.splitlines() == [f"railnet: waiting for a-1.a.a.svc: {refused}"] * 3
    assert container.calls == 65 + 2
    assert json.loads(ended.printed).items() >= {"host": "mine", "user": "me"}.items()


@pytest.mark.parametrize(
    ("status", "says"),
    [(255, _DENIED), (1, "This account is currently not available."), (255, "No user exists for uid 7")],
)
def test_worker_0_fails_when_ssh_is_refused_again_and_again(container: Container, status: int, says: str) -> None:
    ended = container.reaches(99, status, says)

    assert (ended.status, container.calls, ended.printed) == (1, 30, "")
    assert f"a-1.a.a.svc has refused ssh 30 times: {says}; the log of that worker may say more" in ended.said


_CHANGED = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed."
_REFUSED = "ssh: connect to host a-1.a.a.svc port 2222: Connection refused"
_TIMED_OUT = "ssh: connect to host a-1.a.a.svc port 2222: Connection timed out"
_NO_ROUTE = "ssh: connect to host a-1.a.a.svc port 2222: No route to host"


@pytest.mark.parametrize(
    ("says", "minutes", "why"),
    [
        (_CHANGED, 5, "its host key is not the one of this job"),
        (_TIMED_OUT, 5, "its port 2222 does not answer; a NetworkPolicy"),
        ("Connection timed out during banner exchange", 5, "its port 2222 does not answer; a NetworkPolicy"),
        (_NO_ROUTE, 5, _NO_ROUTE),
        (_REFUSED, 30, "nothing listens on its port 2222"),
    ],
)
def test_worker_0_fails_and_says_why_when_it_does_not_reach_a_worker(
    container: Container, says: str, minutes: int, why: str
) -> None:
    ended = container.reaches(999, 255, says, takes=6)

    assert (ended.status, ended.printed, container.calls) == (1, "", minutes * 10)
    last = ended.said.splitlines()[-1]
    assert last.startswith(f"railnet: ssh has not reached a-1.a.a.svc for {minutes} minutes: {why}")


def test_worker_that_has_no_pod_yet_is_awaited(container: Container) -> None:
    unknown = "ssh: Could not resolve hostname a-1.a.a.svc: Name or service not known"

    assert container.reaches(50, 255, unknown, takes=3600).status == 0


def test_few_refusals_are_awaited(container: Container) -> None:
    assert container.reaches(29, 255, _DENIED).status == 0


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("password", ["!locked", "!", "!!"])
def test_each_worker_fails_and_says_why_where_the_account_is_locked(
    container: Container, index: int, password: str
) -> None:
    container.user("root:x:0:0:root:/root:/bin/sh", f"root:{password}:1::::::")
    ended = container.starts(index, {})

    assert (ended.status, ended.printed) == (1, "")
    assert ended.said.startswith("railnet: the account of root is locked in this image")
    assert ended.said.endswith("RUN usermod -p '*' root\n")


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/bin/false", "/no/such/shell"])
def test_each_worker_fails_and_says_why_where_the_user_has_no_shell(
    container: Container, index: int, shell: str
) -> None:
    container.user(f"mpi:x:0:0::/:{shell}", None)
    ended = container.starts(index, {})

    assert (ended.status, ended.printed) == (1, "")
    assert (
        f"by the shell of mpi, and {shell} starts nothing; add to the Dockerfile: RUN usermod -s /bin/sh mpi"
        in ended.said
    )


@pytest.mark.parametrize(
    ("line", "shadow"),
    [
        ("root:x:0:0:root:/root:/bin/sh", "root:*:1::::::"),
        ("root:x:0:0:root:/root:/bin/sh", None),
        ("root:x:0:0:root:/root:", "root::1::::::"),
        ("another:x:8:8::/:/sbin/nologin", None),
    ],
)
def test_worker_starts_sshd_where_the_user_may_be_let_in(container: Container, line: str, shadow: str | None) -> None:
    container.user(line, shadow)
    ended = container.starts(1, {})

    assert (ended.status, ended.said) == (0, "")
    assert ended.printed == f"sshd -D -e -f {container.folder}/keys/sshd_config\n"

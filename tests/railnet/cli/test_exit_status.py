"""One table of exit statuses, in the code and in the documents."""

import re
from pathlib import Path

import pytest

from railnet import __main__ as command
from railnet.apiserver.client import RequestFailed, UserApiServer
from railnet.cli.connection import PatientApiServer
from railnet.cli.exit_status import ExitStatus
from railnet.train import ls

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| (\d+) \| (.+) \|$", re.MULTILINE)
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


def rows(page: str) -> list[tuple[int, str]]:
    return [(int(number), meaning) for number, meaning in ROW.findall((ROOT / "docs" / page).read_text())]


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr("sys.argv", ["railnet", *arguments])
    with pytest.raises(SystemExit) as end:
        command.main()
    return end.value.code


def test_documents_have_the_table() -> None:
    assert rows("command-line.md") == [(status.value, status.meaning) for status in ExitStatus]


@pytest.mark.parametrize("page", ["doctor.md", "validate.md"])
def test_pages_of_commands_name_only_statuses_of_the_table_and_none_for_usage(page: str) -> None:
    numbers = {number for number, _ in rows(page)}

    assert {ExitStatus.OK, ExitStatus.FAILED, ExitStatus.UNKNOWN} <= numbers
    assert numbers <= set(ExitStatus) - {ExitStatus.USAGE}


@pytest.mark.parametrize(
    ("verb", "status"),
    [
        (("train", "ls"), ExitStatus.FAILED),
        (("doctor", "--cluster"), ExitStatus.UNKNOWN),
        (("doctor", "--pod", "train-0"), ExitStatus.UNKNOWN),
        (("validate",), ExitStatus.UNKNOWN),
    ],
)
def test_api_server_that_does_not_answer_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: tuple[str, ...],
    status: ExitStatus,
) -> None:
    monkeypatch.setattr(PatientApiServer, "send", UserApiServer.send)  # without what is tried again, and said each time
    (tmp_path / "config").write_text(KUBECONFIG)

    assert ended(monkeypatch, *verb, "--kubeconfig", str(tmp_path / "config")) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("railnet: ")


@pytest.mark.parametrize("arguments", [[], ["trian"], ["status", "-o", "xml"], ["train", "up"]])
def test_usage_error_ends_with_its_own_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert ended(monkeypatch, *arguments) == ExitStatus.USAGE


def test_ctrl_c_ends_a_command_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: object) -> ExitStatus:
        raise KeyboardInterrupt

    monkeypatch.setitem(command._RUN, "status", interrupt)

    assert ended(monkeypatch, "status") == ExitStatus.INTERRUPTED
    assert capsys.readouterr().err == ""


def test_message_from_outside_cannot_change_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise RequestFailed("\x1b]0;no\x07", 400)

    monkeypatch.setattr(ls, "ls", refuse)
    (tmp_path / "config").write_text(KUBECONFIG)

    assert ended(monkeypatch, "train", "ls", "--kubeconfig", str(tmp_path / "config")) == ExitStatus.FAILED
    assert capsys.readouterr().err == "railnet: \\x1b]0;no\\x07\n"

"""The command line of `railnet uninstall --cluster`, outside of a cluster and without an API server that can be trusted."""

from pathlib import Path

import pytest

from railnet import __main__ as command
from railnet.cli.exit_status import ExitStatus
from tests.free_port import free_port


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr("sys.argv", ["railnet", "uninstall", *arguments])
    with pytest.raises(SystemExit) as end:
        command.main()
    return end.value.code


@pytest.mark.parametrize(
    "arguments",
    [["--stay"], ["--timeout=0"], ["--timeout=-1"], ["--timeout=nan"], ["--timeout=inf"], ["--timeout=soon"]],
)
def test_command_line_that_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert ended(monkeypatch, "--cluster", *arguments) == ExitStatus.USAGE


def test_outside_of_a_cluster_the_command_says_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert ended(monkeypatch, "--cluster") == ExitStatus.MISCONFIGURED
    assert "`railnet uninstall --cluster` runs in a pod of the cluster" in capsys.readouterr().err


def test_api_server_that_cannot_be_asked_in_time_is_one_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(free_port()))
    for name, text in (("token", "t"), ("namespace", "railnet\n"), ("ca.crt", "no certificate")):
        (tmp_path / name).write_text(text)

    assert ended(monkeypatch, "--cluster", "--timeout=0.1", f"--service-account={tmp_path}") == ExitStatus.FAILED
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("railnet: cannot list daemonsets in namespace railnet: ")
    assert error.endswith("; tried for 0.1 s")

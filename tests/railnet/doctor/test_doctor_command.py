"""The report of `railnet doctor`, and its exit status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from railnet import VERSION
from railnet import __main__ as command
from railnet.doctor import gathering
from railnet.doctor.doctor_table import rendered
from railnet.doctor.facts import Daemon, Facts
from railnet.doctor.finding_kinds import Finding
from railnet.vf.inventory import Inventory

SERVED = Daemon({"version": VERSION, "reasons": [], "vfs": []})


def run(monkeypatch: pytest.MonkeyPatch, found: Facts | OSError, *options: str) -> object:
    def gather(_: object) -> Facts:
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(gathering, "gather", gather)
    monkeypatch.setattr("sys.argv", ["railnet", "doctor", *options])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(SystemExit) as ended:
        command.main()
    return ended.value.code


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (Facts(Inventory(), SERVED), 0),  # no rail: a warning
        (Facts(Inventory(), Daemon(None, "it does not answer")), 1),
        (FileNotFoundError(2, "No such file or directory", "/sys/bus"), 6),
        (PermissionError(13, "Permission denied"), 4),
    ],
)
def test_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: Facts | OSError, status: int
) -> None:
    assert run(monkeypatch, found) == status


def test_json_has_what_the_table_has(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, Facts(Inventory(), Daemon(None, "it does not answer")), "--json")

    first, second = json.loads(capsys.readouterr().out)["findings"]
    assert (first["severity"], first["name"], first["seen"]) == ("error", "daemon-silent", "it does not answer")
    assert (second["name"], second["page"]) == ("no-rail", "docs/doctor.md#no-rail")
    assert first["remedy"]
    assert first["meaning"]


def test_table_names_each_finding_and_explains_each_kind_once() -> None:
    found = [
        Finding("port-down", "0000:03:00.0", "state '1: DOWN'"),
        Finding("port-down", "0000:04:00.0", "a\x1b[1mb"),
        Finding("no-vfs", "x", "y"),
    ]

    lines = list(rendered(found))

    assert lines[0] == f"railnet {VERSION}: 2 errors, 1 warning"
    assert lines[2].split() == ["SEVERITY", "FINDING", "WHERE", "SEEN"]
    assert lines[3].split(maxsplit=3) == ["error", "port-down", "0000:03:00.0", "state '1: DOWN'"]
    assert lines[4].endswith("a\\x1b[1mb")
    assert lines.count("port-down (docs/doctor.md#port-down)") == 1
    assert "no-vfs (docs/doctor.md#no-vfs)" in lines


def test_table_of_a_sound_node_is_one_line() -> None:
    assert list(rendered([])) == [f"railnet {VERSION}: nothing found"]


@pytest.mark.parametrize("options", [[], ["--kubeconfig", "absent"]])
@pytest.mark.parametrize("what", [["--pod", "train"], ["--cluster"]])
def test_pod_or_cluster_without_a_kubeconfig_is_a_clear_error_and_needs_no_root(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    what: list[str],
    options: list[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["railnet", "doctor", *what, *options])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SystemExit) as ended:
        command.main()

    assert ended.value.code == 3
    assert "there is no kubeconfig" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("what", [["--pod", "train"], ["--cluster"]])
def test_machine_without_the_kubernetes_package_is_told_where_to_run_it(what: list[str]) -> None:
    program = (
        f"import sys; sys.modules['kubernetes'] = None; sys.argv = {['railnet', 'doctor', *what]}\n"
        "from railnet.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stdout) == (3, "")
    assert "railnet doctor needs the Python package kubernetes" in done.stderr


def test_pod_and_cluster_together_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["railnet", "doctor", "--pod", "train", "--cluster"])
    with pytest.raises(SystemExit) as ended:
        command.main()

    assert ended.value.code == 2
    assert "not allowed with argument --pod" in capsys.readouterr().err

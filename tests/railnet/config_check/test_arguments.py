"""`railnet config check` as a person runs it: what is printed, and the exit status."""

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from railnet import __main__ as command
from railnet.cli.exit_status import ExitStatus

GOOD = "provision: [{select: {}, vfs: 8}]\n"
BAD = "provision:\n- {pf: 0000:13:00.0, vfs: 8}\nodd: 1\n"


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr("sys.argv", ["railnet", "config", "check", *arguments])
    with pytest.raises(SystemExit) as end:
        command.main()
    return end.value.code


def test_file_that_the_daemon_accepts_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node.yaml").write_text(GOOD)

    assert ended(monkeypatch, str(tmp_path / "node.yaml")) == ExitStatus.OK
    assert capsys.readouterr().out == f"{tmp_path}/node.yaml: the daemon accepts it\n"


def test_each_fault_has_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(BAD)

    assert ended(monkeypatch, str(path)) == ExitStatus.MISCONFIGURED
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}:2: error: provision[0].pf is 780.0; ")
    assert first.endswith('; it is text in quotes: "0000:13:00.0"')
    assert second.startswith(f"{path}:3: error: odd is an unknown key; ")
    assert last == f"{path}: 2 errors"


def test_stdin_is_read_and_json_has_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(BAD.encode())))

    assert ended(monkeypatch, "-", "-o", "json") == ExitStatus.MISCONFIGURED
    told = json.loads(capsys.readouterr().out)
    assert (told["file"], told["accepted"]) == ("stdin", False)
    assert [(one["level"], one["line"], one["key"]) for one in told["remarks"]] == [
        ("error", 2, "provision[0].pf"),
        ("error", 3, "odd"),
    ]


@pytest.mark.parametrize("kind", ["absent", "a folder", "binary", "huge", "a name with a NUL"])
def test_file_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path = tmp_path / "node.yaml"
    match kind:
        case "a folder":
            path.mkdir()
        case "binary":
            path.write_bytes(b"\x7fELF\xff\xfe")
        case "huge":
            path.touch()
            os.truncate(path, 1 << 40)
    name = f"{path}\0" if kind == "a name with a NUL" else str(path)

    assert ended(monkeypatch, name) == ExitStatus.MISCONFIGURED
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"railnet: {path}")
    assert ("has more than 4 MiB" if kind == "huge" else "cannot be read") in said.err


def test_only_root_compares_with_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node.yaml").write_text(GOOD)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert ended(monkeypatch, str(tmp_path / "node.yaml"), "--on-node") == ExitStatus.NO_PRIVILEGE
    assert "railnet config check --on-node needs root" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["a", "--plugins", "/x"]])
def test_wrong_command_line_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    assert ended(monkeypatch, *arguments) == ExitStatus.USAGE


def test_text_of_another_encoding_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node.yaml").write_bytes(GOOD.encode("utf-16"))

    assert ended(monkeypatch, str(tmp_path / "node.yaml")) == ExitStatus.MISCONFIGURED
    assert capsys.readouterr().err == (
        f"railnet: {tmp_path}/node.yaml cannot be read: it is no text in UTF-8 from byte 0 on; save it as UTF-8\n"
    )

"""Every command says in a sentence what it does, under the name by which the program was started."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from railnet import VERSION
from railnet import __main__ as command
from railnet.__main__ import _parser
from railnet.cli.exit_status import ExitStatus
from railnet.cli.program_name import program_name


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str | None]]:
    """Yield each command below a parser, with its line in that parser's help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            lines = {one.dest: one.help for one in action._choices_actions}
            for name, one in action.choices.items():
                yield one, lines.get(name)
                yield from commands(one)


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr("sys.argv", list(arguments))
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 0
    return capsys.readouterr().out


COMMANDS = {one.prog: (one, line) for one, line in commands(_parser())}


def test_commands_of_both_levels_are_found() -> None:
    assert {"railnet version", "railnet admission explain", "railnet train top"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_a_line_in_the_help_and_a_sentence_of_its_own(name: str) -> None:
    found, line = COMMANDS[name]

    assert line
    assert found.description == f"{line[0].upper()}{line[1:]}."


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_a_command_says_what_it_does(name: str) -> None:
    options = [one for one in COMMANDS[name][0]._actions if not isinstance(one, argparse._SubParsersAction)]

    assert [one.dest for one in options if not one.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_can_be_printed(name: str) -> None:
    assert COMMANDS[name][0].format_help().startswith(f"usage: {name}")


def test_help_has_the_exit_statuses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(monkeypatch, capsys, "railnet", "--help")

    assert [status.meaning for status in ExitStatus if status.meaning not in text] == []


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
def test_version_is_printed_by_a_command_and_by_an_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert printed(monkeypatch, capsys, "railnet", *arguments) == f"{VERSION}\n"


@pytest.mark.parametrize(
    ("started_as", "name"),
    [
        ("/usr/local/bin/kubectl-railnet", "kubectl railnet"),
        ("kubectl-railnet", "kubectl railnet"),
        ("/opt/railnet/bin/railnet", "railnet"),
        ("/src/railnet/__main__.py", "railnet"),
        ("", "railnet"),
    ],
)
def test_usage_names_the_plugin_of_kubectl_as_a_person_runs_it(started_as: str, name: str) -> None:
    assert program_name(started_as) == name


@pytest.mark.slow
def test_link_makes_the_program_a_plugin_of_kubectl(tmp_path: Path) -> None:
    (tmp_path / "railnet").write_text(f"#!{sys.executable}\nfrom railnet.__main__ import main\nmain()\n")
    (tmp_path / "railnet").chmod(0o755)
    (tmp_path / "kubectl-railnet").symlink_to("railnet")

    done = subprocess.run([tmp_path / "kubectl-railnet", "train"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("usage: kubectl railnet train [-h]")

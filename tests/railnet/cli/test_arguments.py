"""An option has one name, one meaning and one text in all commands; what a command does not heed it refuses."""

import argparse
from collections.abc import Iterator

import pytest

from railnet.__main__ import _parser
from railnet.cli.arguments import output_of
from railnet.cli.exit_status import ExitStatus
from railnet.cli.output import Form

SHARED = {
    "--kubeconfig": ["--kubeconfig"],
    "--context": ["--context"],
    "--namespace": ["-n", "--namespace"],
    "--all-namespaces": ["-A", "--all-namespaces"],
    "--output": ["-o", "--output"],
    "--json": ["--json"],
    "--no-color": ["--no-color"],
}
CLUSTER = {"--kubeconfig", "--context"}
PRINTS = {"--output", "--json", "--no-color"}
LISTS = CLUSTER | PRINTS | {"--namespace", "--all-namespaces"}
HEEDED = {
    "railnet status": PRINTS,
    "railnet doctor": CLUSTER | PRINTS | {"--namespace"},
    "railnet validate": CLUSTER | PRINTS | {"--namespace"},
    "railnet bundle": CLUSTER,
    "railnet config check": PRINTS,
    "railnet plan": CLUSTER | PRINTS,
    "railnet train up": CLUSTER | {"--output"},
    "railnet train down": CLUSTER | {"--namespace"},
    "railnet train ls": LISTS,
    "railnet train logs": CLUSTER | {"--namespace"},
    "railnet train top": LISTS,
}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield each command's parser below one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from parsers(command)


COMMANDS = list(parsers(_parser()))


@pytest.mark.parametrize("option", SHARED)
def test_shared_option_has_the_same_names_everywhere(option: str) -> None:
    found = [action for command in COMMANDS for action in command._actions if option in action.option_strings]

    assert found
    assert {tuple(action.option_strings) for action in found} == {tuple(SHARED[option])}


def test_each_command_has_the_shared_options_that_it_heeds_and_no_other() -> None:
    found = {
        command.prog: {option for action in command._actions for option in action.option_strings if option in SHARED}
        for command in COMMANDS
    }

    assert {name: options for name, options in found.items() if options} == HEEDED


@pytest.mark.parametrize("options", [["--json"], ["-o", "json"], ["--output=json"], ["-ojson"]])
@pytest.mark.parametrize("command", [["status"], ["doctor"], ["validate"], ["train", "ls"], ["train", "top"]])
def test_json_is_chosen_by_both_options(command: list[str], options: list[str]) -> None:
    assert output_of(_parser().parse_args([*command, *options])).form is Form.JSON


@pytest.mark.parametrize(("command", "wide"), [("status", False), ("doctor", False), ("validate", True)])
def test_wide_is_refused_where_there_is_nothing_more_to_show(
    command: str, wide: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if wide:
        assert output_of(_parser().parse_args([command, "-o", "wide"])).wide
        return
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args([command, "-o", "wide"])
    assert ended.value.code == 2


@pytest.mark.parametrize("verb", ["ls", "top"])
def test_all_namespaces_are_shown_by_default_and_by_an_option_that_excludes_a_name(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _parser().parse_args(["train", verb]).namespace is None
    assert _parser().parse_args(["train", verb, "-A"]).namespace is None
    assert _parser().parse_args(["train", verb, "--namespace", "ml"]).namespace == "ml"
    with pytest.raises(SystemExit):
        _parser().parse_args(["train", verb, "-A", "-n", "ml"])


@pytest.mark.parametrize(
    "line",
    [
        "plan --vfs x",
        "plan --vfs 1.5",
        "plan --vfs 0",
        "plan --timeout x",
        "bundle --timeout x",
        "validate --seconds x",
        "uninstall --cluster --timeout x",
    ],
)
def test_option_that_is_no_number_is_said_without_the_name_of_a_function(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(line.split())

    assert ended.value.code == 2
    assert " is no number" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["train ls", "train top", "train down a", "train logs a", "doctor --pod a", "validate"]
)
@pytest.mark.parametrize("name", ["a b", "../kube-system", "", "Ml", "a" * 64])
def test_namespace_that_is_none_is_refused(line: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args([*line.split(), "-n", name])

    assert ended.value.code == 2
    assert " is no name of a namespace, which has " in capsys.readouterr().err


CONFIGURED = [parser for parser in COMMANDS if any("--config" in action.option_strings for action in parser._actions)]


@pytest.mark.parametrize("command", CONFIGURED, ids=lambda command: command.prog)
def test_empty_path_of_the_configuration_is_an_error_of_the_command_line(
    command: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.parse_args(["--config", ""])

    assert ended.value.code == ExitStatus.USAGE
    assert "argument --config: the path is empty; name a file, or leave --config out" in capsys.readouterr().err

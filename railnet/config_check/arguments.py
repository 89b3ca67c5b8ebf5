"""The command line of `railnet config`, and what it runs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from railnet.cli.arguments import add_command, add_output, output_of
from railnet.cli.exit_status import ExitStatus

TYPE_CHECKING = False  # typing's own constant: a command that reads no file imports none of it
if TYPE_CHECKING:
    from railnet.config_check.remark import Remark


def add(config: argparse.ArgumentParser) -> None:
    """Add the commands of `railnet config` to its parser."""
    commands = config.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = add_command(
        commands, "check", "say what is wrong with a node configuration or with the chart's values, line by line"
    )
    check.add_argument("file", metavar="FILE", help="node.yaml, or a values file of the chart; - is stdin")
    check.add_argument(
        "--on-node",
        action="store_true",
        help="compare with this node, too: which cards its selectors match, and which IPAM plugins it has",
    )
    add_output(check)


def run(arguments: argparse.Namespace) -> ExitStatus:
    """Check a file, print what is to say about it, and return the exit status.

    Raises:
        Misconfigured: the file cannot be read. PermissionError: this node's files may be read by root alone.
    """
    from railnet.cli.process import require_root  # noqa: PLC0415 - `railnet version` needs none of it
    from railnet.config_check import file_check  # noqa: PLC0415

    source = "stdin" if arguments.file == "-" else arguments.file
    text = _text(arguments.file, source)
    if arguments.on_node:
        require_root("railnet config check --on-node", "it reads the host's files")
        remarks = _on_node(text)
    else:
        remarks = file_check.check(text)
    accepted = all(remark.level != "error" for remark in remarks)
    told = {"file": source, "accepted": accepted, "remarks": [remark._asdict() for remark in remarks]}
    output_of(arguments).show(told, _lines(source, remarks))
    return ExitStatus.OK if accepted else ExitStatus.MISCONFIGURED


def _text(file: str, source: str) -> str:
    from railnet.configuration import text_of  # noqa: PLC0415
    from railnet.errors import Misconfigured  # noqa: PLC0415

    try:
        if file == "-":
            return text_of(sys.stdin.buffer, source)
        with Path(file).open("rb") as opened:
            return text_of(opened, source)
    except (OSError, ValueError) as error:  # a path may have a NUL
        reason = getattr(error, "strerror", None) or error
        raise Misconfigured(f"{source} cannot be read: {reason!s:.200}; name a file, or - for stdin") from None


def _on_node(text: str) -> "Sequence[Remark]":
    from railnet.config_check import file_check, node_comparison  # noqa: PLC0415

    return file_check.check(text, file_check.ThisNode(node_comparison.plugins, node_comparison.compare))


def _lines(source: str, remarks: "Sequence[Remark]") -> list[str]:
    lines = [
        f"{source}:{'' if remark.line is None else f'{remark.line}:'} {remark.level}: {remark.message}"
        for remark in remarks
    ]
    errors = sum(remark.level == "error" for remark in remarks)
    if errors:
        return [*lines, f"{source}: {errors} {'error' if errors == 1 else 'errors'}"]
    return [*lines, f"{source}: the daemon accepts it"]

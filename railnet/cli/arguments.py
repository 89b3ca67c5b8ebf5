"""The options that commands share: each is declared here, so that it has one name and one meaning everywhere.

A command has an option only if it heeds it.
"""

import argparse
import re
from pathlib import Path
from typing import TypeAlias

from railnet.cli.output import Form, Output, chosen

RAILS = "rdma/ib_vf"  # the resource of the default pool
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123, as Kubernetes' names of namespaces

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - argparse has no other name for it


def add_command(commands: Commands, name: str, does: str) -> argparse.ArgumentParser:
    """Add a command; `does` says what it does, as one sentence without its capital and its full stop."""
    return commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")


def add_connection(command: argparse.ArgumentParser) -> None:
    """Add what chooses the API server."""
    command.add_argument(
        "--kubeconfig", metavar="FILE", help="the kubeconfig (KUBECONFIG, else ~/.kube/config, else this pod's account)"
    )
    command.add_argument("--context", metavar="NAME", help="the context of the kubeconfig (its current one)")


def add_namespace(command: argparse._ActionsContainer, does: str, default: str | None = None) -> None:
    """Add `-n`; `does` says what it is for."""
    command.add_argument("-n", "--namespace", metavar="NAME", type=_namespace, default=default, help=does)


def _namespace(text: str) -> str:
    if _NAMESPACE.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is no name of a namespace, which has lower-case letters, digits and hyphens, at most 63"
        )
    return text


def add_namespaces(command: argparse.ArgumentParser) -> None:
    """Add `-n` and `-A` to a command that shows all namespaces unless one is named."""
    which = command.add_mutually_exclusive_group()
    add_namespace(which, "only in this namespace")
    which.add_argument(
        "-A",
        "--all-namespaces",
        dest="namespace",
        action="store_const",
        const=None,
        help="in all namespaces, as without -n",
    )


def add_output(command: argparse.ArgumentParser, wide: str = "", *, ctrf: bool = False) -> None:
    """Add what chooses how the command prints; `wide` says what `-o wide` has more, if there is more; `ctrf` adds `-o ctrf`."""
    forms = [Form.JSON, Form.YAML, *([Form.WIDE] if wide else []), *([Form.CTRF] if ctrf else [])]
    more = (f"; wide: {wide}" if wide else "") + ("; ctrf: the Common Test Report Format" if ctrf else "")
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "-o", "--output", choices=[str(form) for form in forms], help=f"print it as JSON or YAML{more} (a table)"
    )
    which.add_argument("--json", dest="output", action="store_const", const=str(Form.JSON), help="as -o json")
    command.add_argument("--no-color", action="store_true", help="no colours on a terminal, as with NO_COLOR")


def add_rails(command: argparse.ArgumentParser) -> None:
    """Add which resources are rails."""
    command.add_argument(
        "--rails",
        action="append",
        metavar="RESOURCE",
        help=f"a resource whose devices are VFs of rails; may be repeated ({RAILS})",
    )


def add_configuration(command: argparse.ArgumentParser, default: Path | str, shown: Path) -> None:
    """Add `--config`; `shown` is where the file is without it, also where `default` is argparse.SUPPRESS."""
    command.add_argument("--config", type=_file, default=default, help=f"the node configuration ({shown})")


def _file(text: str) -> Path:
    if not text:  # as of a variable that is not set; Path makes the working folder of it
        raise argparse.ArgumentTypeError("the path is empty; name a file, or leave --config out")
    return Path(text)


def number_of(text: str) -> float:
    """Return the number of an option's text. argparse's own message would name the function that reads it.

    Raises:
        argparse.ArgumentTypeError: it is no number.
    """
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is no number") from None


def output_of(arguments: argparse.Namespace) -> Output:
    """Return the output that was chosen."""
    return chosen(arguments.output, no_color=arguments.no_color)


def rails_of(arguments: argparse.Namespace) -> frozenset[str]:
    """Return the resources that are rails."""
    return frozenset(arguments.rails or (RAILS,))

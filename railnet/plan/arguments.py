"""The command line of `railnet plan`, and what it runs."""

import argparse
import os
from pathlib import Path
from typing import Any

from railnet.cli.arguments import add_connection, add_output, number_of, output_of
from railnet.cli.exit_status import ExitStatus
from railnet.cli.messages import say

TYPE_CHECKING = False  # typing's own constant: a command that plans nothing imports none of it
if TYPE_CHECKING:
    from railnet.plan.cluster_reading import Reading

_MOST_VFS = 65535  # NumVFs has 16 bits (SR-IOV 1.1, 3.3.7)


def add(plan: argparse.ArgumentParser) -> None:
    """Add the options."""
    plan.add_argument(
        "--diff", action="store_true", help="print how the proposal differs from what runs, in place of it"
    )
    plan.add_argument(
        "--vfs",
        type=_vfs,
        metavar="N",
        help="VFs of each rail (as many as there are now, else one for each GPU of a node, else 8)",
    )
    plan.add_argument("-l", "--selector", default="", metavar="LABELS", help="only the nodes with these labels")
    plan.add_argument(
        "--timeout", type=_seconds, default=300.0, metavar="SECONDS", help="how long the nodes may take together (300)"
    )
    plan.add_argument(
        "--bundle", type=Path, metavar="FILE", help="the nodes of a file of `railnet bundle`, without a cluster"
    )
    add_output(plan)
    add_connection(plan)


def _vfs(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= _MOST_VFS):  # noqa: PLR2004 - int() has a limit
        raise argparse.ArgumentTypeError(f"{text!r:.80} is no number of VFs from 1 to {_MOST_VFS}")
    return int(text)


def _seconds(text: str) -> float:
    seconds = number_of(text)
    if not 0 < seconds <= 86400:  # noqa: PLR2004 - a day
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds from above 0 to a day")
    return seconds


def run(arguments: argparse.Namespace) -> ExitStatus:
    """Print the proposal or its difference, and return the exit status: 6 if a node was not seen, 1 if a difference was asked for and found.

    Raises:
        Misconfigured: there is no kubeconfig, or the bundle cannot be read.
    """
    if arguments.bundle is not None and (arguments.selector or arguments.kubeconfig or arguments.context):
        say(
            "--bundle asks no cluster, and plans all nodes of the file: leave out --selector, --kubeconfig and --context"
        )
        return ExitStatus.USAGE
    from railnet.apiserver.client import RequestFailed  # noqa: PLC0415 - `railnet version` needs none of it

    try:
        reading = _of_bundle(arguments.bundle) if arguments.bundle is not None else _of_cluster(arguments)
    except RequestFailed as error:
        say(error)
        return ExitStatus.UNKNOWN
    return _show(arguments, reading)


def _show(arguments: argparse.Namespace, reading: "Reading") -> ExitStatus:
    from railnet.plan import differences, values_text  # noqa: PLC0415
    from railnet.plan.planning import plan  # noqa: PLC0415

    proposal = plan(reading, arguments.vfs)
    found_differences = differences.differences(proposal, reading.nodes, reading.running)
    told: dict[str, Any] = values_text.as_document(proposal, reading.nodes, reading.unseen)
    told["differences"] = [difference._asdict() for difference in found_differences]
    output = output_of(arguments)
    if arguments.diff:
        output.show(told, differences.lines(found_differences, reading.running.unread))
    else:
        output.show(told, values_text.lines(proposal, reading.nodes, reading.unseen))
    for sentence in values_text.not_seen(reading.unseen):
        say(f"not seen: {sentence}")
    if arguments.diff and found_differences:
        return ExitStatus.FAILED
    is_unknown = bool(reading.unseen) or (arguments.diff and bool(reading.running.unread))
    return ExitStatus.UNKNOWN if is_unknown else ExitStatus.OK


def _of_bundle(file: Path) -> "Reading":
    from railnet.bundle import archive  # noqa: PLC0415
    from railnet.plan import bundle_reading  # noqa: PLC0415

    return bundle_reading.read(archive.read(file))


def _of_cluster(arguments: argparse.Namespace) -> "Reading":
    from railnet.cli.connection import connect_with_exec  # noqa: PLC0415
    from railnet.plan.cluster_reading import WantedNodes, read  # noqa: PLC0415

    api, execution = connect_with_exec(os.environ, arguments.kubeconfig, arguments.context, "railnet plan")
    return read(api, execution, WantedNodes(arguments.selector, arguments.timeout), say)

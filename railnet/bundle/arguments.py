"""The command line of `railnet bundle`, and what it runs."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from railnet.cli.arguments import add_configuration, add_connection, add_rails, number_of, rails_of
from railnet.cli.exit_status import ExitStatus
from railnet.cli.messages import say, tell

TYPE_CHECKING = False  # typing's own constant: a command that makes no bundle imports none of it
if TYPE_CHECKING:
    from railnet.bundle.parts import BundleParts


def add(bundle: argparse.ArgumentParser, configuration: Path) -> None:
    """Add the options; `configuration` is where the node's configuration is by default."""
    bundle.add_argument(
        "file", nargs="?", type=Path, metavar="FILE.tar.gz", help="the archive to write (railnet-bundle-TIME.tar.gz)"
    )
    which = bundle.add_mutually_exclusive_group()
    which.add_argument(
        "--node", action="append", default=[], metavar="NAME", help="this node, by a kubeconfig; may be repeated"
    )
    which.add_argument("--all", action="store_true", help="all nodes, by a kubeconfig")
    which.add_argument(
        "-l", "--selector", default="", metavar="LABELS", help="the nodes with these labels, by a kubeconfig"
    )
    which.add_argument(
        "--print", action="store_true", help="print the part of this node as JSON in place of writing an archive"
    )
    add_configuration(bundle, configuration, configuration)
    bundle.add_argument(
        "--timeout", type=_seconds, default=300.0, metavar="SECONDS", help="how long the nodes may take together (300)"
    )
    add_rails(bundle)
    add_connection(bundle)


def _seconds(text: str) -> float:
    seconds = number_of(text)
    if not 0 < seconds <= 86400:  # noqa: PLR2004 - a day
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds from above 0 to a day")
    return seconds


def run(arguments: argparse.Namespace) -> ExitStatus:
    """Make a bundle, and return the exit status: 6 if something that was asked for is left out.

    Raises:
        Misconfigured: the archive cannot be where it was asked for, no node is as asked, or there is no kubeconfig.
        OSError: the archive cannot be written.
    """
    from railnet.apiserver.client import RequestFailed  # noqa: PLC0415 - `railnet version` needs none of it

    try:
        return _run(arguments)
    except RequestFailed as error:
        say(error)
        return ExitStatus.FAILED


def _run(arguments: argparse.Namespace) -> ExitStatus:
    from railnet.bundle import archive  # noqa: PLC0415

    if arguments.print:
        if arguments.file is not None:
            say(f"--print writes no archive, and {arguments.file} would be one; leave out one of the two")
            return ExitStatus.USAGE
        json.dump(_of_this_node(arguments).as_json(), sys.stdout)
        sys.stdout.write("\n")
        return ExitStatus.OK
    path = arguments.file or Path(time.strftime("railnet-bundle-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime()))
    by_api = bool(arguments.node or arguments.all or arguments.selector)
    asked: dict[str, Any] = {
        "nodes": arguments.node or ("all" if arguments.all else arguments.selector or "the node of the command")
    }
    with archive.new(path) as file:  # before the parts are gathered, which takes minutes
        parts = _of_cluster(arguments) if by_api else _of_this_node(arguments)
        archive.write(file, parts, asked)
    for entry in parts.left_out:
        say(f"left out: {entry.what}: {entry.why}")
    tell(f"{path} has {len(parts.texts)} files, {path.stat().st_size} bytes; look through them before you send them")
    return ExitStatus.UNKNOWN if parts.left_out else ExitStatus.OK


def _of_this_node(arguments: argparse.Namespace) -> "BundleParts":
    from cni.host.daemon import SOCKET  # noqa: PLC0415
    from railnet.bundle import node_part  # noqa: PLC0415
    from railnet.bundle.parts import BundleParts as NewParts  # noqa: PLC0415
    from railnet.cli.process import require_root  # noqa: PLC0415

    require_root(
        "railnet bundle",
        "it reads the host's files, and the daemon answers only root; --node, --all and -l need no root",
    )
    say("this node: doctor, status, journal, CNI configurations, kubelet's devices")
    places = node_part.NodeFiles(arguments.config, Path(SOCKET))
    parts = node_part.gather(places)
    if arguments.print:
        return parts
    whole = NewParts(node_part.MOST_NODE_BYTES * 2)
    whole.take(json.loads(json.dumps(parts.as_json())), f"nodes/{os.uname().nodename}")
    return whole


def _of_cluster(arguments: argparse.Namespace) -> "BundleParts":
    from railnet.bundle.cluster_part import ClusterBundle, Wanted  # noqa: PLC0415
    from railnet.cli.connection import connect_with_exec  # noqa: PLC0415
    from railnet.doctor import cluster_checks, cluster_gathering, doctor_table  # noqa: PLC0415

    api, execution = connect_with_exec(os.environ, arguments.kubeconfig, arguments.context, "railnet bundle")
    rails = rails_of(arguments)
    wanted = Wanted(tuple(arguments.node), arguments.selector, arguments.timeout)
    return ClusterBundle(api, execution, wanted, say).gather(
        lambda: doctor_table.as_json(cluster_checks.findings(cluster_gathering.gather(api, rails)))
    )

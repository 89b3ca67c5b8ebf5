"""The command line of `railnet doctor`."""

import argparse
from pathlib import Path

from railnet.cli.arguments import add_configuration, add_connection, add_namespace, add_output, add_rails


def add(doctor: argparse.ArgumentParser, configuration: Path) -> None:
    """Add the options; `configuration` is where the node's configuration is by default."""
    add_output(doctor)
    add_configuration(doctor, configuration, configuration)
    what = doctor.add_mutually_exclusive_group()
    what.add_argument("--pod", metavar="NAME", help="look at this pod by a kubeconfig, and not at this node")
    what.add_argument("--cluster", action="store_true", help="look at all nodes and pods by a kubeconfig")
    what.add_argument(
        "--bundle", type=Path, metavar="FILE", help="show what was found when `railnet bundle` wrote this file"
    )
    doctor.add_argument(
        "--validated",
        type=Path,
        metavar="FILE",
        help="with --pod: the report of `railnet validate -o json`, which says which rails reach each other (what `--publish` of it has left)",
    )
    add_namespace(doctor, "the pod's namespace (default)", default="default")
    add_rails(doctor)
    add_connection(doctor)

"""The command line of `railnet doctor`."""

import argparse
from pathlib import Path


def add(doctor: argparse.ArgumentParser, configuration: Path) -> None:
    """Add the options; `configuration` is where the node's configuration is by default."""
    doctor.add_argument("--json", action="store_true", help="print it as JSON")
    doctor.add_argument("--config", type=Path, default=configuration, help=f"the node configuration ({configuration})")
    what = doctor.add_mutually_exclusive_group()
    what.add_argument("--pod", metavar="NAME", help="look at this pod by a kubeconfig, and not at this node")
    what.add_argument("--cluster", action="store_true", help="look at all nodes and pods by a kubeconfig")
    doctor.add_argument("-n", "--namespace", default="default", help="the pod's namespace (default)")
    doctor.add_argument(
        "--rails",
        action="append",
        metavar="RESOURCE",
        help="a resource whose devices are VFs of rails; may be repeated (rdma/ib_vf)",
    )
    doctor.add_argument(
        "--kubeconfig", help="the kubeconfig (KUBECONFIG, else ~/.kube/config, else this pod's account)"
    )
    doctor.add_argument("--context", help="the context of the kubeconfig (its current one)")

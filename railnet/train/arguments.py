"""The command line of `railnet train`, and what each of its commands runs."""

import argparse
import os
import sys
from pathlib import Path

_INTERRUPTED = 130  # as a shell reports Ctrl-C


def add(train: argparse.ArgumentParser) -> None:
    """Add the commands of `railnet train` to its parser."""
    commands = train.add_subparsers(dest="verb", required=True)
    up = commands.add_parser("up", help="create the job of a file, and wait until it runs")
    up.add_argument("-f", dest="file", required=True, help="the job, as YAML; - is stdin")
    down = commands.add_parser("down", help="delete a job and all that belongs to it")
    ls = commands.add_parser("ls", help="show the jobs and their tasks")
    logs = commands.add_parser("logs", help="print what the tasks of a job have written")
    top = commands.add_parser("top", help="show what each job requests, what is free, and what waiting pods wait for")
    for command in (down, logs):
        command.add_argument("name", help="the job")
    for command in (up, down):
        command.add_argument("--no-wait", action="store_true", help="return when the API server has the request")
    for command in (down, ls, logs, top):
        command.add_argument("-n", dest="namespace", help="only in this namespace")
    for command in (ls, top):
        command.add_argument("--json", action="store_true", help="print it as JSON")
    logs.add_argument("--task", action="append", default=[], help="only this task, such as worker-0; may be repeated")
    kind = logs.add_mutually_exclusive_group()
    kind.add_argument("-f", dest="follow", action="store_true", help="follow until the tasks have ended")
    kind.add_argument(
        "--pack", type=Path, metavar="FILE.tar.gz", help="write the logs into an archive, a file for each task"
    )
    top.add_argument("--watch", action="store_true", help="print it again when something has changed, until Ctrl-C")
    top.add_argument(
        "--rails",
        action="append",
        metavar="RESOURCE",
        help="a resource whose devices are VFs of rails; may be repeated (rdma/ib_vf)",
    )
    for command in (up, down, ls, logs, top):
        command.add_argument(
            "--kubeconfig", help="the kubeconfig (KUBECONFIG, else ~/.kube/config, else this pod's account)"
        )
        command.add_argument("--context", help="the context of the kubeconfig (its current one)")


def run(arguments: argparse.Namespace) -> int:
    """Run a command, and return its exit status.

    Raises:
        Misconfigured, OSError: it cannot be done; the message says why.
    """
    from railnet.apiserver.client import RequestFailed  # noqa: PLC0415 - `railnet version` needs none of it
    from railnet.train.failure import TrainFailed  # noqa: PLC0415

    try:
        return 0 if _run(arguments) else 1
    except (RequestFailed, TrainFailed) as error:
        print(f"railnet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(arguments: argparse.Namespace) -> bool:
    from railnet.cli.connection import connect  # noqa: PLC0415
    from railnet.train import down, logs, ls, top, up  # noqa: PLC0415

    api = connect(os.environ, arguments.kubeconfig, arguments.context)
    match arguments.verb:
        case "up":
            return up.up(api, arguments.file, wait=not arguments.no_wait)
        case "down":
            return down.down(api, arguments.name, arguments.namespace, wait=not arguments.no_wait)
        case "ls":
            ls.ls(api, arguments.namespace, as_json=arguments.json)
        case "logs":
            wanted = {"follow": arguments.follow, "pack": arguments.pack}
            return logs.logs(api, arguments.name, arguments.namespace, arguments.task, **wanted)
        case _:
            show = top.watch if arguments.watch else top.top
            show(api, arguments.namespace, frozenset(arguments.rails or (top.RAILS,)), json_text=arguments.json)
    return True

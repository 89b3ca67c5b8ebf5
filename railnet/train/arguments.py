"""The command line of `railnet train`, and what each of its commands runs."""

import argparse
import os
from pathlib import Path

from railnet.cli.arguments import (
    add_command,
    add_connection,
    add_namespace,
    add_namespaces,
    add_output,
    add_rails,
    output_of,
    rails_of,
)
from railnet.cli.exit_status import ExitStatus
from railnet.cli.messages import say
from railnet.cli.output import Form, chosen
from railnet.jobs.train_job.operator_objects import OPERATOR_OBJECTS
from railnet.train import job_template
from railnet.train.job_template import KINDS, NAME


def add(train: argparse.ArgumentParser) -> None:
    """Add the commands of `railnet train` to its parser."""
    commands = train.add_subparsers(dest="verb", metavar="VERB", required=True)
    init = add_command(commands, "init", "write the file of a job, with comments, to begin with")
    up = add_command(commands, "up", "create the job of a file, and wait until it runs")
    down = add_command(commands, "down", "delete a job and all that belongs to it")
    ls = add_command(commands, "ls", "show the jobs and their tasks")
    logs = add_command(commands, "logs", "print what the tasks of a job have written")
    top = add_command(commands, "top", "show what each job requests, what is free, and what waiting pods wait for")
    _add_init(init)
    _add_up(up)
    for command in (down, logs):
        command.add_argument("name", help="the job")
        add_namespace(command, "only in this namespace")
    for command in (up, down):
        command.add_argument("--no-wait", action="store_true", help="return when the API server has the request")
    _add_logs(logs)
    for command, wide in ((ls, "when each job was created, and its nodes"), (top, "the operator of each job")):
        add_namespaces(command)
        add_output(command, wide)
    top.add_argument("--watch", action="store_true", help="print it again when something has changed, until Ctrl-C")
    add_rails(top)
    for command in (up, down, ls, logs, top):
        add_connection(command)


def _add_init(init: argparse.ArgumentParser) -> None:
    init.add_argument("kind", choices=KINDS, help="what the job runs")
    init.add_argument("file", nargs="?", metavar="FILE", help="write it here (standard output)")
    init.add_argument("--name", default=NAME, help=f"the job's name ({NAME})")
    init.add_argument("--force", action="store_true", help="replace a file that there is already")


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument("-f", dest="file", metavar="FILE", required=True, help="the job, as YAML; - is stdin")
    up.add_argument(
        "--dry-run",
        choices=("client", "server"),
        help="create nothing: client: without a cluster; server: have the API server check each object",
    )
    up.add_argument(
        "-o",
        "--output",
        choices=(str(Form.JSON), str(Form.YAML)),
        help="with --dry-run: print the objects (their names)",
    )
    up.add_argument(
        "--as",
        dest="made_as",
        choices=tuple(OPERATOR_OBJECTS),
        help="create the object of an operator that the cluster has (plain Jobs and Services)",
    )
    up.set_defaults(refuse=up.error)


def _add_logs(logs: argparse.ArgumentParser) -> None:
    logs.add_argument("--task", action="append", default=[], help="only this task, such as worker-0; may be repeated")
    kind = logs.add_mutually_exclusive_group()
    kind.add_argument("-f", dest="follow", action="store_true", help="follow until the tasks have ended")
    kind.add_argument(
        "--pack", type=Path, metavar="FILE.tar.gz", help="write the logs into an archive, a file for each task"
    )


def run(arguments: argparse.Namespace) -> ExitStatus:
    """Run a command, and return its exit status.

    Raises:
        Misconfigured, OSError: it cannot be done; the message says why.
    """
    from railnet.apiserver.client import RequestFailed  # noqa: PLC0415 - `railnet version` needs none of it
    from railnet.train.failure import TrainFailed  # noqa: PLC0415

    try:
        return ExitStatus.of(well=_run(arguments))
    except (RequestFailed, TrainFailed) as error:
        say(error)
        return ExitStatus.FAILED


def _run(arguments: argparse.Namespace) -> bool:
    from railnet.cli.connection import connect  # noqa: PLC0415
    from railnet.train import down, logs, ls, top  # noqa: PLC0415

    if arguments.verb == "init":
        job_template.write(arguments.kind, arguments.name, arguments.file, force=arguments.force)
        return True
    if arguments.verb == "up":
        return _up(arguments)
    api = connect(os.environ, arguments.kubeconfig, arguments.context)
    match arguments.verb:
        case "down":
            return down.down(api, arguments.name, arguments.namespace, wait=not arguments.no_wait)
        case "ls":
            ls.ls(api, arguments.namespace, output_of(arguments))
        case "logs":
            wanted = {"follow": arguments.follow, "pack": arguments.pack}
            return logs.logs(api, arguments.name, arguments.namespace, arguments.task, **wanted)
        case _:
            show = top.watch if arguments.watch else top.top
            show(api, arguments.namespace, rails_of(arguments), output_of(arguments))
    return True


def _up(arguments: argparse.Namespace) -> bool:
    """Read the file first: what is wrong with it is said without a cluster."""
    from railnet.cli.connection import connect  # noqa: PLC0415
    from railnet.train import dry_run, up  # noqa: PLC0415

    if arguments.output and not arguments.dry_run:
        arguments.refuse("-o prints objects that are not created: add --dry-run=client, or --dry-run=server")
    file = up.read(arguments.file, arguments.made_as)
    output = chosen(arguments.output, no_color=True)
    if arguments.dry_run == "client":
        return dry_run.client(file, output)
    api = connect(os.environ, arguments.kubeconfig, arguments.context)
    if arguments.dry_run == "server":
        return dry_run.server(api, file, output)
    return up.up(api, file, wait=not arguments.no_wait)

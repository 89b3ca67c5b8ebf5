"""The railnet command: which commands there are, and what each runs."""

import argparse
import math
import os
import sys
from functools import partial
from pathlib import Path

from railnet import VERSION, daemon_process
from railnet.bundle import arguments as bundle
from railnet.cli.arguments import add_command, add_configuration, add_output, number_of, output_of, rails_of
from railnet.cli.closed_pipe import ended_by_a_closed_pipe
from railnet.cli.completion import SHELLS, complete, script
from railnet.cli.exit_status import ExitStatus
from railnet.cli.messages import say
from railnet.cli.process import end_with, fail, log_to_stderr, require_root
from railnet.cli.program_name import RAILNET, program_name
from railnet.cli.standard_streams import open_closed_streams, write_utf_8
from railnet.config_check import arguments as config_check
from railnet.configuration_path import DEFAULT_PATH
from railnet.daemon_process import DaemonOptions
from railnet.doctor import arguments as doctor
from railnet.plan import arguments as plan
from railnet.train import arguments as train
from railnet.validate import arguments as validate

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HEALTH_PORT = 9474


def main() -> None:
    """Run one subcommand and exit with its status."""
    open_closed_streams()
    write_utf_8()
    with ended_by_a_closed_pipe():
        arguments = _arguments()
        end_with(arguments.command, partial(_RUN[arguments.command], arguments))


def _arguments() -> argparse.Namespace:
    parser = _parser(program_name(sys.argv[0]))
    complete(parser)
    return parser.parse_args()


def _parser(name: str = RAILNET) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        description="A second, InfiniBand network for training pods: what serves it, and what shows and measures it.",
        epilog="\n".join(("exit status:", *(f"  {status.value:<4} {status.meaning}" for status in ExitStatus))),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=VERSION, help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    node = add_command(commands, "node", "serve this node until SIGTERM")
    install = add_command(
        commands, "install", "put the plugin executable on this host; the daemon then makes the runtime use it"
    )
    uninstall = add_command(
        commands,
        "uninstall",
        "give the runtime back to its primary network, and remove the executable when no sandbox needs it",
    )
    _uninstalling(uninstall)
    admission = add_command(
        commands,
        "admission",
        "give training pods VFs and environment when they are created: serve until SIGTERM, or explain",
    )
    _serving(admission)
    explain = add_command(
        admission.add_subparsers(dest="verb", metavar="VERB"),
        "explain",
        "say what would be done to the pods of a file, and why, without a cluster",
    )
    explain.add_argument(
        "-f",
        dest="file",
        required=True,
        help="jobs or Pods, and their Namespaces if labelled, as YAML or JSON; - is stdin",
    )
    controllers = add_command(
        commands, "controllers", "reconcile what training jobs need beside their pods: serve until SIGTERM"
    )
    _in_cluster(controllers)
    controllers.add_argument(
        "--clean-up",
        action="store_true",
        help="delete parameter servers whose workers are complete, and training namespaces whose time is over",
    )
    controllers.add_argument(
        "--gangs",
        action="store_true",
        help="place gangs whole, and remove the gates of their pods (`railnet admission --gangs` adds the gates)",
    )
    for command in (node, install, uninstall, admission, explain, controllers):
        # Of `admission --config FILE explain`, the half that stands last would else put its default over the other's.
        default = argparse.SUPPRESS if command is explain else DEFAULT_PATH
        add_configuration(command, default, DEFAULT_PATH)
    for command in (node, uninstall):
        command.add_argument(
            "--health-port",
            type=int,
            default=_HEALTH_PORT,
            help=f"answer /healthz, /readyz and /metrics here, on 127.0.0.1 ({_HEALTH_PORT})",
        )
        command.add_argument(
            "--no-supervisor",
            action="store_true",
            help="run the daemon in this process, as a debugger needs it: a daemon that hangs is not ended then",
        )
    status = add_command(commands, "status", "show this node's rails, the pods that have them, and what is wrong")
    add_output(status)
    doctor.add(
        add_command(
            commands,
            "doctor",
            "say what is wrong with this node or the cluster, or why a pod waits, what it means and what to do",
        ),
        DEFAULT_PATH,
    )
    bundle.add(
        add_command(
            commands, "bundle", "write one archive for a bug report, without secrets: of this node, or of a cluster's"
        ),
        DEFAULT_PATH,
    )
    config_check.add(add_command(commands, "config", "look at the file that configures the nodes: check"))
    plan.add(
        add_command(commands, "plan", "propose the chart's values from what the nodes report, or say how they differ")
    )
    train.add(
        add_command(
            commands, "train", "run a training job, and see what uses the cluster: init, up, down, ls, logs, top"
        )
    )
    validate.add(add_command(commands, "validate", "measure each rail between the nodes, by pods of its own"))
    add_command(commands, "version", "print the version")
    completion = add_command(commands, "completion", "print the script by which a shell completes command lines")
    completion.add_argument("shell", choices=SHELLS, help="the shell that runs the script")
    return parser


def _uninstalling(uninstall: argparse.ArgumentParser) -> None:
    where = uninstall.add_mutually_exclusive_group()
    where.add_argument("--stay", action="store_true", help="when all is removed, wait for SIGTERM")
    where.add_argument(
        "--cluster",
        action="store_true",
        help="not this node: from a pod of the cluster, have the DaemonSets uninstall all nodes, and wait for them",
    )
    uninstall.add_argument(
        "--timeout",
        type=_seconds,
        default=3600.0,
        metavar="SECONDS",
        help="with --cluster: how long to wait for the nodes, whose pods with rails must end (3600)",
    )
    uninstall.add_argument(
        "--webhook",
        action="store_true",
        help="with --cluster: delete the webhook configuration first, so that no new pod gets a request for a rail",
    )
    uninstall.add_argument(
        "--gangs",
        action="store_true",
        help="with --cluster: as --webhook, and let the pods go that wait for their gang",
    )
    _add_service_account(uninstall)


def _seconds(text: str) -> float:
    seconds = number_of(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above zero")
    return seconds


def _serving(admission: argparse.ArgumentParser) -> None:
    admission.add_argument("--port", type=int, default=8443, help="answer reviews here, by HTTPS (8443)")
    _in_cluster(admission)
    admission.add_argument(
        "--certificates",
        type=Path,
        metavar="DIR",
        help="serve with tls.crt and tls.key of this folder, which another program renews; without it, make and renew our own",
    )
    admission.add_argument(
        "--leave-seconds",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="after SIGTERM, go on taking connections for this long, until API servers know that this is not ready (5)",
    )
    admission.add_argument(
        "--host-ports",
        metavar="FIRST-LAST",
        help="switch host-network mode on, with these ports of the nodes (20000-29999); needs the rights of the chart's webhook.hostNetwork.enabled",
    )
    admission.add_argument(
        "--gangs",
        action="store_true",
        help="make pods that name a gang wait until all of it has a place; needs the controllers' --gangs (the chart's gangs.enabled sets both)",
    )
    admission.add_argument(
        "--gang-engine",
        choices=("auto", "kubernetes", "gates"),
        default="gates",
        help="what pods of gangs wait for: a PodGroup of Kubernetes, Railnet's scheduling gate, or what the API server has (gates)",
    )
    admission.add_argument(
        "--claims",
        action="store_true",
        help="count VFs that pods ask for by ResourceClaims; needs the rights that the chart gives where a node has offer: dra",
    )


def _in_cluster(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--health-port", type=int, default=8080, help="answer /healthz, /readyz and /metrics here, by HTTP (8080)"
    )
    _add_service_account(command)


def _add_service_account(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--service-account",
        type=Path,
        default=_SERVICE_ACCOUNT,
        metavar="DIR",
        help=f"folder of the service account's token ({_SERVICE_ACCOUNT})",
    )


def _node(arguments: argparse.Namespace) -> ExitStatus:
    return _be_daemon(arguments, DaemonOptions("node", arguments.config, arguments.health_port))


def _be_daemon(arguments: argparse.Namespace, options: DaemonOptions) -> ExitStatus:
    """Become the supervisor, which starts the daemon; or be the daemon, if there is to be no supervisor."""
    if not arguments.no_supervisor:
        from railnet.daemon.process import supervisor  # noqa: PLC0415 - see _RUN

        supervisor.supervise(daemon_process.__name__, options.words())
    return daemon_process.serve(options)


def _install(arguments: argparse.Namespace) -> ExitStatus:
    from railnet import configuration  # noqa: PLC0415 - see _RUN
    from railnet.install import installer  # noqa: PLC0415 - see _RUN

    require_root("railnet install", daemon_process.CHANGES)
    for line in installer.install(configuration.load(arguments.config)):
        print(line)
    return ExitStatus.OK


def _uninstall(arguments: argparse.Namespace) -> ExitStatus:
    if arguments.cluster:
        return _uninstall_cluster(arguments)
    options = DaemonOptions("uninstall", arguments.config, arguments.health_port, stay=arguments.stay)
    return _be_daemon(arguments, options)


def _uninstall_cluster(arguments: argparse.Namespace) -> ExitStatus:
    from railnet.cluster_uninstall import program  # noqa: PLC0415 - see _RUN
    from railnet.cluster_uninstall.failure import NotUninstalled  # noqa: PLC0415 - see _RUN
    from railnet.train.interruption import ended_by_sigterm  # noqa: PLC0415 - see _RUN

    with ended_by_sigterm():  # the first process of a container does not end by it otherwise
        options = program.UninstallOptions(
            arguments.service_account, arguments.timeout, webhook=arguments.webhook, gangs=arguments.gangs
        )
        try:
            print(program.run(options))
        except NotUninstalled as error:
            say(error)
            return ExitStatus.FAILED
    return ExitStatus.OK


def _status(arguments: argparse.Namespace) -> ExitStatus:
    from railnet.status import status_command  # noqa: PLC0415 - see _RUN

    require_root("railnet status", "the daemon answers only root")
    try:
        return ExitStatus.of(well=status_command.show(output_of(arguments)))
    except status_command.Unreachable as error:
        fail(error, ExitStatus.NO_DAEMON)


def _doctor(arguments: argparse.Namespace) -> ExitStatus:
    if arguments.validated is not None and arguments.pod is None:
        say("--validated is about the rails of a pod's job; give --pod NAME with it")
        return ExitStatus.USAGE
    if arguments.bundle is not None:
        return _doctor_of_bundle(arguments)
    if arguments.pod is not None or arguments.cluster:
        return _doctor_by_api(arguments)
    from cni.host.daemon import SOCKET  # noqa: PLC0415 - see _RUN
    from railnet.doctor import checks, doctor_command, gathering  # noqa: PLC0415 - see _RUN

    require_root("railnet doctor", "it reads the host's files, and the daemon answers only root")
    try:
        facts = gathering.gather(gathering.Places(arguments.config, Path(SOCKET)))
    except PermissionError:
        raise
    except OSError as error:
        fail(error, ExitStatus.UNKNOWN)
    return ExitStatus.of(well=doctor_command.report(checks.findings(facts), output_of(arguments)))


def _doctor_of_bundle(arguments: argparse.Namespace) -> ExitStatus:
    from railnet.bundle import archive, bundle_findings  # noqa: PLC0415 - see _RUN
    from railnet.doctor import doctor_command  # noqa: PLC0415 - see _RUN

    findings = bundle_findings.findings(archive.read(arguments.bundle))
    return ExitStatus.of(well=doctor_command.report(findings, output_of(arguments)))


def _doctor_by_api(arguments: argparse.Namespace) -> ExitStatus:
    from railnet.apiserver.client import RequestFailed  # noqa: PLC0415 - see _RUN
    from railnet.cli.connection import connect  # noqa: PLC0415 - see _RUN
    from railnet.doctor import (  # noqa: PLC0415 - see _RUN
        cluster_checks,
        cluster_gathering,
        doctor_command,
        pod_checks,
        pod_gathering,
    )
    from railnet.validate.findings.baseline import read_reach  # noqa: PLC0415 - see _RUN

    api = connect(os.environ, arguments.kubeconfig, arguments.context, "railnet doctor")
    rails = rails_of(arguments)
    try:
        if arguments.cluster:
            findings = cluster_checks.findings(cluster_gathering.gather(api, rails))
        else:
            reach = None if arguments.validated is None else read_reach(arguments.validated)
            facts = pod_gathering.gather(api, arguments.namespace, arguments.pod, rails, reach)
            findings = pod_checks.findings(facts)
    except (RequestFailed, ValueError) as error:
        fail(error, ExitStatus.UNKNOWN)
    return ExitStatus.of(well=doctor_command.report(findings, output_of(arguments)))


def _admission(arguments: argparse.Namespace) -> ExitStatus:
    from railnet import configuration  # noqa: PLC0415 - see _RUN

    loaded = configuration.load(arguments.config)
    if arguments.verb == "explain":
        from railnet.webhook import explain_command  # noqa: PLC0415 - see _RUN

        return ExitStatus.of(
            well=explain_command.explain(arguments.file, loaded, arguments.host_ports, gangs=arguments.gangs)
        )
    import asyncio  # noqa: PLC0415 - see _RUN

    from railnet.webhook import program  # noqa: PLC0415 - see _RUN

    log_to_stderr()
    options = program.WebhookOptions(
        port=arguments.port,
        health_port=arguments.health_port,
        certificates=arguments.certificates,
        account=arguments.service_account,
        leave_seconds=arguments.leave_seconds,
        host_ports=arguments.host_ports,
        gangs=arguments.gangs,
        gang_engine=arguments.gang_engine,
        claims=arguments.claims,
    )
    asyncio.run(program.serve(loaded, options))
    return ExitStatus.OK


def _controllers(arguments: argparse.Namespace) -> ExitStatus:
    import asyncio  # noqa: PLC0415 - see _RUN

    from railnet import configuration  # noqa: PLC0415 - see _RUN
    from railnet.controllers_process import program  # noqa: PLC0415 - see _RUN

    loaded = configuration.load(arguments.config)
    log_to_stderr()
    options = program.ControllersOptions(
        health_port=arguments.health_port,
        account=arguments.service_account,
        cleans_up=arguments.clean_up,
        places_gangs=arguments.gangs,
    )
    return ExitStatus.of(well=asyncio.run(program.serve(loaded, options)))


def _version(arguments: argparse.Namespace) -> ExitStatus:  # noqa: ARG001 - the table below calls all alike
    print(VERSION)
    return ExitStatus.OK


def _completion(arguments: argparse.Namespace) -> ExitStatus:
    print(script(arguments.shell))
    return ExitStatus.OK


# Each imports what it needs: gRPC and pyroute2 take a fifth of a second, `railnet version` needs neither; and what only
# becomes the supervisor needs no asyncio, either.
_RUN = {
    "node": _node,
    "install": _install,
    "uninstall": _uninstall,
    "admission": _admission,
    "controllers": _controllers,
    "status": _status,
    "doctor": _doctor,
    "bundle": bundle.run,
    "config": config_check.run,
    "plan": plan.run,
    "train": train.run,
    "validate": validate.run,
    "version": _version,
    "completion": _completion,
}


if __name__ == "__main__":
    main()

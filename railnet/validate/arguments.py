"""The command line of `railnet validate`."""

import argparse
import math
import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from railnet.cli.arguments import RAILS, add_connection, add_namespace, add_output, number_of, output_of
from railnet.cli.exit_status import ExitStatus
from railnet.cli.messages import say
from railnet.cli.output import Form, Output
from railnet.fabric.published_reach import NAME, NAMESPACE
from railnet.validate.failure import ValidateFailed
from railnet.validate.mode import Mode

if TYPE_CHECKING:
    from railnet.apiserver.client import ApiServer
    from railnet.validate.reports.report import Report

_MOST_SECONDS = 600.0


def add(validate: argparse.ArgumentParser) -> None:
    """Add the options of `railnet validate` to its parser."""
    add_namespace(validate, "the pods' namespace, which exists (default)", default="default")
    validate.add_argument(
        "--node", action="append", default=[], help="test this node; may be repeated (all that have the resource)"
    )
    validate.add_argument(
        "-l", dest="selector", default="", help="test the nodes with these labels, such as railnet.io/leaf=VALUE"
    )
    validate.add_argument("--most-nodes", type=_positive, metavar="N", help="test at most N nodes, the first by name")
    validate.add_argument(
        "--rails",
        type=_positive,
        metavar="N",
        help="VFs of each pod: the rails of a node (its label railnet.io/rails, else 1)",
    )
    validate.add_argument("--resource", default=RAILS, help=f"the resource whose devices are VFs of rails ({RAILS})")
    validate.add_argument(
        "--image",
        default="python:3-slim",
        help="the pods' image; it needs python3, and for RDMA perftest and rping (python:3-slim)",
    )
    validate.add_argument(
        "--mode",
        choices=[str(mode) for mode in Mode],
        help="quick: each node with two others, 1 s each, TCP and UDP alone; full: more pairs, 3 s, and RDMA where the image has its tools; "
        "strict: as full, 10 s; warnings are findings, and RDMA must have been tested (full; with --idle quick)",
    )
    validate.add_argument(
        "--idle",
        action="store_true",
        help="try only nodes of which no pod has a VF or a GPU, and set their condition RailnetValidated (docs/validate.md)",
    )
    validate.add_argument(
        "--other-resource",
        action="append",
        default=[],
        metavar="RESOURCE",
        help="with --idle: one more resource whose devices are VFs of rails, such as that of another pool; a node of which a pod has one "
        "is not idle. May be repeated",
    )
    validate.add_argument(
        "--priority-class", default="", metavar="NAME", help="the PriorityClass of the pods (the cluster's default)"
    )
    validate.add_argument(
        "--seconds", type=_seconds, help="how long the bandwidth of each pair is measured (1, 3 or 10, by the mode)"
    )
    validate.add_argument(
        "--start-seconds", type=_seconds, default=120.0, help="how long the pods may take to start (120)"
    )
    validate.add_argument(
        "--seed", type=int, default=0, help="another seed tests other pairs of a rail with more than 16 nodes (0)"
    )
    validate.add_argument(
        "--least-gbits",
        type=_limit,
        metavar="GBITS",
        help="a pair with less bandwidth is a finding (less than half of its rail's median)",
    )
    validate.add_argument(
        "--most-microseconds", type=_limit, metavar="US", help="a pair with a longer round trip is a finding"
    )
    validate.add_argument(
        "--least-rdma-gbits",
        type=_limit,
        metavar="GBITS",
        help="a pair with less bandwidth by ib_write_bw is a finding (less than half of its rail's median, or of the ports' rate)",
    )
    validate.add_argument(
        "--most-rdma-microseconds",
        type=_limit,
        metavar="US",
        help="a pair with a longer latency by ib_write_lat is a finding",
    )
    validate.add_argument(
        "--gpudirect",
        nargs="?",
        const="nvidia.com/gpu",
        default="",
        metavar="RESOURCE",
        help="have the tools for RDMA use the memory of a GPU, which each pod requests by this resource (nvidia.com/gpu)",
    )
    validate.add_argument(
        "--allreduce",
        metavar="IMAGE",
        help="then have an all-reduce over each rail, a rank on each node, with this image of yours; it needs python3 with PyTorch",
    )
    validate.add_argument(
        "--allreduce-gpu",
        nargs="?",
        const="nvidia.com/gpu",
        default="",
        metavar="RESOURCE",
        help="each rank requests a GPU by this resource (nvidia.com/gpu), and NCCL adds up; without it gloo does, by TCP",
    )
    validate.add_argument(
        "--least-busbw-gbits",
        type=_limit,
        metavar="GBITS",
        help="an all-reduce with less bus bandwidth is a finding (less than half of the other rails' median)",
    )
    validate.add_argument(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="compare with this earlier report, of -o json: a pair below half of its speed there is a finding, below 0.8 a warning",
    )
    add_output(validate, "all pairs of a large rail", ctrf=True)
    validate.add_argument("--html", type=Path, metavar="FILE", help="write the report as an HTML file as well")
    validate.add_argument(
        "--publish",
        action="store_true",
        help=f"leave in ConfigMap {NAMESPACE}/{NAME} which rails reach each other, so that `railnet train top` and events name the jobs that hang",
    )
    add_connection(validate)


def run(arguments: argparse.Namespace) -> ExitStatus:
    """Validate, and return the exit status.

    Raises:
        Misconfigured: there is no API server to ask, the baseline is no report, or the HTML file cannot be written.
    """
    from railnet.apiserver.client import RequestFailed  # noqa: PLC0415 - `railnet version` needs none of it
    from railnet.train.interruption import ended_by_sigterm  # noqa: PLC0415

    try:
        with ended_by_sigterm():
            return _run(arguments)
    except (RequestFailed, ValidateFailed) as error:
        say(error)
        return ExitStatus.UNKNOWN


def _run(arguments: argparse.Namespace) -> ExitStatus:
    mode = Mode(arguments.mode or (Mode.QUICK if arguments.idle else Mode.FULL))
    if why := _useless_options(arguments, mode):
        say(why)
        return ExitStatus.USAGE
    from railnet.cli.connection import connect_to_cluster  # noqa: PLC0415
    from railnet.validate.findings import baseline  # noqa: PLC0415
    from railnet.validate.findings.judgement import RailLimits  # noqa: PLC0415
    from railnet.validate.idle.idle_run import run_idle  # noqa: PLC0415
    from railnet.validate.probe.probe_objects import (  # noqa: PLC0415
        LONGEST_IDLE_RUN_SECONDS,
        LONGEST_RUN_SECONDS,
        Run,
    )
    from railnet.validate.reports import html_file  # noqa: PLC0415
    from railnet.validate.validation import AllReduce, WantedTests, validated  # noqa: PLC0415

    if arguments.html is not None:
        html_file.require_writable(arguments.html)
    earlier = None if arguments.baseline is None else baseline.read(arguments.baseline)
    api, execution, cluster = connect_to_cluster(
        os.environ, arguments.kubeconfig, arguments.context, "railnet validate"
    )
    name = f"railnet-validate-{uuid.uuid4().hex[:8]}"
    this_run = Run(
        name,
        arguments.namespace,
        arguments.image,
        arguments.resource,
        arguments.gpudirect,
        priority_class=arguments.priority_class,
        longest_seconds=LONGEST_IDLE_RUN_SECONDS if arguments.idle else LONGEST_RUN_SECONDS,
        other_resources=frozenset(arguments.other_resource),
    )
    wanted = WantedTests(
        nodes=frozenset(arguments.node),
        selector=arguments.selector,
        most=arguments.most_nodes,
        rails=arguments.rails,
        seconds=arguments.seconds or mode.seconds,
        start_seconds=arguments.start_seconds,
        seed=arguments.seed,
        limits=RailLimits(
            arguments.least_gbits,
            arguments.most_microseconds,
            arguments.least_rdma_gbits,
            arguments.most_rdma_microseconds,
            arguments.least_busbw_gbits,
        ),
        mode=mode,
        earlier=earlier,
        all_reduce=AllReduce(arguments.allreduce, arguments.allreduce_gpu) if arguments.allreduce else None,
    )
    validate = run_idle if arguments.idle else validated
    report = validate(api, execution, this_run, wanted, say)
    if report is None:
        return ExitStatus.OK
    report = report._replace(about=report.about._replace(server=cluster.server, context=cluster.context))
    is_left = _left(report, api, arguments)
    if arguments.idle:  # what is wrong is said by the nodes
        return ExitStatus.OK if _has_conditions(api, report) and is_left else ExitStatus.UNKNOWN
    if report.findings:
        return ExitStatus.FAILED
    unknown = report.untested or report.unjudged or not report.measured or not is_left
    return ExitStatus.UNKNOWN if unknown else ExitStatus.OK


def _useless_options(arguments: argparse.Namespace, mode: Mode) -> str:
    """Return which options would say nothing, and what to do; empty if all have a use."""
    for_rdma = {
        "--gpudirect": arguments.gpudirect,
        "--least-rdma-gbits": arguments.least_rdma_gbits is not None,
        "--most-rdma-microseconds": arguments.most_rdma_microseconds is not None,
    }
    given = [option for option, is_given in for_rdma.items() if is_given]
    if given and not mode.tries_rdma:
        return f"--mode {mode} tries no RDMA, so {' and '.join(given)} would say nothing; leave out one of the two"
    if arguments.idle and arguments.allreduce:
        return "--idle tries the pairs alone, in pods that any job preempts, so --allreduce would say nothing; leave out one of the two"
    if arguments.other_resource and not arguments.idle:
        return "without --idle, --other-resource would say nothing: nodes with jobs are tested, too; leave it out"
    for_all_reduce = {
        "--allreduce-gpu": arguments.allreduce_gpu,
        "--least-busbw-gbits": arguments.least_busbw_gbits is not None,
    }
    given = [option for option, is_given in for_all_reduce.items() if is_given]
    if given and not arguments.allreduce:
        return f"without --allreduce, {' and '.join(given)} would say nothing; name an image with PyTorch: --allreduce IMAGE"
    return ""


def _left(report: "Report", api: "ApiServer", arguments: argparse.Namespace) -> bool:
    """Print the report, write the page, and publish; return whether all of what was asked for could be left."""
    is_left = True
    try:
        _show(report, output_of(arguments))
    finally:  # also if nothing reads the output any more
        if arguments.html is not None:
            is_left = _has_written(arguments.html, report)
        if arguments.publish:
            is_left = _has_published(api, report) and is_left
    return is_left


def _show(report: "Report", output: Output) -> None:
    from railnet.validate.reports.ctrf import as_ctrf  # noqa: PLC0415
    from railnet.validate.reports.report import WORDS, as_json, rendered  # noqa: PLC0415

    told = as_ctrf(report) if output.form is Form.CTRF else as_json(report)
    output.show(told, rendered(report, wide=output.wide), WORDS)


def _has_written(path: Path, report: "Report") -> bool:
    """Write the HTML file; say it if that fails, and return whether it did not. A rail is not wrong for it."""
    from railnet.validate.reports import html_file  # noqa: PLC0415

    try:
        html_file.write(path, report)
    except OSError as error:
        say(f"the page {path} is not written, or not whole: {error.strerror or error}")
        return False
    return True


def _has_conditions(api: "ApiServer", report: "Report") -> bool:
    """Set the condition of each node of the run; return whether nodes could be tried, and all conditions be set."""
    from railnet.validate.idle.idle_run import write_conditions  # noqa: PLC0415
    from railnet.validate.idle.node_verdict import is_tried, verdicts  # noqa: PLC0415

    of_nodes = verdicts(report, datetime.now(UTC))
    return write_conditions(api, of_nodes, say) and is_tried(report, of_nodes)


def _has_published(api: "ApiServer", report: "Report") -> bool:
    """Publish which rails reach each other; say it if that fails, and return whether it did not."""
    from railnet.apiserver import rail_reach  # noqa: PLC0415
    from railnet.apiserver.client import RequestFailed  # noqa: PLC0415
    from railnet.validate.findings.rail_reach import known  # noqa: PLC0415

    reach = known(report.reach)
    if not reach:
        say("nothing is published: this run has not found out of two rails whether they reach each other")
        return True
    try:
        rail_reach.publish(api, reach, datetime.now(UTC))
    except RequestFailed as error:
        say(f"which rails reach each other is not published: {error}")
        return False
    say(f"published in ConfigMap {NAMESPACE}/{NAME} which rails reach each other")
    return True


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above zero")
    return int(text)


def _limit(text: str) -> float:
    limit = number_of(text)
    if not 0 <= limit < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no limit: it must be a number of at least 0")
    return limit


def _seconds(text: str) -> float:
    seconds = number_of(text)
    if not 0 < seconds <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {_MOST_SECONDS:g} seconds")
    return seconds

"""Compares a run with an earlier one: the JSON that `railnet validate -o json` has written. Pure but for reading the file.

The file may be of any version of Railnet, and of any author: each value that is used is checked.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple

from railnet.errors import Misconfigured
from railnet.validate.findings.rail_finding import RailFinding, grouped, nodes_of_pair, where
from railnet.validate.findings.speed_judgement import FINDING, RDMA, TCP, WARNING, Judgement, Speed, shown_share
from railnet.validate.json_report_version import FORMAT
from railnet.validate.probe.measured import Measured

_LARGEST_FILE = 256 << 20  # bytes; 100,000 pairs have 40 MiB
_MOST_NODES_SHOWN, _LONGEST_NAME = 8, 253  # the longest name of an object

_NOT_AS_WRITTEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError)

AllReducePlace = tuple[int, str, int]
Place = tuple[int, frozenset[str]]  # a rail, and the two nodes of a pair


class Earlier(NamedTuple):
    """What is known of an earlier run.

    Attributes:
        name: of its file.
        started: when it began, as ISO 8601; empty if the file does not say.
        speeds: in Gbit/s, by the name of the speed and the pair.
        all_reduces: bus bandwidths in Gbit/s, by rail, library and number of nodes.
    """

    name: str
    started: str
    speeds: Mapping[str, Mapping[Place, float]]
    all_reduces: Mapping[AllReducePlace, float] = MappingProxyType({})

    @property
    def words(self) -> str:
        """What reports call it."""
        return f"{self.name} of {self.started}" if self.started else self.name

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that it has measured."""
        return frozenset(node for speeds in self.speeds.values() for _, nodes in speeds for node in nodes)


def read(path: Path) -> Earlier:
    """Read an earlier report.

    Raises:
        Misconfigured: the file cannot be read, or is no report that this version knows.
    """
    return parse(path.name, _content(path))


def read_reach(path: Path) -> dict[frozenset[int], bool]:
    """Read which rails reach each other; what the report does not know is not there.

    Raises:
        Misconfigured: as `read`; or the report does not say it.
    """
    return parse_reach(path.name, _content(path))


def parse_reach(name: str, text: bytes) -> dict[frozenset[int], bool]:
    """Read the content of a report, as `read_reach`.

    Raises:
        Misconfigured: as `read_reach`.
    """
    reach: dict[frozenset[int], bool] = {}
    try:
        for told in _document(text)["reach"]:
            rail, other = told["rails"]
            if type(rail) is not int or type(other) is not int or type(told["reached"]) not in (bool, NoneType):
                raise TypeError("two rails have no numbers, or no verdict")
            if told["reached"] is not None:
                reach[frozenset((rail, other))] = told["reached"]
    except _NOT_AS_WRITTEN as error:
        raise _no_report(name, error) from None
    return reach


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise Misconfigured(f"the report {path} cannot be read: {error.strerror or error}") from None
    if len(text) > _LARGEST_FILE:
        raise Misconfigured(f"{path} is larger than {_LARGEST_FILE >> 20} MiB, so it is no report")
    return text


def parse(name: str, text: bytes) -> Earlier:
    """Read the content of an earlier report.

    Raises:
        Misconfigured: it is no report that this version knows.
    """
    try:
        document = _document(text)
        started = document.get("run", {}).get("started", "")
        speeds: dict[str, dict[Place, float]] = {TCP.name: {}, RDMA.name: {}}
        for pair in document["pairs"]:
            place = _place(pair)
            for speed, told in ((TCP, pair.get("gbits")), (RDMA, (pair.get("rdma") or {}).get("gbits"))):
                if told is not None:
                    speeds[speed.name][place] = _number(told)
        all_reduces = dict(_all_reduce(told) for told in document.get("allReduce", ()) if told["busGbits"] is not None)
        return Earlier(name, started[:40] if isinstance(started, str) else "", speeds, all_reduces)
    except _NOT_AS_WRITTEN as error:
        raise _no_report(name, error) from None


def _document(text: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text, parse_constant=_refuse)
    version = document.get("format", 1)  # Railnet 0.5 wrote none
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise ValueError(f"its format is {version!r:.40}, and this Railnet knows 1 to {FORMAT}")
    return document


def _no_report(name: str, error: Exception) -> Misconfigured:
    why = f"{type(error).__name__}: {error!s:.200}"
    return Misconfigured(
        f"{name} is no report of this `railnet validate -o json`: {why}; make one with `railnet validate -o json > FILE`"
    )


def compare(measured: Sequence[Measured], earlier: Earlier) -> Judgement:
    """Judge each speed by what the same pair had earlier: below half of it is a finding, below 0.8 a warning. A pair without one is not judged."""
    findings: list[RailFinding] = []
    warnings: list[RailFinding] = []
    for speed in (TCP, RDMA):
        for share, finding in _slower(measured, speed, earlier):
            (findings if share < FINDING else warnings).append(finding)
    return Judgement(tuple(findings), tuple(warnings))


def knows(earlier: Earlier, measured: Sequence[Measured], rail: int, speed: Speed) -> bool:
    """Return whether each measured speed of a rail has an earlier one."""
    of_rail = [
        measurement for measurement in measured if measurement.pair.rail == rail and speed.of(measurement) is not None
    ]
    return all(earlier.speeds[speed.name].get(_place_of(measurement)) for measurement in of_rail)


def uncompared(measured: Sequence[Measured], earlier: Earlier) -> Iterator[str]:
    """Yield which nodes are in one of both runs alone. Pairs are not named: a large rail's random pairs differ from run to run."""
    now = {node for measurement in measured if not measurement.untried for node in nodes_of_pair(measurement)}
    for nodes, words in (
        (now - earlier.nodes, "in this run, and not in"),
        (earlier.nodes - now, "not in this run, and in"),
    ):
        if nodes:
            shown = ", ".join(node[:_LONGEST_NAME] for node in sorted(nodes)[:_MOST_NODES_SHOWN])
            more = f" and {len(nodes) - _MOST_NODES_SHOWN} more" if len(nodes) > _MOST_NODES_SHOWN else ""
            yield f"{words} {earlier.words}: {shown}{more}"


def _slower(measured: Sequence[Measured], speed: Speed, earlier: Earlier) -> Iterator[tuple[float, RailFinding]]:
    speeds = earlier.speeds[speed.name]

    def share(measurement: Measured) -> float:
        was, now = speeds.get(_place_of(measurement)), speed.of(measurement)
        return math.inf if not was or now is None else now / was

    known = [measurement for measurement in measured if share(measurement) < math.inf]
    for rail in sorted({measurement.pair.rail for measurement in known}):
        of_rail = [measurement for measurement in known if measurement.pair.rail == rail]
        for nodes, told in grouped(of_rail, lambda measurement: share(measurement) < WARNING):
            slowest = min(told, key=share)
            now, was = speed.of(slowest) or 0.0, speeds[_place_of(slowest)]
            text = (
                f"{where(rail, nodes, len(told))}: {speed.name} {shown_share(now, was)}, its speed in {earlier.words}"
            )
            yield share(slowest), RailFinding("slow", rail, nodes, text, speed.name)


def _place(pair: Mapping[str, Any]) -> Place:
    rail, server, client = pair["rail"], pair["server"], pair["client"]
    if type(rail) is not int or not isinstance(server, str) or not isinstance(client, str):
        raise TypeError("a pair has no rail and no two nodes")
    return rail, frozenset((server, client))


def _all_reduce(told: Mapping[str, Any]) -> tuple[AllReducePlace, float]:
    rail, backend, nodes = told["rail"], told["backend"], told["nodes"]
    if type(rail) is not int or not isinstance(backend, str) or not isinstance(nodes, list):
        raise TypeError("an all-reduce has no rail, no library and no nodes")
    return (rail, backend, len(nodes)), _number(told["busGbits"])


def _place_of(measurement: Measured) -> Place:
    return measurement.pair.rail, frozenset(nodes_of_pair(measurement))


def _number(told: Any) -> float:
    if type(told) not in (int, float) or not (math.isfinite(told) and told >= 0):
        raise ValueError(f"{told!r:.40} is no speed")
    return float(told)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON")

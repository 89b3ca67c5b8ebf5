"""What nodes report, as `railnet plan` reads it, and the proposal that comes of it."""

import json

import yaml

from railnet.config_check.file_check import check
from railnet.plan.cluster_reading import Reading
from railnet.plan.differences import differences
from railnet.plan.node_facts import KnownNode, SeenNode, UnseenNode, node_of
from railnet.plan.planning import plan
from railnet.plan.running_configuration import running
from railnet.plan.values_text import as_document, lines
from tests.fuzz.parser import Parser

_MOST_NODES = 12
_GPUS = (None, 0, 4, 8)


def node_reports(data: bytes) -> None:
    """Judge a list of reports: whatever nodes say, the file is the proposal in YAML, and the daemon accepts each configuration in it."""
    reports = json.loads(data)
    nodes: list[SeenNode] = []
    unseen: list[UnseenNode] = []
    for number, report in enumerate(reports[:_MOST_NODES] if isinstance(reports, list) else [reports]):
        labels = {"railnet.io/node-group": "a"} if number % 2 else {}
        known = KnownNode(f"node-{number}", labels, _GPUS[number % 4], "named" if number % 5 == 4 else "")
        try:
            nodes.append(node_of(known, report))
        except ValueError as error:
            assert len(str(error)) < 1000
            unseen.append(UnseenNode(known.name, str(error)))
    texts = {"": "rails: {select: {vendor: ['15b3']}}", "named": "rails: ['0000:03:00.0']\nmemlock: unlimited"}
    now = running(texts, (), {"named": ("railnet.io/node-group", "a")})
    unasked = {"node-x": {"railnet.io/node-group": "a"}} if len(nodes) % 3 == 2 else None
    proposal = plan(Reading(tuple(nodes), tuple(unseen), now, unasked))
    text = "".join(f"{line}\n" for line in lines(proposal, nodes, unseen))
    assert yaml.safe_load(text) == json.loads(json.dumps(proposal.values))
    assert [remark for remark in check(text) if remark.level == "error"] == []
    assert text.isprintable() or all(line.isprintable() for line in text.split("\n"))
    grouped = [node.name for group in proposal.groups for node in group.kind.nodes]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) <= {node.name for node in nodes}
    json.dumps(as_document(proposal, nodes, unseen))
    differences(proposal, nodes, now)


PARSERS = (
    Parser(
        "node-reports",
        node_reports,
        (ValueError, RecursionError),
        {
            "railnet.plan.node_facts": (),
            "railnet.plan.node_kinds": (),
            "railnet.plan.proposal": ("propose", "_values", "_parts", "_own_part"),
            "railnet.plan.rail_selectors": ("why_named", "selector", "rail_order"),
        },
    ),
)

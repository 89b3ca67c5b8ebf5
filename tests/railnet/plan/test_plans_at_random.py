"""Plans of random clusters that run random values: each node gets what --diff says, and no more."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from typing import Any

import pytest

from railnet.configuration import parse
from railnet.errors import Misconfigured
from railnet.plan.differences import changes
from railnet.plan.node_facts import UnseenNode
from tests.railnet.plan.applied import Applied, Values, documents_of, group_of
from tests.railnet.plan.reports import COMPUTE, CX6, FOUR, Report, eight, four, lone, older, pf, report, seen

pytestmark = pytest.mark.slow

_CLUSTERS = 300
_PLANNED = ("rails", "provision", "networks.default.ipam", "networks.partition-")
_LABELS = ("railnet.io/node-group", "railnet.io/node-group", "node.kubernetes.io/instance-type", "rack")
_REPORTS: tuple[Callable[[], Report], ...] = (
    lambda: four(numvfs=8),
    lambda: four(pkeys=["0xffff", "0x8001"]),
    eight,
    lambda: eight(rails=COMPUTE),
    lambda: report(*map(pf, COMPUTE)),
    lambda: report(*map(pf, COMPUTE[:7])),
    lambda: report(*(pf(address, model=CX6, rate="200") for address in COMPUTE), rails=[]),
    lambda: report(*(pf(address, linkType="ether") for address in FOUR), rails=FOUR),
    lambda: report(lone_vfs=[lone(address) for address in FOUR]),
    lambda: older(*FOUR),
    report,
)
_SLICES = (
    {"type": "slice", "range": "10.56.0.0/16"},
    {"type": "slice", "range": "10.56.0.0/16", "rails": 4},
    {"type": "slice", "range": "10.56.0.0/16", "rails": 8},
    {"type": "slice", "range": "10.60.0.0/16", "rails": 8},
    {"type": "none"},
)
_KEYS: dict[str, tuple[Any, ...]] = {
    "rails": ("auto", list(FOUR), list(COMPUTE), {"select": {"pfDevice": ["101b"], "numaNode": [0]}}),
    "provision": ([], [{"select": {"pfDevice": ["101b"]}, "vfs": 8}], [{"pf": FOUR[0], "vfs": 2}]),
    "memlock": ("unlimited", "64Gi"),
    "pools": ([{"resource": "rdma/roce", "select": {"linkType": ["ether"]}}], [{"resource": "rdma/x"}]),
    "publish": ({"events": False}, {"events": True}),
    "networks": (
        *({"default": {"ipam": ipam}} for ipam in _SLICES),
        {"default": {"mtu": 2044}},
        {"partition-0001": {"pkey": "0x8001", "ipam": {"type": "static", "range": "10.61.0.0/24"}}},
    ),
}


def configuration(dice: random.Random) -> Values:
    return {key: dice.choice(values) for key, values in _KEYS.items() if dice.random() < 0.3}


def groups(dice: random.Random) -> list[Values]:
    by_label: dict[tuple[str, str], Values] = {}
    for name in dice.sample(["a", "b", "8x400g", "4x200g", "n"], dice.randint(0, 3)):
        key = dice.choice(_LABELS)
        text = name if key == _LABELS[0] else dice.choice("xyz")
        by_label[key, text] = {"name": name, "nodeSelector": {key: text}, "configuration": configuration(dice)}
    return list(by_label.values())


def cluster(seed: int) -> Applied | None:
    """Return a plan of a cluster; None if its nodes would refuse the values that run."""
    dice = random.Random(seed)  # noqa: S311 - it is no secret
    values = {"node": {"configuration": configuration(dice), "groups": groups(dice)}}

    def labels() -> dict[str, str]:
        chosen = {"railnet.io/node-group": dice.choice(("a", "b", "c", "8x400g"))} if dice.random() < 0.2 else {}
        for group in values["node"]["groups"]:
            chosen |= group["nodeSelector"] if dice.random() < 0.4 else {}
        return chosen

    nodes = [
        replace(seen(f"n{number}", dice.choice(_REPORTS)(), dice.choice((0, 4, 8))), labels=labels())
        for number in range(dice.randint(1, 4))
    ]
    unseen = [UnseenNode(f"u{number}", "no answer", labels()) for number in range(dice.choice((0, 0, 0, 1, 2)))]
    unasked = {f"q{number}": labels() for number in range(2)} if dice.random() < 0.25 else None
    return (
        Applied(values, *nodes, unseen=unseen, unasked=unasked, vfs=dice.choice((None, None, 16)))
        if is_accepted(values)
        else None
    )


def is_accepted(values: Values) -> bool:
    try:
        for name, document in documents_of(values).items():
            parse(json.dumps(document), name)
    except Misconfigured:
        return False
    return True


def changed(applied: Applied, name: str) -> set[str]:
    return {key for key, _, _ in changes(applied.now[name], applied.then[name])}


def unplanned(applied: Applied, name: str) -> set[str]:
    """Return the keys that no plan has a reason to change: a network of a partition may come, and none may go or become another."""
    return {
        key
        for key, now, _ in changes(applied.now[name], applied.then[name])
        if not key.startswith(_PLANNED) or (key.startswith("networks.partition-") and now is not None)
    }


@pytest.fixture(scope="module")
def clusters() -> list[tuple[int, Applied]]:
    planned = ((seed, applied) for seed in count() if (applied := cluster(seed)) is not None)
    return list(islice(planned, _CLUSTERS))


def test_values_are_accepted_and_each_node_is_in_the_group_that_was_meant(clusters: list[tuple[int, Applied]]) -> None:
    for seed, applied in clusters:
        names = [group["name"] for group in applied.after["node"].get("groups", [])]
        assert is_accepted(applied.after), seed
        assert len(names) == len(set(names)), seed
        for group in applied.proposal.groups:
            for node in group.kind.nodes:
                assert group_of(applied.labels[node.name], applied.after) == group.name, (seed, node.name)


def test_nodes_that_were_seen_get_what_the_difference_says(clusters: list[tuple[int, Applied]]) -> None:
    for seed, applied in clusters:
        for node in applied.nodes:
            assert changed(applied, node.name) == applied.changed(node.name), (seed, node.name)
            assert unplanned(applied, node.name) == set(), (seed, node.name)


def test_nodes_that_were_not_asked_get_what_they_have(clusters: list[tuple[int, Applied]]) -> None:
    unasked = [(seed, applied, name) for seed, applied in clusters for name in applied.now if name.startswith("q")]

    assert len(unasked) > 50
    assert [(seed, name) for seed, applied, name in unasked if changed(applied, name)] == []


def test_nodes_of_a_group_that_stays_keep_their_rails_and_vfs(clusters: list[tuple[int, Applied]]) -> None:
    for seed, applied in clusters:
        kept = {group.name for group in applied.proposal.kept}
        for name in applied.now:
            if group_of(applied.labels[name], applied.after) in kept:
                assert changed(applied, name) & {"rails", "provision"} == set(), (seed, name)
                assert unplanned(applied, name) == set(), (seed, name)


def test_range_stays_and_another_number_of_rails_is_named(clusters: list[tuple[int, Applied]]) -> None:
    lowered = 0
    for seed, applied in clusters:
        for name in applied.now.keys() - {
            node.name for node in applied.unseen
        }:  # these are named with what they would get
            now, then = (ipam(each[name]) for each in (applied.now, applied.then))
            assert (now["type"], now["range"]) == (then["type"], then["range"]), (seed, name)
            if now["rails"] not in (None, then["rails"]):
                assert applied.told("ipam.rails changes", f"to {then['rails']}"), (seed, name)
            if now["rails"] is not None and then["rails"] < now["rails"]:
                lowered += 1
                assert not applied.unseen, (seed, name)

    assert lowered


def ipam(document: Values) -> Values:
    written = document.get("networks", {}).get("default", {}).get("ipam", {})
    is_slice = written.get("type", "slice") == "slice"
    return {"type": "slice", "range": "10.56.0.0/16" if is_slice else None, "rails": None, **written}


def test_rails_in_use_that_go_are_named(clusters: list[tuple[int, Applied]]) -> None:
    going = 0
    for seed, applied in clusters:
        for group in applied.proposal.groups:
            for node in group.kind.nodes:
                gone = set(node.rails) - set(group.layout or node.rails)
                going += bool(gone)
                assert not gone or applied.told("these are no rails any more", *map(str, gone)), (seed, node.name)

    assert going

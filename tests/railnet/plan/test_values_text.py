"""The values file: it is YAML as it was meant, and text of a node does not leave its comments."""

import json

import pytest
import yaml

from railnet.config_check.file_check import check
from railnet.plan.node_facts import SeenNode, UnseenNode
from railnet.plan.proposal import Proposal
from railnet.plan.values_text import as_document, lines, yaml_of
from tests.railnet.plan.applied import Applied
from tests.railnet.plan.reports import COMPUTE, FOUR, eight, four, lone, pf, planned, report, seen

TWO_KINDS = (*(seen(f"gpu-{n}", eight(), 8) for n in range(2)), seen("old", four(pkeys=["0xffff", "0x8001"]), 4))
CLUSTERS: dict[str, tuple[SeenNode, ...]] = {
    "two kinds": TWO_KINDS,
    "one kind": tuple(seen(f"gpu-{n}", four()) for n in range(3)),
    "virtual machines": (seen("vm", report(lone_vfs=[lone("0000:03:00.0"), lone("0000:04:00.0")])),),
    "without cards": (seen("cpu", report()),),
    "storage by NUMA node": (
        seen("a", report(pf("0000:03:00.0"), pf("0000:b0:00.0", rate="200"), rails=("0000:03:00.0",))),
    ),
    "a broken card": (
        seen("a", four()),
        seen("b", four()),
        seen("c", report(*(pf(each, model="15b3:101b") for each in FOUR[:3]))),
    ),
    "addresses like numbers": tuple(
        seen(f"n-{n}", report(pf("0000:13:00.0"), pf("0000:29:00.0", rate="200"))) for n in range(2)
    ),
}


def text_of(proposal: Proposal, nodes: tuple[SeenNode, ...], unseen: tuple[UnseenNode, ...] = ()) -> str:
    return "".join(f"{line}\n" for line in lines(proposal, nodes, unseen))


@pytest.mark.parametrize("nodes", CLUSTERS.values(), ids=CLUSTERS.keys())
def test_file_holds_the_values_and_config_check_accepts_it(nodes: tuple[SeenNode, ...]) -> None:
    proposal = planned(*nodes)
    text = text_of(proposal, nodes)

    assert yaml.safe_load(text) == json.loads(json.dumps(proposal.values))
    assert [remark for remark in check(text) if remark.level != "note"] == []


def test_comments_say_what_was_seen_assumed_and_not_seen() -> None:
    unseen = tuple(UnseenNode(f"cpu-{number}", "Railnet has no pod on this node") for number in range(6))
    text = text_of(planned(*TWO_KINDS, unseen=unseen), TWO_KINDS, unseen)

    for words in (
        "#   gpu-0, gpu-1  8x400g     8      8      2  15b3:1021  400     0,1   0    -\n",
        "#   - cpu-0, cpu-1, cpu-2, cpu-3 and 2 more: Railnet has no pod on this node\n",
        "# What was assumed:\n",
        "#   kubectl label node gpu-0 gpu-1 railnet.io/node-group=8x400g\n",
        '  # gpu-0, gpu-1: 8 rails, 15b3:1021\n  - name: "8x400g"\n',
    ):
        assert words in text
    assert max(map(len, text.splitlines())) <= 130


def test_list_of_very_many_sentences_is_cut_and_says_so() -> None:
    told = four()
    told["pfs"][0] |= {"driver": None}
    nodes = tuple(seen(f"gpu-{number:03}", told) for number in range(130))
    text = text_of(planned(*nodes), nodes)

    assert text.count("no driver is bound to it") == 100
    assert "#   - and 30 more: -o json has all\n" in text


def test_text_of_a_node_stays_in_its_comment_and_cannot_paint_the_terminal() -> None:
    evil = "x\nnode: {configuration: {memlock: unlimited}}\n\x1b[2J\u2028y"
    told = four()
    told["pfs"][0] |= {"fault": evil}
    nodes, unseen = (seen("a", four()), seen("b", told)), (UnseenNode("c", evil), UnseenNode("d\nnode: {}", "gone"))
    proposal = planned(*nodes, unseen=unseen)
    text = text_of(proposal, nodes, unseen)

    assert yaml.safe_load(text) == proposal.values
    assert "\x1b" not in text
    assert "memlock" in text


@pytest.mark.parametrize(
    "text", ["0000:13:00.0", "1021", "0x8001", "1e3", "400", "yes", "null", "a#b", "", "2026-01-01", "n", "on"]
)
def test_text_stays_text_in_yaml(text: str) -> None:
    assert yaml.safe_load(yaml_of({"key": text, "list": [text]})) == {"key": text, "list": [text]}


@pytest.mark.parametrize("text", ["y", "n", "Y", "N", "yes", "No", "on", "OFF", "true", "False", "null", "Null"])
def test_word_that_yaml_1_1_could_read_as_no_text_is_quoted(text: str) -> None:
    assert yaml_of({text: [text]}) == f'"{text}":\n- "{text}"\n'


def test_value_that_is_there_twice_is_written_twice() -> None:
    shared = {"pfDevice": ["1021"]}

    assert "*" not in yaml_of([shared, shared])


def test_document_has_all_nodes_and_cards() -> None:
    unseen = (UnseenNode("cpu", "no pod"),)
    document = json.loads(json.dumps(as_document(planned(*TWO_KINDS, unseen=unseen), TWO_KINDS, unseen)))

    assert [node["name"] for node in document["nodes"]] == ["gpu-0", "gpu-1", "old"]
    assert [card["address"] for card in document["nodes"][0]["cards"] if card["isRail"]] == list(COMPUTE)
    assert document["unseen"] == [{"name": "cpu", "why": "no pod"}]
    assert document["groups"][1] == {
        "name": "4x200g",
        "nodes": ["old"],
        "label": "railnet.io/node-group=4x200g",
        "rails": 4,
        "model": "15b3:101b",
        "rate": "200",
        "vfs": 4,
    }
    assert document["values"]["node"]["groups"][0]["name"] == "8x400g"


def test_group_that_stays_is_marked_in_the_file_and_in_the_document() -> None:
    values = "node: {groups: [{name: b, nodeSelector: {rack: '2'}, configuration: {memlock: unlimited}}]}"
    applied = Applied(values, seen("a", four()), unasked={"c": {"rack": "2"}})
    text = text_of(applied.proposal, applied.nodes)

    assert "  # for nodes that are not planned here: as it runs\n  - name: b\n" in text
    assert as_document(applied.proposal, applied.nodes, ())["kept"] == ["b"]

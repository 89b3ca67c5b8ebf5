"""What `railnet config check` says of a file: every fault with its line, and what YAML makes of words without quotes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from railnet.config_check.chart_values import _OF_GROUP, _OF_NODE, OWN_VALUES, misshapen, node_documents, refused
from railnet.config_check.file_check import ThisNode, check
from railnet.config_check.remark import Remark
from railnet.configuration import Configuration, parse
from railnet.errors import Misconfigured
from railnet.value_readers import Fault
from tests.charts.rendered import node_yaml, rendered, template

CHART = Path(__file__).resolve().parents[3] / "charts/railnet"
PAGE = Path(__file__).resolve().parents[3] / "docs/configuration.md"


def errors(text: str, node: ThisNode | None = None) -> list[tuple[int | None, str, str]]:
    """Return line, key and message of each error."""
    return [(line, key, message) for level, line, key, message in check(text, node) if level == "error"]


def accepts(text: str) -> bool:
    try:
        parse(text, "node.yaml")
    except Misconfigured:
        return False
    return True


def test_file_without_a_fault_has_nothing_to_say() -> None:
    assert check("provision: [{pf: '0000:03:00.0', vfs: 8}]\n") == ()
    assert check("") == ()


def test_example_of_the_documents_is_accepted() -> None:
    (example,) = [one for one in PAGE.read_text().split("```") if one.startswith("yaml\napiVersion")]

    assert errors(example.removeprefix("yaml\n")) == []


def test_all_faults_are_said_at_once_in_the_order_of_their_lines() -> None:
    text = """\
kind: NodeConfiguration
odd: 1
networks:
  fast:
    mtu: -1
    mut: 2044
provision:
- {vfs: 8}
pools:
- resource: a/b
- resource: a/b
"""

    assert [(line, key) for line, key, _ in errors(text)] == [
        (2, "odd"),
        (5, "networks.fast.mtu"),
        (6, "networks.fast.mut"),
        (8, "provision[0]"),
        (11, "pools[1].resource"),
    ]


def test_unknown_key_has_the_nearest_one() -> None:
    ((line, _, message),) = errors("host:\n  cnibin: /opt/cni/bin\n")

    assert line == 2
    assert message.endswith("; did you mean cniBin?")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("provision:\n- pf: 0000:13:00.0\n  vfs: 8", 2, 'it is text in quotes: "0000:13:00.0"'),
        ("rails:\n- 0000:03:00.0", 2, 'it is text in quotes: "0000:03:00.0"'),
        ("rails:\n- 10:03", 2, "as a number in base 60"),
        ("networks:\n  no: {}", 2, 'reads no without quotes as false; it is text in quotes: "no"'),
        ("limits:\n  On: {}", 2, 'reads On without quotes as true; it is text in quotes: "On"'),
        ("networks:\n  a: {routing: off}", 2, "reads off without quotes as false"),
        ("admission:\n  priorityClass: 2026-11-27", 2, "as a date"),
        (
            "pools:\n- resource: a/b\n  select: {device: [0101]}",
            3,
            'as a number in base 8; it is text in quotes: "0101"',
        ),
    ],
)
def test_word_that_yaml_takes_for_something_else_is_said_to_need_quotes(text: str, line: int, words: str) -> None:
    ((found, _, message),) = errors(text)

    assert (found, words in message) == (line, True), message


@pytest.mark.parametrize("address", ["0000:03:00.0", "0000:0c:00.0"])
def test_quoted_pci_address_is_accepted(address: str) -> None:
    assert check(f'rails: ["{address}"]') == ()


def test_number_in_base_60_that_is_accepted_is_a_warning() -> None:
    assert check("networks:\n  a:\n    mtu: 1:30\n    ipam: {type: none}") == (
        Remark(
            "warning",
            3,
            "",
            'YAML 1.1 reads 1:30 without quotes as a number in base 60; it is text in quotes: "1:30"',
        ),
    )


@pytest.mark.parametrize(
    "text", ["networks: {a: {mtu: 90}}", "publish: {events: true}", "networks: {a: {pkey: 0x8001}}"]
)
def test_number_and_truth_that_are_meant_are_not_remarked(text: str) -> None:
    assert [remark for remark in check(text) if remark.level == "warning"] == []


def test_key_that_is_there_twice_is_said_with_both_lines_beside_the_other_faults() -> None:
    text = "networks:\n  a: {ipam: {type: none}}\n  b: {mtu: -1, ipam: {type: none}}\n  a: {ipam: {type: none}}\nodd: 1\nodd: 2\n"

    found = errors(text)

    assert [line for line, _, _ in found] == [3, 4, 6, 6]
    assert found[1][2] == "networks.a is there twice, first at line 2; remove one of them"
    assert {"odd is there twice, first at line 5; remove one of them"} < {message for _, _, message in found}


def test_alias_is_said_and_its_value_is_not_judged() -> None:
    text = "host: &a {sysfs: /sys}\nnetworks: *a\nodd: 1\n"

    assert [(line, message.split(";")[0]) for line, _, message in errors(text)] == [
        (2, "the alias *a is not allowed"),
        (3, "odd is an unknown key"),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: b: c", 1),
        ("host: {}\n\ta: 1", 2),
        ("a: 1\n---\nb: 2", 2),
        ("host: {}\nprimary: 2026-99-99", 2),
        ("host: {}\n? [1]\n: 2", 2),
        ("host: {}\na: !!python/object/apply:os.system [id]", 2),
        ("host: {}\n<<: {primary: auto}", 2),
        ("a: \x00", None),
    ],
)
def test_text_that_is_no_yaml_is_one_error_with_its_line(text: str, line: int | None) -> None:
    assert errors(text)[0][0] == line
    assert not accepts(text)


@pytest.mark.slow
def test_text_that_is_nested_too_deeply_is_said() -> None:
    assert [message for _, _, message in errors("[" * 2_000)] == ["it is nested too deeply"]
    assert [message for _, _, message in errors("networks: " + "[" * 101 + "]" * 101)] == ["it is nested too deeply"]
    assert "it is nested too deeply" not in str(errors("networks: " + "[" * 100 + "]" * 100))


@pytest.mark.parametrize("text", ["[]", "words", "false", "1:30"])
def test_document_that_is_no_mapping_is_said(text: str) -> None:
    assert "it should be a mapping" in errors(text)[0][2]


@pytest.mark.slow
def test_faults_without_end_are_a_hundred() -> None:
    assert len(check("rails:\n" + "- x\n" * 20_000)) == 100


@given(st.text(alphabet="abcdehilmnoprstuvwkx:{}[]*&,-'\" \n05/"))
def test_check_accepts_what_the_daemon_accepts_and_nothing_else(text: str) -> None:
    assert (not errors(text)) == accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "networks: {a: {mtu: pf, ipam: {type: sticky, range: 10.56.0.0/16}}}",
        "publish: {railsTaint: true}",
        "limits: {team-a: {networks: [gone]}}",
        "a: &x 1\nb: *x",
        "host: {}\nhost: {}",
        "x" * (1 << 20) + "x",
        "offer: dra",
    ],
    ids=lambda text: text[:30],
)
def test_check_and_daemon_agree(text: str) -> None:
    assert (not errors(text)) == accepts(text)


def node(*plugins: str, remarks: tuple[Remark, ...] = (), fault: Fault | None = None) -> ThisNode:
    def names(_: Configuration) -> tuple[str, ...]:
        if fault is not None:
            raise fault
        return plugins

    def compare(_: Configuration) -> Iterator[Remark]:
        return iter(remarks)

    return ThisNode(names, compare)


LEASED = "networks:\n  leased:\n    ipam: {type: whereabout}\n"


def test_ipam_type_that_no_plugin_of_the_node_has_is_said_with_the_nearest() -> None:
    ((line, key, message),) = errors(LEASED, node("bridge", "whereabouts"))

    assert (line, key) == (3, "networks.leased.ipam.type")
    assert "this node has no such plugin; install it, or use a type of Railnet's own" in message
    assert message.endswith("; did you mean whereabouts?")


def test_ipam_type_that_the_node_has_is_a_note() -> None:
    (remark,) = check(LEASED, node("whereabout"))

    assert (remark.level, remark.message) == (
        "note",
        "networks.leased.ipam.type is whereabout, a plugin that this node has",
    )


def test_ipam_type_is_said_to_be_unchecked_without_a_node() -> None:
    (remark,) = check("networks: {a: {ipam: {type: slise}}}")

    assert remark.level == "note"
    assert "it was not checked whether the nodes have such a plugin" in remark.message
    assert remark.message.endswith("; did you mean slice?")


def test_folder_of_plugins_that_cannot_be_read_is_said_and_no_plugin_is_missed() -> None:
    fault = Fault("host.cniBin", "the folder of CNI plugins /x cannot be read: No such file or directory")

    found = check("host: {cniBin: /x}\n" + LEASED, node(fault=fault))

    assert [(remark.level, remark.line) for remark in found] == [("error", 1), ("note", 4)]


def test_remark_of_the_node_gets_the_line_of_its_key() -> None:
    said = Remark("note", None, "provision[1]", "provision[1] matches no PF on this node")
    text = "provision:\n- {select: {}, vfs: 8}\n- {select: {numaNode: [7]}, vfs: 8}\n"

    assert check(text, node(remarks=(said,))) == (said._replace(line=3),)
    assert check("odd: 1\n" + text, node(remarks=(said,)))[0].level == "error"  # a faulty file is not compared


VALUES = """\
railsCondition: {enabled: true, taint: true}
controllers: {stickyAddresses: {enabled: true, range: 10.58.0.0/16}}
node:
  configuration:
    provision: [{pf: 0000:13:00.0, vfs: 8}]
    networks:
      leased: {ipam: {type: host-local}}
  groups:
  - name: old
    nodeSelector: {gpu: old}
    configuration:
      rails: [mlx5_0]
  - name: new
    nodeSelector: {gpu: new}
    configuration:
      networks: {leased: {ipam: {type: static, range: 10.58.1.0/24}}}
"""


def test_values_of_the_chart_are_checked_for_each_group_of_nodes() -> None:
    assert [(line, key, message.split(" ")[:2]) for line, key, message in errors(VALUES)] == [
        (5, "node.configuration.provision[0].pf", ["node.configuration:", "provision[0].pf"]),
        (12, "node.groups[0].configuration.rails[0]", ["group", "old:"]),
        (16, "node.groups[1].configuration.networks.staying.ipam.range", ["group", "new:"]),
    ]
    assert [remark.line for remark in check(VALUES) if remark.level == "note"] == [7]


CONFIGURATIONS = {
    "merged": (
        {
            "rails": ["0000:03:00.0"],
            "networks": {"a": {"mtu": 9000, "ipam": {"type": "slice", "range": "10.70.0.0/16"}}},
        },
        {"networks": {"a": {"ipam": {"type": "none"}}, "b": {}}, "rails": ["0000:0c:00.0"]},
    ),
    "an ipam without its type": (
        {"networks": {"a": {"ipam": {"type": "slice", "range": "10.70.0.0/16"}}}},
        {"networks": {"a": {"ipam": {"rails": 2}}}},
    ),
    "none": ({}, {"primary": "auto"}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("common", "of_group"), CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_node_yaml_of_a_group_is_the_one_that_the_chart_makes(common: Any, of_group: Any) -> None:
    group = {"name": "gpu", "nodeSelector": {"gpu": "true"}, "configuration": of_group}
    sticky = {"enabled": True, "range": "10.58.0.0/16", "rails": 2, "network": "staying"}
    values = {
        "node": {"configuration": common, "groups": [group]},
        "railsCondition": {"enabled": True, "taint": True, "kernelMessages": True},
        "topologyLabels": {"enabled": True},
        "offer": "dra",
        "controllers": {"enabled": True, "stickyAddresses": sticky},
    }

    made = {part.title: part.document for part in node_documents(values)}

    documents = rendered(**values)
    for title, name in (("node.configuration", "railnet-node"), ("group gpu", "railnet-node-gpu")):
        chart = yaml.safe_load(node_yaml(documents, name))
        assert made[title] == {
            key: value for key, value in chart.items() if key not in ("apiVersion", "kind", "limits")
        }


@pytest.mark.parametrize(
    "text", [(CHART / "values.yaml").read_text(), *(one.read_text() for one in CHART.glob("examples/*.yaml"))]
)
def test_values_files_of_the_chart_are_accepted(text: str) -> None:
    assert errors(text) == []


def test_values_of_the_chart_are_known_by_their_keys() -> None:
    assert {*yaml.safe_load((CHART / "values.yaml").read_text()), "global"} == OWN_VALUES
    assert json.loads((CHART / "values.schema.json").read_text())["properties"].keys() == OWN_VALUES
    assert [part.title for part in node_documents({"offer": "dra", "kind": "NodeConfiguration", "node": {}})] == [""]
    assert [part.title for part in node_documents({"offer": "dra"})] == [""]
    assert [part.title for part in node_documents({"offer": "dra", "global": {}})] == ["node.configuration"]


@pytest.mark.parametrize(
    "values", ["", "global: {}\n", "node: {groups: [{name: a, configuration: {primary: auto}}]}\n"]
)
def test_wrong_offer_is_said_once_whatever_else_the_file_has(values: str) -> None:
    ((line, key, message),) = errors(values + "offer: dar\n")

    assert (line, key) == (values.count("\n") + 1, "offer")
    assert "offer is 'dar'; it should be" in message


def test_offer_of_a_group_has_precedence() -> None:
    text = "offer: dra\nnode: {groups: [{name: a, configuration: {offer: device-plugin}}, {name: b, configuration: {x: 1}}]}"

    assert [part.document.get("offer") for part in node_documents(yaml.safe_load(text))] == [
        "dra",
        "device-plugin",
        "dra",
    ]


REFUSED = [
    ({"offer": "dra"}, "offer", "offer"),
    ({"publish": {"topologyLabels": False}}, "publish.topologyLabels", "topologyLabels.enabled"),
    ({"publish": {"railsCondition": True}}, "publish.railsCondition", "railsCondition.enabled"),
    ({"publish": {"railsCondition": True, "railsTaint": True}}, "publish.railsTaint", "railsCondition.taint"),
    (
        {"publish": {"railsCondition": True, "kernelMessages": True}},
        "publish.kernelMessages",
        "railsCondition.kernelMessages",
    ),
    ({"admission": {"priorityClass": "ptr"}}, "admission.priorityClass", "webhook.priorityClass"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("configuration", "key", "value"), REFUSED, ids=[key for _, key, _ in REFUSED])
@pytest.mark.parametrize("place", ["node.configuration", "node.groups[0].configuration"])
def test_what_the_chart_refuses_is_said_with_the_value_to_set(
    configuration: Any, key: str, value: str, place: str
) -> None:
    group = {"name": "gpu", "nodeSelector": {"gpu": "true"}, "configuration": configuration}
    node = {"configuration": configuration} if place == "node.configuration" else {"groups": [group]}

    found = {path: message for line, path, message in errors(yaml.safe_dump({"node": node})) if line is not None}

    if (place, key) == ("node.groups[0].configuration", "offer"):
        assert (found, template(node=node).returncode) == ({}, 0)
        return
    assert found[f"{place}.{key}"].endswith(f"set the value {value} instead")
    assert next(iter(found.values())) in template(node=node).stderr  # the chart says the first
    assert errors(yaml.safe_dump(configuration)) == []  # a node.yaml itself may have it


@pytest.mark.parametrize("node", [None, [], {"configuration": []}, {"configuration": {"publish": 1}, "groups": {}}])
def test_values_of_another_form_are_not_refused_for_it(node: Any) -> None:
    assert list(refused({"image": {}, "node": node})) == []


@pytest.mark.parametrize(
    ("values", "line", "words"),
    [
        (
            "node:\n  configuratio: {rails: auto}\n",
            2,
            "node.configuratio is an unknown key; .*; did you mean configuration?",
        ),
        ("node:\n  groups: {a: b}\n", 2, "node.groups is {'a': 'b'}; it should be a list"),
        ("image: {}\nnode: []\n", 2, "node is []; it should be a mapping"),
        (
            "node:\n  groups:\n  - name: a\n    nodeSelector: {a: b}\n    config: {rails: auto}\n",
            5,
            "node.groups[0].config is an unknown key; .*; did you mean configuration?",
        ),
        ("node:\n  groups:\n  - a\n", 3, "node.groups[0] is 'a'; it should be a mapping"),
    ],
)
def test_configuration_below_a_wrong_key_is_said(values: str, line: int, words: str) -> None:
    ((found_line, _, message),) = errors(values)

    assert found_line == line
    assert re.fullmatch(re.escape(words).replace(re.escape(".*"), ".*"), message)


def test_null_around_configurations_is_an_absent_key() -> None:
    assert errors("image: {}\nnode: {groups: , configuration: }\n") == []
    assert misshapen({"rails": "auto", "nodes": 5}) == ()


def test_keys_around_configurations_are_those_of_the_chart() -> None:
    node = json.loads((CHART / "values.schema.json").read_text())["properties"]["node"]["properties"]

    assert node.keys() == _OF_NODE.keys()
    assert node["groups"]["items"]["properties"].keys() == _OF_GROUP.keys()

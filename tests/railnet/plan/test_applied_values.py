"""What a proposal makes of a cluster that runs other values: Helm merges it over them, and no node loses what the proposal does not say."""

from dataclasses import replace
from typing import Any

import pytest

from railnet.plan.cluster_reading import Reading
from railnet.plan.configuration_layers import plain_rails
from railnet.plan.node_facts import SeenNode, UnseenNode
from railnet.plan.planning import plan
from railnet.plan.running_configuration import running
from tests.railnet.plan.applied import Applied
from tests.railnet.plan.reports import COMPUTE, CX6, FOUR, eight, four, older, pf, planned, report, seen

COMMON = "networks: {default: {ipam: {type: slice, range: 10.56.0.0/16, rails: 8}}}"
POOLS = [{"resource": "rdma/old", "select": {"linkType": ["infiniband"]}}]
TWO_GROUPS = f"""
node:
  configuration: {{{COMMON}}}
  groups:
  - name: four
    nodeSelector: {{railnet.io/node-group: four}}
    configuration:
      rails: {list(FOUR)!r}
      provision: [{{select: {{pfDevice: ["101b"]}}, vfs: 8}}]
      memlock: unlimited
      pools: [{{resource: rdma/old, select: {{linkType: [infiniband]}}}}]
      networks: {{storage: {{ipam: {{type: none}}}}}}
  - name: eight
    nodeSelector: {{railnet.io/node-group: eight}}
    configuration:
      rails: {list(COMPUTE)!r}
      provision: [{{select: {{pfDevice: ["1021"]}}, vfs: 8}}]
"""
OLDER = older(*FOUR)


def of_group(name: str, group: str, told: object, gpus: int | None = 8) -> SeenNode:
    return seen(name, told, gpus, **{"railnet.io__node-group": group})


def fours(told: object | None = None) -> list[SeenNode]:
    return [of_group(f"a{number}", "four", told or four()) for number in range(2)]


def eights() -> list[SeenNode]:
    return [of_group(f"b{number}", "eight", eight(rails=COMPUTE)) for number in range(2)]


def test_other_keys_of_a_group_stay() -> None:
    applied = Applied(TWO_GROUPS, *fours(), *eights())

    assert applied.then == applied.now
    assert applied.changed("a0") == set()
    assert (applied.then["a0"]["memlock"], applied.then["a0"]["pools"]) == ("unlimited", POOLS)


def test_key_that_a_proposal_does_take_is_a_difference() -> None:
    applied = Applied(TWO_GROUPS, *fours(), *eights())
    del applied.proposal.values["node"]["groups"][0]["configuration"]["memlock"]

    assert applied.changed("a0") == {"memlock"}


def test_nodes_of_one_kind_whose_groups_differ_in_other_keys_stay_groups() -> None:
    values = """
node:
  groups:
  - {name: a, nodeSelector: {railnet.io/node-group: a}, configuration: {memlock: unlimited}}
  - {name: b, nodeSelector: {railnet.io/node-group: b}, configuration: {}}
"""
    applied = Applied(values, of_group("a0", "a", four()), of_group("b0", "b", four()))

    assert [group.name for group in applied.proposal.groups] == ["a", "b"]
    assert (applied.then["a0"]["memlock"], "memlock" in applied.then["b0"]) == ("unlimited", False)
    assert any(
        "a0, b0: the configurations that run there differ in memlock" in text for text in applied.proposal.assumed
    )


def test_group_of_older_daemons_keeps_its_provision() -> None:
    applied = Applied(TWO_GROUPS, *fours(OLDER), *eights())

    assert applied.then["a0"] == applied.now["a0"]


def test_older_daemons_with_different_provisions_stay_groups() -> None:
    values = """
node:
  groups:
  - {name: a, nodeSelector: {railnet.io/node-group: a}, configuration: {provision: [{select: {}, vfs: 8}]}}
  - {name: b, nodeSelector: {railnet.io/node-group: b}, configuration: {provision: [{select: {}, vfs: 4}]}}
"""
    applied = Applied(values, of_group("a0", "a", OLDER), of_group("b0", "b", OLDER))

    for name in ("a0", "b0"):
        assert applied.then[name]["provision"] == applied.now[name]["provision"]


def test_conditions_of_an_earlier_plan_do_not_stay_for_nodes_of_another_model() -> None:
    first = Applied("node: {}", *(seen(f"b{number}", eight(rails=COMPUTE)) for number in range(2)))
    other = report(*(pf(address, model=CX6, rate="200") for address in COMPUTE), rails=[])
    new = [seen(f"c{number}", other) for number in range(2)]

    second = Applied(first.after, *first.nodes, *new)

    assert first.then["b0"]["rails"] == {"select": {"pfDevice": ["1021"]}}
    assert second.then["c0"]["rails"] == "auto"
    assert second.then["c0"]["provision"] == [{"select": {"pfDevice": ["101b"]}, "vfs": 8}]
    assert second.then["b0"]["rails"] == {"select": {"pfDevice": ["1021"]}}
    assert second.told("c0, c1", "the conditions under `rails` become others")
    assert not second.told("b0", "the conditions")


def test_condition_that_a_proposal_does_not_have_is_none_after_it() -> None:
    values = "node: {configuration: {rails: {select: {pfDevice: ['1021'], numaNode: [0], vendor: ['15b3']}}}}"
    applied = Applied(values, seen("b0", eight(rails=COMPUTE)))

    assert plain_rails(applied.then["b0"]["rails"]) == {"select": {"pfDevice": ["1021"]}}
    assert Applied(applied.after, seen("b0", eight(rails=COMPUTE))).proposal.values == applied.proposal.values


def test_group_is_taken_away_if_all_nodes_get_one_configuration() -> None:
    values = """
node:
  groups:
  - name: four
    nodeSelector: {railnet.io/node-group: four}
    configuration: {provision: [{select: {pfDevice: ["101b"]}, vfs: 8}]}
"""
    applied = Applied(values, *fours(four(numvfs=8)), vfs=16)

    assert applied.after["node"]["groups"] == []
    assert applied.then["a0"]["provision"] == [{"select": {"pfDevice": ["101b"]}, "vfs": 16}]
    assert applied.changed("a0") == {"provision", "networks.default.ipam.rails"}
    assert applied.told("a0, a1", "have 8 VFs now get 16")
    assert applied.told("a0, a1", "`provision` becomes another")


def test_rails_and_provision_of_all_nodes_stay_for_nodes_of_no_group() -> None:
    values = "node: {configuration: {rails: {select: {pfDevice: ['1021']}}, provision: [{select: {}, vfs: 4}]}}"
    nodes = (seen("b0", eight(rails=COMPUTE)), seen("a0", four(), 4), seen("cpu", report(), 0))
    applied = Applied(values, *nodes)

    for key in ("rails", "provision"):
        assert applied.then["cpu"][key] == applied.now["cpu"][key]
    assert applied.then["a0"]["rails"] == list(FOUR)


@pytest.mark.parametrize("unseen", [True, False], ids=["does not answer", "without a card"])
def test_group_with_a_node_beside_the_planned_ones_is_in_the_values_again(unseen: bool) -> None:
    label = {"railnet.io/node-group": "eight"}
    beside: dict[str, Any] = {"unseen": [UnseenNode("b0", "no answer", label)]} if unseen else {}
    nodes = fours() if unseen else [*fours(), of_group("b0", "eight", report(), 0)]
    applied = Applied(TWO_GROUPS, *nodes, **beside)

    assert [group["name"] for group in applied.after["node"]["groups"]] == ["four", "eight"]
    assert {**applied.then["b0"], "networks": 0} == {**applied.now["b0"], "networks": 0}
    assert applied.told("ipam.rails changes from 8 to 4") is not unseen  # a node that is not seen may have 8
    assert (applied.then == applied.now) is unseen
    assert applied.told("b0", "not seen; the configuration stays that of group eight") is unseen


def test_label_of_a_group_that_stays_is_not_that_of_nodes_of_another_group() -> None:
    values = """
node:
  groups:
  - {name: first, nodeSelector: {rack: '1'}, configuration: {memlock: unlimited}}
  - {name: second, nodeSelector: {railnet.io/node-group: second}, configuration: {memlock: 64Gi}}
"""
    node = of_group("a0", "second", four())
    label = {"railnet.io/node-group": "second"}
    applied = Applied(
        values,
        replace(node, labels={**label, "rack": "1"}),
        seen("cpu", report(), 0, rack="1"),
        unseen=[UnseenNode("b0", "", label)],
    )

    assert {name: each["memlock"] for name, each in applied.then.items()} == {
        "a0": "unlimited",
        "cpu": "unlimited",
        "b0": "64Gi",
    }


def test_plan_beside_a_group_that_stays_proposes_the_same_again() -> None:
    values = f"node: {{configuration: {{{COMMON}}}, groups: [{{name: x, nodeSelector: {{rack: '1'}}, configuration: {{}}}}]}}"
    first = Applied(values, seen("a0", report(*map(pf, COMPUTE)), 8, rack="1"), seen("cpu", report(), 0, rack="1"))
    nodes = [replace(node, labels=first.labels[node.name]) for node in first.nodes]
    second = Applied(first.after, *nodes)

    assert first.proposal.values["node"]["groups"] == second.proposal.values["node"]["groups"]
    assert (second.changed("a0"), second.changed("cpu"), second.proposal.commands) == (set(), set(), ())


def test_kept_group_does_not_get_the_new_rails_and_vfs_of_all_nodes() -> None:
    values = f"""
node:
  configuration: {{{COMMON}}}
  groups:
  - {{name: eight, nodeSelector: {{railnet.io/node-group: eight}}, configuration: {{memlock: unlimited}}}}
"""
    nodes = [seen(f"c{number}", eight(rails=COMPUTE)) for number in range(2)]
    applied = Applied(values, *nodes, unseen=[UnseenNode("b0", "no answer", {"railnet.io/node-group": "eight"})])

    assert "groups" in applied.after["node"]
    assert plain_rails(applied.then["b0"].get("rails")) == "auto"
    assert (applied.then["b0"].get("provision", []), applied.then["b0"]["memlock"]) == ([], "unlimited")


def test_group_without_a_node_stays_if_its_label_is_known_and_is_named_otherwise() -> None:
    values = "node: {groups: [{name: spare, nodeSelector: {rack: '9'}, configuration: {memlock: unlimited}}]}"
    applied = Applied(values, seen("a0", four()))
    without_pods = planned(seen("a0", four()), texts={"": "{}", "spare": "memlock: unlimited"})

    own = {"memlock": "unlimited", "provision": []}  # that of all nodes is new, and not meant for it
    assert applied.after["node"]["groups"] == [{"name": "spare", "nodeSelector": {"rack": "9"}, "configuration": own}]
    assert any("the group spare that runs is left out" in text for text in without_pods.wrong)


@pytest.mark.parametrize("known", ["label", "configuration"])
def test_group_that_cannot_be_kept_is_named(known: str) -> None:
    texts = {"": "{}"} | ({} if known == "label" else {"big": "memlock: unlimited"})
    labels = {"big": ("railnet.io/node-group", "big")} if known == "label" else {}
    unseen = (UnseenNode("b0", "no answer", {"railnet.io/node-group": "big"}),)
    proposal = plan(Reading((seen("a0", four()),), unseen, running(texts, (), labels)))

    unknown = "configuration" if known == "label" else "label"
    assert any(
        f"the group big that runs is left out, because its {unknown} is not known" in text for text in proposal.wrong
    )


UNASKED = {"b0": {"railnet.io/node-group": "eight"}, "c0": {}}


def test_nodes_that_were_not_asked_keep_their_configuration() -> None:
    applied = Applied(TWO_GROUPS, *fours(four(numvfs=8)), unasked=UNASKED, vfs=16)

    assert set(applied.proposal.values["node"]) == {"groups"}
    assert {name: applied.then[name] for name in UNASKED} == {name: applied.now[name] for name in UNASKED}
    assert applied.then["a0"] == {
        **applied.now["a0"],
        "provision": [{"select": {"pfDevice": ["101b"]}, "vfs": 16}],
    }


def test_nodes_of_no_group_that_were_asked_alone_get_a_group() -> None:
    values = f"node: {{configuration: {{{COMMON}, provision: [{{select: {{}}, vfs: 4}}]}}}}"
    applied = Applied(values, seen("a0", four(), 8, rack="1"), unasked={"b0": {"rack": "2"}})

    assert applied.then["b0"] == applied.now["b0"]
    assert applied.then["a0"]["networks"]["default"]["ipam"]["rails"] == 8
    assert applied.then["a0"]["rails"] == list(FOUR)
    assert applied.proposal.commands == ("kubectl label node a0 railnet.io/node-group=4x200g",)


def test_label_of_a_node_that_was_not_asked_is_no_label_of_a_group() -> None:
    label = {"node.kubernetes.io/instance-type": "h100"}
    node = seen("a0", four(), 8, **{"node.kubernetes.io__instance-type": "h100"})
    applied = Applied("node: {}", node, unasked={"b0": label})

    assert [group.label for group in applied.proposal.groups] == [("railnet.io/node-group", "4x200g")]
    assert applied.then["b0"] == applied.now["b0"]


def test_more_rails_than_run_are_not_proposed_for_some_nodes_and_this_is_said() -> None:
    values = "node: {configuration: {networks: {default: {ipam: {type: slice, rails: 4}}}}}"
    applied = Applied(values, seen("b0", eight()), unasked={"a0": {}})

    assert "configuration" not in applied.proposal.values["node"]
    assert applied.told("b0: more rails than ipam.rails, which is 4")


def test_number_of_rails_is_not_lowered_while_a_node_is_not_seen() -> None:
    applied = Applied(TWO_GROUPS, *fours(), unseen=[UnseenNode("c0", "no answer")])

    assert applied.then["c0"]["networks"]["default"]["ipam"]["rails"] == 8
    assert applied.then["a0"] == applied.now["a0"]


@pytest.mark.parametrize(
    ("rails", "words"), [(8, "ipam.rails changes from 8 to 4"), (2, "ipam.rails changes from 2 to 4")]
)
def test_another_number_of_rails_is_named(rails: int, words: str) -> None:
    values = f"node: {{configuration: {{networks: {{default: {{ipam: {{type: slice, rails: {rails}}}}}}}}}}}"
    applied = Applied(values, seen("a0", four()))

    assert applied.then["a0"]["networks"]["default"]["ipam"]["rails"] == 4
    assert applied.told(words)


def test_first_number_of_rails_is_named_for_nodes_that_have_another() -> None:
    applied = Applied("node: {}", seen("b0", report(*map(pf, COMPUTE))), seen("a0", four(), 4))

    assert applied.told("ipam.rails is not set now and becomes 8", "(a0)")


def test_ranges_that_differ_stay_and_are_named() -> None:
    values = """
node:
  groups:
  - name: a
    nodeSelector: {railnet.io/node-group: a}
    configuration: {networks: {default: {ipam: {type: slice, range: 10.60.0.0/16, rails: 4}}}}
  - name: b
    nodeSelector: {railnet.io/node-group: b}
    configuration: {networks: {default: {ipam: {type: slice, range: 10.70.0.0/16, rails: 4}}}}
"""
    applied = Applied(values, of_group("a0", "a", four()), of_group("b0", "b", four()))

    for name in ("a0", "b0"):
        assert applied.then[name]["networks"] == applied.now[name]["networks"]
    assert applied.told("not the same everywhere", "10.60.0.0/16 in group a", "10.70.0.0/16 in group b")


def test_configuration_that_was_not_read_is_named_beside_the_range() -> None:
    proposal = plan(Reading((seen("a0", four()),), (), running({}, ("the configurations could not be read",))))

    assert any("look whether the network default has the range 10.56.0.0/16 now" in text for text in proposal.wrong)


def test_network_of_a_partition_that_runs_stays_as_it_is() -> None:
    network = "{pkey: '0x8001', ipam: {type: static, range: 10.61.0.0/24}}"
    values = f"node: {{configuration: {{networks: {{partition-0001: {network}, other: {{pkey: '0x0002', ipam: {{type: none}}}}}}}}}}"
    applied = Applied(values, seen("a0", four(pkeys=["0xffff", "0x8001", "0x8002"])))

    for name in ("partition-0001", "other"):
        assert applied.then["a0"]["networks"][name] == applied.now["a0"]["networks"][name]
    assert "partition-0002" not in applied.then["a0"]["networks"]

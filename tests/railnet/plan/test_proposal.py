"""What is proposed for the clusters that there are: kinds of nodes, broken cards, mixed addresses, ports beside InfiniBand."""

import json
from dataclasses import replace
from typing import Any

import pytest

from railnet.plan.differences import differences
from railnet.plan.node_facts import UnseenNode
from railnet.plan.proposal import Proposal
from railnet.plan.running_configuration import running
from tests.railnet.plan.reports import (
    COMPUTE,
    CX6,
    CX7,
    FOUR,
    STORAGE,
    eight,
    four,
    lone,
    older,
    pf,
    planned,
    report,
    seen,
    slices,
)

PAIR = ("0000:03:00.0", "0000:83:00.0")


def groups(proposal: Proposal) -> dict[str, list[str]]:
    return {group.name: [node.name for node in group.kind.nodes] for group in proposal.groups}


def configuration(proposal: Proposal, group: str = "") -> dict[str, Any]:
    """Return the configuration of a group's values, or of all nodes."""
    node = proposal.values["node"]
    if not group:
        return dict(node["configuration"])
    (found,) = (each for each in node["groups"] if each["name"] == group)
    return dict(found["configuration"])


def two_kinds() -> Proposal:
    return planned(
        *(seen(f"gpu-{number}", eight()) for number in range(3)),
        *(seen(f"old-{number}", four(), 4) for number in range(2)),
    )


def test_two_kinds_of_nodes_are_two_groups_and_storage_is_no_rail() -> None:
    proposal = two_kinds()

    assert groups(proposal) == {"8x400g": ["gpu-0", "gpu-1", "gpu-2"], "4x200g": ["old-0", "old-1"]}
    assert configuration(proposal) == {"networks": slices(8)}
    assert configuration(proposal, "8x400g") == {
        "rails": list(COMPUTE),
        "provision": [{"select": {"pfDevice": ["1021"]}, "vfs": 8}],
    }
    assert configuration(proposal, "4x200g") == {
        "rails": list(FOUR),  # fewer rails than ipam.rails
        "provision": [{"select": {"pfDevice": ["101b"]}, "vfs": 4}],
    }
    assert proposal.commands == (
        "kubectl label node gpu-0 gpu-1 gpu-2 railnet.io/node-group=8x400g",
        "kubectl label node old-0 old-1 railnet.io/node-group=4x200g",
    )
    assert any(f"({STORAGE[0]}, {STORAGE[1]}: {CX6} at 200 Gb/s) are for storage" in text for text in proposal.assumed)
    assert any("gpu-0, gpu-1, gpu-2: the numbers of rails change" in text for text in proposal.wrong)


def test_nodes_that_differ_in_nothing_need_no_group_and_no_addresses() -> None:
    proposal = planned(*(seen(f"gpu-{number}", four()) for number in range(3)))

    assert proposal.values == {
        "node": {
            "configuration": {
                "rails": "auto",
                "provision": [{"select": {"pfDevice": ["101b"]}, "vfs": 8}],
                "networks": slices(4),
            },
            "groups": [],
        }
    }
    assert (proposal.wrong, proposal.commands) == ((), ())


@pytest.mark.parametrize("remembered", [True, False], ids=["after it was a rail", "since the first start"])
def test_node_with_a_broken_card_stays_in_its_kind_and_this_is_said(remembered: bool) -> None:
    broken = report(
        *(pf(address, model=CX6, rate="200") for address in FOUR[:3]), rails=FOUR if remembered else FOUR[:3]
    )

    proposal = planned(*(seen(f"gpu-{number}", four()) for number in range(3)), seen("gpu-9", broken))

    assert groups(proposal) == {"": ["gpu-0", "gpu-1", "gpu-2", "gpu-9"]}
    (wrong,) = (text for text in proposal.wrong if "gpu-9" in text and FOUR[3] in text)
    assert ("the card of rail 3" in wrong) is remembered
    assert configuration(proposal)["networks"] == slices(4)
    # A node that remembers three rails gives no addresses with four: it needs their names.
    assert configuration(proposal)["rails"] == ("auto" if remembered else list(FOUR))


def test_node_with_one_of_two_cards_beside_one_other_node_is_named() -> None:
    proposal = planned(seen("a", report(*map(pf, PAIR))), seen("b", report(pf(PAIR[0]))))

    assert groups(proposal) == {"2x400g": ["a"], "1x400g": ["b"]}
    assert any(text.startswith("b: 1 card fewer than a, at the same addresses otherwise") for text in proposal.wrong)


def test_node_with_half_the_cards_is_another_kind() -> None:
    half = report(*(pf(address) for address in COMPUTE[:4]))
    proposal = planned(*(seen(f"gpu-{n}", report(*map(pf, COMPUTE))) for n in range(3)), seen("half", half))

    assert groups(proposal) == {"8x400g": ["gpu-0", "gpu-1", "gpu-2"], "4x400g": ["half"]}


def test_broken_card_with_another_number_of_gpus_is_named() -> None:
    broken = report(*(pf(address, model=CX6, rate="200") for address in FOUR[:3]))
    proposal = planned(*(seen(f"gpu-{n}", four(), 4) for n in range(3)), seen("gpu-9", broken, 2))

    assert groups(proposal) == {"4x200g": ["gpu-0", "gpu-1", "gpu-2"], "3x200g": ["gpu-9"]}
    assert any("gpu-9" in text and "another number of GPUs" in text for text in proposal.wrong)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fault": "0000:21:00.0: its files do not answer"}, "its files do not answer"),
        ({"totalvfs": 0}, "SR-IOV is off"),
        ({"driver": None}, "no driver is bound"),
        ({"port": "1: DOWN", "rate": "10"}, "the port of 0000:21:00.0 is not ACTIVE"),
        ({"rate": "100"}, "has 100 Gb/s, and most nodes have 200 Gb/s"),
    ],
    ids=["hung", "without SR-IOV", "without a driver", "down", "slow"],
)
def test_card_in_trouble_makes_no_kind_of_its_own(changes: dict[str, Any], words: str) -> None:
    told = four()
    told["pfs"][0] |= changes
    proposal = planned(*(seen(f"gpu-{number}", four()) for number in range(2)), seen("gpu-9", told))

    assert groups(proposal) == {"": ["gpu-0", "gpu-1", "gpu-9"]}
    assert [text for text in proposal.wrong if text.startswith("gpu-9: ") and words in text] != []
    assert configuration(proposal)["provision"] == [{"select": {"pfDevice": ["101b"]}, "vfs": 8}]


def test_cards_at_mixed_addresses_are_one_kind_while_conditions_name_them() -> None:
    other = ("0000:13:00.0", "0000:93:00.0")
    proposal = planned(seen("a", report(*map(pf, PAIR))), seen("b", report(*map(pf, other))))

    assert groups(proposal) == {"": ["a", "b"]}
    assert configuration(proposal)["provision"] == [{"select": {"pfDevice": ["1021"]}, "vfs": 8}]


def test_cards_at_mixed_addresses_are_groups_where_addresses_must_name_them() -> None:
    storage = [pf(address, rate="200") for address in STORAGE]  # of the model of the rails
    other = tuple(address.replace(":00.0", ":01.0") for address in COMPUTE)
    proposal = planned(
        *(seen(f"a-{n}", report(*map(pf, COMPUTE), *storage)) for n in range(2)),
        *(seen(f"b-{n}", report(*map(pf, other), *storage)) for n in range(2)),
    )

    assert groups(proposal) == {"8x400g": ["a-0", "a-1"], "8x400g-2": ["b-0", "b-1"]}
    assert configuration(proposal, "8x400g-2") == {
        "rails": list(other),
        "provision": [{"select": {"pf": list(other)}, "vfs": 8}],
    }
    assert any("2 sets of addresses" in text for text in proposal.assumed)


def test_storage_of_the_model_of_the_rails_is_told_by_its_numa_node() -> None:
    storage = pf("0000:b0:00.0", rate="200", numaNode=1)
    proposal = planned(
        seen("a", report(pf("0000:03:00.0"), pf("0000:13:00.0"), storage, rails=(*PAIR[:1], "0000:13:00.0")))
    )

    selected = {"pfDevice": ["1021"], "numaNode": [0]}
    assert configuration(proposal)["rails"] == {"select": selected}
    assert configuration(proposal)["provision"] == [{"select": selected, "vfs": 8}]
    assert any("cards of one model have different rates" in text for text in proposal.wrong)


def test_second_ports_without_a_cable_are_no_rails() -> None:
    ports = [
        pf(address[:-1] + str(port), **({"port": "1: DOWN"} if port else {})) for address in PAIR for port in (0, 1)
    ]
    proposal = planned(seen("a", report(*ports, rails=PAIR)), seen("b", report(*ports, rails=PAIR)))

    assert [group.kind.size for group in proposal.groups] == [2]
    assert configuration(proposal)["rails"] == {"select": {"pfDevice": ["1021"], "function": [0]}}
    assert any("have no cable" in text for text in proposal.assumed)


def test_roce_beside_infiniband_is_no_rail_and_changes_no_kind() -> None:
    beside = report(*map(pf, PAIR), pf("0000:55:00.0", linkType="ether", port="4: ACTIVE"))
    proposal = planned(seen("a", beside), seen("b", report(*map(pf, PAIR))))

    assert groups(proposal) == {"": ["a", "b"]}
    assert configuration(proposal)["rails"] == "auto"
    assert any(text.startswith("a: 1 port of type ether") for text in proposal.assumed)


def test_ethernet_ports_are_rails_if_the_pools_that_run_ask_for_them() -> None:
    roce = report(*(pf(address, linkType="ether") for address in PAIR), rails=PAIR)
    text = "pools: [{resource: rdma/ib_vf, select: {linkType: [ether]}}]"

    proposal = planned(seen("a", roce), seen("b", roce), texts={"": text})

    assert [group.kind.size for group in proposal.groups] == [2]


ROCE = "pools: [{resource: rdma/roce, select: {linkType: [ether]}}]"


def test_link_types_of_one_group_are_not_those_of_another() -> None:
    ports = [pf(address, linkType="ether") for address in STORAGE]
    beside = report(*map(pf, COMPUTE), *ports)
    roce = report(*(pf(address, model=CX6, linkType="ether") for address in FOUR), rails=FOUR)
    nodes = [*(seen(f"i{n}", beside) for n in range(2)), *(replace(seen(f"r{n}", roce), group="r") for n in range(2))]
    proposal = planned(*nodes, texts={"": "{}", "r": ROCE})

    assert {group.kind.nodes[0].name: group.kind.size for group in proposal.groups} == {"i0": 8, "r0": 4}
    assert configuration(proposal, "8x400g")["rails"] == "auto"
    assert any(text.startswith("i0, i1: 2 ports of type ether are no rails") for text in proposal.assumed)


def test_cards_of_one_model_are_two_kinds_where_pools_ask_for_other_link_types() -> None:
    roce = report(*(pf(address, linkType="ether") for address in PAIR), rails=PAIR)
    nodes = (seen("i", report(*map(pf, PAIR))), replace(seen("r", roce), group="r"))
    proposal = planned(*nodes, texts={"": "{}", "r": ROCE})

    assert sorted(names for (names,) in groups(proposal).values()) == ["i", "r"]
    (of_roce,) = (group for group in proposal.groups if group.kind.nodes[0].name == "r")
    assert of_roce.configuration["pools"] == [{"resource": "rdma/roce", "select": {"linkType": ["ether"]}}]


def test_ethernet_rails_are_of_no_partition() -> None:
    keys = ["0xffff", "0x8001"]
    roce = report(*(pf(address, linkType="ether", pkeys=["0xffff"]) for address in FOUR), rails=FOUR)
    nodes = (seen("i", report(*(pf(each, pkeys=keys) for each in PAIR))), replace(seen("r", roce), group="r"))
    proposal = planned(*nodes, texts={"": "{}", "r": ROCE})

    assert "partition-0001" in configuration(proposal)["networks"]
    assert not any("partition" in text for text in proposal.wrong)


def test_rails_with_the_highest_numbers_that_go_are_named() -> None:
    storage = ("0000:e1:00.0", "0000:e2:00.0")
    cards = [pf(address) for address in COMPUTE] + [pf(address, model=CX6, rate="200", numvfs=8) for address in storage]
    proposal = planned(seen("g", report(*cards)))

    assert configuration(proposal)["rails"] == list(COMPUTE)
    (going,) = (text for text in proposal.wrong if "no rails any more" in text)
    assert going.startswith(
        f"g: these are no rails any more by this list, and pods lose them: 8 ({storage[0]}) and 9 ({storage[1]})"
    )


def test_other_keys_of_a_group_that_are_not_known_are_named() -> None:
    node = replace(seen("a", four()), group="big")
    proposal = planned(node, labels={"big": ("railnet.io/node-group", "big")})

    assert any(text.startswith("a: what the group big has beside rails") for text in proposal.wrong)


def test_virtual_machine_gets_no_vfs_and_keeps_its_rails() -> None:
    machine = report(lone_vfs=[lone(address) for address in PAIR])
    proposal = planned(seen("vm-0", machine), seen("vm-1", machine))

    assert proposal.values == {"node": {"configuration": {"rails": "auto", "networks": slices(2)}, "groups": []}}
    assert any("a virtual machine has its VFs from its host" in text for text in proposal.assumed)


def test_cards_without_sriov_get_no_vfs_and_this_is_said() -> None:
    proposal = planned(seen("a", report(*(pf(address, totalvfs=0) for address in PAIR))))

    assert "provision" not in configuration(proposal)
    assert any(text.startswith("a: no card offers VFs") for text in proposal.wrong)


def test_node_whose_cards_are_all_gone_is_named() -> None:
    proposal = planned(seen("a", report(rails=PAIR)))

    assert any("none of their cards is there" in text for text in proposal.wrong)
    assert "provision" not in configuration(proposal)


def test_node_without_a_card_is_in_no_group_and_this_is_said() -> None:
    proposal = planned(seen("cpu", report(), 0), *(seen(f"gpu-{n}", four()) for n in range(2)))

    assert groups(proposal) == {"": ["gpu-0", "gpu-1"]}
    assert any(text.startswith("cpu: no card that could be a rail") for text in proposal.assumed)


def test_nothing_is_proposed_without_a_card() -> None:
    assert planned(seen("cpu", report())).values == {"node": {"configuration": {}}}
    assert planned().values == {"node": {"configuration": {}}}


def test_different_numbers_of_gpus_are_one_group_with_vfs_for_the_most() -> None:
    proposal = planned(seen("a", four(), 4), seen("b", four(), 8))

    assert groups(proposal) == {"": ["a", "b"]}
    assert configuration(proposal)["provision"][0]["vfs"] == 8
    assert any("the 4 to 8 GPUs of a node" in text for text in proposal.assumed)


@pytest.mark.parametrize(
    ("changes", "gpus", "asked", "expected"),
    [
        ({}, None, None, 8),
        ({}, 4, None, 4),
        ({"numvfs": 6}, 4, None, 6),
        ({"numvfs": 6}, 4, 3, 3),
        ({"totalvfs": 4}, 8, None, 4),
    ],
    ids=["GPUs not known", "GPUs", "as they are", "asked for", "more than the firmware offers"],
)
def test_number_of_vfs(changes: dict[str, Any], gpus: int | None, asked: int | None, expected: int) -> None:
    proposal = planned(seen("a", four(**changes), gpus), vfs=asked)

    assert configuration(proposal)["provision"][0]["vfs"] == expected


def test_range_without_an_address_for_each_vf_is_said() -> None:
    told = report(*(pf(address, totalvfs=64) for address in COMPUTE))
    proposal = planned(seen("a", told), vfs=31)

    assert any(
        "10.56.0.0/16 has 30 addresses of each rail" in text and "larger range" in text for text in proposal.wrong
    )
    assert not any("larger range" in text for text in planned(seen("a", told), vfs=30).wrong)


def test_unseen_node_is_named_with_the_group_of_its_label() -> None:
    label = {"node.kubernetes.io__instance-type": "h100"}
    nodes = [seen(f"gpu-{n}", eight(), 8, **label) for n in range(2)]
    others = [seen("old", four(), 4, **{"node.kubernetes.io__instance-type": "a100"})]
    unseen = (
        UnseenNode("gpu-9", "the daemon does not answer", {"node.kubernetes.io/instance-type": "h100"}),
        UnseenNode("web", "Railnet has no pod on this node"),
    )

    proposal = planned(*nodes, *others, unseen=unseen)

    assert [group.label for group in proposal.groups] == [
        ("node.kubernetes.io/instance-type", "h100"),
        ("node.kubernetes.io/instance-type", "a100"),
    ]
    assert proposal.commands == ()  # the cloud's labels are enough
    assert any(
        text.startswith("gpu-9: not seen; the configuration would be that of group 8x400g") for text in proposal.wrong
    )
    assert any(
        text.startswith("web: not seen; the configuration would be that of all nodes") for text in proposal.wrong
    )


def test_label_of_a_group_is_used_again() -> None:
    label = {"railnet.io__node-group": "big"}
    proposal = planned(*(seen(f"gpu-{n}", eight(), 8, **label) for n in range(2)), seen("old", four(), 4))

    assert groups(proposal) == {"big": ["gpu-0", "gpu-1"], "4x200g": ["old"]}
    assert proposal.commands == ("kubectl label node old railnet.io/node-group=4x200g",)


def test_label_with_another_value_is_overwritten_by_the_command() -> None:
    label = {"railnet.io__node-group": "big"}
    proposal = planned(seen("gpu", eight(), 8, **label), seen("old", four(), 4, **label))

    assert [command.rpartition(" ")[2] for command in proposal.commands] == ["--overwrite"] * 2


def test_group_does_not_get_the_label_of_a_node_outside() -> None:
    label = {"railnet.io__node-group": "8x400g"}
    proposal = planned(seen("gpu", eight(), 8, **label), seen("old", four(), 4), seen("cpu", report(), 0, **label))

    assert [group.label for group in proposal.groups if group.kind.nodes[0].name == "gpu"] == [
        ("railnet.io/node-group", "8x400g-2")
    ]


def test_many_nodes_are_labelled_by_several_commands() -> None:
    proposal = planned(*(seen(f"gpu-{n:02}", eight()) for n in range(45)), seen("old", four(), 4))

    assert [command.count("gpu-") for command in proposal.commands] == [20, 20, 5, 0]


def test_partition_of_every_rail_is_a_network_and_one_of_some_is_said() -> None:
    both = four(pkeys=["0xffff", "0x8001", "0x8002"])
    one = four(pkeys=["0xffff", "0x8001", "0x0002"])  # a limited member of the second

    proposal = planned(seen("a", both), seen("b", one))

    assert configuration(proposal)["networks"]["partition-0001"] == {"pkey": "0x8001", "ipam": {"type": "none"}}
    assert "partition-0002" not in configuration(proposal)["networks"]
    assert any("partition 0x8002 is not on every rail (b lack" in text for text in proposal.wrong)


def test_network_without_addresses_by_rail_needs_neither_number_nor_names() -> None:
    text = "networks: {default: {ipam: {type: none}}}"
    proposal = planned(seen("gpu", report(*map(pf, COMPUTE))), seen("old", four(), 4), texts={"": text})

    assert "networks" not in configuration(proposal)
    assert configuration(proposal, "4x200g")["rails"] == "auto"


def test_nodes_that_number_the_same_cards_differently_get_one_order() -> None:
    turned = report(*map(pf, PAIR), rails=PAIR[::-1])
    proposal = planned(seen("a", report(*map(pf, PAIR))), seen("b", report(*map(pf, PAIR))), seen("c", turned))

    assert configuration(proposal)["rails"] == list(PAIR)
    assert any(text.startswith("c: the numbers of rails change") for text in proposal.wrong)


def test_plan_of_what_was_proposed_proposes_the_same() -> None:
    first = planned(seen("gpu", eight()), seen("old", four(), 4))
    common = first.values["node"]["configuration"]
    texts = {
        group["name"]: json.dumps({**group["configuration"], **common}) for group in first.values["node"]["groups"]
    } | {"": json.dumps(common)}
    applied = (seen("gpu", eight(rails=COMPUTE)), seen("old", four(), 4))
    labelled = [
        replace(node, group=name, labels={"railnet.io/node-group": name})
        for node, name in zip(applied, ("8x400g", "4x200g"), strict=True)
    ]

    second = planned(*labelled, texts=texts)

    assert second.values == first.values
    assert second.commands == ()
    assert differences(second, labelled, running(texts)) == ()


def test_older_daemons_are_planned_by_addresses_and_this_is_said() -> None:
    proposal = planned(seen("a", older(*PAIR)), seen("b", older(*PAIR)))

    assert configuration(proposal) == {"rails": list(PAIR), "networks": slices(2)}
    assert proposal.wrong[0].startswith("a, b: their Railnet reports neither models")


def test_older_daemon_beside_newer_ones_is_of_their_kind() -> None:
    proposal = planned(seen("a", report(*map(pf, PAIR))), seen("b", report(*map(pf, PAIR))), seen("c", older(*PAIR)))

    assert groups(proposal) == {"": ["a", "b", "c"]}


def test_order_of_nodes_changes_nothing() -> None:
    nodes = [seen(f"gpu-{n}", eight()) for n in range(3)] + [seen("old", four(), 4)]

    assert planned(*nodes).values == planned(*reversed(nodes)).values


def test_model_of_the_rails_is_that_with_the_most_bandwidth() -> None:
    cards = [pf(PAIR[0], model=CX7, rate="400"), *(pf(address, model=CX6, rate="100") for address in FOUR[:3])]
    proposal = planned(replace(seen("a", report(*cards)), gpus=None))

    assert [(group.kind.model, group.kind.size) for group in proposal.groups] == [(CX7, 1)]


OTHER = tuple(f"0000:{bus:02x}:00.0" for bus in range(0x50, 0x58))


def at_rate(addresses: tuple[str, ...], rate: str, **changes: Any) -> Any:
    return report(*(pf(address, rate=rate, **changes) for address in addresses))


def test_slower_machine_with_other_addresses_keeps_its_rails() -> None:
    nodes = [seen(f"fast-{number}", at_rate(COMPUTE, "400")) for number in range(2)]
    nodes += [seen(f"slow-{number}", at_rate(OTHER, "200")) for number in range(2)]

    proposal = planned(*nodes)

    (group,) = proposal.groups
    assert {name: len(rails) for name, rails in group.kind.rails.items()} == dict.fromkeys(
        ("fast-0", "fast-1", "slow-0", "slow-1"), 8
    )
    assert proposal.wrong == ()


def test_slow_cable_of_a_machine_with_other_addresses_is_named() -> None:
    slow = report(*(pf(address, rate="100" if address == OTHER[0] else "200") for address in OTHER))
    nodes = [seen("fast", at_rate(COMPUTE, "400")), seen("slow-0", slow)]
    nodes += [seen(f"slow-{number}", at_rate(OTHER, "200")) for number in (1, 2)]

    proposal = planned(*nodes)

    assert {len(rails) for group in proposal.groups for rails in group.kind.rails.values()} == {8}
    assert any(f"slow-0: the port of {OTHER[0]} has 100 Gb/s" in sentence for sentence in proposal.wrong)


def test_machines_that_have_their_storage_at_other_addresses_and_rates_keep_as_many_rails() -> None:
    first = report(*(pf(each) for each in COMPUTE), *(pf(each, model=CX6, rate="200") for each in STORAGE))
    second = report(
        *(pf(each, rate="200") for each in OTHER),
        *(pf(each, model=CX6, rate="100") for each in ("0000:e1:00.0", "0000:e2:00.0")),
    )

    proposal = planned(seen("first", first), seen("second", second))

    assert {name: len(rails) for group in proposal.groups for name, rails in group.kind.rails.items()} == {
        "first": 8,
        "second": 8,
    }


def test_order_of_nodes_does_not_choose_the_model_of_a_missing_card() -> None:
    nodes = [
        seen("a", report(pf("0000:10:00.0"), pf("0000:11:00.0"))),
        seen("b", report(pf("0000:10:00.0", model=CX6), pf("0000:11:00.0"))),
        seen("c", report(pf("0000:11:00.0"), pf("0000:12:00.0", model=CX6), rails=("0000:10:00.0", "0000:11:00.0"))),
    ]

    assert planned(*nodes) == planned(*reversed(nodes))

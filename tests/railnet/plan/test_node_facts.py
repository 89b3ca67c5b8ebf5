"""A node's report is read strictly: a node may send anything, and costs itself alone."""

import json
from typing import Any

import pytest

from railnet.plan.node_facts import KnownNode, node_of
from tests.railnet.plan.reports import eight, lone, pf, report, seen

NODE = KnownNode("gpu-0", {})


def test_report_has_each_card_with_its_facts() -> None:
    told = eight()
    told["rails"][0]["leaf"] = "00000000000000a1/3"
    node = seen("gpu-0", told)

    first = node.cards[0]
    assert (str(first.address), first.model, first.rate, first.totalvfs, first.leaf) == (
        "0000:1a:00.0",
        "15b3:1021",
        "400",
        16,
        "00000000000000a1",
    )
    assert (len(node.cards), len(node.rails), node.complete) == (10, 10, True)
    assert first.pkeys == {0xFFFF}


def test_rate_of_a_port_that_is_not_active_is_not_known() -> None:
    (card,) = seen("a", report(pf("0000:03:00.0", port="1: DOWN", rate="10"))).cards

    assert (card.active, card.rate) == (False, None)


def test_rails_without_a_card_are_absent() -> None:
    node = seen("a", report(pf("0000:03:00.0"), rails=("0000:03:00.0", "0000:83:00.0")))

    assert [str(address) for address in node.absent] == ["0000:83:00.0"]


def with_pf(**changes: Any) -> dict[str, Any]:
    told = report(pf("0000:03:00.0"))
    told["pfs"][0] |= changes
    return told


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        "x",
        {},
        {"rails": 1},
        {"rails": [1]},
        {"rails": [{"rail": 0}]},
        {"rails": [{"rail": 1, "address": "0000:03:00.0"}]},
        {"rails": [{"rail": "0", "address": "0000:03:00.0"}]},
        {"rails": [], "pfs": None},
        {"rails": [], "pfs": [1], "loneVfs": []},
        {"rails": [], "pfs": []},
        {"rails": [], "pfs": [pf("0000:03:00.0")] * 513, "loneVfs": []},
        {"rails": [], "pfs": [pf("0000:03:00.0")] * 2, "loneVfs": []},
        {"rails": [], "pfs": [pf("0000:03:00.0")], "loneVfs": [lone("0000:03:00.0")]},
        with_pf(address="0000:03:00.0\n# evil"),
        with_pf(linkType="infiniband\n"),
        with_pf(linkType=["infiniband"]),
        with_pf(totalvfs=-1),
        with_pf(totalvfs=True),
        with_pf(totalvfs=1 << 20),
        with_pf(numvfs="8"),
        with_pf(numaNode=1.5),
        with_pf(rate="400\x1b[31m"),
        with_pf(rate="9" * 400),
        with_pf(rate=400),
        with_pf(pkeys="0xffff"),
        with_pf(pkeys=["0xfffff"]),
        with_pf(pkeys=[1]),
        with_pf(pkeys=["0xffff"] * 2000),
    ],
)
def test_answer_that_no_node_gives_is_refused_in_few_words(told: object) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        node_of(NODE, told)

    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("model", ["", ":", "15b3:1021 # x", 1, None, "15B3:1021"])
def test_model_of_another_form_is_not_known(model: object) -> None:
    assert [card.model for card in node_of(NODE, with_pf(model=model)).cards] == [""]


@pytest.mark.parametrize("name", ["", "a b", "a;reboot", "$(reboot)", "A", "-a", "a" * 254])
def test_name_that_no_node_has_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a node"):
        node_of(KnownNode(name, {}), report())


def test_text_of_a_fault_is_bounded() -> None:
    assert len(node_of(NODE, with_pf(fault="x" * 10_000)).cards[0].trouble) == 300


def test_version_of_another_form_is_left_out() -> None:
    assert node_of(NODE, report() | {"version": "1\n2"}).version == ""
    assert node_of(NODE, json.loads(json.dumps(report()))).version == "0.6.0"

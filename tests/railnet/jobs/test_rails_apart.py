"""Whether pods of a job are on rails that do not reach each other."""

import json
import time
from typing import Any

from railnet.fabric.published_reach import PublishedReach
from railnet.jobs.rails_apart import RailsOfPod, as_json, pod_rails, rails_apart, words
from railnet.objects.network_status import ANNOTATION

APART = PublishedReach({frozenset({0, 1}): False}, "2026-11-27")


def pod(name: str, *rails: int, **changes: Any) -> dict[str, Any]:
    networks = [
        {"name": "railnet/default", "interface": f"net{number}", "ips": ["10.56.0.9"], "rail": rail}
        for number, rail in enumerate(rails, 1)
    ]
    return {
        "metadata": {"name": name, "annotations": {ANNOTATION: json.dumps(networks)}},
        "spec": {"nodeName": "gpu-1"},
        "status": {"phase": "Running"},
        **changes,
    }


def test_two_pods_on_rails_that_do_not_reach_each_other_are_named_with_what_to_do() -> None:
    found = rails_apart(pod_rails([pod("w-2", 1), pod("w-1", 1), pod("w-0", 0)]), APART)

    assert found is not None
    assert words(found) == (
        "pods w-0 (rail 0) and w-1 (rail 1) do not reach each other over net1, as railnet validate found on 2026-11-27, so the job hangs at its "
        "first connection; have its pods request all rails, or a pool of one rail, or select a rail by DRA (docs/validate.md, "
        '"Which rails reach each other")'
    )
    assert as_json(found) == {
        "pods": [{"name": "w-0", "rails": [0]}, {"name": "w-1", "rails": [1]}],
        "found": "2026-11-27",
    }


def test_pods_with_a_rail_in_common_are_not_named() -> None:
    assert rails_apart(pod_rails([pod("w-0", 0, 1), pod("w-1", 1)]), APART) is None


def test_pods_on_rails_of_which_nothing_is_known_are_not_named() -> None:
    assert rails_apart(pod_rails([pod("w-0", 0), pod("w-1", 2)]), APART) is None
    assert rails_apart(pod_rails([pod("w-0", 0), pod("w-1", 1)]), PublishedReach()) is None


def test_pod_that_has_ended_or_has_no_node_is_met_by_none() -> None:
    ended, unbound = pod("w-1", 1, status={"phase": "Succeeded"}), pod("w-2", 1, spec={})

    assert rails_apart(pod_rails([pod("w-0", 0), ended, unbound]), APART) is None


def test_rails_that_a_pod_makes_up_are_left_out_and_cost_little() -> None:
    """Ten thousand pods, each with other rails, sixty-four of them."""
    reach = PublishedReach({frozenset({a, b}): False for a in range(8) for b in range(a)}, "2026-11-27")
    made_up = [
        RailsOfPod(f"w-{number}", frozenset((number % 8, *range(8 + number, 71 + number)))) for number in range(10_000)
    ]
    began = time.process_time()

    assert rails_apart(made_up, reach) is None
    assert time.process_time() - began < 10
    assert list(pod_rails([pod("w-0", 10**300)])) == []


def test_many_rails_are_shown_in_few_words() -> None:
    one, other = RailsOfPod("a", frozenset(range(60))), RailsOfPod("b", frozenset({99}))
    reach = PublishedReach({frozenset({rail, 99}): False for rail in range(60)}, "2026-11-27")
    found = rails_apart([one, other], reach)

    assert found is not None
    assert words(found).startswith("pods a (rails 0, 1, 2, 3, 4, 5, 6, 7 and 52 more) and b (rail 99) do not")

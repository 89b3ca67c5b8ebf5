"""Amounts of resources: what a pod requests, and what a node has."""

from typing import Any

import pytest

from railnet.objects.node_taints import has_taint
from railnet.objects.resource_amounts import allocatable, amount_text, capacity, requested


def test_requests_are_rounded_up_and_a_pod_counts_as_one() -> None:
    spec = {"containers": [{"resources": {"requests": {"cpu": "1500500u", "memory": "0.5", "x.io/zero": "0"}}}]}

    assert requested(spec) == {"cpu": 1501, "memory": 1, "pods": 1}


def test_what_a_node_has_is_rounded_down() -> None:
    written = {"cpu": "1500500u", "memory": "1.5", "rdma/ib_vf": 8}

    assert allocatable({"status": {"allocatable": written}}) == {"cpu": 1500, "memory": 1, "rdma/ib_vf": 8}
    assert capacity({"status": {"capacity": written}}) == {"cpu": 1500, "memory": 1, "rdma/ib_vf": 8}


@pytest.mark.parametrize("strange", ["?", "", None, [], {}, "1" * 1000, "1e999", "\u0663"])
def test_amount_that_is_no_quantity_counts_as_nothing(strange: object) -> None:
    assert allocatable({"status": {"allocatable": {"rdma/ib_vf": strange, "cpu": "1"}}}) == {"cpu": 1000}


@pytest.mark.parametrize("node", [{}, {"status": None}, {"status": {}}, {"status": {"allocatable": None}}])
def test_node_that_has_reported_nothing_has_nothing(node: dict[str, Any]) -> None:
    assert allocatable(node) == capacity(node) == {}


@pytest.mark.parametrize("strange", [5, "cpu", ["cpu"]])
def test_amounts_of_another_form_are_refused(strange: object) -> None:
    with pytest.raises(AttributeError):
        allocatable({"status": {"allocatable": strange}})


@pytest.mark.parametrize(
    ("taints", "has"), [(None, False), ([], False), ([{"key": "b"}], False), ([{"key": "a"}], True)]
)
def test_node_has_the_taint_that_its_key_names(taints: object, has: bool) -> None:
    assert has_taint({"spec": {"taints": taints}}, "a") is has


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("memory", 1 << 30, "1Gi"),
        ("ephemeral-storage", 512 << 20, "512Mi"),
        ("nvidia.com/gpu", 24, "24"),
    ],
)
def test_amounts_are_written_for_people(resource: str, amount: int, text: str) -> None:
    assert amount_text(resource, amount) == text

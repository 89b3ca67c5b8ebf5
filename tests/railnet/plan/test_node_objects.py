"""Groups of nodes by the pods of their daemons."""

from typing import Any

from railnet.plan.node_objects import labels_of_groups


def pod(group: str, selector: object, refused: int = 0) -> dict[str, Any]:
    """Return a pod of a group that leaves the nodes of so many groups."""
    conditions = [{"key": f"of-{number}", "operator": "NotIn", "values": ["x"]} for number in range(refused)]
    required = {"nodeSelectorTerms": [{"matchExpressions": conditions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}} if refused else {}
    labels = {"railnet.io/node-group": group} if group else {}
    return {"metadata": {"labels": labels}, "spec": {"nodeSelector": selector, "affinity": affinity}}


def test_label_of_a_group_is_known_beside_those_of_all_nodes_and_the_order_is_that_of_the_values() -> None:
    of_all = {"kubernetes.io/os": "linux", "card": "true"}
    pods = [
        pod("", of_all, 2),
        pod("a", {**of_all, "rack": "1"}, 1),
        pod("b", {**of_all, "gpu": "h100"}),
        pod("b", {**of_all, "gpu": "h100"}),
    ]

    assert list(labels_of_groups(pods).items()) == [("b", ("gpu", "h100")), ("a", ("rack", "1"))]


def test_label_that_cannot_be_told_is_none() -> None:
    assert labels_of_groups([pod("a", {"card": "true", "rack": "1"})]) == {"a": None}
    assert labels_of_groups([pod("a", {"card": "true", "railnet.io/node-group": "a"})]) == {
        "a": ("railnet.io/node-group", "a")
    }
    assert labels_of_groups([pod("a", "x"), pod("b", None), {}]) == {"a": None, "b": None}

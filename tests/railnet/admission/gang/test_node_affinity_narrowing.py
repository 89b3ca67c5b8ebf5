"""The node affinity that a review narrows: which nodes match afterwards, by the scheduler's own rules, for every affinity before."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.admission.gang import node_affinity_narrowing
from railnet.admission.gang.node_affinity_narrowing import AFFINITY, narrowed
from railnet.errors import Misconfigured
from railnet.jobs.gang.node_terms import Comparison, NodeTerm, Requirement

JsonObject = dict[str, Any]
KEYS, VALUES = ("a", "b", "c"), ("1", "2")
# Every set of labels over three keys; the name of the node is what `matchFields` is about.
NODES = [
    ({key: value for key, value in zip(KEYS, labels, strict=True) if value}, name)
    for labels in itertools.product(("", *VALUES), repeat=len(KEYS))
    for name in ("node-1", "node-2")
]


def a_pod(terms: list[JsonObject] | None) -> JsonObject:
    document: Any = terms
    for key in reversed(AFFINITY):
        document = {key: document}
    return {"spec": {} if terms is None else document}


def matched(terms: Any, labels: Mapping[str, str], name: str) -> bool:
    """Match as k8s.io/component-helpers/scheduling/corev1/nodeaffinity does: a term without requirements matches nothing."""

    def holds(expression: JsonObject) -> bool:
        return Requirement(
            expression["key"], Comparison(expression["operator"]), tuple(expression.get("values") or ())
        ).holds(labels)

    def term_holds(term: JsonObject) -> bool:
        expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
        return (
            bool(expressions or fields)
            and all(map(holds, expressions))
            and all(name in one["values"] for one in fields)
        )

    return terms is None or any(map(term_holds, terms))


requirements = st.one_of(
    st.builds(
        Requirement,
        st.sampled_from(KEYS),
        st.sampled_from([Comparison.IN, Comparison.NOT_IN]),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True).map(tuple),
    ),
    st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from([Comparison.EXISTS, Comparison.DOES_NOT_EXIST])),
)
node_terms = st.lists(
    st.lists(requirements, min_size=1, max_size=2).map(lambda found: NodeTerm(tuple(found))), min_size=1, max_size=3
)
expressions = st.lists(
    requirements.map(
        lambda one: (
            {"key": one.key, "operator": one.comparison.value} | ({"values": list(one.values)} if one.values else {})
        )
    ),
    max_size=2,
)
fields = st.sampled_from([None, [], [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]])
terms_of_a_pod = st.none() | st.lists(
    st.builds(
        lambda labels, names: {"matchExpressions": labels} | ({} if names is None else {"matchFields": names}),
        expressions | st.none(),
        fields,
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow
@given(terms_of_a_pod, node_terms)
def test_pod_may_be_on_a_node_afterwards_if_both_permitted_it_before(
    own: list[JsonObject] | None, nodes: list[NodeTerm]
) -> None:
    found = narrowed(a_pod(own), nodes)
    after = own if found is None else list(found)

    for labels, name in NODES:
        permitted = matched(own, labels, name) and any(term.holds(labels) for term in nodes)
        assert matched(after, labels, name) is permitted


@pytest.mark.slow
@given(terms_of_a_pod, node_terms)
def test_narrowing_twice_changes_nothing(own: list[JsonObject] | None, nodes: list[NodeTerm]) -> None:
    once = narrowed(a_pod(own), nodes)

    assert narrowed(a_pod(own if once is None else list(once)), nodes) is None


def in_one_of(count: int) -> list[NodeTerm]:
    return [NodeTerm((Requirement("a", Comparison.IN, (str(number),)),)) for number in range(count)]


def test_terms_by_the_nodes_name_stay_beside_the_constraints() -> None:
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}

    (term,) = narrowed(a_pod([by_name]), in_one_of(1)) or ()

    assert term == by_name | {"matchExpressions": [{"key": "a", "operator": "In", "values": ["0"]}]}


def test_pod_without_a_constraint_on_nodes_keeps_its_affinity() -> None:
    assert narrowed(a_pod([{"matchExpressions": []}]), ()) is None


def test_too_many_pairs_are_refused_with_both_numbers() -> None:
    own = [{"matchExpressions": [{"key": "b", "operator": "In", "values": [str(number)]}]} for number in range(17)]

    assert len(narrowed(a_pod(own[:16]), in_one_of(16)) or ()) == 256
    with pytest.raises(Misconfigured, match=r"the pod's 17 terms .* and the constraint's 16 nodeSelectors"):
        narrowed(a_pod(own), in_one_of(16))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"affinity": []}, "spec.affinity is not a mapping"),
        ({"affinity": {"nodeAffinity": 5}}, "spec.affinity.nodeAffinity is not a mapping"),
        ({"affinity": {AFFINITY[1]: {AFFINITY[2]: {AFFINITY[3]: {}}}}}, "nodeSelectorTerms is not a list of mappings"),
        ({"affinity": {AFFINITY[1]: {AFFINITY[2]: {AFFINITY[3]: [5]}}}}, "nodeSelectorTerms is not a list of mappings"),
        (
            {"affinity": {AFFINITY[1]: {AFFINITY[2]: {AFFINITY[3]: [{"matchExpressions": 5}]}}}},
            "matchExpressions of a term",
        ),
    ],
)
def test_malformed_affinity_is_refused_by_its_path(spec: JsonObject, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        narrowed({"spec": spec}, in_one_of(1))


@pytest.mark.parametrize(
    "spec", [{"affinity": None}, {"affinity": {"nodeAffinity": None}}, {"affinity": {"podAffinity": {}}}]
)
def test_missing_affinity_gets_the_constraints_terms(spec: JsonObject) -> None:
    found = narrowed({"spec": spec}, in_one_of(2))

    assert found == tuple({"matchExpressions": [{"key": "a", "operator": "In", "values": [value]}]} for value in "01")


def test_work_for_one_pod_ends_with_the_pairs_that_are_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod has at most 100,000 values, and a constraint some hundred: all pairs of both would take seconds."""
    looked: list[Any] = []
    identity = node_affinity_narrowing._identity
    monkeypatch.setattr(node_affinity_narrowing, "_identity", lambda one: looked.append(one) or identity(one))
    own = [{"matchExpressions": [{"key": "b", "operator": "Exists"}]} for _ in range(20_000)]

    with pytest.raises(Misconfigured, match="20000 terms"):
        narrowed(a_pod(own), in_one_of(200))

    assert len(looked) < 200 + 256

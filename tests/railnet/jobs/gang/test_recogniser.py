"""The gang of a pod: every spelling of its name and number, the constraint as the article prints it, and what is refused in which words."""

import json
from typing import Any

import pytest

from railnet.errors import Misconfigured
from railnet.jobs.gang.gang_constraint import CONSTRAINT, constraint
from railnet.jobs.gang.node_terms import Comparison, NodeTerm, Requirement
from railnet.jobs.gang.recogniser import SPELLINGS, Spelling, agreed, described, gang_request
from railnet.jobs.gang.request import Constraint, GangRequest
from tests.railnet.jobs.builders import a_pod

NAME, LEAST = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
# As the article prints it, with its backslashes, and as the pods of its result have it, with a space at the end.
PRINTED = r"{\"name\":\"test\",\"required\":{\"topologies\":[{\"key\":\"kubernetes.io/hostname\"}],\"nodeSelectors\":[{\"matchLabels\":{\"test\":\"abc\"}}]}}"
SHOWN = '{"name": "test", "required": {"topologies":[{"key": "kubernetes.io/hostname"}], "nodeSelectors": [{"matchLabels": {"test": "a"}}]}} '


def one(key: str, *values: str, comparison: Comparison = Comparison.IN) -> NodeTerm:
    return NodeTerm((Requirement(key, comparison, values),))


def of_article(value: str) -> Constraint:
    return Constraint("test", required=("kubernetes.io/hostname",), nodes=(one("test", value),))


def said(labels: dict[str, str] | None = None, **annotations: str) -> GangRequest | None:
    return gang_request(a_pod(labels=labels or {}, annotations=annotations))


def required(**fields: Any) -> str:
    return json.dumps({"required": fields})


def test_articles_example_is_read_as_it_is_printed() -> None:
    labels = {NAME: "tf-smoke-gpu", LEAST: "3"}

    assert said(labels, **{CONSTRAINT: PRINTED}) == GangRequest("tf-smoke-gpu", 3, of_article("abc"))


@pytest.mark.parametrize(
    "text",
    [
        PRINTED,
        PRINTED.replace("{", "{\n  ", 1),
        json.dumps(PRINTED.replace("\\", "")),
        f"  {PRINTED}\n",
        PRINTED.replace("\\", ""),
    ],
    ids=["escaped", "escaped, in lines", "quoted twice", "in a block", "plain"],
)
def test_constraint_is_the_same_however_yaml_was_quoted(text: str) -> None:
    assert constraint(text) == of_article("abc")


def test_constraint_is_read_as_kubectl_shows_it() -> None:
    assert constraint(SHOWN) == of_article("a")


def test_empty_objects_of_the_articles_structure_are_every_node() -> None:
    text = required(topologies=[{"key": "zone"}], nodeSelectors=[{"matchLabels": {}, "matchExpressions": {}}])

    assert constraint(text) == Constraint(required=("zone",))


def test_several_selectors_are_alternatives_and_the_parts_of_one_all_hold() -> None:
    selectors = [
        {
            "matchLabels": {"a": "1", "b": ""},
            "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["2", "3"]}],
        },
        {"matchExpressions": [{"key": "d", "operator": "Exists"}, {"key": "e", "operator": "Gt", "values": ["7"]}]},
    ]

    first, second = constraint(required(nodeSelectors=selectors)).nodes

    assert first.requirements == (
        Requirement("a", Comparison.IN, ("1",)),
        Requirement("b", Comparison.IN, ("",)),
        Requirement("c", Comparison.NOT_IN, ("2", "3")),
    )
    assert second.requirements == (Requirement("d", Comparison.EXISTS), Requirement("e", Comparison.GREATER, ("7",)))


def test_one_empty_selector_permits_every_node_whatever_the_others_say() -> None:
    assert constraint(required(nodeSelectors=[{"matchLabels": {"a": "1"}}, {}])).nodes == ()


def test_preferred_levels_and_seconds_are_the_superset() -> None:
    text = '{"preferred":{"topologies":[{"key":"railnet.io/leaf"},{"key":"railnet.io/fabric"}]},"relaxAfterSeconds":30}'

    assert constraint(text) == Constraint(preferred=("railnet.io/leaf", "railnet.io/fabric"), relax_after=30.0)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"name":null,"required":null,"preferred":null,"relaxAfterSeconds":null}',
        '{"required":{"topologies":null}}',
    ],
)
def test_null_is_as_if_the_key_were_missing(text: str) -> None:
    assert constraint(text) == Constraint()


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.name)
def test_each_spelling_names_the_gang_and_its_number(spelling: Spelling) -> None:
    texts = {spelling.name: "ring", **({spelling.least: "4"} if spelling.least else {})}
    pod = a_pod(**{"annotations" if spelling.annotated else "labels": texts})

    assert gang_request(pod) == GangRequest("ring", 4 if spelling.least else None)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.name)
def test_articles_number_counts_with_every_spelling_of_the_name(spelling: Spelling) -> None:
    names = {spelling.name: "ring"}
    pod = a_pod(
        labels={LEAST: "4", **({} if spelling.annotated else names)}, annotations=names if spelling.annotated else {}
    )

    assert gang_request(pod) == GangRequest("ring", 4)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.name)
def test_label_is_no_annotation_and_annotation_no_label(spelling: Spelling) -> None:
    assert gang_request(a_pod(**{"labels" if spelling.annotated else "annotations": {spelling.name: "ring"}})) is None


def test_articles_label_comes_before_what_an_operator_adds() -> None:
    labels = {NAME: "mine", "scheduling.x-k8s.io/pod-group": "of-the-operator"}

    assert said(labels, **{"scheduling.k8s.io/group-name": "podgroup-1"}) == GangRequest("mine")


def test_annotation_without_the_labels_is_no_gang() -> None:
    assert said({}, **{CONSTRAINT: PRINTED}) is None
    assert said({LEAST: "3"}, **{CONSTRAINT: PRINTED}) is None


def test_labels_without_the_annotation_are_a_gang_without_topology() -> None:
    assert said({NAME: "ring", LEAST: "3"}) == GangRequest("ring", 3)


@pytest.mark.parametrize("text", ["0", "-1", "", "many", "3.0", "+3", " 3", "٣", "1e3", "10000000", "9" * 5000])
@pytest.mark.parametrize("spelling", [spelling for spelling in SPELLINGS if spelling.least], ids=lambda one: one.name)
def test_number_that_is_none_is_refused_by_its_label(spelling: Spelling, text: str) -> None:
    pod = a_pod(**{"annotations" if spelling.annotated else "labels": {spelling.name: "ring", spelling.least: text}})

    with pytest.raises(Misconfigured) as refused:
        gang_request(pod)

    assert str(refused.value).startswith(f"{spelling.least} is {text[:9]!r}"[:-1])
    assert 'such as "5"' in str(refused.value)


def test_number_larger_than_the_job_is_refused_and_an_equal_one_is_not() -> None:
    labels = {NAME: "ring", LEAST: "5"}

    assert said(labels, **{"railnet.io/size": "5"}) == GangRequest("ring", 5)
    with pytest.raises(
        Misconfigured, match=rf"{LEAST} is 5, but railnet.io/size says that the job has 4 pods.*at most 4"
    ):
        said(labels, **{"railnet.io/size": "4"})


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a b", "a" * 254, "a\nb", "ä"])
@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.name)
def test_name_that_is_none_is_refused_by_its_label(spelling: Spelling, name: str) -> None:
    pod = a_pod(**{"annotations" if spelling.annotated else "labels": {spelling.name: name}})

    with pytest.raises(Misconfigured, match="it should be the gang's name") as refused:
        gang_request(pod)

    assert str(refused.value).startswith(f"{spelling.name} is ")
    assert len(str(refused.value)) < 512


BROKEN = {
    "": "is not JSON: Expecting value at line 1 column 1 (character 0",
    PRINTED.replace("\\", "")[:-1]: "is not JSON: Expecting ',' delimiter at line 1 column 125 (character 124",
    PRINTED[:-1]: "is not JSON: Expecting ',' delimiter at line 1 column 125 (character 124",
    "{name: test}": "Expecting property name enclosed in double quotes at line 1 column 2 (character 1, at '{name: test}')",
    '{"name":\n"a" "b"}': "Expecting ',' delimiter at line 2 column 5",
    '{"name":"a"} x': "Extra data at line 1 column 14",
    "[]": "is []; it should be an object, like {",
    '"[]"': "is []; it should be an object",
    "7": "is 7; it should be an object",
    "[" * 16_000: "is nested too deeply",
    '{"name":NaN}': "has NaN, which is no number",
    '{"relaxAfterSeconds":-Infinity}': "has -Infinity, which is no number",
    '{"relaxAfterSeconds":' + "9" * 40 + "}": "has a number of 40 digits",
    '{"name":"a","name":"b"}': "has the key 'name' twice",
    '{"name":5}': "name is 5; it should be a string",
    json.dumps({"name": "a" * 254}): "name has 254 characters",
    " " * 20000: "has 20000 characters; it should have at most 16384",
    '{"topologies":[]}': "has the unknown key 'topologies'; known are name, required, preferred, relaxAfterSeconds",
    '{"required":[]}': "required is []; it should be an object",
    required(topology="a"): "required has the unknown key 'topology'; known are topologies, nodeSelectors",
    required(topologies={"key": "a"}): "required.topologies is {'key': 'a'}; it should be a list",
    required(topologies=["a"]): "required.topologies[0] is 'a'; it should be an object",
    required(topologies=[{}]): "required.topologies[0].key is None; it should be a string",
    required(
        topologies=[{"key": "a b"}]
    ): "required.topologies[0].key is 'a b'; it should be the key of a node's label",
    required(topologies=[{"key": "a" * 254 + "/b"}]): "it should be the key of a node's label",
    required(topologies=[{"key": "a/" + "b" * 64}]): "it should be the key of a node's label",
    required(topologies=[{"key": "a"}, {"key": "a"}]): "required.topologies[1].key is a again; remove one",
    required(topologies=[{"key": "a", "level": 1}]): "required.topologies[0] has the unknown key 'level'",
    required(nodeSelectors={}): "required.nodeSelectors is {}; it should be a list",
    required(nodeSelectors=[{"labels": {}}]): "has the unknown key 'labels'; known are matchLabels, matchExpressions",
    required(
        nodeSelectors=[{"matchLabels": {"a": 1}}]
    ): "required.nodeSelectors[0].matchLabels['a'] is 1; it should be a string",
    required(nodeSelectors=[{"matchLabels": {"a": "b c"}}]): "is 'b c'; no label can have this value",
    required(nodeSelectors=[{"matchLabels": {"/a": "b"}}]): "matchLabels is '/a'; it should be the key",
    required(
        nodeSelectors=[{"matchExpressions": {"key": "a"}}]
    ): "matchExpressions is {'key': 'a'}; it should be a list",
    required(
        nodeSelectors=[{"matchExpressions": [{"key": "a", "operator": "in"}]}]
    ): "operator is 'in'; it should be one of In, NotIn",
    required(
        nodeSelectors=[{"matchExpressions": [{"key": "a", "operator": []}]}]
    ): "operator is []; it should be one of",
    required(
        nodeSelectors=[{"matchExpressions": [{"key": "a", "operator": "In"}]}]
    ): "operator In it should have at least one value",
    required(
        nodeSelectors=[{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}]
    ): "should have no values",
    required(
        nodeSelectors=[{"matchExpressions": [{"key": "a", "operator": "Lt", "values": ["b"]}]}]
    ): "one whole number",
    required(
        nodeSelectors=[{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1", "2"]}]}]
    ): "one whole number",
    '{"preferred":{"nodeSelectors":[]}}': "preferred has the unknown key 'nodeSelectors'; known are topologies",
    required(topologies=[{"key": f"k{number}"} for number in range(17)]): "17 topologies; it should have at most 16",
    '{"relaxAfterSeconds":5}': "relaxAfterSeconds is 5, but there is no preferred.topologies",
    '{"preferred":{"topologies":[{"key":"a"}]},"relaxAfterSeconds":-1}': "a number of seconds from 0 to",
    '{"preferred":{"topologies":[{"key":"a"}]},"relaxAfterSeconds":true}': "a number of seconds from 0 to",
    '{"preferred":{"topologies":[{"key":"a"}]},"relaxAfterSeconds":1e99}': "a number of seconds from 0 to",
    '{"preferred":{"topologies":[{"key":"a"}]},"relaxAfterSeconds":"5"}': "a number of seconds from 0 to",
}


@pytest.mark.parametrize(("text", "words"), BROKEN.items(), ids=range(len(BROKEN)))
def test_broken_constraint_is_refused_in_words_that_name_the_annotation_and_the_place(text: str, words: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        said({NAME: "ring"}, **{CONSTRAINT: text})

    assert str(refused.value).startswith(CONSTRAINT)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 640


def test_deep_value_is_refused_where_the_parser_reads_it_and_where_it_does_not() -> None:
    with pytest.raises(
        Misconfigured, match=r"is nested too deeply|name is \[+; it should be a string"
    ):  # Python 3.11, 3.12
        said({NAME: "ring"}, **{CONSTRAINT: '{"name":' + "[" * 4000 + "]" * 4000 + "}"})


def test_members_that_say_the_same_agree_and_one_that_says_nothing_contradicts_no_other() -> None:
    whole = GangRequest("ring", 3, of_article("abc"))
    members = [("b", GangRequest("ring")), ("a", whole), ("c", GangRequest("ring", 3))]

    assert agreed(members) == whole
    assert agreed([]) is None
    assert agreed([("a", GangRequest("ring"))]) == GangRequest("ring")


def test_names_of_constraints_do_not_contradict() -> None:
    first, second = Constraint("ps", required=("zone",)), Constraint("worker", required=("zone",))

    assert agreed([("b", GangRequest("ring", 2, second)), ("a", GangRequest("ring", 2, first))]) == GangRequest(
        "ring", 2, first
    )


def test_two_numbers_in_one_gang_are_refused_with_both_and_their_pods() -> None:
    members = [
        ("worker-1", GangRequest("ring", 4)),
        ("ps-0", GangRequest("ring")),
        ("worker-0", GangRequest("ring", 3)),
    ]

    with pytest.raises(Misconfigured) as refused:
        agreed(members)

    assert str(refused.value) == (
        "pods of gang ring contradict each other: min-available of pod worker-0 is 3, and of pod worker-1 4; give all pods of the gang "
        "the same"
    )


def test_two_constraints_in_one_gang_are_refused_with_both_and_their_pods() -> None:
    first, second = Constraint(required=("zone",)), Constraint(required=("rack",), nodes=(one("a", "1"),))

    with pytest.raises(Misconfigured) as refused:
        agreed([("x", GangRequest("ring", None, first)), ("y", GangRequest("ring", None, second))])

    assert "of pod x is in one zone, and of pod y in one rack, on nodes with a=1;" in str(refused.value)


def test_constraint_in_words_has_all_its_parts() -> None:
    whole = Constraint(
        required=("zone", "row"),
        preferred=("leaf", "pod"),
        nodes=(one("a", "1"), one("b", "2", "3", comparison=Comparison.NOT_IN), one("c", comparison=Comparison.EXISTS)),
        relax_after=30.0,
    )

    assert described(whole) == (
        "in one zone and one row, preferably in one leaf, else in one pod, on nodes with a=1 or b NotIn (2, 3) or c Exists, "
        "spread after 30 s"
    )
    assert described(Constraint()) == "on any nodes"

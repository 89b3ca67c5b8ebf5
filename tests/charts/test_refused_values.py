"""Values that the chart refuses: those that contradict each other, and those that its schema does not know."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from railnet.configuration import parse
from railnet.errors import Misconfigured
from tests.charts import features
from tests.charts.rendered import CHART, ROOT, JsonObject, helm, nested, node_yaml, rendered, template

pytestmark = pytest.mark.slow

SCHEMA: JsonObject = json.loads((CHART / "values.schema.json").read_text())
TEMPLATE = (CHART / "templates/refused.yaml").read_text()


def group(name: str = "gpu", **keys: Any) -> JsonObject:
    return {"name": name, "nodeSelector": {"node": name}, "configuration": keys}


REFUSED: list[tuple[features.Values, str]] = [
    ({"gangs.enabled": True}, "gangs.enabled needs the webhook, which makes pods wait, and the controllers, which"),
    ({**features.WEBHOOK, "gangs.enabled": True}, "which makes pods wait, and the controllers"),
    ({**features.CONTROLLERS, "gangs.enabled": True}, "set webhook.enabled and controllers.enabled to true"),
    ({"webhook.hostNetwork.enabled": True}, "webhook.hostNetwork.enabled needs webhook.enabled: true"),
    ({"webhook.certManager.enabled": True}, "webhook.certManager.enabled needs webhook.enabled: true"),
    ({"webhook.priorityClass": "iteration"}, "webhook.priorityClass needs webhook.enabled: true"),
    ({"controllers.cleanUp.enabled": True}, "controllers.cleanUp.enabled needs controllers.enabled: true"),
    (
        {**features.STICKY, "controllers.enabled": False},
        "controllers.stickyAddresses.enabled needs controllers.enabled",
    ),
    ({**features.STICKY, "controllers.stickyAddresses.range": ""}, "controllers.stickyAddresses.range is empty: set"),
    (
        {"node.configuration": {"offer": "dra"}},
        "node.configuration sets offer, which also needs rights and a policy: set the value offer",
    ),
    ({"railsCondition.taint": True}, "railsCondition.taint needs railsCondition.enabled: true"),
    ({"railsCondition.kernelMessages": True}, "railsCondition.kernelMessages needs railsCondition.enabled: true"),
    *(
        (values, f"{place} sets publish.{key}, which also needs rights and a policy: set the value {value} instead")
        for key, value in (
            ("topologyLabels", "topologyLabels.enabled"),
            ("railsCondition", "railsCondition.enabled"),
            ("railsTaint", "railsCondition.taint"),
            ("kernelMessages", "railsCondition.kernelMessages"),
        )
        for place, values in (
            ("node.configuration", {"node.configuration": {"publish": {key: True}}}),
            ("node.groups, gpu", {"node.groups": [group(publish={key: True})]}),
        )
    ),
    *(
        (values, f"{place} sets admission.priorityClass: set the value webhook.priorityClass instead")
        for place, values in (
            ("node.configuration", {"node.configuration": {"admission": {"priorityClass": "ptr"}}}),
            ("node.groups, node", {"node.groups": [group("node", admission={"priorityClass": "ptr"})]}),
        )
    ),
    (
        {"validate.idle.resource": "rdma/rail7"},
        "validate.idle.resource is rdma/rail7, and the pools of the nodes are rdma/ib_vf: name one of them, or none",
    ),
    ({"node.groups": [group("a"), group("b"), group("a")]}, "two of node.groups have the name a"),
]


def refusal(**values: Any) -> str:
    done = template(**values)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_values_that_contradict_each_other_are_refused(values: features.Values, message: str) -> None:
    assert message in refusal(**values)


def test_another_namespace_is_refused() -> None:
    done = helm("template", "railnet", CHART, "--namespace", "default")

    assert done.returncode != 0
    assert "into the namespace railnet, not default: use --namespace railnet --create-namespace" in done.stderr


def test_each_message_of_the_template_has_a_case() -> None:
    messages = re.findall(r'fail (?:\(printf )?"([^"]+)"', TEMPLATE)
    said = ["".join(refusal(**values)) for values, _ in REFUSED]
    patterns = [re.escape(message).replace("%s", ".+") for message in messages]

    assert len(messages) == TEMPLATE.count("fail ")
    missed = [one for one in patterns if not any(re.search(one, text) for text in said)]
    assert missed == [patterns[0]]  # of the namespace, which has a test of its own


def test_group_may_have_the_name_of_any_part() -> None:
    documents = rendered(**{"node.groups": [group("node")]})

    assert {"railnet-node", "railnet"} <= {one["metadata"]["name"] for one in documents if one["kind"] == "DaemonSet"}


@pytest.mark.parametrize(("version", "accepted"), [("1.29.14", False), ("1.30.0", True), ("1.37.2", True)])
def test_oldest_kubernetes_is_1_30(version: str, accepted: bool) -> None:
    done = template("--kube-version", version)

    assert (done.returncode == 0) is accepted
    assert ("chart requires kubeVersion: >=1.30" in done.stderr) is not accepted


def resolved(schema: JsonObject) -> JsonObject:
    reference = schema.get("$ref")
    return schema if reference is None else SCHEMA["$defs"][reference.removeprefix("#/$defs/")]


def places(schema: JsonObject, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], JsonObject]]:
    """Yield the path and the schema of each value that the schema names, in the order of the schema."""
    schema = resolved(schema)
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from places(below, (*path, name))
    if "items" in schema:
        yield from places(schema["items"], (*path, 0))


PLACES = {".".join(map(str, path)): (path, schema) for path, schema in places(SCHEMA)}
CLOSED = {name: path for name, (path, schema) in PLACES.items() if schema.get("additionalProperties") is False}
WRONG: dict[str, Any] = {"object": [], "array": {}, "string": 7, "boolean": "true", "integer": 1.5}


def at(path: tuple[str | int, ...], value: Any) -> JsonObject:
    """Return the values in which one place has a value; a group of nodes has what it must have."""
    for key in reversed(path):
        if isinstance(key, str):
            value = {key: value}
        else:
            value = [{**group(), **value}] if isinstance(value, dict) and "groups" in path else [value]
    return {} if value is None else dict(value)


def test_each_object_of_the_values_is_closed_or_free() -> None:
    open_objects = {
        name
        for name, (_, schema) in PLACES.items()
        if schema.get("type") == "object" and "additionalProperties" not in schema
    }

    of_configuration = {
        "host",
        "pools.0",
        "rdma",
        "provision.0",
        "networks",
        "limits",
        "timeouts",
        "publish",
        "admission",
    }
    free = {
        f"{place}.{key}" for place in ("node.configuration", "node.groups.0.configuration") for key in of_configuration
    }
    free |= {f"{of}.resources.{kind}" for of in ("node", "webhook", "controllers") for kind in ("requests", "limits")}
    assert open_objects == free | {"global", "node.tolerations.0"}


@pytest.mark.parametrize("path", CLOSED.values(), ids=CLOSED.keys())
def test_unknown_key_is_refused_at_each_level(path: tuple[str | int, ...]) -> None:
    said = refusal(**at((*path, "unknown"), True))

    assert "additional properties 'unknown' not allowed" in said


TYPED = {name: (path, schema) for name, (path, schema) in PLACES.items() if path}


@pytest.mark.parametrize(("path", "schema"), TYPED.values(), ids=TYPED.keys())
def test_wrong_type_is_refused(path: tuple[str | int, ...], schema: JsonObject) -> None:
    said = refusal(**at(path, WRONG[schema["type"]] if "type" in schema else "another"))

    assert f"at '/{'/'.join(map(str, path))}'" in said


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.registry", "https://registry.example.com"),
        ("image.registry", "registry.example.com/"),
        ("image.tag", "a tag"),
        ("node.groups", [group("Upper")]),
        ("node.groups", [{**group(), "nodeSelector": {}}]),
        ("node.groups", [{**group(), "nodeSelector": {"a": "1", "b": "2"}}]),
        ("node.groups", [{"name": "a", "configuration": {}}]),
        ("webhook.replicas", 0),
        ("webhook.hostNetwork.ports", "20000"),
        ("controllers.stickyAddresses.range", "10.58.0.0"),
        ("uninstall.timeoutSeconds", 0),
    ],
    ids=str,
)
def test_value_that_does_not_fit_its_pattern_is_refused(path: str, value: Any) -> None:
    assert f"at '/{path.replace('.', '/')}" in refusal(**{path: value})


def known_keys() -> set[str]:
    """Return the keys of node.yaml that the daemon knows, as it says them of a key that it does not know."""
    with pytest.raises(Misconfigured) as error:
        parse("unknown: 1", "node.yaml")
    return set(str(error.value).partition("known here: ")[2].split(", "))


def test_schema_knows_the_keys_of_node_yaml_and_no_other() -> None:
    fixed = {"apiVersion", "kind"}  # the chart writes them

    assert known_keys() >= fixed
    assert SCHEMA["$defs"]["configuration"]["properties"].keys() == known_keys() - fixed


def example() -> JsonObject:
    """Return the example of all keys, docs/configuration.md's, without those that are the chart's."""
    page = (ROOT / "docs/configuration.md").read_text()
    text = page.partition("```yaml\n")[2].partition("```")[0]
    parse(text, "docs/configuration.md")
    whole: JsonObject = yaml.safe_load(text)
    assert whole.keys() == known_keys()
    for key in ("apiVersion", "kind", "admission", "offer"):
        del whole[key]
    whole["publish"] = {key: whole["publish"][key] for key in ("networkStatus", "events")}
    return whole


def test_configuration_of_the_page_is_that_of_the_nodes() -> None:
    written = node_yaml(rendered(**{"node.configuration": example()}))

    assert parse(written, "node.yaml") == parse(json.dumps(example()), "values")


FORMS: list[JsonObject] = [  # docs/configuration.md has a key in these forms, too
    {"rails": {"select": {"linkType": ["infiniband"], "numaNode": [0, -1]}}},
    {"rails": ["0000:03:00.0", "0000:0c:00.0"]},
    {"provision": [{"select": {"pfDevice": ["1021"], "function": [0], "pf": ["0000:03:00.0"]}, "vfs": 8}]},
    {"memlock": "unlimited"},
    {"memlock": "64Gi"},
    {"memlock": 1 << 36},
    {"portThresholds": "ignore"},
    {"host": {"kubelet": "/var/lib/k0s/kubelet"}},
    {"primary": "/etc/cni/net.d/10-flannel.conflist"},
    {"pools": [{"resource": "rdma/ib_vf", "management": True, "ncclRails": True}]},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_other_forms_of_the_page_are_those_of_the_nodes(form: JsonObject) -> None:
    written = node_yaml(rendered(**{"node.configuration": form}))

    assert parse(written, "node.yaml") == parse(json.dumps(form), "values")


@pytest.mark.parametrize(
    "rails", ["all", {}, {"choose": {}}, {"select": []}, {"select": {}, "vfs": 8}, [{"select": {}}]], ids=str
)
def test_rails_of_another_form_are_refused(rails: Any) -> None:
    assert "at '/node/configuration/rails" in refusal(**{"node.configuration": {"rails": rails}})


def test_value_of_a_wrong_kind_that_the_schema_accepts_is_refused_by_the_daemon() -> None:
    """The schema looks at the first level of node.yaml; the daemon looks at all of it, and its pod is not ready."""
    written = node_yaml(rendered(**{"node.configuration": nested({"timeouts.add": "soon"})}))

    with pytest.raises(Misconfigured, match=r"timeouts\.add"):
        parse(written, "node.yaml")

"""The scope of the webhook: the pods for which the API server sends a review, computed from the table of operators.

`scripts/generate` writes it to `charts/railnet/files/webhooks/`. Every pod that `decision.decide` changes or denies is in scope. A pod out of scope neither
waits nor fails when the webhook does not answer.
"""

from collections.abc import Iterator
from string import Formatter
from typing import Any

from railnet.admission import railnet_annotations
from railnet.admission.host_network.host_network import HOST, KUBEDL_MODE
from railnet.jobs.gang import recogniser
from railnet.jobs.gang.recogniser import SPELLINGS
from railnet.jobs.operators import OPERATORS, Operator
from railnet.jobs.railnet_labels import NET1, NETWORK_MODE
from railnet.vf.permitted_networks import STICKY_ANNOTATION as STICKY  # on a namespace, a label of the same name

Entry = dict[str, Any]
Requirement = dict[str, Any]

NAME = "railnet-admission"  # the name of the webhook configuration, and of the Service
NAMESPACE = "railnet"
# The paths for pods in namespaces without the label, and in namespaces whose label is "true"; a namespace with the other label "true" has
# paths of its own.
PLAIN, LABELLED = "/pods", "/pods/net1"
STICKY_PATH = "/sticky"
SERVICES, GANGS, GANG_JOBS = "/services", "/gangs", "/gangs/jobs"

_TIMEOUT_SECONDS = 5  # a review takes milliseconds; the rest is for a replica whose node has just failed
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
NEVER = ("kube-system", NAMESPACE)  # no pod trains in these namespaces, and their pods must start without the webhook

_LABELS = "object.metadata.labels"
_MIRROR = "kubernetes.io/config.mirror"


def pods(*, by_claims: bool = False) -> list[Entry]:
    """Return the entries for pods of training jobs: six; at most one applies to a pod.

    `by_claims` says whether a node offers VFs by DRA. Elsewhere no claim is of a VF, and a pod with claims alone, such as of GPUs, does not wait
    for the webhook.
    """
    unlabelled = {"matchExpressions": [_lacks(NET1)]}
    recognised = {"name": "recognised", "expression": recognised_expression()}
    asks = {"name": "asks-for-devices", "expression": asks_expression(by_claims=by_claims)}
    # The pod's label overrides its namespace's, and a malformed label must be denied.
    labelled = {"matchExpressions": [{"key": NET1, "operator": "Exists"}, _has_not(NET1, "false")]}
    return [
        *_entries("recognised", _in_namespaces(None), unlabelled, PLAIN, _conditions(recognised, asks)),
        *_entries("namespace", _in_namespaces("true"), unlabelled, LABELLED, _conditions(recognised)),
        *_entries("label", [], labelled, PLAIN, _conditions()),
    ]


def services() -> list[Entry]:
    """Return the entries that host-network mode adds: the Services that operators make for one pod each, and those with the label.

    Selectors are enough: operators write the same marks to their Services.
    """
    switched_on = [_has_not(NET1, "false")]
    rows = [row for row in _operators() if row.ports]
    named = [(f"{row.page}.services", [*_marks(row)]) for row in rows]
    named.append(("label.services", [_has(NETWORK_MODE, HOST)]))
    return [_entry(name, switched_on, {"matchExpressions": marks}, SERVICES, "services") for name, marks in named]


def gangs() -> list[Entry]:
    """Return the entries that gangs add: pods that name a gang, and pods with the gate; and Jobs whose pods name a gang.

    A pod for another scheduler is left alone, so it is not asked about. Gangs have entries and paths of their own, so pods without one
    are asked about as before. A pod that cannot be reviewed is let in, and does not wait for its gang. A Job that cannot be reviewed is let in,
    and its gang is not moved.
    """
    switched_on = [_has_not(recogniser.GATE, recogniser.OFF)]
    every: Entry = {"matchExpressions": []}
    ignore = {"failurePolicy": "Ignore"}
    names = {"name": "names-a-gang", "expression": gang_expression()}
    makes = {"name": "makes-a-gang", "expression": job_expression()}
    of_jobs = _entry("gang-jobs", switched_on, every, GANG_JOBS) | {"rules": [_rule("batch", "jobs")]}
    return [
        _entry("gangs", switched_on, every, GANGS) | ignore | _conditions(names),
        of_jobs | ignore | {"matchConditions": [makes]},
    ]


def gang_expression() -> str:
    """Return the CEL expression "the pod names a gang and is for the default scheduler, or it has the gate"."""
    return (
        f"{_names_gang('object')}\n"
        f"|| has(object.spec.schedulingGates) && object.spec.schedulingGates.exists(gate, gate.name == {_quoted(recogniser.GATE)})"
    )


def job_expression() -> str:
    """Return the CEL expression "the Job's pods name a gang and are for the default scheduler"."""
    return f"has(object.spec.template) && has(object.spec.template.metadata) && {_names_gang('object.spec.template')}"


def recognised_expression() -> str:
    """Return the CEL expression "the pod has an operator's marks", with the rules of `railnet.jobs.recogniser`."""
    rows = "\n|| ".join(_row(operator) for operator in _operators())
    return f"has({_LABELS}) && (\n{rows})"


def asks_expression(*, by_claims: bool) -> str:
    """Return the CEL expression "a container asks for a device of any kind, or the pod has an annotation of Railnet, or KubeDL's mode".

    With `by_claims` a container may ask by a claim, too.

    `decision` adds nothing to a pod without a GPU, a VF or a label. It also decides whether a device is a GPU or a VF, and whether an init
    container is a sidecar; the expression does not. Only extended resources have a slash in their names.
    """
    asked = "\n|| ".join(
        f"has(container.resources.{kind}) && container.resources.{kind}.exists(name, name.contains('/'))"
        for kind in ("limits", "requests")
    )
    asked += "\n|| has(container.resources.claims)" if by_claims else ""
    exists = f".exists(container, has(container.resources) && (\n{asked}))\n"
    key = f"key.startsWith({_quoted(railnet_annotations.PREFIX)}) || key == {_quoted(KUBEDL_MODE)}"
    annotated = f"object.metadata.annotations.exists(key, {key})"
    return (
        f"object.spec.containers{exists}"
        f"|| has(object.spec.initContainers) && object.spec.initContainers{exists}"
        f"|| has(object.metadata.annotations) && {annotated}"
    )


def _names_gang(pod: str) -> str:
    """Return the expression for a pod, or a template of pods, that is reached by `pod`."""
    labels = [spelling.name for spelling in SPELLINGS if not spelling.annotated]
    annotations = [spelling.name for spelling in SPELLINGS if spelling.annotated]
    scheduler, labelled, annotated = (
        f"{pod}.spec.schedulerName",
        f"{pod}.metadata.labels",
        f"{pod}.metadata.annotations",
    )
    return (
        f"(!has({scheduler}) || {scheduler} in ['', 'default-scheduler']) && (\n"
        f"has({labelled}) && {_list(labels)}.exists(key, key in {labelled})\n"
        f"|| has({annotated}) && {_list(annotations)}.exists(key, key in {annotated}))"
    )


def _row(operator: Operator) -> str:
    present = f"{_list(operator.marks)}.all(key, key in {_LABELS} && {_LABELS}[key] != '')"
    values = [f"{_LABELS}[{_quoted(key)}] in {_list(values)}" for key, values in operator.marks.items() if values]
    named = [_named(operator)] if operator.named else []
    return " && ".join((present, *values, *named))


def _named(operator: Operator) -> str:
    names = ", ".join(map(_template, operator.containers))
    return f"object.spec.containers.exists(container, container.name in [{names}])"


def _template(name: str) -> str:
    """Return the CEL expression of a container's name, in which `{label}` stands for a label's value."""
    parts = Formatter().parse(name)
    pieces = ((_quoted(text) if text else "", f"{_LABELS}[{_quoted(key)}]" if key else "") for text, key, _, _ in parts)
    return " + ".join(piece for pair in pieces for piece in pair if piece)


def _conditions(*conditions: Entry) -> Entry:
    """Return the conditions after the one that all entries have: not a static pod, since kubelet runs that from its file in any case."""
    static = f"has(object.metadata.annotations) && {_quoted(_MIRROR)} in object.metadata.annotations"
    return {"matchConditions": [{"name": "not-static", "expression": f"!({static})"}, *conditions]}


def _marks(operator: Operator) -> Iterator[Requirement]:
    for key, values in operator.marks.items():
        if values:
            yield _has(key, *values)
        else:
            yield {"key": key, "operator": "Exists"}
            yield _has_not(key, "")


def _operators() -> Iterator[Operator]:
    return (operator for operator in OPERATORS if NET1 not in operator.marks)


def _in_namespaces(label: str | None) -> list[Requirement]:
    """Select namespaces by the label's value; a value other than "true" and "false" counts as no label."""
    return [_has_not(NET1, "true", "false") if label is None else _has(NET1, label)]


def _has(key: str, *values: str) -> Requirement:
    return {"key": key, "operator": "In", "values": list(values)}


def _has_not(key: str, *values: str) -> Requirement:
    """Require that a label has none of the values; the label may be missing."""
    return {"key": key, "operator": "NotIn", "values": list(values)}


def _lacks(key: str) -> Requirement:
    return {"key": key, "operator": "DoesNotExist"}


def _entries(name: str, namespaces: list[Requirement], pods: Entry, path: str, conditions: Entry) -> Iterator[Entry]:
    """Yield an entry for namespaces that are not sticky, and one for those that are."""
    yield _entry(name, [*namespaces, _has_not(STICKY, "true")], pods, path) | conditions
    yield _entry(f"{name}.sticky", [*namespaces, _has(STICKY, "true")], pods, path + STICKY_PATH) | conditions


def _entry(name: str, namespaces: list[Requirement], objects: Entry, path: str, resource: str = "pods") -> Entry:
    return {
        "name": f"{name}.railnet.io",
        "rules": [_rule("", resource)],
        "namespaceSelector": {"matchExpressions": [_has_not(_NAMESPACE_NAME, *NEVER), *namespaces]},
        "objectSelector": objects,
        "clientConfig": {"service": {"namespace": NAMESPACE, "name": NAME, "path": path, "port": 443}},
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",  # a training pod without its VF would use TCP, and its author would not notice
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": _TIMEOUT_SECONDS,
    }


def _rule(group: str, resource: str) -> Entry:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": [resource],
        "scope": "Namespaced",
    }


def _list(texts: Any) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

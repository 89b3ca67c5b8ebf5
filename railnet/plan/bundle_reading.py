"""Returns what the nodes of a bundle reported when it was made. Pure; a bundle may have anything in it."""

import json
from typing import Any

from railnet.bundle.archive import Bundle
from railnet.plan.cluster_reading import Reading
from railnet.plan.node_facts import SeenNode, UnseenNode, node_of
from railnet.plan.node_objects import identity
from railnet.plan.running_configuration import running

_NODES, _STATUS, _NODE, _NODE_YAML = "nodes/", "status.json", "node.json", "node.yaml.json"


def read(bundle: Bundle) -> Reading:
    """Return the nodes of a bundle. Each node.yaml of it stands for a group, whose name is that of the node."""
    seen, unseen, texts, unread = [], [], {}, []
    for name in sorted({path.split("/")[1] for path in bundle.files if path.startswith(_NODES)}):
        answer = _node(bundle, name)
        if isinstance(answer, UnseenNode):
            unseen.append(answer)
            continue
        seen.append(answer)
        document = _document(bundle, name, _NODE_YAML)
        if not isinstance(document, dict) or "absent" in document:
            unread.append(f"the configuration of {name} is not in the bundle")
            continue
        try:
            texts[name] = json.dumps(document)
        except RecursionError:
            unread.append(f"the configuration of {name} is nested too deeply")
    return Reading(tuple(seen), tuple(unseen), running(texts, unread, of_nodes=True))


def _node(bundle: Bundle, name: str) -> SeenNode | UnseenNode:
    node = _document(bundle, name, _NODE)
    known = identity(node if isinstance(node, dict) else {}, name)._replace(name=name)
    status = _document(bundle, name, _STATUS)
    if status is None:
        left_out = [entry.why for entry in bundle.left_out if entry.what.startswith(f"{_NODES}{name}")]
        return UnseenNode(name, (left_out or ["the bundle has no status of it"])[0], known.labels)
    try:
        return node_of(known, status)
    except (ValueError, RecursionError) as error:
        return UnseenNode(name, f"its status in the bundle is not that of a node: {error!s:.300}", known.labels)


def _document(bundle: Bundle, name: str, file: str) -> Any:
    content = bundle.files.get(f"{_NODES}{name}/{file}")
    if content is None:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None

"""All that is wrong with a node configuration or with the chart's values, as `railnet config check` says it. Pure.

What is accepted here without an error is what the daemon accepts: `railnet.configuration` judges both.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from railnet import configuration
from railnet.config_check.chart_values import NodeDocument, misshapen, node_documents, refused
from railnet.config_check.remark import Remark, in_order
from railnet.config_check.yaml_document import YamlDocument, YamlPlace, unquoted
from railnet.configuration import OWN_IPAM_TYPES, Configuration
from railnet.errors import Misconfigured
from railnet.value_readers import Fault, faults_of


class ThisNode(NamedTuple):
    """What a configuration is compared with beside itself: `railnet.config_check.node_comparison`.

    Attributes:
        plugins: returns the names of the node's CNI plugins, or raises Fault.
        compare: yields what a configuration without an error would mean on the node; a remark has its key and no line.
    """

    plugins: Callable[[Configuration], Collection[str]]
    compare: Callable[[Configuration], Iterator[Remark]]


def check(text: str, node: ThisNode | None = None) -> tuple[Remark, ...]:
    """Return all that is to say about the text of a node.yaml or of the chart's values, in the order of its lines.

    Raises:
        OSError: `node` cannot be looked at.
    """
    try:
        document = YamlDocument(text)
        parts = node_documents(document.value) if document.has_value else ()
        refusals = refused(document.value) if document.has_value else ()
        by_chart = [Remark("error", _line(document.place(path)), path, message) for path, message in refusals]
        around = _around(document) if document.has_value else ()
        remarks = [*document.remarks, *by_chart, *around, *_of_parts(parts, document, node)]
    except RecursionError:
        return (Remark("error", None, "", "it is nested too deeply"),)
    return in_order([remark for remark in remarks if not _is_said_by_an_error(remark, remarks)])


def _around(document: YamlDocument) -> Iterator[Remark]:
    """Yield what is wrong around the configurations of the chart's values."""
    for fault in map(_error, misshapen(document.value)):
        place = document.place(fault.key)
        if not document.is_broken(place):
            yield fault._replace(line=_line(place))


def _of_parts(parts: Sequence[NodeDocument], document: YamlDocument, node: ThisNode | None) -> Iterator[Remark]:
    """Yield what is to say about each node.yaml. What is wrong with the part that groups have in common is said once."""
    already: set[Remark] = set()
    for part in parts:
        for remark in _remarks(part, document, node):
            if remark not in already:
                already.add(remark)
                yield remark._replace(message=f"{part.title}: {remark.message}") if part.title else remark


def _is_said_by_an_error(warning: Remark, remarks: Sequence[Remark]) -> bool:
    same_line = (remark for remark in remarks if remark.level == "error" and remark.line == warning.line)
    return warning.level == "warning" and any(warning.message in remark.message for remark in same_line)


def _remarks(part: NodeDocument, document: YamlDocument, node: ThisNode | None) -> Iterator[Remark]:
    """Yield what is to say about one node.yaml."""
    for remark in _unplaced(part.document, node):
        place, key = _located(document, part, remark.key)
        if document.is_broken(place):
            continue  # YAML's own remark says more
        hints = _hints(place) if remark.level == "error" else ()
        yield Remark(remark.level, _line(place), key, ". ".join((remark.message, *hints)))


def _unplaced(document: Any, node: ThisNode | None) -> Iterator[Remark]:
    read: Configuration | None = None
    try:
        read = configuration.read_document(document)
    except Misconfigured as error:
        yield from map(_error, faults_of(error))
    plugins: Collection[str] | None = None
    if node is not None:
        try:
            plugins = node.plugins(read or Configuration())
        except Fault as fault:
            yield _error(fault)
    for path, kind in _plugin_types(document):
        yield _plugin_remark(path, kind, plugins)
    if read is not None and node is not None:
        yield from node.compare(read)


def _error(fault: Misconfigured) -> Remark:
    return Remark("error", None, fault.path if isinstance(fault, Fault) else "", f"{fault!s:.1000}")


def _located(document: YamlDocument, part: NodeDocument, path: str) -> tuple[YamlPlace | None, str]:
    """Return the place of a path of one node.yaml, and its path in the file."""
    paths = [f"{prefix}{path}".rstrip(".") for prefix in part.prefixes]
    whole = next((each for each in paths if document.has(each)), None)
    if whole is not None:
        return document.place(whole), whole
    places = [(document.place(each), each) for each in paths]
    return max(places, key=lambda located: _line(located[0]) or 0)


def _line(place: YamlPlace | None) -> int | None:
    return None if place is None else place.line


def _hints(place: YamlPlace | None) -> tuple[str, ...]:
    nodes = () if place is None else (place.value, place.key)
    return tuple(dict.fromkeys(words for node in nodes if (words := unquoted(node)) is not None))


def _plugin_types(document: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each IPAM type that is a plugin's."""
    networks = document.get("networks") if isinstance(document, dict) else None
    for name, network in networks.items() if isinstance(networks, dict) else ():
        ipam = network.get("ipam") if isinstance(network, dict) else None
        kind = ipam.get("type") if isinstance(ipam, dict) else None
        if isinstance(kind, str) and kind not in OWN_IPAM_TYPES:
            yield f"networks.{name}.ipam.type", kind


def _plugin_remark(path: str, kind: str, plugins: Collection[str] | None) -> Remark:
    known = sorted({*OWN_IPAM_TYPES, *(plugins or ())})
    nearest = get_close_matches(kind[:80], known, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest and kind not in known else ""
    what = f"{path} is {kind:.60}"
    if plugins is None:
        unchecked = "is no type of Railnet's own, and it was not checked whether the nodes have such a plugin"
        return Remark(
            "note", None, path, f"{what}, which {unchecked}: `railnet config check --on-node` does that{hint}"
        )
    if kind in plugins:
        return Remark("note", None, path, f"{what}, a plugin that this node has")
    missing = "and this node has no such plugin; install it, or use a type of Railnet's own"
    return Remark("error", None, path, f"{what}, {missing}: {', '.join(OWN_IPAM_TYPES)}{hint}")

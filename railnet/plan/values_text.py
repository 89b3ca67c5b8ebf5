"""The proposal as a values file of the chart, with comments that say what was seen and what was assumed. Pure."""

import re
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from railnet import VERSION
from railnet.cli.escapes import printable
from railnet.cli.table import Column, aligned
from railnet.plan.node_facts import SeenNode, UnseenNode
from railnet.plan.node_kinds import names
from railnet.plan.proposal import Proposal, ProposedGroup

_WIDTH = 118
_MOST_SENTENCES = 100  # of each list: more of them hide the first ones
_GROUP_LINE = re.compile(r'  - name: "?([a-z0-9-]+)"?')
# yaml.org/type/bool and yaml.org/type/null. PyYAML takes y and n for text; Helm's YAML (sigs.k8s.io/yaml) does not.
_NO_TEXT = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_COLUMNS = (
    *map(Column, ("NODES", "GROUP")),
    *(Column(head, number=True) for head in ("GPUS", "RAILS", "OTHER")),
    *map(Column, ("MODEL", "GBIT/S", "NUMA", "VFS", "LEAF")),
)


def lines(proposal: Proposal, nodes: Collection[SeenNode], unseen: Collection[UnseenNode]) -> Iterator[str]:
    """Yield the lines of the file."""
    yield from _comment(f"Proposed by railnet plan (Railnet {VERSION}). Read it, change what is wrong, and apply it:")
    yield "#   helm upgrade railnet charts/railnet --namespace railnet --reset-then-reuse-values --values FILE"
    yield "#"
    yield "# What was seen:"
    yield from (f"#   {line}" for line in aligned(_COLUMNS, list(_rows(proposal, nodes))))
    yield from _listed("What was not seen:", not_seen(unseen))
    yield from _listed("What to look at:", proposal.wrong)
    yield from _listed("What was assumed:", proposal.assumed)
    if proposal.commands:
        yield "#"
        yield "# First label the nodes of the groups:"
        yield from (f"#   {printable(command)}" for command in proposal.commands)
    yield from _values(proposal)


def not_seen(unseen: Collection[UnseenNode]) -> list[str]:
    """Return why nodes were not seen; nodes with one reason are one sentence."""
    by_why: dict[str, list[str]] = defaultdict(list)
    for node in sorted(unseen, key=lambda each: each.name):
        by_why[node.why].append(node.name)
    return [f"{names(which)}: {why}" for why, which in by_why.items()]


def as_document(proposal: Proposal, nodes: Collection[SeenNode], unseen: Collection[UnseenNode]) -> dict[str, Any]:
    """Return the proposal for a program."""
    group_of = {node.name: group.name for group in proposal.groups for node in group.kind.nodes}
    return {
        "nodes": [_node(node, group_of.get(node.name), proposal) for node in sorted(nodes, key=lambda each: each.name)],
        "unseen": [{"name": node.name, "why": node.why} for node in sorted(unseen, key=lambda each: each.name)],
        "groups": [_group(group) for group in proposal.groups],
        "kept": [group.name for group in proposal.kept],
        "wrong": list(proposal.wrong),
        "assumed": list(proposal.assumed),
        "commands": list(proposal.commands),
        "values": proposal.values,
    }


def _group(group: ProposedGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "nodes": [node.name for node in group.kind.nodes],
        "label": None if group.label is None else "=".join(group.label),
        "rails": group.kind.size,
        "model": group.kind.model,
        "rate": group.kind.rate,
        "vfs": group.vfs,
    }


def _node(node: SeenNode, group: str | None, proposal: Proposal) -> dict[str, Any]:
    rails = {address: True for each in proposal.groups for address in each.kind.rails.get(node.name, ())}
    return {
        "name": node.name,
        "group": group,
        "gpus": node.gpus,
        "version": node.version,
        "cards": [
            {
                "address": str(card.address),
                "isRail": card.address in rails,
                "model": card.model,
                "linkType": card.link_type,
                "numaNode": card.numa_node,
                "rate": card.rate,
                "leaf": card.leaf,
                "active": card.active,
                "totalvfs": card.totalvfs,
                "numvfs": card.numvfs,
                "lone": card.lone,
                "trouble": card.trouble,
            }
            for card in node.cards
        ],
    }


def _rows(proposal: Proposal, nodes: Collection[SeenNode]) -> Iterator[tuple[str, ...]]:
    """Yield a row for all nodes with the same facts."""
    group_of = {node.name: group for group in proposal.groups for node in group.kind.nodes}
    by_facts: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node in sorted(nodes, key=lambda each: each.name):
        by_facts[_facts(node, group_of.get(node.name))].append(node.name)
    yield from ((names(which), *facts) for facts, which in by_facts.items())


def _facts(node: SeenNode, group: ProposedGroup | None) -> tuple[str, ...]:
    rails = () if group is None else group.kind.rails[node.name]
    cards = [card for card in node.cards if card.address in rails]
    numa = sorted({card.numa_node for card in cards if card.numa_node is not None})
    leaves = sorted({card.leaf for card in cards if card.leaf})
    return (
        "-" if group is None else group.name or "all",
        "-" if node.gpus is None else str(node.gpus),
        str(len(cards)),
        str(len(node.cards) - len(cards)),
        _of_all(card.model for card in cards),
        _of_all(card.rate or "" for card in cards),
        ",".join(map(str, numa)) or "-",
        _of_all(str(card.numvfs) for card in cards),
        _shortened(leaves),
    )


def _of_all(texts: Iterable[str]) -> str:
    return ",".join(sorted({text for text in texts if text})) or "-"


def _shortened(leaves: Sequence[str]) -> str:
    return "-" if not leaves else leaves[0] if len(leaves) == 1 else f"{len(leaves)} leaves"


def _listed(title: str, sentences: Collection[str]) -> Iterator[str]:
    if sentences:
        yield "#"
        yield f"# {title}"
        for sentence in list(sentences)[:_MOST_SENTENCES]:
            yield from _comment(f"- {sentence}", indent="  ")
        if len(sentences) > _MOST_SENTENCES:
            yield from _comment(f"- and {len(sentences) - _MOST_SENTENCES} more: -o json has all", indent="  ")


def _comment(text: str, indent: str = "") -> Iterator[str]:
    """Yield a text as lines of comments. Text of a node has no line's end any more: it cannot leave the comment."""
    safe = printable(text)
    hanging = f"{indent}  " if text.startswith("- ") else indent
    wrapped = textwrap.wrap(safe, _WIDTH, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False)
    yield from (f"# {line}" for line in wrapped)


def _values(proposal: Proposal) -> Iterator[str]:
    titles = {group.name: "for nodes that are not planned here: as it runs" for group in proposal.kept}
    for group in proposal.groups:
        nodes = names(node.name for node in group.kind.nodes)
        titles[group.name] = (
            f"{nodes}: {group.kind.size} {'rail' if group.kind.size == 1 else 'rails'}, {group.kind.model or 'of an unknown model'}"
        )
    for line in yaml_of(proposal.values).splitlines():
        match = _GROUP_LINE.fullmatch(line)
        if match is not None and match[1] in titles:
            yield from (f"  {comment}" for comment in _comment(titles[match[1]]))
        yield line


def yaml_of(value: object) -> str:
    """Return a value as YAML, with quotes where YAML 1.1 could read a number, a date or a boolean: addresses, PCI ids, partitions, names."""

    class Dumper(yaml.SafeDumper):
        """Quotes each text that begins with no letter, and each word that is no text."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
            """Return True: a value that is there twice is written twice, because Railnet's readers take no alias."""
            return True

    def text_of(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        is_plain = text[:1].isalpha() and text.lower() not in _NO_TEXT
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')

    Dumper.add_representer(str, text_of)
    written: str = yaml.dump(_plain(value), Dumper=Dumper, sort_keys=False, default_flow_style=None, width=_WIDTH)
    return written.removesuffix("...\n")


def _plain(value: Any) -> Any:
    """Return a value with the mappings and lists that PyYAML knows."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value

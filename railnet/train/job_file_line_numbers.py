"""The lines of a job's file: which line a mistake is at. Pure."""

import re

import yaml

from railnet.strict_yaml import problem_of

_INDEX = re.compile(r"\[(\d+)\]")
_TAB = "found character '\\t' that cannot start any token"


def line_of(text: str, message: str) -> int | None:
    """Return the number of the line that a message is about: its first word is the path of a value; None if that has no line."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return None  # such a message has the line already
    line, path = None, message.removeprefix("a key of ").split(" ")[0]
    while path and node is not None:
        pair, path = _entry(node, path)
        if pair is None:
            break
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line


def not_yaml(text: str) -> tuple[int, str] | None:
    """Return where a text is no YAML, and why, with what to do; None if it is a document."""
    try:
        yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        line, _, problem = problem_of(error, text)
        if line is None:
            return None
        if _TAB in problem:
            return line, "it is not YAML: a line begins with a tab; indent with spaces"
        if "another document" in problem:
            return line, "a second document begins here, and a file has one job; write a file for each job"
        return line, f"it is not YAML: {problem}; look for a missing colon, quote or bracket here or in the line before"
    except RecursionError:
        return None
    return None


def _entry(node: yaml.Node, path: str) -> tuple[tuple[yaml.Node, yaml.Node] | None, str]:
    """Return the entry of a node that a path begins with, as key and value, and the rest of the path."""
    if isinstance(node, yaml.MappingNode):
        fitting = [entry for entry in node.value if re.match(rf"{re.escape(str(entry[0].value))}([.\[]|$)", path)]
        pair = max(fitting, key=lambda entry: len(entry[0].value), default=None)
        return pair, path[len(pair[0].value) :].removeprefix(".") if pair else ""
    index = _INDEX.match(path)
    if isinstance(node, yaml.SequenceNode) and index and int(index[1]) < len(node.value):
        value = node.value[int(index[1])]
        return (value, value), path[index.end() :].removeprefix(".")
    return None, ""

"""The file of a training job: its keys, and how each value is read. Not here: what is made of it (`railnet.jobs.train_job_objects`)."""

import re
import sys
from pathlib import Path
from typing import Any

import yaml

from railnet import strict_yaml
from railnet.errors import Misconfigured
from railnet.jobs.train_job_objects import TrainingJob
from railnet.objects.quantity import parsed
from railnet.value_readers import (
    BOOLEAN,
    NETWORK_NAME,
    RESOURCE,
    TEXT,
    Reader,
    Scalar,
    an_object,
    by_name,
    list_of,
    one_of,
)

_MOST_TASKS = 10_000
_MOST_BYTES = 1 << 20  # the most that a ConfigMap holds
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_PATH = re.compile(r"/[^\0:]*")
_KEY = re.compile(r"(?:[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_INDEX = re.compile(r"\[(\d+)\]")


def _text(pattern: re.Pattern[str], longest: int) -> Any:
    def convert(value: Any) -> str:
        if not isinstance(value, str) or len(value) > longest or pattern.fullmatch(value) is None:
            raise ValueError("text of another form")
        return value

    return convert


def _number(least: int, most: int) -> Scalar[int]:
    def convert(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError("another number")
        return value

    return Scalar(f"a whole number from {least} to {most}", convert)


def _quantity(value: Any) -> str:
    text = str(value) if type(value) in (int, float) else value
    amount = parsed(text) if isinstance(text, str) else None
    if amount is None or amount <= 0:
        raise ValueError("no quantity")
    return str(text)


_JOB_NAME = Scalar(
    "the job's name (lower-case letters, digits and hyphens, a letter first, at most 63)", _text(_NAME, 63)
)
_OBJECT_NAME = Scalar("the name of an object (lower-case letters, digits, hyphens and dots)", _text(_SUBDOMAIN, 253))
_QUANTITY = Scalar("a quantity above 0, such as 500m or 4Gi", _quantity)
_MOUNT = Scalar("an absolute path without a colon", _text(_PATH, 4096))
_VARIABLE_NAME = Scalar("the name of an environment variable", _text(_VARIABLE, 253))
_ANNOTATION = Scalar("the name of an annotation, such as railnet.io/sticky", _text(_KEY, 317))
_LABEL_KEY = Scalar("the key of a node's label, such as kubernetes.io/hostname", _text(_KEY, 317))
_ENV = Scalar("a string (quote a number)", _text(re.compile(r"[^\0]*", re.DOTALL), _MOST_BYTES))

_REQUIRED: dict[str, Scalar[Any]] = {"name": _JOB_NAME, "image": TEXT, "workers": _number(1, _MOST_TASKS)}
_FIELDS: dict[str, Reader[Any]] = {
    "ps": _number(0, _MOST_TASKS),
    "namespace": Scalar(
        "the name of a namespace (lower-case letters, digits and hyphens, at most 63)", NETWORK_NAME.convert
    ),
    "command": list_of(TEXT, "a list of strings, such as [python, /train.py]"),
    "script": TEXT,
    "gpus": _number(0, 1024),
    "gpuResource": RESOURCE,
    "cpu": _QUANTITY,
    "memory": _QUANTITY,
    "rails": _number(0, 1024),
    "rendezvous": one_of(("net1", "eth0")),
    "priority": _OBJECT_NAME,
    "imagePullSecrets": list_of(_OBJECT_NAME, "a list of names of Secrets"),
    "volumes": by_name(_OBJECT_NAME, _MOUNT),
    "env": by_name(_VARIABLE_NAME, _ENV),
    "annotations": by_name(_ANNOTATION, _ENV),
    "port": _number(1, 0xFFFF),
    "retries": _number(0, 2**31 - 1),
    "gang": BOOLEAN,
    "topology": _LABEL_KEY,
}
_read = an_object(TrainingJob, _FIELDS, _REQUIRED)


def text_of(file: str) -> str:
    """Return the text of a file; `-` is stdin.

    Raises:
        Misconfigured: the file cannot be read, or is no text.
    """
    try:
        content = sys.stdin.buffer.read(_MOST_BYTES + 1) if file == "-" else Path(file).read_bytes()
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{file} cannot be read: {error!s:.200}") from None


def job_of(text: str, source: str) -> TrainingJob:
    """Read a job from the text of its file.

    Raises:
        Misconfigured: the text is not YAML, or has a wrong key or value; the message begins with `source` and the line.
    """
    try:
        return _read(strict_yaml.read(text), "")
    except RecursionError:
        raise Misconfigured(f"{source} is nested too deeply") from None
    except Misconfigured as error:
        line = _line(text, str(error))
        raise Misconfigured(f"{source}{line and f', line {line}'}: {error}") from None


def _line(text: str, message: str) -> str:
    """Return the number of the line that a message is about: its first word is the path of a value; empty if that has no line."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return ""  # such a message has the line already
    line, path = "", message.removeprefix("a key of ").split(" ")[0]
    while path and node is not None:
        pair, path = _entry(node, path)
        if pair is None:
            break
        line, node = str(pair[0].start_mark.line + 1), pair[1]
    return line


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

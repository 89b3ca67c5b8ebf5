"""How each value of a job's file is read, and how all that is wrong with one is collected. Not here: which key has which reader (`job_file`)."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from railnet.errors import Misconfigured
from railnet.jobs.train_job.train_job import AUTO, NONE
from railnet.objects.quantity import parsed
from railnet.value_readers import TEXT, Reader, Scalar, one_of, wrong

MOST_BYTES = 1 << 20  # the most that a ConfigMap holds
_Value = TypeVar("_Value")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_PATH = re.compile(r"/[^\0:]*")
_KEY = re.compile(r"(?:[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_TEXT = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LONGEST_LABEL = 63  # RFC 1123: a volume's name
_MOST_NUMBER = 1024
_SOURCES = (
    *("persistentVolumeClaim", "hostPath", "emptyDir", "configMap", "secret", "nfs", "csi", "projected"),
    *("downwardAPI", "ephemeral", "image"),
)  # core/v1 Volume; those of clouds that Kubernetes has moved to CSI are left out


class Mistakes(Misconfigured):
    """Several values are wrong; each of `messages` begins with the path of one."""

    def __init__(self, messages: Iterable[str]) -> None:
        """Keep the messages in their order."""
        self.messages = list(messages)
        super().__init__("\n".join(self.messages))


def messages_of(error: Misconfigured) -> list[str]:
    """Return what an error says of each wrong value."""
    return error.messages if isinstance(error, Mistakes) else [str(error)]


def number(least: int, most: int) -> Scalar[int]:
    """Return a reader of a whole number in a range."""

    def convert(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError("another number")
        return value

    return Scalar(f"a whole number from {least} to {most}", convert)


def each_of(item: Reader[_Value], should_be: str) -> Reader[tuple[_Value, ...]]:
    """Return a reader of a list that finds all wrong entries."""

    def read(value: Any, path: str) -> tuple[_Value, ...]:
        if not isinstance(value, list):
            raise wrong(value, path, should_be)
        return tuple(_all((item, entry, f"{path}[{index}]") for index, entry in enumerate(value)))

    return read


def each_by_name(name: Scalar[str], item: Reader[_Value]) -> Reader[dict[str, _Value]]:
    """Return a reader of a mapping whose keys are names that the file's author chooses; it finds all wrong keys, or all wrong values."""

    def read(value: Any, path: str) -> dict[str, _Value]:
        if not isinstance(value, dict):
            raise wrong(value, path, f"a mapping in which each key is {name.should_be}")
        names = _all((name, key, f"a key of {path}") for key in value)
        return dict(
            zip(names, _all((item, entry, f"{path}.{key}") for key, entry in value.items()), strict=True),
        )

    return read


def kubernetes_object(fields: Mapping[str, Reader[Any]], what: str) -> Reader[dict[str, Any]]:
    """Return a reader of a part of a pod's specification, which stays as it is; `what` names it in messages."""

    def read(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(value, path, what)
        known = ", ".join(fields)
        unknown = [key for key in value if key not in fields]
        if unknown:
            raise Mistakes(f"{path}.{key!s:.80} is an unknown key; known here: {known}" for key in unknown)
        _all((fields[key], entry, f"{path}.{key}") for key, entry in value.items())
        return value

    return read


def _all(readings: Iterable[tuple[Reader[_Value], Any, str]]) -> list[_Value]:
    """Return what readers make of values, each with its path; or raise what is wrong with all of them."""
    values, wrongs = [], []
    for reader, value, path in readings:
        try:
            values.append(reader(value, path))
        except Misconfigured as error:
            wrongs += messages_of(error)
    if wrongs:
        raise Mistakes(wrongs)
    return values


def _text(pattern: re.Pattern[str], longest: int) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        if not isinstance(value, str) or len(value) > longest or pattern.fullmatch(value) is None:
            raise ValueError("text of another form")
        return value

    return convert


def _quantity(value: Any) -> str:
    text = str(value) if type(value) in (int, float) else value
    amount = parsed(text) if isinstance(text, str) else None
    if amount is None or amount <= 0:
        raise ValueError("no quantity")
    return str(text)


def _rails(value: Any) -> int | str:
    return AUTO if value == AUTO else number(0, _MOST_NUMBER).convert(value)


def _shared_memory(value: Any) -> str | None:
    return None if value == NONE else _quantity(value)


def _mapping(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("no mapping")  # noqa: TRY004 - as each conversion of a `Scalar`
    return value


JOB_NAME = Scalar(
    "the job's name (lower-case letters, digits and hyphens, a letter first, at most 63)", _text(_NAME, 63)
)
OBJECT_NAME = Scalar("the name of an object (lower-case letters, digits, hyphens and dots)", _text(_SUBDOMAIN, 253))
QUANTITY = Scalar("a quantity above 0, such as 500m or 4Gi", _quantity)
SHARED_MEMORY = Scalar("a quantity above 0, such as 16Gi, or none", _shared_memory)
RAILS = Scalar(f"auto, or a whole number from 0 to {_MOST_NUMBER}", _rails)
MOUNT = Scalar("an absolute path without a colon", _text(_PATH, 4096))
VARIABLE_NAME = Scalar("the name of an environment variable", _text(_VARIABLE, 253))
ANNOTATION = Scalar("the name of an annotation, such as railnet.io/sticky", _text(_KEY, 317))
LABEL_KEY = Scalar("the key of a node's label, such as kubernetes.io/hostname", _text(_KEY, 317))
LABEL_VALUE = Scalar("the value of a label (quote true, false and a number)", _text(_LABEL_TEXT, _LONGEST_LABEL))
ENV = Scalar("a string (quote a number)", _text(re.compile(r"[^\0]*", re.DOTALL), MOST_BYTES))
_MAPPING = Scalar("a mapping, as in a pod's specification", _mapping)
_SECONDS = number(0, 2**31 - 1)

TOLERATION = kubernetes_object(
    {
        "key": LABEL_KEY,
        "operator": one_of(("Exists", "Equal", "Lt", "Gt")),
        "value": LABEL_VALUE,
        "effect": one_of(("NoSchedule", "PreferNoSchedule", "NoExecute")),
        "tolerationSeconds": _SECONDS,
    },
    "a toleration, such as {key: nvidia.com/gpu, operator: Exists}",
)
AFFINITY = kubernetes_object(
    dict.fromkeys(("nodeAffinity", "podAffinity", "podAntiAffinity"), _MAPPING),
    "an affinity, as in a pod's specification",
)
_OWN_VOLUME = kubernetes_object(
    {"mountPath": MOUNT, "subPath": TEXT, "readOnly": one_of((True, False)), **dict.fromkeys(_SOURCES, _MAPPING)},
    "a path, or a volume",
)


def volume(value: Any, path: str) -> str | dict[str, Any]:
    """Read a volume: the path of a claim, or a volume of any kind with its path.

    Raises:
        Misconfigured: it is neither, or it has no source, or two.
    """
    if not isinstance(value, dict):
        return MOUNT(value, path)
    read, name = _OWN_VOLUME(value, path), path.partition(".")[2]
    sources = [key for key in read if key in _SOURCES]
    if "mountPath" not in read:
        raise Misconfigured(f"{path}.mountPath is missing; it should be {MOUNT.should_be}")
    if len(sources) != 1:
        raise Misconfigured(
            f"{path} has {len(sources)} sources; it should have one, such as hostPath: {{path: /data}}; known: {', '.join(_SOURCES)}"
        )
    if len(name) > _LONGEST_LABEL or "." in name or name == "shared-memory" or name.startswith("claim-"):
        raise Misconfigured(
            f"{path} cannot have this name: at most 63 letters, digits and hyphens, and neither shared-memory nor claim-…; rename it"
        )
    return read

"""The file of a training job: its keys by its kind, and all that is wrong with them at once. Not here: what is made of it (`railnet.jobs`)."""

import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from railnet import strict_yaml
from railnet.errors import Misconfigured
from railnet.jobs.train_job.environment import Peers
from railnet.jobs.train_job.operator_objects import check_as
from railnet.jobs.train_job.train_job import AUTO, MEMORY, PYTORCH_PORT, Contradictions, Kind, TrainingJob
from railnet.train import job_value_readers as values
from railnet.train.job_file_line_numbers import line_of, not_yaml
from railnet.value_readers import BOOLEAN, NETWORK_NAME, RESOURCE, TEXT, Reader, Scalar, one_of, shown

_MOST_TASKS = 10_000
_UPPER_CASE = re.compile("[A-Z]")
_MOST_SHOWN, _LONGEST_SHOWN = 10, 360  # mistakes of one file, and characters of each where there are several

_REQUIRED: dict[str, Scalar[Any]] = {
    "name": values.JOB_NAME,
    "image": TEXT,
    "workers": values.number(1, _MOST_TASKS),
}
_FIELDS: dict[str, Reader[Any]] = {
    "kind": one_of(tuple(map(str, Kind))),
    "ps": values.number(0, _MOST_TASKS),
    "namespace": Scalar(
        "the name of a namespace (lower-case letters, digits and hyphens, at most 63)", NETWORK_NAME.convert
    ),
    "command": values.each_of(TEXT, "a list of strings, such as [python, /train.py]"),
    "script": TEXT,
    "gpus": values.number(0, 1024),
    "gpuResource": RESOURCE,
    "processes": values.number(1, 1024),
    "cpu": values.QUANTITY,
    "memory": values.QUANTITY,
    "sharedMemory": values.SHARED_MEMORY,
    "rails": values.RAILS,
    "rendezvous": one_of(("net1", "eth0")),
    "priority": values.OBJECT_NAME,
    "imagePullSecrets": values.each_of(values.OBJECT_NAME, "a list of names of Secrets"),
    "volumes": values.each_by_name(values.OBJECT_NAME, values.volume),
    "env": values.each_by_name(values.VARIABLE_NAME, values.ENV),
    "annotations": values.each_by_name(values.ANNOTATION, values.ENV),
    "nodeSelector": values.each_by_name(values.LABEL_KEY, values.LABEL_VALUE),
    "tolerations": values.each_of(values.TOLERATION, "a list of tolerations"),
    "affinity": values.AFFINITY,
    "port": values.number(1, 0xFFFF),
    "restart": one_of(("OnFailure", "Never")),
    "retries": values.number(0, 2**31 - 1),
    "gang": BOOLEAN,
    "topology": values.LABEL_KEY,
}
_READERS: dict[str, Reader[Any]] = {**_REQUIRED, **_FIELDS}
_OF_SOME_KINDS = {
    "ps": (Kind.TENSORFLOW,),
    "processes": (Kind.PYTORCH, Kind.MPI),
    "port": (
        Kind.TENSORFLOW,
        Kind.PYTORCH,
    ),  # the pods of an MPI job meet by sshd, whose port the image or its script has
}


def text_of(file: str) -> str:
    """Return the text of a file; `-` is stdin.

    Raises:
        Misconfigured: the file cannot be read, is too long, or is no text.
    """
    try:
        content = _content(file)
        if len(content) > values.MOST_BYTES:
            raise Misconfigured(
                f"{'stdin' if file == '-' else file} has more than {values.MOST_BYTES >> 20} MiB, so it is no file of a job"
            )
        return content.decode()
    except FileNotFoundError:
        raise Misconfigured(
            f"{file} cannot be read: No such file; `railnet train init pytorch {file}` writes one"
        ) from None
    except OSError as error:
        raise Misconfigured(
            f"{file} cannot be read: {error.strerror}; name a file that you may read, or - for stdin"
        ) from None
    except UnicodeDecodeError:
        raise Misconfigured(f"{file} cannot be read: it is no text in UTF-8; give the job as YAML") from None


def _content(file: str) -> bytes:
    """Return the content of a file. Of one that is too long, or has no end, not much more than a job may have is read."""
    if file == "-":
        return sys.stdin.buffer.read(values.MOST_BYTES + 1)
    with Path(file).open("rb") as opened:
        return opened.read(values.MOST_BYTES + 1)


def job_of(text: str, source: str, made_as: str | None = None) -> TrainingJob:
    """Read a job from the text of its file; `made_as` names the operator's object that it is to be.

    Raises:
        Misconfigured: the text is not YAML, or has wrong keys or values; the message begins with `source` and has the line of each.
    """
    broken = not_yaml(text)
    if broken is not None:
        raise Misconfigured(f"{source}, line {broken[0]}: {broken[1]}")
    try:
        document = strict_yaml.read(text)
        job = _read(document)
        check_as(job, made_as, document.keys())
    except RecursionError:
        raise Misconfigured(f"{source} is nested too deeply") from None
    except Misconfigured as error:
        raise Misconfigured(_located(text, source, _messages(error))) from None
    return job


def _read(document: Any) -> TrainingJob:
    if not isinstance(document, dict):
        raise Misconfigured(f"the document is {shown(document)}; it should be a mapping, such as name: mnist")
    if "apiVersion" in document:
        raise Misconfigured(
            "apiVersion is a key of Kubernetes' own objects, and this is the file of a job of railnet train; kubectl apply -f creates "
            "such objects, and `railnet train init pytorch` writes a job to begin with"
        )
    kind = document.get("kind", Kind.TENSORFLOW)
    mistakes = [*_wrong_keys(document, kind)]
    read: dict[str, Any] = {}
    for key, value in document.items():
        if key in _READERS:
            try:
                read[key] = _READERS[key](value, key)
            except Misconfigured as error:
                mistakes += values.messages_of(error)
    if mistakes:
        raise values.Mistakes(mistakes)
    job = TrainingJob(**{_argument(key): value for key, value in {**_defaults(read), **read}.items()})
    Peers.of(job)
    return job


def _wrong_keys(document: Mapping[Any, Any], kind: object) -> Iterator[str]:
    for key in document:
        if key not in _READERS:
            name = key if isinstance(key, str) and key.isprintable() else shown(key)
            near = get_close_matches(name, _READERS, 1)
            known = f"did you mean {near[0]}?" if near else f"known here: {', '.join(_READERS)}"
            yield f"{name:.80} is an unknown key; {known}"
        elif key in _OF_SOME_KINDS and kind in tuple(Kind) and kind not in _OF_SOME_KINDS[key]:
            kinds = " or ".join(_OF_SOME_KINDS[key])
            yield f"{key} is for kind: {kinds}, and this job's kind is {kind}; remove {key}, or change kind"
    yield from (
        f"{key} is missing; it should be {reader.should_be}" for key, reader in _REQUIRED.items() if key not in document
    )


def _defaults(read: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a kind has where the file says nothing, and other kinds have not."""
    kind = read.get("kind", Kind.TENSORFLOW)
    if kind == Kind.TENSORFLOW:
        return {}
    memory = read.get("memory", MEMORY)
    port = {"port": PYTORCH_PORT} if kind == Kind.PYTORCH else {}
    return {**port, "sharedMemory": memory, "rails": AUTO if read.get("gpus", 0) > 1 else 1}


def _messages(error: Misconfigured) -> list[str]:
    return error.mistakes if isinstance(error, Contradictions) else values.messages_of(error)


def _located(text: str, source: str, messages: list[str]) -> str:
    """Return one message about all mistakes: each with its line, in the order of the lines."""
    located = sorted(((line_of(text, message), message) for message in messages), key=lambda pair: pair[0] or 0)
    if len(located) == 1:
        ((line, message),) = located
        return f"{source}{f', line {line}' if line else ''}: {message}"
    lines = [
        f"  {f'line {line}: ' if line else ''}{message:.{_LONGEST_SHOWN}}" for line, message in located[:_MOST_SHOWN]
    ]
    more = [f"  and {len(located) - _MOST_SHOWN} more"] if len(located) > _MOST_SHOWN else []
    return "\n".join((f"{source} has {len(located)} mistakes", *lines, *more))


def _argument(key: str) -> str:
    return _UPPER_CASE.sub(lambda letter: f"_{letter[0].lower()}", key)

"""An API server in memory, with the garbage collector: what belongs to a deleted owner is deleted at once.

It has what `railnet train` uses: get, create, list by labels, watch, merge patches, deletion by UID, and the logs of pods; and
what `railnet validate` uses beside that: conditions that are merged by type.
"""

import json
import queue
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from railnet.apiserver.client import Answer, Stream
from railnet.apiserver.request import JsonObject, Request
from railnet.cli.connection import PatientApiServer

Key = tuple[str, str, str]  # resource, namespace, name
_PATH = re.compile(
    r"/apis?/(?:[^/]+/)?v[^/]+(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?"
)


class MemoryApiServer:
    """The objects, and what a test may do to requests.

    Attributes:
        objects: all objects, by resource, namespace and name.
        requests: the requests so far, in words.
        before, after: called with each request before it has an effect, and afterwards; they may raise, or return an answer instead.
        logs: answers a request for a log by its parameters, as lines.
    """

    def __init__(self) -> None:
        self.objects: dict[Key, JsonObject] = {}
        self.requests: list[str] = []
        self.before: Callable[[Request], Answer | None] = lambda _: None
        self.after: Callable[[Request], Answer | None] = lambda _: None
        self.logs: Callable[[str, Mapping[str, str]], Iterator[bytes]] = lambda _pod, _parameters: iter(())
        self.slept: list[float] = []
        self._watches: list[tuple[str, Mapping[str, str], queue.Queue[JsonObject]]] = []
        self._history: list[tuple[int, str, Key, JsonObject]] = []
        self._version = 0
        self._lock = threading.RLock()

    @property
    def api(self) -> PatientApiServer:
        return PatientApiServer(self, lambda: "", self.slept.append)

    def names(self, resource: str) -> list[str]:
        with self._lock:
            return sorted(name for kind, _, name in self.objects if kind == resource)

    def add(self, resource: str, found: JsonObject) -> JsonObject:
        """Put an object in as a controller or kubelet would; also in place of an older state of it."""
        with self._lock:
            return self._add(resource, found)

    def _add(self, resource: str, found: JsonObject) -> JsonObject:
        self._version += 1
        metadata = {"uid": str(uuid.uuid4()), **found["metadata"], "resourceVersion": str(self._version)}
        key = resource, metadata.get("namespace", ""), metadata["name"]
        kind = "MODIFIED" if key in self.objects else "ADDED"
        if kind == "MODIFIED":
            metadata["uid"] = self.objects[key]["metadata"]["uid"]
        self.objects[key] = {**found, "metadata": metadata}
        self._notify(kind, key, self.objects[key])
        return self.objects[key]

    def remove(self, key: Key) -> None:
        """Delete an object and what belongs to it."""
        with self._lock:
            self._remove(key)

    def _remove(self, key: Key) -> None:
        found = self.objects.pop(key)
        self._version += 1
        found = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self._version)}}
        self._notify("DELETED", key, found)
        uid = found["metadata"]["uid"]
        for other, one in list(self.objects.items()):
            owners = one["metadata"].get("ownerReferences") or ()
            inside = key[0] == "namespaces" and other[1] == key[2]
            if other in self.objects and (inside or any(owner["uid"] == uid for owner in owners)):
                self.remove(other)

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        self.requests.append(str(request))
        answer = self.before(request)
        if answer is None:
            with self._lock:
                answer = self._answer(request)
            answer = self.after(request) or answer
        return answer

    @contextmanager
    def stream(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Iterator[Stream]:
        self.requests.append(str(request))
        path, parameters = _split(request)
        if path["sub"] == "log":
            try:
                lines = self.logs(path["name"], parameters)
                first = next(lines, None)
            except LookupError as error:
                yield Stream(status(int(error.args[0]), "no log"), iter(()))
                return
            yield Stream(Answer(200, "text/plain", "", b""), _after(first, lines))
            return
        events: queue.Queue[JsonObject] = queue.Queue()
        watched = (path["resource"], {**parameters, "namespace": path["namespace"] or ""}, events)
        with self._lock:
            self._watches.append(watched)
            for version, kind, key, found in self._history:
                if version > int(parameters["resourceVersion"]):
                    _tell(watched, kind, key, found)
        yield Stream(Answer(200, "application/json", "", b""), _pieces(events))

    def _answer(self, request: Request) -> Answer:
        path, parameters = _split(request)
        resource, namespace = path["resource"], path["namespace"] or ""
        if request.method == "POST":
            return self._create(resource, namespace, request.body)
        if not path["name"]:
            return _ok(self._list(resource, {**parameters, "namespace": namespace}))
        key = resource, namespace, path["name"]
        return self._change(request, key) if key in self.objects else status(404, f'{resource} "{key[2]}" not found')

    def _create(self, resource: str, namespace: str, body: Any) -> Answer:
        name = body["metadata"]["name"]
        if (resource, namespace, name) in self.objects:
            return status(409, f'{resource} "{name}" already exists')
        if resource != "namespaces" and ("namespaces", "", namespace) not in self.objects:
            return status(404, f'namespaces "{namespace}" not found')
        return _ok(self.add(resource, body))

    def _change(self, request: Request, key: Key) -> Answer:
        found = self.objects[key]
        if request.method == "PATCH":
            found = json.loads(json.dumps(found))
            _merge(found, request.body, by_type="strategic" in request.content_type)
            self.add(key[0], found)
        elif request.method == "DELETE":
            assert isinstance(request.body, dict)
            if request.body["preconditions"]["uid"] != found["metadata"]["uid"]:
                return status(409, "another UID")
            self.remove(key)
        return _ok(found)

    def _list(self, resource: str, parameters: Mapping[str, str]) -> JsonObject:
        items = [one for key, one in self.objects.items() if key[0] == resource and _selected(key, one, parameters)]
        start, limit = int(parameters.get("continue", 0)), int(parameters.get("limit", 0)) or len(items)
        rest = {"continue": str(start + limit)} if start + limit < len(items) else {}
        return {"metadata": {"resourceVersion": str(self._version), **rest}, "items": items[start : start + limit]}

    def _notify(self, kind: str, key: Key, found: JsonObject) -> None:
        self._history.append((self._version, kind, key, found))
        for watched in self._watches:
            _tell(watched, kind, key, found)


def _tell(
    watched: tuple[str, Mapping[str, str], "queue.Queue[JsonObject]"], kind: str, key: Key, found: JsonObject
) -> None:
    resource, parameters, events = watched
    if resource == key[0] and _selected(key, found, parameters):
        events.put({"type": kind, "object": found})


def status(code: int, message: str) -> Answer:
    return Answer(code, "application/json", "", json.dumps({"kind": "Status", "message": message}).encode())


def _ok(found: JsonObject) -> Answer:
    return Answer(200, "application/json", "", json.dumps(found).encode())


def _split(request: Request) -> tuple[dict[str, Any], dict[str, str]]:
    parts = urlsplit(request.path)
    match = _PATH.fullmatch(parts.path)
    assert match is not None, request.path
    found = match.groupdict()
    if found["resource"] == "namespaces":  # the pattern takes a namespace's own path for what it is, only with a name
        found = {**found, "namespace": None}
    return found, dict(parse_qsl(parts.query))


def _selected(key: Key, found: JsonObject, parameters: Mapping[str, str]) -> bool:
    if parameters.get("namespace") and key[1] != parameters["namespace"]:
        return False
    labels = found["metadata"].get("labels") or {}
    for one in filter(None, parameters.get("labelSelector", "").split(",")):
        name, equals, value = one.partition("=")
        if name not in labels or (equals and labels[name] != value):
            return False
    wanted = [one.split("=") for one in filter(None, parameters.get("fieldSelector", "").split(","))]
    node = found.get("spec", {}).get("nodeName", "")
    return all((node if name == "spec.nodeName" else found.get(name)) == value for name, value in wanted)


def _pieces(events: "queue.Queue[JsonObject]") -> Iterator[bytes]:
    while True:
        yield json.dumps(events.get()).encode() + b"\n"


def _after(first: bytes | None, lines: Iterator[bytes]) -> Iterator[bytes]:
    if first is not None:
        yield first + b"\n"
    for line in lines:
        yield line + b"\n"


def _merge(into: JsonObject, patch: Any, *, by_type: bool) -> None:
    """Merge a patch; a strategic one merges the list `conditions` by type."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            _merge(into.setdefault(key, {}), value, by_type=by_type)
        elif key == "conditions" and by_type:
            types = {condition["type"] for condition in value}
            into[key] = [*(one for one in into.get(key, []) if one["type"] not in types), *value]
        else:
            into[key] = value

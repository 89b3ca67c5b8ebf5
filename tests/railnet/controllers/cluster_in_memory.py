"""An API server in memory, as a transport of Railnet's client: get, create, update, patch, delete, evict, pages of lists, and watches.

It checks what kube-apiserver checks of a write: a name that exists, a resourceVersion or UID that is another one, a patch's tests. A test
can refuse or lose requests, and make old versions unknown.
"""

import copy
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from railnet.apiserver.client import Answer, Stream
from railnet.apiserver.request import Request

JsonObject = dict[str, Any]
_WATCH_SECONDS = 0.02  # a watch that is silent for so long ends, as after its timeout


class Refusal(Exception):
    """A failure as the API server answers it."""

    def __init__(self, status: int, message: str = "refused", retry_after: str = "") -> None:
        super().__init__(message)
        self.answer = Answer(status, "application/json", retry_after, json.dumps({"message": message}).encode())


class Happened(NamedTuple):
    """A change, for watches."""

    version: int
    kind: str
    found: JsonObject


class Cluster:
    """The objects by path.

    Attributes:
        objects: the objects as stored, by path.
        requests: how many requests there were, as "create services" or "patch pods/status".
        interfere: called with each request before it is done; it may raise Refusal, or change objects.
        answered: called with each request after it was done and before its answer; it may raise OSError, which loses the answer.
        groups: the versions that each group is served in.
        minor: of the version of Kubernetes that it says, `1.minor`.
        resources: the resources of a version, by its path: `/apis/apps/v1`.
    """

    def __init__(self) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.requests: Counter[str] = Counter()
        self.interfere: Callable[[Request], None] = lambda request: None
        self.answered: Callable[[Request], None] = lambda request: None
        self.groups: dict[str, list[str]] = {}
        self.minor = "37"
        self.resources: dict[str, list[str]] = {}
        self._changed = threading.Condition(threading.RLock())
        self._version = 0
        self._oldest = 0
        self._happened: list[Happened] = []

    # What a test does.

    def put(self, path: str, found: JsonObject) -> JsonObject:
        """Create or replace an object, as another client does."""
        with self._changed:
            before = self.objects.get(path)
            uid = f"uid-{self._version + 1}" if before is None else before["metadata"]["uid"]
            new = {**found, "metadata": {"uid": uid, **found["metadata"]}}
            return self._store(path, new, "ADDED" if before is None else "MODIFIED")

    def remove(self, path: str) -> None:
        """Delete an object, as another client does."""
        with self._changed:
            self._drop(path)

    def compact(self) -> None:
        """Forget all versions before now: who watches from one of them has to list again."""
        with self._changed:
            self._oldest, self._happened = self._version, []
            self._changed.notify_all()

    def of(self, resource: str) -> list[JsonObject]:
        """Return all objects of a resource, sorted by name."""
        with self._changed:
            found = [copy.deepcopy(one) for path, one in self.objects.items() if path.split("/")[-2] == resource]
        return sorted(found, key=lambda one: str(one["metadata"]["name"]))

    # The transport.

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        try:
            with self._changed:
                answer = self._answer(request)
        except Refusal as refusal:
            return refusal.answer
        self.answered(request)
        return answer

    @contextmanager
    def stream(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Iterator[Stream]:
        try:
            with self._changed:
                self._count(request)
        except Refusal as refusal:
            yield Stream(refusal.answer, iter(()))
        else:
            yield Stream(Answer(200, "application/json", "", b""), self._watched(request))

    def _count(self, request: Request) -> None:
        below = "/status" if request.path.endswith("/status") else ""
        self.requests[f"{request.verb.right} {request.about.resource}{below}"] += 1
        self.interfere(request)

    def _answer(self, request: Request) -> Answer:
        self._count(request)
        path, _, query = request.path.partition("?")
        asked = {key: values[0] for key, values in parse_qs(query).items()}
        body: Any = copy.deepcopy(request.body)
        match request.verb.right:
            case "list":
                answer = self._list(path, asked)
            case "create" if path.endswith("/eviction"):
                answer = self._evict(path.removesuffix("/eviction"), body)
            case "create":
                answer = self._create(f"{path}/{body['metadata']['name']}", body)
            case "patch" if path.endswith("/status"):
                answer = self._patch(path.removesuffix("/status"), body)
            case "patch":
                answer = self._patch(path, body)
            case "update":
                answer = self._update(path, body)
            case "delete":
                answer = self._delete(path, body)
            case _:
                answer = self._get(path)
        return Answer(200, "application/json", "", json.dumps(answer).encode())

    def _get(self, path: str) -> JsonObject:
        if path == "/version":
            return {"major": "1", "minor": self.minor}
        if path.startswith("/apis/") and path.count("/") == 2:
            group = path.rpartition("/")[2]
            if group not in self.groups:
                raise Refusal(404, f"{group} is not served")
            versions = [{"version": one, "groupVersion": f"{group}/{one}"} for one in self.groups[group]]
            return {"versions": versions}
        if path in self.resources:
            return {"resources": [{"name": name} for name in self.resources[path]]}
        if path not in self.objects:
            raise Refusal(404, f"{path} not found")
        return self.objects[path]

    def _create(self, path: str, body: JsonObject) -> JsonObject:
        if path in self.objects:
            raise Refusal(409, f"{path} already exists")
        body["metadata"]["uid"] = f"uid-{self._version + 1}"
        return self._store(path, body, "ADDED")

    def _evict(self, path: str, eviction: JsonObject) -> JsonObject:
        """Delete a pod that is not bound; one that is bound leaves: its node's kubelet, which is the test, removes it."""
        found = self._get(path)
        self._check(found, eviction["deleteOptions"]["preconditions"])
        if not found["spec"].get("nodeName"):
            self._drop(path)
        elif "deletionTimestamp" not in found["metadata"]:
            leaving = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:30Z"}
            self._store(path, {**found, "metadata": leaving}, "MODIFIED")
        return {"kind": "Status", "status": "Success"}

    def _patch(self, path: str, patch: JsonObject | list[JsonObject]) -> JsonObject:
        before = self._get(path)
        after = copy.deepcopy(before)
        if isinstance(patch, list):
            _apply(after, patch)
        else:
            self._check(before, patch.get("metadata", {}))
            _merge(after, patch)
        return before if after == before else self._store(path, after, "MODIFIED")

    def _update(self, path: str, body: JsonObject) -> JsonObject:
        self._check(self._get(path), body["metadata"])
        return self._store(path, body, "MODIFIED")

    def _delete(self, path: str, options: JsonObject) -> JsonObject:
        self._check(self._get(path), options.get("preconditions", {}))
        return self._drop(path)

    @staticmethod
    def _check(found: JsonObject, preconditions: JsonObject) -> None:
        for key in ("uid", "resourceVersion"):
            if preconditions.get(key, found["metadata"][key]) != found["metadata"][key]:
                raise Refusal(409, f"the {key} in the precondition is not that of the object")

    def _list(self, path: str, asked: Mapping[str, str]) -> JsonObject:
        first, limit = int(asked.get("continue", 0)), int(asked["limit"])
        found = [one for name, one in sorted(self.objects.items()) if _is_in(path, name) and _selected(one, asked)]
        more = {"continue": str(first + limit)} if first + limit < len(found) else {}
        metadata = {"resourceVersion": str(self._version), **more}
        return {"metadata": metadata, "items": found[first : first + limit]}

    def _store(self, path: str, found: JsonObject, kind: str) -> JsonObject:
        self._version += 1
        new = copy.deepcopy(found)
        new["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = new
        self._report(kind, path, new)
        return new

    def _drop(self, path: str) -> JsonObject:
        self._version += 1
        found = copy.deepcopy(self.objects.pop(path))
        found["metadata"]["resourceVersion"] = str(self._version)
        self._report("DELETED", path, found)
        return found

    def _report(self, kind: str, path: str, found: JsonObject) -> None:
        self._happened.append(Happened(self._version, kind, {"path": path, "object": found}))
        self._changed.notify_all()

    def _watched(self, request: Request) -> Iterator[bytes]:
        path, _, query = request.path.partition("?")
        asked = {key: values[0] for key, values in parse_qs(query).items()}
        after = int(asked["resourceVersion"])
        while True:
            with self._changed:
                if after < self._oldest:
                    yield _line("ERROR", {"code": 410, "message": "too old resource version"})
                    return
                new = [one for one in self._happened if one.version > after]
                if not new and not self._changed.wait(_WATCH_SECONDS):
                    yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(max(after, self._oldest))}})
                    return
            for one in new:
                after = one.version
                if _is_in(path, one.found["path"]) and _selected(one.found["object"], asked):
                    yield _line(one.kind, one.found["object"])


def _line(kind: str, found: JsonObject) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


def _is_in(collection: str, path: str) -> bool:
    """Return whether a path is in a collection, which may be that of all namespaces: `/api/v1/pods`."""
    prefix, _, resource = collection.rpartition("/")
    parts = path.split("/")
    return path.startswith(f"{prefix}/") and parts[-2] == resource and "/".join(parts[:-2]).startswith(prefix)


def _selected(found: JsonObject, asked: Mapping[str, str]) -> bool:
    key, _, value = asked.get("labelSelector", "").partition("=")
    found_value = found["metadata"].get("labels", {}).get(key)
    return not key or (found_value is not None and value in ("", found_value))


def _merge(found: JsonObject, patch: JsonObject) -> None:
    """Apply a merge patch (RFC 7396)."""
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            _merge(found[key], value)
        elif value is None:
            found.pop(key, None)
        else:
            found[key] = value


def _apply(found: JsonObject, steps: list[JsonObject]) -> None:
    """Apply a JSON patch (RFC 6902): the operations that Railnet sends."""
    for step in steps:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        place: Any = found
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place.get(part)
            if place is None:
                raise Refusal(422, f"the path {step['path']} does not exist")
        if isinstance(place, list) and last == "-":
            place.append(step["value"])
            continue
        key: Any = int(last) if isinstance(place, list) else last
        there = key < len(place) if isinstance(place, list) else key in place
        if step["op"] == "add":
            place[key] = step["value"]
        elif not there or (step["op"] == "test" and place[key] != step["value"]):
            raise Refusal(422, f"the {step['op']} of {step['path']} failed")
        elif step["op"] == "remove":
            del place[key]

"""An API server's list and watch in memory, for an informer in the same thread: a script says what happens, and when."""

import json
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs

from railnet.apiserver.client import Expired, RequestFailed
from railnet.apiserver.request import JsonObject, Request, Verb

Action = Literal["put", "delete", "bookmark", "cut", "die", "expire", "refuse"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: to the object of a name, or to the connection."""

    action: Action
    name: str = ""
    value: int = 0


@dataclass
class ModelServer:
    """Does a step of the script before each answer, and goes on with it while a watch waits. After the last step, the test ends.

    Attributes:
        ended: set when the script is over and the last watch has been sent every change.
        page: how many objects a page has at most.
        objects: the objects by name.
        requests: every request so far.
    """

    script: list[Step]
    ended: threading.Event
    page: int = 2
    objects: dict[str, JsonObject] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    _version: int = 10
    _oldest: int = 10
    _log: list[tuple[int, bytes]] = field(default_factory=list)
    _snapshots: dict[str, list[JsonObject]] = field(default_factory=dict)

    def put(self, name: str, value: int) -> None:
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self._version += 1
        metadata = {"namespace": "ml", "name": name, "resourceVersion": str(self._version)}
        self.objects[name] = {"metadata": metadata, "value": value}
        self._record(kind, self.objects[name])

    def delete(self, name: str) -> None:
        found = self.objects.pop(name, None)
        if found is not None:
            self._version += 1
            metadata = {**found["metadata"], "resourceVersion": str(self._version)}
            self._record("DELETED", {**found, "metadata": metadata})

    def send(self, request: Request) -> JsonObject:
        assert request.verb is Verb.LIST
        self.requests.append(request)
        query = parse_qs(request.query)
        self._next_step(request)
        proceed = query.get("continue", [""])[0]
        version, _, begin = proceed.partition(":")
        if not proceed:
            version, begin = str(self._version), "0"
            self._snapshots[version] = [dict(one) for one in self.objects.values()]
        elif int(version) < self._oldest:
            raise Expired("the continue token is too old", 410)
        found, first = self._snapshots[version], int(begin)
        rest = f"{version}:{first + self.page}" if first + self.page < len(found) else ""
        metadata = {"resourceVersion": version, "continue": rest}
        return {"metadata": metadata, "items": json.loads(json.dumps(found[first : first + self.page]))}

    def lines(self, request: Request, accepted: Callable[[], object]) -> Generator[bytes]:
        assert request.verb is Verb.WATCH
        self.requests.append(request)
        version = int(parse_qs(request.query)["resourceVersion"][0])
        if version < self._oldest:
            yield self._too_old(version)
            return
        accepted()
        while True:
            yield from [line for number, line in self._log if number > version]
            version = self._version
            if not self.script:
                self.ended.set()
                return
            step = self.script.pop(0)
            if step.action == "cut":
                return
            if step.action == "bookmark":
                yield self._line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})
            self._do(step, request)

    def _too_old(self, version: int) -> bytes:
        """Say so in one of the two ways of a real API server."""
        if version % 2:
            raise Expired("too old resource version", 410)
        return self._line("ERROR", {"code": 410, "message": "too old resource version"})

    def _next_step(self, request: Request) -> None:
        if self.script:
            self._do(self.script.pop(0), request)

    def _do(self, step: Step, request: Request) -> None:
        match step.action:
            case "put":
                self.put(step.name, step.value)
            case "delete":
                self.delete(step.name)
            case "die":
                raise RequestFailed(f"cannot {request}: the connection was reset")
            case "refuse":
                raise RequestFailed(f"cannot {request}: HTTP 429", 429)
            case "expire":  # a watch goes on, but another cannot begin at an earlier version, and no list can proceed
                self._version += 1
                self._oldest = self._version
                self._log.clear()

    def _record(self, kind: str, found: JsonObject) -> None:
        self._log.append((self._version, self._line(kind, found)))

    @staticmethod
    def _line(kind: str, found: Any) -> bytes:
        return json.dumps({"type": kind, "object": found}).encode()

"""All objects of a kind, and then each of their changes, as raw JSON.

The `kubernetes` package's informer makes a model of each object; this takes a fifth of that time. Source of the protocol:
kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes".
"""

import json
from collections.abc import Iterator
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple

from apiserver.client import ApiServer, Expired, RequestFailed, StreamingApiServer, TooLarge
from apiserver.request import Collection, JsonObject, Request, list_page, watch

_PAGE = 256  # objects; a pod has some 10 KB, and an answer may have 8 MiB


class Kind(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class Change(NamedTuple):
    """One change. `found` is the object after it, or the last state of a deleted object; of a bookmark, only `version` counts."""

    kind: Kind
    found: JsonObject
    version: str


class Page(NamedTuple):
    """Some of the objects. `version` is the `resourceVersion` of the whole list: the same on each page."""

    found: list[JsonObject]
    version: str


def pages(api: ApiServer, about: Collection) -> Iterator[Page]:
    """List all objects, page by page; pages become smaller when objects are large.

    Raises:
        Expired: the list changed for so long that the next page is gone; list again.
        RequestFailed: as `ApiServer.send`.
    """
    limit, proceed = _PAGE, ""
    while True:
        try:
            answer = api.send(list_page(about, limit, proceed))
        except TooLarge:
            if limit == 1:
                raise
            limit //= 2
            continue
        metadata = _metadata(answer)
        items = answer.get("items") or []
        yield Page([one for one in items if isinstance(one, dict)], str(metadata.get("resourceVersion", "")))
        proceed = str(metadata.get("continue") or "")
        if not proceed:
            return


def changes(api: StreamingApiServer, about: Collection, version: str, seconds: int) -> Iterator[Change]:
    """Yield each change after a version, until the API server ends the watch, which it does after at most `seconds`.

    Raises:
        Expired: the version is too old; list again.
        RequestFailed: the watch cannot be made, or it was sent what is no change.
    """
    request = watch(about, version, seconds)
    for line in api.lines(request):
        yield _change(request, line)


def _change(request: Request, line: bytes) -> Change:
    try:
        event = json.loads(line)
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            raise _failure(request, found)
        return Change(Kind(kind), found, str(_metadata(found)["resourceVersion"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RequestFailed(f"cannot {request}: the API server sent no change: {error!r:.200}") from None


def _failure(request: Request, status: JsonObject) -> RequestFailed:
    code, said = status.get("code"), f"cannot {request}: {status.get('message')!s:.400}"
    kind = Expired if code == HTTPStatus.GONE else RequestFailed
    return kind(said, code if isinstance(code, int) else 0)


def _metadata(found: JsonObject) -> JsonObject:
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, dict) else {}

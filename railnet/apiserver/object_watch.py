"""All objects of a kind, and then each of their changes, as raw JSON.

The `kubernetes` package's informer makes a model of each object; this takes a fifth of that time. Source of the protocol:
kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes".
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple

from railnet.apiserver.answer_json import parsed
from railnet.apiserver.client import ApiServer, Expired, RequestFailed, StreamingApiServer, TooLarge
from railnet.apiserver.request import Collection, JsonObject, Request, list_page, watch

_PAGE = 256  # objects
# Of a page with several objects. Parsed, it takes up to twenty times as much, where its authors wrote many short values.
_PAGE_BYTES = 2 << 20
_PAGES_BEFORE_LARGER = 8


class NotAsDocumented(RequestFailed):
    """The API server sent what its protocol does not have: something between it and this process answers, or it is another program."""


class WatchEventType(StrEnum):
    """The event that happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class Change(NamedTuple):
    """One change. `found` is the object after it, or the last state of a deleted object; of a bookmark, only `version` counts."""

    kind: WatchEventType
    found: JsonObject
    version: str


class Page(NamedTuple):
    """Some of the objects. `version` is the `resourceVersion` of the whole list: the same on each page."""

    found: list[JsonObject]
    version: str


def pages(api: ApiServer, about: Collection) -> Iterator[Page]:
    """List all objects, page by page; pages become smaller where objects are large, and larger again behind them.

    Raises:
        Expired: the list changed for so long that the next page is gone; list again.
        NotAsDocumented: the answer is no list.
        RequestFailed: as `ApiServer.send`.
    """
    limit, proceed, read = _PAGE, "", 0
    while True:
        request = list_page(about, limit, proceed, _PAGE_BYTES if limit > 1 else None)
        try:
            answer = api.send(request)
        except TooLarge:
            if limit == 1:
                raise
            limit, read = limit // 2, 0
            continue
        before, (page, proceed) = proceed, _page(request, answer)
        yield page
        if not proceed:
            return
        if proceed == before:
            raise NotAsDocumented(f"cannot {request}: the API server names a page as the one after itself")
        read += 1
        if read % _PAGES_BEFORE_LARGER == 0:
            limit = min(2 * limit, _PAGE)


def changes(
    api: StreamingApiServer,
    about: Collection,
    version: str,
    seconds: int,
    accepted: Callable[[], object] = lambda: None,
) -> Generator[Change]:
    """Yield each change after a version, until the API server ends the watch, which it does after at most `seconds`.

    `accepted` is called when the watch has begun; the first change may come much later.

    Raises:
        Expired: the version is too old; list again.
        NotAsDocumented: a line is no change.
        RequestFailed: the watch cannot be made, or has failed.
    """
    request = watch(about, version, seconds)
    with closing(api.lines(request, accepted)) as lines:
        for line in lines:
            yield _change(request, line)


def _page(request: Request, answer: JsonObject) -> tuple[Page, str]:
    """Return a page, and `continue`. An answer that is no list must not be taken for a list without objects: all objects would be gone."""
    metadata, items = _metadata(answer), answer.get("items") or []  # an empty list may be null
    version, proceed = metadata.get("resourceVersion"), metadata.get("continue") or ""
    if not isinstance(items, list) or not all(isinstance(document, dict) for document in items):
        raise NotAsDocumented(f"cannot {request}: the answer's items are no list of objects")
    if not (isinstance(version, str) and version and isinstance(proceed, str)):
        raise NotAsDocumented(f"cannot {request}: the answer is no list: its resourceVersion is {version!r:.80}")
    return Page(items, version), proceed


def _change(request: Request, line: bytes) -> Change:
    try:
        event = parsed(line)
        kind, document = event["type"], event["object"]
        if kind == "ERROR":
            raise _failure(request, document)
        version = document["metadata"]["resourceVersion"]
        if not (isinstance(version, str) and version):
            raise ValueError(f"the resourceVersion is {version!r:.80}")
        return Change(WatchEventType(kind), document, version)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotAsDocumented(f"cannot {request}: the API server sent no change: {error!r:.200}") from None


def _failure(request: Request, status: JsonObject) -> RequestFailed:
    code, text = status.get("code"), f"cannot {request}: {status.get('message')!s:.400}"
    kind = Expired if code == HTTPStatus.GONE else RequestFailed
    return kind(text, code if isinstance(code, int) else 0)


def _metadata(document: JsonObject) -> JsonObject:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}

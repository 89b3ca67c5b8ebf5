"""Asks the API server, and remembers what was not answered. It reads, and changes nothing."""

from collections.abc import Callable, Container
from typing import TypeVar

from railnet.apiserver.client import Absent, ApiServer, RequestFailed
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject, ServerVersion, get
from railnet.doctor.facts import Unread

_Read = TypeVar("_Read")
# What reading an object of another form raises.
_MALFORMED = (KeyError, TypeError, AttributeError, ValueError)


class Asking:
    """Asks for objects; of each answer that is missing it keeps the reason.

    A failure with a status of `fatal` is raised: after such a failure, the next request would fail, too.
    """

    def __init__(self, api: ApiServer, fatal: Container[int] = ()) -> None:
        """Ask this API server."""
        self._api, self._fatal, self._failed = api, fatal, dict[ApiObject | Collection | ServerVersion, str]()

    @property
    def unread(self) -> tuple[Unread, ...]:
        """Return what was not answered, and why."""
        return tuple(Unread(str(about), why) for about, why in self._failed.items())

    def has_failed(self, about: ApiObject | Collection) -> bool:
        """Return whether the answer is missing, or a part of it."""
        return about in self._failed

    def one(self, about: ApiObject | ServerVersion) -> JsonObject | None:
        """Return an object; None if it is absent or cannot be read."""
        try:
            return self._api.send(get(about))
        except Absent:
            return None
        except RequestFailed as error:
            self._fail(about, error)
            return None

    def all(self, about: Collection) -> tuple[JsonObject, ...] | None:
        """Return all objects of a collection; None if they cannot be listed."""
        return self.each(about, lambda document: document)

    def each(
        self, about: Collection, read: Callable[[JsonObject], _Read | None], *, may_be_absent: bool = False
    ) -> tuple[_Read, ...] | None:
        """Return what `read` makes of each object of a collection, page by page; None if they cannot be listed.

        An object of which it makes None is left out. With `may_be_absent`, an API server that does not know the kind is no failure.
        """
        readings: list[_Read] = []
        try:
            for page in pages(self._api, about):
                page_readings = (self.read(about, read, document) for document in page.found)
                readings += (reading for reading in page_readings if reading is not None)
        except Absent as error:
            if not may_be_absent:
                self._fail(about, error)
            return None
        except RequestFailed as error:
            self._fail(about, error)
            return None
        return tuple(readings)

    def read(
        self, about: ApiObject | Collection, read: Callable[[JsonObject], _Read | None], document: JsonObject
    ) -> _Read | None:
        """Return what `read` makes of an object; None if the object has not the documented form, of which the first is named."""
        try:
            return read(document)
        except _MALFORMED as error:
            self._failed.setdefault(about, f"the API server sent an object in an unknown form: {error!r:.120}")
            return None

    def _fail(self, about: ApiObject | Collection | ServerVersion, error: RequestFailed) -> None:
        if error.status in self._fatal:
            raise error
        self._failed[about] = str(error)

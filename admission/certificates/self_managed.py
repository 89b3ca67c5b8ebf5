"""Our own certificates while the server runs: the keeper looks again and again, and what it finds is shown."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NoReturn, TypeVar

from cryptography import x509

from admission.certificates.authority import signed_by
from admission.certificates.cluster_objects import Unanswered
from admission.certificates.keeper import Keeper, Seen
from admission.tls import Shown

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 10.0
_SOON_SECONDS = 1.0
_Result = TypeVar("_Result")


class Own:
    """Shows what the keeper keeps."""

    def __init__(self, keeper: Keeper, shown: Shown) -> None:
        """Show nothing until `keep` runs."""
        self._keeper, self._shown = keeper, shown
        self._trusted: frozenset[x509.Certificate] = frozenset()
        self._trouble = "nobody has asked the API server yet"

    def reasons(self) -> list[str]:
        """Return why API servers do not trust what is shown; nothing if they do."""
        leaf = self._shown.leaf
        if leaf is not None and any(signed_by(leaf.certificate, one) for one in self._trusted):
            return []
        why = self._trouble or "the webhooks' caBundle is not in place"
        return [f"API servers do not trust the certificate: {why}"]

    async def keep(self) -> NoReturn:
        """Look every ten seconds; each second while something is under way, and later and later while something is wrong."""
        again = _SOON_SECONDS
        while True:
            waits = await self._look()
            if self._trouble:
                again = min(2 * again, _LOOK_SECONDS)
                await asyncio.sleep(again)
            else:
                again = _SOON_SECONDS
                await asyncio.sleep(_SOON_SECONDS if waits else _LOOK_SECONDS)

    async def _look(self) -> bool:
        """Look once; tell whether something is under way."""
        trouble, seen = "", None
        try:
            seen = await _apart(lambda: self._keeper.look(self._shown.leaf))
            self._take(seen)
            trouble = seen.trouble
        except (Unanswered, OSError) as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - what is shown is shown on, and in ten seconds there is another look
            _log.exception("the certificates could not be looked after")
            trouble = f"{type(error).__name__}; see the log"
        if trouble != self._trouble and trouble:
            _log.warning("certificates: %s", trouble)
        elif self._trouble and not trouble:
            _log.info("certificates: all is as it should be")
        self._trouble = trouble
        return seen is not None and seen.waits

    def _take(self, seen: Seen) -> None:
        self._trusted = seen.trusted
        if seen.leaf is not None and seen.leaf != self._shown.leaf:
            self._shown.show(seen.leaf)
            _log.info("a certificate valid until %s is shown from now on", seen.leaf.ends.isoformat())


async def _apart(call: Callable[[], _Result]) -> _Result:
    """Call in a thread that nobody waits for at the end: an API server that does not answer must not keep the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def settle(result: _Result | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # there is one where there is no error

    def run() -> None:
        result, failed = None, None
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - handed over
            failed = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, daemon=True, name="certificates").start()
    return await future


def utc_now() -> datetime:
    """Tell the time."""
    return datetime.now(UTC)

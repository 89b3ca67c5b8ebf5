"""Railnet's own certificates while the server runs: the keeper looks every ten seconds, and the server shows the result."""

import asyncio
import logging
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NoReturn, TypeVar

from cryptography import x509

from railnet.admission.certificates.authority import signed_by
from railnet.admission.certificates.reconcile_step import Keeper, SeenCertificates
from railnet.admission.tls import Shown
from railnet.apiserver.client import RequestFailed
from railnet.backoff import Backoff

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 10.0
_SOON_SECONDS = 1.0
_BACKOFF = Backoff(first_seconds=2.0, longest_seconds=_LOOK_SECONDS)
_MOST_SECONDS = 60.0  # the longest wait that an API server may ask for
_Result = TypeVar("_Result")


class Own:
    """Has the server show the certificate that the keeper keeps."""

    def __init__(self, keeper: Keeper, shown: Shown) -> None:
        """Show nothing until `keep` runs."""
        self._keeper, self._shown = keeper, shown
        self._trusted: frozenset[x509.Certificate] = frozenset()
        self._trouble = "the API server has not been asked yet"
        self._retry_after = 0.0

    def reasons(self) -> list[str]:
        """Return why API servers do not trust the certificate that is shown; empty if they do."""
        leaf = self._shown.leaf
        if leaf is not None and any(signed_by(leaf.certificate, authority) for authority in self._trusted):
            return []
        why = self._trouble or "the webhooks' caBundle is not in place"
        return [f"API servers do not trust the certificate: {why}"]

    async def keep(self) -> NoReturn:
        """Look every ten seconds; every second while a step is in progress; with growing pauses while looks fail."""
        failures = 0
        while True:
            waits = await self._look()
            if self._trouble:
                failures += 1
                pause = _BACKOFF.pause(failures, random.random())  # noqa: S311 - no secret
                await asyncio.sleep(max(pause, min(self._retry_after, _MOST_SECONDS)))
            else:
                failures = 0
                await asyncio.sleep(_SOON_SECONDS if waits else _LOOK_SECONDS)

    async def _look(self) -> bool:
        """Look once; return whether a step is in progress."""
        trouble, seen, self._retry_after = "", None, 0.0
        try:
            seen = await _apart(lambda: self._keeper.look(self._shown.leaf))
            self._take(seen)
            trouble = seen.trouble
        except RequestFailed as error:
            trouble, self._retry_after = str(error), error.retry_after
        except OSError as error:  # OpenSSL refuses the certificate
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - the server goes on showing its certificate, and the next look may succeed
            _log.exception("the certificates could not be checked or renewed")
            trouble = f"{type(error).__name__}; see the log"
        if trouble != self._trouble and trouble:
            _log.warning("certificates: %s", trouble)
        elif self._trouble and not trouble:
            _log.info("certificates: valid and trusted again")
        self._trouble = trouble
        return seen is not None and seen.waits

    def _take(self, seen: SeenCertificates) -> None:
        self._trusted = seen.trusted
        if seen.leaf is not None and seen.leaf != self._shown.leaf:
            self._shown.show(seen.leaf)
            _log.info("a certificate valid until %s is shown from now on", seen.leaf.ends.isoformat())


async def _apart(call: Callable[[], _Result]) -> _Result:
    """Call in a thread that does not delay the end of the process: an API server may not answer."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def settle(result: _Result | None, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # there is a result if there is no error

    def run() -> None:
        result, failed = None, None
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - the caller gets the error
            failed = error
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, daemon=True, name="certificates").start()
    return await future


def utc_now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)

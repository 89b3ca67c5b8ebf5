"""Certificates in a folder that another program renews, as cert-manager does in a mounted Secret: the server shows them."""

import asyncio
import logging
from pathlib import Path
from typing import NoReturn

from railnet.admission.certificates.authority import UnusableCertificate
from railnet.admission.certificates.secret_content import parse_leaf
from railnet.admission.tls import Shown

_log = logging.getLogger(__name__)
_FILES = ("tls.crt", "tls.key")
_LOOK_SECONDS = 1.0


class Folder:
    """Has the server show the folder's `tls.crt` and `tls.key`, and show them again when they change."""

    def __init__(self, folder: Path, shown: Shown) -> None:
        """Read nothing until `keep` runs."""
        self._folder, self._shown = folder, shown
        self._read: dict[str, bytes] = {}
        self._trouble = ""

    def reasons(self) -> list[str]:
        """Return why there is no certificate to show. Trust of API servers is the duty of the program that fills the folder."""
        return [self._trouble] if self._trouble and self._shown.leaf is None else []

    async def keep(self) -> NoReturn:
        """Read the folder every second."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Read the folder once. An unusable file is logged once, and the server goes on showing its certificate."""
        trouble = ""
        try:
            contents = {name: (self._folder / name).read_bytes() for name in _FILES}
            if contents == self._read:
                return
            self._read = contents
            leaf = parse_leaf(contents)
            self._shown.show(leaf)
            _log.info("a certificate valid until %s is shown from now on", leaf.ends.isoformat())
        except OSError as error:  # SSLError is one
            self._read = {}
            trouble = f"{self._folder}: {error}"
        except UnusableCertificate as error:
            trouble = f"{self._folder}: {error}"
        if trouble and trouble != self._trouble:
            _log.warning("certificates: %s", trouble)
        self._trouble = trouble

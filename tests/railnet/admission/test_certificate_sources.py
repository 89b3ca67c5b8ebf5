"""The two sources of the server's certificate while it runs: Railnet's own, or a folder that another program renews."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from railnet.admission.certificates import renewal_loop
from railnet.admission.certificates.authority import ServerCertificate
from railnet.admission.certificates.folder import Folder
from railnet.admission.certificates.reconcile_step import Keeper, SeenCertificates
from railnet.admission.certificates.renewal_loop import Own
from railnet.admission.tls import Shown
from railnet.apiserver.client import RequestFailed
from railnet.backoff import Backoff
from tests.jittered import jittered
from tests.railnet.admission.serving import NAME, a_leaf, an_authority, an_rsa_leaf


class Scripted(Keeper):
    """Returns prepared results one by one, and then the last one again and again."""

    def __init__(self, *sees: SeenCertificates | Exception) -> None:
        self._sees = list(sees)
        self.looks = 0

    def look(self, shown: ServerCertificate | None) -> SeenCertificates:
        self.looks += 1
        sees = self._sees.pop(0) if len(self._sees) > 1 else self._sees[0]
        if isinstance(sees, Exception):
            raise sees
        return sees


OURS = an_authority()
LEAF = a_leaf(OURS)
GOOD = SeenCertificates(LEAF, frozenset({OURS.certificate}))


def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(4000):
        if holds():
            return
        time.sleep(0.005)
    raise AssertionError("it never holds")


def keep(keeper: Scripted, until: Callable[[Own], bool], monkeypatch: pytest.MonkeyPatch) -> Own:
    monkeypatch.setattr(renewal_loop, "_SOON_SECONDS", 0.01)
    monkeypatch.setattr(renewal_loop, "_LOOK_SECONDS", 0.03)
    monkeypatch.setattr(renewal_loop, "_BACKOFF", Backoff(0.02, 0.03))

    async def scenario() -> Own:
        kept = Own(keeper, Shown())
        task = asyncio.create_task(kept.keep())
        await asyncio.to_thread(eventually, lambda: until(kept))
        assert not task.done()
        task.cancel()
        return kept

    return asyncio.run(scenario())


def test_trusted_certificate_gives_no_reason(monkeypatch: pytest.MonkeyPatch):
    kept = keep(Scripted(GOOD), lambda one: not one.reasons(), monkeypatch)

    assert kept._shown.leaf == LEAF


def test_reason_is_the_failure(monkeypatch: pytest.MonkeyPatch):
    unknown = Own(Scripted(GOOD), Shown())
    assert unknown.reasons() == [
        "API servers do not trust the certificate: the API server has not been asked yet",
    ]

    refused = SeenCertificates(LEAF, frozenset(), "the service account lacks the right 'patch'")
    kept = keep(Scripted(refused), lambda one: "lacks" in one.reasons()[0], monkeypatch)

    assert kept.reasons() == ["API servers do not trust the certificate: the service account lacks the right 'patch'"]


def test_certificate_that_is_not_trusted_yet_is_a_reason(monkeypatch: pytest.MonkeyPatch):
    stranger = SeenCertificates(LEAF, frozenset({an_authority().certificate}), waits=True)

    kept = keep(Scripted(stranger), lambda one: "caBundle is not in place" in one.reasons()[0], monkeypatch)

    assert kept.reasons()


def test_failure_is_logged_once_and_the_look_is_repeated_until_it_succeeds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    trouble = RequestFailed("cannot get secrets/x: connection refused")
    keeper = Scripted(trouble, trouble, trouble, ValueError("an error of the code"), GOOD)
    with caplog.at_level(logging.INFO):
        keep(keeper, lambda one: keeper.looks > 6, monkeypatch)

    said = [record.getMessage() for record in caplog.records]
    assert said.count("certificates: cannot get secrets/x: connection refused") == 1
    assert said.count("certificates: valid and trusted again") == 1
    assert "ValueError: an error of the code" in caplog.text


@pytest.mark.parametrize(("asked", "slept"), [(0.0, jittered(2.0)), (30.0, 30.0), (1e9, 60.0)])
def test_api_server_that_is_flooded_is_left_alone_as_long_as_it_asks(
    monkeypatch: pytest.MonkeyPatch, asked: float, slept: float
):
    slept_seconds: list[float] = []

    async def sleep(seconds: float) -> None:
        slept_seconds.append(seconds)
        raise asyncio.CancelledError

    monkeypatch.setattr(
        renewal_loop, "asyncio", SimpleNamespace(sleep=sleep, get_running_loop=asyncio.get_running_loop)
    )
    kept = Own(Scripted(RequestFailed("cannot get x: HTTP 429: slow down", 429, asked)), Shown())

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(kept.keep())

    assert slept_seconds == [slept]


def test_looks_that_fail_become_rare_and_begin_again_after_one_that_succeeds(monkeypatch: pytest.MonkeyPatch):
    slept_seconds: list[float] = []

    async def sleep(seconds: float) -> None:
        slept_seconds.append(seconds)
        if len(slept_seconds) == 7:
            raise asyncio.CancelledError

    monkeypatch.setattr(
        renewal_loop, "asyncio", SimpleNamespace(sleep=sleep, get_running_loop=asyncio.get_running_loop)
    )
    trouble = RequestFailed("connection refused")
    kept = Own(Scripted(*[trouble] * 5, GOOD, trouble), Shown())

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(kept.keep())

    assert slept_seconds == [*(jittered(one) for one in (2, 4, 8, 10, 10)), 10.0, jittered(2)]


def test_certificate_stays_trusted_while_the_api_server_is_down(monkeypatch: pytest.MonkeyPatch):
    keeper = Scripted(GOOD, RequestFailed("connection refused"))
    kept = keep(keeper, lambda one: keeper.looks > 3, monkeypatch)

    assert kept.reasons() == []


def test_leaf_that_openssl_refuses_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    other = a_leaf(OURS)
    keeper = Scripted(GOOD, SeenCertificates(ServerCertificate(LEAF.certificate, LEAF.chain, other.key), GOOD.trusted))
    kept = keep(keeper, lambda one: keeper.looks > 2, monkeypatch)

    assert kept._shown.leaf == LEAF
    assert "KEY_VALUES_MISMATCH" in caplog.text


def write(folder: Path, leaf: ServerCertificate) -> None:
    (folder / "tls.crt").write_bytes(leaf.chain)
    (folder / "tls.key").write_bytes(leaf.key)


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def folder(tmp_path: Path, shown: Shown) -> Folder:
    return Folder(tmp_path, shown)


def test_folder_without_files_is_logged_once_and_is_a_reason(
    folder: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder.look()
    folder.look()

    assert len(caplog.records) == 1
    assert f"{tmp_path}: [Errno 2] No such file or directory" in folder.reasons()[0]


def test_changed_folder_is_shown_again(folder: Folder, tmp_path: Path, shown: Shown):
    write(tmp_path, LEAF)
    folder.look()
    assert (shown.leaf, folder.reasons()) == (LEAF, [])

    other = a_leaf(OURS)
    write(tmp_path, other)
    folder.look()
    assert shown.leaf == other


def test_half_of_a_change_is_logged_and_the_shown_certificate_stays(
    folder: Folder, tmp_path: Path, shown: Shown, caplog: pytest.LogCaptureFixture
):
    write(tmp_path, LEAF)
    folder.look()
    other = a_leaf(OURS)
    (tmp_path / "tls.crt").write_bytes(other.chain)
    folder.look()
    folder.look()

    assert (shown.leaf, folder.reasons()) == (LEAF, [])
    assert caplog.text.count("tls.key is not the key of the first certificate in tls.crt") == 1

    (tmp_path / "tls.key").write_bytes(other.key)
    folder.look()
    assert shown.leaf == other


def test_chain_with_an_intermediate_and_an_rsa_key_are_shown(folder: Folder, tmp_path: Path, shown: Shown):
    leaf = an_rsa_leaf(OURS)
    write(tmp_path, leaf)

    folder.look()

    assert shown.leaf == leaf


def test_fault_of_the_shown_certificate_is_reported(shown: Shown):
    now = datetime.now(UTC)
    assert shown.trouble(now, NAME) == "there is no certificate to show yet"

    shown.show(LEAF)

    assert shown.trouble(now, NAME) == ""
    assert shown.trouble(now, "another.svc") == "the certificate is not for another.svc"
    assert "the certificate is valid from" in shown.trouble(now + timedelta(days=91), NAME)
    assert "the certificate is valid from" in shown.trouble(now - timedelta(days=1), NAME)

"""Where a container finds the API server, and what is missing if it does not."""

import os
from pathlib import Path

import pytest

from railnet.apiserver.service_account import NotInCluster, ServiceAccount, find

ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("token", "ca.crt"):
        (tmp_path / name).touch()
    return tmp_path


def test_api_server_is_at_the_address_of_the_environment(folder: Path) -> None:
    assert find(ENVIRON, folder) == ServiceAccount("10.96.0.1", 443, folder)


@pytest.mark.parametrize(
    "environ",
    [{}, {"KUBERNETES_SERVICE_HOST": ""}, {"KUBERNETES_SERVICE_HOST": "h"}]
    + [ENVIRON | {"KUBERNETES_SERVICE_PORT": port} for port in ("", "0", "65536", "9" * 5000, "-1", "x", "44³")],
)
def test_environment_without_an_api_server_is_no_cluster(folder: Path, environ: dict[str, str]) -> None:
    with pytest.raises(NotInCluster, match="not in a cluster"):
        find(environ, folder)


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_missing_file_is_named(folder: Path, missing: str) -> None:
    (folder / missing).unlink()

    with pytest.raises(NotInCluster, match=f"{folder / missing} does not exist"):
        find(ENVIRON, folder)


@pytest.fixture
def account(folder: Path) -> ServiceAccount:
    (folder / "token").write_text("first")
    (folder / "ca.crt").write_text("authority")
    return ServiceAccount("10.96.0.1", 443, folder)


def age(file: Path, seconds: int = 0) -> None:
    """Give a file a time of change that is long over, and some seconds more."""
    os.utime(file, (1000 + seconds, 1000 + seconds))


def test_file_that_has_not_changed_is_not_read_again(account: ServiceAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("token", "ca.crt"):
        age(account.folder / name)
    before = account.token(), account.read_authority()
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read again"))

    assert (account.token(), account.read_authority()) == before == ("first", b"authority")


def test_token_that_has_changed_is_read_again(account: ServiceAccount) -> None:
    file = account.folder / "token"
    age(file)
    account.token()
    file.write_text("other")
    age(file, 1)

    assert account.token() == "other"


def test_token_that_is_another_file_of_the_same_time_is_read_again(account: ServiceAccount) -> None:
    file, other = account.folder / "token", account.folder / "other"
    age(file)
    account.token()
    other.write_text("other")
    age(other)
    other.rename(file)

    assert account.token() == "other"


def test_token_that_was_changed_a_moment_ago_is_read_each_time(account: ServiceAccount) -> None:
    file = account.folder / "token"
    account.token()
    changed = file.stat().st_mtime_ns
    file.write_text("other")
    os.utime(file, ns=(changed, changed))  # within one step of the kernel's clock

    assert account.token() == "other"


def test_token_that_is_gone_is_not_the_one_that_was_read(account: ServiceAccount) -> None:
    age(account.folder / "token")
    account.token()
    (account.folder / "token").unlink()

    with pytest.raises(FileNotFoundError):
        account.token()

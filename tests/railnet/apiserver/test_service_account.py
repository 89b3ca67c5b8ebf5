"""Where a container finds the API server, and what is missing if it does not."""

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

"""Which API server the command asks, and what it says where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

from railnet.apiserver import service_account
from railnet.apiserver.client import RequestFailed
from railnet.apiserver.request import ApiObject, get
from railnet.cli.connection import connect
from railnet.errors import Misconfigured
from tests.jittered import jittered
from tests.railnet.apiserver.raw_server import RawServer, serving
from tests.railnet.train.memory_api_server import MemoryApiServer, status

POD = ApiObject("v1", "pods", "train-0", "ml")


def test_pod_of_a_cluster_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path / "account") as server:
        find = service_account.find
        monkeypatch.setattr(service_account, "find", lambda environ: find(environ, server.folder))
        api = connect({**server.environment, "HOME": str(tmp_path)}, None, None)

        assert api.send(get(POD)) == {"kind": "Pod"}
        assert b"authorization: bearer a-token" in _last(server)


def _last(server: RawServer) -> bytes:
    return server.requests[-1].lower()


def test_kubeconfig_that_is_named_and_absent_is_an_error_in_a_pod_too(tmp_path: Path) -> None:
    with serving(tmp_path / "account") as server, pytest.raises(Misconfigured, match="there is no kubeconfig /absent"):
        connect({**server.environment, "HOME": str(tmp_path)}, "/absent", None)


def test_kubeconfig_of_the_environment_that_is_absent_is_an_error_in_a_pod_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "account") as server:
        find = service_account.find
        monkeypatch.setattr(service_account, "find", lambda environ: find(environ, server.folder))

        with pytest.raises(Misconfigured, match="there is no kubeconfig /absent"):
            connect({**server.environment, "KUBECONFIG": "/absent"}, None, None)


def test_neither_kubeconfig_nor_pod_is_said(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"there is no kubeconfig .*; and this is no pod of a cluster"):
        connect({"HOME": str(tmp_path)}, None, None)


def test_broken_kubeconfig_is_said(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[")

    with pytest.raises(Misconfigured, match="cannot be used"):
        connect({}, str(tmp_path / "config"), None)


@pytest.mark.slow
def test_missing_package_is_named_with_what_installs_it() -> None:
    program = "import sys; sys.modules['kubernetes'] = None; from railnet.__main__ import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", program, "train", "ls"], capture_output=True, text=True, check=False, timeout=60
    )

    assert (found.returncode, found.stdout) == (3, "")
    assert found.stderr == (
        "railnet: railnet train needs the Python package kubernetes, which this Python does not have: run pip install 'railnet', "
        "or use the image of the admission helper\n"
    )


@pytest.mark.slow
def test_package_that_an_mpi_job_alone_needs_is_named_with_what_installs_it(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("{kind: mpi, name: ring, image: x, workers: 2, command: [mpirun, hostname]}")
    program = "import sys; sys.modules['cryptography'] = None; from railnet.__main__ import main; main()"
    command = [sys.executable, "-c", program, "train", "up", "-f", job, "--dry-run=client"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert found.returncode == 3
    assert "needs the Python package cryptography" in found.stderr
    assert "run pip install 'railnet[mpi]'" in found.stderr


@pytest.mark.parametrize(("code", "tries"), [(429, 6), (500, 6), (503, 6), (401, 1), (403, 1), (400, 1)])
def test_only_what_may_pass_is_tried_again(code: int, tries: int, capsys: pytest.CaptureFixture[str]) -> None:
    server = MemoryApiServer()
    server.before = lambda _: status(code, "no")

    with pytest.raises(RequestFailed, match="no"):
        server.api.send(get(POD))
    assert len(server.requests) == tries
    assert server.slept == [jittered(one) for one in (0.5, 1, 2, 4, 8)[: tries - 1]]
    assert capsys.readouterr().err.count("trying again in") == tries - 1


def test_credentials_that_are_refused_are_said_with_what_to_do() -> None:
    server = MemoryApiServer()
    server.before = lambda _: status(401, "Unauthorized")

    with pytest.raises(
        RequestFailed, match=r"HTTP 401: Unauthorized; your credentials .* expired: log in again, or"
    ) as error:
        server.api.send(get(POD))
    assert error.value.status == 401


def test_api_server_that_asks_for_a_pause_gets_it() -> None:
    server = MemoryApiServer()
    answers = iter(
        [status(429, "later")._replace(retry_after="3"), status(429, "later")._replace(retry_after="900"), None]
    )
    server.before = lambda _: next(answers)
    server.add("pods", {"metadata": {"name": "train-0", "namespace": "ml"}})

    assert server.api.send(get(POD))["metadata"]["name"] == "train-0"
    assert server.slept == [3.0, 30.0]

"""The client against a server that speaks real TLS."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.client import Answer, ApiServer, Request
from simnode.kubernetes import api_server
from simnode.kubernetes.api_server import Reply

EVENT = Request("POST", "/api/v1/namespaces/ml/events", "application/json", b'{"metadata": {"name": "e"}}')


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[api_server.ApiServer]:
    with api_server.ApiServer(tmp_path / "serviceaccount") as server:
        yield server


@pytest.fixture
def client(cluster: api_server.ApiServer, tmp_path: Path) -> ApiServer:
    found = ApiServer.of_cluster(cluster.environment, tmp_path / "serviceaccount")
    assert found is not None
    return found


def test_request_arrives_with_the_token_and_is_answered(cluster: api_server.ApiServer, client: ApiServer) -> None:
    assert client.send(EVENT) == Answer(200)

    (received,) = cluster.received
    assert (received.method, received.path, received.content_type) == EVENT[:3]
    assert (received.token, received.body) == (cluster.token, {"metadata": {"name": "e"}})


def test_failure_has_the_api_servers_words(client: ApiServer) -> None:
    client.send(EVENT)

    assert client.send(EVENT) == Answer(409, 'events "e" already exists')


def test_api_server_may_say_when_to_come_again(cluster: api_server.ApiServer, client: ApiServer) -> None:
    cluster.interfere = lambda _: Reply(429, "too many requests", {"Retry-After": "7"})

    assert client.send(EVENT) == Answer(429, "too many requests", 7.0)


def test_token_is_read_again_when_kubelet_has_replaced_it(cluster: api_server.ApiServer, client: ApiServer) -> None:
    cluster.token = "another-token"  # noqa: S105
    before = client.send(EVENT)
    cluster.write_token()

    assert (before.status, client.send(EVENT).status) == (401, 200)


def test_server_of_another_authority_is_not_told_the_token(client: ApiServer, tmp_path: Path) -> None:
    with api_server.ApiServer(tmp_path / "stranger") as stranger:
        (tmp_path / "serviceaccount/ca.crt").write_bytes((tmp_path / "stranger/ca.crt").read_bytes())
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            client.send(EVENT)

    assert stranger.received == []


def test_nobody_there_is_an_error_of_the_network(tmp_path: Path, cluster: api_server.ApiServer) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        client = ApiServer("127.0.0.1", closed.getsockname()[1], tmp_path / "serviceaccount")

        with pytest.raises(ConnectionRefusedError):
            client.send(EVENT)


def test_silence_ends(tmp_path: Path, cluster: api_server.ApiServer) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = ApiServer("127.0.0.1", silent.getsockname()[1], tmp_path / "serviceaccount", seconds=0.1)

        with pytest.raises(TimeoutError):
            client.send(EVENT)


def test_token_that_is_none_is_an_error_and_not_sent(
    cluster: api_server.ApiServer, client: ApiServer, tmp_path: Path
) -> None:
    (tmp_path / "serviceaccount/token").write_text("two\nlines")

    with pytest.raises(OSError, match="Invalid header value"):
        client.send(EVENT)

    assert cluster.received == []


@pytest.mark.parametrize(
    "environ",
    [{}, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "x"}],
    ids=["no cluster", "no port", "odd port"],
)
def test_outside_of_a_cluster_there_is_none(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "token").touch()

    assert ApiServer.of_cluster(environ, tmp_path) is None


def test_without_a_token_there_is_none(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    assert ApiServer.of_cluster(environ, tmp_path) is None


@pytest.mark.parametrize("port", ["", "0", "65536", "9" * 5000, "-1", "x"])
def test_port_that_is_none_is_no_cluster(tmp_path: Path, port: str) -> None:
    (tmp_path / "token").touch()
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": port}

    assert ApiServer.of_cluster(environ, tmp_path) is None

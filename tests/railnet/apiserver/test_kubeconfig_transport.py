"""The transport of a kubeconfig, against a server that speaks real TLS."""

import json
import re
import socket
import ssl
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet.apiserver.client import RequestFailed, UserApiServer
from railnet.apiserver.kubeconfig_transport import KubeconfigTransport, NoKubeconfig, files
from railnet.apiserver.pod_exec import PodExec
from railnet.apiserver.request import ApiObject, get, log
from tests.railnet.apiserver.raw_server import RawServer, answer, saying, serving

POD = ApiObject("v1", "pods", "train-0", "ml")
_CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=me "
    "-addext extendedKeyUsage=clientAuth -keyout {key} -out {certificate}"
)
_PLUGIN = """#!{python}
import json, pathlib
calls = pathlib.Path({calls!r})
number = len(calls.read_text()) if calls.exists() else 0
calls.write_text("x" * (number + 1))
status = {{"token": f"plugin-{{number}}", "expirationTimestamp": {expires!r}}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RawServer]:
    with serving(tmp_path / "account") as found:
        yield found


def config(server: RawServer, user: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    url = f"https://localhost:{server.environment['KUBERNETES_SERVICE_PORT']}"
    here = {"server": url, "certificate-authority": str(server.folder / "ca.crt"), **cluster}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": here}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "mine", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "mine",
    }


def written(path: Path, document: Any) -> str:
    path.write_text(yaml.safe_dump(document))
    return str(path)


def client(names: str, context: str | None = None) -> UserApiServer:
    transport = KubeconfigTransport(names, context)
    return UserApiServer(transport, transport.token, "railnet-test")


def authorizations(server: RawServer) -> list[str]:
    lines = [line for request in server.requests for line in request.decode().splitlines()]
    return [line.partition(": ")[2] for line in lines if line.lower().startswith("authorization:")]


def test_cluster_is_named_by_its_server_and_its_context(server: RawServer, tmp_path: Path) -> None:
    document = config(server, {"token": "mine"})
    document["clusters"][0]["cluster"]["server"] = "https://me:secret@gpu.example:6443/x"
    names = written(tmp_path / "config", document)

    assert KubeconfigTransport(names).cluster == ("gpu.example:6443", "mine")
    assert KubeconfigTransport(names, "mine").cluster == ("gpu.example:6443", "mine")


def test_token_of_the_file_is_sent(server: RawServer, tmp_path: Path) -> None:
    names = written(tmp_path / "config", config(server, {"token": "mine"}))

    assert client(names).send(get(POD)) == {"kind": "Pod"}
    assert authorizations(server) == ["Bearer mine"]


def test_exec_plugin_is_asked_again_when_its_token_has_expired(server: RawServer, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    soon = (datetime.now(UTC) - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    plugin.write_text(_PLUGIN.format(python=sys.executable, calls=str(tmp_path / "calls"), expires=soon))
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    api = client(written(tmp_path / "config", config(server, {"exec": exec_})))

    api.send(get(POD))
    api.send(get(POD))

    assert authorizations(server) == ["Bearer plugin-1", "Bearer plugin-2"]


def test_client_certificate_says_who_asks(server: RawServer, tmp_path: Path) -> None:
    command = _CERTIFICATE.format(key=tmp_path / "me.key", certificate=tmp_path / "me.crt")
    subprocess.run(command.split(), check=True, capture_output=True)
    server._context.load_verify_locations(str(tmp_path / "me.crt"))
    server._context.verify_mode = ssl.CERT_REQUIRED
    user = {"client-certificate": str(tmp_path / "me.crt"), "client-key": str(tmp_path / "me.key")}

    assert client(written(tmp_path / "config", config(server, user))).send(get(POD)) == {"kind": "Pod"}
    assert authorizations(server) == []
    with pytest.raises(RequestFailed):
        client(written(tmp_path / "other", config(server, {"token": "mine"}))).send(get(POD))


def test_context_is_chosen(server: RawServer, tmp_path: Path) -> None:
    document = config(server, {"token": "mine"})
    document["users"].append({"name": "other", "user": {"token": "another"}})
    document["contexts"].append({"name": "second", "context": {"cluster": "here", "user": "other"}})

    client(written(tmp_path / "config", document), "second").send(get(POD))

    assert authorizations(server) == ["Bearer another"]


def test_several_files_are_one_configuration(server: RawServer, tmp_path: Path) -> None:
    whole = config(server, {"token": "mine"})
    users = {"apiVersion": "v1", "kind": "Config", "users": whole.pop("users")}
    names = f"{written(tmp_path / 'a', {**whole, 'users': []})}:{written(tmp_path / 'b', users)}:{tmp_path / 'absent'}"

    client(names).send(get(POD))

    assert authorizations(server) == ["Bearer mine"]


def test_another_authority_is_not_trusted(server: RawServer, tmp_path: Path) -> None:
    names = written(tmp_path / "config", config(server, {"token": "mine"}))
    server.use_new_authority()

    with pytest.raises(RequestFailed, match="CERTIFICATE_VERIFY_FAILED"):
        client(names).send(get(POD))
    assert server.requests == []


def test_missing_right_is_said_in_the_users_words(server: RawServer, tmp_path: Path) -> None:
    server.script = saying(answer(b'{"message": "User cannot get"}', "403 Forbidden"))
    names = written(tmp_path / "config", config(server, {"token": "mine"}))

    with pytest.raises(RequestFailed, match="you lack the right 'get' on pods/train-0 in namespace ml, or a policy"):
        client(names).send(get(POD))


def test_log_is_asked_for_as_text(server: RawServer, tmp_path: Path) -> None:
    server.script = saying(answer(b"one\ntwo\n", "200 OK", "Content-Type: text/plain"))
    api = client(written(tmp_path / "config", config(server, {"token": "mine"})))
    place = ApiObject("v1", "pods", "train-0", "ml", "log")

    assert list(api.lines(log(place, follow="true"))) == [b"one", b"two"]
    assert server.requests[0].startswith(b"GET /api/v1/namespaces/ml/pods/train-0/log?follow=true HTTP/1.1\r\n")
    assert b"accept: */*\r\n" in server.requests[0].lower()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"current-context": "absent"}, "Expected object with name absent .* or a context with --context$"),
        ({"clusters": []}, "Expected object with name here"),
        ({"users": [{"name": "me", "user": {"username": "a", "password": "b"}}]}, "a user name and a password"),
        (
            {
                "users": [
                    {
                        "name": "me",
                        "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/absent"}},
                    }
                ]
            },
            "gives no credentials: .*/absent.*; look at the program that its user names under exec, or",
        ),
        ({"users": [{"name": "me", "user": {"client-certificate": "/absent"}}]}, "cannot be used: .*/absent"),
        (
            {"clusters": [{"name": "here", "cluster": {"server": "cluster"}}]},
            "names the API server 'cluster', which is no URL",
        ),
        ({"contexts": 5}, "cannot be used"),
    ],
    ids=["context", "cluster", "password", "plugin", "certificate", "url", "type"],
)
def test_broken_kubeconfig_is_named(server: RawServer, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    names = written(tmp_path / "config", {**config(server, {"token": "mine"}), **change})

    with pytest.raises(NoKubeconfig, match=rf"(?s)kubeconfig {names} .*{words}"):
        KubeconfigTransport(names)


@pytest.mark.parametrize("text", ["", "a: [", "5"])
def test_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)

    with pytest.raises(NoKubeconfig, match=r"^[^\n]* cannot be used: [^\n]*; repair it, or choose another file[^\n]*$"):
        KubeconfigTransport(str(tmp_path / "config"))


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        (
            "me:secret@proxy",
            "the proxy to the API server cannot be used: .*; HTTPS_PROXY, or proxy-url of the kubeconfig",
        ),
        ("gopher://me:secret@proxy:70", "the proxy to the API server cannot be used: "),
        ("socks5://me:secret@127.0.0.1:1", "needs the Python package PySocks .*: run pip install pysocks"),
    ],
)
def test_proxy_that_cannot_be_used_is_said_without_its_password(
    server: RawServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "socks", None)
    names = written(tmp_path / "config", config(server, {"token": "mine"}))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy)

    with pytest.raises(NoKubeconfig, match=words) as error:
        KubeconfigTransport(names)
    assert "secret" not in str(error.value)


def test_file_is_chosen_as_kubectl_chooses_it(tmp_path: Path) -> None:
    kubectls = tmp_path / ".kube" / "config"
    with pytest.raises(
        NoKubeconfig, match=r"there is no kubeconfig .*config; name one with --kubeconfig, or in KUBECONFIG"
    ):
        files({"HOME": str(tmp_path)}, None)
    kubectls.parent.mkdir()
    kubectls.write_text(json.dumps({}))
    other = written(tmp_path / "other", {})

    assert files({"HOME": str(tmp_path)}, None) == str(kubectls)
    assert files({"HOME": str(tmp_path), "KUBECONFIG": other}, None) == other
    assert files({"HOME": str(tmp_path), "KUBECONFIG": "/absent"}, other) == other


def test_command_that_a_silent_api_server_does_not_begin_is_given_up(server: RawServer, tmp_path: Path) -> None:
    server.reads = False
    transport = KubeconfigTransport(written(tmp_path / "config", config(server, {"token": "mine"})))

    with pytest.raises(RequestFailed, match=r"the API server has not begun the command after 0\.3 s"):
        PodExec(transport, transport.token).run(POD, "main", ["true"], 0.3)


@pytest.mark.slow
def test_command_whose_output_stops_in_the_middle_of_a_frame_is_given_up(server: RawServer, tmp_path: Path) -> None:
    def switch(connection: socket.socket) -> None:
        (key,) = re.findall(rb"Sec-WebSocket-Key: (\S+)", server.requests[-1])
        accepted = b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest())
        head = (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
        )
        connection.sendall(head + accepted + b"\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n")
        connection.sendall(b"\x82\x05\x01ab")  # a frame of five bytes, of which three come (RFC 6455, section 5.2)
        server.ended.wait()
        raise ConnectionAbortedError  # what the client sends now is no request

    server.script = switch
    transport = KubeconfigTransport(written(tmp_path / "config", config(server, {"token": "mine"})))

    with pytest.raises(RequestFailed, match="the command has not ended after 2 s"):
        PodExec(transport, transport.token).run(POD, "main", ["true"], 2.0)

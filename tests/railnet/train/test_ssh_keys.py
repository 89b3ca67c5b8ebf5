"""The keys for the ssh of one job."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from railnet.train.ssh_keys import ssh_keys


def test_private_key_is_a_file_of_openssh_whose_public_key_is_the_line() -> None:
    for pair in ssh_keys():
        read = load_ssh_private_key(pair.private.encode(), password=None)

        assert isinstance(read, Ed25519PrivateKey)
        assert read.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() == pair.public


def test_no_key_is_made_twice() -> None:
    pairs = [*ssh_keys(), *ssh_keys()]

    assert len({pair.private for pair in pairs}) == len({pair.public for pair in pairs}) == 4

"""Keys for the ssh of one job, as `cryptography` reads them: the product has no such package where the command runs."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from railnet.train.ssh_keys import key_pair, public_bytes, ssh_keys

# RFC 8032, section 7.1: the secret and the public keys of tests 1 to 3.
_VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
    ),
]


@pytest.mark.parametrize(("seed", "public"), _VECTORS)
def test_public_key_is_that_of_the_standard(seed: str, public: str) -> None:
    assert public_bytes(bytes.fromhex(seed)).hex() == public


@pytest.mark.parametrize("first", [0, 1, 127, 255])
def test_private_key_is_a_file_of_openssh_whose_public_key_is_the_line(first: int) -> None:
    pair = key_pair(lambda count: bytes([first]) * count)
    read = load_ssh_private_key(pair.private.encode(), password=None)

    assert isinstance(read, Ed25519PrivateKey)
    assert read.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() == pair.public
    assert max(map(len, pair.private.splitlines())) == 70


def test_no_key_is_made_twice() -> None:
    pairs = [*ssh_keys(), *ssh_keys()]

    assert len({pair.private for pair in pairs}) == len({pair.public for pair in pairs}) == 4

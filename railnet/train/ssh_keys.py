"""Pairs of ed25519 keys in OpenSSH's form, for the ssh of one MPI job, which no operator makes."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from railnet.jobs.train_job.mpi_objects import KeyPair, SshKeys


def ssh_keys() -> SshKeys:
    """Return new keys: the one that lets in, and the one of the hosts."""
    return SshKeys(_key_pair(), _key_pair())


def _key_pair() -> KeyPair:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())

"""SSH host keys that we make."""

from fabric_direct.drivers.contract import HostKey


def new_host_key() -> HostKey:
    """Return a new Ed25519 key pair without a passphrase."""
    # slow to import; only bare-metal nodes are given a key
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return HostKey(private=private.decode(), public=public.decode())

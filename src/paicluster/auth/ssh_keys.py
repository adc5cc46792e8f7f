"""SSH key pair of a user's jobs, for connections between them and from the user."""

from __future__ import annotations


def generate_key_pair() -> dict[str, str]:
    """A new pair, as stored in a user extension. Takes a tenth of a second: not on an event loop."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {"key": private.decode(), "pubKey": f"{public.decode()} pai-job-ssh"}

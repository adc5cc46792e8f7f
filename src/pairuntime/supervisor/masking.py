"""Replaces secret values in a stream, also when one is cut in two by the reads."""

MASK = b"******"


class Masker:
    """With no secrets this passes every byte through at once."""

    def __init__(self, secrets: "list[bytes]") -> "None":
        # Longest first, so that a secret containing another is replaced whole. Very short
        # values would mask ordinary text, and cannot be kept secret anyway.
        self._secrets = sorted((s for s in set(secrets) if len(s) >= 4), key=len, reverse=True)
        self._held = b""

    def feed(self, data: "bytes") -> "bytes":
        if not self._secrets:
            return data
        data = self._held + data
        for secret in self._secrets:
            data = data.replace(secret, MASK)
        cut = len(data) - self._longest_prefix_at_end(data)
        self._held = data[cut:]
        return data[:cut]

    def flush(self) -> "bytes":
        held, self._held = self._held, b""
        return held

    def _longest_prefix_at_end(self, data: "bytes") -> "int":
        best = 0
        for secret in self._secrets:
            for size in range(min(len(secret) - 1, len(data)), best, -1):
                if data.endswith(secret[:size]):
                    best = size
                    break
        return best

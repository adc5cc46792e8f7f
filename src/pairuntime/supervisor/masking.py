"""Masking of secret values in a stream, also of one that two reads split."""

MASK = b"******"


class Masker:
    """Masks secrets in a stream. Every byte of a secret is covered; secrets that overlap share one mask.

    The result does not depend on how the stream is split into reads. Without secrets every byte passes at
    once.
    """

    def __init__(self, secrets: "list[bytes]") -> "None":
        # Very short values would mask ordinary text, and cannot be kept secret anyway.
        self._secrets = sorted(s for s in set(secrets) if len(s) >= 4)
        self._held = b""
        # How many of the held bytes, from their start, are under a mask already written: they are held
        # because another secret may begin among them.
        self._covered = 0

    def feed(self, data: "bytes") -> "bytes":
        if not self._secrets:
            return data
        data = self._held + data
        return self._emit(data, self._undecided(data))

    def flush(self) -> "bytes":
        return self._emit(self._held, len(self._held))

    def _undecided(self, data: "bytes") -> "int":
        """Offset of the tail that may be the beginning of a secret."""
        first = len(data)
        for secret in self._secrets:
            at = data.find(secret[:1], max(0, len(data) - len(secret) + 1), first)
            while at >= 0:
                if secret.startswith(data[at:]):
                    first = at
                    break
                at = data.find(secret[:1], at + 1, first)
        return first

    def _emit(self, data: "bytes", upto: "int") -> "bytes":
        """The bytes before ``upto``, masked; the rest is held."""
        out = []
        # Where the masked run under way ends, and up to where everything is written or masked.
        end = done = self._covered
        for start, stop in self._occurrences(data):
            if start >= end:
                if start >= upto:
                    break
                out.append(data[done:start])
                out.append(MASK)
            end = done = max(end, stop)
        if done < upto:
            out.append(data[done:upto])
        self._held = data[upto:]
        self._covered = max(0, end - upto)
        return b"".join(out)

    def _occurrences(self, data: "bytes") -> "list[tuple[int, int]]":
        occurrences = []
        for secret in self._secrets:
            at = data.find(secret)
            while at >= 0:
                occurrences.append((at, at + len(secret)))
                at = data.find(secret, at + 1)
        occurrences.sort()
        return occurrences

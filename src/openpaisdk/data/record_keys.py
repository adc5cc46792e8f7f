"""Keys of records: ``--key path``, ``--key name`` or a template like ``{folder}_{stem}``."""

from __future__ import annotations

from string import Formatter

from openpaisdk.data.key_set import KeySet
from paiprotocol.errors import UsageError

FIELDS = ("path", "name", "stem", "suffix", "folder", "index")


class KeyRule:
    """Makes the key of a record from the path of its file. Two files with the same key are an error."""

    def __init__(self, rule: str = "path"):
        self._template = {"path": "", "name": "{name}"}.get(rule, rule)
        self._seen = KeySet()
        self._count = 0
        if self._template:
            try:
                fields = [field for _, field, _, _ in Formatter().parse(self._template) if field is not None]
            except ValueError as e:
                raise UsageError(f"--key {rule!r} is not a template: {e}.") from None
            unknown = [field for field in fields if field not in FIELDS]
            if unknown or not fields:
                problem = f"has the unknown field {{{unknown[0]}}}" if unknown else "has no field"
                raise UsageError(
                    f"--key {rule!r} {problem}.",
                    hint="Write path, name, or a template with "
                    + ", ".join(f"{{{f}}}" for f in FIELDS)
                    + ".",
                )

    def key(self, path: str) -> bytes:
        """The key of the next file."""
        if not self._template:
            return path.encode("utf-8", "surrogateescape")
        folder, _, name = path.rpartition("/")
        stem, dot, suffix = name.partition(".")
        if not stem:  # a hidden file has no suffix
            stem, dot, suffix = name, "", ""
        key = self._template.format(
            path=path, name=name, stem=stem, suffix=dot + suffix, folder=folder, index=self._count
        )
        self._count += 1
        if not self._seen.add(key):
            raise UsageError(
                f"{path} would have the key {key!r}, which an earlier file has.",
                hint="Choose keys that differ: --key path, or a template with {path} or {index}.",
            )
        return key.encode("utf-8", "surrogateescape")

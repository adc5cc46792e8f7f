"""Settings files: YAML, written atomically, readable only by their owner, with a parse cache.

Parsing YAML costs more time than starting the interpreter, in every command. So the parsed content is cached
as JSON in ``~/.openpai/cache`` with the file's stamp (times, size, inode); a changed file has another stamp.
"""

from __future__ import annotations

import os
import sys
import time

from openpaisdk.config.paths import display_path, make_private, user_folder
from paiprotocol.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

MIN_CACHE_AGE_NS = 2_000_000_000
"""A younger file may change again without a change of its stamp: it is not cached yet."""


def read_yaml(path: str, *, min_cache_age_ns: int = MIN_CACHE_AGE_NS) -> object:
    """The content of a settings file; None if there is no file."""
    try:
        stamp = _stamp(path)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise ConfigError(f"{display_path(path)} cannot be read: {e.strerror}.") from None
    found, value = _read_cache(path, stamp)
    if found:
        return value
    value = parse_yaml(path)
    if time.time_ns() - max(stamp[0], stamp[1]) > min_cache_age_ns:
        _write_cache(path, stamp, value)
    return value


def write_yaml(path: str, value: object) -> None:
    """Replace a settings file atomically: the old file stays until the new one is on disk."""
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
    replace_file(path, text.encode())
    # No other process wrote this inode, so its stamp can be trusted at once.
    _write_cache(path, _stamp(path), value)


def replace_file(path: str, content: bytes) -> None:
    """Write a temporary file, fsync, rename: after a crash or on a full disk the old file remains."""
    target = os.path.realpath(path)  # a settings file may be a symbolic link into a dotfiles repository
    temporary = f"{target}.{os.getpid()}.new"
    try:
        make_private(os.path.dirname(target))
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(fd, "wb") as f:
                f.write(content)
                f.flush()
                os.fsync(f.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as e:
        raise ConfigError(f"{display_path(path)} cannot be written: {e.strerror}.") from None


class FileLock:
    """Lock for a read-modify-write of a settings file, so that concurrent commands lose no change."""

    def __init__(self, path: str):
        self.path = path + ".lock"
        self.fd = -1

    def __enter__(self) -> FileLock:
        try:
            make_private(os.path.dirname(self.path))
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as e:
            raise ConfigError(f"{display_path(self.path)} cannot be written: {e.strerror}.") from None
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(self.fd, msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(self.fd, fcntl.LOCK_EX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        os.close(self.fd)


def parse_yaml(path: str) -> object:
    """The content of an existing YAML file, without the cache."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        with open(path, encoding="utf-8") as f:
            return yaml.load(f, Loader=loader)
    except yaml.MarkedYAMLError as e:
        where = f", line {e.problem_mark.line + 1}" if e.problem_mark else ""
        raise ConfigError(
            f"{display_path(path)}{where} is not valid YAML: {e.problem or e.context}."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError(f"{display_path(path)} is not valid YAML: {str(e).splitlines()[0]}.") from None
    except OSError as e:
        raise ConfigError(f"{display_path(path)} cannot be read: {e.strerror}.") from None


def _stamp(path: str) -> list[int]:
    s = os.stat(path)
    return [s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_ino, s.st_dev]


def _cache_file(path: str) -> str:
    flat = (
        os.path.abspath(path).replace("%", "%25").replace("/", "%2F").replace("\\", "%5C").replace(":", "%3A")
    )
    return os.path.join(user_folder(), "cache", flat + ".json")


def _read_cache(path: str, stamp: list[int]) -> tuple[bool, object]:
    try:
        with open(_cache_file(path), "rb") as f:
            text = f.read()
    except OSError:
        return False, None
    import json

    try:
        cached = json.loads(text)
        if cached["stamp"] == stamp:
            return True, cached["value"]
    except (ValueError, KeyError, TypeError):
        pass
    return False, None


def _write_cache(path: str, stamp: list[int], value: object) -> None:
    import json

    try:
        text = json.dumps({"stamp": stamp, "value": value})
        if json.loads(text)["value"] != value:  # YAML has more types than JSON: do not cache those
            return
        replace_file(_cache_file(path), text.encode())
    except (ConfigError, TypeError, ValueError):
        pass  # without a cache commands are only slower

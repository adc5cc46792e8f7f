"""Settings files: YAML for people, written whole or not at all, readable by their owner alone.

Reading YAML costs more than a bare interpreter does, on every command. So what was read is kept as JSON in
``~/.openpai/cache`` beside the file's stamp (times, size, inode); a file that changed has another stamp.
"""

from __future__ import annotations

import os
import sys
import time

from openpaisdk.config.paths import display_path, make_private, user_folder
from openpaisdk.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

SETTLED_NS = 2_000_000_000
"""A file younger than this may change again without its stamp changing: it is not cached yet."""


def read_yaml(path: str) -> object:
    """The content of a settings file; None where there is none."""
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
    if time.time_ns() - max(stamp[0], stamp[1]) > SETTLED_NS:
        _write_cache(path, stamp, value)
    return value


def write_yaml(path: str, value: object) -> None:
    """Replace a settings file: the old one stays until the new one is on the disk."""
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
    replace_file(path, text.encode())
    # Nobody else wrote this inode, so its stamp can be trusted at once.
    _write_cache(path, _stamp(path), value)


def replace_file(path: str, content: bytes) -> None:
    """Write aside, flush to the disk, rename: a crash or a full disk leaves the old file."""
    target = os.path.realpath(path)  # a settings file may be a link into somebody's dotfiles
    aside = f"{target}.{os.getpid()}.new"
    try:
        make_private(os.path.dirname(target))
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(fd, "wb") as f:
                f.write(content)
                f.flush()
                os.fsync(f.fileno())
            os.replace(aside, target)
        except BaseException:
            os.unlink(aside)
            raise
    except OSError as e:
        raise ConfigError(f"{display_path(path)} cannot be written: {e.strerror}.") from None


class Lock:
    """Held while a settings file is read, changed and written: two commands must not undo each other."""

    def __init__(self, path: str):
        self.path = path + ".lock"
        self.fd = -1

    def __enter__(self) -> Lock:
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
    """The content of a YAML file that is there; no cache is asked."""
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
        kept = json.loads(text)
        if kept["stamp"] == stamp:
            return True, kept["value"]
    except (ValueError, KeyError, TypeError):
        pass
    return False, None


def _write_cache(path: str, stamp: list[int], value: object) -> None:
    import json

    try:
        text = json.dumps({"stamp": stamp, "value": value})
        if json.loads(text)["value"] != value:  # YAML knows more types than JSON: then it is read anew
            return
        replace_file(_cache_file(path), text.encode())
    except (ConfigError, TypeError, ValueError):
        pass  # a cache that cannot be kept only costs time

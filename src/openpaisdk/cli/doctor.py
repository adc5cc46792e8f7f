"""``pai doctor``: what is wrong with a setup, and how it is mended. Looks, and changes nothing."""

from __future__ import annotations

import os
import sys
import time

from openpaisdk.cli.parser import command_parser
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry, check_clusters
from openpaisdk.config.defaults import KEYS, Defaults, defaults_file
from openpaisdk.config.paths import display_path, user_folder
from openpaisdk.config.yaml_files import parse_yaml
from openpaisdk.errors import ConfigError, PaiError
from openpaisdk.output import palette, print_notice, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD, NOTE, WRONG = "ok", "note", "wrong"
COLOURS = {GOOD: "green", NOTE: "yellow", WRONG: "red"}
LITTLE_SPACE = 1 << 30
MIN_OPEN_FILES = 1024
EXPIRES_SOON_S = 86400
MAX_CLOCK_SKEW_S = 120


class Finding:
    """One thing that was looked at."""

    __slots__ = ("hint", "level", "message", "what")

    def __init__(self, level: str, what: str, message: str, hint: str = ""):
        self.level = level
        self.what = what
        self.message = message
        self.hint = hint

    def as_dict(self) -> dict[str, str]:
        return {"level": self.level, "what": self.what, "message": self.message, "hint": self.hint}


def doctor(argv: list[str]) -> int:
    """``pai doctor``"""
    parser = command_parser(
        "doctor",
        "pai doctor",
        "Looks at pai itself, your settings, the cluster on this machine and every cluster you have added.\n"
        "The exit status is 1 when something is wrong. Nothing is changed, and nothing is started.",
        cluster=False,
    )
    args = parser.parse(argv)
    found = [*_check_installation(), *_settings(), *_check_embedded(), *_clusters(), *_check_environment()]
    show([one.as_dict() for one in found], args.output, lambda: "\n".join(map(_line, found)))
    wrong = sum(one.level == WRONG for one in found)
    if args.output == "table":
        print_notice(
            f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong." if wrong else "Nothing is wrong."
        )
    return 1 if wrong else 0


def _line(one: Finding) -> str:
    level = palette(sys.stdout).paint(f"{one.level:<6}", COLOURS[one.level])
    hint = f"\n{' ' * 25}{one.hint}" if one.hint else ""
    return f"{level} {one.what:<17} {one.message}{hint}".rstrip()


def _check_installation() -> Iterator[Finding]:
    from shutil import which

    from openpaisdk._version import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding(GOOD, "pai", f"version {__version__}, Python {python} at {display_path(sys.executable)}")
    first, ours = which("pai"), os.path.abspath(sys.argv[0])
    if first is None:
        yield Finding(
            NOTE,
            "PATH",
            "pai is not on your PATH.",
            f'Add it: export PATH="{os.path.dirname(ours)}:$PATH"',
        )
    elif os.path.basename(ours) == "pai" and os.path.realpath(first) != os.path.realpath(ours):
        yield Finding(NOTE, "PATH", f"Another pai comes first: {first}, not {ours}.", "Reorder your PATH.")


def _settings() -> Iterator[Finding]:
    folder = user_folder()
    if not os.path.isdir(folder):
        parent = os.path.dirname(folder)
        if os.access(parent, os.W_OK):
            yield Finding(GOOD, "settings", f"{display_path(folder)} is made at first use")
        else:
            yield Finding(
                WRONG, "settings", f"{parent} cannot be written.", "Set HOME to a folder that is yours."
            )
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(
            WRONG, "settings", f"{display_path(folder)} cannot be written.", f"chmod u+rwx {folder}"
        )
    else:
        yield Finding(GOOD, "settings", f"in {display_path(folder)}")
    yield from _defaults()
    try:
        path = ClusterRegistry.load_path()
    except (OSError, ConfigError):
        return
    if os.path.exists(path):
        yield from _clusters_file(path)


def _defaults() -> Iterator[Finding]:
    for is_global in (True, False):
        try:
            path = defaults_file(is_global=is_global)
        except FileNotFoundError:
            yield Finding(NOTE, "this folder", "The folder you are in no longer exists.", "Go to another: cd")
            continue
        if not os.path.exists(path):
            continue
        try:
            value = parse_yaml(path)
        except ConfigError as e:
            yield Finding(WRONG, "defaults", e.message, f"Mend or remove {display_path(path)}.")
            continue
        unknown = [str(key) for key in value if str(key) not in KEYS] if isinstance(value, dict) else []
        where = f"{display_path(path)}{'' if is_global else ' (of this folder; it goes before the others)'}"
        if unknown:
            yield Finding(
                NOTE, "defaults", f"{where} has keys nobody knows: {', '.join(unknown)}.", "pai set --help"
            )
        else:
            yield Finding(GOOD, "defaults", f"in {where}")


def _clusters_file(path: str) -> Iterator[Finding]:
    try:
        entries = check_clusters(parse_yaml(path), path)
    except ConfigError as e:
        yield Finding(WRONG, "clusters file", e.message, "Mend it with: pai edit-clusters")
        return
    mode = os.stat(path).st_mode & 0o777
    if sys.platform != "win32" and mode & 0o077:
        yield Finding(
            WRONG,
            "clusters file",
            f"{display_path(path)} holds tokens, and others may read it.",
            f"chmod 600 {display_path(path)}",
        )
    else:
        yield Finding(GOOD, "clusters file", f"{display_path(path)}, {len(entries)} in it")
    for entry in entries:
        if entry.text("password"):
            yield Finding(
                NOTE,
                entry.alias,
                "Its password is kept in clear in the clusters file.",
                f"Keep only a token: pai update-token -a {entry.alias}",
            )
    wanted = Defaults.load().text("cluster-alias")
    if wanted and wanted not in {"local", *(e.alias for e in entries)}:
        yield Finding(
            WRONG,
            "cluster-alias",
            f"Commands use the cluster {wanted}, which you do not have.",
            "pai select-cluster -g ALIAS chooses another; pai unset [-g] cluster-alias chooses none.",
        )


def _check_embedded() -> Iterator[Finding]:
    """The cluster on this machine."""
    from openpaisdk.embedded.ensure_running import find_running
    from openpaisdk.embedded.home import find_home
    from openpaisdk.embedded.start import refuse_where_it_cannot_run

    try:
        refuse_where_it_cannot_run()
        home = find_home()
        found = find_running()
    except PaiError as e:
        yield Finding(NOTE, "cluster here", e.message, e.hint)
        return
    if found:
        from openpaisdk.client import ClusterClient
        from openpaisdk.connect import endpoint_of

        cluster = ClusterClient("local", endpoint_of(found))
        cluster.transport.shorten_timeouts(5.0)
        try:
            cluster.count_jobs(state="RUNNING")
        except PaiError as e:
            yield Finding(
                WRONG, "cluster here", e.message, "pai stop-cluster ends it; the next command starts it"
            )
        else:
            yield Finding(GOOD, "cluster here", f"runs at {found.url}, version {found.version}")
    else:
        yield Finding(GOOD, "cluster here", "does not run; the first command that needs it starts it")
    at = home
    while not os.path.isdir(at) and at != os.path.dirname(at):
        at = os.path.dirname(at)
    free = _free(at)
    if free is not None and free < LITTLE_SPACE:
        yield Finding(
            WRONG,
            "disk",
            f"Only {free >> 20} MB are free in {display_path(at)}, where its jobs keep their files.",
            "Make room: pai delete-job removes jobs that are over, with their files.",
        )
    if sys.platform != "win32":
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if most not in (-1, resource.RLIM_INFINITY) and most < MIN_OPEN_FILES:
            yield Finding(
                NOTE,
                "open files",
                f"A program here may open {most} files, few for a cluster.",
                "ulimit -Hn 4096",
            )


def _free(folder: str) -> int | None:
    from shutil import disk_usage

    try:
        return disk_usage(folder).free
    except OSError:
        return None


def _clusters() -> Iterator[Finding]:
    try:
        entries = [e for e in ClusterRegistry.load().entries if not e.is_embedded and not e.is_storage]
    except (PaiError, OSError):
        return  # told already
    from openpaisdk.client.fanout import ClusterCall, call_all

    questions = [ClusterCall(e.alias, lambda e=e: _asked(e)) for e in entries]  # type: ignore[misc]
    call_all(questions, notify=print_notice)
    for entry, question in zip(entries, questions, strict=True):
        if question.error is not None:
            yield Finding(WRONG, entry.alias, question.error.message, question.error.hint)
        else:
            yield from question.result


def _asked(entry: ClusterEntry) -> list[Finding]:
    from openpaisdk.client.http_errors import token_expiry
    from openpaisdk.connect import open_entry

    cluster = open_entry(entry)
    version = cluster.info().get("version") or "of the first generation"
    clock = cluster.transport.request("GET", "/api/v1" if cluster.generation == 1 else "/api/v2/info").headers
    names = [vc.name for vc in cluster.virtual_clusters()]
    if cluster.generation == 1:
        cluster.user_info()  # the rest it tells anybody
    found = [
        Finding(GOOD, entry.alias, f"{cluster.uri}, version {version}, virtual clusters {', '.join(names)}")
    ]
    end = token_expiry(entry.text("token"))
    if end is not None and end - time.time() < EXPIRES_SOON_S and not entry.text("password"):
        hours = max(0.0, end - time.time()) / 3600
        found.append(
            Finding(
                NOTE,
                entry.alias,
                f"Your token ends in {hours:.0f} hours.",
                f"Get a new one: pai update-token -a {entry.alias}",
            )
        )
    if entry.raw.get("verify_tls") is False:
        found.append(
            Finding(NOTE, entry.alias, "Its certificate is not checked.", "Add it again with --ca FILE.")
        )
    behind = _skew(clock.get("date", ""))
    if abs(behind) > MAX_CLOCK_SKEW_S:
        found.append(
            Finding(
                WRONG,
                "clock",
                f"The clock here differs from that of {entry.alias} by {abs(behind):.0f} seconds.",
                "Set the clock: tokens and times of jobs depend on it.",
            )
        )
    return found


def _skew(date: str) -> float:
    if not date:
        return 0.0
    from email.utils import parsedate_to_datetime

    try:
        return time.time() - parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return 0.0


def _check_environment() -> Iterator[Finding]:
    from shutil import which

    proxies = [
        n
        for n in ("http_proxy", "https_proxy", "all_proxy")
        if os.environ.get(n) or os.environ.get(n.upper())
    ]
    if proxies:
        yield Finding(
            NOTE,
            "proxy",
            f"{', '.join(proxies)} is set; clusters are reached through it, this machine never.",
        )
    engine = which("podman") or which("docker")
    yield (
        Finding(GOOD, "containers", f"{engine} runs the images of jobs on this machine")
        if engine
        else Finding(
            NOTE, "containers", "Neither podman nor docker is here: jobs on this machine run without images."
        )
    )
    if which("ssh") is None:
        yield Finding(NOTE, "ssh", "ssh is not installed; commands that reach into tasks need it.")

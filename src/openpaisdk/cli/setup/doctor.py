"""``pai doctor``: checks the setup and suggests fixes. Read-only."""

from __future__ import annotations

import os
import sys
import time

from openpaisdk.cli.parser import command_parser
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry, check_clusters, reserved_names
from openpaisdk.config.defaults import KEYS, UNREAD_KEYS, Defaults, defaults_file
from openpaisdk.config.paths import display_path, user_folder
from openpaisdk.config.yaml_files import parse_yaml
from openpaisdk.output import palette, print_notice, show
from paiprotocol.errors import ConfigError, PaiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD, NOTE, WRONG = "ok", "note", "wrong"
COLOURS = {GOOD: "green", NOTE: "yellow", WRONG: "red"}
MIN_FREE_BYTES = 1 << 30
MIN_OPEN_FILES = 1024
EXPIRES_SOON_S = 86400
MAX_CLOCK_SKEW_S = 120


class Finding:
    """The result of one check."""

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
        "Checks pai itself, your settings, the embedded cluster and every cluster you have added. The exit\n"
        "status is 1 when something is wrong. Nothing is changed or started.",
        cluster=False,
    )
    args = parser.parse(argv)
    findings = [
        *_check_installation(),
        *_check_packages(),
        *_check_task(),
        *_check_settings(),
        *_check_embedded(),
        *_check_clusters(),
        *_check_environment(),
    ]
    show([finding.as_dict() for finding in findings], args.output, lambda: "\n".join(map(_line, findings)))
    wrong = sum(finding.level == WRONG for finding in findings)
    if args.output == "table":
        print_notice(
            f"{wrong} {'problem' if wrong == 1 else 'problems'} found." if wrong else "No problems found."
        )
    return 1 if wrong else 0


def _line(finding: Finding) -> str:
    level = palette(sys.stdout).paint(f"{finding.level:<6}", COLOURS[finding.level])
    hint = f"\n{' ' * 25}{finding.hint}" if finding.hint else ""
    return f"{level} {finding.what:<17} {finding.message}{hint}".rstrip()


def _check_installation() -> Iterator[Finding]:
    from shutil import which

    from paiprotocol._version import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding(GOOD, "pai", f"version {__version__}, Python {python} at {display_path(sys.executable)}")
    first, current = which("pai"), os.path.abspath(sys.argv[0])
    if first is None:
        yield Finding(
            NOTE,
            "PATH",
            "pai is not on your PATH.",
            f'Add it: export PATH="{os.path.dirname(current)}:$PATH"',
        )
    elif os.path.basename(current) == "pai" and os.path.realpath(first) != os.path.realpath(current):
        yield Finding(
            NOTE,
            "PATH",
            f"Another pai comes first on your PATH: {first}, not {current}.",
            "Reorder your PATH.",
        )


def _check_packages() -> Iterator[Finding]:
    """Check the Python packages that pai requires, and those of its extras."""
    from openpaisdk.cli.setup.optional_parts import (
        EXTRA_PURPOSES,
        install_packages_command,
        missing,
        requirements,
    )

    required = requirements()
    if required is None:
        return
    if absent := missing(required.always):
        yield Finding(
            WRONG,
            "packages",
            f"pai requires packages that are not installed: {', '.join(absent)}.",
            install_packages_command(absent),
        )
    for extra, packages in sorted(required.extras.items()):
        purpose = EXTRA_PURPOSES[extra]
        if absent := missing(packages):
            command = install_packages_command(absent, extra)
            yield Finding(NOTE, f"extra {extra}", f"Not installed; it is for {purpose}.", command)
        else:
            yield Finding(GOOD, f"extra {extra}", f"installed, for {purpose}")


def _check_task() -> Iterator[Finding]:
    """Check the cluster of the task that this command runs in."""
    try:
        own = ClusterRegistry.load().own
    except (PaiError, OSError):
        own = None  # reported by _check_settings
    if own is None:
        return
    why = (
        f"PAI_REST_SERVER_URI is {own.text('pai_uri')}: commands in this task use it, unless -a names another"
    )
    yield Finding(GOOD, own.alias, why)
    try:
        yield from _check_cluster(own)
    except PaiError as e:
        yield Finding(WRONG, own.alias, e.message, e.hint)


def _check_settings() -> Iterator[Finding]:
    folder = user_folder()
    if not os.path.isdir(folder):
        parent = os.path.dirname(folder)
        if os.access(parent, os.W_OK):
            yield Finding(GOOD, "settings", f"{display_path(folder)} is created at first use")
        else:
            yield Finding(
                WRONG, "settings", f"{parent} cannot be written.", "Set HOME to a folder that you own."
            )
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(
            WRONG, "settings", f"{display_path(folder)} cannot be written.", f"chmod u+rwx {folder}"
        )
    else:
        yield Finding(GOOD, "settings", f"in {display_path(folder)}")
    yield from _check_defaults()
    try:
        path = ClusterRegistry.file_path()
    except (OSError, ConfigError):
        return
    if os.path.exists(path):
        yield from _check_clusters_file(path)


def _check_defaults() -> Iterator[Finding]:
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
            yield Finding(WRONG, "defaults", e.message, f"Fix or remove {display_path(path)}.")
            continue
        unknown = [str(key) for key in value if str(key) not in KEYS] if isinstance(value, dict) else []
        where = f"{display_path(path)}{'' if is_global else ' (of this folder; it takes precedence)'}"
        unread = [key for key in unknown if key in UNREAD_KEYS]
        if unknown and unknown == unread:
            yield Finding(
                NOTE,
                "defaults",
                f"{where} has keys that nothing reads: {', '.join(unread)}.",
                f"Remove them: pai unset {'-g ' if is_global else ''}{' '.join(unread)}",
            )
        elif unknown:
            yield Finding(
                NOTE, "defaults", f"{where} has unknown keys: {', '.join(unknown)}.", "pai set --help"
            )
        else:
            yield Finding(GOOD, "defaults", f"in {where}")


def _check_clusters_file(path: str) -> Iterator[Finding]:
    try:
        entries = check_clusters(parse_yaml(path), path)
    except ConfigError as e:
        yield Finding(WRONG, "clusters file", e.message, "Fix it with: pai edit-clusters")
        return
    mode = os.stat(path).st_mode & 0o777
    if sys.platform != "win32" and mode & 0o077:
        yield Finding(
            WRONG,
            "clusters file",
            f"{display_path(path)} contains tokens, and other users can read it.",
            f"chmod 600 {display_path(path)}",
        )
    else:
        yield Finding(
            GOOD,
            "clusters file",
            f"{display_path(path)}, {len(entries)} {'entry' if len(entries) == 1 else 'entries'}",
        )
    for name in reserved_names(entries):
        yield Finding(
            NOTE,
            "reserved name",
            f"{name[0].upper()}{name[1:]} has a name that is reserved now, and keeps its meaning.",
            "Give it another name: pai edit-clusters",
        )
    for entry in entries:
        if entry.text("password"):
            yield Finding(
                NOTE,
                entry.alias,
                "Its password is stored unencrypted in the clusters file.",
                f"Store only a token: pai update-token -a {entry.alias}",
            )
    selected = Defaults.load().text("cluster-alias")
    if selected and selected not in {"local", *(e.alias for e in entries)}:
        yield Finding(
            WRONG,
            "cluster-alias",
            f"The selected cluster {selected} is not in the clusters file.",
            "pai select-cluster -g ALIAS selects another; pai unset [-g] cluster-alias selects none.",
        )


def _check_embedded() -> Iterator[Finding]:
    """Check the embedded cluster."""
    from openpaisdk.embedded.ensure_running import find_running
    from openpaisdk.embedded.home import find_home
    from openpaisdk.embedded.start import check_not_in_task, check_platform

    try:
        check_platform()
        home = find_home()
        server = find_running()
    except PaiError as e:
        yield Finding(NOTE, "embedded cluster", e.message, e.hint)
        return
    if server:
        from openpaisdk.client import ClusterClient
        from openpaisdk.connect import endpoint_of

        cluster = ClusterClient("local", endpoint_of(server))
        cluster.transport.shorten_timeouts(5.0)
        try:
            cluster.count_jobs(state="RUNNING")
        except PaiError as e:
            yield Finding(
                WRONG,
                "embedded cluster",
                e.message,
                "pai stop-cluster stops it; the next command starts it again",
            )
        else:
            yield Finding(GOOD, "embedded cluster", f"running at {server.url}, version {server.version}")
    else:
        try:
            check_not_in_task()
        except PaiError:
            yield Finding(GOOD, "embedded cluster", "not running; it is not started inside a task")
            return
        yield Finding(GOOD, "embedded cluster", "not running; the first command that needs it starts it")
    folder = home
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    free = _free_bytes(folder)
    if free is not None and free < MIN_FREE_BYTES:
        yield Finding(
            WRONG,
            "disk",
            f"Only {free >> 20} MB are free in {display_path(folder)}, where its jobs store their files.",
            "Free some space: pai delete-job deletes finished jobs with their files.",
        )
    if sys.platform != "win32":
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if limit not in (-1, resource.RLIM_INFINITY) and limit < MIN_OPEN_FILES:
            yield Finding(
                NOTE,
                "open files",
                f"The limit of {limit} open files is low for a cluster.",
                "ulimit -Hn 4096",
            )


def _free_bytes(folder: str) -> int | None:
    from shutil import disk_usage

    try:
        return disk_usage(folder).free
    except OSError:
        return None


def _check_clusters() -> Iterator[Finding]:
    try:
        entries = [e for e in ClusterRegistry.load().entries if not e.is_embedded and not e.is_storage]
    except (PaiError, OSError):
        return  # reported by _check_settings
    from openpaisdk.client.fanout import ClusterCall, call_all

    calls = [ClusterCall(e.alias, lambda e=e: _check_cluster(e)) for e in entries]  # type: ignore[misc]
    call_all(calls, notify=print_notice)
    for entry, call in zip(entries, calls, strict=True):
        if call.error is not None:
            yield Finding(WRONG, entry.alias, call.error.message, call.error.hint)
        else:
            yield from call.result


def _check_cluster(entry: ClusterEntry) -> list[Finding]:
    from openpaisdk.client.http_errors import token_expiry
    from openpaisdk.connect import open_entry

    cluster = open_entry(entry)
    version = cluster.info().get("version") or "unknown (API version 1)"
    clock = cluster.transport.request("GET", "/api/v1" if cluster.generation == 1 else "/api/v2/info").headers
    names = [vc.name for vc in cluster.usable_virtual_clusters()]
    if cluster.generation == 1:
        cluster.user_info()  # the only request of version 1 that needs a valid token
    findings = [
        Finding(GOOD, entry.alias, f"{cluster.uri}, version {version}, virtual clusters {', '.join(names)}")
    ]
    end = token_expiry(entry.text("token"))
    if end is not None and end - time.time() < EXPIRES_SOON_S and not entry.text("password"):
        hours = max(0.0, end - time.time()) / 3600
        findings.append(
            Finding(
                NOTE,
                entry.alias,
                f"Your token expires in {hours:.0f} hours.",
                f"Get a new one: pai update-token -a {entry.alias}",
            )
        )
    if entry.raw.get("verify_tls") is False:
        findings.append(
            Finding(NOTE, entry.alias, "Its TLS certificate is not verified.", "Add it again with --ca FILE.")
        )
    skew = _clock_skew(clock.get("date", ""))
    if abs(skew) > MAX_CLOCK_SKEW_S:
        findings.append(
            Finding(
                WRONG,
                "clock",
                f"The clock of this machine differs from that of {entry.alias} by {abs(skew):.0f} seconds.",
                "Synchronize the clock: tokens and job times depend on it.",
            )
        )
    return findings


def _clock_skew(date: str) -> float:
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
            f"{', '.join(proxies)} is set; it is used for remote clusters, never for the embedded one.",
        )
    from openpaisdk.cli.setup.optional_parts import install_program_command

    engine = which("podman") or which("docker")
    yield (
        Finding(GOOD, "containers", f"{engine} runs the images of jobs on the embedded cluster")
        if engine
        else Finding(
            NOTE,
            "containers",
            "Neither podman nor docker is installed: jobs on the embedded cluster run without images.",
            install_program_command("podman"),
        )
    )
    needed = {
        "ssh": "ssh is not installed; commands that connect to tasks need it.",
        "git": "git is not installed; jobs on the embedded cluster that clone a repository need it.",
    }
    if sys.platform.startswith("linux") and os.geteuid() != 0 and which("fusermount") is None:
        needed["fusermount3"] = "fusermount is not installed; pai mount needs it."
    for program, message in needed.items():
        if which(program) is None:
            yield Finding(NOTE, program, message, install_program_command(program))

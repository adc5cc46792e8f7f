"""Pages about submission: their tables list every key, and the values that the code has."""

import dataclasses
import re

import pytest

from openpaisdk.cli.parser import get_parser
from openpaisdk.jobs import sources
from openpaisdk.jobs.job_options import CLUSTER_RESOURCES, EMBEDDED_RESOURCES, JobOptions
from openpaisdk.jobs.option_values import MAX_PORTS
from openpaisdk.jobs.short_job_file import _FIELDS
from paicluster.config.sections import RequestLimits
from paicluster.config.settings import Settings
from paiprotocol.jobs import document, retries
from paiprotocol.jobs.limits import MAX_TASKS
from support.paths import REPOSITORY


def default_of(settings: type, name: str) -> float:
    return next(field.default for field in dataclasses.fields(settings) if field.name == name)


def table(page: str) -> dict[str, list[str]]:
    """The rows of the first table of a page, by their first cell."""
    lines = (REPOSITORY / "docs" / f"{page}.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows[1:]}


def test_every_key_of_a_short_job_file_is_in_the_table() -> None:
    named = {key for cell in table("short-job-files") for key in re.findall(r"`([^`]+)`", cell)}
    assert named == set(_FIELDS)


def test_every_option_in_the_table_of_short_job_files_exists() -> None:
    options = get_parser("sub").options
    for cells in table("short-job-files").values():
        for option in re.findall(r"`(-[^` ]+)`", cells[0]):
            assert option in options, option


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("cores per task", f"{EMBEDDED_RESOURCES.cpu} on the embedded cluster, else {CLUSTER_RESOURCES.cpu}"),
        (
            "memory per task",
            f"{EMBEDDED_RESOURCES.memory_mb} MB on the embedded cluster, else "
            f"{CLUSTER_RESOURCES.memory_mb} MB",
        ),
        ("GPUs per task", str(CLUSTER_RESOURCES.gpu)),
        ("tasks of a job, at most", str(MAX_TASKS)),
        ("ports per label, at most", f"{MAX_PORTS} with `pai sub`"),
        ("time from SIGTERM to SIGKILL", f"{default_of(Settings, 'grace_s'):.0f} s"),
        ("hold of a failed task", f"off; {JobOptions.debug_hold_s.optional} with `--debug-hold` alone"),
        ("uploaded folder, if not named", f"at most {sources.MAX_TOTAL_BYTES >> 20} MB"),
        (
            "uploaded files, if named",
            f"what the server takes, {default_of(RequestLimits, 'sources_mb')} MB; "
            f"{sources.MAX_TOTAL_BYTES >> 20} MB to OpenPAI's own server",
        ),
        ("number of uploaded files", f"at most {sources.MAX_FILES}"),
        ("job file", f"at most {document.MAX_BYTES >> 20} MB"),
    ],
)
def test_table_of_limits_has_the_values_of_the_code(row: str, value: str) -> None:
    assert table("defaults-and-limits")[row][0] == value


def test_table_of_limits_has_the_retries_of_the_code() -> None:
    text = table("defaults-and-limits")["retries after a failure of the cluster"][0]
    assert f"at most {retries.MAX_PLATFORM_STREAK} in a row" in text
    assert f"up to {retries.BACKOFF_MAX_S:.0f} s" in text


def test_help_of_sub_has_the_defaults_and_limits() -> None:
    text = " ".join(get_parser("sub").format_help().split())
    for part in (
        f"cores per task (default: {EMBEDDED_RESOURCES.cpu} on the embedded cluster, else",
        f"memory per task in MB (default: {EMBEDDED_RESOURCES.memory_mb} on the embedded cluster, else",
        f"GPUs per task (default: {CLUSTER_RESOURCES.gpu})",
        f"tasks, started together (default: 1, at most {MAX_TASKS})",
        "retries of a failed job (default: 0;",
        f"the current folder, up to {sources.MAX_TOTAL_BYTES >> 20} MB",
        f"at most {MAX_PORTS} per label",
        f"for TIME or {JobOptions.debug_hold_s.optional} (default: off)",
    ):
        assert part in text, part

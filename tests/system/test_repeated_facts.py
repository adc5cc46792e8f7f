"""Facts that stand in two places, because the runtime is alone in its image or an import costs a command too
much: the places agree."""

import importlib
import json
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paicluster.controller import exit_classification
from paiprotocol.jobs import read_job, storage_layout
from pairuntime.supervisor import storage_mounts
from pairuntime.task import hdfs_paths
from support.server_fixture import job

# What the runtime has, and who repeats it.
REPEATED = [
    ("pairuntime.task.function_call:CONTINUES_IN_RETRY", "paiprotocol.jobs.retries:CONTINUES_IN_RETRY"),
    (
        "pairuntime.supervisor.attempt:UPLOAD_FAILED_EXIT_CODE",
        "paicluster.controller.exit_classification:_UPLOAD_FAILED_STATUS",
    ),
    (
        "pairuntime.task.paddle_launcher:STORED_PACKAGE",
        "paicluster.api.paddlecloud.job_translation:STORED_PACKAGE",
    ),
    (
        "pairuntime.task.paddle_launcher:PACKAGE_COPY",
        "paicluster.api.paddlecloud.job_translation:PACKAGE_COPY",
    ),
    ("pairuntime.task.paddle_launcher:_PORT_LABEL", "paicluster.api.paddlecloud.job_translation:PORT_LABEL"),
    ("pairuntime.task.hdfs_paths:_OWN_CLUSTER", "openpaisdk.config.task_cluster:OWN_ALIAS"),
    ("pairuntime.task.python_packages:_FILES", "openpaisdk.jobs.sdk_requirement:_FILES"),
    ("pairuntime.reports.report_uploader:STREAMS", "paicluster.logs.reader:STREAMS"),
    ("pairuntime.reports.report_uploader:METRICS", "paicluster.api.v2.task_reports:_METRICS_STREAM"),
    ("pairuntime.reports.report_uploader:TIMES", "paicluster.api.v2.task_reports:_TIMES_STREAM"),
    ("pairuntime.local_files.log_times_format:STREAMS", "paicluster.logs.reader:STREAMS"),
    (
        "pairuntime.reports.report_client:MAX_DIAGNOSTICS_BYTES",
        "paicluster.api.v2.task_reports:_MAX_DIAGNOSTICS_BYTES",
    ),
    # Commands that submit do not import the protocol of jobs.
    ("openpaisdk.jobs.option_values:PRIORITIES", "paiprotocol.jobs.extras:PRIORITIES"),
    # Their module travels alone to a node.
    ("pairuntime.task.webhdfs:_PARTIAL_CHAIN", "pairuntime.reports.server_connection:_PARTIAL_CHAIN"),
]


def value(place: str) -> object:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("runtime", "other"), REPEATED)
def test_both_places_have_the_same_value(runtime: str, other: str) -> None:
    assert value(runtime) == value(other)


def test_flag_that_old_versions_of_python_do_not_name() -> None:
    assert value("pairuntime.task.webhdfs:_PARTIAL_CHAIN") == ssl.VERIFY_X509_PARTIAL_CHAIN


def test_a_node_sends_no_more_of_a_log_than_the_server_takes() -> None:
    sent = value("pairuntime.reports.report_uploader:MAX_CHUNK_BYTES")
    taken = value("paicluster.api.v2.task_reports:_MAX_CHUNK_BYTES")
    assert isinstance(sent, int) and isinstance(taken, int) and sent <= taken


def test_line_of_lost_files_is_found_in_a_log() -> None:
    log = b"some output\n" + storage_mounts.FILES_LOST.encode()
    assert exit_classification._FILES_LOST_LINE.search(log)


FOLDERS = st.one_of(
    st.sampled_from(
        ["", "/", "w", "/w/", "a/b/", "//", "/data/${PAI_USER_NAME}/w", "${PAI_USER_NAME}", "a//b"]
    ),
    st.text("a/.$ü ", max_size=8),
    st.none(),
    st.integers(0, 1),
)


@given(FOLDERS)
def test_hdfs_command_finds_the_folder_of_a_job(folder: object) -> None:
    parameters = {} if folder is None else {"work_directory": folder}
    spec = read_job(json.dumps(job("j", "true", parameters=parameters)))
    expected = storage_layout.job_folder(spec, "me")
    assert hdfs_paths.job_folder({"parameters": parameters}, "me", "j") == expected

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paiprotocol.jobs import draw_port, exit_spec, match_exit
from paiprotocol.jobs.exit_codes import exit_specs

ISSUERS = [
    "USER_CONTAINER",
    "PAI_OS",
    "PAI_RUNTIME",
    "PAI_DOCKER",
    "PAI_K8S",
    "PAI_FC",
    "PAI_DB_CONTROLLER",
    "UNKNOWN",
]
TYPES = [
    "USER_SUCCESS",
    "USER_STOP",
    "USER_FAILURE",
    "PLATFORM_FAILURE",
    "RESOURCE_ALLOCATION_TIMEOUT",
    "UNKNOWN_FAILURE",
]
STAGES = ["SUBMITTING", "ALLOCATING", "LAUNCHING", "RUNNING", "COMPLETING", "UNKNOWN"]
REACTIONS = {
    "TRANSIENT": "ALWAYS_RETRY",
    "TRANSIENT_CONFLICT": "ALWAYS_BACKOFF_RETRY",
    "PERMANENT": "NEVER_RETRY",
    "UNKNOWN": "RETRY_TO_MAX",
}


def test_exit_table_is_complete_and_consistent():
    specs = exit_specs()
    assert len(specs) == 63
    assert len({spec.code for spec in specs}) == len({spec.phrase for spec in specs}) == 63
    for spec in specs:
        assert spec.issuer in ISSUERS
        assert spec.type in TYPES
        assert spec.stage in STAGES
        assert spec.reason
        if spec.code:
            assert spec.reaction == REACTIONS[spec.behavior], spec.code
        if spec.type not in ("USER_SUCCESS", "USER_STOP"):
            assert spec.solution, spec.code


def test_missing_python_has_an_entry_of_its_own():
    log = "before\nThe task has no Python /none/python3 (--python).\n"
    assert match_exit(127, log).code == 248
    assert match_exit(127, "bash: line 1: python3: command not found").code == 220


def test_entry_of_an_exit_code_has_its_reaction():
    assert exit_spec(251).reaction == "ALWAYS_BACKOFF_RETRY"


@given(st.integers(-10000, 1000))
def test_every_exit_code_has_an_entry(code):
    spec = exit_spec(code)
    assert spec.code == code
    if code not in {known.code for known in exit_specs()}:
        assert spec.phrase == exit_spec(256 if code > 0 else -8000).phrase


@pytest.mark.parametrize(
    ("exit_code", "log", "runtime", "code", "matched"),
    [
        (0, "ImportError: no", "", 0, None),
        (1, "all fine", "", 255, None),
        (137, "ImportError: x", "", 137, None),
        (127, "bash: foo: Command Not Found", "", 220, "bash: foo: Command Not Found"),
        (1, "foo: command not found", "", 255, None),
        (1, "E\nImportError: No module named x\nF", "", 232, "ImportError: No module named x"),
        (3, "E\nImportError: No module named x\nF", "", 255, None),
        (1, "cuda runtime error (2) : out of memory at x.cu:66", "", 226, None),
        (1, "FileNotFoundError: [Errno 2] No such file or directory: 'x'", "", 229, None),
        (1, "TypeError: dynamic_rnn() got multiple values for keyword argument 'x'", "", 228, None),
        (1, "tensorflow.errors.ResourceExhaustedError: OOM when", "", 221, None),
        (1, "NameError: name 'x' is not defined", "", 231, "NameError: name 'x' is not defined"),
        (1, "IndexError: list index out of range\nImportError: x", "", 232, "ImportError: x"),
        (1, "Segmentation fault (core dumped)", "", 234, "Segmentation fault"),
        (10, "", "[x] SSH barrier reaches max retry count", 249, "SSH barrier reaches max retry count"),
        (10, "", "ssh barrier reaches max retry count", 255, None),
        (11, "", "SSH barrier reaches max retry count", 255, None),
    ],
)
def test_first_matching_entry_gives_the_code(exit_code, log, runtime, code, matched):
    found = match_exit(exit_code, log, runtime)
    assert found.code == code
    if matched is not None:
        assert found.matched == matched
    if code in (0, 255):
        assert found.matched is None


def test_gpu_memory_errors_are_classified():
    assert match_exit(1, "", gpu_memory_errors=True).code == 128
    assert match_exit(1, "").code == 255


def test_adversarial_log_is_searched_in_linear_time():
    lines = b"tensorflow tensorflow ResourceExhaustedError " * 200_000
    # Thread CPU time, compared with the time of one search per known pattern on this machine: a slow or busy
    # machine must not fail the test.
    begun = time.thread_time()
    for _ in range(40):
        lines.lower()
    looked = time.thread_time()
    assert match_exit(1, lines).code == 255
    assert match_exit(1, lines.replace(b"Resource", b"\nResource")).code == 255
    assert time.thread_time() - looked < 40 * (looked - begun)


@given(st.binary(max_size=300), st.integers(-300, 300))
def test_any_bytes_are_accepted_as_a_log(log, code):
    assert match_exit(code, log, log).code in {spec.code for spec in exit_specs()}


def test_ports_are_determined_by_the_uid():
    import hashlib

    digest = hashlib.md5(b"[u][http][0]").hexdigest()
    rule = sum(int(part, 16) for part in (digest[:12], digest[12:24], digest[24:32])) % 25000 + 15000
    assert draw_port("u", "http", 0) == rule
    assert draw_port("u", "http", 0) != draw_port("u", "http", 1)


@given(st.text(), st.text(), st.integers(0, 1000))
def test_ports_stay_in_their_range(uid, label, i):
    assert 15000 <= draw_port(uid, label, i) < 40000
    assert 1 <= draw_port(uid, label, i, 1, 3) < 3

"""Errors of a container program, from the exit record to the exit code and the message."""

from __future__ import annotations

import pytest

from paicluster.engines.common import container_errors
from paicluster.engines.common.attempt_folder import observation_from_record

# As podman 4.3 says it when its conmon was killed.
_CONMON_DIED = (
    'Error: container create failed (no logs from conmon): conmon bytes "": readObjectStart: expect { or n, '
    "but found \0, error found in #0 byte of ...||..., bigger context ...||...\npai-cad9c0b5"
)

# The same a moment earlier.
_CONMON_DIED_EARLIER = "Error: write child: broken pipe\n"


@pytest.mark.parametrize(
    ("output", "why"),
    [(_CONMON_DIED, "container create failed"), (_CONMON_DIED_EARLIER, "write child: broken pipe")],
    ids=["no-logs", "broken-pipe"],
)
def test_container_whose_conmon_died_before_its_start_is_retried(output: str, why: str) -> None:
    seen = container_errors.classify(observation_from_record({"start_error": output}), "tf:2")
    assert seen.platform_code == -120
    assert seen.start_error.startswith(f"The container could not be started: {why}")


def test_zero_byte_in_an_error_does_not_reach_the_database() -> None:
    seen = container_errors.classify(observation_from_record({"start_error": _CONMON_DIED}), "tf:2")
    assert "\0" not in seen.start_error and "but found  , error" in seen.start_error

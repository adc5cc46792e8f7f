"""The portal's types of the REST API are those of `/openapi.json`."""

from __future__ import annotations

from pathlib import Path

import pytest

from paicluster.api.portal_types import main, portal_types

_TYPES = Path(__file__).parents[3] / "portal/src/api_types.ts"


def test_committed_types_are_current() -> None:
    assert main(["--check", str(_TYPES)]) == 0


def test_stale_types_fail_and_say_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "api_types.ts"
    assert main(["--check", str(path)]) == 1
    path.write_text(portal_types() + "\n", encoding="utf-8")
    assert main(["--check", str(path)]) == 1
    assert "make portal-types" in capsys.readouterr().err
    assert main([str(path)]) == 0
    assert main(["--check", str(path)]) == 0


def test_types_say_what_is_optional_null_or_one_of_several() -> None:
    types = portal_types()
    assert "export interface JobSummary {" in types
    assert "  readonly launchedTime: number | null;" in types
    assert "  readonly gpuMemory: readonly (number | null)[];" in types
    assert "  readonly taskRoles: Readonly<Record<string, TaskRole>>;" in types
    assert "  readonly reason?: string;" in types
    assert '  readonly executionType: "START" | "STOP";' in types
    # PaddleCloud's dialect is no part of the portal.
    assert "Paddle" not in types

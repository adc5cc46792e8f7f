"""What a large gang has in common is written once, and each task still sees what is its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from paicluster.engines.common.attempt_folder import SCRIPT, path_of, prepare, write_shared_environment
from paicluster.engines.common.shell_exports import exports, not_exportable
from paicluster.engines.interface import TaskLaunch
from pairuntime.supervisor import attempt
from pairuntime.supervisor.shared_environment import whole_environment

HOSTS = [f"10.0.{number // 250}.{number % 250}:15000" for number in range(500)]


def test_peer_list_is_written_once_with_a_suffix_for_each_task(tmp_path: Path) -> None:
    def config(index: int) -> str:
        cluster = json.dumps({"worker": HOSTS}, separators=(",", ":"))
        return f'{{"cluster":{cluster},"task":{{"type":"worker","index":{index}}}}}'

    gang = [
        TaskLaunch(
            f"0{index}-uid",
            "here",
            'printf "%s" "$TF_CONFIG"',
            {
                "TF_CONFIG": config(index),
                "PAI_CURRENT_TASK_ROLE_NAME": "worker",
                "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(index),
            },
            {"PATH": "/usr/bin:/bin", "QUOTED": 'it\'s "so" $HOME'},
        )
        for index in range(2)
    ]
    shared = tmp_path / "shared"
    write_shared_environment(shared, gang[0])
    for index, task in enumerate(gang):
        folder = path_of(tmp_path, task.uid)
        prepare(folder, task, {}, shared, runtime=tmp_path / "pairuntime.pyz")
        spec = json.loads((folder / attempt.SPEC).read_text())
        assert len(json.dumps(spec)) < 4096
        environment = whole_environment(str(folder), spec["env"], spec["env_suffixes"])
        output = subprocess.run(
            ["bash", str(folder / SCRIPT)], env=environment, capture_output=True, text=True, check=True
        )
        assert json.loads(output.stdout) == json.loads(config(index))


def test_shared_variables_can_be_sourced_by_a_shell() -> None:
    variables = {"X": "it's\n$HOME", "OWN": "not this", "odd-name": "y", "PATH": "/bin"}
    script = exports(variables, exclude={"OWN"}) + 'printf "%s" "$X|${OWN:-unset}"'
    done = subprocess.run(["bash", "-euc", script], env={}, capture_output=True, text=True, check=True)
    assert done.stdout == "it's\n$HOME|unset"
    assert dict(not_exportable(variables)) == {"odd-name": "y", "PATH": "/bin"}

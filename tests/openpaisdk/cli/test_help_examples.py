"""Examples in the help of ``pai sub`` and ``pai submit``: each is accepted as it is printed."""

import json

import pytest

from openpaisdk.cli.parser import get_parser

ROLE = "dockerImage: img, resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}, commands: [echo trained]"
FILES = {
    "train.py": "import sys; print('trained', *sys.argv[1:])\n",
    "try.py": "",
    "params.csv": "lr\n0.1\n",
    "Makefile": "data:\n",
    "job.yaml": "protocolVersion: 2\nname: helped_$\ntype: job\n"
    "prerequisites: [{name: img, type: dockerimage, uri: host}]\n"
    f"taskRoles: {{worker: {{{ROLE}}}}}\n",
    "short.yaml": "command: python train.py\nresources: {cpu: 1, mem: 64m}\n",
    "old.json": json.dumps(
        {
            "jobName": "old_$",
            "image": "host",
            "taskRoles": [{"name": "main", "command": "true", "memoryMB": 64}],
        }
    ),
}
EXAMPLES = [line for command in ("sub", "submit") for line in get_parser(command).example.splitlines()]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_of_the_help_is_accepted(user, example: str) -> None:
    for name, content in FILES.items():
        (user.project / name).write_text(content)
    done = user.sh(example)
    assert done.status == 0 and "after the command" not in done.err, done
    if "--follow" in example:
        assert done.out.startswith("trained"), done
    elif "--preview" in example:
        assert "protocolVersion: 2" in done.out, done
    else:
        assert user.pai("stop-job", done.out.strip()).status == 0, done


def test_short_file_in_the_help_of_submit_is_valid(user) -> None:
    lines = [line[2:] for line in get_parser("submit").details.splitlines() if line.startswith("  ")]
    user.write(job__yaml="\n".join(lines) + "\n")
    assert user.pai("check-job", "job.yaml").out == "job.yaml: valid (short form)\n"

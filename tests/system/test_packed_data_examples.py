"""examples/digits: train on a pack, serve the model and predict with it, and the pair for TFRecords."""

from __future__ import annotations

import json
import re
import shutil
import urllib.error
import urllib.request

import pytest

from support.cli_user import new_user_fixture, until  # noqa: F401
from support.paths import REPOSITORY

EXAMPLE = REPOSITORY / "examples/digits"
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```bash\n(.*?)```", re.DOTALL)


class Page:
    """The page of the example, whose blocks are run in the folder of the example."""

    def __init__(self, user) -> None:
        self.user = user
        shutil.copytree(EXAMPLE, user.project, dirs_exist_ok=True)
        self.blocks = [
            block for not_run, block in BLOCK.findall((EXAMPLE / "README.md").read_text()) if not not_run
        ]

    def run(self, number: int) -> str:
        done = self.user.run(["bash", "-euo", "pipefail", "-c", self.blocks[number]])
        assert done.status == 0, (self.blocks[number], done)
        return done.out


def get(url: str, content: bytes | None = None) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(url, content, timeout=90) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


@pytest.mark.slow
def test_scenarios_run_on_packed_data(new_user) -> None:
    user = new_user
    page = Page(user)
    assert page.run(0).splitlines()[0].startswith("2000 records in 1 shard, ")
    trained = page.run(1)
    assert "epoch 4: 2000 pictures, " in trained
    final = float(re.search(r"epoch 4: .* ([\d.]+) % recognised", trained)[1])  # type: ignore[index]
    assert final > 95

    page.run(2)
    until(lambda: "Listening on port" in user.pai("logs", "digits_serve").out)
    port = re.search(r"Listening on port (\d+)", user.pai("logs", "digits_serve").out)[1]  # type: ignore[index]
    forward = user.begin("forward", "digits_serve", f"0:{port}")
    try:
        local = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())[1]  # type: ignore[index]
        url = f"http://127.0.0.1:{local}"
        assert get(f"{url}/healthz") == (200, {"healthy": True})
        picture = next((user.project / "new-images/7").iterdir()).read_bytes()
        assert get(f"{url}/predict", picture) == (200, {"label": 7})
        status, answer = get(f"{url}/predict", b"no picture")
        assert status == 400 and "not a PGM picture" in str(answer["error"])
    finally:
        forward.kill()
        forward.communicate()
    assert user.state("digits_serve") == "RUNNING"
    assert user.pai("stop-job", "digits_serve").status == 0

    predicted = page.run(3)
    assert "500 pictures, " in predicted
    rows = [line.split(",") for line in (user.project / "labels.csv").read_text().splitlines()]
    right = sum(key.split("/")[0] == label for key, label in rows)
    assert len(rows) == 500 and right > 450


@pytest.mark.slow
def test_tfrecord_pair_runs_on_the_clusters_hdfs(new_user) -> None:
    user = new_user
    page = Page(user)
    out = page.run(4)
    assert "1000 records in " in out and "epoch 4: 1000 pictures, " in out
    again = page.blocks[4].splitlines()[1].replace("-j digits_mnist", "-j again")
    again = again.rstrip("'") + " --epochs 6'"
    done = user.run(["bash", "-c", again])
    assert "continues after epoch 4" in done.out and "epoch 5: 1000 pictures" in done.out, done
    assert "epoch 4" not in done.out.replace("after epoch 4", ""), done

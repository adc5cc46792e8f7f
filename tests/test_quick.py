"""Quick tests for ``python -m unittest discover``, against an embedded cluster in a temporary home.

If ``ut_init.sh`` is in this folder it runs first, so that the same tests can use a real cluster:

    pai set clusters-in-local=yes image=python:3.11
    pai add-cluster -a <alias> --pai-uri http://x.x.x.x --user <user> --password <password>
    pai select-cluster <alias>
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT = 300


class QuickTest(unittest.TestCase):
    """Each test runs one command line and checks its result."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory(prefix="pai-quick-")
        home, project = Path(cls.folder.name, "home"), Path(cls.folder.name, "project")
        home.mkdir()
        project.mkdir()
        cls.project = project
        # Installed for this Python, on the PATH, or created by `make quickstart`.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:{HERE.parent / '.venv/bin'}"
        if shutil.which("pai", path=path) is None:
            sys.exit("There is no pai to be tested: type make quickstart in the checkout, or pip install it.")
        cls.env = {**os.environ, "HOME": str(home), "PATH": path}
        cls.env.pop("VIRTUAL_ENV", None)
        assert cls.pai("set", "clusters-in-local=yes").returncode == 0
        if (HERE / "ut_init.sh").exists():
            subprocess.run(["bash", str(HERE / "ut_init.sh")], cwd=project, env=cls.env, check=True)
        subprocess.run(["bash", "-c", "cat > hello.py"], input=b"print('hello')\n", cwd=project, check=True)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.pai("stop-cluster", "--now")
        cls.folder.cleanup()

    @classmethod
    def pai(cls, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["pai", *words], cwd=cls.project, env=cls.env, capture_output=True, text=True, timeout=LIMIT
        )

    def submitted(self, *words: str) -> dict[str, str]:
        done = self.pai("sub", "-o", "json", *words)
        self.assertNotEqual(done.stdout, "", done.stderr)
        return json.loads(done.stdout)

    def test_a_command_runs_as_a_job_and_its_log_is_printed(self) -> None:
        done = self.pai("sub", "--follow", "echo", "hello from a job")
        self.assertEqual((done.returncode, done.stdout), (0, "hello from a job\n"), done.stderr)

    def test_a_failing_job_gives_a_failing_status(self) -> None:
        self.assertNotEqual(self.pai("sub", "--wait", "false").returncode, 0)

    def test_a_job_is_listed_with_its_state(self) -> None:
        name = self.submitted("--wait", "true")["jobName"]
        listed = json.loads(self.pai("list-jobs", "-o", "json").stdout)
        self.assertIn((name, "SUCCEEDED"), [(job["name"], job["state"]) for job in listed])

    def test_the_configuration_of_a_job_can_be_read(self) -> None:
        name = self.submitted("--wait", "true")["jobName"]
        config = json.loads(self.pai("job-status", name, "config", "-o", "json").stdout)
        self.assertEqual(config["name"], name)

    def test_a_running_job_is_stopped(self) -> None:
        name = self.submitted("sleep", "600")["jobName"]
        self.assertEqual(self.pai("stop-job", name).returncode, 0)
        self.pai("wait", name)
        status = json.loads(self.pai("job-status", name, "-o", "json").stdout)
        self.assertEqual(status["jobStatus"]["state"], "STOPPED")

    def test_resources_are_shown(self) -> None:
        rows = json.loads(self.pai("cluster-resources", "-o", "json").stdout)
        self.assertGreaterEqual(len(rows), 1)

    def test_the_clusters_file_lies_in_the_project(self) -> None:
        self.pai("list-jobs")
        self.assertTrue((self.project / ".openpai/clusters.yaml").exists())
        self.assertFalse(Path(self.env["HOME"], ".openpai/clusters.yaml").exists())


if __name__ == "__main__":
    unittest.main()

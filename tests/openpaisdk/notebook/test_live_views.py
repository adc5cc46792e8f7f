"""Jobs and clusters as a notebook shows them: escaped, bounded, and up to date."""

import pytest

pytestmark = pytest.mark.slow


def test_a_displayed_job_follows_its_state(kernel) -> None:
    marker = kernel.folder / "go"
    done = kernel.run(
        "from openpaisdk import Job\n"
        f"line = 'echo \"<b>\"; until test -e {marker}; do sleep 0.05; done'\n"
        "job = Job('shown_$').one_liner(line, mem='32m', sources=[], secrets={'KEY': 'hush-hush'}).submit()\n"
        "job"
    )
    assert not done.error and "shown_" in done.html, done
    kernel.updates(done, until="RUNNING")
    marker.touch()
    kernel.updates(done, until="SUCCEEDED")
    assert len(done.displays) == 1 and "RUNNING" not in done.html, done
    assert "<b>" not in "".join(done.history) and "&lt;b&gt;" in done.html
    assert "hush-hush" not in "".join(done.history)


def test_displayed_futures_follow_their_calls(kernel) -> None:
    marker = kernel.folder / "go-on"
    kernel.run(
        "import openpaisdk\n"
        "def work(x):\n"
        "    import pathlib, time\n"
        f"    while x > 1 and not pathlib.Path({str(marker)!r}).exists(): time.sleep(0.05)\n"
        "    return 1 / x\n"
        "futures = openpaisdk.map(work, range(5), limit=1, mem='64m', sources=[])"
    )
    done = kernel.run("display(futures, futures[0])")
    assert len(done.displays) == 2 and 'max="5"' in done.html, done
    kernel.updates(done, until='<progress value="2" max="5"')
    kernel.updates(done, until="failed: ZeroDivisionError: division by zero")
    assert "waiting" in done.html, done
    marker.touch()
    kernel.updates(done, until='<progress value="5" max="5"')
    assert len(done.displays) == 2 and "waiting" not in done.html, done
    batch = kernel.run(
        "executor = openpaisdk.Executor()\nwith executor.batch():\n    display(executor.submit(abs, 1))"
    )
    assert not batch.error and "in a batch" in batch.html, batch


def test_a_displayed_cluster_shows_what_is_free(kernel) -> None:
    done = kernel.run("from openpaisdk import Cluster\nCluster()")
    kernel.updates(done, until="free in default")
    assert "local" in done.html and "cores" in done.html, done
    assert kernel.run("print(repr(Cluster()))").out.startswith("<Cluster local")


def test_a_job_that_is_on_no_cluster_is_a_snapshot(kernel) -> None:
    done = kernel.run("Job('idea').one_liner('true', sources=[])")
    assert not done.error and "idea" in done.html and "state" not in done.html, done
    done = kernel.run("unknown = Job('unknown').select_cluster()\nunknown")
    kernel.updates(done, until="not on local")


def test_a_cluster_that_does_not_answer_is_shown_as_unknown(kernel) -> None:
    done = kernel.run("Cluster('gone', 'http://127.0.0.1:9', 'alice', token='t0ken')")
    kernel.updates(done, until="unknown: ")
    assert "t0ken" not in "".join(done.history), done


def test_a_huge_job_has_a_bounded_view(kernel) -> None:
    done = kernel.run("len(Job('huge').one_liner('echo ' + 'x' * 500_000, sources=[])._repr_html_())")
    assert done.displays and int(next(iter(done.displays.values()))["text/plain"]) < 4000, done

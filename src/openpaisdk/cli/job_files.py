"""``pai check-job`` and ``pai job-schema``: job files, without a cluster."""

from __future__ import annotations

from openpaisdk.cli.parser import command_parser
from openpaisdk.output import print_notice, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.jobs.validation import FileReport
    from openpaisdk.protocol import Problem


def check_job(argv: list[str]) -> int:
    """``pai check-job [options] file ...``"""
    parser = command_parser(
        "check-job",
        "pai check-job job.yaml\npai check-job -o json jobs/*.yaml old.json",
        "Everything that is wrong is listed, with the line and column where it stands. Version 1 (JSON)\n"
        "and version 2 (YAML or JSON) are told apart; - reads the standard input. The exit status is 0\n"
        "when every file is good. A check is stricter than a cluster: a $parameters.x that does not exist\n"
        "is an error.",
        cluster=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="the job files")
    args = parser.parse(argv)
    from openpaisdk.jobs.validation import check_file

    checked = [check_file(path) for path in dict.fromkeys(args.files)]
    bad = sum(not one.is_good for one in checked)
    show([one.as_dict() for one in checked], args.output, lambda: "\n".join(map(_lines, checked)))
    if bad and len(checked) > 1:
        print_notice(f"{bad} of {len(checked)} files {'has' if bad == 1 else 'have'} errors.")
    return 1 if bad else 0


def _lines(checked: FileReport) -> str:
    lines = [_line(problem) for problem in checked.problems]
    if checked.is_good:
        lines.append(f"{checked.file}: good (version {checked.version})")
    return "\n".join(lines)


def _line(problem: Problem) -> str:
    """``file:line:column: key: message``, as editors and other tools know it; a note says that it is one."""
    from dataclasses import replace

    return str(replace(problem, message=f"note: {problem.message}") if problem.level == "note" else problem)


def job_schema(argv: list[str]) -> int:
    """``pai job-schema [v1|v2]``"""
    parser = command_parser(
        "job-schema",
        "pai job-schema v2 > job.schema.json",
        "Write it beside your jobs, and put this line first in a job; VS Code (with the YAML extension by\n"
        "Red Hat) then completes keys, explains them and marks mistakes:\n\n"
        "  # yaml-language-server: $schema=job.schema.json",
        output=False,
        cluster=False,
    )
    parser.add_argument(
        "version", nargs="?", choices=("v1", "v2"), default="v2", help="of the job protocol (default: v2)"
    )
    args = parser.parse(argv)
    from openpaisdk.protocol import job_schema as schema

    show(schema(args.version), "json", str)
    return 0

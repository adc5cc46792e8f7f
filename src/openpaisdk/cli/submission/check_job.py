"""``pai check-job`` and ``pai job-schema``: commands on job files that need no cluster."""

from __future__ import annotations

from openpaisdk.cli.parser import command_parser
from openpaisdk.output import print_notice, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.jobs.validation import FileReport
    from paiprotocol.jobs import Problem


def check_job(argv: list[str]) -> int:
    """``pai check-job [options] file ...``"""
    parser = command_parser(
        "check-job",
        "pai check-job job.yaml\npai check-job -o json jobs/*.yaml old.json",
        "Lists all errors with line and column. Version 1 (JSON), version 2 and short files (YAML or JSON)\n"
        "are detected;\n"
        "- reads standard input. The exit status is 0 when every file is valid. The check is stricter than\n"
        "a cluster's: an undefined $parameters.x is an error.",
        cluster=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="the job files")
    args = parser.parse(argv)
    from openpaisdk.jobs.validation import check_file

    reports = [check_file(path) for path in dict.fromkeys(args.files)]
    invalid = sum(not report.is_good for report in reports)
    show([report.as_dict() for report in reports], args.output, lambda: "\n".join(map(_lines, reports)))
    if invalid and len(reports) > 1:
        print_notice(f"{invalid} of {len(reports)} files {'has' if invalid == 1 else 'have'} errors.")
    return 1 if invalid else 0


def _lines(report: FileReport) -> str:
    lines = [_line(problem) for problem in report.problems]
    if report.is_good:
        kind = "short form" if report.version == "short" else f"version {report.version}"
        lines.append(f"{report.file}: valid ({kind})")
    return "\n".join(lines)


def _line(problem: Problem) -> str:
    """``file:line:column: key: message``, the format editors parse; a note is marked as one."""
    from dataclasses import replace

    return str(replace(problem, message=f"note: {problem.message}") if problem.level == "note" else problem)


def job_schema(argv: list[str]) -> int:
    """``pai job-schema [v1|v2|short]``"""
    parser = command_parser(
        "job-schema",
        "pai job-schema v2 > job.schema.json",
        "Write the schema to a file beside your job files and start each job file with this line; VS Code\n"
        "(with Red Hat's YAML extension) then completes keys, explains them and marks errors:\n\n"
        "  # yaml-language-server: $schema=job.schema.json",
        output=False,
        cluster=False,
    )
    parser.add_argument(
        "version",
        nargs="?",
        choices=("v1", "v2", "short"),
        default="v2",
        help="version of the job protocol, or short for short job files (default: v2)",
    )
    args = parser.parse(argv)
    if args.version == "short":
        from openpaisdk.jobs.short_job_file import short_job_schema

        show(short_job_schema(), "json", str)
        return 0
    from paiprotocol.jobs import job_schema as schema

    show(schema(args.version), "json", str)
    return 0

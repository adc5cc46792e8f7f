"""What several clusters were asked, told together."""

from __future__ import annotations

from openpaisdk.output import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openpaisdk.client.fanout import ClusterCall


def report_failures(questions: list[ClusterCall]) -> int:
    """What went wrong with some of the clusters; of the only one it is the error of the command."""
    broken = [q for q in questions if q.error is not None]
    if len(questions) == 1 and broken and broken[0].error:
        raise broken[0].error
    for q in broken:
        if q.error:
            print_notice(f"pai: {q.error.message}" + (f" {q.error.hint}" if q.error.hint else ""))
    return 1 if broken else 0

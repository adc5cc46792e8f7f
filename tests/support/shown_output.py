"""Output as a page shows it, compared with what was printed.

- ``…`` stands for any text in a line, and alone on a line for any number of lines;
- a date or time stands for any other in the same form, ``2s`` or ``0.1s`` for any duration;
- ``ab12cd`` and ``x63f`` stand for random letters, the same ones wherever a page shows them after one name;
- a size such as ``2.0 MB`` stands for any other, ``0.1 s`` for any number of seconds;
- the widths of columns, and spaces at the end of a line, do not count.
"""

from __future__ import annotations

import re

_SAMPLES = re.compile(r"([\w-]*[_-])(ab12cd|x63f)(?![a-z0-9])")
_FORMS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", None),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", None),
    (r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d", None),
    (r"\b\d+(\.\d)? (s|B|kB|MB|GB|TB)\b", r"[\d.]+ (?:s|B|kB|MB|GB|TB)"),
    (r"(?<= )\d+(\.\d)?s(?= |$)", r"[\d.]+[smhd](?: ?[\d.]+[smhd])*"),
    (r" +$", " *"),
    (r" +", " +"),
    ("…", ".*"),
)
_FORM = re.compile("|".join(f"(?P<form{number}>{form})" for number, (form, _) in enumerate(_FORMS)))


class ShownOutput:
    """Compares the outputs of one page; remembers what stood for random letters."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def matches(self, shown: str, printed: str) -> bool:
        return self._match(shown, printed, whole=True)

    def begins(self, shown: str, printed: str) -> bool:
        """Whether this was printed, and perhaps more after it."""
        return self._match(shown, printed, whole=False)

    def _match(self, shown: str, printed: str, *, whole: bool) -> bool:
        names: dict[str, str] = {}
        pattern = "".join(self._line(line, names) for line in shown.splitlines())
        text = "".join(f"{line}\n" for line in printed.splitlines())
        found = (re.fullmatch if whole else re.search)(pattern, text)
        if found is None:
            return False
        self._letters.update({sample: found[group] for group, sample in names.items()})
        return True

    def _line(self, line: str, names: dict[str, str]) -> str:
        if line.strip() == "…":
            return "(?:.*\n)*?"
        pattern, end = "", 0
        for sample in _SAMPLES.finditer(line):
            pattern += _plain(line[end : sample.start()]) + _plain(sample[1])
            pattern += self._letters_of(sample[0], names)
            end = sample.end()
        return f"{pattern}{_plain(line[end:])} *\n"

    def _letters_of(self, sample: str, names: dict[str, str]) -> str:
        if sample in self._letters:
            return re.escape(self._letters[sample])
        group = next((group for group, known in names.items() if known == sample), "")
        if group:
            return f"(?P={group})"
        group = f"letters{len(names)}"
        names[group] = sample
        return f"(?P<{group}>[a-z0-9]+)"


def _plain(text: str) -> str:
    pattern, end = "", 0
    for found in _FORM.finditer(text):
        _, printed = _FORMS[int(str(found.lastgroup).removeprefix("form"))]
        pattern += re.escape(text[end : found.start()]) + (
            printed or re.sub(r"\d", r"\\d", re.escape(found[0]))
        )
        end = found.end()
    return pattern + re.escape(text[end:])

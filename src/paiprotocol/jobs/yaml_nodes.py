"""YAML nodes with their positions, composed by libyaml and converted to plain data here.

The tree is converted in one pass without tag constructors, so nothing in a document can run code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from paiprotocol.jobs.limits import MAX_DEPTH, MAX_VALUES
from paiprotocol.jobs.problems import Path, Problem, is_full, protocol_error, shorten, within

if TYPE_CHECKING:
    _Parser = Any
else:
    try:
        from yaml.cyaml import CParser as _Parser
    except ImportError:  # PyYAML without libyaml: the same result, slower

        class _Parser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer):
            def __init__(self, stream: str):
                yaml.reader.Reader.__init__(self, stream)
                yaml.scanner.Scanner.__init__(self)
                yaml.parser.Parser.__init__(self)
                yaml.composer.Composer.__init__(self)


_PREFIX = "tag:yaml.org,2002:"
_STR, _INT, _FLOAT, _BOOL, _NULL, _MAP, _SEQ = (
    _PREFIX + name for name in ("str", "int", "float", "bool", "null", "map", "seq")
)
_MAYBE_SPECIAL = frozenset("0123456789-+.tTfFnN~")
_INT_TEXT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,307})|0x[0-9a-fA-F]{1,64}|0o[0-7]{1,64}|0b[01]{1,128}")
_FLOAT_TEXT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ODD_FLOAT_TEXT = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


class _TooDeepError(Exception):
    pass


class _Composer(_Parser):  # type: ignore[misc]
    """Composes nodes; limits the depth, which would otherwise overflow libyaml's stack."""

    depth = 0

    def resolve(self, kind: type[Node], value: str | None, implicit: Any) -> str:
        if kind is not ScalarNode:
            return _MAP if kind is MappingNode else _SEQ
        if not implicit[0] or (value and value[0] not in _MAYBE_SPECIAL):
            return _STR
        return _plain_tag(value or "")

    def descend_resolver(self, parent: Node | None, index: Any) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH + 1:
            raise _TooDeepError

    def ascend_resolver(self) -> None:
        self.depth -= 1


def _plain_tag(value: str) -> str:
    if value in _BOOLS:
        return _BOOL
    if value in _NULLS:
        return _NULL
    if _INT_TEXT.fullmatch(value):
        return _INT
    if len(value) <= 64 and (_FLOAT_TEXT.fullmatch(value) or _ODD_FLOAT_TEXT.fullmatch(value)):
        return _FLOAT
    return _STR


def plain_scalar(text: str) -> Any:
    """A single value as YAML parses it without quotes."""
    text = text.strip()
    node = ScalarNode(_plain_tag(text) if text else _STR, text)
    builder = _Builder("")
    value = builder.value(node, MAX_DEPTH)
    return text if builder.problems else value


def reads_as_text(text: str) -> bool:
    """Whether this parser reads the unquoted characters as text."""
    return _plain_tag(text) == _STR


def compose(text: str, file: str) -> Node:
    """Compose the single document of ``text``."""
    if text.count("\n%TAG") > 16:
        _fail("too many %TAG directives", file, 1, 1)
    try:
        root: Node | None = _Composer(text).get_single_node()
    except _TooDeepError:
        _fail(f"nested deeper than {MAX_DEPTH} levels", file)
    except yaml.MarkedYAMLError as error:
        raise protocol_error([_syntax_error(error, text, file)]) from None
    except (yaml.YAMLError, UnicodeError) as error:
        position = getattr(error, "position", None) or getattr(error, "start", 0) or 0
        line, column = _line_column(text, position)
        _fail("the text contains a character that YAML does not allow", file, line, column)
    if root is None:
        _fail("the document is empty", file)
    return root


def construct(root: Node, file: str) -> Any:
    """Convert nodes to plain data. All duplicate keys and forbidden values are reported."""
    builder = _Builder(file)
    data = builder.value(root, MAX_DEPTH)
    if builder.problems:
        raise protocol_error(builder.with_paths(root))
    return data


class _Builder:
    def __init__(self, file: str):
        self.file = file
        self.values_left = MAX_VALUES
        self.problems: list[tuple[Node, str]] = []

    def value(self, node: Any, depth: int) -> Any:
        kind = type(node)
        if kind is ScalarNode:
            tag = node.tag
            return node.value if tag == _STR else self.scalar(node, tag)
        self.values_left -= len(node.value) + 1
        if self.values_left < 0:
            _fail(f"a job may have at most {MAX_VALUES} values, with its aliases this has more", self.file)
        if depth == 0:
            # The composer limits the depth of the text, so only an alias inside itself leads here.
            _fail(f"nested deeper than {MAX_DEPTH} levels; an alias contains itself", self.file)
        if kind is MappingNode:
            if node.tag != _MAP:
                self.problem(node, _tag_message(node.tag))
            return self.mapping(node, depth - 1)
        if node.tag != _SEQ:
            self.problem(node, _tag_message(node.tag))
        depth -= 1
        return [
            item.value if type(item) is ScalarNode and item.tag == _STR else self.value(item, depth)
            for item in node.value
        ]

    def mapping(self, node: Any, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: list[Any] = []
        for key, item in node.value:
            if type(key) is not ScalarNode:
                self.problem(key, "a key must be text, not a list or a mapping")
                continue
            name = key.value
            if name == "<<" and not key.style:
                merged.append(item)
            elif name in mapping:
                self.problem(key, f'the key "{shorten(name)}" is duplicated')
            elif type(item) is ScalarNode and item.tag == _STR:
                mapping[name] = item.value
            else:
                mapping[name] = self.value(item, depth)
        for item in merged:
            self.merge(mapping, item, depth)
        return mapping

    def merge(self, mapping: dict[str, Any], node: Any, depth: int) -> None:
        for source in node.value if type(node) is SequenceNode else [node]:
            if type(source) is not MappingNode:
                self.problem(source, '"<<" takes a mapping or a list of mappings')
                continue
            for name, item in self.value(source, depth).items():
                mapping.setdefault(name, item)

    def scalar(self, node: Any, tag: str) -> Any:
        text = node.value
        if tag == _INT and _INT_TEXT.fullmatch(text):
            return int(text, 0) if text[:2] in ("0x", "0o", "0b") else int(text)
        if tag == _BOOL and text in _BOOLS:
            return _BOOLS[text]
        if tag == _NULL and text in _NULLS:
            return None
        if tag == _FLOAT and (_FLOAT_TEXT.fullmatch(text) or _INT_TEXT.fullmatch(text)):
            number = float(text)
            if isfinite(number):
                return number
            self.problem(node, "the number is too large; put it in quotes if it is meant as text")
        elif tag == _FLOAT and _ODD_FLOAT_TEXT.fullmatch(text):
            self.problem(node, "NaN and infinity are not allowed in a job; put them in quotes")
        elif tag in (_INT, _FLOAT, _BOOL, _NULL):
            self.problem(node, f"this cannot be read as {tag.removeprefix(_PREFIX)}")
        else:
            self.problem(node, _tag_message(tag))
        return None

    def problem(self, node: Node, message: str) -> None:
        if not is_full(self.problems):
            self.problems.append((node, message))

    def with_paths(self, root: Node) -> Iterator[Problem]:
        paths = dict(_paths(root, (), set()))
        for node, message in self.problems:
            line, column = _mark(node.start_mark)
            path = paths.get(id(node), ())
            yield Problem(path, message, file=self.file, line=line, column=column)


def _paths(node: Any, path: Path, seen: set[int]) -> Iterator[tuple[int, Path]]:
    """Path of each node, including keys (a key has the path of its value)."""
    if id(node) in seen:
        return
    seen.add(id(node))
    yield id(node), path
    if type(node) is SequenceNode:
        for index, item in enumerate(node.value):
            yield from _paths(item, (*path, index), seen)
    elif type(node) is MappingNode:
        for key, item in node.value:
            name = key.value if type(key) is ScalarNode else "?"
            yield id(key), (*path, name)
            yield from _paths(item, (*path, name), seen)


def locate(root: Any, path: Path, at_key: bool) -> tuple[int, int]:
    """Line and column of the value at ``path``, or of its nearest existing parent."""
    node, key = root, None
    for part in path:
        if type(node) is MappingNode and isinstance(part, str):
            pair = next((pair for pair in node.value if getattr(pair[0], "value", None) == part), None)
            if pair is None:
                break
            key, node = pair
        elif type(node) is SequenceNode and isinstance(part, int) and part < len(node.value):
            key, node = None, node.value[part]
        else:
            break
    else:
        if at_key and key is not None:
            return _mark(key.start_mark)
    return _mark(node.start_mark)


def top_level_span(root: Any, name: str) -> tuple[int, int, Node] | None:
    """Start of the key, end of the value, and the value's node, for a key of the top-level mapping."""
    if type(root) is not MappingNode:
        return None
    for key, item in root.value:
        if getattr(key, "value", None) == name:
            return key.start_mark.index, item.end_mark.index, item
    return None


def aliased_scalars(root: Any, name: str) -> Iterator[tuple[Path, Path, bool]]:
    """Scalars that aliases or merges share with the entry ``name`` of the top-level mapping, in others.

    Of each its path, its path in that entry, and whether it is a key. `construct` accepts the document.
    """
    entries = {key.value: item for key, item in _entries(root)}
    if name not in entries:
        return
    inside = {id(node): path for path, node, at_key in _scalars(entries.pop(name), ()) if not at_key}
    for other, item in entries.items():
        for path, node, at_key in _scalars(item, (other,)):
            if id(node) in inside:
                yield path, inside[id(node)], at_key


def _entries(node: Any) -> Iterator[tuple[Any, Any]]:
    """Keys and values of a mapping, those that it merges (``<<``) included."""
    seen: set[str] = set()
    merged: list[Any] = []
    for key, item in node.value:
        if key.value == "<<" and not key.style:
            merged += item.value if type(item) is SequenceNode else [item]
        else:
            seen.add(key.value)
            yield key, item
    for source in merged:
        for key, item in _entries(source):
            if key.value not in seen:
                seen.add(key.value)
                yield key, item


def _scalars(node: Any, path: Path) -> Iterator[tuple[Path, Any, bool]]:
    """Every scalar below a node with its path, and whether it is a key."""
    if type(node) is ScalarNode:
        yield path, node, False
    elif type(node) is SequenceNode:
        for index, item in enumerate(node.value):
            yield from _scalars(item, (*path, index))
    else:
        for key, item in _entries(node):
            yield (*path, key.value), key, True
            yield from _scalars(item, (*path, key.value))


def _mark(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _line_column(text: str, position: int) -> tuple[int, int]:
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _tag_message(tag: str) -> str:
    name = tag.replace(_PREFIX, "!!")
    return f"the tag {shorten(name)} is not allowed in a job"


_SYNTAX_HINTS = (
    ("cannot start any token", "a YAML value cannot begin with this character; put the value in quotes"),
    (
        "mapping values are not allowed",
        'a ": " inside a value; quote the value, or check the indentation of the line',
    ),
    (
        "did not find expected key",
        "this line does not fit the lines above it; check its indentation",
    ),
    (
        "did not find expected '-' indicator",
        "a list item or key was expected here; check the indentation of the line",
    ),
    ("could not find expected ':'", 'a key needs a ":" after it'),
    ("expected ',' or", 'a "," or the closing bracket is missing'),
    ("did not find expected node content", "a value or the closing bracket is missing"),
    ("found unexpected end of stream", "the text ends inside a quoted value; a closing quote is missing"),
    ("found undefined alias", "this alias (*name) has no anchor (&name) before it"),
    ("expected a single document", 'a job is one document: "---" starts a second one'),
    ("but found another document", 'a job is one document: "---" starts a second one'),
    (
        "found unknown escape character",
        "unknown escape in double quotes; use single quotes, or write \\\\ for a backslash",
    ),
    ("control characters are not allowed", "the text contains a character that YAML does not allow"),
)


_UNFINISHED = ("flow mapping", "flow sequence", "quoted scalar", "simple key")


def _syntax_error(error: yaml.MarkedYAMLError, text: str, file: str) -> Problem:
    line, column = _position(error, text)
    message = error.problem or error.context or "this is not YAML"
    original = f"{error.context or ''} {message}"
    lines = text.splitlines()
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    indent = here[: len(here) - len(here.lstrip())]
    if "\t" in indent:
        message = "this line is indented with a tab; YAML allows only spaces"
    else:
        message = next((hint for marker, hint in _SYNTAX_HINTS if marker in original), shorten(message))
    return Problem((), message, file=file, line=line, column=column)


def _position(error: yaml.MarkedYAMLError, text: str) -> tuple[int, int]:
    """Position of an error; for a bracket, quote or key that never ends, where it begins."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return 0, 0
    if mark.index >= len(text.rstrip()) and (error.context or "").endswith(_UNFINISHED):
        mark = error.context_mark or mark
    return within(text, *_mark(mark))


def _fail(message: str, file: str, line: int = 0, column: int = 0) -> NoReturn:
    raise protocol_error([Problem((), message, file=file, line=line, column=column)])

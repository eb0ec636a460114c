"""Reads YAML into plain data and remembers where each part stands: errors say file:line.

Nothing in a document can make it run code, grow without bound or recurse: tags other than
YAML's own scalars, deep nesting and alias bombs are problems like any other.
"""

from __future__ import annotations

from typing import Any

import yaml

from builder.errors import Problem, RefusedError
from builder.matrix.document import Document, Path, Place

MAX_CHARACTERS = 4_000_000
MAX_DEPTH = 32
MAX_NODES = 100_000
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset({f"{_CORE}str", f"{_CORE}value", f"{_CORE}merge"})
_SCALARS = {
    f"{_CORE}bool": yaml.SafeLoader.construct_yaml_bool,
    f"{_CORE}int": yaml.SafeLoader.construct_yaml_int,
    f"{_CORE}float": yaml.SafeLoader.construct_yaml_float,
    f"{_CORE}null": yaml.SafeLoader.construct_yaml_null,
    f"{_CORE}timestamp": yaml.SafeLoader.construct_yaml_timestamp,
}


def decode(content: bytes, name: str) -> str:
    """Return the text of a file; ``RefusedError`` with the line where it is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RefusedError(
            Problem(
                "NOT_UTF8",
                f"Byte 0x{content[error.start]:02x} is not UTF-8 text.",
                where=f"{name}:{line}",
                fix="Save the file in the encoding UTF-8.",
            )
        ) from None


def read_document(text: str, name: str) -> tuple[Document, list[Problem]]:
    """Read one YAML document.

    Returns:
        The data with places, and what is wrong inside it (duplicate keys, keys that are not
        text, unknown tags); the data holds what could be read all the same.

    Raises:
        RefusedError: the text is not YAML, is empty, or is too large or too deep to be a matrix.
    """
    root = _compose(text, name)
    reader = _Reader(Document(name))
    reader.document.data = reader.value(root, ())
    return reader.document, list(dict.fromkeys(reader.problems))


def _refuse(code: str, what: str, where: str, fix: str) -> RefusedError:
    return RefusedError(Problem(code, what, where=where, fix=fix))


def _compose(text: str, name: str) -> yaml.Node:
    """Return the tree of nodes, after a flat pass that bounds its depth and size."""
    if len(text) > MAX_CHARACTERS:
        raise _refuse(
            "TOO_LARGE",
            f"The file has {len(text)} characters; {MAX_CHARACTERS} are read at most.",
            f"{name}:1",
            "Check that this is the right file.",
        )
    try:
        _bound(text, name)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = _line(mark)
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise _refuse(
            "YAML_SYNTAX",
            f"This is not YAML: {said}.",
            f"{name}:{line}",
            "Check quotes, brackets, colons and indentation here and on the line before.",
        ) from None
    except (yaml.YAMLError, UnicodeError) as error:
        line = text.count("\n", 0, max(getattr(error, "position", 0) or 0, 0)) + 1
        said = str(error).splitlines()[0]
        raise _refuse(
            "YAML_SYNTAX",
            f"The file holds characters that YAML does not allow: {said}.",
            f"{name}:{line}",
            "Remove control characters; the file is text in UTF-8.",
        ) from None
    if root is None:
        raise _refuse(
            "EMPTY_FILE",
            "The file is empty or holds comments only.",
            f"{name}:1",
            "Write at least `version: 1`, `image:` and `lanes:`.",
        )
    return root


def _line(mark: Any) -> int:
    """Return the line of a mark of either parser, from 1."""
    return int(mark.line) + 1 if mark else 1


def _bound(text: str, name: str) -> None:
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader), start=1):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH or count > MAX_NODES:
            what = f"{MAX_DEPTH} levels" if depth > MAX_DEPTH else f"{MAX_NODES} parts"
            raise _refuse(
                "TOO_LARGE",
                f"The document has more than {what}.",
                f"{name}:{_line(event.start_mark)}",
                "A matrix needs neither; check that this is the right file.",
            )


class _Reader:
    """Turns nodes into data. Aliases are copied out, so what they may add up to is bounded."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self._nodes = 0
        self._open: set[int] = set()
        self._scalars = yaml.SafeLoader("")

    def value(self, node: yaml.Node, path: Path) -> Any:
        """Return the data of ``node`` and note the places of all its parts."""
        self._nodes += 1
        endless = id(node) in self._open or len(self._open) > MAX_DEPTH
        if endless or self._nodes > MAX_NODES:
            raise _refuse(
                "TOO_LARGE",
                f"Its aliases unfold to more than {MAX_NODES} parts or {MAX_DEPTH} levels.",
                self._where(node),
                "Write the values out, or use fewer aliases.",
            )
        scalar = node.value if isinstance(node, yaml.ScalarNode) else None
        mark = node.start_mark
        self.document.values[path] = Place(mark.line + 1, mark.column + 1, scalar)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        self._open.add(id(node))
        result = self._collection(node, path)
        self._open.discard(id(node))
        return result

    def _collection(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_CORE}seq":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_CORE}map":
            return self._mapping(node, path)
        self._unknown_tag(node)
        return None

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if node.tag in _TEXT_TAGS:
            return node.value
        construct = _SCALARS.get(node.tag)
        if construct is None:
            self._unknown_tag(node)
            return node.value
        try:
            return construct(self._scalars, node)
        except (ValueError, OverflowError, LookupError, AttributeError, TypeError):
            kind = node.tag.removeprefix(_CORE)
            self._add("YAML_SYNTAX", f"Read {node.value!r}, which is no {kind}.", node, "Quote it.")
            return node.value

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        seen: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == f"{_CORE}merge":
                merged.append(value_node)
                continue
            key = self._key(key_node)
            if key is None:
                continue
            line = key_node.start_mark.line + 1
            if key in seen:
                self._add(
                    "DUPLICATE_KEY",
                    f'The key "{key}" stands here and on line {seen[key]}.',
                    key_node,
                    "Keep one of the two.",
                )
                continue
            seen[key] = line
            result[key] = self.value(value_node, (*path, key))
            self.document.keys[(*path, key)] = Place(line, key_node.start_mark.column + 1)
        for value_node in merged:
            self._merge(value_node, path, result)
        return result

    def _merge(self, node: yaml.Node, path: Path, into: dict[str, Any]) -> None:
        """Add the keys of ``<<: *other`` that the mapping itself does not have."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                fix = "Write `<<: *name` with the anchor of a mapping."
                self._add("YAML_SYNTAX", "`<<` merges mappings only.", source, fix)
                continue
            aside = _Reader(Document(self.document.name))
            aside._nodes, aside._open = self._nodes, self._open
            data = aside.value(source, path)
            self._nodes = aside._nodes
            self.problems += aside.problems
            fresh = data.keys() - into.keys() if isinstance(data, dict) else set()
            into.update({key: data[key] for key in data or () if key in fresh})
            self.document.adopt(aside.document, path, fresh)

    def _key(self, node: yaml.Node) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.tag in _TEXT_TAGS:
            return str(node.value)
        if isinstance(node, yaml.ScalarNode):
            read = self._scalar(node)
            what = f"The key {node.value} is read as {read!r}, not as text."
            self._add("KEY_NOT_TEXT", what, node, f'Write "{node.value}":.')
        else:
            self._add("KEY_NOT_TEXT", "A key is a list or a mapping.", node, "Write a name.")
        return None

    def _unknown_tag(self, node: yaml.Node) -> None:
        self._add(
            "YAML_TAG",
            f"The YAML tag {node.tag!r} is not read here: a matrix is plain data.",
            node,
            "Remove the tag and write the value itself.",
        )

    def _add(self, code: str, what: str, node: yaml.Node, fix: str) -> None:
        self.problems.append(Problem(code, what, where=self._where(node), fix=fix))

    def _where(self, node: yaml.Node) -> str:
        return f"{self.document.name}:{node.start_mark.line + 1}"

"""Every small mistake that can be made in a text of Python: one operator, number, condition, argument or statement.

`changes(text)` lists them, each with its place, so that `Change.apply` leaves the rest of the text as it is. Left out
is what no test could or should notice: docstrings, annotations, decorators, assertions (they are there for the type
checker) and the words of errors and warnings.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
GUARDS = ("strict", "stacklevel")  # keyword arguments that change no result
WHOLE = (
    "warn",
    "print",
    "isinstance",
    "hasattr",
    "reshape",
    "TypeVar",
)  # arguments are words for a reader, types, or one shape
CHECKS = ("namespace", "_check", "forward_inputs", "backward_inputs")  # and expect_...: left out only as a whole
LAST_AXIS = ("argsort", "sort", "take_along_axis")  # axis is the last one unless they are told otherwise
SYMMETRIC = ("maximum", "minimum", "max", "min", "hamming", "allclose", "array_equal", "logical_and", "gcd", "suppress")


@dataclass(frozen=True)
class Change:
    """The bytes from ``start`` to ``end`` of a text become ``new``; ``line`` counts from 1."""

    line: int
    where: str  # the function or class around it, or "" at the top of the file
    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        raw = text.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.end :]).decode()

    def told(self, text: str) -> tuple[str, str]:
        """The line as it is and as it becomes; of a change over several lines the first, ending in dots."""
        raw = text.encode()
        first = raw.rfind(b"\n", 0, self.start) + 1
        rest = raw.find(b"\n", self.end) if raw.find(b"\n", self.end) >= 0 else len(raw)
        old = raw[first:rest].decode().strip()
        new = (raw[first : self.start] + self.new.encode() + raw[self.end : rest]).decode().strip()
        old_lines, new_lines = old.splitlines(), new.splitlines()
        return _first(old_lines), _first(new_lines)


def _first(lines: list[str]) -> str:
    return lines[0] + (" ..." if len(lines) > 1 else "")


def changes(text: str) -> list[Change]:
    """All changes of a text that make another program of it, in the order of the text."""
    found = dict.fromkeys(sorted(_Finder(text).all(ast.parse(text)), key=lambda c: (c.start, c.end, c.new)))
    return [change for change in found if change.apply(text) != text and _parses(change.apply(text))]


def _parses(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", ast.PyCF_ONLY_AST)
    except SyntaxError:
        return False
    return True


class _Finder:
    def __init__(self, text: str) -> None:
        self.raw = text.encode()
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line.encode()))

    def all(self, tree: ast.Module) -> Iterator[Change]:
        for statement in tree.body:
            yield from self.of(statement, "")

    def begin(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def stop(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def source(self, node: ast.expr) -> str:
        return self.raw[self.begin(node) : self.stop(node)].decode()

    def of(self, node: ast.AST, where: str) -> Iterator[Change]:
        """The changes of a node and of what is in it."""
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.JoinedStr():
                return
            case ast.Expr(value=ast.Constant()):
                return  # a docstring
            case ast.Raise():
                yield self.instead(node, "pass", where)
                return
            case ast.FunctionDef() | ast.ClassDef():
                where = f"{where}.{node.name}" if where else node.name
                if isinstance(node, ast.FunctionDef):
                    for default in (*node.args.defaults, *node.args.kw_defaults):
                        if default is not None:
                            yield from self.of(default, where)
                for statement in node.body:
                    yield from self.of(statement, where)
                return
            case ast.AnnAssign():
                if isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias":
                    return
                if node.value is not None:
                    yield from self.of(node.value, where)
                return
            case ast.Call() if self.name(node.func) in WHOLE or self.checks(node.func):
                return
        yield from self.here(node, where)
        for child in ast.iter_child_nodes(node):
            if not (isinstance(child, ast.keyword) and child.arg in GUARDS):
                yield from self.of(child, where)

    def here(self, node: ast.AST, where: str) -> Iterator[Change]:
        """The changes of a node itself."""
        match node:
            case ast.Compare():
                left = node.left
                for operator, right in zip(node.ops, node.comparators, strict=True):
                    yield from self.between(left, right, *COMPARISONS[type(operator)], where)
                    left = right
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                yield from self.between(node.left, node.right, *ARITHMETIC[type(node.op)], where)
            case ast.BoolOp():
                old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self.between(left, right, old, new, where)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                return  # of -1, an index or an axis, the number changes; the sign alone is the same in an array (B, H)
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                yield self.instead(node, self.source(node.operand), where)
            case ast.Constant(value=bool(value)):
                yield self.instead(node, str(not value), where)
            case ast.Constant(value=int(value)):
                yield self.instead(node, str(value + 1 if value < 10 else 2 * value), where)
                if 0 < value < 10:
                    yield self.instead(node, str(value - 1), where)
            case ast.Constant(value=float(value)):
                yield self.instead(node, repr(2 * value if value else 1.0), where)
            case ast.IfExp():
                for side in (node.body, node.orelse):
                    yield self.instead(node, f"({self.source(side)})", where)
            case ast.If() | ast.While() if not isinstance(node.test, ast.Compare | ast.UnaryOp):
                yield self.instead(node.test, f"not ({self.source(node.test)})", where)
            case ast.Call():
                swaps = len(node.args) > 1 and self.name(node.func) not in SYMMETRIC
                if swaps and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
                    first, second = node.args[:2]
                    middle = self.raw[self.stop(first) : self.begin(second)].decode()
                    swapped = self.source(second) + middle + self.source(first)
                    yield Change(first.lineno, where, self.begin(first), self.stop(second), swapped)
                for keyword in node.keywords:
                    default = keyword.arg == "axis" and self.name(node.func) in LAST_AXIS
                    if keyword.arg is not None and keyword.arg not in GUARDS and not default:
                        yield self.without(keyword, where)
            case ast.Expr(value=ast.Call(func=ast.Name(id="namespace"))):
                return  # refuses arrays of host and device side by side: noticed only where there is a device
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Break() | ast.Continue():
                yield self.instead(node, "pass", where)
                if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
                    old, new = ARITHMETIC[type(node.op)]
                    yield from self.between(node.target, node.value, f"{old}=", f"{new}=", where)
                    if isinstance(node.target, ast.Name):
                        yield from self.between(node.target, node.value, f"{old}=", "=", where)
            case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
                yield self.instead(node, "pass", where)

    def instead(self, node: ast.expr | ast.stmt, new: str, where: str) -> Change:
        return Change(node.lineno, where, self.begin(node), self.stop(node), new)

    def between(self, left: ast.expr, right: ast.expr, old: str, new: str, where: str) -> Iterator[Change]:
        """The operator that stands between two operands, by another one."""
        start, end = self.stop(left), self.begin(right)
        place = self.raw[start:end].find(old.encode())
        if place >= 0:
            line = self.raw[: start + place].count(b"\n") + 1
            yield Change(line, where, start + place, start + place + len(old), new)

    def without(self, keyword: ast.keyword, where: str) -> Change:
        """A call without this argument: the function's default in its place."""
        start, end = self.begin(keyword), self.stop(keyword)
        comma = self.raw.rfind(b",", 0, start)
        if self.raw[comma + 1 : start].strip() == b"" and comma >= 0:
            start = comma
        return Change(keyword.lineno, where, start, end, "")

    def checks(self, function: ast.expr) -> bool:
        name = self.name(function)
        return name in CHECKS or name.startswith(("expect_", "_expect_"))

    @staticmethod
    def name(function: ast.expr) -> str:
        return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")

"""Rewrites a kernel so that every access to an array passes through the simulator.

``A[i, j]`` becomes a method call that carries the number of its place in the source, so an access
costs no look at the call stack; a ``0.0`` becomes a float64 and ``a / b`` of integers too, as the
compiler of numba types them. The rewritten code keeps the file and lines of the original.
"""

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from labsupport.cuda.simt.errors import UnsupportedError

LOAD, STORE, ATOMIC = 0, 1, 2


@dataclass(frozen=True)
class Site:
    """One place in a kernel's source that accesses memory."""

    line: int
    kind: int
    array: str
    text: str


class Sites:
    """All places seen so far; the index of a site is the number that the rewritten code carries."""

    LIMIT = 1 << 20

    def __init__(self) -> None:
        self.table: list[Site] = []
        self.kinds = np.zeros(1024, np.int8)

    def add(self, site: Site) -> int:
        """Number of a new site."""
        number = len(self.table)
        if number == self.LIMIT:
            raise UnsupportedError(f"{number} places that access memory in one session; restart the kernel of Jupyter")
        self.table.append(site)
        if number == self.kinds.size:
            self.kinds = np.concatenate([self.kinds, np.zeros_like(self.kinds)])
        self.kinds[number] = site.kind
        return number


SITES = Sites()


def transformed(function: FunctionType, careful: bool = False) -> Callable[[dict[str, Any]], FunctionType]:
    """A maker of the rewritten function for a namespace.

    Args:
        function: the kernel or device function.
        careful: whether integers may come in through the arguments, so that every sum and product has to look
            at its operands' types.

    Raises:
        UnsupportedError: the source cannot be read, or uses something outside the dialect.
    """
    if function.__name__ == "<lambda>":
        raise UnsupportedError("a kernel is written with def, not as a lambda")
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise UnsupportedError(
            f"the source of {function.__name__} cannot be read; define the kernel in a cell or a file"
        ) from error
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, max(first, 1) - 1)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise UnsupportedError(f"{function.__name__} is not written with def; a kernel is", line=first)
    definition.decorator_list = []
    definition.returns = None
    rewriter = _Rewriter(definition, lines, max(first, 1), careful)
    rewriter.run()
    ast.fix_missing_locations(tree)
    code = compile(tree, inspect.getsourcefile(function) or "<kernel>", "exec")

    def make(namespace: dict[str, Any]) -> FunctionType:
        namespace.update(rewriter.constants)
        exec(code, namespace)
        made: FunctionType = namespace[function.__name__]
        return made

    return make


#: Operators whose result depends on whether an integer meets a float, and the functions that look.
_MIXED: dict[type[ast.operator], str] = {
    ast.Add: "__simt_add", ast.Sub: "__simt_sub", ast.Mult: "__simt_mul", ast.Pow: "__simt_pow",
    ast.FloorDiv: "__simt_floordiv", ast.Mod: "__simt_mod",
}  # fmt: skip
#: Functions that never give an integer where their arguments are none.
_FLOATS = ("float16", "float32", "float64", "float", "max", "min", "abs")
NO, MAYBE, YES = 0, 1, 2


class _Integers:
    """What can be told from the source about which expressions are integers.

    A compiler gives float64 where an int64 meets a float32. Looking at every operand would be slow, so
    only those operations are watched that may mix the two.
    """

    def __init__(self, definition: ast.FunctionDef, careful: bool) -> None:
        self.loads = MAYBE if careful else NO
        self.names: dict[str, int] = {argument.arg: self.loads for argument in definition.args.args}
        for _ in range(3):  # names that depend on names
            found: dict[str, set[int]] = {}
            for node in ast.walk(definition):
                for target, kind in self._assigned(node):
                    for part in ast.walk(target):
                        if isinstance(part, ast.Name):
                            found.setdefault(part.id, set()).add(kind)
            for name, kinds in found.items():
                self.names[name] = kinds.pop() if len(kinds) == 1 else MAYBE

    def _assigned(self, node: ast.AST) -> list[tuple[ast.expr, int]]:
        if isinstance(node, ast.For):
            return [(node.target, YES)]
        if isinstance(node, ast.AugAssign):
            kind = self.kind(node.value)
            return [(node.target, kind)] if isinstance(node.target, ast.Name) else []
        if not isinstance(node, ast.Assign):
            return []
        pairs: list[tuple[ast.expr, int]] = []
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs += [(t, self.kind(v)) for t, v in zip(target.elts, node.value.elts, strict=False)]
            elif not isinstance(target, ast.Subscript):
                pairs.append((target, self.kind(node.value)))
        return pairs

    def kind(self, node: ast.expr) -> int:
        """Whether an expression is an integer: NO, MAYBE or YES."""
        if isinstance(node, ast.Constant):
            return YES if type(node.value) is int else NO
        if isinstance(node, ast.Name):
            return self.names.get(node.id, MAYBE)  # an unknown name is a constant from outside
        if isinstance(node, ast.Attribute):
            return YES  # cuda.threadIdx.x, cuda.laneid, x.shape
        if isinstance(node, ast.Subscript):
            return YES if isinstance(node.value, ast.Attribute) else self.loads
        if isinstance(node, ast.UnaryOp):
            return self.kind(node.operand)
        if isinstance(node, ast.IfExp):
            kinds = {self.kind(node.body), self.kind(node.orelse)}
            return kinds.pop() if len(kinds) == 1 else MAYBE
        if isinstance(node, ast.BinOp):
            kinds = {self.kind(node.left), self.kind(node.right)}
            return NO if isinstance(node.op, ast.Div) else kinds.pop() if len(kinds) == 1 else NO if NO in kinds else 1
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return YES if node.func.attr in ("grid", "gridsize") else NO
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return YES if node.func.id in ("int", "len") else NO if node.func.id in _FLOATS else MAYBE
        return NO

    def may_mix(self, left: ast.expr, op: ast.operator, right: ast.expr) -> bool:
        """Whether an operation may have an integer on one side and a float on the other."""
        kinds = {self.kind(left), self.kind(right)}
        return type(op) in _MIXED and kinds not in ({YES}, {NO})


class _Rewriter(ast.NodeTransformer):
    def __init__(self, definition: ast.FunctionDef, lines: list[str], first: int, careful: bool) -> None:
        self.definition, self.lines, self.first = definition, lines, first
        self.integers = _Integers(definition, careful)
        self.constants: dict[str, Any] = {}
        self.arrays = _array_names(definition)
        self.parameters = {argument.arg for argument in definition.args.args}
        self.temporaries = 0

    def run(self) -> None:
        self.definition.body = [
            item for statement in self.definition.body for item in self._as_list(self.visit(statement))
        ]

    @staticmethod
    def _as_list(result: Any) -> list[ast.stmt]:
        return result if isinstance(result, list) else [result]

    # -- accesses -----------------------------------------------------------------------------

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if not self._is_array(node.value) or not isinstance(node.ctx, ast.Load):
            return node
        return self._call(node, "ld", [self._site(node, LOAD), *self._indices(node)])

    def visit_Assign(self, node: ast.Assign) -> Any:
        stores = [t for target in node.targets for t in ast.walk(target) if self._is_store(t)]
        if not stores:
            return self.generic_visit(node)
        value = self.visit(node.value)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            return ast.copy_location(self._store(node.targets[0], value), node)
        name = self._temporary()
        result: list[ast.stmt] = [_assign(name, value, node)]
        for target in node.targets:
            result += self._unpack(target, ast.Name(name, ast.Load()), node)
        return result

    def _unpack(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(target, ast.Tuple | ast.List):
            parts = []
            for k, element in enumerate(target.elts):
                item = ast.Subscript(value, ast.Constant(k), ast.Load())
                parts += self._unpack(element, item, node)
            return parts
        if self._is_store(target):
            assert isinstance(target, ast.Subscript)
            return [ast.copy_location(self._store(target, value), node)]
        return [ast.copy_location(ast.Assign([target], value), node)]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        value = self.visit(copy.deepcopy(node.value))
        if not self._is_store(node.target):
            if isinstance(node.op, ast.Div) and isinstance(node.target, ast.Name):
                quotient = self._division(ast.Name(node.target.id, ast.Load()), value, node)
                return ast.copy_location(ast.Assign([node.target], quotient), node)
            if isinstance(node.target, ast.Name) and self.integers.may_mix(node.target, node.op, node.value):
                mixed = self._mixed(node.op, ast.Name(node.target.id, ast.Load()), value, node)
                return ast.copy_location(ast.Assign([node.target], mixed), node)
            node.value = value
            return node
        target = node.target
        assert isinstance(target, ast.Subscript)
        statements: list[ast.stmt] = []
        names = []
        for index in self._indices(target):
            names.append(self._temporary())
            statements.append(_assign(names[-1], self.visit(index), node))
        indices: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
        old = self._call(target, "ld", [self._site(target, LOAD), *indices])
        if isinstance(node.op, ast.Div):
            new: ast.expr = self._division(old, value, node)
        elif self.integers.may_mix(target, node.op, node.value):
            new = self._mixed(node.op, old, value, node)
        else:
            new = ast.BinOp(old, node.op, value)
        store = self._call(target, "st", [self._site(target, STORE), new, *indices])
        return [*statements, ast.copy_location(ast.Expr(store), node)]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self._hold_sizes_constant(node)
        self.generic_visit(node)
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Attribute)
            and function.value.attr == "atomic"
            and node.args
        ):
            name = ast.unparse(node.args[0])
            node.keywords.append(ast.keyword("site", self._site(node, ATOMIC, name)))
        return node

    def _hold_sizes_constant(self, node: ast.Call) -> None:
        """A compiler lays shared and local arrays out: their sizes are numbers, or names from outside the kernel."""
        function = node.func
        if not (isinstance(function, ast.Attribute) and function.attr == "array"):
            return
        shape = next((k.value for k in node.keywords if k.arg == "shape"), node.args[0] if node.args else None)
        if shape is None:
            return
        for size in shape.elts if isinstance(shape, ast.Tuple | ast.List) else [shape]:
            names = [part.id for part in ast.walk(size) if isinstance(part, ast.Name)]
            if not names or (isinstance(size, ast.Name) and size.id not in self.parameters):
                continue
            raise UnsupportedError(
                f"line {node.lineno}: the size {ast.unparse(size)} is not known when the kernel is compiled; a shared "
                "or local array takes a number, or the name of a constant outside the kernel",
                line=node.lineno,
            )

    def _store(self, target: ast.Subscript, value: ast.expr) -> ast.stmt:
        indices = [self.visit(index) for index in self._indices(target)]
        return ast.Expr(self._call(target, "st", [self._site(target, STORE), value, *indices]))

    def _call(self, node: ast.Subscript, method: str, arguments: list[ast.expr]) -> ast.Call:
        indices = len(arguments) - (1 if method == "ld" else 2)
        method += str(indices) if indices in (1, 2) else ""
        function = ast.Attribute(ast.Name(self._name(node.value), ast.Load()), method, ast.Load())
        return ast.copy_location(ast.Call(function, arguments, []), node)

    def _indices(self, node: ast.Subscript) -> list[ast.expr]:
        found = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        for index in found:
            if isinstance(index, ast.Slice | ast.Starred):
                raise UnsupportedError(
                    f"line {node.lineno}: {ast.unparse(node)} takes a part of an array; a thread reads and writes "
                    "single elements, so loop over the indices",
                    line=node.lineno,
                )
        return found

    def _site(self, node: ast.expr, kind: int, name: str = "") -> ast.Constant:
        text = self.lines[node.lineno - self.first].strip() if 0 <= node.lineno - self.first < len(self.lines) else ""
        array = name or self._name(node.value)  # type: ignore[attr-defined]
        return ast.Constant(SITES.add(Site(node.lineno, kind, array, text)))

    def _is_store(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and self._is_array(node.value)

    def _is_array(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.arrays

    @staticmethod
    def _name(node: ast.expr) -> str:
        assert isinstance(node, ast.Name)
        return node.id

    def _temporary(self) -> str:
        self.temporaries += 1
        return f"__simt_{self.temporaries}"

    # -- types as the compiler sees them ------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, float):
            return node
        name = f"__simt_f64_{len(self.constants)}"
        self.constants[name] = np.float64(node.value)
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        mixes = self.integers.may_mix(node.left, node.op, node.right)
        self.generic_visit(node)
        if isinstance(node.op, ast.Div):
            return self._division(node.left, node.right, node)
        return self._mixed(node.op, node.left, node.right, node) if mixes else node

    @staticmethod
    def _mixed(op: ast.operator, left: ast.expr, right: ast.expr, node: ast.AST) -> ast.Call:
        name = ast.Name(_MIXED[type(op)], ast.Load())
        return ast.copy_location(ast.Call(name, [left, right], []), node)

    @staticmethod
    def _division(left: ast.expr, right: ast.expr, node: ast.AST) -> ast.Call:
        call = ast.Call(ast.Name("__simt_divide", ast.Load()), [left, right], [])
        return ast.copy_location(call, node)

    # -- loops that never end -----------------------------------------------------------------

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        tick = ast.Expr(ast.Call(ast.Name("__simt_tick", ast.Load()), [ast.Constant(node.lineno)], []))
        node.body.insert(0, ast.copy_location(tick, node))
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        call = ast.Call(ast.Name("__simt_loop", ast.Load()), [ast.Constant(node.lineno), node.iter], [])
        node.iter = ast.copy_location(call, node.iter)
        return node


def _assign(name: str, value: ast.expr, node: ast.AST) -> ast.stmt:
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)


def _array_names(definition: ast.FunctionDef) -> set[str]:
    """Names that hold arrays: parameters, results of ``….array(…)``, and other names for these.

    Two arrays in turn have a name as well: ``a if k % 2 == 0 else b``, and ``for a in (b, c)``.
    """
    names = {argument.arg for argument in definition.args.args}
    assignments = [
        pair
        for node in ast.walk(definition)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for pair in _bindings(target, node.value)
    ]
    for node in ast.walk(definition):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple | ast.List):
            assignments += [pair for element in node.iter.elts for pair in _bindings(node.target, element)]
    grown = True
    while grown:
        grown = False
        for name, value in assignments:
            if name not in names and _makes_array(value, names):
                names.add(name)
                grown = True
    return names


def _makes_array(value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.IfExp):
        return _makes_array(value.body, names) or _makes_array(value.orelse, names)
    if isinstance(value, ast.Name):
        return value.id in names
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "array"


def _bindings(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Each name that an assignment binds with what it is bound to; ``a, b = x, y`` binds two."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for inner, bound in zip(target.elts, value.elts, strict=False):
            yield from _bindings(inner, bound)

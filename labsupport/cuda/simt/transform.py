"""Rewrites a kernel so that every access to an array passes through the simulator.

``A[i, j]`` becomes a method call that carries the number of its place in the source, so an access
costs no look at the call stack; a ``0.0`` becomes a float64 and ``a / b`` of integers too, as the
compiler of numba types them. The rewritten code keeps the file and lines of the original.
"""

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
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


@dataclass(frozen=True)
class Declared:
    """One place in a kernel's source that makes a shared or local array, and the name that it gets there."""

    line: int
    name: str


class Sites:
    """All places seen so far; the index of a site is the number that the rewritten code carries."""

    LIMIT = 1 << 20

    def __init__(self) -> None:
        self.table: list[Site] = []
        self.declared: list[Declared] = []
        self.kinds = np.zeros(1024, np.int8)

    def declare(self, declared: Declared) -> int:
        """Number of a new place that makes an array."""
        self.declared.append(declared)
        return len(self.declared) - 1

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


def transformed(function: FunctionType, kinds: Mapping[str, int]) -> Callable[[dict[str, Any]], FunctionType]:
    """A maker of the rewritten function for a namespace.

    Args:
        function: the kernel or device function.
        kinds: INTEGER or FLOAT for the parameters and the constants outside of which this is known; an array
            has the kind of its elements.

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
    definition.args.defaults = []  # the values are those of the function
    for node in ast.walk(definition):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    _refuse(definition)
    _Annotations().visit(definition)
    rewriter = _Rewriter(definition, lines, max(first, 1), kinds)
    rewriter.run()
    ast.fix_missing_locations(tree)
    code = compile(tree, inspect.getsourcefile(function) or "<kernel>", "exec")

    def make(namespace: dict[str, Any]) -> FunctionType:
        namespace.update(rewriter.constants)
        exec(code, namespace)
        made: FunctionType = namespace[function.__name__]
        made.__defaults__ = tuple(
            np.float64(value) if type(value) is float else value for value in function.__defaults__ or ()
        )
        return made

    return make


#: Operators whose result depends on whether an integer meets a float, and the functions that look.
_MIXED: dict[type[ast.operator], str] = {
    ast.Add: "__simt_add", ast.Sub: "__simt_sub", ast.Mult: "__simt_mul", ast.Pow: "__simt_pow",
    ast.FloorDiv: "__simt_floordiv", ast.Mod: "__simt_mod",
}  # fmt: skip
#: What an expression may be: bits, so that INTEGER | FLOAT is an expression of which it is not known.
INTEGER, FLOAT = 1, 2
UNKNOWN = INTEGER | FLOAT
#: Types by their names, and functions and attributes whose result has one kind whatever they are given.
_FLOATS = ("float16", "float32", "float64", "float")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int", "len", "round")
_WHOLE = (
    "grid", "gridsize", "popc", "clz", "ffs", "brev", "ballot_sync", "all_sync", "any_sync", "syncthreads_count",
    "syncthreads_and", "syncthreads_or",
)  # fmt: skip
_SIZES = ("x", "y", "z", "laneid", "warpsize", "shape", "size", "ndim")

#: What Python has and a kernel has not, with what to write instead.
_REFUSED: dict[type[ast.AST], str] = {
    ast.NamedExpr: "assigns within an expression; write the assignment on a line of its own",
    ast.ListComp: "makes a list, for which a thread has no memory; write a loop",
    ast.SetComp: "makes a set, for which a thread has no memory",
    ast.DictComp: "makes a dictionary, for which a thread has no memory",
    ast.GeneratorExp: "makes a generator, which a kernel has not; write a loop",
    ast.List: "is a list, for which a thread has no memory; write a tuple, or take cuda.local.array",
    ast.Dict: "is a dictionary, for which a thread has no memory",
    ast.Set: "is a set, for which a thread has no memory",
    ast.Starred: "takes a tuple apart with a star; name its parts one by one",
    ast.Import: "imports within the kernel; import above it",
    ast.ImportFrom: "imports within the kernel; import above it",
    ast.Delete: "takes a name away, which the compiler does not do; leave it",
    ast.Global: "binds a name outside the kernel, which a thread cannot change",
    ast.Nonlocal: "binds a name outside the kernel, which a thread cannot change",
    ast.Try: "handles exceptions, which a kernel cannot",
    ast.With: "is a with statement, which a kernel cannot have",
    ast.Yield: "makes a generator, which a kernel cannot be",
    ast.YieldFrom: "makes a generator, which a kernel cannot be",
    ast.Await: "waits for a coroutine, which a kernel cannot",
    ast.ClassDef: "makes a class, which a kernel cannot",
}


def _refuse(definition: ast.FunctionDef) -> None:
    """Raise UnsupportedError at the first thing in the source that numba's compiler does not take."""
    for node in ast.walk(definition):
        if type(node) in _REFUSED and isinstance(getattr(node, "ctx", None), ast.Load | None):
            text = ast.unparse(node).splitlines()[0]
            line: int = node.lineno  # type: ignore[attr-defined]
            raise UnsupportedError(f"line {line}: {text} {_REFUSED[type(node)]}", line=line)
    for node in ast.walk(definition):
        if isinstance(node, ast.FunctionDef) and node is not definition:
            names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
            if node.name in names:
                text = f"line {node.lineno}: {node.name} calls itself; a thread has a small stack, so write a loop"
                raise UnsupportedError(text, line=node.lineno)


class _Annotations(ast.NodeTransformer):
    """Turns ``a: T = value`` into ``a = value``: within a function an annotation means nothing."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)


class _Kinds:
    """What can be told from the source about which expressions are integers.

    A compiler gives float64 where an int64 meets a float32. Looking at every operand would be slow, so
    only those operations are watched that may mix the two.
    """

    def __init__(self, definition: ast.FunctionDef, known: Mapping[str, int]) -> None:
        parameters = [a.arg for n in ast.walk(definition) if isinstance(n, ast.arguments) for a in n.args]
        self.outside = known
        self.names = {name: known.get(name, UNKNOWN) for name in parameters}
        assigned = [pair for node in ast.walk(definition) for pair in self._assigned(node)]
        for name, _ in assigned:
            self.names.setdefault(name, 0)
        grown = True
        while grown:  # names that depend on names
            before = dict(self.names)
            for name, value in assigned:
                self.names[name] |= value if isinstance(value, int) else self.kind(value)
            grown = self.names != before

    def _assigned(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | int]]:
        """Each name that a statement binds, with the value or, where that is no expression, its kind."""
        if isinstance(node, ast.For):
            values: list[ast.expr | int] = [UNKNOWN]
            if isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") == "range":
                values = [INTEGER]
            elif isinstance(node.iter, ast.Tuple):
                values = list(node.iter.elts)
            yield from ((name, value) for name in _stored(node.target) for value in values)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                yield from ((name, value) for part, value in pairs for name in _stored(part))
        elif isinstance(node, ast.FunctionDef | ast.Lambda | ast.MatchAs | ast.MatchStar):
            name = getattr(node, "name", None)
            if name:
                yield name, UNKNOWN

    def kind(self, node: ast.expr) -> int:
        """Whether an expression may be an integer, a float, or either; 0 while nothing is known."""
        if isinstance(node, ast.Constant):
            return INTEGER if type(node.value) is int else FLOAT
        if isinstance(node, ast.Name):
            return self.names[node.id] if node.id in self.names else self.outside.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            return INTEGER if node.attr in _SIZES else UNKNOWN
        if isinstance(node, ast.Subscript):
            return self.kind(node.value)
        if isinstance(node, ast.UnaryOp):
            return FLOAT if isinstance(node.op, ast.Not) else self.kind(node.operand)
        if isinstance(node, ast.IfExp):
            return self.kind(node.body) | self.kind(node.orelse)
        if isinstance(node, ast.BinOp):
            return self._of_two(self.kind(node.left), node.op, self.kind(node.right))
        if isinstance(node, ast.Tuple | ast.BoolOp):
            parts = node.elts if isinstance(node, ast.Tuple) else node.values
            return self._any([self.kind(part) for part in parts])
        if isinstance(node, ast.Call):
            return self._of_call(node)
        return FLOAT if isinstance(node, ast.Compare) else UNKNOWN

    @staticmethod
    def _any(kinds: list[int]) -> int:
        result = 0
        for kind in kinds:
            result |= kind
        return result

    @staticmethod
    def _of_two(left: int, op: ast.operator, right: int) -> int:
        if isinstance(op, ast.Div):
            return FLOAT
        if not (left and right):
            return 0
        return (left | right) & FLOAT | left & right & INTEGER

    def _of_call(self, node: ast.Call) -> int:
        function = node.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        arguments = [self.kind(argument) for argument in node.args]
        if name in _FLOATS:
            return FLOAT
        if name in _INTEGERS or name in _WHOLE:
            return INTEGER
        if name == "array":
            dtype = next((k.value for k in node.keywords if k.arg == "dtype"), node.args[-1] if node.args else None)
            named = dtype.id if isinstance(dtype, ast.Name) else getattr(dtype, "attr", "")
            return FLOAT if named in _FLOATS else INTEGER if named in _INTEGERS else UNKNOWN
        if name in ("max", "min", "abs") and isinstance(function, ast.Name):
            return FLOAT if FLOAT in arguments else self._any(arguments)
        if name.startswith("shfl") and len(arguments) > 1:
            return arguments[1]
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Attribute) and arguments:
            return arguments[0] if function.value.attr == "atomic" else UNKNOWN
        of_math = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "math"
        return FLOAT if of_math and name != "frexp" else UNKNOWN

    def may_mix(self, left: ast.expr, op: ast.operator, right: ast.expr) -> bool:
        """Whether an operation may have an integer on one side and a float on the other."""
        if type(op) not in _MIXED:
            return False
        a, b = self.kind(left), self.kind(right)
        return bool((a & INTEGER and b & FLOAT) or (a & FLOAT and b & INTEGER))


def _stored(target: ast.expr) -> list[str]:
    """Names that an assignment to a target binds."""
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


class _Rewriter(ast.NodeTransformer):
    def __init__(self, definition: ast.FunctionDef, lines: list[str], first: int, kinds: Mapping[str, int]) -> None:
        self.definition, self.lines, self.first = definition, lines, first
        self.kinds = _Kinds(definition, kinds)
        self.constants: dict[str, Any] = {}
        self.bound = _bound(definition)
        self.arrays = _array_names(definition, self.bound)
        self.named = {
            id(call): name
            for name, value in reversed(self.bound)
            for call in ast.walk(value)
            if isinstance(call, ast.Call) and _makes_array(call, set())
        }
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
        if any(isinstance(index, ast.Slice) for index in _parts(node)):
            return self._view(node)
        return self._call(node, "ld", [self._site(node, LOAD), *self._indices(node)])

    def _view(self, node: ast.Subscript) -> ast.Call:
        """``a[i, lo:hi]`` as a view: each slice becomes a pair of bounds."""
        indices: list[ast.expr] = []
        for index in _parts(node):
            if isinstance(index, ast.Slice):
                if index.step is not None:
                    raise UnsupportedError(
                        f"line {node.lineno}: {ast.unparse(node)} has a step; compute the index instead",
                        line=node.lineno,
                    )
                bounds = [bound or ast.Constant(None) for bound in (index.lower, index.upper)]
                indices.append(ast.Tuple(bounds, ast.Load()))
            else:
                indices.append(index)
        function = ast.Attribute(ast.Name(self._name(node.value), ast.Load()), "part", ast.Load())
        return ast.copy_location(ast.Call(function, [self._site(node, LOAD), *indices], []), node)

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
            if isinstance(node.target, ast.Name) and self.kinds.may_mix(node.target, node.op, node.value):
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
        elif self.kinds.may_mix(target, node.op, node.value):
            new = self._mixed(node.op, old, value, node)
        else:
            new = ast.BinOp(old, node.op, value)
        store = self._call(target, "st", [self._site(target, STORE), new, *indices])
        return [*statements, ast.copy_location(ast.Expr(store), node)]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        makes_array = _makes_array(node, set())
        if makes_array:
            self._hold_sizes_constant(node)
        self.generic_visit(node)
        function = node.func
        if makes_array:
            declared = Declared(node.lineno, self.named.get(id(node), f"array_{node.lineno}"))
            node.keywords.append(ast.keyword("place", ast.Constant(SITES.declare(declared))))
        elif (
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
        shape = next((k.value for k in node.keywords if k.arg == "shape"), node.args[0] if node.args else None)
        if shape is None or self._is_constant(shape):
            return
        sizes = shape.elts if isinstance(shape, ast.Tuple) else [shape]
        size = next(size for size in sizes if not self._is_constant(size))
        raise UnsupportedError(
            f"line {node.lineno}: the size {ast.unparse(size)} is not known when the kernel is compiled; a shared "
            "or local array takes a number, or the name of a constant outside the kernel",
            line=node.lineno,
        )

    def _is_constant(self, size: ast.expr) -> bool:
        """Whether the compiler knows a size: a number, a name from outside, or a local name for one of these."""
        if isinstance(size, ast.Tuple):
            return all(self._is_constant(part) for part in size.elts)
        if isinstance(size, ast.Name) and size.id in self.kinds.names:
            values = [value for name, value in self.bound if name == size.id]
            once = sum(size.id in _stored(n) for n in ast.walk(self.definition) if isinstance(n, ast.expr)) == 1
            return once and len(values) == 1 and self._is_constant(values[0])
        return isinstance(size, ast.Name) or not any(isinstance(part, ast.Name) for part in ast.walk(size))

    def _store(self, target: ast.Subscript, value: ast.expr) -> ast.stmt:
        indices = [self.visit(index) for index in self._indices(target)]
        return ast.Expr(self._call(target, "st", [self._site(target, STORE), value, *indices]))

    def _call(self, node: ast.Subscript, method: str, arguments: list[ast.expr]) -> ast.Call:
        indices = len(arguments) - (1 if method == "ld" else 2)
        method += str(indices) if indices in (1, 2) else ""
        function = ast.Attribute(ast.Name(self._name(node.value), ast.Load()), method, ast.Load())
        return ast.copy_location(ast.Call(function, arguments, []), node)

    def _indices(self, node: ast.Subscript) -> list[ast.expr]:
        found = _parts(node)
        for index in found:
            if isinstance(index, ast.Slice):
                raise UnsupportedError(
                    f"line {node.lineno}: {ast.unparse(node)} writes a part of an array; a thread reads and writes "
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
        mixes = self.kinds.may_mix(node.left, node.op, node.right)
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


def _parts(node: ast.Subscript) -> list[ast.expr]:
    """The indices between the brackets."""
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _bound(definition: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """Each name that an assignment or a loop over a tuple binds, with what it is bound to."""
    pairs = [
        pair
        for node in ast.walk(definition)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for pair in _bindings(target, node.value)
    ]
    for node in ast.walk(definition):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            pairs += [pair for element in node.iter.elts for pair in _bindings(node.target, element)]
    return pairs


def _array_names(definition: ast.FunctionDef, bound: list[tuple[str, ast.expr]]) -> set[str]:
    """Names that hold arrays: parameters, results of ``….array(…)``, parts, and other names for these.

    Two arrays in turn have a name as well: ``a if k % 2 == 0 else b``, and ``for a in (b, c)``.
    """
    names = {a.arg for node in ast.walk(definition) if isinstance(node, ast.arguments) for a in node.args}
    grown = True
    while grown:
        grown = False
        for name, value in bound:
            if name not in names and _makes_array(value, names):
                names.add(name)
                grown = True
    return names


def _makes_array(value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.IfExp):
        return _makes_array(value.body, names) or _makes_array(value.orelse, names)
    if isinstance(value, ast.Name):
        return value.id in names
    if isinstance(value, ast.Subscript):
        return _makes_array(value.value, names) and any(isinstance(index, ast.Slice) for index in _parts(value))
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "array"


def _bindings(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Each name that an assignment binds with what it is bound to; ``a, b = x, y`` binds two."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple):
        for inner, bound in zip(target.elts, value.elts, strict=False):
            yield from _bindings(inner, bound)

"""Which files of labsupport a notebook can reach, found by reading imports and never by running code.

The answer decides whether a notebook is executed again, so it must not miss a file that is imported by name:
an import that cannot be resolved is a fault. Imports under TYPE_CHECKING are not followed; ``LAZY`` tables are,
for the names that are used.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from labsupport.authoring.faults import Fault, SourceError

PACKAGE = "labsupport"
GRADING = ("check", "hint", "solution", "progress")


@dataclass
class Reached:
    """Modules that a piece of code names, and the imports in it that lead nowhere (line, name)."""

    modules: set[str] = field(default_factory=set)
    broken: list[tuple[int, str]] = field(default_factory=list)


class Module:
    """One file of the package, parsed: the names it defines and its table of lazily loaded names."""

    def __init__(self, name: str, path: Path):
        self.name = name
        self.path = path
        self.is_package = path.name == "__init__.py"
        self.tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))

    @cached_property
    def lazy(self) -> dict[str, str]:
        """Public name -> module that is loaded on first use (a module-level dict called LAZY)."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, ast.AnnAssign) and node.value:
                targets, value = [node.target], node.value
            else:
                continue
            if any(isinstance(target, ast.Name) and target.id in ("LAZY", "_LAZY") for target in targets):
                table: dict[str, str] = ast.literal_eval(value)
                return {name: f"{self.name}{to}" if to.startswith(".") else to for name, to in table.items()}
        return {}

    @cached_property
    def spelled(self) -> set[str]:
        """Every string that the module spells out; asked for once an exercise id, so walked once."""
        return {
            node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }

    @cached_property
    def defined(self) -> set[str]:
        """Every name that the module binds anywhere outside functions and classes."""
        names: set[str] = set()
        waiting: list[ast.AST] = list(self.tree.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            waiting += ast.iter_child_nodes(node)
        return names


class Graph:
    """The import graph of the package in one tree; each file is read once."""

    def __init__(self, root: Path):
        self.root = root
        self._modules: dict[str, Module | None] = {}
        self._reached: dict[str, Reached] = {}
        self._below: dict[Path, list[Path]] = {}

    def module(self, name: str) -> Module | None:
        """The module called ``name``, or None where the package has no such file."""
        if name not in self._modules:
            base = self.root.joinpath(*name.split("."))
            path = next((p for p in (base / "__init__.py", base.with_suffix(".py")) if p.is_file()), None)
            self._modules[name] = self._parsed(name, path) if path else None
        return self._modules[name]

    def _parsed(self, name: str, path: Path) -> Module:
        try:
            return Module(name, path)
        except SyntaxError as error:
            shown = path.relative_to(self.root)
            problem = f"the file is no Python: {error.msg}"
            raise SourceError(
                [Fault(path=shown, line=error.lineno or 1, problem=problem, remedy="correct it")]
            ) from error

    def files(self, code: list[tuple[int, str]], shown: Path, chapter: str) -> list[Path]:
        """Files under the root that the code cells ``(first line, text)`` can reach, sorted, relative to the root.

        ``chapter`` is the stem ``NN-name``; it names the exercise records that belong to the notebook.
        Raises SourceError for an import that leads nowhere, here or in a file that is reached.
        """
        start, faults = self._start(code, shown, chapter)
        seen: set[str] = set()
        waiting = sorted(start)
        while waiting:
            name = waiting.pop()
            found = self.module(name)
            if name in seen or found is None:
                continue
            seen.add(name)
            if name not in self._reached:
                self._reached[name] = self._named_in(found.tree, found)
            reached = self._reached[name]
            faults += [
                Fault(
                    path=found.path.relative_to(self.root),
                    line=line,
                    problem=f"{target} does not exist",
                    remedy="mend the import",
                )
                for line, target in reached.broken
            ]
            waiting += reached.modules
        if faults:
            raise SourceError(sorted(set(faults)))
        paths = {path for name in seen if (found := self.module(name)) for path in (found.path, *self._data(found))}
        return sorted(path.relative_to(self.root) for path in paths)

    def _start(self, code: list[tuple[int, str]], shown: Path, chapter: str) -> tuple[set[str], list[Fault]]:
        """What the cells of a notebook name directly: modules, and the records of the exercises they check."""
        start: set[str] = set()
        faults = []
        whole = ast.Module(body=[], type_ignores=[])
        for line, text in code:
            tree = _parse(line, text, shown)
            ast.increment_lineno(tree, line - 1)
            whole.body += tree.body
        reached = self._named_in(whole, None)
        start |= reached.modules
        for line, target in reached.broken:
            faults.append(Fault(path=shown, line=line, problem=f"{target} does not exist", remedy="mend the import"))
        graded = False
        for node in ast.walk(whole):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in GRADING:
                graded = True
                if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                    records = self._records(node.args[0].value)
                    start |= records
                    if not records:
                        faults.append(
                            Fault(
                                path=shown,
                                line=node.lineno,
                                problem=f"no record of the exercise {node.args[0].value!r}",
                                remedy=f"write one in {PACKAGE}/exercises, or correct the id",
                            )
                        )
        if graded:
            start |= {f"{PACKAGE}.exercises", f"{PACKAGE}.exercises.{chapter[3:].replace('-', '_')}"}
        return start, faults

    @cached_property
    def _record_modules(self) -> list[Module]:
        """Every module of labsupport.exercises; the records of a chapter are one module or a package of several."""
        paths = sorted(self.root.glob(f"{PACKAGE}/exercises/**/*.py"))
        found = [self.module(_dotted(path.relative_to(self.root))) for path in paths]
        return [module for module in found if module]

    def _records(self, exercise: str) -> set[str]:
        """Modules of labsupport.exercises that spell the id."""
        return {module.name for module in self._record_modules if exercise in module.spelled}

    def _named_in(self, tree: ast.AST, home: Module | None) -> Reached:
        """Modules of the package that ``tree`` names; ``home`` is the module it belongs to, for relative imports."""
        reached = Reached()
        bound: dict[str, str] = {}
        if home:
            self._add(home.name, reached)
        nodes = list(_walk(tree))
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] == PACKAGE:
                        self._add(alias.name, reached, node.lineno)
                        bound[alias.asname or PACKAGE] = alias.name if alias.asname else PACKAGE
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node, home, reached, bound)
            elif isinstance(node, ast.Call) and (name := _import_module(node)):
                self._add(name, reached, node.lineno)
        for node in nodes:
            if isinstance(node, ast.Attribute) and (chain := _chain(node)) and chain[0] in bound:
                self._follow(bound[chain[0]], chain[1:], reached)
        return reached

    def _add(self, name: str, reached: Reached, line: int = 0) -> bool:
        """Add a module and the packages above it; note it as broken where it does not exist."""
        if self.module(name) is None:
            reached.broken.append((line, name))
            return False
        parts = name.split(".")
        reached.modules |= {".".join(parts[: n + 1]) for n in range(len(parts))}
        return True

    def _import_from(self, node: ast.ImportFrom, home: Module | None, reached: Reached, bound: dict[str, str]) -> None:
        base = node.module or ""
        if node.level and home:
            parts = home.name.split(".")
            above = parts[: len(parts) - node.level + home.is_package]
            base = ".".join([*above, *([node.module] if node.module else [])])
        if base.split(".")[0] != PACKAGE or not self._add(base, reached, node.lineno):
            return
        for alias in node.names:
            if self._name(base, alias.name, reached):
                bound[alias.asname or alias.name] = f"{base}.{alias.name}"
            elif not self._offers(base, alias.name, reached):
                reached.broken.append((node.lineno, f"{base}.{alias.name}"))

    def _name(self, base: str, name: str, reached: Reached) -> bool:
        """Whether ``base.name`` is a module, which is then added."""
        return self.module(f"{base}.{name}") is not None and self._add(f"{base}.{name}", reached)

    def _offers(self, base: str, name: str, reached: Reached) -> bool:
        """Whether ``from base import name`` finds an object; what a lazy name needs is added."""
        module = self.module(base)
        if module is None:
            return False
        if name == "*":
            for target in module.lazy.values():
                self._add(target, reached)
            return True
        if name in module.lazy:
            target = module.lazy[name]
            return self._add(target, reached) and (
                self._name(target, name, reached) or self._offers(target, name, reached)
            )
        if name in module.defined:
            return True
        if "__getattr__" in module.defined and module.is_package and not module.lazy:
            # The package loads names in a way that cannot be read: it may reach any file of its own.
            for path in sorted(module.path.parent.glob("*.py")):
                if path.stem != "__init__":
                    self._add(f"{base}.{path.stem}", reached)
            return True
        return False

    def _follow(self, base: str, attributes: list[str], reached: Reached) -> None:
        """Add what an attribute chain such as ``figures.softmax_and_kl.temperature`` loads on first use."""
        for name in attributes:
            module = self.module(base)
            if module and name in module.lazy:
                self._offers(base, name, reached)
                return
            if not self._name(base, name, reached):
                return
            base = f"{base}.{name}"

    def _folders(self, place: Path) -> list[Path]:
        """Folders beside a module, looked up once a place."""
        if place not in self._below:
            self._below[place] = sorted(folder for folder in place.iterdir() if folder.is_dir())
        return self._below[place]

    def _data(self, module: Module) -> Iterator[Path]:
        """Data files of a module: those of a folder beside it that it calls by name and that holds no modules."""
        for folder in self._folders(module.path.parent):
            if folder.name in module.spelled and not (folder / "__init__.py").exists():
                yield from (p for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)


def _dotted(path: Path) -> str:
    """The name of the module in a file: ``labsupport/ops/gemm.py`` is ``labsupport.ops.gemm``."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _parse(line: int, text: str, shown: Path) -> ast.Module:
    """A code cell as a syntax tree, its IPython magics blanked out."""
    plain = "\n".join("" if row.lstrip().startswith(("%", "!")) else row for row in text.split("\n"))
    if text.lstrip().startswith("%%"):
        plain = ""
    try:
        return ast.parse(plain)
    except SyntaxError as error:
        raise SourceError(
            [
                Fault(
                    path=shown,
                    line=line + (error.lineno or 1) - 1,
                    problem=f"the cell is no Python: {error.msg}",
                    remedy="correct it",
                )
            ]
        ) from error


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node except those under ``if TYPE_CHECKING``, which never run."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _chain(node: ast.expr) -> list[str]:
    """``a.b.c`` as its names; empty for anything that does not start at a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def _import_module(node: ast.Call) -> str:
    """The module of ``import_module("labsupport.…")`` where it is written out; empty otherwise."""
    called = (
        node.func.attr
        if isinstance(node.func, ast.Attribute)
        else node.func.id
        if isinstance(node.func, ast.Name)
        else ""
    )
    if called == "import_module" and node.args and isinstance(node.args[0], ast.Constant):
        name = str(node.args[0].value)
        return name if name.split(".")[0] == PACKAGE else ""
    return ""

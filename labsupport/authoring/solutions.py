"""One exercise source, two notebooks: what stands in the solution and what the reader gets to fill in.

A solution is a region inside a function (``# BEGIN SOLUTION`` … ``# END SOLUTION``) or a one-line assignment
that ends in ``# SOLUTION``. No part of a solution may reach an exercise notebook, and every slip in a
marker is a fault: a marker that is not understood would publish the answer.
"""

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from labsupport.authoring.faults import Fault, SourceError
from labsupport.authoring.source import Cell

BEGIN, END, INLINE = "# BEGIN SOLUTION", "# END SOLUTION", "# SOLUTION"
STUB = "...  # your code here"
MARKED = re.compile(r"^(?P<code>.*\S)\s+# SOLUTION$")
COMMENT = re.compile(r"#+\s*(.*?)\s*$")
LOOSE = re.compile(r"\b(begin|end)\b\W*\w*\W*\bsolu?t\w*|\bsolut?ion\b\W*\b(begin|end)\b", re.IGNORECASE)
#: A line this short, or one that only returns a name, says too little to count as a leaked solution.
SHORTEST_LEAK = 10
COMMONPLACE = re.compile(
    r"(return|import|yield|raise|del|pass|for|if|else|with)(\w+:?)?$|import\w+as\w+$|from\w+import\w+$"
)


@dataclass(frozen=True)
class Answer:
    """An exercise cell taken apart: the solved and the open cell, and the lines of the solution."""

    solved: Cell
    stub: Cell
    secret: tuple[tuple[int, str], ...]


def split(cells: list[Cell], shown: Path) -> tuple[list[Cell], list[Cell], list[tuple[int, str]]]:
    """(cells of the exercise notebook, cells of the solution notebook, the solutions' lines) of one exercise source.

    Raises SourceError with every slip found: in markers, in the order of answer and check, and for
    every line of a solution that would survive in the exercise notebook.
    """
    answers: dict[int, Answer] = {}
    faults = [*_order_faults(cells, shown)]
    for index, cell in enumerate(cells):
        try:
            if "exercise" in cell.tags:
                answers[index] = take_apart(cell, shown)
            else:
                refuse_markers(cell, shown)
        except SourceError as error:
            faults += error.faults
    opened = [
        answers[i].stub if i in answers else cell for i, cell in enumerate(cells) if "solution-only" not in cell.tags
    ]
    solved = [
        answers[i].solved if i in answers else cell for i, cell in enumerate(cells) if "exercise-only" not in cell.tags
    ]
    secret = [line for answer in answers.values() for line in answer.secret]
    faults += surviving(opened, secret, shown)
    if faults:
        raise SourceError(faults)
    return opened, solved, secret


def refuse_markers(cell: Cell, shown: Path) -> None:
    """Raise SourceError for every solution marker, well spelt or not, in a cell that is no answer cell."""
    faults = []
    for line, text in cell.lines():
        if looks_like_marker(text) or (cell.kind != "code" and LOOSE.search(text)):
            faults.append(
                Fault(
                    path=shown,
                    line=line,
                    problem="a solution marker outside an exercise cell",
                    remedy="give the code cell the option line `:tags: [exercise]`, or remove the marker",
                )
            )
    if faults:
        raise SourceError(faults)


def looks_like_marker(text: str) -> bool:
    """Whether a line holds a comment that is, or was meant to be, a solution marker."""
    comment = COMMENT.search(text)
    if comment is None:
        return False
    words = re.sub(r"[^A-Z]+", " ", comment[1].upper()).strip()
    near = difflib.get_close_matches(words, ["BEGIN SOLUTION", "END SOLUTION", "SOLUTION"], n=1, cutoff=0.8)
    return bool(near) or LOOSE.search(comment[1]) is not None


def take_apart(cell: Cell, shown: Path) -> Answer:
    """The answer cell as solution and as stub. Raises SourceError for each slip in its markers."""

    def fault(line: int, problem: str, remedy: str) -> None:
        faults.append(Fault(path=shown, line=line, problem=problem, remedy=remedy))

    faults: list[Fault] = []
    solved: list[tuple[int, str]] = []
    stub: list[tuple[int, str]] = []
    secret: list[tuple[int, str]] = []
    regions: list[tuple[int, int]] = []
    begun = 0
    found = 0
    for line, text in cell.lines():
        bare = text.strip()
        if bare == BEGIN:
            found += 1
            if begun:
                fault(line, f"{BEGIN} inside the region begun in line {begun}", f"close that one with {END} first")
            else:
                stub.append((line, text[: len(text) - len(text.lstrip())] + STUB))
            begun = line
        elif bare == END:
            if begun:
                regions.append((begun, line))
            else:
                fault(line, f"{END} without {BEGIN}", f"write {BEGIN} before the first line of the solution")
            begun = 0
        elif marked := MARKED.match(text):
            found += 1
            target = _assignment(marked["code"].strip())
            if begun:
                fault(line, f"{INLINE} inside a region", "remove it: the region already covers the line")
            elif target is None:
                fault(
                    line,
                    f"{INLINE} after something that is no one-line assignment",
                    f"write `name = value  {INLINE}` on one line, or a region inside a function",
                )
            else:
                indent = text[: len(text) - len(text.lstrip())]
                stub.append((line, f"{indent}{target} ..."))
                solved.append((line, marked["code"]))
                secret.append((line, marked["code"]))
        elif looks_like_marker(text):
            fault(
                line,
                f"{bare!r} looks like a solution marker but is none",
                f"write exactly {BEGIN}, {END}, or `name = value  {INLINE}`",
            )
        else:
            solved.append((line, text))
            if begun:
                secret.append((line, text))
            else:
                stub.append((line, text))
    if begun:
        fault(begun, f"{BEGIN} is never closed", f"write {END} after the last line of the solution")
    if not found and not faults:
        fault(
            cell.line,
            "the exercise cell has no solution",
            f"put {BEGIN} … {END} inside a function, or write `answer = value  {INLINE}`",
        )
    if not faults:
        faults += _place_faults(cell, regions, _with(cell, solved), _with(cell, stub), shown)
    if faults:
        raise SourceError(faults)
    return Answer(_with(cell, solved), _with(cell, stub), tuple(secret))


def _with(cell: Cell, lines: list[tuple[int, str]]) -> Cell:
    """The cell with other lines, each keeping its number in the source."""
    return replace(cell, source="\n".join(text for _, text in lines), numbers=tuple(number for number, _ in lines))


def _assignment(code: str) -> str | None:
    """The left side of a one-line assignment with its operator (``answer =``); None for anything else."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return None
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assign | ast.AnnAssign):
        return None
    value = tree.body[0].value
    # Bytes, not characters: the tree counts columns in UTF-8.
    return None if value is None else code.encode()[: value.col_offset].decode().rstrip("( ")


def _place_faults(cell: Cell, regions: list[tuple[int, int]], solved: Cell, stub: Cell, shown: Path) -> Iterator[Fault]:
    """Regions outside a function, empty regions, and texts that are no Python."""
    for part, name in (
        (cell, "the exercise cell"),
        (solved, "the solution"),
        (stub, "what remains without the solution"),
    ):
        try:
            ast.parse(part.source)
        except SyntaxError as error:
            numbers = [number for number, _ in part.lines()]
            yield Fault(
                path=shown,
                line=numbers[min((error.lineno or 1) - 1, len(numbers) - 1)],
                problem=f"{name} is no Python: {error.msg}",
                remedy="let each region hold whole statements, indented as its markers are",
            )
            return
    functions = [
        node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for begin, end in regions:
        held = [
            line
            for line, text in cell.lines()
            if begin < line < end and text.strip() and not text.strip().startswith("#")
        ]
        if not held:
            yield Fault(
                path=shown,
                line=begin,
                problem="the solution region is empty",
                remedy="write the solution between its markers",
            )
            continue
        first, last = held[0] - cell.line + 1, held[-1] - cell.line + 1
        if not any(node.body[0].lineno <= first and last <= (node.end_lineno or 0) for node in functions):
            yield Fault(
                path=shown,
                line=begin,
                problem="the solution region is not inside a function",
                remedy=f"move it into a def, or write `answer = value  {INLINE}`",
            )


def _check_call(cell: Cell) -> ast.Call | None:
    """The first ``check("id", …)`` of a code cell."""
    try:
        tree = ast.parse(cell.source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check" and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                return node
    return None


def checked_id(cell: Cell) -> tuple[str | None, int]:
    """(exercise id, line) of the first ``check("id", …)`` of a code cell; (None, first line) without one."""
    call = _check_call(cell)
    if call is None:
        return None, cell.line
    return ast.literal_eval(call.args[0]), cell.line + call.lineno - 1


def is_open_question(cell: Cell) -> bool:
    """Whether the cell asks ``check("id", ...)`` with no answer in it."""
    call = _check_call(cell)
    return (
        call is not None
        and len(call.args) == 2
        and isinstance(call.args[1], ast.Constant)
        and call.args[1].value is ...
    )


def _order_faults(cells: list[Cell], shown: Path) -> Iterator[Fault]:
    """Every answer cell has an id of its own and is followed by the check of that id."""
    seen: dict[str, int] = {}
    waiting: Cell | None = None

    def unchecked(cell: Cell) -> Fault:
        return Fault(
            path=shown,
            line=cell.line,
            problem=f"no check cell follows the exercise {cell.exercise!r}",
            remedy=f'add a code cell with `:tags: [check]` and check("{cell.exercise}", …) before the next exercise',
        )

    for cell in cells:
        if "exercise" in cell.tags:
            if waiting:
                yield unchecked(waiting)
            waiting = None
            if cell.kind != "code":
                yield Fault(
                    path=shown,
                    line=cell.line,
                    problem="the tag 'exercise' on a cell that holds no code",
                    remedy="put it on the answer cell",
                )
            elif cell.exercise is None:
                yield Fault(
                    path=shown,
                    line=cell.line,
                    problem="the exercise cell has no id",
                    remedy="add the option line `:exercise: its-id`",
                )
            elif not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cell.exercise) or len(cell.exercise) > 50:
                yield Fault(
                    path=shown,
                    line=cell.line,
                    problem=f"{cell.exercise!r} is no exercise id",
                    remedy="use lower-case words joined by hyphens, 50 characters at most",
                )
            elif cell.exercise in seen:
                yield Fault(
                    path=shown,
                    line=cell.line,
                    problem=f"the exercise id {cell.exercise!r} stands in line {seen[cell.exercise]} too",
                    remedy="give each exercise an id of its own",
                )
            else:
                seen[cell.exercise] = cell.line
                waiting = cell
        elif cell.exercise is not None:
            yield Fault(
                path=shown,
                line=cell.line,
                problem=f"`:exercise: {cell.exercise}` on a cell without the tag 'exercise'",
                remedy="add the option line `:tags: [exercise]`",
            )
        elif cell.kind == "code":
            name, line = checked_id(cell)
            if "check" in cell.tags and name is None:
                yield Fault(
                    path=shown,
                    line=cell.line,
                    problem="the check cell checks nothing",
                    remedy='call check("its-id", answer) in it, with the id written out',
                )
            elif "check" not in cell.tags and name is not None:
                yield Fault(
                    path=shown,
                    line=line,
                    problem=f"check({name!r}) in a cell without the tag 'check'",
                    remedy="add the option line `:tags: [check]`",
                )
            elif name is not None and waiting is None:
                yield Fault(
                    path=shown,
                    line=line,
                    problem=f"check({name!r}) follows no exercise cell of its own",
                    remedy="put one check cell after each exercise cell",
                )
            elif name is not None and waiting is not None:
                if name != waiting.exercise:
                    yield Fault(
                        path=shown,
                        line=line,
                        problem=f"check({name!r}) follows the exercise {waiting.exercise!r}",
                        remedy="use the same id in both cells",
                    )
                waiting = None
    if waiting:
        yield unchecked(waiting)


def telling(secret: list[tuple[int, str]]) -> dict[str, tuple[int, str]]:
    """The lines of a solution that would give it away, without spaces and comments -> (line, text)."""
    needles: dict[str, tuple[int, str]] = {}
    for line, text in secret:
        squeezed = _squeeze(text)
        if len(squeezed) >= SHORTEST_LEAK and not COMMONPLACE.match(squeezed):
            needles.setdefault(squeezed, (line, text.strip()))
    return needles


def surviving(cells: list[Cell], secret: list[tuple[int, str]], shown: Path) -> Iterator[Fault]:
    """A fault for each line of a solution that stands anywhere in the cells of the exercise notebook."""
    needles = telling(secret)
    for cell in cells:
        for line, text in cell.lines():
            squeezed = re.sub(r"\s", "", text)
            for needle, (origin, solution) in needles.items():
                if needle in squeezed:
                    yield Fault(
                        path=shown,
                        line=line,
                        problem=f"the solution line {solution!r} (line {origin}) stands in the exercise notebook too",
                        remedy="move this text into the solution region or into a solution-only cell",
                    )


def _squeeze(text: str) -> str:
    """A line without its comment and its spaces, so that formatting hides no leak."""
    return re.sub(r"\s", "", re.sub(r"\s#\s.*$", "", text)) if not text.strip().startswith("#") else ""

"""The static import graph: it follows every way in which a notebook reaches a file, and no way that it does not."""

from pathlib import Path

import pytest

from labsupport.authoring.dependencies import Graph
from labsupport.authoring.faults import SourceError

BASE = ["labsupport/__init__.py"]


def write(root: Path, **files: str) -> Graph:
    for name, text in {"__init__": "", **files}.items():
        path = root / "labsupport" / f"{name.replace('__in_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Graph(root)


def reach(graph: Graph, code: str) -> list[str]:
    return [path.as_posix()[len("labsupport/") :] for path in graph.files([(10, code)], Path("book/x.md"), "05-tiny")]


PACKAGE = {
    "__init__": 'from typing import TYPE_CHECKING\nLAZY = {"check": "labsupport.grading", "explore": "labsupport.figures"}\n'
    "if TYPE_CHECKING:\n    from labsupport.figures import explore\n",
    "grading/__init__": "from .judge import check, hint\n",
    "grading/judge": "from labsupport.ops import add as plus\ndef check(): ...\ndef hint(): ...\n",
    "figures/__init__": "from importlib import import_module\nfrom labsupport.figures import style\nexplore = 1\n"
    'def __getattr__(name):\n    return import_module(f"{__name__}.{name}")\n',
    "figures/style": "",
    "figures/tiny": "def draw():\n    from labsupport.ops import double\n",
    "figures/big": "",
    "exercises/__init__": "",
    "exercises/tiny": 'from labsupport.ops import double\nE = dict(id="twice")\n',
    "exercises/other": 'E = dict(id="other")\n',
    "exercises/shared_tiny": 'E = dict(id="thrice")\n',
    "exercises/parts/__init__": "from labsupport.exercises.parts import early, late\nE = (*early.E, *late.E)\n",
    "exercises/parts/early": 'from labsupport.exercises.parts.scales import unit\nE = (dict(id="first"),)\n',
    "exercises/parts/late": 'from labsupport.ops.add import x\nE = (dict(id="last"),)\n',
    "exercises/parts/scales": "unit = 1\n",
    "ops/__init__": "",
    "ops/add": "x = 1\n",
    "ops/double": "from labsupport.ops.add import *\n",
    "ops/late": 'import importlib\nm = importlib.import_module("labsupport.ops.add")\n',
    "cost": "import numpy, json\n",
    "records": 'from pathlib import Path\nRUNS = Path(__file__).parent / "runs"\n',
}
GRADING = [
    "__init__.py",
    "exercises/__init__.py",
    "exercises/tiny.py",
    "grading/__init__.py",
    "grading/judge.py",
    "ops/__init__.py",
    "ops/add.py",
    "ops/double.py",
]
PARTS = [f"exercises/parts/{name}.py" for name in ("__init__", "early", "late", "scales")]
FIGURES = ["__init__.py", "figures/__init__.py", "figures/style.py"]


@pytest.mark.parametrize(
    ("code", "reached"),
    [
        ("import numpy as np", []),
        ("import labsupport", ["__init__.py"]),
        ("import labsupport.cost as c", ["__init__.py", "cost.py"]),
        ("from labsupport.ops import double", ["__init__.py", "ops/__init__.py", "ops/add.py", "ops/double.py"]),
        ("def f():\n    from labsupport.ops import add", ["__init__.py", "ops/__init__.py", "ops/add.py"]),
        ("from labsupport.ops import late", ["__init__.py", "ops/__init__.py", "ops/add.py", "ops/late.py"]),
        ("from labsupport import explore", FIGURES),
        ("import labsupport\nlabsupport.explore(1)", FIGURES),
        ("from labsupport import figures\nfigures.explore(1)", FIGURES),
        ("from labsupport import figures\nfigures.tiny.draw()", [*FIGURES, "figures/tiny.py", "ops/__init__.py", "ops/add.py", "ops/double.py"]),
        ("from labsupport.figures import big", ["__init__.py", "figures/__init__.py", "figures/big.py", "figures/style.py"]),
        ("from labsupport.figures import unreadable", [*FIGURES[:2], "figures/big.py", "figures/style.py", "figures/tiny.py", "ops/__init__.py", "ops/add.py", "ops/double.py"]),
        ('from labsupport import check\ncheck("twice", 1)', GRADING),
        ('from labsupport.grading import hint\nhint("thrice")', sorted([*GRADING, "exercises/shared_tiny.py"])),
        # A record in a package: its other modules too, as importing one part runs the package's __init__.
        ('from labsupport.grading import hint\nhint("first")', sorted([*GRADING, *PARTS])),
        ('from labsupport.grading import hint\nhint("last")', sorted([*GRADING, *PARTS])),
        ("%matplotlib inline\nimport labsupport\n!ls", ["__init__.py"]),
        ("import labsupport.cost\nif labsupport.cost.x:\n    print(labsupport.ops.add)", ["__init__.py", "cost.py", "ops/__init__.py", "ops/add.py"]),
    ],
)  # fmt: skip
def test_what_a_cell_reaches(tmp_path: Path, code: str, reached: list[str]) -> None:
    assert reach(write(tmp_path, **PACKAGE), code) == reached


def test_a_chapter_whose_records_are_a_package_is_reached_whole_and_reaches_no_other_record(tmp_path: Path) -> None:
    files = {
        name.replace("parts", "tiny"): text.replace("parts", "tiny")
        for name, text in PACKAGE.items()
        if name != "exercises/tiny"
    }
    reached = reach(write(tmp_path, **files), "from labsupport.grading import hint\nhint(exercise)")
    assert [path for path in reached if path.startswith("exercises")] == [
        "exercises/__init__.py",
        *(f"exercises/tiny/{name}.py" for name in ("__init__", "early", "late", "scales")),
    ]


def test_data_beside_a_module_that_names_its_folder(tmp_path: Path) -> None:
    graph = write(tmp_path, **PACKAGE)
    (tmp_path / "labsupport" / "runs").mkdir()
    (tmp_path / "labsupport" / "runs" / "a.json").write_text("{}")
    assert reach(graph, "import labsupport.records") == ["__init__.py", "records.py", "runs/a.json"]
    assert reach(graph, "import labsupport.cost") == ["__init__.py", "cost.py"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("x = 1\nimport labsupport.opps", "book/x.md:11: labsupport.opps does not exist; mend the import"),
        ("from labsupport.opps import a", "book/x.md:10: labsupport.opps does not exist"),
        ("from labsupport.ops import dubble", "book/x.md:10: labsupport.ops.dubble does not exist"),
        ("from labsupport import chekc", "book/x.md:10: labsupport.chekc does not exist"),
        ("from labsupport.ops.add import missing", "book/x.md:10: labsupport.ops.add.missing does not exist"),
        ("from labsupport import bad", "labsupport/bad.py:2: labsupport.ops.gone does not exist"),
        (
            'from labsupport import check\n\ncheck("twise", 1)',
            "book/x.md:12: no record of the exercise 'twise'; write one in labsupport/exercises",
        ),
        ("x = (", "book/x.md:10: the cell is no Python"),
    ],
)
def test_an_import_that_leads_nowhere_is_a_fault(tmp_path: Path, code: str, told: str) -> None:
    graph = write(tmp_path, **PACKAGE, bad="import json\nfrom .ops.gone import x\n")
    with pytest.raises(SourceError) as error:
        reach(graph, code)
    assert str(error.value).startswith(told)


def test_modules_that_import_each_other(tmp_path: Path) -> None:
    graph = write(tmp_path, a="import labsupport.b", b="from labsupport import a")
    assert reach(graph, "import labsupport.a") == ["__init__.py", "a.py", "b.py"]


def test_this_package_can_be_read() -> None:
    graph = Graph(Path(__file__).resolve().parents[2])
    files = [path.as_posix() for path in graph.files([(1, "from labsupport import explore")], Path("x.md"), "05-x")]
    assert "labsupport/figures/__init__.py" in files
    assert not [path for path in files if path.startswith("labsupport/authoring")]

"""The shape of the package: public names, sizes, and no circles."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import mgcap

SOURCE = Path(mgcap.__file__).parent

#: What ``import mgcap`` offers; a name that goes missing breaks somebody's script.
PUBLIC = [
    "MGCAP", "BundleError", "DataError", "Finetune", "ImageError", "MGCAPConfig", "MgcapError", "Runtime",
    "SceneClassifier", "SceneDescriptor", "WeightsError", "__version__", "config", "data", "embedding", "head", "load",
    "pooling", "reduction", "spectral", "views",
]  # fmt: skip

#: What other scripts call by these names.
FUNCTIONS = {
    "views": ["make_views"],
    "embedding": ["gaussian_embedding"],
    "pooling": ["canonical_max", "pool_rotations"],
    "spectral": ["matrix_log", "matrix_sqrt"],
}

#: Constructors of estimators name all their parameters, as scikit-learn asks for it.
ESTIMATORS = {"classifier.py:__init__", "descriptor.py:__init__"}


def test_public_names() -> None:
    assert list(mgcap.__all__) == PUBLIC
    assert all(getattr(mgcap, name) is not None for name in PUBLIC)
    for module, names in FUNCTIONS.items():
        assert all(callable(getattr(getattr(mgcap, module), name)) for name in names)


def _functions() -> Iterator[tuple[str, int, int]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith("cli/"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                own = [argument for argument in given if argument.arg not in ("self", "cls")]
                yield f"{name}:{node.name}", (node.end_lineno or 0) - node.lineno + 1, len(own)


def test_files_and_functions_are_small() -> None:
    long = {path.name for path in SOURCE.rglob("*.py") if len(path.read_text().splitlines()) > 300}
    assert not long
    large = {name for name, lines, parameters in _functions() if lines > 60 or parameters > 8}
    assert large <= ESTIMATORS, large - ESTIMATORS


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph("mgcap", exclude_type_checking_imports=True)
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while True:
        wanted = set().union(*left.values())
        kept = {module: own & left.keys() for module, own in left.items() if own & left.keys() and module in wanted}
        if kept == left:
            break
        left = kept
    assert not left, f"these modules import each other: {sorted(left)}"


def _imported(folder: Path) -> set[str]:
    """Modules that files import, without what lies in them."""
    nodes = [node for path in folder.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"mgcap", "tests"}


def test_what_is_imported_is_declared() -> None:
    """And not what comes along with something else."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    own = [*project["dependencies"], *(line for name in extras if name != "dev" for line in extras[name])]
    owners = packages_distributions()
    for folder, lines in ((SOURCE, own), (Path(__file__).parent, [*own, *extras["dev"]])):
        declared = {canonicalize_name(Requirement(line).name) for line in lines}
        missing = {
            module
            for module in _imported(folder)
            if not {canonicalize_name(name) for name in owners.get(module, [module])} & declared
        }
        assert not missing

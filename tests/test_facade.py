"""What importing the packages does, and does not do."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import segmentstream
import segmentstream_connections_runtime

_PACKAGES = {
    package.__name__: Path(package.__path__[0])
    for package in (segmentstream, segmentstream_connections_runtime)
}
_FACADE = _PACKAGES["segmentstream"] / "__init__.py"
_FILES = {
    ".".join([name, *file.relative_to(folder).with_suffix("").parts]).removesuffix(
        ".__init__"
    ): file
    for name, folder in _PACKAGES.items()
    for file in sorted(folder.rglob("*.py"))
}

_HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"dagster", "duckdb", "ibis"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""

# Imports each module named in argv as the first of its package. What it may not do is refused by
# an audit hook, which sees also what a library does on its behalf; the environment is a mapping
# that keeps a list of who asked for what.
_IMPORT_EACH = """
import os
import sys
from importlib import import_module

writing = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
asked = []
refused = []

class Watched(dict):
    def __getitem__(self, name):
        self._note(name)
        return super().__getitem__(name)
    def get(self, name, default=None):
        self._note(name)
        return super().get(name, default)
    def __contains__(self, name):
        self._note(name)
        return super().__contains__(name)
    def _note(self, name):
        if str(name).startswith("SEGMENTSTREAM_"):
            asked.append(name)

def watch(event, arguments):
    # urllib3 asks the system whether it knows IPv6; nothing leaves the machine.
    if event == "socket.bind" and arguments[1] == ("::1", 0):
        return
    if (event == "open" and arguments[2] & writing and arguments[0] != os.devnull) or event in {
        "os.mkdir", "socket.bind", "socket.connect", "socket.getaddrinfo"
    }:
        refused.append((event, arguments))
        raise PermissionError(event, arguments)

os.environ = Watched(os.environ)
assert "SEGMENTSTREAM_PROBE" not in os.environ and asked.pop() == "SEGMENTSTREAM_PROBE"
sys.addaudithook(watch)
for attempt in (lambda: open("probe", "w"), lambda: os.open("probe", os.O_CREAT | os.O_RDWR)):
    try:
        attempt()
    except PermissionError:
        refused.pop()

for module in sys.argv[1:]:
    for loaded in [name for name in sys.modules if name.startswith("segmentstream")]:
        del sys.modules[loaded]
    import_module(module)
    assert not asked, (module, asked)
    assert not refused, (module, refused)
"""


def test_importing_the_package_loads_no_library(tmp_path: Path) -> None:
    """`import segmentstream` costs nothing: neither Dagster nor Ibis nor pydantic is loaded."""
    printed = _run("import segmentstream, sys; print(*sys.modules)", tmp_path)
    loaded = {name.partition(".")[0] for name in printed.split()}

    assert "segmentstream" in loaded
    assert not loaded & {"dagster", "duckdb", "ibis", "pandas", "pyarrow", "pydantic", "sqlglot"}


@pytest.mark.parametrize("name", segmentstream.__all__)
def test_every_public_name_is_the_one_of_its_home(name: str) -> None:
    """A public name is the object that the module it is imported from defines."""
    home = import_module(_imported_for_types()[name])

    assert getattr(segmentstream, name) is getattr(home, name)


def test_every_public_name_is_written_down_in_each_place() -> None:
    """What type checkers import is what the list promises and what is loaded on first use."""
    homes = {name: f"segmentstream.{home}" for name, home in segmentstream._HOMES.items()}
    imported = _imported_for_types()

    assert sorted(imported) == sorted(segmentstream.__all__)
    assert set(homes) <= set(imported)
    assert imported == dict.fromkeys(imported, "segmentstream._core.errors") | homes


def test_the_public_names_are_sorted() -> None:
    """Constants come first, then classes, then functions, each in order and only once."""
    assert list(segmentstream.__all__) == sorted(set(segmentstream.__all__), key=_isort_order)


def test_every_public_name_can_be_listed() -> None:
    """`dir()` and the completion of an editor show what has not been loaded yet."""
    assert set(segmentstream.__all__) <= set(dir(segmentstream))


def test_no_name_is_listed_twice() -> None:
    """`dir()` shows a name once, also after it has been loaded."""
    loaded = segmentstream.WarehouseError.__name__

    assert dir(segmentstream).count(loaded) == 1


@pytest.mark.parametrize("name", ["Warehouse", "_dagster_", "dag", "__path", "create_engine"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    """Asking for what is not there fails as in any module, naming the module and the name."""
    with pytest.raises(AttributeError, match=f"module 'segmentstream' has no attribute '{name}'"):
        getattr(segmentstream, name)


def test_every_name_can_be_imported_at_once(tmp_path: Path) -> None:
    """`from segmentstream import *` brings the public names and no others, without a warning."""
    code = (
        "before = set(dir())\n"
        "from segmentstream import *\n"
        "print(*sorted(set(dir()) - before - {'before'}))\n"
    )

    assert _run(code, tmp_path, "-W", "error").split() == sorted(segmentstream.__all__)


def test_connections_are_declared_without_dagster_and_ibis(tmp_path: Path) -> None:
    """Where neither Dagster nor Ibis can be imported, a connection is declared all the same."""
    code = """
from segmentstream.connections import OAuth2Connection, secret_ref

print(
    OAuth2Connection(
        key="google_ads",
        name="Google Ads",
        provider="google",
        authorization_url="https://accounts.google.com/o/oauth2/v2/auth",
        token_url="https://oauth2.googleapis.com/token",
        client_id=secret_ref("google-oauth-client-id"),
        client_secret=secret_ref("google-oauth-client-secret"),
        scopes=["https://www.googleapis.com/auth/adwords"],
    ).key
)
try:
    import dagster
except ModuleNotFoundError:
    print("without dagster")
"""

    assert _run(_HIDE + code, tmp_path) == "google_ads\nwithout dagster\n"


@pytest.mark.parametrize("module", _FILES)
def test_no_module_imports_the_root_package(module: str) -> None:
    """A module inside takes what it needs from where it is defined, never through the facade."""
    found = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(_FILES[module].read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "segmentstream" in _imported_modules(node, module)
    ]

    assert found == []


def test_importing_a_module_does_nothing(tmp_path: Path) -> None:
    """Each module can be imported first, and none reads our variables, writes or connects."""
    catalog = tmp_path / "warehouse.duckdb"
    modules = [name for name in _FILES if not name.endswith("__main__")]

    _run(
        _IMPORT_EACH,
        tmp_path,
        "-B",
        arguments=modules,
        variables={
            "SEGMENTSTREAM_WAREHOUSE_ENGINE": "duckdb",
            "SEGMENTSTREAM_WAREHOUSE_CATALOG": str(catalog),
            "SEGMENTSTREAM_WAREHOUSE_DEFAULT_NAMESPACE": "main",
        },
    )

    assert list(tmp_path.iterdir()) == []


def _run(
    code: str,
    folder: Path,
    *options: str,
    arguments: list[str] | None = None,
    variables: dict[str, str] | None = None,
) -> str:
    """Runs code in a fresh interpreter, and gives what it printed."""
    done = subprocess.run(
        [sys.executable, "-I", *options, "-c", code, *(arguments or [])],
        cwd=folder,
        env=os.environ | (variables or {}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _imported_for_types() -> dict[str, str]:
    """The names that the facade imports for type checkers only, each with its module."""
    tree = ast.parse(_FACADE.read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: str(imported.module)
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for imported in node.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }


def _isort_order(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def _imported_modules(node: ast.Import | ast.ImportFrom, module: str) -> Iterator[str]:
    """The modules that a statement asks for, relative ones written out."""
    if isinstance(node, ast.Import):
        # Without `as`, `import a.b` binds `a` itself.
        yield from (
            alias.name if alias.asname else alias.name.partition(".")[0] for alias in node.names
        )
        return
    if not node.level:
        yield node.module or ""
        return
    is_package = _FILES[module].name == "__init__.py"
    parents = module.split(".")[: -(node.level - is_package) or None]
    yield ".".join([*parents, *filter(None, [node.module])])

"""Parses and analyzes BigQuery SQL with ZetaSQL; run by the interpreter of `.venv-zetasql`.

Reads requests from standard input and answers each with a line, both in JSON:

    {"sql": "SELECT a FROM `p`.`d`.`t`", "tables": {"p.d.t": {"a": "INT64"}}}
    {"parsed": ["query"], "error": null, "analyzed": true}

The SQL may be a script. With `null` for tables it is parsed only. With tables every statement is
analyzed too, in order, and knows the tables and functions that those before it create. A script
that declares variables or branches is parsed only: ZetaSQL analyzes no such statement.

ZetaSQL is WebAssembly. Its machine code is kept in the environment, so that it is compiled once.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tzdata
import wasmtime
from zetasql.wasi import get_wasm_path
from zetasql.wasi._pb2.zetasql.local_service import local_service_pb2 as service_pb2
from zetasql.wasi._pb2.zetasql.parser.parse_tree_pb2 import AnyASTScriptStatementProto
from zetasql.wasi._pb2.zetasql.proto.options_pb2 import AnalyzerOptionsProto, LanguageOptionsProto
from zetasql.wasi._pb2.zetasql.proto.simple_catalog_pb2 import SimpleCatalogProto
from zetasql.wasi._pb2.zetasql.public import options_pb2 as language
from zetasql.wasi._pb2.zetasql.public.function_pb2 import FunctionEnums
from zetasql.wasi._pb2.zetasql.public.simple_table_pb2 import SimpleColumnProto

# Messages and WebAssembly's objects: their packages are not in the environment that checks types.
type Untyped = Any
type Columns = Mapping[str, str]

_MACHINE_CODE = Path(sys.prefix) / "zetasql.machine-code"

# What BigQuery has of what ZetaSQL can do. Left out on purpose, for BigQuery refuses them: comparing
# and ordering arrays and JSON, casting arrays to other arrays, timestamps finer than microseconds,
# lambdas, THEN RETURN.
_FEATURES = """
    ADDITIONAL_STRING_FUNCTIONS ALLOW_CONSECUTIVE_ON ALLOW_DASHES_IN_TABLE_NAME
    ALLOW_REGEXP_EXTRACT_OPTIONALS ALTER_COLUMN_SET_DATA_TYPE ALTER_TABLE_RENAME_COLUMN
    ANALYTIC_FUNCTIONS ANNOTATION_FRAMEWORK BARE_ARRAY_ACCESS BIGNUMERIC_TYPE BY_NAME CASE_STMT
    CBRT_FUNCTIONS CIVIL_TIME CLONE_DATA COLLATION_SUPPORT COLUMN_DEFAULT_VALUE CONCAT_MIXED_TYPES
    CORRESPONDING CREATE_AGGREGATE_FUNCTION CREATE_SNAPSHOT_TABLE CREATE_TABLE_AS_SELECT_COLUMN_LIST
    CREATE_TABLE_CLONE CREATE_TABLE_CLUSTER_BY CREATE_TABLE_COPY CREATE_TABLE_FIELD_ANNOTATIONS
    CREATE_TABLE_FUNCTION CREATE_TABLE_LIKE CREATE_TABLE_NOT_NULL CREATE_TABLE_PARTITION_BY
    CREATE_VIEW_WITH_COLUMN_LIST DATE_ARITHMETICS DATE_TIME_CONSTRUCTORS DECIMAL_ALIAS
    DML_UPDATE_WITH_JOIN EXTENDED_DATE_TIME_SIGNATURES EXTENDED_GEOGRAPHY_PARSERS FOREIGN_KEYS
    FORMAT_IN_CAST FOR_IN FOR_SYSTEM_TIME_AS_OF GEOGRAPHY GROUPING_BUILTIN GROUPING_SETS
    GROUP_BY_ALL GROUP_BY_ARRAY GROUP_BY_ROLLUP GROUP_BY_STRUCT HAVING_IN_AGGREGATE INTERVAL_TYPE
    IS_DISTINCT JSON_ARRAY_FUNCTIONS JSON_CONSTRUCTOR_FUNCTIONS JSON_KEYS_FUNCTION
    JSON_LAX_VALUE_EXTRACTION_FUNCTIONS JSON_MUTATOR_FUNCTIONS JSON_TYPE
    JSON_VALUE_EXTRACTION_FUNCTIONS LIKE_ANY_SOME_ALL LIMIT_IN_AGGREGATE NAMED_ARGUMENTS
    NULLS_FIRST_LAST_IN_ORDER_BY NULL_HANDLING_MODIFIER_IN_AGGREGATE
    NULL_HANDLING_MODIFIER_IN_ANALYTIC NUMERIC_TYPE OMIT_INSERT_COLUMN_LIST ORDER_BY_COLLATE
    ORDER_BY_IN_AGGREGATE PARAMETERIZED_TYPES PIPES PIVOT QUALIFY RANGE_TYPE REMOTE_FUNCTION REPEAT
    ROUND_WITH_ROUNDING_MODE SAFE_FUNCTION_CALL SCRIPT_LABEL SELECT_STAR_EXCEPT_REPLACE TABLESAMPLE
    TABLE_VALUED_FUNCTIONS TEMPLATE_FUNCTIONS TIME_BUCKET_FUNCTIONS UNENFORCED_PRIMARY_KEYS UNPIVOT
    WEEK_WITH_WEEKDAY WITH_EXPRESSION WITH_ON_SUBQUERY WITH_RECURSIVE
"""

_LANGUAGE = LanguageOptionsProto(
    name_resolution_mode=language.NAME_RESOLUTION_DEFAULT,
    product_mode=language.PRODUCT_EXTERNAL,
    enabled_language_features=[f"FEATURE_{name}" for name in _FEATURES.split()],
    reserved_keywords=["QUALIFY"],
    supported_statement_kinds=[],  # all of them
)

# The options that SQL may set on a table, a column or a function.
_OPTIONS = {
    "description": "STRING",
    "expiration_timestamp": "TIMESTAMP",
    "friendly_name": "STRING",
    "kms_key_name": "STRING",
    "labels": "ARRAY<STRUCT<STRING, STRING>>",
    "library": "ARRAY<STRING>",
    "partition_expiration_days": "FLOAT64",
    "require_partition_filter": "BOOL",
    "rounding_mode": "STRING",
}


class RefusedError(Exception):
    """ZetaSQL refuses a statement; the text is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A message that is read from its serialized form one level at a time, however deep it nests.

    Attributes:
        name: The field that holds the message.
        kind: The descriptor of the message, None when it is a plain value.
        data: The serialized message, or the value.
    """

    name: str
    kind: Untyped
    data: Any

    def children(self) -> Iterator[Node]:
        """The fields that are set."""
        position = 0
        while position < len(self.data):
            tag, position = self._varint(position)
            field = self.kind.fields_by_number[tag >> 3]
            value: int | bytes
            if tag & 7 == 0:
                value, position = self._varint(position)
            else:
                fixed = {1: 8, 5: 4}.get(tag & 7)
                size, position = (fixed, position) if fixed else self._varint(position)
                value, position = self.data[position : position + size], position + size
            yield Node(name=field.name, kind=field.message_type, data=value)

    def at(self, *path: str) -> list[Node]:
        """What stands at the end of a path of fields."""
        if not path:
            return [self]
        return [
            found
            for child in self.children()
            if child.name == path[0]
            for found in child.at(*path[1:])
        ]

    def narrow(self) -> Node:
        """The message itself, out of the alternatives that it is wrapped in."""
        return next(self.children()).narrow() if self.kind.oneofs else self

    def up(self, field: str) -> list[Node]:
        """A field of the message or of the nearest of its parents that has it."""
        if field in self.kind.fields_by_name:
            return self.at(field)
        return self.at("parent")[0].up(field)

    def read(self) -> Untyped:
        """The whole message."""
        return self.kind._concrete_class.FromString(self.data)

    def _varint(self, position: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = self.data[position]
            value |= (byte & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if byte < 0x80:
                return value, position


class ZetaSQL:
    """ZetaSQL's service, in this process."""

    def __init__(self) -> None:
        """Loads the machine code."""
        config = wasmtime.Config()
        config.max_wasm_stack = 2 << 20  # for deep queries; wasmtime grants no more
        config.shared_memory = True
        engine = wasmtime.Engine(config)
        wasi = wasmtime.WasiConfig()
        wasi.inherit_stderr()
        wasi.preopen_dir(str(Path(tzdata.__file__).parent / "zoneinfo"), "/usr/share/zoneinfo")
        linker = wasmtime.Linker(engine)
        linker.define_wasi()
        self._store = wasmtime.Store(engine)
        self._store.set_wasi(wasi)
        self._exports = linker.instantiate(self._store, _machine_code(engine)).exports(self._store)
        self._exports["_initialize"](self._store)

    def parse(self, **request: Untyped) -> Node:
        """Gives the answer to a `ParseRequest`, or raises why there is none."""
        return self._call("Parse", service_pb2.ParseRequest(**request), service_pb2.ParseResponse)

    def analyze(self, **request: Untyped) -> Node:
        """Gives the answer to an `AnalyzeRequest`, or raises why there is none."""
        return self._call(
            "Analyze", service_pb2.AnalyzeRequest(**request), service_pb2.AnalyzeResponse
        )

    def _call(self, method: str, request: Untyped, response: Untyped) -> Node:
        sent = request.SerializeToString()
        there, size_there = self._run("wasm_malloc", len(sent)), self._run("wasm_malloc", 4)
        ctypes.memmove(self._address(there), sent, len(sent))
        answer = self._run(f"ZetaSqlLocalService_{method}", there, len(sent), size_there)
        if answer:
            size = int.from_bytes(self._read(size_there, 4), "little")
        else:
            size = self._run("wasm_get_last_error_size")
        received = self._read(answer or self._run("wasm_get_last_error"), size)
        for taken in filter(None, (there, size_there, answer)):
            self._run("wasm_free", taken)
        if not answer:
            raise RefusedError(received.decode().partition("Message: ")[2])
        return Node(name=method, kind=response.DESCRIPTOR, data=received)

    def _run(self, function: str, *arguments: int) -> Any:
        return self._exports[function](self._store, *arguments)

    def _read(self, start: int, size: int) -> bytes:
        return ctypes.string_at(self._address(start), size)

    def _address(self, offset: int) -> int:
        return ctypes.addressof(self._exports["memory"].data_ptr().contents) + offset


def _machine_code(engine: Untyped) -> Untyped:
    """What was kept, or what is compiled now and kept."""
    with suppress(wasmtime.WasmtimeError):  # nothing was kept, or what another machine compiled
        return wasmtime.Module.deserialize_file(engine, str(_MACHINE_CODE))
    module = wasmtime.Module.from_file(engine, str(get_wasm_path()))
    partial = _MACHINE_CODE.with_suffix(f".{os.getpid()}")
    partial.write_bytes(module.serialize())
    partial.replace(_MACHINE_CODE)
    return module


class Host:
    """Judges SQL."""

    def __init__(self) -> None:
        """Starts ZetaSQL."""
        self._zetasql = ZetaSQL()
        self._options = AnalyzerOptionsProto(
            language_options=_LANGUAGE,
            error_message_mode=language.ERROR_MESSAGE_ONE_LINE,
            default_timezone="UTC",
        )
        allowed = self._options.allowed_hints_and_options
        for option in self._columns(_OPTIONS):
            allowed.option.add(name=option.name, type=option.type)
        allowed.disallow_unknown_options = True

    def judge(self, sql: str, tables: Mapping[str, Columns] | None) -> dict[str, Any]:
        """Gives the answer to a request."""
        parsed: list[str] = []
        error, analyzed = None, False
        try:
            parsed = self._parse(sql)
            if tables is not None and _SCRIPTING.isdisjoint(parsed):
                self._analyze(sql, len(parsed), tables)
                analyzed = True
        except RefusedError as refused:
            error = str(refused)
        except wasmtime.Trap as trap:
            error = f"ZetaSQL failed: {str(trap).rpartition('wasm trap: ')[2].strip()}"
            self._zetasql = ZetaSQL()  # the memory of the other is in disorder
        return {"parsed": parsed, "error": error, "analyzed": analyzed}

    def _parse(self, sql: str) -> list[str]:
        """Gives the kinds of the statements of a script."""
        script = self._zetasql.parse(sql_statement=sql, options=_LANGUAGE, allow_script=True)
        statements = script.at("parsed_script", "statement_list_node", "statement_list")
        return [_kind(statement.narrow().name) for statement in statements]

    def _analyze(self, sql: str, count: int, tables: Mapping[str, Columns]) -> None:
        """Analyzes the statements of a script."""
        catalog = SimpleCatalogProto(builtin_function_options={"language_options": _LANGUAGE})
        for name, columns in tables.items():
            _add_table(catalog, name.split("."), self._columns(columns))
        position = 0
        for _ in range(count):
            answer = self._zetasql.analyze(
                options=self._options,
                simple_catalog=catalog,
                parse_resume_location={"input": sql, "byte_position": position},
            )
            position = answer.at("resume_byte_position")[0].data
            _add_created(catalog, answer.at("resolved_statement")[0].narrow())

    def _columns(self, columns: Columns) -> list[Untyped]:
        """Reads columns as the statement that creates a table with them."""
        listed = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        answer = self._zetasql.analyze(
            options={"language_options": _LANGUAGE},
            simple_catalog={},
            sql_statement=f"CREATE TABLE `columns` ({listed})",
        )
        return _columns_of(answer.at("resolved_statement")[0].narrow())


def _kind(field: str) -> str:
    """The kind of a statement, by the field of the parse tree that holds it."""
    return re.sub(r"^ast_|(_statement|_stmt)?_node$", "", field)


_SCRIPTING = {_kind(field.name) for field in AnyASTScriptStatementProto.DESCRIPTOR.fields}
_CREATED_TABLES = {"resolved_create_table_stmt_node", "resolved_create_table_as_select_stmt_node"}


def _columns_of(created: Node) -> list[Untyped]:
    """The columns of a created table."""
    return [
        SimpleColumnProto(name=column.at("name")[0].data.decode(), type=column.at("type")[0].read())
        for column in created.up("column_definition_list")
    ]


def _add_table(catalog: Untyped, path: list[str], columns: list[Untyped]) -> None:
    """Lets a table be found by `p`.`d`.`t` and by `p.d.t`."""
    for *folders, name in (path, [".".join(path)]):
        place = catalog
        for folder in folders:
            known = [each for each in place.catalog if each.name == folder]
            place = known[0] if known else place.catalog.add(name=folder)
        replaced = [number for number, each in enumerate(place.table) if each.name == name]
        for number in replaced:
            del place.table[number]
        place.table.add(name=name, column=columns)


def _add_created(catalog: Untyped, statement: Node) -> None:
    """Lets the statements that follow find what this one creates."""
    if statement.name in _CREATED_TABLES:
        name = ".".join(part.data.decode() for part in statement.up("name_path"))
        _add_table(catalog, name.split("."), _columns_of(statement))
    if statement.name == "resolved_create_function_stmt_node":
        aggregate = any(flag.data for flag in statement.at("is_aggregate"))
        catalog.custom_function.add(
            name_path=[part.data.decode() for part in statement.up("name_path")],
            group="External_function",
            mode=FunctionEnums.AGGREGATE if aggregate else FunctionEnums.SCALAR,
            signature=[signature.read() for signature in statement.at("signature")],
        )


def main() -> None:
    """Serves requests until the input ends."""
    host = Host()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(host.judge(request["sql"], request["tables"])), flush=True)


if __name__ == "__main__":
    main()

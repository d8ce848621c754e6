"""The engine of embedded DuckDB: one database file, many processes."""

"""What a warehouse is: tables, dates, columns and engines; knows Ibis, never Dagster."""

"""The engine of BigQuery: one project, whose tables many runs write at once."""

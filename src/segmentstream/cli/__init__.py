"""The `segmentstream` command: one module for each group of commands; imports everything below."""

"""The process that runs a workspace where it is deployed: `python -m segmentstream.runtime`."""

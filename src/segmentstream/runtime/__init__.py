"""What runs a deployed workspace, `python -m segmentstream.runtime`; private by its name."""

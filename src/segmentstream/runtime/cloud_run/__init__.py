"""Runs as executions of a Cloud Run job; only `api.py` imports Google's client."""

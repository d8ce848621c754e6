"""Writes what brings a workspace to Google Cloud Run, or to one machine with Docker Compose.

Texts only, from a manifest and options: no account, no network. Imports `_manifest` and `_core`.
"""

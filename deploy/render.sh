#!/usr/bin/env bash
# Renders the kit of the example workspace into cloud-run/; a test compares. The project is made up.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-$PWD/.venv/bin}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

(cd examples/workspace && "$bin/python" -m segmentstream.runtime inspect "$work/manifest.json")
(cd examples/workspace/connections && "$bin/python" -m segmentstream_connections_runtime inspect "$work/connections.json")
"$bin/segmentstream" --workspace examples/workspace deploy render "$work/manifest.json" \
  --project acme-data --region europe-west1 --location EU \
  --image europe-west1-docker.pkg.dev/acme-data/flights/pipeline:1 \
  --connections "$work/connections.json" --project-number 123456789012 \
  --connections-image europe-west1-docker.pkg.dev/acme-data/flights/connections:1 \
  --output deploy/cloud-run "$@"

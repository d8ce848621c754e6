"""The pipeline of this workspace; `definitions.py` puts it together."""

import warnings

# Dagster calls this parameter of @asset beta and says so once an asset; the choice is made.
warnings.filterwarnings("ignore", message="Parameter `backfill_policy`")

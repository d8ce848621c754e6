"""What users test their assets with: a provider that needs no account and no network."""

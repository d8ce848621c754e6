"""Where the values of secret references come from."""

"""Rules that every other part shares; imports the standard library only."""

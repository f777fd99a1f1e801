"""Running what was transpiled from Python."""

"""See the package's own modules."""

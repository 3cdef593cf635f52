"""One lesson per file."""

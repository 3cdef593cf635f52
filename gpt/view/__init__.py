"""Data -> lines for a terminal, tables, files for programs. Draws; never prints, never trains."""

"""Turns data into lines for a terminal, figures, pages and files. It never prints or trains."""

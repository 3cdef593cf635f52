"""What users can write, in Python and on the command line, changes only with interface.txt."""

from __future__ import annotations

from interface import FILE, interface


def test_public_names_and_options_are_those_of_the_list() -> None:
    assert interface() == FILE.read_text(encoding="utf-8"), "`make interface` writes the new list"

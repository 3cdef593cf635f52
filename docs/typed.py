"""Writes gpt/config/typed.pyi: the types of keywords that Python's functions take.

    python docs/typed.py      (make typed)

A test compares the file with what this script would write.
"""

from __future__ import annotations

from pathlib import Path

from gpt.config import keywords

STUB = Path(keywords.__file__).with_name("typed.pyi")

if __name__ == "__main__":
    STUB.write_text(keywords.typed_stub(), encoding="utf-8")

"""Recognises documents, archives and pictures by their bytes, and says how to convert them to text.

Knows bytes, and names for errors, but opens no files.
"""

from __future__ import annotations

import shlex

from gpt.errors import TextError

HEAD = 4096  # bytes at the start of a file that show its kind
TAIL = 2**16  # bytes at the end of a zip archive that list its files

PANDOC = "pandoc {file} -t plain --wrap=none -o {new}"
#: First bytes of a file -> what the file is, and a command that makes a text of it.
DOCUMENTS = {
    b"%PDF": ("a PDF", "pdftotext -layout {file} {new}"),
    b"{\\rtf": ("RTF", PANDOC),
    b"\xd0\xcf\x11\xe0": ("an old Word document", "libreoffice --headless --convert-to txt {file}"),
    b"\x1f\x8b": ("gzip", "gzip -dc < {file} > {new}"),
    b"\x89PNG": ("a PNG picture", ""),
    b"\xff\xd8\xff": ("a JPEG picture", ""),
}
ZIP = b"PK\x03\x04"
#: The kinds of zip archives, recognised by names of files or by the type that is stored first.
ARCHIVES = {
    b"word/": ("a Word document", PANDOC),
    b"application/vnd.oasis.opendocument.text": ("an OpenDocument text", PANDOC),
    b"application/epub+zip": ("an EPUB", PANDOC),
}


def refuse_document(head: bytes, name: str) -> None:
    """Raises TextError, which says what to do, if the first bytes are those of a document.

    head: the first bytes of the file; for a zip archive, also its end, where it lists its files.
    """
    file = "FILE" if name == "-" else shlex.quote(name)
    new = "NEW.txt" if name == "-" else shlex.quote(f"{name}.txt")
    is_zip = head.startswith(ZIP)
    for mark, (what, command) in (ARCHIVES if is_zip else DOCUMENTS).items():
        if mark in head if is_zip else head.startswith(mark):
            advice = f"; convert it: {command.format(file=file, new=new)}" if command else ""
            raise TextError(f"{name} is {what}, not plain text{advice}")
    if is_zip:
        raise TextError(f"{name} is a zip archive, not plain text; unpack it: unzip {file}")

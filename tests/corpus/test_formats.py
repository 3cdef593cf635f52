"""A text is the same text in every encoding and with every line end; documents are no texts."""

from __future__ import annotations

import codecs
import io
import re
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import sources_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from program import Gptx

from gpt.commands import console
from gpt.config import TrainConfig
from gpt.corpus import sources as texts
from gpt.corpus.corpus import encode_corpus, read_corpus
from gpt.corpus.formats import decode
from gpt.corpus.sources import JoinedText, Texts
from gpt.errors import TextError
from gpt.vocabulary import unix_lines

NOVEL = (
    "“Where is the King’s horse?” she asked — nobody knew.\n"
    "The café was closed…\n\n‘Well,’ said Zoë, ‘that’s that.’\n"
) * 60
FORMS = {
    "utf8.txt": NOVEL.encode(),
    "mark.txt": codecs.BOM_UTF8 + NOVEL.encode(),
    "windows-lines.txt": NOVEL.replace("\n", "\r\n").encode(),
    "old-mac-lines.txt": NOVEL.replace("\n", "\r").encode(),
    "utf16.txt": codecs.BOM_UTF16_LE + NOVEL.encode("utf-16-le"),
    "utf16-big.txt": codecs.BOM_UTF16_BE + NOVEL.replace("\n", "\r\n").encode("utf-16-be"),
    "utf32.txt": codecs.BOM_UTF32_LE + NOVEL.encode("utf-32-le"),
    "utf32-big.txt": codecs.BOM_UTF32_BE + NOVEL.encode("utf-32-be"),
}
ENCODED = {
    "cp1252.txt": NOVEL.replace("\n", "\r\n").encode("cp1252"),
    "utf-16-le.txt": NOVEL.replace("\n", "\r\n").encode("utf-16-le"),
    "utf-32-be.txt": NOVEL.encode("utf-32-be"),
    "utf-7.txt": NOVEL.encode("utf-7"),
}


@pytest.mark.parametrize("name", FORMS | ENCODED)
@pytest.mark.parametrize("chunk", [4, 7, 2**18])
def test_a_novel_has_the_same_ids_in_every_encoding_from_a_file_and_through_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk: int
) -> None:
    monkeypatch.setattr(texts, "CHUNK", chunk)
    path, data, content = tmp_path / name, tmp_path / "data", (FORMS | ENCODED)[name]
    path.write_bytes(content)
    expected = encode_corpus(JoinedText(sources_of(tmp_path, NOVEL)), data)
    config = TrainConfig(encoding=name.removesuffix(".txt") if name in ENCODED else "utf-8")
    for source in (str(path), "-"):
        found = read_corpus(Texts([source], io.BytesIO(content)), data, config)
        assert found.vocabulary.decode(found.ids) == NOVEL
        assert (found.vocabulary, found.identity.digest) == (
            expected.vocabulary,
            expected.identity.digest,
        )
    assert len(list(data.glob("*.ids"))) == 1  # one encoding for all
    assert console.read_text(str(path), encoding=config.encoding) == NOVEL


@settings(deadline=None, max_examples=80)
@given(
    text=st.text(st.sampled_from("\r\na\x1bé東😀\u2028") | st.characters(codec="utf-8")),
    codec=st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "gb18030"]),
    size=st.integers(1, 9),
)
@example(text="\r😀\r\n", codec="utf-16-le", size=4)
@example(text="\r😀\r\n", codec="utf-8", size=4)
def test_a_text_is_decoded_in_pieces_of_any_size_as_python_reads_a_file(
    text: str, codec: str, size: int
) -> None:
    data = text.replace("\0", "").encode(codec)
    parts = [*decode((data[at : at + size] for at in range(0, len(data), size)), codec)]
    assert all(part.encode() == encoded for part, encoded in parts)
    whole = "".join(part for part, _ in parts)
    assert whole == io.TextIOWrapper(io.BytesIO(data), codec).read()
    assert whole == unix_lines(text.replace("\0", ""))


#: Texts, and encodings that such texts had.
OLD = [
    ("Äiti söi puuroa yöllä, ja isä lähti työhön Hämeeseen.", "cp1252 cp850 mac-roman"),
    ("Akıl ve vicdana sahiptirler; şimdi yağmur yağıyor, çocuk dışarıda.", "cp1254 cp857"),
    ("Això no és així, però l’avi pensà que vindríem demà a la plaça.", "cp1252"),
    ("¿Dónde está el niño? ¡Mañana será otro día! El señor Núñez comió jamón.", "cp1252 cp850"),
    ("Příliš žluťoučký kůň úpěl ďábelské ódy. Řekl jsem jí, že zítra přijdu.", "cp1250 cp852"),
    ("Wszyscy ludzie rodzą się wolni i równi. Książka leży na stole.", "cp1250 cp852"),
    ("Жили-были старик со старухой у самого синего моря.", "cp1251 koi8-r cp866 iso8859-5"),
    ("Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.", "cp1253 cp737"),
    ("כולם חוננו בתבונה ובמצפון, לפיכך חובה עליהם לנהוג איש ברעהו. הילד הלך לגן.", "cp1255 cp862"),
    (
        "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
        "cp932 euc-jp iso2022-jp",
    ),
    ("人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。", "gb18030"),
    ("人人生而自由，在尊嚴和權利上一律平等。他們賦有理性和良心。", "big5"),
    ("모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.", "cp949"),
    ("“Where is the King’s horse?” she asked — nobody knew.", "cp1252 mac-roman utf-16-le"),
    ("The café was closed.", "cp1252"),
]


@pytest.mark.parametrize(("text", "codec"), [(t, c) for t, many in OLD for c in many.split()])
def test_another_encoding_is_refused_with_a_line_and_the_option_that_reads_it(
    tmp_path: Path, text: str, codec: str
) -> None:
    path = tmp_path / "a novel.txt"
    path.write_bytes(f"Plain words\n{text}\n".encode(codec))
    for read in (encode_of, lambda path: console.read_text(str(path))):
        with pytest.raises(TextError, match=r"a novel.txt: byte [\d,]+ (is|begins) ") as caught:
            read(path)
        offers = re.findall(r"“(\S.*?)” with `encoding='(\S+)'`", str(caught.value))
        assert 1 <= len(offers) <= 3
        assert "\n" not in str(caught.value)
        read_as = [path.read_bytes().decode(name) for _, name in offers]
        assert f"Plain words\n{text}\n" in read_as
        quoted, name = offers[read_as.index(f"Plain words\n{text}\n")]
        assert quoted.strip("…") in text or quoted == "Plain words"
        assert console.read_text(str(path), encoding=name).endswith(f"{text}\n")


@pytest.mark.parametrize(
    ("content", "encoding", "what"),
    [
        (b"one\0two", "utf-8", "byte 3 is a NUL character.* looks like binary data"),
        ("é\0".encode(), "utf-8", "byte 2 is a NUL character"),
        (b"\0\1\2" * 99, "utf-8", "byte 0 is a NUL character.* looks like binary data"),
        (b"\xff\xfea\0\0\xd8", "utf-8", "byte 4 is not UTF-16-LE"),
        (b"\x81\x8d", "cp1252", "byte 0 is not CP1252"),
        (b"+2AA-", "utf-7", "byte . is not UTF-7"),
        (b"\x1b$B8cGZ\x1b(B", "utf-8", "byte 0 begins an escape sequence of ISO-2022-JP"),
        (
            NOVEL.encode() + b"\xe9 " * 40,
            "utf-8",
            "byte 7,860 is not UTF-8, but the bytes around it are; the text is damaged there",
        ),
    ],
)
def test_bytes_that_are_no_text_are_refused_with_the_place_of_the_first(
    tmp_path: Path, content: bytes, encoding: str, what: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(TextError, match=rf"a\.txt: {what}"):
        console.read_text(str(path), encoding=encoding)
    config = TrainConfig(encoding=encoding)
    with pytest.raises(TextError, match=rf"a\.txt: {what}"):
        read_corpus(Texts([str(path)]), tmp_path / "data", config)


def encode_of(path: Path) -> object:
    return read_corpus(Texts([str(path)]), path.parent / "data", TrainConfig())


def archive(*names: str, mimetype: str = "") -> bytes:
    """A zip archive of these files."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as file:
        if mimetype:
            file.writestr("mimetype", mimetype, zipfile.ZIP_STORED)
        for name in names:
            file.writestr(name, f"<{name}/>" * 999)
    return held.getvalue()


DOCUMENTS = {
    "a.docx": archive("[Content_Types].xml", "_rels/.rels", "word/document.xml"),
    "b.odt": archive("content.xml", mimetype="application/vnd.oasis.opendocument.text"),
    "c.epub": archive("text/1.xhtml", mimetype="application/epub+zip"),
    "d.rtf": b"{\\rtf1\\ansi Hello}",
    "e.pdf": b"%PDF-1.7\n\xe2\xe3",
    "f.doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 999,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_recognised_by_its_content_and_answered_with_a_command(
    gptx: Gptx, home: Path, name: str
) -> None:
    (home / "novel.txt").write_bytes(DOCUMENTS[name])  # whatever its name is
    commands = {"e": r"pdftotext -layout {} {}.txt", "f": "libreoffice .* {}"}
    pandoc = "pandoc {} -t plain --wrap=none -o {}.txt"
    for command in ("train", "eval"):
        answer = gptx(command, "novel.txt")
        assert answer.code == 3
        expected = commands.get(name[0], pandoc).replace("{}", "novel.txt")
        assert re.search(f"not plain text; convert it: {expected}$", answer.err.strip())
    for command in ("train", "eval"):
        answer = gptx(command, "-", stdin=DOCUMENTS[name])
        assert (answer.code, "not plain text; convert it: " in answer.err) == (3, True)


def test_a_folder_says_what_it_skips(gptx: Gptx, home: Path) -> None:
    def notes(files: Sequence[str]) -> str:
        folder = home / "-".join(files)
        folder.mkdir()
        for name in files:
            (folder / name).write_bytes(DOCUMENTS.get(name) or FORMS["utf8.txt"])
        return gptx("train", folder.name, "--dry-run", "--steps", "3").err

    found = notes(["one.txt", "a.docx", "e.pdf", "cover.png", "x.html", ".two.txt"])
    (line,) = [line for line in found.splitlines() if "not read" in line]
    assert "4 files not read (in folders, gptx reads *.txt, *.md, *.rst, *.text): a.docx, c" in line
    assert "no text in this folder (looked for *.txt" in notes(["a.docx"])
    assert "not read" not in notes(["one.txt", ".DS_Store"])


def test_a_windows_novel_is_evaluated_and_resumed_as_it_was_trained(gptx: Gptx, home: Path) -> None:
    shape = "--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --counting 0 --steps 3".split()
    (home / "novel.txt").write_bytes(ENCODED["cp1252.txt"])
    (home / "again.txt").write_bytes(FORMS["utf16.txt"])
    place = ("--checkpoints", "windows", "--data", "encoded")
    refused = gptx("train", "novel.txt", *shape, *place)
    assert (refused.code, "” with --encoding cp1252" in refused.err) == (3, True)
    assert gptx("train", "novel.txt", *shape, *place, "--encoding", "cp1252").code == 0
    for name in ("novel.txt", "again.txt"):
        answer = gptx("eval", name, *place, "--encoding", "windows-1252")
        assert f"warning: {name} is in the text that this run was trained on" in answer.err
        assert f"note: {name}: read as " in answer.err
    shutil.rmtree(home / "encoded")
    answer = gptx("train", "--resume", "--steps", "5", *place)
    assert (answer.code, "novel.txt: read as CP1252" in answer.err) == (0, True), answer.err

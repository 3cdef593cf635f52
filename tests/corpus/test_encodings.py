"""A text is the same text in every encoding and with every line end; documents are no texts."""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import sources_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from program import Gptx

import gpt
from gpt.commands import console
from gpt.corpus import text as texts
from gpt.corpus.corpus import encode_corpus, read_corpus
from gpt.corpus.encodings import decode, require_windows, unix_lines
from gpt.errors import TextError

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
    "utf16-no-mark.txt": NOVEL.replace("\n", "\r\n").encode("utf-16-le"),
    "utf16-big-no-mark.txt": NOVEL.encode("utf-16-be"),
    "windows.txt": NOVEL.replace("\n", "\r\n").encode("cp1252"),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("chunk", [4, 7, 2**18])
def test_a_novel_has_the_same_ids_in_every_encoding_from_a_file_and_through_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk: int
) -> None:
    monkeypatch.setattr(texts, "CHUNK", chunk)
    path, data = tmp_path / name, tmp_path / "data"
    path.write_bytes(FORMS[name])
    expected = encode_corpus(sources_of(tmp_path, NOVEL), data)
    for source in (str(path), "-"):
        found = read_corpus([source], data, io.BytesIO(FORMS[name]))
        assert found.vocabulary.decode(found.ids) == NOVEL
        assert (found.vocabulary, found.identity.digest) == (
            expected.vocabulary,
            expected.identity.digest,
        )
    assert len(list(data.glob("*.ids"))) == 1  # one encoding for all
    assert console.read_text(str(path)) == NOVEL


def test_the_same_novel_trains_the_same_model_to_the_bit(tmp_path: Path) -> None:
    tensors = []
    for name in ("utf8.txt", "windows-lines.txt", "utf16.txt", "windows.txt"):
        path = tmp_path / name
        path.write_bytes(FORMS[name])
        shape = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 16, "counting": 0}
        folders = {"checkpoints": tmp_path / "runs", "data": tmp_path / name.replace(".", "-")}
        run = gpt.train(path, steps=3, **shape, **folders)  # type: ignore[arg-type]
        tensors.append({name: t.numpy().tobytes() for name, t in run.torch().state_dict().items()})
    assert tensors[0]
    assert all(each == tensors[0] for each in tensors)


def test_notes_name_the_encoding_quote_a_changed_line_and_count_line_ends(tmp_path: Path) -> None:
    contents = [FORMS[name] for name in ("windows.txt", "utf16.txt", "windows.txt", "utf8.txt")]
    notes = encode_corpus(sources_of(tmp_path, *contents), tmp_path / "data").notes
    line = "“Where is the King’s horse?” she asked — nobody knew."
    assert notes == (
        f"0.txt, 2.txt: read as Windows-1252, for example: {line}",
        f"1.txt: read as UTF-16, for example: {line}",
        "0.txt, 2.txt: 480 line ends CR LF or CR are read as LF",
    )


@settings(deadline=None, max_examples=80)
@given(
    text=st.text(st.sampled_from("\r\na\0é東😀\u2028") | st.characters(codec="utf-8")),
    codec=st.sampled_from(["utf-8", "utf-16-le", "utf-16-be"]),
    size=st.integers(4, 9),
)
@example(text="\r😀\r\n", codec="utf-16-le", size=4)
@example(text="\r😀\r\n", codec="utf-8", size=4)
def test_a_text_is_decoded_in_pieces_of_any_size_as_python_reads_a_file(
    text: str, codec: str, size: int
) -> None:
    data, found, returns, at = text.encode(codec), "", 0, 0
    while at < len(data):
        piece, used, ends = decode(data[at : at + size], codec, at + size >= len(data))
        assert used > 0
        found, returns, at = found + piece, returns + ends, at + used
    assert found == io.TextIOWrapper(io.BytesIO(data), codec).read() == unix_lines(text)
    assert returns == text.count("\r")


def test_a_separator_follows_a_text_that_ends_otherwise_in_every_encoding(tmp_path: Path) -> None:
    for ending, whole in (("\r\n", "é\n\nb"), ("\r\n\r\n", "é\n\nb"), ("", "é\n\nb")):
        for codec in ("utf-8", "utf-16"):
            sources = sources_of(tmp_path, f"é{ending}".encode(codec), b"b")
            pieces = texts.text_pieces(sources, "\r\n\r\n", [])
            found = "".join(chr(n) for _, _, points in texts.read_pieces(pieces) for n in points)
            assert found == (whole if ending != "\r\n" else "é\n\n\nb")


@pytest.mark.parametrize(
    ("text", "codec", "advised"),
    [
        ("The café was closed.\n", "cp1252", "CP1252"),  # one character is no evidence
        ("Árvíztűrő tükörfúrógép. Az őz a mezőn, a lány a kút mellett.\n", "cp1250", "CP1250"),
        ("Zażółć gęślą jaźń. Książka leży na stole.\n" * 9, "cp1250", "CP1250"),
        ("Жили-были старик со старухой у самого синего моря.\n" * 9, "cp1251", "CP1251"),
        ("吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n", "cp932", "CP932"),
        ("吾輩は猫である。名前はまだ無い。\n" * 9, "utf-16-le", "UTF-16LE"),
        ("Il était une fois, dans un château très éloigné.\n" * 9, "mac-roman", "MACINTOSH"),
    ],
)
def test_an_uncertain_encoding_is_refused_with_the_command_that_converts_it(
    tmp_path: Path, text: str, codec: str, advised: str
) -> None:
    path = tmp_path / "a novel.txt"
    path.write_bytes(text.encode(codec))
    command = rf"convert it, for example: iconv -f {advised} -t UTF-8 '.*a novel.txt' > "
    for read in (encode_of, lambda path: console.read_text(str(path))):
        with pytest.raises(TextError, match=rf"invalid UTF-8 at byte \d+; {command}") as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_damaged_utf8_is_not_taken_for_windows_1252(tmp_path: Path) -> None:
    path = tmp_path / "damaged.txt"
    path.write_bytes(NOVEL.encode() + b"\xe9 " * 40)
    for read in (encode_of, lambda path: console.read_text(str(path))):
        with pytest.raises(TextError, match="its other characters are UTF-8, so it is damaged"):
            read(path)


def encode_of(path: Path) -> object:
    return read_corpus([str(path)], path.parent / "data", io.BytesIO())


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


def test_a_folder_says_what_it_skips_and_how_to_convert_it(gptx: Gptx, home: Path) -> None:
    def notes(files: Sequence[str]) -> str:
        folder = home / "-".join(files)
        folder.mkdir()
        for name in files:
            (folder / name).write_bytes(DOCUMENTS.get(name) or FORMS["utf8.txt"])
        return gptx("train", folder.name, "--dry-run", "--steps", "3").err

    found = notes(["one.txt", "a.docx", "e.pdf", "cover.png", "x.html", ".two.txt"])
    (line,) = [line for line in found.splitlines() if "not read" in line]
    assert (
        "4 files not read, not *.txt, *.md, *.rst, *.text: a.docx, cover.png, e.pdf and 1" in line
    )
    assert ", 1 hidden text not read; " in line
    assert "a.docx is a Word document, not plain text; convert it: pandoc " in line
    assert "no text in this folder (looked for *.txt" in (refused := notes(["a.docx"]))
    assert "convert it: pandoc a.docx/a.docx -t plain" in refused
    assert "not read" not in notes(["one.txt", ".DS_Store"])


def test_a_windows_novel_is_evaluated_as_it_was_trained(gptx: Gptx, home: Path) -> None:
    shape = "--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --counting 0 --steps 3".split()
    (home / "novel.txt").write_bytes(FORMS["windows.txt"])
    (home / "again.txt").write_bytes(FORMS["utf16.txt"])
    assert gptx("train", "novel.txt", *shape, "--checkpoints", "windows").code == 0
    for name in ("novel.txt", "again.txt"):
        answer = gptx("eval", name, "--checkpoints", "windows")
        assert f"warning: {name} is in the text that this run was trained on" in answer.err
        assert f"note: {name}: read as " in answer.err
    assert gptx("train", "--resume", "--steps", "5", "--checkpoints", "windows").code == 0


def test_a_few_hungarian_letters_are_no_evidence_of_windows_1252() -> None:
    """Without ö and ü, their letters are also those of Portuguese."""
    data = ("Álmos őz áll az ősi fánál, és várja az őszt.\n" * 3).encode("cp1250")
    with pytest.raises(TextError, match=r"invalid UTF-8 at byte 0; convert it, .* -f CP125"):
        require_windows(data, "hu.txt", 0)

"""The page contains the numbers in the stated precision, and any text as text."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import posixpath
import re
from dataclasses import replace

import numpy as np
import pytest
from hand_built import LETTERS, SIZE, hand_built
from pages import HOSTILE, Document, payload_of, random_subject, unpack

from gpt.characters import drawn_label
from gpt.checks import Check
from gpt.config import HeadsConfig
from gpt.heads.attention_map import select
from gpt.heads.measures import Measure, name_heads
from gpt.heads.survey import survey
from gpt.interface.trained import TrainedGPT
from gpt.storage.run import Checkpoint
from gpt.view.page.document import ASSETS, join_scripts, scripts_of
from gpt.view.page.live import LIVE
from gpt.view.page.packing import DETAILS
from gpt.view.page.page import MOST, PAGE, StartHead, Subject, build_page, make_subject, more_stages

TEXT = "the cat sat"
T = len(TEXT)


@pytest.fixture(scope="module")
def subject() -> Subject:
    return random_subject(TEXT, n_layer=3)


def read_npz(subject: Subject) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(select(subject.attention).to_bytes("npz", {})[0])) as read:
        return dict(read)


@pytest.mark.parametrize(("limit", "bits"), [(5_000_000, 32), (0, 16)])
def test_the_payload_equals_the_npz_at_its_precision(
    subject: Subject, limit: int, bits: int
) -> None:
    document = payload_of(build_page(subject, StartHead(layer=1), limit))
    read, npz = document["subject"], read_npz(subject)
    assert document["bits"] == bits
    kind, below = np.dtype(f"<f{bits // 8}"), np.tri(T, dtype=bool)
    for layer, packed in enumerate(read["weights"]):
        expected = npz["weights"][layer][:, below].astype(kind)
        assert np.array_equal(unpack(packed).reshape(2, -1), expected)
    assert list(read["details"]) == (["0", "1", "2"] if bits == 32 else ["1"])
    for layer, details in read["details"].items():
        assert list(details) == list(DETAILS)
        for name, packed in details.items():
            expected = npz[name][int(layer)].astype(kind)
            assert np.array_equal(unpack(packed), expected.ravel())


def test_page_names_its_source_and_is_the_same_for_the_same_map(subject: Subject) -> None:
    page = build_page(subject, StartHead(2, "mean", "scaled"))
    again = random_subject(TEXT, n_layer=3)
    assert page == build_page(again, StartHead(2, "mean", "scaled"))
    document = payload_of(page)
    assert document["title"] == "step 12"
    assert document["start"] == {"layer": 2, "head": "mean", "stage": "scaled", "why": ""}
    assert document["characters"] == [*TEXT]
    assert document["labels"] == [drawn_label(character) for character in TEXT]
    read = document["subject"]
    assert (read["name"], read["layers"], read["heads"], read["headSize"]) == ("step 12", 3, 2, 8)
    assert read["origin"] == {"run": "tiny-1", "step": "12", "checkpoint": "ab" * 32}
    assert [check["name"] for check in read["checks"]] == [
        check.name for check in subject.attention.checks_of()
    ]
    assert all(check["passed"] for check in read["checks"])


def test_measures_and_checks_that_are_not_finite_are_null(subject: Subject) -> None:
    failed = replace(subject.attention, checks=(Check("odd", float("nan"), 1e-6),))
    read = payload_of(build_page(replace(subject, attention=failed), StartHead()))["subject"]
    assert read["checks"][0] == {"name": "odd", "error": None, "bound": 1e-6, "passed": False}
    sink, away = read["measures"]
    np.testing.assert_allclose(sink["values"], subject.measures[0].values, rtol=1e-8)
    assert (sink["uniform"], sink["windows"]) == (0.4, 32)
    assert away["uniform"] is None
    assert away["errors"] == [[None, None]] * 3


def test_page_stays_below_its_size_limit_and_keeps_the_first_layer_shown(subject: Subject) -> None:
    whole = len(build_page(subject, StartHead(1)))
    seen = []
    for limit in range(whole - 14_000, whole + 2_000, 100):
        page = build_page(subject, StartHead(1), limit)
        document = payload_of(page)
        details = list(document["subject"]["details"])
        assert len(page) <= limit or details == ["1"]
        assert "1" in details
        assert len(document["subject"]["weights"]) == 3
        if not seen or seen[-1] != (document["bits"], details):
            seen.append((document["bits"], details))
    every = ["0", "1", "2"]
    assert seen == [(16, ["1"]), (16, ["0", "1"]), (16, every), (32, every)]


def test_the_page_says_what_each_part_adds_to_the_logits_of_the_characters_it_lists(
    tiny: Checkpoint,
) -> None:
    model = TrainedGPT(tiny.model())
    seen = model.attn("the cat")
    read = payload_of(build_page(make_subject(seen), StartHead()))["subject"]
    listed = read["lens"]
    ids = np.frombuffer(base64.b64decode(listed["ids"]), "<u4").reshape(-1, 7, listed["most"])[-1]
    labels = np.array([model.vocabulary.characters.index(each) for each in listed["characters"]])
    logits = model.reader.logits(model.reader.forward(seen.ids[None]))[0]
    added, parts = unpack(read["contributions"]["values"]), read["contributions"]["parts"]
    found = added.reshape(*ids.shape, len(parts))
    expected = np.take_along_axis(logits, labels[ids], axis=1)
    np.testing.assert_allclose(found.sum(axis=-1), expected, atol=1e-4)
    layers, heads = range(model.config.n_layer), range(model.config.n_head)
    each = [("head", n, head) for n in layers for head in heads]
    every = {("embedding", None, None), *each, *(("ffn", n, None) for n in layers)}
    assert {(it["kind"], it["layer"], it["head"]) for it in parts} == every
    assert read["checks"][-1]["name"] == "parts sum to the logits"
    assert read["checks"][-1]["passed"]


def test_what_is_left_of_the_limit_takes_contributions_then_stages_the_first_layer_first(
    tiny: Checkpoint,
) -> None:
    model = TrainedGPT(tiny.model())
    seen = model.attn("the cat")
    subject = make_subject(seen)
    whole = build_page(subject, StartHead(layer=1))
    size = len(whole.encode()) + 100
    read = payload_of(whole)["subject"]
    assert list(read["more"]) == ["1", "0"]
    for n, stages in read["more"].items():
        expected = more_stages(model.reader, seen.layers[int(n)], int(n))
        assert list(stages) == ["norm1", "norm2", "ffn_hidden", "ffn", "resid_post"]
        for name, packed in stages.items():
            assert np.array_equal(unpack(packed), expected[name].ravel())
    np.testing.assert_array_equal(expected["resid_post"], seen.layers[0].resid_post)
    found = []
    for limit in range(size, size - 40_000, -250):
        page = build_page(subject, StartHead(layer=1), limit)
        document = payload_of(page)
        read = document["subject"]
        assert len(page.encode()) <= limit or document["bits"] == 16
        state = read["contributions"] is not None, "".join(read["more"])
        if document["bits"] == 32 and state not in found:
            found.append(state)
    assert found == [(True, "10"), (True, "1"), (True, ""), (False, "")]


def test_page_of_6_layers_6_heads_256_characters_fits_5_mb() -> None:
    large = random_subject("the cat " * 32, n_layer=6, n_head=6, n_embd=384)
    page = build_page(large, StartHead(layer=4, head=5))
    document = payload_of(page)
    assert len(page.encode()) <= 5_000_000
    assert document["bits"] == 16
    assert list(document["subject"]["details"]) == ["4"]


def test_numbers_too_large_for_float16_stay_float32(subject: Subject) -> None:
    first, *others = subject.attention.layers
    entered = first.resid_pre * np.float32(1e6)
    large = replace(first, resid_pre=entered, resid_mid=entered + first.proj)
    attention = replace(subject.attention, layers=(large, *others))
    page = build_page(replace(subject, attention=attention), StartHead(), 0)
    details = payload_of(page)["subject"]["details"]["0"]
    assert {name: packed["bits"] for name, packed in details.items()} == {
        **dict.fromkeys(DETAILS, 16),
        "resid_pre": 32,
    }
    assert np.array_equal(unpack(details["resid_pre"]), large.resid_pre.ravel())


def test_page_data_keeps_any_text_and_runs_none_of_it() -> None:
    quiet = random_subject("a" * len(HOSTILE))
    hostile = replace(random_subject(HOSTILE), name=HOSTILE, origin={HOSTILE: HOSTILE})
    page = build_page(hostile, StartHead())
    document, usual = Document(page), Document(build_page(quiet, StartHead()))
    assert document.tags == usual.tags
    assert document.texts["script"] == usual.texts["script"]
    read = json.loads(document.texts["payload"])
    assert "".join(read["characters"]) == HOSTILE
    assert read["labels"] == [drawn_label(character) for character in HOSTILE]
    assert document.texts["payload"].isascii()
    assert not set("<>&\n") & set(document.texts["payload"])
    assert "\u202e" not in page


def test_security_policy_allows_only_the_pages_script_and_style(
    subject: Subject,
) -> None:
    document = Document(build_page(subject, StartHead()))
    digests = {
        kind: base64.b64encode(hashlib.sha256(document.texts[kind].encode()).digest()).decode()
        for kind in ("script", "style")
    }
    policy = next(a["content"] for _, a in document.tags if "http-equiv" in a)
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digests['script']}'; "
        f"style-src 'sha256-{digests['style']}'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )
    addresses = [a for _, a in document.tags if {"src", "href", "action", "style"} & set(a)]
    assert addresses == [{"rel": "icon", "href": "data:,"}]
    assert set(re.findall(r"https?://[^\"' ]+", document.texts["script"])) == {
        "http://www.w3.org/2000/svg"
    }


STARTS = (PAGE.script, LIVE.script, LIVE.worker)


def test_every_script_is_in_a_page_after_its_imports_and_without_duplicate_names() -> None:
    files = {path.relative_to(ASSETS).as_posix() for path in ASSETS.rglob("*.js")}
    files.remove("payload.js")  # only types
    assert files == {name for start in STARTS for name in scripts_of(start)}
    pattern = r"^(?:export )?(?:async )?(?:const|let|class|function\*?) (\w+)"
    for start in STARTS:
        scripts = scripts_of(start)
        for number, name in enumerate(scripts):
            imported = re.findall(r'^import [^;]*? from "(.*)";$', read(name), re.M)
            folder = posixpath.dirname(name)
            paths = {posixpath.normpath(posixpath.join(folder, each)) for each in imported}
            assert paths <= set(scripts[:number]), name
        names = [found for name in scripts for found in re.findall(pattern, read(name), re.M)]
        assert len(names) > 50
        assert sorted(names) == sorted(set(names))
        assert not re.search(r"^(import|export) ", join_scripts(start), re.M)


def read(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def test_page_names_the_measured_text_and_names_heads_only_for_several(
    subject: Subject,
) -> None:
    ids = np.random.default_rng(0).integers(0, 6, 8 * SIZE + 1)
    several, one = (
        survey(hand_built(), LETTERS, part, HeadsConfig()) for part in (ids, ids[: SIZE + 1])
    )
    assert (several.windows, one.windows) == (8, 1)
    for found, shown in ((several, True), (one, False)):
        described = replace(subject, measures=found.measures)
        document = payload_of(build_page(described, StartHead(), measured="<b>on it</b>"))
        assert document["measured"] == "<b>on it</b>"
        assert document["subject"]["kinds"] == (name_heads(found.measures) if shown else None)


def measured(name: str, values: list[list[float]], uniform: float) -> Measure:
    array = np.array(values)
    return Measure(name, name, "", array, np.full(array.shape, np.nan), uniform, 1)


def test_colours_of_positive_and_negative_differ_for_colour_blind_readers() -> None:
    """CIE 1976 colour difference; 2.3 is just noticeable. Colour blindness as in Machado 2009."""
    ramps = re.findall(r"(positive|negative): (\[\[.*\]\]),", read("colours.js"))
    assert [name for name, _ in ramps] == ["positive", "negative"] * 2
    none = np.eye(3)
    protan = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216]]
    protan += [[-0.003882, -0.048116, 1.051998]]
    deutan = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413]]
    deutan += [[-0.011820, 0.042940, 0.968881]]
    tritan = [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602]]
    tritan += [[0.004733, 0.691367, 0.303900]]
    for first in (0, 2):
        positive, negative = (np.array(json.loads(ramp)) for _, ramp in ramps[first : first + 2])
        assert positive[0].tolist() == negative[0].tolist()
        for sight in (none, protan, deutan, tritan):
            apart = [
                np.linalg.norm(lab(sight, one) - lab(sight, other))
                for one, other in zip(positive[1:], negative[1:], strict=True)
            ]
            assert min(apart) > 20


def lab(sight: object, colour: np.ndarray) -> np.ndarray:
    """sRGB, 0 … 255, seen through a matrix of linear RGB -> CIE L*a*b*."""
    linear = np.where(colour <= 10, colour / 255 / 12.92, ((colour / 255 + 0.055) / 1.055) ** 2.4)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    shares = xyz @ np.clip(np.array(sight) @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(shares > 216 / 24389, np.cbrt(shares), (24389 / 27 * shares + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_the_logit_lens_has_the_likeliest_characters_of_each_depth(tiny: Checkpoint) -> None:
    model = TrainedGPT(tiny.model())
    attention, lens = model.attn("the cat"), make_subject(model.attn("the cat")).lens
    assert lens.ids.shape == lens.probabilities.shape == (model.config.n_layer + 1, 7, MOST)
    streams = [attention.layers[0].resid_pre, *(each.resid_post for each in attention.layers)]
    for stream, ids, chances in zip(streams, lens.ids, lens.probabilities, strict=True):
        logits = model.reader.logits(model.reader.final_norm(stream[None]))[0]
        expected = np.exp(logits - logits.max(axis=-1, keepdims=True))
        expected /= expected.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(np.take_along_axis(expected, ids, -1), chances, rtol=1e-4)
        np.testing.assert_allclose(np.sort(expected)[:, : -1 - MOST : -1], chances, rtol=1e-4)

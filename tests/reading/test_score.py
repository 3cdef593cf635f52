"""A score is the mean surprisal over windows; it equals what a plain loop gives."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from gpt.errors import TextError
from gpt.interface.trained import TrainedGPT
from gpt.reading import score as scoring
from gpt.reading.gpt import Reader
from gpt.reading.sampler import window_start
from gpt.reading.score import Surprisals, character_surprisals, score, surprisals

LENGTHS = [2, 16, 17, 18, 40, 200]  # around whole windows of 16 targets


def ids_of(trained: TrainedGPT, length: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(3).integers(len(trained.vocabulary), size=length, dtype=np.uint8)


@pytest.mark.parametrize("at_once", [1, 5_000])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_score_equals_a_plain_loop_over_windows(
    trained: TrainedGPT, length: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "NUMBERS_AT_ONCE", at_once)
    tensors = {name: array.astype(np.float64) for name, array in trained.stored.tensors.items()}
    reader, ids = Reader(trained.config, tensors), ids_of(trained, length)
    total = 0.0
    for start in range(0, length - 1, 16):
        window = ids[start : start + 17].astype(int)
        logits = reader.logits(reader.forward(window[None, :-1]))[0]
        for row, target in zip(logits, window[1:], strict=True):
            total += math.log(sum(math.exp(logit) for logit in row)) - row[target]
    assert score(reader, ids).nats == pytest.approx(total / (length - 1), rel=1e-12)


def test_surprisal_has_known_values_for_certain_uniform_and_impossible_characters() -> None:
    logits = np.array([[1000.0, 0.0], [5.0, 5.0], [1000.0, 0.0]])
    expected = [0.0, math.log(2), 1000.0]
    assert surprisals(logits, np.array([0, 1, 1], dtype=np.uint8)).tolist() == expected


@pytest.mark.parametrize("text", ["", "t"])
def test_text_too_short_to_score_is_refused(trained: TrainedGPT, text: str) -> None:
    with pytest.raises(TextError, match="two characters"):
        trained.eval(text)


@pytest.mark.parametrize("at_once", [1, 2**22])
@pytest.mark.parametrize("length", [*LENGTHS, 8, 9, 25])
def test_overlapping_windows_have_the_context_of_sampling(
    trained: TrainedGPT, length: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "NUMBERS_AT_ONCE", at_once)
    ids = ids_of(trained, length)
    found = character_surprisals(trained.reader, ids, trained.vocabulary)
    assert len(found.nats) == len(found.likeliest) == len(found.chances) == length - 1
    for at in range(length - 1):
        start = window_start(at + 1, 16)
        assert start == 0 or at + 1 - start > 8
        logits = trained.reader.logits(trained.reader.forward(ids[None, start : at + 1]))[0, -1]
        assert found.nats[at] == pytest.approx(surprisals(logits, ids[at + 1]), abs=1e-4)
        assert found.likeliest[at] == logits.argmax()
        chances = np.exp(logits - logits.max())
        assert found.chances[at] == pytest.approx(chances.max() / chances.sum(), abs=1e-5)
    text = trained.vocabulary.decode(ids)
    assert trained.eval(text, chars=True).surprisals.nats.tolist() == found.nats.tolist()


def test_surprisals_have_a_row_for_each_character() -> None:
    known, text = "\n abcé東", "ab c\n東é a"
    bits = np.array([0.2, 1.0, 2.4, 8.0, 12.0, 3.0, 0.0, 30.0])
    likeliest = np.array([known.index(each) for each in "b c\n東é c"])
    found = Surprisals(bits * math.log(2), likeliest, np.linspace(0.1, 0.8, 8), text, known)
    assert "".join(row["character"] for row in found.rows) == text[1:]
    assert [row["bits"] for row in found.rows] == pytest.approx(bits.tolist())
    assert found.rows[2] == {
        "position": 3,
        "character": "c",
        "nats": pytest.approx(2.4 * math.log(2)),
        "bits": pytest.approx(2.4),
        "expected_character": "c",
        "expected_id": known.index("c"),
        "probability": pytest.approx(0.3),
    }
    assert replace(found, places=np.arange(9) + 100).rows[-1]["position"] == 108

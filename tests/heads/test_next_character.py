"""The next character: its probabilities, which filter removed which one, bars, JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from drawn import shown

from gpt.config import SampleConfig
from gpt.config.model import DISTRIBUTION_OPTIONS
from gpt.heads.next_character import ExpertPredictions, NextCharacter
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import softmax
from gpt.reading.sampler import probabilities
from gpt.show.result import to_record


def logits_of(trained: TrainedGPT, text: str) -> np.ndarray:  # type: ignore[type-arg]
    ids = trained.vocabulary.encode(text)
    return trained.reader.logits(trained.reader.forward(ids[None])[:, -1]).astype(np.float64)


def test_expected_probabilities_are_the_models_softmax(trained: TrainedGPT) -> None:
    found = trained.next("the c", temperature=0.3)
    np.testing.assert_allclose(found.expected, softmax(logits_of(trained, "the c"))[0], atol=1e-6)


def removed_by(found: NextCharacter, name: str) -> set[int]:
    return set(np.flatnonzero(found.removed == DISTRIBUTION_OPTIONS.index(name)).tolist())


def test_each_removed_character_has_the_name_of_its_filter(trained: TrainedGPT) -> None:
    options = {"temperature": 2.0, "top_k": 9, "top_p": 0.8, "min_p": 0.95}
    found = trained.next("the c", **options)
    drawn = probabilities(logits_of(trained, "the c"), SampleConfig(**options))[0]
    np.testing.assert_allclose(found.filtered, drawn, atol=1e-6)
    assert found.changed
    order = np.argsort(-found.expected, kind="stable")
    assert removed_by(found, "top_k") == set(order[9:].tolist())
    kept = set(np.flatnonzero(found.removed < 0).tolist())
    assert kept == set(np.flatnonzero(drawn > 0).tolist())
    by_mass, by_share = removed_by(found, "top_p"), removed_by(found, "min_p")
    assert by_mass
    assert by_share
    assert kept | by_mass | by_share == set(order[:9].tolist())


def test_filters_that_remove_nothing_change_nothing(trained: TrainedGPT) -> None:
    none, all_mass = {"temperature": 1.0}, {"top_p": 1.0, "min_p": 1e-300}
    assert not trained.next("the c", **none).changed
    assert not trained.next("the c", **none, top_k=1000, **all_mass).changed
    assert trained.next("the c", **none, top_k=1).changed
    assert trained.next("the c").changed  # sampling's own temperature is 0.8


def test_a_long_text_is_read_in_the_window_of_sampling(trained: TrainedGPT) -> None:
    text = "the cat sat on the mat. "  # block_size is 16, the window begins at 8
    found, alone = trained.next(text), trained.next(text[8:])
    assert np.array_equal(found.expected, alone.expected)
    assert np.array_equal(trained.next("").expected, trained.next("\n").expected)


CONFIG = SampleConfig(top_k=3, min_p=0.3)
CHARACTERS = " あ[x"


@pytest.fixture
def found() -> NextCharacter:
    """Probabilities 1/2, 1/4, 1/8, 1/8; top-k removes the last, min-p the third."""
    expected, filtered = np.array([0.5, 0.25, 0.125, 0.125]), np.array([2 / 3, 1 / 3, 0, 0])
    removed = np.array([-1, -1, 3, 1])
    return NextCharacter(expected, filtered, removed, config=CONFIG, characters=CHARACTERS)


DRAWN = """\
after “ab” follows

         expected    after temperature 0.8, top-k 3, min-p 0.3
␠ space  .500 ▇▇▇▇▇  .667
あ       .250 ▇▇     .333
[        .125 ▇      removed by min-p
x        .125 ▇      removed by top-k

as uncertain as among 3.4 equally likely characters (after: 1.9) · all: --all"""


def test_bars_show_probabilities_and_what_filters_remove(found: NextCharacter) -> None:
    assert "\n".join(shown(replace(found, text="ab"), 80)) == DRAWN


@pytest.mark.parametrize("width", [20, 40, 80, None])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_long_form_has_both_experts_at_any_width(
    found: NextCharacter, width: int | None, ascii_only: bool
) -> None:
    gpt, counting = np.array([0.7, 0.1, 0.1, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    experts = ExpertPredictions(gpt, counting, np.array([0.3, 1.2]))
    mixed = replace(found, experts=experts)
    text = " ".join(" ".join(shown(mixed, width, ascii_only, all=True)).split())
    for number in (".700", ".400", "1.20"):
        assert number in text
    assert mixed.record()["weights"].tolist() == [0.3, 1.2]
    assert found.record()["weights"] is None


def test_next_json_lists_every_character_likeliest_first(found: NextCharacter) -> None:
    read = json.loads(json.dumps(to_record(found, {"run": "r"})))
    assert (read["run"], read["top_k"], read["top_p"], read["schema"]) == ("r", 3, None, 1)
    assert [row["character"] for row in read["rows"]] == list(CHARACTERS)
    assert [row["removed_by"] for row in read["rows"]] == [None, None, "min_p", "top_k"]
    assert sum(row["after_filters"] for row in read["rows"]) == pytest.approx(1)
    assert read["bits"]["expected"] == pytest.approx(1.75)

"""Targets and scores of pairs from Python."""

from __future__ import annotations

import numpy as np
import pytest
from encoded import encoded_file

import gpt
from gpt.config import SampleConfig
from gpt.errors import ConfigError, TextError
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Reader
from gpt.reading.targets import score_pairs, target_settings, write_targets
from gpt.vocabulary import Vocabulary

SOURCES = ["1b", "4ba", "6baaa", "2b", "0ba", "abc", "ff", "e-e", "9 9", "07", "cab", "d", "-4"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    return gpt.load(encoded_file(tmp_path_factory.mktemp("pairs") / "pairs.safetensors"))


@pytest.fixture(scope="module")
def decoder_only(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    path = tmp_path_factory.mktemp("lines") / "lines.safetensors"
    return gpt.load(encoded_file(path, encoder_layers=0))


def of(model: TrainedGPT) -> tuple[Reader, Vocabulary]:
    return model.reader, model.vocabulary


def test_answers_are_greedy_or_those_of_a_beam(trained: TrainedGPT) -> None:
    greedy, best = trained.answers(SOURCES), trained.answers(SOURCES, beam=6)
    assert greedy == [trained.sample(source) for source in SOURCES]
    assert greedy == trained.answers(SOURCES, beam=1)
    assert len(set(greedy)) > 1
    ended = [max(len(each) for each in pair) < 15 for pair in zip(greedy, best, strict=True)]
    assert any(ended)
    for source, one, other in zip(SOURCES, greedy, best, strict=True):
        if len(one) < 15 and other and one:
            costs = [
                score_pairs(*of(trained), f"{source}\t{each}").nats.sum() for each in (one, other)
            ]
            assert costs[1] <= costs[0] + 1e-6
    assert trained.answers([]) == []


def test_other_types_than_a_list_of_texts_are_refused(trained: TrainedGPT) -> None:
    with pytest.raises(TypeError, match=r"^sources: expected a list of texts, not one text"):
        trained.answers("two")
    with pytest.raises(TypeError, match=r"^sources: expected texts, not int"):
        trained.answers([3])  # type: ignore[list-item]


def test_generate_draws_targets_with_a_temperature(trained: TrainedGPT) -> None:
    drawn = trained.sample("4ba", n=4, temperature=1.0, seed=3)
    assert len(set(drawn)) > 1
    assert drawn[0] == trained.sample("4ba", temperature=1.0, seed=3)
    assert trained.sample("€4ba", unknown="skip") == trained.sample("4ba")
    assert len(trained.sample("4ba", length=2)) <= 2
    settings = target_settings(trained.config, n=4, temperature=1.0, seed=3)
    together = write_targets(*of(trained), SOURCES, settings)
    assert [trained.vocabulary.decode(each.ids) for each in together[1]] == drawn


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"n": 2}, "n: at temperature 0, all targets are equal; give `temperature`, or `beam`"),
        ({"top_k": 3}, "top_k: it has no effect at temperature 0"),
        ({"beam": 0}, "beam: 0 is less than 1"),
        ({"beam": 2, "temperature": 1.0}, "beam: a search draws nothing; leave `temperature` out"),
        ({"beam": 2, "top_p": 0.5}, "beam: a search draws nothing; leave `top_p` out"),
        ({"beam": 2, "n": 3}, "n: 3 targets need a beam of 3 or more"),
        ({"length": 16}, "length: 16 is more than the longest target, 15 characters"),
        ({"only": "gpt"}, "only: this model has no counting"),
        ({"temperature": -1.0}, "temperature: -1.0 is less than 0"),
    ],
)
def test_options_without_effect_are_refused(
    trained: TrainedGPT, options: dict[str, float], problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        target_settings(trained.config, **options)  # type: ignore[arg-type]
    assert problem in str(raised.value)


def test_what_a_model_with_an_encoder_cannot_do_is_refused(trained: TrainedGPT) -> None:
    with pytest.raises(ConfigError, match="use sample or answers"):
        trained.stream("1b", SampleConfig())
    with pytest.raises(ConfigError, match="a target ends by itself"):
        trained.sample("1b", stop=["c"])
    with pytest.raises(TextError, match="source 2 is empty"):
        trained.answers(["1b", ""])


def test_scores_of_pairs_count_each_source_once(trained: TrainedGPT) -> None:
    answers = dict(zip(SOURCES, trained.answers(SOURCES), strict=True))
    source, answer = next(
        (each, its) for each, its in answers.items() if 0 < len(its) < 15 and "\t" not in its
    )
    text = f"{source}\tc\nbbb\t0\n\n{source}\t{answer}\n"
    found = trained.eval(text, pairs=True).pairs
    assert found.lines.tolist() == [1, 2, 4]
    assert (found.sources, found.targets) == ((source, "bbb", source), ("c", "0", answer))
    assert found.exact == 0.5
    assert found.distances[[0, 2]].tolist() == [0, 0]
    assert found.nearest[0] == answer
    assert found.score == trained.eval(text).score
    assert len(found.nats) == 2 + 2 + len(answer) + 1
    alone = trained.eval(f"{source}\t{answer}", pairs=True).pairs
    np.testing.assert_allclose(found.nats[-len(answer) - 1 :], alone.nats, atol=1e-5)
    ((best,),) = write_targets(*of(trained), [source], target_settings(trained.config))
    assert alone.nats.sum() == pytest.approx(best.nats, abs=1e-4)


def test_a_decoder_only_model_writes_targets_too(
    trained: TrainedGPT, decoder_only: TrainedGPT
) -> None:
    pairs = "1b\t1c\n4ba\t4c\n"
    found = decoder_only.eval(pairs, pairs=True).pairs
    assert found.written == tuple(decoder_only.answers(["1b", "4ba"]))
    ids = decoder_only.vocabulary.encode("\n1b\t1c\n")
    chances = decoder_only.eval(ids, chars=True).surprisals.nats
    np.testing.assert_allclose(found.nats[:3], chances[-3:], atol=1e-5)
    both = decoder_only.eval(pairs, against=trained, pairs=True).paired
    assert (both.characters, both.first) == (6, pytest.approx(found.score.nats))
    assert both.second == pytest.approx(trained.eval(pairs).nats)


def test_scores_of_pairs_are_a_table_for_pandas(trained: TrainedGPT) -> None:
    found = trained.eval("1b\t1c\n4ba\t4c\n", pairs=True).pairs
    table = found.to_pandas()
    names = "line source target written exact distance nats nearest substitutions insertions"
    assert list(table) == [*names.split(), "deletions"]
    assert table["nats"].tolist() == pytest.approx(found.means.tolist())
    assert table["source"].tolist() == ["1b", "4ba"]

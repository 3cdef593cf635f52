"""Why a model expects a character: sums of what its parts add, in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import shown
from variants import VARIANTS, name_of, random_weights, reader_of

from gpt.config import ExplanationOptions, ModelConfig
from gpt.errors import ConfigError, TextError
from gpt.heads.contributions import Part
from gpt.heads.next_character import Why, part_name, why
from gpt.interface.trained import TrainedGPT
from gpt.vocabulary import Vocabulary

ELEVEN = Vocabulary("\t\nabcdefghi")


@pytest.mark.parametrize("config", VARIANTS, ids=name_of)
def test_parts_sum_to_the_logit_in_every_variant(config: ModelConfig) -> None:
    reader = reader_of(config, random_weights(config))
    found = why(reader, ELEVEN, "cabfad", ExplanationOptions(char="b", against="i"))
    logits = reader.logits(reader.forward(ELEVEN.encode("cabfad")[None]))[0, -1]
    apart = float(logits[ELEVEN.id_of("b")] - logits[ELEVEN.id_of("i")])
    largest = float(np.abs(logits).max())
    assert found.logit == pytest.approx(apart, abs=1e-5 * largest)
    assert found.values.sum() == pytest.approx(found.logit, abs=1e-12 * largest)
    assert found.values.dtype == np.float64
    assert sum(row["adds"] for row in found.rows) == pytest.approx(found.logit, abs=1e-12 * largest)
    assert all(check.passed for check in found.checks)


def test_the_likeliest_character_is_explained_unless_another_is_named(trained: TrainedGPT) -> None:
    expected = trained.next("the c", temperature=1.0).expected
    found = trained.why("the c")
    assert found.characters == (trained.vocabulary.characters[int(expected.argmax())],)
    assert found.probabilities[0] == expected.max()
    logits = trained.logits("the c")[0, -1]
    assert found.logit == pytest.approx(logits.max(), abs=1e-5)
    likeliest = expected.max() / np.exp(found.logit + found.same)
    assert likeliest == pytest.approx(1, abs=1e-5)
    other = trained.why("the c", char="a", against="t")
    a, t = trained.vocabulary.encode("at")
    assert other.logit == pytest.approx(logits[a] - logits[t], abs=1e-5)
    np.testing.assert_array_equal(other.probabilities, expected[[a, t]])
    np.testing.assert_allclose(
        other.values, trained.why("the c", char="a").values - trained.why("the c", char="t").values
    )


def test_a_table_has_the_largest_parts_and_the_sum(trained: TrainedGPT) -> None:
    found = trained.why("the c", char="a")
    lines = shown(found, 80)
    assert lines[0].startswith("after “the c”, 'a' (.")
    assert len(lines) <= 14
    order = np.argsort(-np.abs(found.values))
    names = [row["part"] for row in found.table_rows()]
    largest = [part_name(found.parts[n]) for n in order[:5]]
    assert names == [*largest, f"{len(order) - 5} other parts", "sum"]
    assert sum(row["adds"] for row in found.table_rows()[:-1]) == pytest.approx(found.logit)
    assert len(found.table_rows(all=True)) == len(order) + 1
    assert "last norm divides by" in "".join(shown(found, all=True))


def test_a_part_is_named_by_its_layer_and_head() -> None:
    names = {
        Part("head", 0, 0): "L0H0",
        Part("head", 1, 2): "L1H2",
        Part("ffn", 0): "L0 feed-forward",
        Part("bias", 0): "L0 bias",
        Part("bias"): "bias of the last norm",
        Part("embedding"): "last character",
    }
    assert {part: part_name(part) for part in names} == names


def test_the_title_says_which_character_the_best_head_reads() -> None:
    parts = (Part("embedding"), Part("head", 1, 2))
    head = np.array([0.0, 0.5, 2.0, 0.0, 0.0])  # what each character of the text adds
    found = Why(
        parts=parts,
        values=np.array([0.5, 2.5]),
        sources=(head,),
        logit=3.0,
        scale=1.0,
        characters=("c",),
        probabilities=np.array([0.9]),
        same=0.0,
        checks=(),
        text="abcab",
    )
    because = "because L1H2 looks at the 'c' after an earlier 'b'"
    assert found.title == f"after “abcab” comes 'c' (.90) {because}"
    other = replace(found, values=np.array([3.5, 2.5]))
    assert other.title == "after “abcab” comes 'c' (.90): last character adds most"
    unlikely = replace(found, probabilities=np.array([0.1]))
    reads = "the 'c' after an earlier 'b'"
    assert unlikely.title == f"after “abcab”, 'c' (.10): L1H2 adds most, from {reads}"


def test_a_text_that_does_not_fit_and_characters_that_are_none_are_errors(
    trained: TrainedGPT,
) -> None:
    long = "the cat sat on the mat"
    with pytest.raises(TextError, match="22 characters, but the model's context has only 16"):
        trained.why(long)
    assert trained.why(long, truncate=True).logit == trained.why(long[-16:]).logit
    cut = trained.why("é" + long, truncate=True, unknown="error")  # what is cut off may be unknown
    assert cut.logit == trained.why(long[-16:]).logit
    with pytest.raises(TextError, match="`char`: the model does not know 'é'"):
        trained.why("the c", char="é")
    with pytest.raises(ConfigError, match="char: 'at' is not one character"):
        trained.why("the c", char="at")
    with pytest.raises(ConfigError, match="against: '' is not one character"):
        trained.why("the c", against="")
    with pytest.raises(ConfigError, match="against: this is the same character as `char`"):
        trained.why("the c", char="a", against="a")
    assert trained.why("").logit == trained.why("\n").logit

"""The model card: front matter, facts of the run, losses, names that are not Markdown."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import train_tiny
from random_models import random_model

import gpt
from gpt.config import TrainConfig
from gpt.exchange.exporting.architectures import architecture_of
from gpt.exchange.exporting.card import card, code
from gpt.exchange.exporting.losses import losses_of
from gpt.storage.checkpoint import Checkpoint
from gpt.storage.manifest import Baseline
from gpt.trained import TrainedGPT


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A tiny trained checkpoint of a model that can be exported."""
    return train_tiny(tmp_path_factory.mktemp("tiny"), norm="layer")


def trained(checkpoint: Checkpoint, **changed: Any) -> TrainedGPT:
    """A model as an architecture of transformers takes it, with a changed manifest."""
    opened = gpt.load(checkpoint.path)
    manifest = replace(checkpoint.manifest, **changed)
    return TrainedGPT(opened.stored, None, Checkpoint(checkpoint.path, manifest))


def card_of(model: TrainedGPT) -> str:
    return card(model, architecture_of(model.config), losses_of(model))


def test_front_matter_is_what_the_hub_reads(tiny: Checkpoint) -> None:
    text = card_of(gpt.load(tiny.path))
    _, front, body = text.split("---\n", 2)
    values = yaml.safe_load(front)
    assert values == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["gptx", "character-level", "gpt_neox"],
    }
    assert "\n# license: " in front
    assert body.startswith("\n# `tiny step 12`\n")
    assert gpt.__version__ in body


def test_card_has_the_facts_of_the_run(tiny: Checkpoint) -> None:
    manifest = tiny.manifest
    scored = manifest.val_characters
    baseline = Baseline((3.0, 1.25), counted=2000, scored=scored)
    text = card_of(trained(tiny, baseline=baseline))
    assert "| sources | `text.txt` |" in text
    assert f"| characters | {manifest.corpus.characters:,} |" in text
    assert f"| vocabulary | {len(manifest.characters)} distinct characters" in text
    validated = manifest.val_characters + 1
    split = f"{manifest.corpus.characters - validated:,} characters to train on, {validated:,} to"
    assert f"| split | {split} validate: the last 10 % of the text |" in text
    nats = manifest.best_loss or 0.0
    assert f"| this model | {nats:.4f} | {nats / math.log(2):.3f} |" in text
    counting = "| counting 2-grams alone (Kneser–Ney) | 1.2500 | 1.803 |"
    assert counting in text
    part = card_of(trained(tiny, baseline=replace(baseline, scored=scored - 1)))
    assert "counting 2-grams" not in part  # it is of other characters
    same = replace(baseline, scored=manifest.shown_loss[1])
    shorter = counting.replace(", on 300 characters", "")
    assert shorter in card_of(trained(tiny, baseline=same))
    assert f"| guessing | {math.log(len(manifest.characters)):.4f} |" in text
    assert f"{manifest.model.parameters():,} parameters: 2 layers × 2 heads × 8" in text
    assert "n_embd = 16  # Width of the residual stream.\n" in text
    assert "\nlearning_rate = " in text
    assert "counts of n-grams" not in text.split("## The model")[0]


def test_losses_on_a_part_of_the_split_stand_without_countings_loss_on_the_whole(
    tiny: Checkpoint,
) -> None:
    baseline = Baseline((3.0, 1.25), counted=2000, scored=300)
    text = card_of(trained(tiny, baseline=baseline, best_step=6))
    assert "| this model | " in text
    assert "counting" not in text.split("## Its loss")[1].split("## The model")[0]


@pytest.mark.parametrize(
    ("split", "shown"),
    [
        ("every:5", "one of every 5 blocks"),
        ("/home/me/own.txt", "the text `own.txt`"),
        ("last", "the last 10 % of the text"),
    ],
)
def test_card_says_what_validated_without_folders(tiny: Checkpoint, split: str, shown: str) -> None:
    corpus = replace(tiny.manifest.corpus, sources=("/home/me/a|b.txt", "C:\\me\\`c`\n.txt"))
    train: TrainConfig = replace(tiny.manifest.train, split=split)
    text = card_of(trained(tiny, corpus=corpus, train=train))
    assert shown in text
    assert "| sources | `a\\|b.txt`, `` `c`\\n.txt `` |" in text
    assert "home" not in text
    assert f'\nsplit = "{split.removeprefix("/home/me/")}"  #' in text


def test_loss_of_another_step_is_measured_on_the_excerpt(tiny: Checkpoint) -> None:
    later = trained(tiny, best_step=6)
    found = losses_of(later)
    assert found is not None
    assert found.where == later.excerpt_name
    assert found.nats == later.score(later.stored.excerpt).nats
    assert found.gpt is None
    recorded = losses_of(trained(tiny, best_step=12))
    assert recorded is not None
    assert (recorded.nats, recorded.where) == (tiny.manifest.best_loss, "the validation split")


def test_card_of_a_model_file_has_no_facts_of_a_run(tmp_path: Path) -> None:
    model = random_model(tmp_path, position="learned", norm="layer")
    text = card_of(model)
    assert "## The text" not in text
    assert "learning_rate" not in text
    assert f"{model.config.parameters():,} parameters" in text
    assert "can be 16 characters long" in text
    assert "can be 16 characters" not in card_of(
        random_model(tmp_path, norm="layer")
    )


def test_a_very_short_excerpt_gives_no_loss(tmp_path: Path) -> None:
    model = random_model(tmp_path, norm="layer")
    short = TrainedGPT(replace(model.stored, excerpt="a"))
    assert losses_of(short) is None
    assert "## Its loss" not in card_of(short)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "`a b`"),
        ("a`b", "`` a`b ``"),
        ("``", "``` `` ```"),
        ("a\n\x1b|", "`a\\n\\x1b\\|`"),
    ],
)
def test_any_name_is_shown_as_code(text: str, shown: str) -> None:
    assert code(text) == shown


def test_card_names_the_first_of_many_sources(tiny: Checkpoint) -> None:
    corpus = replace(tiny.manifest.corpus, sources=tuple(f"{n}.txt" for n in range(12)))
    text = card_of(trained(tiny, corpus=corpus))
    assert "`8.txt`, `9.txt` and 2 more |" in text
    assert "10.txt" not in text


def test_card_of_an_imported_model_names_its_origin_and_no_options_of_training(
    tiny: Checkpoint,
) -> None:
    origin = "nanoGPT's out/ckpt.pt, step 300"
    unknown = replace(tiny.manifest.corpus, digest="")
    text = card_of(trained(tiny, imported=origin, corpus=unknown))
    assert f"gptx imported it: {origin}. gptx {gpt.__version__} exported it" in text
    assert "trained with gptx" not in text
    assert "options of its training" not in text
    assert "## The text" not in text
    assert "n_layer = " in text

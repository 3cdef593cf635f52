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
from gpt.exchange.exporting.architectures import architecture_of
from gpt.exchange.exporting.export import exported_losses, markdown_code, model_card
from gpt.interface.trained import TrainedGPT
from gpt.storage.run import Checkpoint


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A tiny trained checkpoint of a model that can be exported."""
    return train_tiny(tmp_path_factory.mktemp("tiny"))


def trained(checkpoint: Checkpoint, **changed: Any) -> TrainedGPT:
    """A model as an architecture of transformers takes it, with a changed manifest."""
    opened = gpt.load(checkpoint.path)
    manifest = replace(checkpoint.manifest, **changed)
    return TrainedGPT(opened.stored, None, Checkpoint(checkpoint.path, manifest))


def card_of(model: TrainedGPT) -> str:
    return model_card(model, architecture_of(model.config), exported_losses(model))


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


def test_card_fits_a_screen_and_has_the_facts_of_the_run(tiny: Checkpoint) -> None:
    manifest = tiny.manifest
    text = card_of(trained(tiny))
    assert len(text.splitlines()) <= 30
    assert f"- Text: `text.txt`, {manifest.corpus.characters:,} characters, " in text
    assert f"{len(manifest.vocabulary)} distinct characters" in text
    nats, scored = manifest.best_loss or 0.0, manifest.val_characters
    loss = f"{nats:.4f} nats per character ({nats / math.log(2):.3f} bits)"
    assert f"- Loss: {loss}, on {scored:,} characters of the validation split." in text
    assert f"{manifest.model.parameters():,} parameters" in text


def test_card_names_the_first_of_many_sources_without_folders_and_an_imports_origin(
    tiny: Checkpoint,
) -> None:
    sources = ("/home/me/a|b.txt", "C:\\me\\`c`\n.txt", *(f"{n}.txt" for n in range(9)))
    text = card_of(trained(tiny, corpus=replace(tiny.manifest.corpus, sources=sources)))
    assert "- Text: `a|b.txt`, `` `c`\\n.txt ``, `0.txt` and 8 more, " in text
    origin = "nanoGPT's out/ckpt.pt, step 300"
    unknown = replace(tiny.manifest.corpus, digest="")
    text = card_of(trained(tiny, imported=origin, corpus=unknown))
    assert f"gptx imported it: {origin}. gptx {gpt.__version__} exported it" in text
    assert "trained with gptx" not in text
    assert f"- Text: {len(tiny.manifest.vocabulary)} distinct" in text


def test_loss_of_another_step_is_measured_on_the_excerpt(tiny: Checkpoint) -> None:
    later = trained(tiny, best_step=6)
    found = exported_losses(later)
    assert found is not None
    assert found.where == later.excerpt_name
    assert found.nats == later.eval(later.stored.excerpt).nats
    assert found.gpt is None
    recorded = exported_losses(trained(tiny, best_step=12))
    assert recorded is not None
    assert (recorded.nats, recorded.where) == (tiny.manifest.best_loss, "the validation split")


def test_card_of_a_model_file_has_no_facts_of_a_run(tmp_path: Path) -> None:
    model = random_model(tmp_path, position="learned")
    text = card_of(model)
    assert f"- Text: {len(model.vocabulary)} distinct characters. " in text
    assert f"{model.config.parameters():,} parameters" in text
    assert "- Context: 16 characters, prompt and new ones together; " in text
    rotary = random_model(tmp_path)
    assert "- Context: 16 characters; it continues longer texts" in card_of(rotary)
    short = TrainedGPT(replace(rotary.stored, excerpt="a"))  # too short to measure a loss
    assert exported_losses(short) is None
    assert "- Loss: not measured.\n" in card_of(short)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "`a b`"),
        ("a`b", "`` a`b ``"),
        ("``", "``` `` ```"),
        ("a\n\x1b|", "`a\\n\\x1b|`"),
    ],
)
def test_any_name_is_shown_as_code(text: str, shown: str) -> None:
    assert markdown_code(text) == shown

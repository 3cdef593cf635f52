"""Writes a model as a folder that the library transformers opens: `gptx export` and `gpt.export`.

gptx writes the files itself, without that library: weights, configuration, tokenizer, and the model
card with its losses. The library tokenizers reads tokenizer.json, in which each character is a
token with the same id as in gptx; the Hugging Face Hub reads the front matter of the card. All
bytes are made before the first one is written, so a failed export leaves nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpt.checks import checks_arguments
from gpt.config import SampleConfig
from gpt.errors import ConfigError, TextError
from gpt.exchange.exporting.architectures import NO_TOKENS, Architecture, architecture_of
from gpt.interface.trained import TrainedGPT
from gpt.reading.score import score
from gpt.storage import files
from gpt.storage.manifest import Manifest
from gpt.storage.run import MANIFEST, MODEL, Run
from gpt.version import __version__
from gpt.vocabulary import Vocabulary
from gpt.words import bits, printable

CARD, MARK = "README.md", "\n- gptx\n"  # the card's name, and a line of its front matter
#: The start of the file of weights, after the length of its header.
WEIGHTS_BEGIN = b'{"__metadata__":{"format":"pt"}'


@dataclass(frozen=True)
class Losses:
    """nats: the loss per character of the model as gptx opens it. gpt: the loss of the GPT alone,
    which is what an export contains; None: the model does not count, so both are the same.
    characters: how many were predicted, where: in which text.
    """

    nats: float
    gpt: float | None
    characters: int
    where: str

    @property
    def exported(self) -> float:
        """The loss of what an export contains."""
        return self.nats if self.gpt is None else self.gpt

    @property
    def note(self) -> str:
        """For a model that counts: what the export leaves out, and how much that costs."""
        return (
            "the export contains the GPT without its counts of n-grams: its loss is "
            f"{self.exported:.4f} nats per character ({bits(self.exported):.3f} bits), "
            f"with the counts {self.nats:.4f}, on {self.characters:,} characters of {self.where}"
        )


def exported_losses(model: TrainedGPT) -> Losses | None:
    """The recorded losses of the best step. For another step, or a model file without its run, they
    are measured on the start of the validation split, which the model file contains; None if that
    is too short.
    """
    manifest = model.recorded
    if manifest and manifest.best_step == manifest.step:
        nats, characters, _ = manifest.shown_loss
        if nats is not None and (manifest.gpt_loss is not None or not model.config.counting):
            return Losses(nats, manifest.gpt_loss, characters, "the validation split")
    try:
        ids = model.vocabulary.encode(model.stored.excerpt)
        found = score(model.reader, ids, model.mixture)
    except TextError:
        return None
    return Losses(found.nats, found.gpt, found.characters, model.excerpt_name)


@dataclass(frozen=True)
class Exported:
    """What an export wrote. path: the folder; architecture: the class in transformers; files: name
    -> bytes. losses: for a model that counts, whose export has the GPT alone; else None.
    """

    path: Path
    architecture: str
    files: Mapping[str, int]
    losses: Losses | None

    @property
    def size(self) -> int:
        """The bytes of all files together."""
        return sum(self.files.values())

    @property
    def note(self) -> str:
        """What the export leaves out of a model that counts; "" for other models."""
        return self.losses.note if self.losses else ""

    @property
    def record(self) -> dict[str, Any]:
        """The export for JSON. The losses are in nats per character."""
        known = self.losses
        losses = {"gpt": known.exported, "with_counting": known.nats} if known else None
        return {
            "path": printable(self.path),
            "architecture": self.architecture,
            "files": dict(self.files),
            "losses": losses,
        }


@checks_arguments
def export(model: TrainedGPT, path: str | Path, *, force: bool = False) -> Exported:
    """Writes the model into a folder that `transformers` opens.

    force: replace an earlier export; other files in its folder stay. Raises ConfigError for a model
    that no architecture of transformers computes, and for a path that exists (with force: that is
    no earlier export); StorageError.
    """
    path = Path(path)
    architecture = architecture_of(model.config)
    with files.storage_errors(f"write {path}"):
        os.stat(path.parent)
    _check_outside_runs(path)
    is_folder = os.path.isdir(path)
    if os.path.lexists(path) and not is_folder:
        raise ConfigError(f"export: {path} is a file; name a folder")
    if is_folder and os.listdir(path):
        if not force:
            raise ConfigError(
                f"export: {path} exists already and has files; name another folder, or replace an "
                "earlier export with `force`"
            )
        _check_replaceable(path)
    losses = exported_losses(model)
    contents = export_files(model, architecture, losses)
    with files.storage_errors(f"write {path}"):
        files.fill_folder(path, contents)
    sizes = {name: len(data) for name, data in contents.items()}
    counted = losses if model.config.counting else None
    return Exported(path, architecture.name, sizes, counted)


def _check_replaceable(folder: Path) -> None:
    """Raises ConfigError for a folder that is no earlier export."""
    readme, weights, begin = folder / CARD, folder / MODEL, b""
    with files.storage_errors(f"write {folder}"):
        if weights.is_file():
            with weights.open("rb") as file:
                begin = file.read(8 + len(WEIGHTS_BEGIN))[8:]
        if not (readme.is_file() and MARK in readme.read_text("utf-8", "replace")):
            why = f'has no {CARD} with the tag "{MARK.strip()}"'
        elif begin != WEIGHTS_BEGIN:
            why = f"has no {MODEL} of one"
        else:
            return
    raise ConfigError(f"export: {folder} is no earlier export, it {why}; name another folder")


def _check_outside_runs(path: Path) -> None:
    """Raises ConfigError for a run, a step, and any folder in them."""
    with files.storage_errors(f"write {path}"):
        real = Path(os.path.realpath(path))
        inside = (real / MANIFEST).exists()
        for folder in (real, *real.parents[:2]):
            begun = (folder / ".lock").exists() and (folder / "config.toml").exists()
            inside = inside or begun or bool(Run(folder).steps())
    if inside:
        raise ConfigError(f"export: {path} is in a folder of a run; name another place")


#: This text is no token, as it has several characters. So a character that the model does not know
#: is an error, as in gptx, and is not left out silently.
UNKNOWN = "<unknown>"


def tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """The content of tokenizer.json."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,  # text is never changed
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},  # "." does not match a newline
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},  # nothing between characters
        "model": {
            "type": "WordLevel",
            "vocab": {character: number for number, character in enumerate(vocabulary.characters)},
            "unk_token": UNKNOWN,
        },
    }


MOST_SOURCES = 3
TEMPLATE = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- gptx
- character-level
- {kind}
# license: of the model, before you publish it
# language: of the text, as in "en"
---

# {title}

A character-level GPT with {parameters:,} parameters: it continues a text of its kind, one character
at a time. {origin} gptx {version} exported it as `{architecture}`.

- Text: {text}{vocabulary:,} distinct characters. Any other is an error ("Missing [UNK] token").
- Loss: {loss}.
- Context: {context}.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")  # this folder, or the model's name on the Hub
model = AutoModelForCausalLM.from_pretrained(".")
prompt = tokenizer({prompt!r}, return_tensors="pt")
print(tokenizer.decode(model.generate(**prompt, max_new_tokens={new})[0]))
```
"""


def model_card(model: TrainedGPT, architecture: Architecture, found: Losses | None) -> str:
    """The card as Markdown. Only a model file with its run has a text and an origin."""
    config, manifest = model.config, model.recorded
    prompt, size = model.example(), f"{config.block_size:,} characters"
    context = {
        "learned": f"{size}, prompt and new ones together; there are no positions after them",
        "rotary": f"{size}; it continues longer texts, but predicts them worse",
    }[config.position]
    origin = "It was trained with gptx."
    if manifest and manifest.imported:
        origin = f"gptx imported it: {manifest.imported}."
    return TEMPLATE.format(
        kind=architecture.kind,
        title=markdown_code(model.stored.title),
        parameters=config.parameters(),
        origin=origin,
        version=__version__,
        architecture=architecture.name,
        text=_text(manifest),
        vocabulary=config.vocab_size,
        loss=_loss(found),
        context=context,
        prompt=prompt,
        new=max(1, config.block_size - len(prompt)),
    )


def markdown_code(text: str) -> str:
    """A text as code in Markdown; what cannot be printed is escaped."""
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence, space = "`" * (longest + 1), " " * (longest > 0)
    return f"{fence}{space}{shown}{space}{fence}"


def _text(manifest: Manifest | None) -> str:
    """Names of the sources without their folders, and the length of the text; "" if unknown."""
    if not manifest or not manifest.corpus.digest:
        return ""
    corpus = manifest.corpus
    names = [markdown_code(re.split(r"[\\/]", source)[-1] or source) for source in corpus.sources]
    more = f" and {len(names) - MOST_SOURCES:,} more" if len(names) > MOST_SOURCES else ""
    return f"{', '.join(names[:MOST_SOURCES])}{more}, {corpus.characters:,} characters, "


def _loss(found: Losses | None) -> str:
    if found is None:
        return "not measured"
    if found.gpt is not None:
        return found.note
    where = f"on {found.characters:,} characters of {found.where}"
    return f"{found.nats:.4f} nats per character ({bits(found.nats):.3f} bits), {where}"


def export_files(
    model: TrainedGPT, architecture: Architecture, losses: Losses | None
) -> dict[str, bytes]:
    """Name -> content of every file of the folder, the card last."""
    import safetensors.numpy

    config, vocabulary, tensors = model.config, model.vocabulary, model.stored.tensors
    exported = dict(architecture.tensors(config, tensors))
    json_text = partial(json.dumps, ensure_ascii=False, indent=2, allow_nan=False)
    settings = {
        "config.json": architecture.config(config, tensors),
        "generation_config.json": {
            "do_sample": True,
            "temperature": SampleConfig().temperature,
            "max_new_tokens": max(1, config.block_size // 2),
            **NO_TOKENS,
        },
        "tokenizer.json": tokenizer(vocabulary),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config.block_size,
            "model_input_names": ["input_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
        },
    }
    return {
        MODEL: safetensors.numpy.save(exported, metadata={"format": "pt"}),
        **{name: f"{json_text(values)}\n".encode() for name, values in settings.items()},
        CARD: model_card(model, architecture, losses).encode(),
    }

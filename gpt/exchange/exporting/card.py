"""The model card of an export: README.md with the front matter that the Hugging Face Hub reads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import field_help
from gpt.exchange.exporting.architectures import Architecture
from gpt.exchange.exporting.losses import Losses
from gpt.storage.config_file import to_toml
from gpt.storage.manifest import Manifest
from gpt.trained import TrainedGPT
from gpt.version import __version__
from gpt.words import layers_and_heads

MOST_SOURCES = 10
FRONT = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- gptx
- character-level
- {kind}
# Before you publish the model, complete these two lines:
# license: of the model (https://huggingface.co/docs/hub/repositories-licenses)
# language: of the text, as in "en"
---
"""
OPENING = """## How to open it

With `pip install torch transformers`, in this folder:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # or the model's name on the Hub
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
prompt = tokenizer({prompt!r}, return_tensors="pt")
print(tokenizer.decode(model.generate(**prompt, max_new_tokens={new})[0]))
```
"""
ADDED = (
    "The prompt and the new characters together can be {size:,} characters long: there are no "
    "positions after them. `max_new_tokens` sets the number of new ones."
)
TURNED = (
    "It was trained on windows of {size:,} characters. Longer texts work, but it predicts them "
    "worse; gptx itself lets it read the last {size:,} characters only."
)
LIMITS = """## What it cannot do

- {context}
- It knows {vocabulary:,} characters. The tokenizer refuses a text with any other, with the error
  "Missing [UNK] token": leave such characters out.
- There is no token that begins, ends or pads a text. It writes until `max_new_tokens`; texts of one
  batch must have the same length.
- It continues text in the style of its corpus. It does not answer questions.
"""


def card(model: TrainedGPT, architecture: Architecture, found: Losses | None) -> str:
    """The card as Markdown. Facts about corpus and training are of the model's run; a model file
    without its run has none.
    """
    config, manifest = model.config, model.manifest if model.has_run else None
    prompt = model.example()
    context = (TURNED if config.position == "rotary" else ADDED).format(size=config.block_size)
    sections = [
        FRONT.format(kind=architecture.kind),
        f"# {code(model.stored.title)}\n",
        f"A character-level GPT: it continues a text, one character at a time. {_origin(manifest)} "
        f"gptx {__version__} exported it as `{architecture.name}`, with the same logits.\n",
        f"**{found.note[0].upper()}{found.note[1:]}.**\n" if found and config.counting else "",
        OPENING.format(prompt=prompt, new=max(1, config.block_size - len(prompt))),
        *(_text(model, manifest) if manifest and manifest.corpus.digest else ()),
        *(_losses(found, model) if found else ()),
        *_model(model, manifest),
        LIMITS.format(context=context, vocabulary=config.vocab_size),
    ]
    return "\n".join(section for section in sections if section)


def code(text: str) -> str:
    """A text as code in Markdown, also in a table; what cannot be printed is escaped."""
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    shown = shown.replace("|", "\\|")
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence, space = "`" * (longest + 1), " " * (longest > 0)
    return f"{fence}{space}{shown}{space}{fence}"


def _origin(manifest: Manifest | None) -> str:
    if manifest and manifest.imported:
        return f"gptx imported it: {manifest.imported}."
    return "It was trained with gptx."


def _name(path: str) -> str:
    """A file's name without its folders, which are of no use to a reader of the card."""
    return re.split(r"[\\/]", path)[-1] or path


def _table(rows: dict[str, str]) -> str:
    return "".join(
        ["| | |\n|---|---|\n", *(f"| {name} | {fact} |\n" for name, fact in rows.items())]
    )


def _text(model: TrainedGPT, manifest: Manifest) -> Iterator[str]:
    corpus = manifest.corpus
    names = [code(_name(source)) for source in corpus.sources]
    more = f" and {len(names) - MOST_SOURCES:,} more" if len(names) > MOST_SOURCES else ""
    yield "## The text\n"
    rows = {
        "sources": ", ".join(names[:MOST_SOURCES]) + more,
        "characters": f"{corpus.characters:,}",
        "vocabulary": f"{len(model.vocabulary):,} distinct characters, each a token",
        "split": _split(manifest),
    }
    if corpus.folded:
        replacement = code(manifest.train.replacement)
        kinds = f"{len(corpus.folded):,} kinds of rare characters"
        rows["replaced"] = f"{kinds}, {corpus.folded_count:,} in all, became {replacement}"
    yield _table(rows)


def _split(manifest: Manifest) -> str:
    corpus, train = manifest.corpus, manifest.train
    if train.validation:
        how = f"the text {code(_name(train.validation))}"
    elif train.every:
        how = f"one of every {train.every} blocks"
    else:
        how = f"the last {100 * train.val_fraction:.3g} % of the text"
    validated = manifest.val_characters + 1  # the first one is not predicted
    if not manifest.val_characters:
        return f"{how} validates"
    trained = corpus.characters - validated
    return f"{trained:,} characters to train on, {validated:,} to validate: {how}"


def _losses(found: Losses, model: TrainedGPT) -> Iterator[str]:
    losses = {"this model": found.exported}
    if found.gpt is not None:
        losses = {"this model (the GPT alone)": found.gpt}
        losses["the GPT with its counts of n-grams, in gptx"] = found.nats
    if found.baseline and found.baseline.scored == found.characters:
        losses[f"counting {found.baseline.order}-grams alone (Kneser–Ney)"] = found.baseline.nats
    losses["guessing"] = math.log(len(model.vocabulary))
    yield f"## Its loss, on {found.characters:,} characters of {found.where}\n"
    rows = [f"| {who} | {nats:.4f} | {nats / math.log(2):.3f} |\n" for who, nats in losses.items()]
    yield "".join(["| | nats a character | bits a character |\n|---|---|---|\n", *rows])


def _model(model: TrainedGPT, manifest: Manifest | None) -> Iterator[str]:
    config = model.config
    yield (
        f"## The model\n\n{config.parameters():,} parameters: "
        f"{layers_and_heads(config.n_layer, config.n_head)} × {config.head_size}, "
        f"context {config.block_size:,} characters.\n"
    )
    values = {name: getattr(config, name) for name in field_help(ModelConfig)}
    if manifest and not manifest.imported:
        yield "The options of its training, which `gptx train --config FILE` takes:\n"
        trained = {name: getattr(manifest.train, name) for name in field_help(TrainConfig)}
        trained["split"] = _name(manifest.train.split)
        values = {"preset": manifest.preset, **values, **trained}
    yield f"```toml\n{to_toml(values)}```\n"

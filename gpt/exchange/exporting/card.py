"""The model card of an export: README.md with the front matter that the Hugging Face Hub reads."""

from __future__ import annotations

import math
import re

from gpt.exchange.exporting.architectures import Architecture
from gpt.exchange.exporting.losses import Losses
from gpt.storage.manifest import Manifest
from gpt.trained import TrainedGPT
from gpt.version import __version__

MOST_SOURCES = 3
CARD = """---
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


def card(model: TrainedGPT, architecture: Architecture, found: Losses | None) -> str:
    """The card as Markdown. The text and the origin are those of the model's run; a model file
    without its run has none.
    """
    config, manifest = model.config, model.manifest if model.has_run else None
    prompt, size = model.example(), f"{config.block_size:,} characters"
    context = {
        "learned": f"{size}, prompt and new ones together; there are no positions after them",
        "rotary": f"{size}; it continues longer texts, but predicts them worse",
    }[config.position]
    return CARD.format(
        kind=architecture.kind,
        title=code(model.stored.title),
        parameters=config.parameters(),
        origin=_origin(manifest),
        version=__version__,
        architecture=architecture.name,
        text=_text(manifest),
        vocabulary=config.vocab_size,
        loss=_loss(found),
        context=context,
        prompt=prompt,
        new=max(1, config.block_size - len(prompt)),
    )


def code(text: str) -> str:
    """A text as code in Markdown; what cannot be printed is escaped."""
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence, space = "`" * (longest + 1), " " * (longest > 0)
    return f"{fence}{space}{shown}{space}{fence}"


def _origin(manifest: Manifest | None) -> str:
    if manifest and manifest.imported:
        return f"gptx imported it: {manifest.imported}."
    return "It was trained with gptx."


def _text(manifest: Manifest | None) -> str:
    """Names of the sources without their folders, and how long the text is; "" if not known."""
    if not manifest or not manifest.corpus.digest:
        return ""
    corpus = manifest.corpus
    names = [code(re.split(r"[\\/]", source)[-1] or source) for source in corpus.sources]
    more = f" and {len(names) - MOST_SOURCES:,} more" if len(names) > MOST_SOURCES else ""
    return f"{', '.join(names[:MOST_SOURCES])}{more}, {corpus.characters:,} characters, "


def _loss(found: Losses | None) -> str:
    if found is None:
        return "not measured"
    if found.gpt is not None:
        return found.note
    bits = found.nats / math.log(2)
    where = f"on {found.characters:,} characters of {found.where}"
    return f"{found.nats:.4f} nats per character ({bits:.3f} bits), {where}"

"""The slips in the lesson "encoder-decoder": five small mistakes of a tutorial, and their effects.

The slips of cross-attention itself are in the lesson "cross".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.explain.lesson import Step
from gpt.explain.tables import complaint, same, seeded, table
from gpt.explain.two_texts import LARGE, PAPER, Texts, unturned, xavier
from gpt.model import GPT
from gpt.model.gpt import Block

SIZE, BATCH, LENGTH, DROPOUT = 64, 16, 10, 0.1


def steps(texts: Texts) -> Iterator[Step]:
    """Each slip, its effect, and what gptx does."""
    yield _padding_id(texts)
    yield _reset(texts.seed)
    yield _tying(texts)
    yield _dropout(texts)
    yield _mask(texts)


def _padding_id(texts: Texts) -> Step:
    rows = LARGE["vocab_size"]
    embedding = nn.Embedding(rows, 1)
    error = complaint(partial(embedding, torch.tensor([rows])))
    return Step(
        "Slip 1: a padding id without a row",
        f"The tutorial’s vocabulary has {rows:,} words, with ids 0 … {rows - 1:,}. Its padding id "
        f"is {rows:,}, and the embedding has no such row. The tutorial’s example has no padding, "
        f"so it runs. With the first padded text, torch raises {error}.",
        f"nn.Embedding({rows})({rows})    # must be: {rows} + 1 rows, or another id",
        notice="gptx needs no id for padding: any id will do, and the mask hides it.",
        checks=(Check("the embedding raises an error", float(error == "nothing"), 0.0),),
    )


def _reset(seed: int) -> Step:
    """What torch's and Xavier's initial weights give."""
    shape = {"vocab_size": 2 * SIZE, "block_size": LENGTH, "n_layer": 1, "encoder_layers": 1}
    untied = {"tied": False, "shared_embedding": False}
    found = []
    for options, reset in ((untied, False), ({}, False), ({}, True)):
        config = ModelConfig(**PAPER | shape | options, n_head=4, n_embd=SIZE)
        with seeded(seed), torch.no_grad():
            model: Any = GPT(config)
            model = xavier(model) if reset else model
            source, ids, targets = torch.randint(2 * SIZE, (3, BATCH, LENGTH))
            logits = model(ids, source=source)
        embedded = SIZE**0.5 * model.token_embedding.weight
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        spreads = embedded.std(), model.position.table.std(), logits.std(), loss
        found.append(torch.stack([each.detach() for each in spreads]).double())
    expected = (2 * SIZE / (3 * SIZE)) ** 0.5
    _, _, deviation, loss = torch.stack(found[::2]).T
    guess = float((loss - math.log(2 * SIZE) - deviation**2 / 2).abs().max())
    return Step(
        "Slip 2: initial weights that are never set",
        "The tutorial defines _reset_parameters, Xavier’s initial weights, but never calls it. So "
        "torch’s own remain: the standard deviation of an embedding is 1. Multiplied by √d, it is "
        "much larger than the positions, which hardly count at the start. If the output weights "
        "are tied to this embedding (slip 3), the logits’ standard deviation is √d or more, and "
        "the loss starts far above that of a uniform guess, "
        f"ln {2 * SIZE} = {math.log(2 * SIZE):.2f}. The table has standard deviations and the loss "
        f"(nats) of models with d = {SIZE}, one block in each stack and {BATCH} pairs of random "
        f"texts. At d = 512, √d is {512**0.5:.1f}."
        " The repaired loss need not be lower than the first: before training, logits say nothing "
        f"about random targets, so the loss is near ln {2 * SIZE} + the logits’ variance / 2, and "
        "Xavier’s weights spread logits a little wider. The repair lets positions count from the "
        "start, and tied weights begin near a uniform guess.",
        "Xavier: ±√(6 / (rows + columns))    their standard deviation × √d = √(2d / (words + d))",
        (
            table(
                "standard deviations at the start",
                torch.stack(found),
                rows=("as it is", "tied", "repaired"),
                columns=("embedding", "positions", "logits", "loss"),
            ),
        ),
        checks=(
            Check("Xavier: √(2d / (words + d))", abs(float(found[2][0]) - expected), 0.02),
            Check("untied, repaired: ln words + variance / 2", guess, 0.3),
            Check("tied: √d or more", max(0.0, SIZE**0.5 - float(found[1][2])), 0.1),
        ),
    )


def _tying(texts: Texts) -> Step:
    """The parameters of untied and tied embeddings at the paper's size."""
    untied = ModelConfig(**LARGE | {"tied": False, "shared_embedding": False})
    counts = torch.tensor([untied.parameters(), ModelConfig(**LARGE).parameters()])
    saved, embedding = int(counts[0] - counts[1]), untied.vocab_size * untied.n_embd
    model: Any = texts.model
    tables = model.token_embedding, model.encoder.token_embedding, model.lm_head
    one = len({id(each.weight) for each in tables}) == 1
    return Step(
        "Slip 3: weights that are not tied",
        "The tutorial says that both embeddings and the output weights are one matrix (Press & "
        "Wolf 2017), but makes three. At the paper’s size, with gptx’s layers, tying saves two "
        f"matrices of {embedding:,} parameters, {saved:,} in all. Tying needs one vocabulary for "
        "source and target. The options of gptx are --tied and --shared-embedding.",
        "lm_head.weight = token_embedding.weight = encoder.token_embedding.weight",
        (table("parameters of the model", counts, columns=("untied", "tied"), digits=0),),
        checks=(
            Check("tying saves two embeddings", float(abs(saved - 2 * embedding)), 0.0),
            Check("this lesson’s model has one matrix", float(not one), 0.0),
        ),
    )


def _dropout(texts: Texts) -> Step:
    """The share of zeros that dropout makes in each sublayer's output."""
    config = replace(texts.model.config, dropout=DROPOUT, block_size=LENGTH)
    shares = []
    with seeded(texts.seed):
        block: Any = Block(config).requires_grad_(False)
        x, memory = torch.randn(2, 16 * BATCH, LENGTH, config.n_embd)
        for slip in (False, True):
            if slip:  # what a dropout that forward does not call amounts to
                block.attention.dropout = block.cross.dropout = nn.Identity()
            outputs = (
                block.attention(x, unturned),
                block.cross(x, unturned, memory=memory),
                block.feed_forward(x),
            )
            shares.append(torch.stack([(each == 0).double().mean() for each in outputs]))
    repaired, slipped = shares
    return Step(
        "Slip 4: a dropout that is never applied",
        "DecoderBlock in the tutorial makes self.dropout, but forward does not use it. There "
        "is no error. The paper drops a share of each sublayer’s output before it is added; in the "
        "tutorial only the feed-forward layer does, as it has its own dropout. With less dropout "
        "than intended, a model overfits sooner. The table shows the share of zeros in the "
        f"outputs in training, with a dropout of {DROPOUT}.",
        "x = norm(x + dropout(sublayer(x)))",
        (
            table(
                "share of zeros",
                torch.stack((slipped, repaired)),
                rows=("slip", "Block"),
                columns=("attention", "cross", "feed-fwd"),
            ),
        ),
        checks=(
            Check("Block drops in each sublayer", float((repaired - DROPOUT).abs().max()), 0.02),
            Check("the slip drops nothing in attention", float(slipped[:2].max()), 1e-3),
        ),
    )


def _mask(texts: Texts) -> Step:
    """The target's mask in cross-attention, on the whole model: padding changes the logits."""
    model, size = texts.model, len(texts.reads) + 1
    S = min(2, len(texts.words))
    of_source, of_target = (torch.arange(size)[None] < length for length in (S, size - 1))
    ids, other = F.pad(texts.ids, (0, 1)), len(texts.vocabulary) - 1
    logits: dict[str, list[Any]] = {"slip": [], "repaired": []}
    for padding in (0, other):
        source = F.pad(texts.source[:, :S], (0, size - S), value=padding)
        memory = model.encode(source, of_source)
        for name, seen in (("slip", of_target), ("repaired", of_source)):
            stream = model.stream(ids, memory=memory, seen=seen)
            logits[name].append(model.lm_head(stream)[0, : size - 1])
    changes = torch.stack([(one - two).abs().max() for one, two in logits.values()])
    alone = model(texts.ids, source=texts.source[:, :S])[0]
    return Step(
        "Slip 5: the mask of the target",
        "Cross-attention gets the target’s padding mask (lesson “cross”). Lengths must then be "
        f"equal, so a source of {S} words and a target of {size - 1} are filled up to {size}. The "
        "mask of the target shows padding of the source, so the logits depend on the padding: "
        "here is the largest change of a logit if the padding gets another id. With the mask of "
        "the source, nothing changes.",
        "stream(ids, memory=encode(source, seen), seen=seen)    # seen: of the source, twice",
        (table("change of the logits", changes, columns=tuple(logits)),),
        checks=(
            Check("mask of the source: no change", float(changes[1]), 1e-12),
            same("mask of the source = without padding", logits["repaired"][0], alone),
        ),
    )

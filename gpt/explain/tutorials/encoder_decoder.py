"""The lesson "encoder-decoder": the Transformer of two texts, from the model's own modules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.explain.lesson import Material, Step
from gpt.explain.tables import same, seeded, table
from gpt.explain.tutorials import encoder_decoder_slips
from gpt.explain.two_texts import LARGE, LAYERS, WIDTH, Texts, count, unturned
from gpt.model import GPT
from gpt.model.gpt import Block, Cache, Stack

DEPTH = 6  # blocks whose stream is measured, as many as in the paper


def steps(material: Material) -> Iterator[Step]:
    """The parts, the paper's size, padding, the cache; then what each slip breaks."""
    texts = Texts.of(material)
    target, labels = texts.reads[1:], {"digits": 0}
    predicts = torch.tensor([texts.vocabulary.index(word) for word in (*target, "end")])
    yield Step(
        "A model of two texts",
        "The encoder reads the source: each word attends to all words. The decoder writes the "
        "target word by word: each word attends to earlier target words and, by cross-attention, "
        "to the encoder’s output, the memory. The decoder reads “start” and the target, and "
        "learns to predict the target and “end”. gptx does this with characters, from TAB to the "
        f"end of the line. The small model of this lesson is {WIDTH} wide and has {LAYERS} blocks "
        f"in each stack and random weights, seed {texts.seed}.",
        "memory = encoder(source)    logits = decoder(start + target, memory)",
        (
            table("source ids", texts.source[0], columns=texts.words, **labels),
            table("ids that the decoder reads", texts.ids[0], columns=texts.reads, **labels),
            table("ids that it learns to predict", predicts, columns=(*target, "end"), **labels),
        ),
    )
    yield _embeddings(texts)
    yield _encoder_block(texts)
    yield _decoder_block(texts)
    yield _norms(texts)
    yield _size()
    yield _padding(texts)
    yield _once(texts)
    yield from encoder_decoder_slips.steps(texts)


def _embeddings(texts: Texts) -> Step:
    """√d-scaled embeddings and sinusoidal positions."""
    S, columns = len(texts.words), torch.arange(WIDTH)
    speeds = 10_000.0 ** -(columns // 2 * 2 / WIDTH).double()
    angles = torch.outer(torch.arange(S).double(), speeds)  # (S, C)
    positions = torch.where(columns % 2 == 0, angles.sin(), angles.cos())
    embedded = WIDTH**0.5 * texts.model.token_embedding(texts.source)[0]
    encoder: Any = texts.model.encoder
    return Step(
        "Embeddings and positions",
        "Each id selects a row of the embedding, which is multiplied by √n_embd = "
        f"{WIDTH**0.5:.2f}. Attention does not know the order of words, so each position t has a "
        "row of sines and cosines, which is added.",
        "x[t] = √d × embedding[id] + position[t]    "
        "position[t, 2i] = sin(t / 10000^(2i/d))    position[t, 2i+1] = cos(t / 10000^(2i/d))",
        (
            table("√d × embedding", embedded, rows=texts.words),
            table("positions", positions, rows=texts.words),
        ),
        checks=(
            same("= positions of the model", positions, encoder.position.table[:S]),
            same("their sum = input of the encoder", embedded + positions, texts.inputs()[0]),
        ),
    )


def _encoder_block(texts: Texts) -> Step:
    """The first block by hand, and the memory."""
    x, (block, *others) = texts.inputs(), texts.encoder_blocks
    everywhere = torch.ones(1, 1, x.shape[1], dtype=torch.bool)
    first = block.norm1(x + block.attention(x, unturned, allowed=everywhere))
    up, down = block.feed_forward.up, block.feed_forward.down
    widened = (first @ up.weight.T + up.bias).clamp(min=0)
    second = block.norm2(first + widened @ down.weight.T + down.bias)
    memory = second
    for other in others:
        memory = other(memory, unturned, allowed=everywhere)
    return Step(
        "A block of the encoder",
        "A block has two sublayers: attention without a causal mask, and a feed-forward layer "
        f"with ReLU, {WIDTH} → {len(up.weight)} → {WIDTH} numbers. Each result is added to its "
        "input, and the sum is normalised. The output of the last block is the memory.",
        "x = norm(x + attention(x))    x = norm(x + max(0, x · W_upᵀ + b) · W_downᵀ + b)",
        (
            table("after the first block", second[0], rows=texts.words),
            table("memory", memory[0], rows=texts.words),
        ),
        checks=(
            same("by hand = Block", second, block(x, unturned, allowed=everywhere)),
            same("block after block = encode", memory, texts.model.encode(texts.source)),
        ),
    )


def _decoder_block(texts: Texts) -> Step:
    """The first block by hand, and the logits."""
    model, ids, source = texts.model, texts.ids, texts.source
    block: Any = model.blocks[0]
    start = x = model.position.embed(WIDTH**0.5 * model.token_embedding(ids), slice(ids.shape[1]))
    memory = model.encode(source)
    x = block.norm1(x + block.attention(x, unturned))
    x = block.cross_norm(x + block.cross(x, unturned, memory=memory))
    x = block.norm2(x + block.feed_forward(x))
    logits = model(ids, source=source)
    changed = model(torch.cat((ids[:, :-1], ids[:, :1]), dim=1), source=source)
    return Step(
        "A block of the decoder",
        "A block of the decoder has three sublayers: attention with a causal mask, cross-attention "
        "to the memory (lesson “cross”), and feed-forward. The product with the embedding gives "
        "the logits: a row for each word that the decoder reads, a column for each next word.",
        "x = norm(x + attention(x))    x = norm(x + cross(x, memory))    "
        "x = norm(x + feed_forward(x))    logits = x · embeddingᵀ",
        (table("logits", logits[0], rows=texts.reads, columns=texts.vocabulary),),
        "Exchanging the last word that the decoder reads changes no earlier row.",
        (
            same("by hand = Block", x, block(start, unturned, memory=memory)),
            same("earlier logits unchanged", changed[:, :-1], logits[:, :-1]),
        ),
    )


def _norms(texts: Texts) -> Step:
    """The size of the stream with norms after the sublayers and before them."""
    sizes = []
    config: Any = texts.model.config.encoder
    for post_norm in (True, False):
        with seeded(texts.seed):
            stack = Stack(replace(config, n_layer=DEPTH, post_norm=post_norm))
        stack.double().requires_grad_(False)
        stack.token_embedding.weight.data.copy_(texts.model.token_embedding.weight)
        x = stack.position.embed(
            WIDTH**0.5 * stack.token_embedding(texts.source), slice(len(texts.words))
        )
        streams = [x, *(x := block(x, unturned) for block in stack.blocks)]
        sizes.append(torch.stack([each.square().mean().sqrt() for each in streams]))
    generator = torch.Generator().manual_seed(texts.seed)
    x = torch.randn(9, 512, generator=generator, dtype=torch.float64)
    their = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)
    factor = (511 / 512) ** 0.5
    return Step(
        "Norms after or before",
        "The paper normalises the sum after each sublayer (post-norm). GPT-2 normalises the input "
        "of each sublayer (pre-norm) and the stream once, at the end. Here is the root mean square "
        f"of the stream of words through {DEPTH} new blocks with equal weights. With post-norm it "
        "stays 1. With pre-norm it can grow, but the sum x + sublayer(x) carries gradients to the "
        "first block unchanged, so training needs no slow start (Xiong et al. 2020). Pre-norm is "
        "the default of gptx.",
        "post-norm: x = norm(x + sublayer(x))    pre-norm: x = x + sublayer(norm(x))",
        (
            table(
                "size of the stream",
                torch.stack(sizes),
                rows=("post-norm", "pre-norm"),
                columns=("input", *(f"block {number}" for number in range(DEPTH))),
            ),
        ),
        "The LayerNorm in the tutorial divides by the standard deviation with n − 1; torch’s "
        f"with n. At n = 512 the outputs differ by a factor of {factor:.4f}.",
        (
            Check("post-norm: size 1", float((sizes[0][1:] - 1).abs().max()), 1e-3),
            same(
                "tutorial’s norm = factor × LayerNorm",
                their,
                factor * F.layer_norm(x, (512,)),
                1e-4,
            ),
        ),
    )


def _size() -> Step:
    """The parameters at the paper's size; the tutorial prints those of an encoder block."""
    config = ModelConfig(**LARGE)
    assert config.encoder
    with torch.device("meta"):  # shapes without numbers
        counts = [
            count(nn.Embedding(config.vocab_size, config.n_embd)),
            count(Block(config.encoder)),
            count(Block(config)),
        ]
    whole = counts[0] + config.encoder_layers * counts[1] + config.n_layer * counts[2]
    return Step(
        "At the paper’s size",
        f"The tutorial’s model is {config.n_embd} wide and has {config.n_head} heads of "
        f"{config.head_size}, {config.hidden:,} numbers between the feed-forward matrices, "
        f"{config.vocab_size:,} words and {config.n_layer} blocks in each stack. An encoder block "
        f"has {counts[1]:,} parameters, as the tutorial prints; a decoder block has {counts[2]:,}, "
        f"because of cross-attention and its norm; an embedding has {counts[0]:,}. "
        f"All blocks and one embedding have {whole:,}.",
        "",
        (
            table(
                "parameters",
                torch.tensor(counts),
                columns=("embedding", "encoder", "decoder"),
                digits=0,
            ),
        ),
        checks=(
            Check("encoder block: 3,150,848", float(abs(counts[1] - 3_150_848)), 0.0),
            Check("embedding: 524,288", float(abs(counts[0] - 524_288)), 0.0),
            Check("together = the model’s", float(abs(whole - config.parameters())), 0.0),
        ),
    )


def _padding(texts: Texts) -> Step:
    """A batch whose second source is shorter; padding is any id."""
    S, short, words = len(texts.words), max(1, len(texts.words) // 2), len(texts.vocabulary)
    seen = torch.arange(S + 1) < torch.tensor([[S], *[[short]] * words])  # (B, S + 1)
    padding = torch.tensor([0, *range(words)])[:, None]  # (B, 1)
    source = torch.where(seen, F.pad(texts.source, (0, 1)), padding)
    logits = texts.model(texts.ids.expand(words + 1, -1), source=source, seen=seen)
    alone = texts.model(texts.ids, source=texts.source[:, :short])[0]
    return Step(
        "Padding changes no logit",
        f"A batch has two sources, of {S} and {short} words, both filled up to {S + 1}. The mask "
        "`seen` is False for padding. The encoder’s attention and cross-attention both use it, so "
        "padding can be any id of the vocabulary. The table shows the logits of the shorter "
        "source. Padding of a target comes last: the causal mask hides it from the real words, "
        "and its own logits are not in the loss.",
        "logits = model(ids, source=source, seen=seen)",
        (
            table("seen", seen[:2].long(), digits=0),
            table(
                f"logits of {short} words", logits[1], rows=texts.reads, columns=texts.vocabulary
            ),
        ),
        checks=(
            same(f"{words} ids as padding: equal logits", logits[1:], logits[1]),
            same("in the batch = alone", logits[1], alone),
        ),
    )


def _once(texts: Texts) -> Step:
    """Decoding with the memory and a cache."""
    T, config = texts.ids.shape[1], replace(texts.model.config, attention="fused")
    model = GPT(config).double()
    model.load_parameters(texts.model.stored_parameters())
    memory, cache = model.encode(texts.source), Cache(config, 1, texts.ids.device)
    cache.keys, cache.values = cache.keys.double(), cache.values.double()
    rows = []
    for t in range(T):
        cache.at = slice(t, t + 1)
        rows.append(model.lm_head(model.stream(texts.ids[:, t : t + 1], cache, memory=memory)))
    steps = torch.cat(rows, dim=1)
    S = len(texts.words)
    return Step(
        "The encoder runs once",
        "The memory does not depend on the target. So to write a target, the encoder runs once for "
        f"the source: {S} rows, not {S} × {T} = {S * T} for {T} words. The decoder reads one word "
        "at a time and caches keys and values of earlier words. gptx also keeps the keys and "
        "values of the memory. The logits are the same as those of the whole target at once.",
        tables=(
            table("logits, word by word", steps[0], rows=texts.reads, columns=texts.vocabulary),
        ),
        checks=(same("cached = at once", steps, texts.model(texts.ids, source=texts.source)),),
    )

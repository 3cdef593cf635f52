"""The lesson "encoder-decoder": the Transformer for two texts, made of the model's modules.

It ends with five small mistakes in a tutorial, and their effects. The lesson "cross" has the slips
in cross-attention itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, error_text, second_text, table, torch_seed
from gpt.model import GPT
from gpt.model.gpt import Block, Cache, Stack

SEED, WIDTH, LAYERS = 123, 8, 2
DEPTH = 6  # blocks whose stream is measured; the paper has as many
SIZE, BATCH, LENGTH, DROPOUT = 64, 16, 10, 0.1  # sizes of the models that show slips

#: The kinds of layers in "Attention Is All You Need" (Vaswani et al. 2017).
PAPER: dict[str, Any] = {
    "position": "sinusoidal",
    "norm": "layer",
    "activation": "relu",
    "bias": True,
    "post_norm": True,
    "scaled_embedding": True,
    "tied": True,
    "shared_embedding": True,
    "attention": "heads",
}
#: The size of the tutorial's model.
LARGE = ModelConfig(
    vocab_size=1024,
    block_size=2048,
    n_layer=8,
    encoder_layers=8,
    n_head=8,
    n_embd=512,
    **PAPER | {"attention": "fused"},
)


class Texts:
    """A pair of texts and a small model with random weights for them, in float64.

    source: (1, S) ids of `words`; ids: (1, T) ids of `reads`, which the decoder reads.
    """

    def __init__(self, material: Material) -> None:
        self.words, self.reads = words, reads = material.words, ("start", *second_text(material))
        self.vocabulary = vocabulary = tuple(dict.fromkeys(("start", "end", *words, *reads)))
        self.seed = material.seed_or(SEED)
        config = ModelConfig(
            vocab_size=len(vocabulary),
            block_size=len(words) + len(reads),
            n_layer=LAYERS,
            encoder_layers=LAYERS,
            n_head=2,
            n_embd=WIDTH,
            **PAPER,
        )
        with torch_seed(self.seed):
            self.model = init_xavier(GPT(config)).double().requires_grad_(False)
        self.encoder: Any = self.model.encoder
        self.source, self.ids = (
            torch.tensor([[vocabulary.index(it) for it in on]]) for on in (words, reads)
        )

    def inputs(self) -> Tensor:
        """(1, S, C): the input of the encoder's first block."""
        kept: list[dict[str, Tensor]] = []
        self.encoder.stream(self.source, keep=lambda **stages: kept.append(stages))
        return kept[0]["resid_pre"]


def init_xavier(model: GPT) -> GPT:
    """Draws every matrix within ±√(6 / (rows + columns)) (Glorot & Bengio 2010)."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
    return model


def leave_unrotated(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Returns its arguments: sinusoidal positions do not rotate queries and keys."""
    return queries, keys


def steps(material: Material) -> Iterator[Step]:
    """The parts, the paper's size, padding, the cache; then what each slip breaks."""
    texts = Texts(material)
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
    yield _padding_id(texts)
    yield _reset(texts.seed)
    yield _tying(texts)
    yield _dropout(texts)
    yield _mask(texts)


def _embeddings(texts: Texts) -> Step:
    """√d-scaled embeddings and sinusoidal positions."""
    S, columns = len(texts.words), torch.arange(WIDTH)
    speeds = 10_000.0 ** -(columns // 2 * 2 / WIDTH).double()
    angles = torch.outer(torch.arange(S).double(), speeds)  # (S, C)
    positions = torch.where(columns % 2 == 0, angles.sin(), angles.cos())
    embedded = WIDTH**0.5 * texts.model.token_embedding(texts.source)[0]
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
            check_equal("= positions of the model", positions, texts.encoder.position.table[:S]),
            check_equal(
                "their sum = input of the encoder", embedded + positions, texts.inputs()[0]
            ),
        ),
    )


def _encoder_block(texts: Texts) -> Step:
    """Computes the encoder's first block by hand, and the memory."""
    x, (block, *others) = texts.inputs(), texts.encoder.blocks
    everywhere = torch.ones(1, 1, x.shape[1], dtype=torch.bool)
    first = block.norm1(x + block.attention(x, leave_unrotated, allowed=everywhere))
    up, down = block.feed_forward.up, block.feed_forward.down
    widened = (first @ up.weight.T + up.bias).clamp(min=0)
    second = block.norm2(first + widened @ down.weight.T + down.bias)
    memory = second
    for other in others:
        memory = other(memory, leave_unrotated, allowed=everywhere)
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
            check_equal("by hand = Block", second, block(x, leave_unrotated, allowed=everywhere)),
            check_equal("block after block = encode", memory, texts.model.encode(texts.source)),
        ),
    )


def _decoder_block(texts: Texts) -> Step:
    """Computes the decoder's first block by hand, and the logits."""
    model, ids, source = texts.model, texts.ids, texts.source
    block: Any = model.blocks[0]
    start = x = model.position.embed(WIDTH**0.5 * model.token_embedding(ids), slice(ids.shape[1]))
    memory = model.encode(source)
    x = block.norm1(x + block.attention(x, leave_unrotated))
    x = block.cross_norm(x + block.cross(x, leave_unrotated, memory=memory))
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
            check_equal("by hand = Block", x, block(start, leave_unrotated, memory=memory)),
            check_equal("earlier logits unchanged", changed[:, :-1], logits[:, :-1]),
        ),
    )


def _norms(texts: Texts) -> Step:
    """The size of the stream with norms after the sublayers, and with norms before them."""
    sizes = []
    for post_norm in (True, False):
        with torch_seed(texts.seed):
            stack = Stack(replace(texts.encoder.config, n_layer=DEPTH, post_norm=post_norm))
        x, blocks = texts.inputs(), stack.double().requires_grad_(False).blocks
        streams = [x, *(x := block(x, leave_unrotated) for block in blocks)]
        sizes.append(torch.stack([each.square().mean().sqrt() for each in streams]))
    generator = torch.Generator().manual_seed(texts.seed)
    x = torch.randn(9, 512, generator=generator, dtype=torch.float64)
    their = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)
    factor = (511 / 512) ** 0.5
    as_torch = factor * F.layer_norm(x, (512,))
    orders = "post-norm", "pre-norm"
    places = "input", *(f"block {number}" for number in range(DEPTH))
    return Step(
        "Norms after or before",
        "The paper normalises the sum after each sublayer (post-norm). GPT-2 normalises the input "
        "of each sublayer (pre-norm) and the stream once, at the end. Here is the root mean square "
        f"of the stream of words through {DEPTH} new blocks with equal weights. With post-norm it "
        "stays 1. With pre-norm it can grow, but the sum x + sublayer(x) carries gradients to the "
        "first block unchanged, so training needs no slow start (Xiong et al. 2020). Pre-norm is "
        "the default of gptx.",
        "post-norm: x = norm(x + sublayer(x))    pre-norm: x = x + sublayer(norm(x))",
        (table("size of the stream", torch.stack(sizes), rows=orders, columns=places),),
        "The LayerNorm in the tutorial divides by the standard deviation with n − 1; torch’s "
        f"with n. At n = 512 the outputs differ by a factor of {factor:.4f}.",
        (
            Check("post-norm: size 1", float((sizes[0][1:] - 1).abs().max()), 1e-3),
            check_equal("tutorial’s norm = factor × LayerNorm", their, as_torch, 1e-4),
        ),
    )


def _size() -> Step:
    """The numbers of parameters at the paper's size; the tutorial prints an encoder block's."""
    config, encoder = LARGE, LARGE.encoder
    assert encoder
    with torch.device("meta"):  # shapes without numbers
        embedding = nn.Embedding(config.vocab_size, config.n_embd)
        parts = {"embedding": embedding, "encoder": Block(encoder), "decoder": Block(config)}
    counts = [sum(it.numel() for it in part.parameters()) for part in parts.values()]
    whole = counts[0] + config.encoder_layers * counts[1] + config.n_layer * counts[2]
    return Step(
        "At the paper’s size",
        f"The tutorial’s model is {config.n_embd} wide and has {config.n_head} heads of "
        f"{config.head_size}, {config.ffn_hidden:,} numbers between the feed-forward matrices, "
        f"{config.vocab_size:,} words and {config.n_layer} blocks in each stack. An encoder block "
        f"has {counts[1]:,} parameters, as the tutorial prints; a decoder block has {counts[2]:,}, "
        f"because of cross-attention and its norm; an embedding has {counts[0]:,}. "
        f"All blocks and one embedding have {whole:,}.",
        "",
        (table("parameters", torch.tensor(counts), columns=tuple(parts), digits=0),),
        checks=(
            Check("encoder block: 3,150,848", float(abs(counts[1] - 3_150_848)), 0.0),
            Check("embedding: 524,288", float(abs(counts[0] - 524_288)), 0.0),
            Check("together = the model’s", float(abs(whole - config.parameters())), 0.0),
        ),
    )


def _padding(texts: Texts) -> Step:
    """A batch whose second source is shorter; any id may stand for padding."""
    S, short, words = len(texts.words), max(1, len(texts.words) // 2), len(texts.vocabulary)
    seen = torch.arange(S + 1) < torch.tensor([[S], *[[short]] * words])  # (B, S + 1)
    padding = torch.tensor([0, *range(words)])[:, None]  # (B, 1)
    source = torch.where(seen, F.pad(texts.source, (0, 1)), padding)
    logits = texts.model(texts.ids.expand(words + 1, -1), source=source, seen=seen)
    alone = texts.model(texts.ids, source=texts.source[:, :short])[0]
    labels = {"rows": texts.reads, "columns": texts.vocabulary}
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
            table(f"logits of {short} words", logits[1], **labels),
        ),
        checks=(
            check_equal(f"{words} ids as padding: equal logits", logits[1:], logits[1]),
            check_equal("in the batch = alone", logits[1], alone),
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
        checks=(
            check_equal("cached = at once", steps, texts.model(texts.ids, source=texts.source)),
        ),
    )


def _padding_id(texts: Texts) -> Step:
    rows = LARGE.vocab_size
    embedding = nn.Embedding(rows, 1)
    error = error_text(partial(embedding, torch.tensor([rows])))
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
    """The outputs with torch's initial weights and with Xavier's."""
    shape = {"vocab_size": 2 * SIZE, "block_size": LENGTH, "n_layer": 1, "encoder_layers": 1}
    untied = {"tied": False, "shared_embedding": False}
    found = []
    for options, reset in ((untied, False), ({}, False), ({}, True)):
        config = ModelConfig(**PAPER | shape | options, n_head=4, n_embd=SIZE)
        with torch_seed(seed), torch.no_grad():
            model: Any = GPT(config)
            model = init_xavier(model) if reset else model
            source, ids, targets = torch.randint(2 * SIZE, (3, BATCH, LENGTH))
            logits = model(ids, source=source)
        embedded = SIZE**0.5 * model.token_embedding.weight
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        spreads = embedded.std(), model.position.table.std(), logits.std(), loss
        found.append(torch.stack([each.detach() for each in spreads]).double())
    columns = "embedding", "positions", "logits", "loss"
    labels = {"rows": ("as it is", "tied", "repaired"), "columns": columns}
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
        (table("standard deviations at the start", torch.stack(found), **labels),),
        checks=(
            Check("Xavier: √(2d / (words + d))", abs(float(found[2][0]) - expected), 0.02),
            Check("untied, repaired: ln words + variance / 2", guess, 0.3),
            Check("tied: √d or more", max(0.0, SIZE**0.5 - float(found[1][2])), 0.1),
        ),
    )


def _tying(texts: Texts) -> Step:
    """The number of parameters of untied and tied embeddings at the paper's size."""
    untied = replace(LARGE, tied=False, shared_embedding=False)
    counts = torch.tensor([untied.parameters(), LARGE.parameters()])
    saved, embedding = int(counts[0] - counts[1]), untied.vocab_size * untied.n_embd
    model, encoder = texts.model, texts.encoder
    tables = model.token_embedding, encoder.token_embedding, model.lm_head
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
    with torch_seed(texts.seed):
        block: Any = Block(config).requires_grad_(False)
        x, memory = torch.randn(2, 16 * BATCH, LENGTH, config.n_embd)
        for slip in (False, True):
            if slip:  # forward does not call this dropout
                block.attention.dropout = block.cross.dropout = nn.Identity()
            outputs = {
                "attention": block.attention(x, leave_unrotated),
                "cross": block.cross(x, leave_unrotated, memory=memory),
                "feed-fwd": block.feed_forward(x),
            }
            shares.append(torch.stack([(each == 0).double().mean() for each in outputs.values()]))
    repaired, slipped = shares
    shown = torch.stack((slipped, repaired))
    return Step(
        "Slip 4: a dropout that is never applied",
        "DecoderBlock in the tutorial makes self.dropout, but forward does not use it. There "
        "is no error. The paper drops a share of each sublayer’s output before it is added; in the "
        "tutorial only the feed-forward layer does, as it has its own dropout. With less dropout "
        "than intended, a model overfits sooner. The table shows the share of zeros in the "
        f"outputs in training, with a dropout of {DROPOUT}.",
        "x = norm(x + dropout(sublayer(x)))",
        (table("share of zeros", shown, rows=("slip", "Block"), columns=tuple(outputs)),),
        checks=(
            Check("Block drops in each sublayer", float((repaired - DROPOUT).abs().max()), 0.02),
            Check("the slip drops nothing in attention", float(slipped[:2].max()), 1e-3),
        ),
    )


def _mask(texts: Texts) -> Step:
    """In the whole model, the target's mask in cross-attention lets padding change the logits."""
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
            check_equal("mask of the source = without padding", logits["repaired"][0], alone),
        ),
    )

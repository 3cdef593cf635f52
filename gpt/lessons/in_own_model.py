"""The last steps of five lessons, in a user's trained model: `gptx explain NAME --run RUN`.

Tensor names: T time, H heads, D head_size, C n_embd, V characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from gpt.checks import Check
from gpt.config import TrainConfig
from gpt.config.fields import require
from gpt.heads.attention_map import require_decoder_only
from gpt.heads.measures import name_heads
from gpt.heads.places import head_name
from gpt.heads.survey import NO_INDUCTION, evenly_spaced
from gpt.lessons.lesson import MOST_ROWS, Lesson, Step, Table
from gpt.lessons.own_model import character_table, check_head, check_length
from gpt.lessons.tutorials import depth, learning, sampling
from gpt.model import GPT
from gpt.reading import sampler
from gpt.reading.gpt import Reader
from gpt.reading.layers import EPSILON, Array, softmax
from gpt.reading.positions import Position
from gpt.reading.proof import stream_summands
from gpt.reading.score import surprisals
from gpt.vocabulary import Ids

MOST_STEPS, LIKELIEST, SHOWN = 40, 10, 5  # steps to keep; characters; weights or columns
NEAR, ROUNDED = 1e-9, 1e-3  # largest difference of equal numbers in float64, and in float32


class OwnModel(NamedTuple):
    """A TrainedGPT, the text that it reads, its (T,) ids, and the model in float64."""

    run: Any
    text: str
    ids: Ids
    exact: Reader
    layer: int | None
    head: int | None
    seed: int | None

    @property
    def reads(self) -> str:
        """The beginning of a sentence that quotes the text."""
        return "Your model reads “" + self.text.replace("\n", "⏎").replace("\t", "⇥") + "”"


def example(lesson: str, run: Any) -> str:
    """An example text for a model; for the lesson induction, a text that repeats."""
    text, most = run.example(), min(MOST_ROWS, run.config.block_size)
    return str(text[: most // 2] * 2 if lesson == "induction" else text[:most])


def add_own_steps(tutorial: Lesson, run: Any, text: str | None, *place: int | None) -> Lesson:
    """Adds the steps in the user’s model to a lesson. run: a TrainedGPT. text: None for an example.
    place: layer, head and seed; None for the lesson's choice.

    Raises ConfigError for a model with an encoder and for a layer or head that it does not have,
    TextError for a text that is empty or too long and for unknown characters.
    """
    require(hasattr(run, "vocabulary"), "run", "expected a model that gpt.load has opened")
    require_decoder_only(run.config, "the lesson mine", f"the lesson {tutorial.name}")
    check_head(run.config, *(each or 0 for each in place[:2]))
    text = example(tutorial.name, run) if text is None else text
    check_length(run.config, len(ids := run.vocabulary.encode(text)))
    steps = list(tutorial.steps)
    for step in STEPS[tutorial.name](OwnModel(run, text, ids, run.reader.in_float64(), *place)):
        title = f"In your own model: {step.title[0].lower()}{step.title[1:]}"
        tables = tuple(replace(each, name=f"{each.name}, your model") for each in step.tables)
        steps.append(replace(step, title=title, tables=tables))
    return replace(tutorial, steps=tuple(steps), end="")


def _equal(name: str, one: Array | float, other: Array | float, bound: float = NEAR) -> Check:
    """Checks that numbers are equal within `bound`, relative to the largest one above 1."""
    most = max(1.0, float(np.abs(other).max()))
    return Check(name, float(np.abs(np.subtract(one, other)).max()), bound * most)


def _positions(own: OwnModel) -> Iterator[Step]:
    exact, ids, config, T = own.exact, own.ids, own.exact.config, len(own.ids)
    without = copy(exact)
    without.position = Position(config, exact.tensors, exact.dtype)
    texts = ids, np.roll(ids[::-1], -1)  # the last character keeps its place
    found = [[reader.stages(each) for each in texts] for reader in (exact, without)]
    contexts = np.array([[[n.context[:, -1] for n in it] for it in pair] for pair in found])
    difference = np.linalg.norm(contexts[:, 0] - contexts[:, 1], axis=(2, 3))  # (2, L)
    changes = difference / np.linalg.norm(contexts[:, 0], axis=(2, 3))
    layers = tuple(f"layer {layer}" for layer in range(config.n_layer))
    how, having = f"with the model’s {config.position} positions and without them", ["with"]
    checks = own.run.attn(own.text).checks
    if none := config.position == "none":
        how, having, changes = "in your model, which has no positions", [], changes[1:]
    same = Check("layer 0 without positions: no change", float(changes[-1, 0]), NEAR)
    yield Step(
        "another order",
        f"{own.reads}, and again with the characters before the last one in reverse order. The "
        f"table has the change of the last character’s contexts, relative to their length, {how}.",
        "change = |contexts − contexts in the other order| / |contexts|",
        (Table("change of contexts", changes.T, layers, (*having, "without")),),
        "Without positions, the order has no effect in layer 0. In later layers it has one: by the "
        "causal mask, each of their rows has taken from the characters before it only.",
        (same, *checks * none),
    )
    if none:
        return
    rotary, layer, head = config.position == "rotary", own.layer or 0, own.head or 0
    width = config.head_size if rotary else config.n_embd
    angles = np.outer(np.arange(T), 10_000.0 ** (-np.arange(0, width, 2) / width))
    if rotary:
        stages = found[0][0][layer]
        x = exact.before(stages.resid_pre[None], f"blocks.{layer}.norm1")
        q, turned = exact.heads(x, layer, "attention")[0][0, head], stages.q[head]
        points, turns = (each[:, ::2] + 1j * each[:, 1::2] for each in (q, turned))
        shown = np.column_stack((angles[-1], q[-1].reshape(-1, 2), turned[-1].reshape(-1, 2)))
        columns = ("angle", "q[2i]", "q[2i + 1]", "q′[2i]", "q′[2i + 1]")
        tables = [Table(f"last query of layer {layer}, head {head}", shown, (), columns)]
        text = "Positions turn queries and keys. Row i of the table is the pair i of columns."
        check = _equal("q′ = q · e^(i · angle)", turns, points * np.exp(1j * angles))
    else:
        tokens, rows = stream_summands(exact, ids)
        expected = np.stack((np.sin(angles), np.cos(angles)), axis=2).reshape(T, -1)[:, :width]
        expected = exact.tensors.get("position.weight", expected)[:T]
        lengths = np.linalg.norm((tokens, rows), axis=-1).T
        tables = [
            character_table(own.text, "position rows", rows),
            character_table(own.text, "lengths of rows", lengths, "", ("character", "position")),
        ]
        text = "Each position has a row, which is added to the row of the character."
        check = _equal("= the stored rows, or sines and cosines", rows, expected)
    title = f"{config.position} positions"
    yield Step(title, text, "", tuple(tables), checks=(check, *checks))


def _learning(own: OwnModel) -> Iterator[Step]:
    if len(own.ids) < 2:
        yield Step("no update", f"{own.reads}, but nothing follows to learn from: give more text.")
        return
    model = GPT(replace(own.exact.config, attention="heads"))  # whose gradients have gradients
    model.load_parameters({n: torch.tensor(each) for n, each in own.run.reader.tensors.items()})
    weights = dict(model.double().eval().named_parameters())
    ids, sizes = torch.tensor(own.ids.tolist()), [each.numel() for each in weights.values()]

    def loss_at(row: Tensor) -> Tensor:
        parts = zip(weights, torch.split(row, sizes), strict=True)
        named = {name: part.view_as(weights[name]) for name, part in parts}
        return F.cross_entropy(functional_call(model, named, (ids[None, :-1],))[0], ids[1:])

    w = torch.cat([each.detach().flatten() for each in weights.values()]).requires_grad_()
    loss = loss_at(w)
    (g,), w = torch.autograd.grad(loss, w), w.detach()
    config = own.run.recorded.train if own.run.recorded else TrainConfig()
    rate, adamw = config.learning_rate, learning.step_adamw(w, 0 * w, 0 * w, g, 1, config)[0]
    numbers = torch.split(torch.stack((w, g, w - rate * g, adamw), dim=1), sizes)
    named = sorted(zip(weights, numbers, strict=True), key=lambda n: -float(n[1][:, 1].abs().max()))
    tables, columns = [], ("before", "gradient", "by SGD", "by AdamW")
    for name, matrix in named[:SHOWN]:
        at = int(matrix[:, 1].abs().argmax())
        place = ", ".join(map(str, np.unravel_index(at, weights[name].shape)))
        tables.append(Table(f"{name}[{place}]", matrix[at].numpy(), (), columns, digits=6))
    logits = own.exact.logits(own.exact.forward(own.ids[None, :-1]))[0]
    muon = " The training itself changed the blocks’ matrices by Muon (gpt/training/muon.py)."
    yield Step(
        "weight by weight",
        f"{own.reads} and predicts each next character. The loss is the mean of −ln p: "
        f"{loss.item():.4f}. Backpropagation gives the gradient of all {len(w):,} weights. For "
        f"{SHOWN} matrices, the tables have the weight with the largest gradient, before and after "
        f"one step with the rate of your training, {rate:g}. AdamW is at its first step. All of "
        "this is in a copy: your run stays as it is.",
        "w ← w − rate × ∂w",
        tuple(tables),
        f"After the step of AdamW, the loss is {float(loss_at(adamw)):.4f}."
        + muon * (config.matrix_lr > 0),
        (_equal("loss = numpy’s", loss.item(), surprisals(logits, own.ids[1:]).mean(), ROUNDED),),
    )
    yield learning.step_sgd(loss_at, w, g)


def _sampling(own: OwnModel) -> Iterator[Step]:
    logits = own.run.logits(own.text)[0, -1].astype(np.float64)
    order, checks = np.argsort(-logits, kind="stable")[:LIKELIEST], []
    names, p = tuple(own.run.vocabulary.symbols(order)), softmax(logits)
    top = torch.from_numpy(logits[order])
    for name, config in (("T", sampling.DEFAULT), ("filters", sampling.FILTERED)):
        limited = replace(config, top_k=min(config.top_k or LIKELIEST, LIKELIEST))
        expected = sampler.probabilities(logits[None], limited)[0, order]
        found = sampling.shape(top, config)[-1].numpy()
        checks.append(_equal(f"{name} = sampler.py’s", found, expected))
    yield Step(
        "logits and probabilities",
        f"{own.reads}. These are the {len(names)} likeliest next characters of {len(p)}, by the "
        f"GPT alone. The others have {1 - p[order].sum():.4f} together. The next steps have only "
        f"these characters, in place of words, as if top-k = {LIKELIEST} came first.",
        "p = softmax(logits)",
        (Table("likeliest", np.stack((logits, p), 1)[order], names, ("logit", "p")),),
        checks=tuple(checks),
    )
    yield from sampling.steps_of(top, names, own.seed)


def _depth(own: OwnModel) -> Iterator[Step]:
    exact, config, stages = own.exact, own.exact.config, own.exact.stages(own.ids)
    sublayers = {"attn": "resid_mid"} | ({"ffn": "resid_post"} if config.feed_forward else {})
    rows = [getattr(each, name)[-1] for each in stages for name in sublayers.values()]
    stream = np.stack([stages[0].resid_pre[-1], *rows])  # (S·L + 1, C), S sublayers
    names = ["embedding", *(f"{n} {part}" for n in range(len(stages)) for part in sublayers)]
    parts = added = np.diff(stream, axis=0, prepend=0 * stream[:1])
    lengths, row, checks = np.linalg.norm((added, stream), axis=-1).T, stream[-1], list[Check]()
    table = Table("lengths", lengths, tuple(names), ("added", "stream"))
    text = (
        f"{own.reads}. The table has the length of what the attention"
        f"{' and the feed-forward' * config.feed_forward} of each layer add"
        f"{'s' * (not config.feed_forward)} to the row of the last character, and the length of "
        "the row after that."
    )
    if config.post_norm:
        text += " A norm follows each of them; what it changes is counted, too."
    else:
        proj = np.array([each.proj[-1] for each in stages])
        checks.append(_equal("attention = proj", added[1 :: len(sublayers)], proj))
        if config.norm == "layer":
            parts, row = added - added.mean(axis=1, keepdims=True), row - row.mean()
        parts = parts / np.sqrt((row**2).mean() + EPSILON) * exact.tensors.get("norm.weight", 1.0)
        if "norm.bias" in exact.tensors:
            parts, names = np.vstack((parts, exact.tensors["norm.bias"])), [*names, "norm bias"]
    yield Step("the stream is a sum", text, tables=(table,), checks=tuple(checks))
    lens = exact.logits(exact.final_norm(stream))  # (S·L + 1, V)
    best = np.argsort(-lens[-1], kind="stable")[:SHOWN]
    given = exact.logits(parts)[:, best], softmax(lens)[:, best], lens[-1, best]
    characters = tuple(own.run.vocabulary.symbols(best))
    step = depth.show_shares(tuple(names), characters, *map(torch.from_numpy, given))
    same = _equal("= the reader’s", own.run.logits(own.text)[0, -1], lens[-1], ROUNDED)
    yield replace(step, checks=(*step.checks, same))


def _induction(own: OwnModel) -> Iterator[Step]:
    run, config = own.run, own.exact.config
    require(own.layer != 0, "layer", "an induction head needs an earlier layer; give 1 or more")
    if config.n_layer < 2:
        yield Step("one layer", "Your model has one layer, so it has no induction head.")
        return
    survey = run.heads(run.stored.excerpt, name=run.excerpt_name)
    known, named = survey.to_numpy(), np.array(name_heads(survey.measures))
    measure = "induction_synthetic" if "induction_synthetic" in known else "induction"
    later = [at for at in survey.ranking(measure) if at[0] and own.layer in (None, at[0])]
    layer, head = next(at for at in later if own.head in (None, at[1]))
    earlier = [at for at in survey.ranking("previous") if at[0] < layer]
    before = sorted(at for at in earlier if named[at] == "previous") or earlier[:1]
    whose, others = head_name(layer, head), ", ".join(head_name(*at) for at in before)
    rows = tuple(f"layer {each}" for each in range(config.n_layer))
    table = partial(Table, columns=tuple(f"head {each}" for each in range(config.n_head)))
    yield Step(
        "its heads",
        f"Measured on {survey.measured}, as by gptx heads: the weight on the character before, and "
        "on the one after an earlier equal character. The third table has how much of the keys of "
        f"{whose} each earlier head makes: K-composition, without positions (Elhage et al. 2021). "
        f"Matrices that have nothing in common have about 1 / √C = {config.n_embd**-0.5:.4f}.",
        "K-composition = |W_QK · W_OV| / (|W_QK| × |W_OV|)",
        (
            *(table(each, known[each], rows) for each in ("previous", measure)),
            table(f"K-composition with {whose}", _compose(own.exact, layer, head), rows[:layer]),
        ),
        f"The next steps have {whose}, with and without {others}."
        + f" But {NO_INDUCTION}" * (named[layer, head] != "induction"),
    )
    yield _copy(own, layer, head, before, others)
    kept = run.steps if run.checkpoint else []
    if len(kept) < 2:
        advice = "To see how its heads come about, train one with gptx train repeats --keep-all"
        yield Step("its birth", f"Your run has kept no earlier steps. {advice}.")
        return
    kept = [kept[n] for n in evenly_spaced(len(kept), MOST_STEPS)]
    grown = run.heads(run.stored.excerpt, steps=kept)
    since, kind = int(grown.named_since()[layer, head]), grown.kinds[-1, layer, head]
    shown = np.stack((grown.of("previous")[:, *before[0]], grown.of(measure)[:, layer, head]))
    names = head_name(*before[0]), whose
    yield Step(
        "its birth",
        f"The same measures at {len(kept)} steps of the training: previous of {names[0]}, and "
        f"{measure} of {whose}. In many models, the second rises soon after the first (Olsson et "
        "al. 2022).",
        tables=(Table("measures by step", shown, names, tuple(f"{n:,}" for n in kept)),),
        notice=f"{whose} has the name {kind} since step {since:,}." * bool(kind),
    )


def _compose(exact: Reader, layer: int, head: int) -> Array:
    """(layer, H) K-composition scores of a head with all heads of earlier layers."""
    config, scores = exact.config, list[Array]()
    for n in (layer, *range(layer)):
        block, shape = f"blocks.{n}.", (config.n_head, config.head_size, config.n_embd)
        gain = 1.0 if config.post_norm else exact.tensors.get(f"{block}norm1.weight", 1.0)
        q, k, v = exact.tensors[f"{block}attention.qkv.weight"].reshape(3, *shape) * gain
        if n == layer:
            qk = q[head].T @ k[head]  # (C, C)
            continue
        output = exact.tensors[f"{block}attention.proj.weight"].reshape(-1, *shape[:2])
        ov = output.swapaxes(0, 1) @ v  # (H, C, C)
        composed, alone = (np.linalg.norm(each, axis=(1, 2)) for each in (qk @ ov, ov))
        scores.append(composed / alone / np.linalg.norm(qk))
    return np.stack(scores)


def _copy(own: OwnModel, layer: int, head: int, before: list[tuple[int, int]], others: str) -> Step:
    """Where pairs of characters repeat: a head's weight and p, with and without other heads."""
    pairs = list(pairwise(own.ids.tolist()))
    again = {n: [m + 1 for m in range(n) if pairs[m] == pair] for n, pair in enumerate(pairs)}
    places = [n for n, keys in again.items() if keys]
    if not places:
        text = "in which no two characters come again in a row: there is nothing to copy."
        return Step("a copy", f"{own.reads}, {text} Give a text that repeats with --text.")
    shown = list[Array]()
    for patch in ({}, {("context", *at): 0 for at in before}):
        found = own.run.activations(own.text, ["weights", "logits"], patch=patch)
        weights, logits = found["weights", layer, head][0], found["logits"][0]
        p = softmax(logits.astype(np.float64))
        shown.append(np.array([weights[n, again[n]].sum() for n in places]))
        shown.append(p[places, own.ids[1:][places]])

    def hook(name: str, at: int, stage: Array) -> Array:
        stage[:, [h for n, h in before if (name, at) == ("context", n)]] = 0
        return stage

    exact, means = own.exact, [each.mean() for each in shown]
    stream = exact.blocks(exact.embed(own.ids[None]), range(exact.config.n_layer), hook)
    expected = exact.logits(exact.final_norm(stream))[0]
    rows, columns = (f"{n} {own.text[n]}" for n in places), ("weight", "p", "w/o weight", "w/o p")
    return Step(
        "a copy",
        f"{own.reads}. The rows are the characters that came before with the same next one. The "
        f"columns have {head_name(layer, head)}’s weight on that next one there, and p of the "
        f"right next character; then the same without (w/o) {others}, whose output becomes 0.",
        tables=(Table("copies", np.stack(shown, axis=1), tuple(rows), columns),),
        notice=f"Without {others}, the mean weight changes from {means[0]:.4f} to {means[2]:.4f}, "
        f"and the mean p from {means[1]:.4f} to {means[3]:.4f}.",
        checks=(_equal("without: logits = in float64", logits, expected, ROUNDED),),
    )


STEPS: dict[str, Callable[[OwnModel], Iterator[Step]]] = {
    "positions": _positions,
    "learning": _learning,
    "induction": _induction,
    "sampling": _sampling,
    "depth": _depth,
}

"""The last steps of five lessons, in a trained model: `gptx explain NAME --run RUN`.

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
from gpt.heads.measures import kinds
from gpt.heads.survey import NO_INDUCTION, evenly, head_name
from gpt.lessons.lesson import MOST_ROWS, Lesson, Step, Table
from gpt.lessons.own_model import by_character, must_be_there, must_fit
from gpt.lessons.tutorials import depth, learning, sampling
from gpt.model import GPT
from gpt.reading import sampler
from gpt.reading.gpt import Reader
from gpt.reading.layers import EPSILON, Array, softmax
from gpt.reading.positions import Position
from gpt.reading.proof import summands
from gpt.vocabulary import Ids

MOST_STEPS, LIKELIEST, SHOWN = 40, 10, 5  # kept steps; characters; weights or columns
NEAR, ROUNDED = 1e-9, 1e-3  # largest difference of equal numbers in float64, and in float32


class Own(NamedTuple):
    """A trained model and what it reads. run: a TrainedGPT. exact: it, in float64. ids: (T,)."""

    run: Any
    text: str
    ids: Ids
    exact: Reader
    layer: int | None
    head: int | None
    seed: int | None

    @property
    def reads(self) -> str:
        """The beginning of a sentence."""
        return "Your model reads “" + self.text.replace("\n", "⏎").replace("\t", "⇥") + "”"

    def named(self, ids: Ids) -> tuple[str, ...]:
        """The characters of ids."""
        return tuple(self.run.vocabulary.characters[each] for each in ids.tolist())


def example(lesson: str, run: Any) -> str:
    """A text for a model; of the lesson induction, one that repeats."""
    text, most = run.example(), min(MOST_ROWS, run.config.block_size)
    return str(text[: most // 2] * 2 if lesson == "induction" else text[:most])


def extended(told: Lesson, run: Any, text: str | None = None, *place: int | None) -> Lesson:
    """The lesson, and its steps in the user's model. run: a TrainedGPT. text: None for an example.
    place: layer, head and seed; None for the lesson's choice.

    Raises ConfigError for a model with an encoder and for a layer or head that it does not have,
    TextError for a text that is empty or too long and for unknown characters.
    """
    require(hasattr(run, "vocabulary"), "run", "expected a model that gpt.load has opened")
    layer, head, seed = (*place, None, None, None)[:3]
    require_decoder_only(run.config, "the lesson mine", f"the lesson {told.name}")
    must_be_there(run.config, layer or 0, head or 0)
    text = example(told.name, run) if text is None else text
    must_fit(run.config, len(ids := run.vocabulary.encode(text)))
    own = Own(run, text, ids, run.reader.in_float64(), layer, head, seed)
    steps = list(told.steps)
    for step in STEPS[told.name](own):
        title = f"In your own model: {step.title[0].lower()}{step.title[1:]}"
        tables = (replace(each, name=f"{each.name}, your model") for each in step.tables)
        steps.append(replace(step, title=title, tables=tuple(tables)))
    return replace(told, steps=tuple(steps), end="")


def _equal(name: str, one: Array | float, other: Array | float, bound: float = NEAR) -> Check:
    """Checks that numbers are equal within `bound`, relative to the largest one above 1."""
    most = max(1.0, float(np.abs(other).max()))
    return Check(name, float(np.abs(np.subtract(one, other)).max()), bound * most)


def _positions(own: Own) -> Iterator[Step]:
    exact, ids, config, T = own.exact, own.ids, own.exact.config, len(own.ids)
    without, moved = copy(exact), np.append(ids[: T - 1][::-1], ids[-1:])
    without.position = Position(config, exact.tensors, exact.dtype)
    changes = np.zeros((config.n_layer, 2))
    for column, reader in enumerate((exact, without)):
        for layer, pair in enumerate(zip(reader.stages(ids), reader.stages(moved), strict=True)):
            one, other = (stages.context[:, -1] for stages in pair)
            changes[layer, column] = np.linalg.norm(one - other) / np.linalg.norm(one)
    layers = tuple(f"layer {layer}" for layer in range(config.n_layer))
    yield Step(
        "another order",
        f"{own.reads}, and again with the characters before the last one in reverse order. The "
        "table has the change of the last character’s contexts, relative to their length, with the "
        f"model’s {config.position} positions and without them.",
        "change = |contexts − contexts in the other order| / |contexts|",
        (Table("change of contexts", changes, layers, ("with", "without")),),
        "Without positions, the order has no effect in layer 0. In later layers it has one: by the "
        "causal mask, each of their rows has taken from the characters before it only.",
        (Check("layer 0 without positions: no change", float(changes[0, 1]), NEAR),),
    )
    layer, head, D, C = own.layer or 0, own.head or 0, config.head_size, config.n_embd
    if config.position == "rotary":
        stages, block = exact.stages(ids)[layer], f"blocks.{layer}."
        x = exact.before(stages.resid_pre[None], block + "norm1")
        q, turned = exact.heads(x, layer, "attention")[0][0, head], stages.q[head]
        angles = np.outer(np.arange(T), 10_000.0 ** (-np.arange(0, D, 2) / D))
        points, turns = (each[:, ::2] + 1j * each[:, 1::2] for each in (q, turned))
        shown = np.column_stack((angles[-1], q[-1].reshape(-1, 2), turned[-1].reshape(-1, 2)))
        columns = ("angle", "q[2i]", "q[2i + 1]", "q′[2i]", "q′[2i + 1]")
        tables = [Table(f"last query of layer {layer}, head {head}", shown, (), columns)]
        text = "Positions turn queries and keys. Row i of the table is the pair i of columns."
        check = _equal("q′ = q · e^(i · angle)", turns, points * np.exp(1j * angles))
    else:
        (tokens, rows), at = summands(exact, ids), np.arange(C)
        angles = np.outer(np.arange(T), 10_000.0 ** (-(at - at % 2) / C))
        expected = np.where(at % 2, np.cos(angles), np.sin(angles))
        expected = (
            expected if config.position == "sinusoidal" else exact.tensors["position.weight"][:T]
        )
        lengths = np.linalg.norm((tokens, rows), axis=-1).T
        tables = [
            by_character(own.text, "position rows", rows),
            by_character(own.text, "lengths of rows", lengths, "", ("character", "position")),
        ]
        text = "Each position has a row, which is added to the row of the character."
        check = _equal("= the stored rows, or sines and cosines", rows, expected)
    checks = (check, *own.run.attn(own.text).checks)
    yield Step(f"{config.position} positions", text, "", tuple(tables), checks=checks)


def _learning(own: Own) -> Iterator[Step]:
    if len(own.ids) < 2:
        yield Step("no update", f"{own.reads}, but nothing follows to learn from: give more text.")
        return
    model = GPT(replace(own.exact.config, attention="heads"))  # whose gradients have gradients
    model.load_parameters({n: torch.tensor(each) for n, each in own.run.reader.tensors.items()})
    weights = dict(model.double().eval().named_parameters())
    ids, sizes = torch.tensor(own.ids.tolist()), [each.numel() for each in weights.values()]

    def loss_at(row: Tensor) -> Tensor:
        parts = zip(weights.items(), torch.split(row, sizes), strict=True)
        named = {name: part.view_as(each) for (name, each), part in parts}
        return F.cross_entropy(functional_call(model, named, (ids[None, :-1],))[0], ids[1:])

    w = torch.cat([each.detach().flatten() for each in weights.values()]).requires_grad_()
    loss = loss_at(w)
    (g,), w = torch.autograd.grad(loss, w), w.detach()
    config = own.run.recorded.train if own.run.recorded else TrainConfig()
    rate, adamw = config.learning_rate, learning.step_adamw(w, 0 * w, 0 * w, g, 1, config)[0]
    numbers = (torch.split(each, sizes) for each in (w, g, w - rate * g, adamw))
    named = sorted(zip(weights, *numbers, strict=True), key=lambda n: -float(n[2].abs().max()))
    tables, columns = [], ("before", "gradient", "by SGD", "by AdamW")
    for name, *parts in named[:SHOWN]:
        at = int(parts[1].abs().argmax())
        place = ", ".join(map(str, np.unravel_index(at, weights[name].shape)))
        row = torch.stack([each[at] for each in parts]).numpy()
        tables.append(Table(f"{name}[{place}]", row, (), columns, digits=6))
    p = softmax(own.exact.logits(own.exact.forward(own.ids[None, :-1]))[0])
    expected = float(-np.log(p[np.arange(len(ids) - 1), own.ids[1:]]).mean())
    yield Step(
        "weight by weight",
        f"{own.reads} and predicts each next character. The loss is the mean of −ln p: "
        f"{loss.item():.4f}. Backpropagation gives the gradient of all {len(w):,} weights. For "
        f"{SHOWN} matrices, the tables have the weight with the largest gradient, before and after "
        f"one step with the rate of your training, {rate:g}. AdamW is at its first step. All of "
        "this is in a copy: your run stays as it is.",
        "w ← w − rate × ∂w",
        tuple(tables),
        f"After the step of AdamW, the loss is {float(loss_at(adamw)):.4f}.",
        (_equal("loss = numpy’s", loss.item(), expected, ROUNDED),),
    )
    yield learning.step_sgd(loss_at, w, g)


def _sampling(own: Own) -> Iterator[Step]:
    logits = own.run.logits(own.text)[0, -1].astype(np.float64)
    order, checks = np.argsort(-logits, kind="stable")[:LIKELIEST], []
    names, p, top = own.named(order), softmax(logits), torch.from_numpy(logits[order])
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
        (Table("likeliest", np.stack((logits[order], p[order]), 1), names, ("logit", "p")),),
        checks=tuple(checks),
    )
    yield from sampling.steps_of(top, names, own.seed)


def _depth(own: Own) -> Iterator[Step]:
    exact, config, stages = own.exact, own.exact.config, own.exact.stages(own.ids)
    rows, names = [stages[0].resid_pre[-1]], ["embedding"]
    for layer, stage in enumerate(stages):
        rows += [stage.resid_mid[-1], stage.resid_post[-1]]
        names += [f"{layer} attn", f"{layer} ffn"]
    stream = np.stack(rows)  # (2L + 1, C)
    added, proj = (
        np.diff(stream, axis=0, prepend=0 * stream[:1]),
        np.stack([each.proj[-1] for each in stages]),
    )
    lengths = np.linalg.norm((added, stream), axis=-1).T
    yield Step(
        "the stream is a sum",
        f"{own.reads}. The table has the length of what the attention and the feed-forward of each "
        "layer add to the row of the last character, and the length of the row after that."
        + " A norm follows each of them; what it changes is counted, too."
        * config.post_norm,
        tables=(Table("lengths", lengths, tuple(names), ("added", "stream")),),
        checks=() if config.post_norm else (_equal("attention = proj", added[1::2], proj),),
    )
    parts, row = added, stream[-1]
    if not config.post_norm:
        if config.norm == "layer":
            parts, row = added - added.mean(axis=1, keepdims=True), row - row.mean()
        parts = parts / np.sqrt((row**2).mean() + EPSILON) * exact.tensors.get("norm.weight", 1.0)
        if "norm.bias" in exact.tensors:
            parts, names = np.vstack((parts, exact.tensors["norm.bias"])), [*names, "norm bias"]
    lens = exact.logits(exact.final_norm(stream))  # (2L + 1, V)
    best = np.argsort(-lens[-1], kind="stable")[:SHOWN]
    found = own.run.logits(own.text)[0, -1]
    given = exact.logits(parts)[:, best], softmax(lens)[:, best], lens[-1, best]
    step = depth.show_shares(tuple(names), own.named(best), *map(torch.from_numpy, given))
    yield replace(step, checks=(*step.checks, _equal("= the reader’s", found, lens[-1], ROUNDED)))


def _induction(own: Own) -> Iterator[Step]:
    run, config = own.run, own.exact.config
    require(own.layer != 0, "layer", "an induction head needs an earlier layer; give 1 or more")
    if config.n_layer < 2:
        yield Step("one layer", "Your model has one layer, so it has no induction head.")
        return
    survey = run.heads(run.stored.excerpt, name=run.excerpt_name)
    known = {each.name: each.values for each in survey.measures}
    measure = "induction_synthetic" if "induction_synthetic" in known else "induction"
    layers, heads = np.indices(known[measure].shape)
    chosen = layers == own.layer if own.layer else layers > 0
    chosen = chosen & (heads == own.head if own.head is not None else True)
    values = np.where(chosen, np.nan_to_num(known[measure], nan=-1.0), -np.inf)
    layer, head = divmod(int(values.argmax()), config.n_head)
    named, previous = np.array(kinds(survey.measures)), known["previous"]
    before = [
        divmod(n, config.n_head) for n in np.flatnonzero(named[:layer] == "previous").tolist()
    ]
    before = before or [divmod(int(previous[:layer].argmax()), config.n_head)]
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
            table("previous", previous, rows),
            table(measure, known[measure], rows),
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
    kept = [kept[n] for n in evenly(len(kept), MOST_STEPS)]
    grown = run.heads(run.stored.excerpt, steps=kept)
    since, kind = int(grown.named_since()[layer, head]), grown.kinds[-1, layer, head]
    shown = grown.of("previous")[:, *before[0]], grown.of(measure)[:, layer, head]
    names = head_name(*before[0]), whose
    yield Step(
        "its birth",
        f"The same measures at {len(kept)} steps of the training: previous of {names[0]}, and "
        f"{measure} of {whose}. In many models, the second rises soon after the first (Olsson et "
        "al. 2022).",
        tables=(Table("measures by step", np.stack(shown), names, tuple(f"{n:,}" for n in kept)),),
        notice=f"{whose} has the name {kind} since step {since:,}." * bool(kind),
    )


def _compose(exact: Reader, layer: int, head: int) -> Array:
    """(layer, H) K-composition scores of a head with all heads of earlier layers."""
    config, scores = exact.config, []
    shape = config.n_head, config.head_size, config.n_embd

    def parts(layer: int) -> tuple[Array, Array, Array, Array]:
        """Queries, keys, values and outputs, (H, D, C) each."""
        block = f"blocks.{layer}."
        gain = 1.0 if config.post_norm else exact.tensors.get(f"{block}norm1.weight", 1.0)
        q, k, v = exact.tensors[f"{block}attention.qkv.weight"].reshape(3, *shape) * gain
        return q, k, v, exact.tensors[f"{block}attention.proj.weight"].T.reshape(shape)

    query, key, *_ = parts(layer)
    qk = query[head].T @ key[head]  # (C, C)
    for earlier in range(layer):
        *_, value, output = parts(earlier)
        ov = output.swapaxes(1, 2) @ value  # (H, C, C)
        whole = np.linalg.norm(qk @ ov, axis=(1, 2))
        scores.append(whole / np.linalg.norm(ov, axis=(1, 2)) / np.linalg.norm(qk))
    return np.stack(scores)


def _copy(own: Own, layer: int, head: int, before: list[tuple[int, int]], others: str) -> Step:
    """Where pairs of characters come again: a head's weight and p, with and without others."""
    pairs = list(pairwise(own.ids.tolist()))
    again = {n: [m + 1 for m in range(n) if pairs[m] == pair] for n, pair in enumerate(pairs)}
    places = [n for n, keys in again.items() if keys]
    if not places:
        return Step(
            "a copy",
            f"{own.reads}, in which no two characters come again in a row: there "
            "is nothing to copy. Give a text that repeats with --text.",
        )
    shown, logits = list[Array](), own.run.logits(own.text)
    for patch in ({}, {("context", *at): 0 for at in before}):
        found = own.run.activations(own.text, ["weights", "logits"], patch=patch)
        weights, logits = found["weights", layer, head][0], found["logits"][0]
        p = softmax(logits.astype(np.float64))
        shown.append(np.array([weights[n, again[n]].sum() for n in places]))
        shown.append(p[places, own.ids[np.array(places) + 1]])

    def hook(name: str, at: int, stage: Array) -> Array:
        stage[:, [h for n, h in before if (name, at) == ("context", n)]] = 0
        return stage

    stream = own.exact.blocks(own.exact.embed(own.ids[None]), range(own.exact.config.n_layer), hook)
    exact, means = (
        own.exact.logits(own.exact.final_norm(stream))[0],
        [each.mean() for each in shown],
    )
    return Step(
        "a copy",
        f"{own.reads}. The rows are the characters that came before with the same next one. The "
        f"columns have {head_name(layer, head)}’s weight on that next one there, and p of the "
        f"right next character; then the same without (w/o) {others}, whose output becomes 0.",
        "",
        (
            Table(
                "copies",
                np.stack(shown, axis=1),
                tuple(f"{n} {own.text[n]}" for n in places),
                ("weight", "p", "w/o weight", "w/o p"),
            ),
        ),
        f"Without {others}, the mean weight changes from {means[0]:.4f} to {means[2]:.4f}, and the "
        f"mean p from {means[1]:.4f} to {means[3]:.4f}.",
        (_equal("without: logits = in float64", logits, exact, ROUNDED),),
    )


STEPS: dict[str, Callable[[Own], Iterator[Step]]] = {
    "positions": _positions,
    "learning": _learning,
    "induction": _induction,
    "sampling": _sampling,
    "depth": _depth,
}

"""A training from its options to its first step: reads the corpus, fits the options, locks the run.

`gptx train` and `gpt.train` begin and resume runs here. Prints nothing: the caller shows the plan
and the events. Imports torch only when the corpus is read and its n-grams are being counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from gpt.config import ModelConfig, TrainConfig, presets
from gpt.config.fields import field_help, only_fields, require
from gpt.config.train import Tracker
from gpt.corpus.corpus import Corpus, find_corpus, read_corpus, reopen
from gpt.corpus.halves import counted_in, halves, scored_in
from gpt.corpus.sources import corpus_name, is_pairs, recipe_of
from gpt.corpus.text import Progress, no_progress
from gpt.counting.ahead import CountedAhead
from gpt.counting.tables import release
from gpt.devices import choose
from gpt.errors import ConfigError, TextError
from gpt.storage import files
from gpt.storage.checkpoint import Checkpoint
from gpt.storage.config_file import RECORDED, from_toml, to_toml
from gpt.storage.manifest import CorpusId
from gpt.storage.run import Run
from gpt.storage.runs import check_run_name, discard_if_empty, new_run
from gpt.training import ranks
from gpt.training.events import Event, Sampled, Saved
from gpt.training.records import check_tracker
from gpt.vocabulary import Vocabulary
from gpt.words import printable

if TYPE_CHECKING:
    from gpt.storage.model_file import StoredModel
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer
    from gpt.warm_start import WarmStart

READING = ("separator", "split", "min_count")  # options for reading a text
SPLITTING = ("split", "val_fraction")
CONFIG_LIMIT = 2**20  # bytes of config.toml
SAMPLE_LENGTH = 160  # characters of the sample at each evaluation
ANOTHER_TEXT = "; restore it, or train a new run on another text, from this one's weights: `parent`"

#: Shows the progress of work with this name.
Working = Callable[[str], AbstractContextManager[Progress]]


def silently(what: str) -> AbstractContextManager[Progress]:
    """A Working that shows nothing."""
    return nullcontext(no_progress)


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the user asks for.

    corpus: names of texts; "-" is `pipe`; none: the default text. given: fields of ModelConfig and
    TrainConfig. preset: None where the user gives none: then a known corpus sets its own options;
    its split it always sets.
    minutes: the time for the run. run: its name; if None, a number follows `stem` or the corpus's
    name. parent: the run or model file whose weights a new run starts with. shard: weights are
    spread over the ranks. log: a tracker that gets the records, too. recorded: what the config.toml
    that this run repeats records of its run, see RECORDED.
    """

    checkpoints: Path
    data: Path
    corpus: Sequence[str] = ()
    pipe: BinaryIO = field(default_factory=BytesIO)
    given: Mapping[str, Any] = field(default_factory=dict)
    preset: presets.Preset | None = None
    minutes: float | None = None
    run: str | None = None
    stem: str = ""
    device: str = "auto"
    parent: str | None = None
    shard: bool = False
    log: Tracker | None = None
    recorded: Mapping[str, Any] = field(default_factory=dict)
    working: Working = silently


@dataclass(frozen=True)
class Start:
    """A planned training before its first step. trainer: makes the model and the optimizer.

    recipe: options that a known corpus has set.
    """

    plan: Plan
    run: Run
    trainer: Callable[[], Trainer]
    recipe: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def begun(order: Order, *, dry: bool = False) -> Iterator[Start]:
    """Plans a new run and locks its folder; the folder is removed if nothing was saved in it.

    Several ranks have joined before. dry: makes no folder. Raises ConfigError, TextError,
    StorageError, OutOfMemory, and CheckpointError for a parent that cannot be used.
    """
    check_tracker(order.log)
    warm = _warm_start(order)
    recipe = {**recipe_of(order.corpus)}
    if order.preset:  # instead of the corpus's options, but for its split
        recipe = {name: value for name, value in recipe.items() if name in SPLITTING}
    if order.minutes is not None:
        recipe.pop("steps", None)
    given, preset = dict(order.given), order.preset or "default"
    if warm:
        given = warm.options(given, order.corpus)
    recipe = {name: value for name, value in recipe.items() if name not in given}
    given |= recipe
    layers = given.get("encoder_layers")
    pairs = layers > 0 if layers is not None else is_pairs(order.corpus)
    known = {**(presets.PAIRS[preset] if pairs else {}), **given}
    reading = TrainConfig(**{name: known[name] for name in READING if name in known})
    if order.run is not None:
        check_run_name(order.run)
    folder, device = None, choose(order.device)
    if ranks.is_first() and not dry:
        folder = new_run(order.checkpoints, order.stem or corpus_name(order.corpus), order.run)
    with ExitStack() as unlocked, ExitStack() as stack:
        if folder is not None:
            stack.enter_context(folder.lock())
            unlocked.callback(discard_if_empty, folder)
            ranks.mark(folder)
        start = warm.stored if warm else None
        known_characters = start.vocabulary if start else None
        read = partial(read_corpus, known=known_characters, grows=start is not None)
        corpus = _read(order, partial(read, config=reading, pairs=pairs))
        ahead = _counted(corpus, preset, device, given, pairs, warm)  # torch is imported meanwhile
        from gpt.training.plan import make_plan, usable_device

        device = usable_device(order.device)
        parent = warm.parent(corpus) if warm else None
        plan = make_plan(corpus, given, preset, device, order.minutes, ahead, pairs, parent)
        if warm and parent:
            told = warm.warnings(parent, corpus, plan.manifest.train)
            plan = replace(plan, warnings=(*plan.warnings, *told))
        here = {name: plan.environment[name] for name in RECORDED}
        others = tuple(
            f"not bit-exact: the run of this config had {name} {value}, now it is {here[name]}: "
            "other weights are possible"
            for name, value in order.recorded.items()
            if value != here[name] and (name != "threads" or device == "cpu")
        )
        plan = replace(plan, warnings=(*plan.warnings, *others))
        if folder is not None:
            names = [printable(name) for name in order.corpus] or None
            # the step that was read: the best step of its run may be another one tomorrow
            source = {"corpus": names, "from": warm and printable(warm.place)}
            folder.write("config.toml", to_toml({**source, **plan.settings(), **here}))
        run = Run(Path(ranks.from_rank(0, str(folder.path) if folder else "")))
        trainer = partial(_trainer, order, run, plan, ahead=ahead, start=start)
        yield Start(plan, run, trainer, recipe)


@contextmanager
def resumed(order: Order, run: Run) -> Iterator[Start]:
    """Plans the rest of a run from its newest whole checkpoint on, and locks it.

    Raises CheckpointError, ConfigError, TextError, RunInUseError, OutOfMemory.
    """
    check_tracker(order.log)
    with ExitStack() as stack:
        if ranks.is_first():
            stack.enter_context(run.lock())
            ranks.mark(run)
        checkpoint, warnings = ranks.shared(
            run.last_valid,
            lambda found: str(found[0].path),
            lambda path: (Checkpoint.open(Path(path)), []),
        )
        manifest = checkpoint.manifest
        require(
            not manifest.imported,
            "resume",
            "this run was imported without the state of its optimizer; begin a new run with its "
            "weights: gptx train TEXT --from RUN",
        )
        if order.preset not in (None, manifest.preset):
            raise ConfigError(
                "preset",
                f"this run has {manifest.preset}; leave the option out, or train a new run",
            )
        pairs = manifest.model.encoder_layers > 0
        find = partial(find_corpus, manifest, remedy=ANOTHER_TEXT, pairs=pairs)
        corpus = _read(order, find)
        from gpt.training.plan import resume_plan, usable_device

        plan = resume_plan(checkpoint, corpus, order.given, usable_device(order.device))
        plan = replace(plan, warnings=(*warnings, *plan.warnings))
        yield Start(plan, run, partial(_trainer, order, run, plan, checkpoint))


def recorded(trainer: Trainer) -> Iterator[Event]:
    """Trains, and records with each checkpoint a changed plan and a text of the model in the run.

    Raises as Trainer.events.
    """
    planned = trainer.config if trainer.manifest.step == 0 else None  # of a resumed run: unknown
    with closing(trainer.records):
        for event in trainer.events():
            yield event
            if isinstance(event, Saved):
                if trainer.config != planned:
                    planned = trainer.config
                    _record_plan(trainer.run, planned)
                if event.checkpoint.manifest.step:  # before the first step, no model has learned
                    yield _sampled(trainer.run, event.checkpoint)


def _read(order: Order, read: Callable[..., Corpus]) -> Corpus:
    """Calls `read` for the corpus on the first rank; the others open it in `data`."""

    def follow(message: tuple[dict[str, Any], str]) -> Corpus:
        identity, characters = message
        vocabulary = Vocabulary(characters)
        corpus = reopen(CorpusId(**identity), order.data, vocabulary)
        if corpus is None:
            raise TextError(f"{order.data.resolve()} does not hold the encoded corpus")
        return corpus

    with order.working("encoding") as done:
        sources = {"names": order.corpus, "data": order.data, "stdin": order.pipe}
        reading = partial(read, **sources, progress=done)
        return ranks.shared(
            reading, lambda it: (asdict(it.identity), it.vocabulary.characters), follow
        )


def _warm_start(order: Order) -> WarmStart | None:
    """The model that a new run starts from, if the order names one. Raises CheckpointError."""
    if order.parent is None:
        return None
    from gpt.warm_start import opened

    return opened(order.parent, order.checkpoints)


def _counted(
    corpus: Corpus,
    preset: str,
    device: str,
    given: Mapping[str, Any],
    pairs: bool,
    warm: WarmStart | None,
) -> CountedAhead:
    """Begins to count. Raises ConfigError, TextError."""
    size = len(corpus.vocabulary)
    values = presets.changed(presets.preset(preset, device, pairs), given)
    model = ModelConfig(vocab_size=size, **only_fields(ModelConfig, values))
    train = TrainConfig(**only_fields(TrainConfig, values))
    train_half, val_half = halves(corpus, train, pairs)
    if warm:
        warm.check_context(corpus, train, train_half)
    return CountedAhead(counted_in(train_half), scored_in(val_half), size, model.counting)


def _trainer(
    order: Order,
    run: Run,
    plan: Plan,
    checkpoint: Checkpoint | None = None,
    ahead: CountedAhead | None = None,
    start: StoredModel | None = None,
) -> Trainer:
    from gpt.reading.proof import prove_tensors
    from gpt.training.trainer import Trainer

    parts = (run, plan.corpus, plan.manifest, plan.device, prove_tensors)
    trainer = Trainer(*parts, checkpoint, ahead, start, order.shard)
    trainer.records.track(order.log, plan.manifest)
    return trainer


def _record_plan(run: Run, config: TrainConfig) -> None:
    """Writes the options, which the trainer or a resume has changed, to config.toml."""
    path = run.path / "config.toml"
    if os.path.isfile(path):
        text = files.read(path, CONFIG_LIMIT).decode("utf-8", "replace")
        values = from_toml(text, str(path))
        options = {name: getattr(config, name) for name in field_help(TrainConfig)}
        changed = to_toml({**values, **options})
        if changed != text:
            run.write(path.name, changed)


def _sampled(run: Run, checkpoint: Checkpoint) -> Sampled:
    """A text that the model generates now. Opening the checkpoint checks the file just saved."""
    from gpt.interface.trained import TrainedGPT
    from gpt.reading.targets import some_targets

    model = TrainedGPT(checkpoint.model())
    release()  # what the check took
    if model.has_encoder:
        text = some_targets(model.reader, model.vocabulary, model.stored.excerpt)
    else:
        text = model.sample(length=SAMPLE_LENGTH)
    run.append("samples", {"step": checkpoint.manifest.step, "text": text})
    return Sampled(checkpoint.manifest.step, text)

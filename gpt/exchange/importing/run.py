"""A model of another program becomes a run of its own, which every command opens.

The run has one checkpoint, without the state of an optimizer: it cannot be resumed. If the text
that the model was trained on is known, commands find its validation split as in any run.
"""

from __future__ import annotations

from contextlib import nullcontext
from io import BytesIO
from pathlib import Path

from gpt.config import SampleConfig, TrainConfig
from gpt.corpus.corpus import Corpus, read_corpus
from gpt.corpus.halves import EXCERPT_LENGTH, excerpt_of
from gpt.errors import TextError
from gpt.exchange.importing.nanogpt import ImportedModel
from gpt.heads.proof import prove_tensors
from gpt.model import GPT
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Reader
from gpt.reading.sampler import Samples
from gpt.storage.checkpoint import MODEL, Checkpoint
from gpt.storage.manifest import CorpusId, Manifest
from gpt.storage.runs import discard_if_empty, new_run
from gpt.training.checkpoint import model_bytes
from gpt.vocabulary import Vocabulary

UNKNOWN_CORPUS = CorpusId(digest="", characters=0, sources=())


def corpus_of(model: ImportedModel, name: str, data: Path, guessed: bool) -> Corpus:
    """The text that the model was trained on, encoded in `data`; nanoGPT, too, validates on its
    last tenth.

    guessed: the file may be another text; then it must have all characters of the model. Raises
    TextError, StorageError.
    """
    vocabulary = Vocabulary(model.characters)
    corpus = read_corpus([name], data, BytesIO(), vocabulary, TrainConfig())
    if unknown := vocabulary.unknown(corpus.vocabulary.characters):
        raise TextError(f"{name} has characters that the model does not know: {unknown[:5]!r}")
    if guessed and not corpus.counts.all():
        raise TextError(f"{name} lacks characters that the model knows")
    corpus.split(TrainConfig().val_fraction, model.config.block_size)
    return corpus


def save(
    model: ImportedModel, checkpoints: Path, name: str | None, corpus: Corpus | None
) -> Checkpoint:
    """A new run with the model. corpus: what it was trained on, from `corpus_of`, if known.

    Raises ConfigError if the name is taken, NumericsError if numpy computes other logits than
    torch, StorageError.
    """
    vocabulary, train = Vocabulary(model.characters), TrainConfig(steps=max(1, model.step))
    if corpus is None:
        excerpt, predicted = _written(model, vocabulary), 0
    else:
        validation = corpus.parts(train.val_fraction)[1]
        excerpt, predicted = vocabulary.decode(excerpt_of(validation)), len(validation) - 1
    torch_model = GPT(model.config)
    torch_model.load_parameters(model.tensors)
    data = model_bytes(torch_model, vocabulary, excerpt, model.step, prove_tensors)
    manifest = Manifest(
        step=model.step,
        model=model.config,
        train=train,
        preset="",
        characters=model.characters,
        corpus=corpus.identity if corpus else UNKNOWN_CORPUS,
        seconds=0.0,
        running=(0.0, 0),
        val_characters=predicted,
        imported=model.origin,
    )
    run = new_run(checkpoints, model.stem, name)
    with run.lock():
        try:
            return run.commit(manifest, {MODEL: data})
        except BaseException:
            discard_if_empty(run)
            raise


def _written(model: ImportedModel, vocabulary: Vocabulary) -> str:
    """A text of the model itself, which stands in for a validation split that is not known."""
    tensors = {name: tensor.numpy() for name, tensor in model.tensors.items()}
    decoder = CachedDecoder(Reader(model.config, tensors))
    config = SampleConfig(length=EXCERPT_LENGTH)
    samples = Samples(nullcontext(decoder), vocabulary, "", config)
    return "".join(gained for (gained,) in samples)

"""A model as an ONNX file, computed once by onnx's own reference before it is written.

The package onnx writes the file; it is needed for this export only.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config.fields import require
from gpt.errors import ConfigError, NumericsError
from gpt.exchange.exporting.losses import Losses
from gpt.exchange.exporting.onnx_graph import IR_VERSION, OPSET, PAST, PRESENT, GptGraph
from gpt.heads.proof import promised
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.trained import TrainedGPT
from gpt.version import __version__

LARGEST = 2**31 - 2**20  # bytes of a file that protobuf reads, with room for the graph
CHECKED = 64  # most characters that the check reads


def file_of(model: TrainedGPT, losses: Losses | None) -> bytes:
    """The file. losses: written into its metadata.

    Raises ConfigError if the package onnx is not installed or the model is too large for one file,
    NumericsError if the graph computes other logits than numpy.
    """
    size = sum(tensor.nbytes for tensor in model.stored.tensors.values())
    require(size < LARGEST, "to", f"onnx: {size:,} bytes of weights are too many for one ONNX file")
    try:
        import_module("onnx")
    except ImportError:
        raise ConfigError(
            "to", "onnx needs the package onnx, which is not installed: pip install onnx"
        ) from None
    proto = model_proto(model, losses)
    check(model.reader, proto, model.stored.probe.ids)
    data: bytes = proto.SerializeToString()
    return data


def model_proto(model: TrainedGPT, losses: Losses | None = None) -> Any:
    """The ModelProto of the package onnx."""
    graph = GptGraph(model.config, model.stored.tensors)
    helper, element, integers = graph.onnx.helper, graph.element, graph.onnx.TensorProto.INT64
    config = model.config
    heads = (config.n_layer, "batch", config.n_head)
    past, present = ((*heads, length, config.head_size) for length in ("past", "past + time"))
    value = helper.make_tensor_value_info
    made = helper.make_graph(
        graph.nodes,
        "gptx",
        [
            value("ids", integers, ("batch", "time")),
            *(value(name, element, past) for name in PAST),
        ],
        [
            value("logits", element, ("batch", "time", config.vocab_size)),
            *(value(name, element, present) for name in PRESENT),
        ],
        [graph.onnx.numpy_helper.from_array(each, name) for name, each in graph.constants.items()],
    )
    proto = helper.make_model(
        made,
        producer_name="gptx",
        producer_version=__version__,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
        doc_string=f"{model.stored.title}: a character-level GPT",
    )
    helper.set_model_props(proto, _metadata(model, losses))
    graph.onnx.checker.check_model(proto, full_check=True)
    return proto


def _metadata(model: TrainedGPT, losses: Losses | None) -> dict[str, str]:
    """vocabulary: a JSON list of the characters; a character's place is its id. gptx: a JSON object
    with the model's origin, options and losses.
    """
    numbers = None
    if losses:
        known = {"nats": losses.exported, "characters": losses.characters, "text": losses.where}
        numbers = known | ({"with_counting": losses.nats} if losses.gpt is not None else {})
    about = {
        "version": __version__,
        **model.stored.origin,
        "config": asdict(model.config),
        "losses": numbers,
    }
    return {
        "vocabulary": json.dumps(list(model.vocabulary.characters), ensure_ascii=False),
        "gptx": json.dumps(about, ensure_ascii=False),
    }


def check(reader: Reader, proto: Any, ids: npt.NDArray[np.int32]) -> None:
    """Compares the graph with numpy, on (R, L) ids: all at once, and in parts, each with its past.

    onnx's own reference computes the graph. Raises NumericsError.
    """
    evaluator = import_module("onnx.reference").ReferenceEvaluator(proto)
    ids = ids[:2, :CHECKED]
    expected = reader.logits(reader.forward(ids))
    with np.errstate(all="ignore"):
        whole = run(evaluator, reader, ids, None)[0]
        parts, past = list[Array](), None
        for part in np.split(ids, [-(-ids.shape[1] // 2)], axis=1):
            if part.size:
                logits, *past = run(evaluator, reader, part, past)
                parts.append(logits)
        for found in (whole, np.concatenate(parts, axis=1)):
            error = float(np.abs(found - expected).max())
            bound = promised(reader, ids, expected, error)
            if not error <= bound:
                raise NumericsError(
                    f"the export is wrong: its logits differ from gptx's by {error:.1e}; rounding "
                    f"allows {bound:.1e}"
                )


def run(
    session: Any, reader: Reader, ids: npt.NDArray[Any], past: list[Array] | None
) -> list[Array]:
    """(B, T) ids -> logits, keys, values. past: keys and values of the call before; None: none.

    session: of onnxruntime, or onnx's reference.
    """
    config = reader.config
    none = (config.n_layer, len(ids), config.n_head, 0, config.head_size)
    keys, values = past or [np.zeros(none, reader.dtype)] * 2
    given = {"ids": ids.astype(np.int64), "past_keys": keys, "past_values": values}
    return list(session.run(["logits", *PRESENT], given))

"""matplotlib for gptx: settings that do not depend on the user's, and files as bytes."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpt.errors import ConfigError
from gpt.view.figure.layout import DPI
from gpt.view.files.exports import Figure as Form

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#202020"
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "text.parse_math": False,  # a $ is a character
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.formatter.limits": (-3, 4),
    "axes.formatter.useoffset": False,
    "svg.fonttype": "path",  # outlines: the picture does not depend on installed fonts
    "svg.hashsalt": "gptx",
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
}


@contextmanager
def style() -> Iterator[None]:
    """matplotlib with its default settings and without log messages; then the user's settings
    return.

    Raises ConfigError if matplotlib is not installed.
    """
    logger = logging.getLogger("matplotlib")  # it logs that it builds a list of fonts
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        try:
            import matplotlib
        except ImportError:
            raise ConfigError(
                "figures need matplotlib, which is not installed: pip install matplotlib"
            ) from None
        with matplotlib.rc_context(), warnings.catch_warnings():
            # matplotlib before 3.11 measures lines by the letters l and p, which some fonts lack.
            warnings.filterwarnings("ignore", r"Glyph (108|112) .* missing from")
            matplotlib.rcdefaults()
            settings: Any = matplotlib.rcParams
            settings.update(_SETTINGS)
            yield
    finally:
        logger.setLevel(level)


def to_bytes(figure: Figure, form: Form) -> bytes:
    """The figure as a file: without a date, so that the same figure gives the same bytes."""
    with style():
        title = figure.get_suptitle()
        metadata: dict[Form, dict[str, Any]] = {
            "svg": {"Title": title, "Creator": "gptx", "Date": None, "Format": None, "Type": None},
            "pdf": {"Title": title, "Creator": "gptx", "CreationDate": None},
            "png": {"Title": title, "Software": "gptx"},
        }
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, dpi=DPI, metadata=metadata[form])
    written = buffer.getvalue()
    if form == "svg":  # the document type has a network address; SVG needs none
        written = re.sub(rb"<!DOCTYPE[^>]*>\s*", b"", written, count=1)
    return written

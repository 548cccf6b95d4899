"""Kept for import paths that other people use: objects as text. Load only what you have dumped yourself: pickles are
programs.
"""

from __future__ import annotations

import base64
import pickle
from typing import Any, Optional, Union


def dumps_base64(obj: object, to_ascii: bool = True) -> Union[str, bytes]:
    """The object, pickled by cloudpickle, in base64: as text, or as bytes."""
    import cloudpickle  # type: ignore[import-untyped]

    encoded = base64.b64encode(cloudpickle.dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: Optional[Union[str, bytes]]) -> Any:
    """The object that `dumps_base64` was given; None for nothing."""
    return None if encoded is None else pickle.loads(base64.b64decode(encoded))

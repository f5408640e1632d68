"""Arguments as C-contiguous arrays of numpy: what the native module takes. It checks types, shapes and values."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import InputError

Array = npt.NDArray[Any]
Sparse = tuple[Array, Array, Array, tuple[int, int]]


def as_array(name: str, value: Any) -> Array:
    """Returns an array, without a copy if the value is a C-contiguous one."""
    if np.ma.is_masked(value):
        raise InputError.at(name, "masked elements have no value", "replace them, as value.filled(0) does")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of numpy, about sequences that are no arrays
            return np.asarray(value, order="C")
    except Exception as error:
        raise InputError.at(name, f"no array: {error}") from error


def as_mask(name: str, value: Any, nodes: int) -> Array | None:
    """Returns a mask; numbers of nodes become flags."""
    if value is None:
        return None
    mask = as_array(name, value)
    if mask.size == 0 and mask.ndim == 1 and mask.dtype.kind != "b":
        mask = mask.astype(np.int64)
    is_numbers = mask.ndim == 1 and mask.dtype.kind in "iu"
    if not is_numbers or (len(mask) == nodes and ((mask == 0) | (mask == 1)).all()):
        return mask
    wrong = mask[(mask < 0) | (mask >= nodes)]
    if len(wrong):
        raise InputError.at(name, f"node {wrong[0]} of {nodes}")
    flags = np.zeros(nodes, np.bool_)
    flags[mask] = True
    return flags


def as_features(name: str, value: Any, copy: bool | None) -> tuple[Array | Sparse, int]:
    """Returns features, dense or sparse, and the number of rows. Float32 arrays are copied here unless they may be shared;
    those of other types are converted by the native module."""
    if hasattr(value, "tocsr"):
        rows = value.tocsr()
        if len(rows.shape) != 2:
            raise InputError.at(name, f"shape {tuple(rows.shape)} where features need numbers, nodes × columns")
        indptr, indices, data = (np.ascontiguousarray(part) for part in (rows.indptr, rows.indices, rows.data))
        return (indptr, indices, data, rows.shape), rows.shape[0]
    array = as_array(name, value)
    if array.dtype == np.float32 and (copy or (copy is None and not array.flags.owndata)):
        array = array.copy()
    return array, len(array) if array.ndim else 0


def as_text(name: str, value: Any) -> str:
    """Returns text."""
    if not isinstance(value, str):
        raise InputError.at(name, f"{value!r} where text is needed")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError.at(name, f"{value!r} is no valid text: {error.reason}") from error
    return value


def as_texts(name: str, values: Iterable[Any] | None) -> list[str]:
    """Returns the elements as text; none for ``None``."""
    if values is None:
        return []
    if isinstance(values, str):
        raise InputError.at(name, f"{values!r} where a sequence of texts is needed")
    try:
        return [as_text(name, str(value)) for value in values]
    except TypeError as error:
        raise InputError.at(name, f"{values!r} where a sequence of texts is needed") from error


def as_ids(name: str, values: Iterable[Any] | None) -> list[str] | None:
    """Returns ids as text, which must differ."""
    if values is None:
        return None
    ids = as_texts(name, values)
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise InputError.at(name, f"{twice!r} is there twice", "give every node an id of its own")
    return ids


def as_flag(name: str, value: Any) -> bool:
    """Returns a truth value."""
    if not isinstance(value, bool | np.bool_):
        raise InputError.at(name, f"{value!r}: must be True or False")
    return bool(value)


def as_seed(name: str, value: Any) -> int:
    """Returns a whole number of 64 bits without sign."""
    if not isinstance(value, int | np.integer) or not 0 <= value < 2**64:
        raise InputError.at(name, f"{value!r}: must be a whole number from 0 to {2**64 - 1}")
    return int(value)


def as_split(name: str, value: Any) -> str | None:
    """Returns the rule of a split; three numbers are shares."""
    if value is None or isinstance(value, str):
        return None if value is None else as_text(name, value)
    try:
        return ",".join(str(float(share)) for share in value)
    except (TypeError, ValueError) as error:
        problem = f"{value!r}: must be a rule such as '0.6,0.2,0.2', or three numbers"
        raise InputError.at(name, problem) from error


def from_tensor(name: str, value: Any) -> Any:
    """Returns a torch tensor as an array on the same memory, if it is on the CPU; any other value as it is."""
    if not hasattr(value, "detach"):
        return value
    if str(value.layout) != "torch.strided":
        raise InputError.at(name, f"a tensor of layout {value.layout}", "convert it with to_dense()")
    tensor = value.detach().cpu()
    # numpy has no bfloat16.
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()

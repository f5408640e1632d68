"""Arguments as C-contiguous arrays of numpy: what the native module takes. It checks types, shapes and values."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import InputError

Array = npt.NDArray[Any]
Sparse = tuple[Array, Array, Array, tuple[int, int]]


def as_array(name: str, value: Any) -> Array:
    """Returns an array, without a copy if the value is a C-contiguous one."""
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
    if mask.size == 0 and mask.ndim == 1:
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


def as_features(name: str, value: Any, copy: bool) -> tuple[Array | Sparse, int, Array | None]:
    """Returns features, dense or sparse, the number of rows, and the array of the user if it may be shared."""
    if hasattr(value, "tocsr"):
        rows = value.tocsr()
        if len(rows.shape) != 2:
            raise InputError.at(name, f"shape {tuple(rows.shape)} where features need numbers, nodes × columns")
        indptr, indices, data = (np.ascontiguousarray(part) for part in (rows.indptr, rows.indices, rows.data))
        return (indptr, indices, data, rows.shape), rows.shape[0], None
    array = as_array(name, value)
    if copy:
        return array.copy(), len(array) if array.ndim else 0, None
    return array, len(array) if array.ndim else 0, array if array.dtype == np.float32 else None


def from_tensor(value: Any) -> Any:
    """Returns a torch tensor as an array on the same memory, if it is on the CPU; any other value as it is."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value

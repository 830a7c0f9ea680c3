"""States as files: torch's where torch is loaded, else NumPy's with a tree in JSON.

Reading runs no code of the file: torch reads with `weights_only`, NumPy without pickle.
"""

from __future__ import annotations

import io
import json
import sys
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from ddl.checkpoint.errors import CheckpointError
from ddl.checkpoint.files import Entry, HashedFile, write_file

_PLAIN = (type(None), bool, int, float, str)
_ARRAY, _RAW, _TUPLE = "ddl:array", "ddl:raw", "ddl:tuple"


def suffix() -> str:
    """The suffix of the files that this program writes."""
    return ".pt" if "torch" in sys.modules else ".npz"


def write_state(path: Path, state: Any) -> Entry:
    """Write a state, of the kind of the path's suffix, durably.

    Args:
        state: dictionaries with names, lists and tuples of plain values, arrays and tensors.

    Raises:
        CheckpointError: the state holds something else; it names the place.
        OSError: the file cannot be written.
    """
    if path.suffix == ".npz":
        arrays: dict[str, np.ndarray] = {}
        tree = json.dumps(_pack(state, "", arrays))
        stream = io.BytesIO()
        np.savez(stream, tree=np.array(tree), **arrays)  # type: ignore[arg-type]
        return write_file(path, stream.getvalue())
    import torch

    packed = _pack(state, "", None)
    file = HashedFile(path)
    try:
        torch.save(packed, file)
        return file.finish()
    except RuntimeError:
        if file.error:
            raise file.error from None
        raise
    finally:
        file.close()


def read_state(name: str, data: bytes) -> Any:
    """Read a state from the bytes of a file whose name is `name`."""
    if name.endswith(".npz"):
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return _unpack(json.loads(str(arrays["tree"])), arrays)
    import torch

    return _unpack(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True), None)


def _pack(value: Any, where: str, arrays: dict[str, np.ndarray] | None) -> Any:
    """The value with NumPy's arrays as tensors, or without any, which are in `arrays` then."""
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        return _pack_array(value, where, arrays)
    if type(value) in (dict, OrderedDict, Counter):
        return _pack_dictionary(value, where, arrays)
    if type(value) in (list, tuple):
        items = [_pack(item, f"{where}[{n}]", arrays) for n, item in enumerate(value)]
        if type(value) is tuple:
            return {_TUPLE: items} if arrays is not None else tuple(items)
        return items
    if arrays is None and _is_torchs(value):
        return value
    raise CheckpointError(
        f"{where.lstrip('.') or 'the state'} is a {type(value).__name__}, which a checkpoint does "
        "not hold; use numbers, strings, lists, dictionaries, arrays and tensors"
    )


def _pack_dictionary(value: Any, where: str, arrays: dict[str, np.ndarray] | None) -> Any:
    for key in value:
        if not isinstance(key, str if arrays is not None else str | int):
            raise CheckpointError(
                f"{where.lstrip('.') or 'the state'} has the key {key!r}; use strings"
            )
    packed = {key: _pack(item, f"{where}.{key}", arrays) for key, item in value.items()}
    return packed if arrays is not None else type(value)(packed)


def _pack_array(value: np.ndarray, where: str, arrays: dict[str, np.ndarray] | None) -> Any:
    """An array of numbers, or of raw bytes as bfloat16 is for NumPy."""
    kind = value.dtype
    is_raw = kind.kind == "V" and kind.names is None and not kind.hasobject
    if not is_raw and (kind.kind not in "biuf" or kind.itemsize > 8):
        raise CheckpointError(
            f"{where.lstrip('.') or 'the state'} is an array of {kind}, which a checkpoint does "
            "not hold; use numbers of at most eight bytes"
        )
    plain = np.asarray(value, kind if is_raw else kind.newbyteorder("="), order="C")
    if arrays is not None:
        name = f"a{len(arrays)}"
        arrays[name] = plain
        return {_ARRAY: name}
    import torch

    if not plain.flags.writeable:
        plain = plain.copy()  # torch would warn of it
    if is_raw:
        size = kind.itemsize
        return {_RAW: torch.from_numpy(plain.reshape(*value.shape, 1).view((np.uint8, (size,))))}
    return {_ARRAY: torch.from_numpy(plain)}


def _is_torchs(value: Any) -> bool:
    import torch

    kinds = (torch.Tensor, torch.Size, torch.dtype, torch.device, complex, bytes)
    return isinstance(value, kinds)


def _unpack(value: Any, arrays: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            found = value[_ARRAY]
            return found.numpy() if arrays is None else arrays[found]
        if set(value) == {_RAW}:
            found = value[_RAW].numpy()
            return (
                found.reshape(-1, found.shape[-1])
                .view(f"V{found.shape[-1]}")
                .reshape(found.shape[:-2])
            )
        if set(value) == {_TUPLE}:
            return tuple(_unpack(item, arrays) for item in value[_TUPLE])
        for key in value:
            value[key] = _unpack(value[key], arrays)
        return value
    if type(value) in (list, tuple):
        return type(value)(_unpack(item, arrays) for item in value)
    return value

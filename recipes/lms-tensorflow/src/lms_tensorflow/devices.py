"""The device whose memory is short, and the one that its tensors go to."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.client import _pywrap_tf_session
from tensorflow.python.eager import context

from lms_tensorflow.errors import LmsError, OptionError
from lms_tensorflow.options import Options


class Devices:
    """A device and the host it swaps to, by names like "GPU:0" and "CPU:0".

    Raises:
        LmsError: TensorFlow sees no GPU, and no device was named.
        OptionError: there is no such device, or the host is not a CPU or the device itself.
    """

    def __init__(self, device: str | None, host: str | None) -> None:
        if device is None and not tf.config.list_physical_devices("GPU"):
            raise LmsError(
                "LMS: TensorFlow sees no GPU whose memory could be short; to try LMS without one, "
                'make two logical CPU devices and give device="CPU:0", host="CPU:1"'
            )
        self.device = _short("device", device or "GPU:0")
        self.host = _short("host", host or "CPU:0")
        if self.host == self.device or not self.host.startswith("CPU:"):
            raise OptionError(
                f"LMS: host is {self.host}, for the device {self.device}; give a CPU, another one"
            )

    @property
    def type(self) -> str:
        """ "GPU" or "CPU"."""
        return self.device.partition(":")[0]

    def check(self) -> None:
        """OptionError unless TensorFlow has both; this makes its devices ready."""
        there = [one.name.removeprefix("/device:") for one in tf.config.list_logical_devices()]
        for what, name in (("device", self.device), ("host", self.host)):
            if name not in there:
                raise OptionError(
                    f"LMS: {what} is {name}, which TensorFlow does not have; it has "
                    f"{', '.join(there)}"
                )

    def in_graph(self, graph_def: Any) -> tuple[str, str] | None:
        """Full names of the device and the host; None where nothing runs on the device."""
        end = f"/device:{self.device}"
        for node in graph_def.node:
            if node.device.endswith(end):
                return node.device, f"{node.device.removesuffix(end)}/device:{self.host}"
        return None

    def limit(self, options: Options) -> int | None:
        """The limit given, or all that TensorFlow has of the device; None for none.

        A threshold without a limit means what it did for IBM's: every later use is swapped.
        """
        if options.limit_bytes is not None or options.swapout_threshold is not None:
            return options.limit_bytes
        if self.type == "CPU":
            raise OptionError(
                f"LMS: TensorFlow does not know how much memory {self.device} may take; give "
                'limit=, like "12GiB", or swapout_threshold='
            )
        return _memory_of(self.device)


def _short(what: str, name: Any) -> str:
    kind, _, number = str(name).removeprefix("/").removeprefix("device:").partition(":")
    if kind.upper() not in ("CPU", "GPU") or not number.isdecimal():
        raise OptionError(f'LMS: {what} is {name!r}; give a name like "GPU:0" or "CPU:1"')
    return f"{kind.upper()}:{number}"


def _memory_of(device: str) -> int:
    devices = pywrap_tfe.TFE_ContextListDevices(context.context()._handle)
    count = _pywrap_tf_session.TF_DeviceListCount(devices)
    for i in range(count):
        if _pywrap_tf_session.TF_DeviceListName(devices, i).endswith(f"/device:{device}"):
            return int(_pywrap_tf_session.TF_DeviceListMemoryBytes(devices, i))
    raise OptionError(f"LMS: TensorFlow does not say how much memory {device} has; give limit=")

"""Large Model Support: trains models whose tensors do not all fit into the device's memory.

    model.fit(data, callbacks=[lms_tensorflow.LMS(limit="12GiB")])

A plugin for TensorFlow's graph optimizer plans each training step: tensors that the forward pass
makes and only the backward pass uses again wait on the host.
"""

from __future__ import annotations

from lms_tensorflow.errors import LimitError, LmsError, OptionError
from lms_tensorflow.lms import LMS, function
from lms_tensorflow.options import Options

__all__ = ["LMS", "LimitError", "LmsError", "OptionError", "Options", "function"]

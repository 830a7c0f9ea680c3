"""Two logical CPU devices: what goes from one to the other goes as it does between GPU and CPU."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Without oneDNN, where TensorFlow's own kernels run; test_onednn.py has what comes with it.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

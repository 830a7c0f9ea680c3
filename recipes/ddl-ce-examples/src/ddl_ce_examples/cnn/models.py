"""The networks, by tf_cnn_benchmarks' names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddl_ce_examples.cnn.errors import BenchmarkError

CLASSES = 1000
LARGEST = 4096

Build = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Network:
    """A network for square images with three colours.

    Attributes:
        image_size: in pixels, unless the user says otherwise.
        smallest: image size that it can take.
        build: takes `keras` (3 or tf-keras) and the image size; the output is logits of shape
            (batch, CLASSES).
    """

    image_size: int
    smallest: int
    build: Build


def _application(name: str, image_size: int = 224, smallest: int = 32) -> Network:
    def build(keras: Any, size: int) -> Any:
        make = getattr(keras.applications, name)
        shape = (size, size, 3)
        return make(weights=None, input_shape=shape, classes=CLASSES, classifier_activation=None)

    return Network(image_size, smallest, build)


def _trivial(keras: Any, size: int) -> Any:
    """Hardly any arithmetic and four million weights: a step is all communication."""
    layers = keras.layers
    image = keras.Input((size, size, 3))
    wide = layers.Dense(4096, activation="relu")(layers.Dense(1)(layers.Flatten()(image)))
    return keras.Model(image, layers.Dense(CLASSES)(wide))


def _lenet(keras: Any, size: int) -> Any:
    """LeNet-5's shape, with the widths of its usual modern versions."""
    layers = keras.layers
    image = found = keras.Input((size, size, 3))
    for filters in (32, 64):
        found = layers.Conv2D(filters, 5, padding="same", activation="relu")(found)
        found = layers.MaxPooling2D(2)(found)
    found = layers.Dense(512, activation="relu")(layers.Flatten()(found))
    return keras.Model(image, layers.Dense(CLASSES)(found))


NETWORKS = {
    "trivial": Network(224, 1, _trivial),
    "lenet": Network(28, 4, _lenet),
    "densenet121": _application("DenseNet121"),
    "inception3": _application("InceptionV3", 299, 75),
    "mobilenet": _application("MobileNet"),
    "mobilenet_v2": _application("MobileNetV2"),
    "resnet50": _application("ResNet50"),
    "resnet101": _application("ResNet101"),
    "resnet152": _application("ResNet152"),
    "vgg16": _application("VGG16"),
    "vgg19": _application("VGG19"),
    "xception": _application("Xception", 299, 71),
}


def find(name: str, image_size: int | None) -> tuple[Network, int]:
    """The network of that name, which is one of NETWORKS, and the size of its images.

    Raises:
        BenchmarkError: it cannot take images of that size.
    """
    network = NETWORKS[name]
    size = network.image_size if image_size is None else image_size
    if not network.smallest <= size <= LARGEST:
        raise BenchmarkError(
            f"--image_size={size}: {name} takes images of {network.smallest} to {LARGEST} pixels"
        )
    return network, size

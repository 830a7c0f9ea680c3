"""The models of the LMS benchmark, at full size: a GPT, a ResNet and a 3D U-Net.

Each is a function that makes the model and a function that makes a batch's loss. Written from the
papers, with nothing beyond torch, so that they run under FakeTensorMode and on a GPU alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    """A pre-norm transformer layer. In and out: (batch, tokens, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then the perceptron."""
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Tokens (batch, tokens) int64 to scores (batch, tokens, words)."""

    def __init__(
        self, width: int, layers: int, heads: int, words: int = 8192, again: bool = False
    ) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.again = again

    def forward(self, tokens: Tensor) -> Tensor:
        """With `again`, each layer is computed again in backward (checkpointing)."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.head(x)


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)),
            *(nn.ReLU(True), nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside)),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.skip = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inside, h, w) to (batch, 4 width, h / stride, w / stride)."""
        return torch.relu_(self.body(x) + self.skip(x))


def resnet(depths: tuple[int, ...], again: bool = False) -> nn.Module:
    """ResNet-50 is (3, 4, 6, 3), ResNet-152 (3, 8, 36, 3)."""
    parts: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True)),
        nn.MaxPool2d(3, 2, 1),
    ]
    inside = 64
    for stage, depth in enumerate(depths):
        for number in range(depth):
            width = 64 << stage
            parts.append(Bottleneck(inside, width, 2 if stage and not number else 1))
            inside = 4 * width
    end = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))
    return Chain([*parts, end], again)


class Chain(nn.Module):
    """One part after the other, each computed again in backward if asked for."""

    def __init__(self, parts: list[nn.Module], again: bool) -> None:
        super().__init__()
        self.parts, self.again = nn.ModuleList(parts), again

    def forward(self, x: Tensor) -> Tensor:
        """Through all of them."""
        for part in self.parts:
            x = checkpoint(part, x, use_reentrant=False) if self.again else part(x)
        return x


def _twice(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv3d(inside, outside, 3, 1, 1), nn.InstanceNorm3d(outside), nn.ReLU(True)),
        *(nn.Conv3d(outside, outside, 3, 1, 1), nn.InstanceNorm3d(outside), nn.ReLU(True)),
    )


class UNet3d(nn.Module):
    """Volumes (batch, 4, d, h, w) to scores (batch, 3, d, h, w)."""

    def __init__(self, width: int = 32, depth: int = 4, again: bool = False) -> None:
        super().__init__()
        widths = [width << level for level in range(depth)]
        self.down = nn.ModuleList(map(_twice, [4, *widths[:-1]], widths))
        self.rise = nn.ModuleList(nn.ConvTranspose3d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(_twice(2 * w, w) for w in reversed(widths[:-1]))
        self.head, self.again = nn.Conv3d(width, 3, 1), again

    def forward(self, x: Tensor) -> Tensor:
        """Down, across and up again."""
        run = partial(checkpoint, use_reentrant=False) if self.again else _apply
        across = []
        for level, part in enumerate(self.down):
            x = run(part, nn.functional.max_pool3d(x, 2) if level else x)
            across.append(x)
        across.pop()
        for rise, part in zip(self.rise, self.up, strict=True):
            x = run(part, torch.cat([rise(x), across.pop()], 1))
        return self.head(x)


def _apply(part: nn.Module, x: Tensor) -> Tensor:
    return part(x)


@dataclass(frozen=True)
class Case:
    """One model at one size.

    Attributes:
        make: the model, with or without checkpointing.
        batch: inputs and targets for so many samples.
        size: samples in the benchmark.
    """

    name: str
    make: Callable[[bool], nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]
    size: int


def _words(samples: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(samples, 2048, dtype=torch.int64), torch.zeros(
        samples * 2048, dtype=torch.int64
    )


def _images(edge: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda n: (torch.randn(n, 3, edge, edge), torch.zeros(n, dtype=torch.int64))


def _volumes(edge: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda n: (
        torch.randn(n, 4, edge, edge, edge),
        torch.zeros(n, edge, edge, edge, dtype=torch.int64),
    )


def _vectors(width: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda n: (torch.randn(n, width), torch.zeros(n, dtype=torch.int64))


def perceptron(width: int, layers: int, again: bool = False) -> nn.Module:
    """Small enough for a processor that stands in for a GPU."""
    parts = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)]
    return Chain([*parts, nn.Linear(width, 10)], again)


CASES = (
    Case("mlp", partial(perceptron, 32, 12), _vectors(32), 16384),
    Case("gpt-4096", lambda again: Gpt(4096, 8, 32, again=again), _words, 32),
    Case("resnet-50", lambda again: resnet((3, 4, 6, 3), again), _images(224), 512),
    Case("resnet-152", lambda again: resnet((3, 8, 36, 3), again), _images(448), 64),
    Case("unet-3d", lambda again: UNet3d(32, 4, again), _volumes(128), 8),
)


def loss(model: nn.Module, inputs: Tensor, target: Tensor) -> Tensor:
    """The mean cross entropy, in bfloat16 as the model is."""
    scores = model(inputs if not inputs.is_floating_point() else inputs.to(torch.bfloat16))
    return cross_entropy(scores.flatten(0, 1) if scores.dim() == 3 else scores, target)

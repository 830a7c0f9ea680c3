"""torchvision's compiled operations beside their definitions, on the CPU, with no CUDA in sight."""

import ctypes
import subprocess
import sys
from pathlib import Path

import torch
import torchvision
from torchvision import io, ops

NOCUDA = Path(torchvision.__file__).parents[1] / "torchvision.libs/libtorchvision_nocuda.so"


def check_nms() -> None:
    """Of two boxes that overlap, the better one stays."""
    boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]])
    assert ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 2]


def check_roi_align() -> None:
    """The mean of a region of a plane is the plane's value in its middle."""
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    image = (2 * rows + 3 * columns)[None, None]
    found = ops.roi_align(image, [torch.tensor([[1.0, 2, 5, 6]])], 1, aligned=True)
    assert torch.allclose(found.flatten(), torch.tensor([2 * 3.5 + 3 * 2.5])), found


def check_deform_conv2d() -> None:
    """Without offsets it is a convolution, forward and backward."""
    torch.manual_seed(0)
    image = torch.randn(2, 3, 7, 7, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 3, 3, 3, dtype=torch.float64, requires_grad=True)
    offset = torch.zeros(2, 18, 5, 5, dtype=torch.float64)
    results = ops.deform_conv2d(image, offset, weight), torch.conv2d(image, weight)
    gradients = [torch.autograd.grad(r.square().sum(), [image, weight]) for r in results]
    assert torch.allclose(*results)
    assert all(torch.allclose(*pair) for pair in zip(*gradients, strict=True))


def check_models() -> None:
    """A classifier learns a step, and a detector with all of these operations runs."""
    model = torchvision.models.resnet18(num_classes=3)
    model(torch.randn(2, 3, 64, 64)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    name = "fasterrcnn_mobilenet_v3_large_320_fpn"
    detector = torchvision.models.get_model(name, weights=None, weights_backbone=None).eval()
    with torch.no_grad():
        found = detector([torch.rand(3, 320, 320)])[0]
    assert set(found) == {"boxes", "labels", "scores"}


def check_images() -> None:
    """What is coded as PNG and JPEG is read again."""
    image = (torch.arange(3 * 16 * 16) % 251).to(torch.uint8).reshape(3, 16, 16)
    assert torch.equal(io.decode_png(io.encode_png(image)), image)
    assert io.decode_jpeg(io.encode_jpeg(image)).shape == image.shape


def check_no_cuda() -> None:
    """A call of CUDA ends with a sentence, and nobody else takes our library for CUDA's."""
    code = f"import ctypes; ctypes.CDLL({str(NOCUDA)!r}).cudaDeviceSynchronize()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode < 0, done
    assert "cudaDeviceSynchronize was called, but this is PyTorch for CPUs" in done.stderr
    # The wheel brings NVIDIA's own runtime for nvJPEG: who asks for that shall get it.
    runtime = ctypes.CDLL("libcudart.so.13", mode=4)  # RTLD_NOLOAD
    assert hasattr(runtime, "cudaRuntimeGetVersion")


if __name__ == "__main__":
    check_nms()
    check_roi_align()
    check_deform_conv2d()
    check_models()
    check_images()
    check_no_cuda()

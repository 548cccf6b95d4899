"""The parameter tensors of well-known networks, and the multiplications behind each: what a step reduces, and when.

Computed from the published architectures, so that programs without a framework can use them: ResNet-50 and -101 (He et
al. 2016, table 1, with the stride in the 3x3 convolution, as today's libraries have it), VGG-16 (Simonyan and Zisserman
2015, configuration D), Inception V3 (Szegedy et al. 2016, as released: batch normalization behind every convolution;
without the auxiliary classifier). 1,000 classes, 224 x 224 pixels, Inception 299 x 299.
"""

from __future__ import annotations

from typing import NamedTuple

CLASSES = 1000
# (width, stride) of ResNet's four stages; a block's output is wider by the factor.
STAGE_WIDTHS = ((64, 1), (128, 2), (256, 2), (512, 2))
EXPANSION = 4


class Tensor(NamedTuple):
    """A parameter.

    Attributes:
        elements: of it.
        multiplications: of one picture's forward pass with it; 0 where they do not count (biases, scales).
    """

    elements: int
    multiplications: int


class _Stack:
    """Layers as they are added, with the side length of the picture."""

    def __init__(self, side: int) -> None:
        self.side = side
        self.tensors: list[Tensor] = []

    def convolve(
        self, inputs: int, outputs: int, kernel: tuple[int, int], stride: int = 1, pad: bool = True, norm: bool = True
    ) -> int:
        """A convolution; `norm`: with a normalization's scale and shift behind it, else with a bias.

        Returns:
            The number of outputs.
        """
        height, width = kernel
        rows, columns = ((self.side - (1 if pad else length)) // stride + 1 for length in kernel)
        elements = inputs * outputs * height * width
        self.tensors.append(Tensor(elements, elements * rows * columns))
        self.tensors += [Tensor(outputs, 0)] * (2 if norm else 1)
        self.side = rows
        return outputs

    def pool(self, kernel: int, stride: int, pad: int = 0) -> None:
        """Pooling, which has no parameters."""
        self.side = (self.side + 2 * pad - kernel) // stride + 1

    def connect(self, inputs: int, outputs: int) -> int:
        """A full connection with a bias; the number of outputs."""
        self.tensors += [Tensor(inputs * outputs, inputs * outputs), Tensor(outputs, 0)]
        return outputs

    def branch(self, inputs: int, *layers: tuple[int, int, int], last_stride: int = 1) -> int:
        """Convolutions (outputs, height, width) one after the other, from the stack's side and back to it.

        Returns:
            The number of outputs of the last one.
        """
        side = self.side
        for place, (outputs, height, width) in enumerate(layers):
            shrinks = last_stride > 1 and place == len(layers) - 1
            inputs = self.convolve(inputs, outputs, (height, width), last_stride if shrinks else 1, pad=not shrinks)
        self.side = side
        return inputs


def resnet(*blocks: int) -> list[Tensor]:
    """ResNet with so many bottleneck blocks in its four stages, in the order of the layers."""
    stack = _Stack(224)
    stack.convolve(3, 64, (7, 7), stride=2)
    stack.pool(3, 2, pad=1)
    inputs = 64
    for (width, stride), count in zip(STAGE_WIDTHS, blocks):
        for block in range(count):
            step, outside = (stride if block == 0 else 1), stack.side
            stack.convolve(inputs, width, (1, 1))
            stack.convolve(width, width, (3, 3), stride=step)
            outputs = stack.convolve(width, width * EXPANSION, (1, 1))
            inside, stack.side = stack.side, outside
            if block == 0:
                stack.convolve(inputs, outputs, (1, 1), stride=step)
            stack.side, inputs = inside, outputs
    stack.connect(inputs, CLASSES)
    return stack.tensors


def vgg16() -> list[Tensor]:
    """VGG-16, in the order of the layers."""
    stack = _Stack(224)
    inputs = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            inputs = stack.convolve(inputs, width, (3, 3), norm=False)
        stack.pool(2, 2)
    inputs = stack.connect(inputs * stack.side**2, 4096)
    stack.connect(stack.connect(inputs, 4096), CLASSES)
    return stack.tensors


def inception_v3() -> list[Tensor]:
    """Inception V3, in the order of the layers."""
    stack = _Stack(299)
    stack.convolve(3, 32, (3, 3), stride=2, pad=False)
    stack.convolve(32, 32, (3, 3), pad=False)
    stack.convolve(32, 64, (3, 3))
    stack.pool(3, 2)
    stack.convolve(64, 80, (1, 1))
    stack.convolve(80, 192, (3, 3), pad=False)
    stack.pool(3, 2)
    inputs = 192
    for pooled in (32, 64, 64):  # 35 x 35
        inputs = (
            stack.branch(inputs, (64, 1, 1))
            + stack.branch(inputs, (48, 1, 1), (64, 5, 5))
            + stack.branch(inputs, (64, 1, 1), (96, 3, 3), (96, 3, 3))
            + stack.branch(inputs, (pooled, 1, 1))
        )
    inputs += stack.branch(inputs, (384, 3, 3), last_stride=2) + stack.branch(
        inputs, (64, 1, 1), (96, 3, 3), (96, 3, 3), last_stride=2
    )
    stack.pool(3, 2)
    for width in (128, 160, 160, 192):  # 17 x 17, kernels of 7 in two parts
        inputs = (
            stack.branch(inputs, (192, 1, 1))
            + stack.branch(inputs, (width, 1, 1), (width, 1, 7), (192, 7, 1))
            + stack.branch(inputs, (width, 1, 1), (width, 7, 1), (width, 1, 7), (width, 7, 1), (192, 1, 7))
            + stack.branch(inputs, (192, 1, 1))
        )
    inputs += stack.branch(inputs, (192, 1, 1), (320, 3, 3), last_stride=2) + stack.branch(
        inputs, (192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3), last_stride=2
    )
    stack.pool(3, 2)
    for _ in range(2):  # 8 x 8, two ends in parallel behind each of two branches
        one = stack.branch(inputs, (320, 1, 1))
        two = stack.branch(inputs, (384, 1, 1))
        ends = stack.branch(two, (384, 1, 3)) + stack.branch(two, (384, 3, 1))
        three = stack.branch(inputs, (448, 1, 1), (384, 3, 3))
        far_ends = stack.branch(three, (384, 1, 3)) + stack.branch(three, (384, 3, 1))
        inputs = one + ends + far_ends + stack.branch(inputs, (192, 1, 1))
    stack.connect(inputs, CLASSES)
    return stack.tensors


def all_networks() -> dict[str, list[Tensor]]:
    """By name."""
    return {
        "ResNet-50": resnet(3, 4, 6, 3),
        "ResNet-101": resnet(3, 4, 23, 3),
        "Inception V3": inception_v3(),
        "VGG-16": vgg16(),
    }


def gradient_sizes(tensors: list[Tensor]) -> list[int]:
    """Elements of the gradients in the order in which a backward pass makes them: last first."""
    return [tensor.elements for tensor in reversed(tensors)]


def ready_parts(tensors: list[Tensor]) -> list[float]:
    """When the gradients are ready, last layer first, as parts of a step's computation.

    The backward pass takes two thirds of it (a multiplication for the input's gradient and one for the weight's, behind
    the forward pass's one), each layer as much as it has multiplications.
    """
    whole = sum(tensor.multiplications for tensor in tensors)
    done, parts = 0, []
    for tensor in reversed(tensors):
        # Biases and scales need none: theirs are there when the layer behind is through.
        done += tensor.multiplications
        parts.append(1 / 3 + 2 / 3 * done / whole)
    return parts

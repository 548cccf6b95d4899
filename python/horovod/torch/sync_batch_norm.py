"""Batch normalization over the batches of all ranks, as if they were one batch.

Used by models as a replacement of `torch.nn.BatchNorm*d` where a rank's own batch is too small for good statistics.
Forward gathers each rank's mean, sum of squared deviations and count; backward sums two vectors per channel. It works
on any device and with uneven batches.
"""

from __future__ import annotations

import weakref
from typing import Any, Final, Optional

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from horovod._core.absent import absent_names
from horovod._core.errors import InvalidArgumentError
from horovod._core.life import session
from horovod._core.operations.reduce_ops import Sum
from horovod._core.training.ordinals import Ordinals
from horovod.torch.collectives.ops import allgather, allreduce_
from horovod.torch.graphs import outside_graphs

__all__ = ["SyncBatchNorm"]

__getattr__ = absent_names(
    __name__, {"_SyncBatchNorm": "hvd.SyncBatchNorm, a module; its function belongs to a layer, which names it"}
)

# In the order in which layers first normalize over the ranks: models that only one rank has built do not count.
_layers: Final = Ordinals(weakref.WeakKeyDictionary())


class SyncBatchNorm(_BatchNorm):
    """Batch normalization whose statistics are those of all ranks' batches together.

    Collective in training mode: all ranks must run the layer, in forward and in backward, in the same order. The
    ranks' batches may differ in size, even be empty. In evaluation mode with running statistics, and with one rank, it
    is a plain batch normalization.

    The gradients of weight and bias are those of this rank's part of the batch; a `DistributedOptimizer` combines them.

    Args:
        num_features: channels, the extent of dimension 1 of the input [N, C, ...].
        eps: added to the variance.
        momentum: weight of the new statistics in the running ones; None = cumulative average.
        affine: learn a scale and a shift per channel.
        track_running_stats: keep running statistics for evaluation.

    Raises:
        InvalidArgumentError: (when called) the input has fewer than two dimensions, or there is only one value per
            channel in all.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise InvalidArgumentError(
                f"SyncBatchNorm needs an input of at least 2 dimensions [N, C, ...]. Received: {list(input.shape)}."
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalizes [N, C, ...]. Collective in training mode. Returns a tensor of the same shape and dtype."""
        self._check_input_dim(input)
        use_batch = self.training or self.running_mean is None
        if not use_batch or session.current is None or session.current.size == 1:
            return self._plain(input, use_batch)
        result: torch.Tensor = self._over_ranks(input)
        return result

    # Compiled models run this part as it is: the number of values, on which an error depends, is data.
    @outside_graphs
    def _over_ranks(self, input: torch.Tensor) -> torch.Tensor:
        normalize: Any = _Normalize.apply
        output, mean, variance, count = normalize(
            input, self.weight, self.bias, self.eps, f"sync_batch_norm.{_layers.of(self) + 1}"
        )
        if self.training and self.track_running_stats:
            self._update_running(mean, variance, count)
        result: torch.Tensor = output
        return result

    def _plain(self, input: torch.Tensor, use_batch: bool) -> torch.Tensor:
        track = self.training and self.track_running_stats
        factor = self._count_batch() if track else 0.0
        return torch.nn.functional.batch_norm(
            input,
            self.running_mean if not self.training or self.track_running_stats else None,
            self.running_var if not self.training or self.track_running_stats else None,
            self.weight,
            self.bias,
            use_batch,
            factor,
            self.eps,
        )

    def _count_batch(self) -> float:
        """Counts a training batch; the weight of its statistics."""
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        if self.momentum is None:
            return 1.0 / float(self.num_batches_tracked or 1)
        return float(self.momentum)

    @torch.no_grad()
    def _update_running(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
        factor = self._count_batch()
        if self.running_mean is None or self.running_var is None:
            return
        unbiased = variance * (count / (count - 1))
        # Rounded once, also where the running statistics are of a half type.
        for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.copy_(torch.lerp(running.to(new.dtype), new, factor))

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process chooses a name of its own.
        state = dict(self.__dict__)
        state["_name"] = state["_session"] = None
        return state


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *([1] * (like.dim() - 2)))


def _global_statistics(input: torch.Tensor, name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean and biased variance per channel, and the count, over all ranks: Chan, Golub and LeVeque's combination of the
    ranks' own, which unlike sums of squares does not cancel. Collective."""
    channels = input.size(1)
    axes = [0, *range(2, input.dim())]
    count = input.numel() // channels
    packed = input.new_zeros(2 * channels + 1)
    if count:
        own_variance, own_mean = torch.var_mean(input, dim=axes, correction=0)
        packed[:channels] = own_mean
        packed[channels:-1] = own_variance * count
    # float32 counts exactly up to 2^24 only: the error of a larger count is below that of the sums themselves.
    packed[-1] = count
    rows = allgather(packed.unsqueeze(0), name=name + ".forward")
    counts = rows[:, -1:]
    total = counts.sum()
    means = rows[:, :channels]
    mean = (means * counts).sum(0) / total
    deviations = rows[:, channels:-1].sum(0) + (counts * (means - mean).square()).sum(0)
    return mean, deviations / total, total


class _Normalize(torch.autograd.Function):
    """The differentiable part. Returns (output, mean, biased variance, count); only the output is differentiable."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: Optional[torch.Tensor],
        bias: Optional[torch.Tensor],
        eps: float,
        name: str,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        # Half types have too few digits for sums; plain batch normalization computes in float32 too.
        wide = input.double() if input.dtype is torch.float64 else input.float()
        mean, variance, count = _global_statistics(wide, name)
        if count.item() < 2:
            raise InvalidArgumentError(
                "SyncBatchNorm needs more than one value per channel when training. All ranks together have "
                f"{int(count.item())}; this rank's input is {list(input.shape)}."
            )
        inverse = torch.rsqrt(variance + eps)
        output = (wide - _per_channel(mean, wide)) * _per_channel(inverse, wide)
        if weight is not None:
            output = output * _per_channel(weight.to(wide.dtype), wide)
        if bias is not None:
            output = output + _per_channel(bias.to(wide.dtype), wide)
        ctx.save_for_backward(input, weight, mean, inverse, count)
        ctx.name = name
        ctx.mark_non_differentiable(mean, variance, count)
        return output.to(input.dtype), mean, variance, count

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator,misc,unused-ignore]
    def backward(ctx: Any, grad: torch.Tensor, *unused: Any) -> tuple[Optional[torch.Tensor], ...]:
        input, weight, mean, inverse, count = ctx.saved_tensors
        axes = [0, *range(2, input.dim())]
        wide_grad = grad.to(mean.dtype)
        normalized = (input.to(mean.dtype) - _per_channel(mean, input)) * _per_channel(inverse, input)
        sums = torch.stack([wide_grad.sum(axes), (wide_grad * normalized).sum(axes)])
        grad_bias, grad_weight = sums[0].clone(), sums[1].clone()
        grad_input = None
        # Every rank takes part, even if only another one needs the gradient of its input.
        allreduce_(sums, name=ctx.name + ".backward", op=Sum)
        if ctx.needs_input_grad[0]:
            means = sums / count
            scale = inverse if weight is None else inverse * weight.to(mean.dtype)
            centred = wide_grad - _per_channel(means[0], input) - normalized * _per_channel(means[1], input)
            grad_input = (centred * _per_channel(scale, input)).to(input.dtype)
        return (
            grad_input,
            grad_weight.to(weight.dtype) if weight is not None and ctx.needs_input_grad[1] else None,
            grad_bias.to(weight.dtype) if weight is not None and ctx.needs_input_grad[2] else None,
            None,
            None,
        )

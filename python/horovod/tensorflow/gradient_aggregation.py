"""Import path kept for users' scripts: `horovod.tensorflow.gradient_aggregation`. Re-exports."""

from horovod.tensorflow.gradients.aggregation import LocalGradientAggregationHelper

__all__ = ["LocalGradientAggregationHelper"]

"""Import path kept for users' scripts: `horovod.tensorflow.gradient_aggregation_eager`. Re-exports."""

from horovod.tensorflow.gradients.aggregation import LocalGradientAggregationHelperEager

__all__ = ["LocalGradientAggregationHelperEager"]

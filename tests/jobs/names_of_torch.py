"""What older versions of torch have under other names, or not at all: its use skips the case."""

from unittest import SkipTest

try:
    from torch.distributed import all_gather_single, reduce_scatter_single
except ImportError:
    from torch.distributed import all_gather_into_tensor as all_gather_single
    from torch.distributed import reduce_scatter_tensor as reduce_scatter_single
try:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
except ImportError:
    from torch.distributed._tensor import Replicate, Shard, distribute_tensor
try:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError:

    def fully_shard(*_, **__):
        raise SkipTest("this torch has FSDP2 for GPUs alone")

    MixedPrecisionPolicy = fully_shard

__all__ = [
    "MixedPrecisionPolicy",
    "Replicate",
    "Shard",
    "all_gather_single",
    "distribute_tensor",
    "fully_shard",
    "reduce_scatter_single",
]

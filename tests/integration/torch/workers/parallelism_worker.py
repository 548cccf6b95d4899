"""Ways of PyTorch's to train in parallel, over the backend "horovod" and over gloo."""

import torch
import torch.distributed as dist
from beside_gloo import expect_as_gloo, gloo, join_group, small, trained
from jobs.case_runner import run_cases
from jobs.names_of_torch import MixedPrecisionPolicy, fully_shard
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

import horovod.torch as hvd


def mesh_of(group):
    return DeviceMesh.from_group(dist.group.WORLD if group is None else group, "cpu")


def full(parameter):
    return parameter.full_tensor()


def case_ddp():
    expect_as_gloo(lambda model, group: DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.001))


def case_ddp_of_a_static_graph():
    def wrap(model, group):
        return DistributedDataParallel(model, process_group=group, static_graph=True, bucket_cap_mb=0.001)

    class OneLayerTwice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)

        def forward(self, x):
            return self.last(self.first(torch.relu(self.first(x))))

    expect_as_gloo(wrap, OneLayerTwice)


def case_ddp_of_two_kinds_of_floats():
    def make():
        model = small()
        model[0].to(torch.bfloat16)
        model[2].register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
        model.register_forward_pre_hook(lambda _, inputs: (inputs[0].bfloat16(),))
        return model

    expect_as_gloo(lambda model, group: DistributedDataParallel(model, process_group=group), make)


def case_fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):

        def wrap(model, group, strategy=strategy):
            return FullyShardedDataParallel(
                model, group, strategy, device_id=torch.device("cpu"), use_orig_params=False
            )

        expect_as_gloo(wrap)


def case_fsdp2():
    def wrap(model, group):
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh_of(group))
        return fully_shard(model, mesh=mesh_of(group))

    expect_as_gloo(wrap, whole=full)


def case_fsdp2_in_bfloat16():
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    expect_as_gloo(lambda model, group: fully_shard(model, mesh=mesh_of(group), mp_policy=policy), whole=full)


def case_tensor_parallelism():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def on_one_batch(model):
        model.register_forward_pre_hook(lambda _, inputs: (torch.ones_like(inputs[0]),))
        return model

    def wrap(model, group):
        layers = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        return on_one_batch(parallelize_module(model, mesh_of(group), layers))

    expect_as_gloo(wrap, whole=full)
    together = [full(parameter) for parameter in trained(small, lambda model: wrap(model, None))]
    for one, alone in zip(together, trained(small, on_one_batch)):
        torch.testing.assert_close(one, alone)


def case_pipelining():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, target = torch.randn(8, 16, generator=torch.Generator().manual_seed(1)), torch.ones(8, 4)

    def gradients(group, kind):
        torch.manual_seed(0)
        layers = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(ranks - 1)), torch.nn.Linear(16, 4))
        part = layers[rank]
        stage = PipelineStage(part, rank, ranks, torch.device("cpu"), x[:2], group=group)
        schedule = kind(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
        if rank == 0:
            schedule.step(x)
        elif rank == ranks - 1:
            schedule.step(target=target)
        else:
            schedule.step()
        return [parameter.grad for parameter in part.parameters()]

    other = gloo()
    # In older versions of torch Schedule1F1B drops its sends before they end, which gloo does not allow.
    one, two = gradients(dist.group.WORLD, Schedule1F1B), gradients(other, ScheduleGPipe)
    assert one and all(map(torch.equal, one, two))


run_cases(globals(), hvd, join_group, process_sets="dynamic")

"""Cases of collectives inside torch.compile."""

import warnings

import torch
from cases import expect_raises, run_cases

import horovod.torch as hvd


def weights(shape=(4, 2), rank=None):
    """Incoming gradients that differ between ranks."""
    generator = torch.Generator().manual_seed(hvd.rank() if rank is None else rank)
    return torch.rand(shape, generator=generator)


def compiled_equals_eager(function, *inputs, backend="aot_eager"):
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    for _ in range(2):
        results = []
        for run in (function, compiled):
            given = [x.clone().requires_grad_() for x in inputs]
            output = run(*given)
            outputs = output if isinstance(output, (list, tuple)) else [output]
            sum((o * weights(tuple(o.shape))).sum() for o in outputs).backward()
            results.append([*[o.detach() for o in outputs], *[x.grad for x in given]])
        assert all(torch.allclose(a, b) for a, b in zip(*results)), results


def case_compiled_allreduce():
    compiled_equals_eager(lambda x: hvd.allreduce(x * 2, name="c", op=hvd.Sum) + 1, torch.rand(4, 2))
    compiled_equals_eager(lambda x: hvd.allreduce(x * 2, compression=hvd.Compression.fp16), torch.rand(4, 2))
    compiled_equals_eager(lambda x: hvd.allreduce(x, op=hvd.Max).sin(), torch.rand(4, 2) + hvd.rank())


def case_compiled_groups():
    compiled_equals_eager(lambda x, y: hvd.grouped_allreduce([x * 2, y], name="cg"), torch.rand(4, 2), torch.rand(3))
    compiled_equals_eager(lambda x: hvd.grouped_reducescatter([x, x * 2]), torch.rand(5, 2))


def case_compiled_movements():
    compiled_equals_eager(lambda x: hvd.allgather(x * 2, name="ca"), torch.rand(4, 2))
    compiled_equals_eager(lambda x: hvd.broadcast(x, 0).cos(), torch.rand(4, 2))
    compiled_equals_eager(lambda x: hvd.alltoall(x * 3), torch.rand(2 * hvd.size(), 2))
    compiled_equals_eager(lambda x: hvd.reducescatter(x, op=hvd.Sum), torch.rand(5, 2))


def case_compiled_by_inductor():
    compiled_equals_eager(
        lambda x: hvd.allgather(hvd.allreduce(x.sin()) * 2).cos(), torch.rand(4, 2), backend="inductor"
    )


def case_compiled_in_place():
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(x):
        y = x * 2
        hvd.allreduce_(y, op=hvd.Sum, name="ci")
        hvd.broadcast_(y, 0)
        return y + 1

    assert torch.allclose(run(torch.ones(3)), torch.full((3,), 2.0 * hvd.size() + 1))


def case_compiled_allgather_of_unequal_rows():
    torch._dynamo.reset()

    def run(x):
        return hvd.allgather(x * 2, name="cu") + 1

    x = torch.rand(hvd.rank() + 1, 2)
    expect_raises(
        ValueError,
        lambda: torch.compile(run, fullgraph=True, backend="aot_eager")(x),
        "capture_dynamic_output_shape_ops",
    )
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        result = torch.compile(run, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(result, run(x))


def case_async_operations_break_the_graph_and_work():
    torch._dynamo.reset()

    @torch.compile(backend="aot_eager")
    def run(x):
        handle = hvd.allreduce_async(x * 2, op=hvd.Sum)
        return hvd.synchronize(handle) + 1

    assert torch.allclose(run(torch.ones(2)), torch.full((2,), 2.0 * hvd.size() + 1))


def train(model, optimizer, step, data):
    for x, y in data:
        step(model, optimizer, x, y)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def plain_step(model, optimizer, x, y):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def case_compiled_model_and_compiled_step():
    torch._dynamo.reset()
    rank, size = hvd.rank(), hvd.size()
    data = [(torch.randn(4 * size, 8), torch.randn(4 * size, 3)) for _ in range(4)]
    own = [(x[rank::size], y[rank::size]) for x, y in data]

    def fresh():
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(8, 400), torch.nn.Tanh(), torch.nn.Linear(400, 3))
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    expected = train(*fresh(), plain_step, data)
    for compile_model, compile_step in ((True, False), (False, True)):
        model, plain = fresh()
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
        used = torch.compile(model, backend="aot_eager") if compile_model else model
        step = torch.compile(plain_step, backend="aot_eager") if compile_step else plain_step
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = train(used, optimizer, step, own)
        assert torch.allclose(result, expected, atol=1e-6), (
            compile_model,
            compile_step,
            (result - expected).abs().max(),
        )
        del optimizer


def case_compiled_model_with_sync_batch_norm():
    torch._dynamo.reset()
    models = [torch.nn.Sequential(torch.nn.Linear(6, 8), hvd.SyncBatchNorm(8), torch.nn.ReLU()) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(4, 6) + hvd.rank()
    outputs = [models[0](x), torch.compile(models[1], backend="aot_eager")(x)]
    for output in outputs:
        output.sum().backward()
    assert torch.allclose(*outputs) and torch.allclose(models[0][0].weight.grad, models[1][0].weight.grad, atol=1e-6)
    assert torch.equal(models[0][1].running_var, models[1][1].running_var)


def case_compiled_autograd():
    torch._dynamo.reset()
    weight = torch.nn.Parameter(torch.ones(300, 300))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))

    @torch.compile(backend="aot_eager")
    def step(factor):
        (weight * factor).sum().backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        for _ in range(2):
            optimizer.zero_grad()
            step(torch.tensor(hvd.rank() + 1.0))
            optimizer.step()
    assert torch.allclose(weight, torch.full((300, 300), 1.0 - (hvd.size() + 1)))


if __name__ == "__main__":
    run_cases(globals())

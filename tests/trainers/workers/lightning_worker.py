"""Cases of `Trainer(strategy="horovod")`. Where one process can train on whole batches, parameters must be the same."""

import importlib
import os
import tempfile

import torch
import torch.distributed as dist
from jobs.case_runner import expect_raises, run_cases
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

import horovod.lightning
import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError

pl = importlib.import_module(os.environ["TEST_LIGHTNING"])
if pl.__name__ == "lightning":
    pl = importlib.import_module("lightning.pytorch")
STRATEGIES = importlib.import_module(f"{pl.__name__}.strategies")
HorovodStrategy = STRATEGIES.StrategyRegistry["horovod"]["strategy"]
ROWS, BATCH, EPOCHS = 32, 4, 2
DATA = torch.utils.data.TensorDataset(torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(0)))
# A folder that all ranks see, for what rank 0 writes.
FOLDER = tempfile.mkdtemp() if os.environ.get("HOROVOD_RANK") == "0" else ""


class Net(pl.LightningModule):
    """A linear layer that notes which rows it has seen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(hvd.rank())  # rank 0's parameters must become everybody's
        self.layer = torch.nn.Linear(4, 1)
        self.seen = []

    def loss(self, x):
        return (self.layer(x) - x.sum(dim=1, keepdim=True)).square().mean()

    def training_step(self, batch, number):
        self.seen.append(batch[0])
        return self.loss(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def loader():
    return torch.utils.data.DataLoader(DATA, batch_size=BATCH)


def parts_of_whole_batches():
    """Lightning's own sampler shuffles."""
    sampler = torch.utils.data.DistributedSampler(DATA, hvd.size(), hvd.rank(), shuffle=False)
    return torch.utils.data.DataLoader(DATA, batch_size=BATCH, sampler=sampler)


def whole_batches():
    return DATA.tensors[0].split(BATCH * hvd.size())


def trainer(strategy="horovod", **options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    options = {"max_epochs": EPOCHS, "devices": 1, "enable_checkpointing": False, **quiet, **options}
    return pl.Trainer(strategy=strategy, accelerator="cpu", **options)


def fit(net, **options):
    made = trainer(**options)
    made.fit(net, parts_of_whole_batches())
    return made


def expect_equal_on_all_ranks(net):
    for name, parameter in net.named_parameters():
        first, second = hvd.allgather(parameter.detach().unsqueeze(0), name=name)
        assert torch.equal(first, second), (name, first, second)


def alone(clip=None, passes=1, epochs=EPOCHS):
    """The parameters that one process gets from whole batches."""
    torch.manual_seed(0)  # as rank 0
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(epochs):
        for number, x in enumerate(whole_batches(), 1):
            ((layer(x) - x.sum(dim=1, keepdim=True)).square().mean() / passes).backward()
            if number % passes == 0:
                if clip is not None:
                    torch.nn.utils.clip_grad_norm_(layer.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
        schedule.step()
    return layer


def expect_close(layer, other):
    for one, its in zip(layer.parameters(), other.parameters()):
        torch.testing.assert_close(one, its)


def case_each_rank_trains_on_its_part():
    net, made = Net(), trainer(max_epochs=1)
    made.fit(net, loader())
    assert isinstance(made.train_dataloader.sampler, torch.utils.data.DistributedSampler)
    assert made.world_size == hvd.size() and made.global_rank == hvd.rank() and made.is_global_zero == (not hvd.rank())
    seen = hvd.allgather(torch.cat(net.seen))
    assert seen.shape == DATA.tensors[0].shape
    assert torch.equal(seen.sort(dim=0).values, DATA.tensors[0].sort(dim=0).values)


def case_training_is_that_of_one_process():
    net = Net()
    made = fit(net)
    assert dist.get_backend() == "horovod" and made.global_step == EPOCHS * len(whole_batches())
    expect_equal_on_all_ranks(net)
    expect_close(net.layer, alone())


def case_clipped_gradients_are_the_reduced_ones():
    net = Net()
    fit(net, gradient_clip_val=0.05)
    expect_equal_on_all_ranks(net)
    expect_close(net.layer, alone(clip=0.05))


def case_accumulated_passes():
    net = Net()
    assert fit(net, accumulate_grad_batches=2, gradient_clip_val=0.05).global_step == EPOCHS * len(whole_batches()) // 2
    expect_equal_on_all_ranks(net)
    expect_close(net.layer, alone(clip=0.05, passes=2))


def case_mixed_precision():
    net = Net()
    fit(net, precision="bf16-mixed", gradient_clip_val=1.0)
    expect_equal_on_all_ranks(net)
    for one, its in zip(net.layer.parameters(), alone(clip=1.0).parameters()):
        torch.testing.assert_close(one, its, atol=0.05, rtol=0.05)


class Gan(pl.LightningModule):
    """Two optimizers, stepped by hand; in the pass of one the other's parameters get no gradient."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(hvd.rank())
        self.maker, self.judge = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

    def losses(self, x):
        yield (self.judge(x) - 1).square().mean() + self.judge(self.maker(x).detach()).square().mean()
        yield (self.judge(self.maker(x)) - 1).square().mean()

    def training_step(self, batch, number):
        losses = self.losses(batch[0])
        for optimizer in reversed(self.optimizers()):
            self.toggle_optimizer(optimizer)
            self.manual_backward(next(losses))
            self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            optimizer.step()
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)

    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), 0.1) for part in (self.maker, self.judge)]


def case_manual_optimization_with_two_optimizers():
    net = Gan()
    fit(net, max_epochs=1)
    expect_equal_on_all_ranks(net)
    torch.manual_seed(0)
    maker, judge = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    other = type("", (), {"maker": maker, "judge": judge})
    for x in whole_batches():
        losses = Gan.losses(other, x)
        for part in (judge, maker):
            maker.zero_grad(), judge.zero_grad()
            next(losses).backward()
            torch.nn.utils.clip_grad_norm_(part.parameters(), 0.5)
            with torch.no_grad():
                for parameter in part.parameters():
                    parameter -= 0.1 * parameter.grad
    expect_close(net.maker, maker)
    expect_close(net.judge, judge)


class Measured(Net):
    """What is logged comes from all ranks."""

    def __init__(self):
        super().__init__()
        self.mean = importlib.import_module("torchmetrics").MeanMetric()

    def training_step(self, batch, number):
        self.log("rank", float(hvd.rank()), sync_dist=True, on_epoch=True, on_step=False)
        return super().training_step(batch, number)

    def validation_step(self, batch, number):
        self.mean.update(batch[0])
        self.log("mean", self.mean)
        self.log("ranks", float(hvd.rank() + 1), sync_dist=True, reduce_fx="sum")

    test_step = validation_step

    def on_validation_epoch_end(self):
        gathered = self.all_gather(torch.tensor(hvd.rank()))
        assert gathered.tolist() == list(range(hvd.size())), gathered


def case_metrics_are_of_all_ranks():
    made = trainer(max_epochs=1)
    made.fit(Measured(), loader(), loader())
    found = {name: float(value) for name, value in made.callback_metrics.items()}
    mean, batches = DATA.tensors[0].mean().item(), ROWS // BATCH // hvd.size()
    assert found["rank"] == (hvd.size() - 1) / 2, found
    assert abs(found["mean"] - mean) < 1e-5, (found, mean)
    assert found["ranks"] == batches * sum(range(1, hvd.size() + 1)), found
    (tested,) = trainer().test(Measured(), loader(), verbose=False)
    assert abs(tested["mean"] - mean) < 1e-5, tested


def case_early_stopping_is_agreed():
    class Other(Net):
        def training_step(self, batch, number):
            # Rank 1 alone would stop at once.
            self.log("watched", float(self.current_epoch * (-1) ** hvd.rank()))
            return super().training_step(batch, number)

    stops = pl.callbacks.EarlyStopping("watched", mode="max", patience=1, check_on_train_epoch_end=True)
    epochs = fit(Other(), max_epochs=4, callbacks=[stops]).current_epoch
    assert len(set(hvd.allgather_object(epochs))) == 1


def case_rank_0_writes_checkpoints_that_resume():
    folder = hvd.broadcast_object(FOLDER)
    saves = pl.callbacks.ModelCheckpoint(dirpath=folder, filename=f"{{epoch}}-{pl.__name__}", save_top_k=-1)
    whole = Net()
    made = fit(whole, callbacks=[saves], enable_checkpointing=True)
    paths = hvd.allgather_object(saves.best_model_path)
    assert len(set(paths)) == 1 and len(os.listdir(folder)) == EPOCHS, (paths, os.listdir(folder))
    resumed = Net()
    first = os.path.join(folder, f"epoch=0-{pl.__name__}.ckpt")
    trainer().fit(resumed, parts_of_whole_batches(), ckpt_path=first)
    expect_close(resumed.layer, whole.layer)
    assert made.strategy.is_global_zero == (hvd.rank() == 0)
    hvd.barrier()
    if FOLDER:
        for name in os.listdir(FOLDER):
            os.remove(os.path.join(FOLDER, name))
        os.rmdir(FOLDER)


def case_unused_parameters_count_as_zeros():
    class Partly(Net):
        def __init__(self):
            super().__init__()
            self.extra = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch, number):
            loss = super().training_step(batch, number)
            return loss + self.extra.sum() if hvd.rank() == 0 else loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    net = Partly()
    fit(net, strategy=HorovodStrategy(find_unused_parameters=True), max_epochs=1)
    expect_equal_on_all_ranks(net)
    expected = -0.1 / hvd.size() * len(whole_batches())
    assert abs(net.extra.item() - expected) < 1e-6, (net.extra, expected)


def case_hooks_compress_on_the_cpu():
    dtypes = []

    def hook(state, bucket):
        dtypes.append(bucket.buffer().dtype)
        return fp16_compress_hook(state, bucket)

    net = Net()
    fit(net, strategy=HorovodStrategy(ddp_comm_hook=hook), max_epochs=1)
    assert len(dtypes) == len(whole_batches())
    expect_equal_on_all_ranks(net)
    for one, its in zip(net.layer.parameters(), alone(epochs=1).parameters()):
        torch.testing.assert_close(one, its, atol=0.01, rtol=0.01)


def fabric_class():
    package = "lightning.fabric" if pl.__name__.startswith("lightning.") else "lightning_fabric"
    return importlib.import_module(package).Fabric


def case_fabric():
    fabric = fabric_class()(strategy="horovod", accelerator="cpu", devices=1)
    fabric.launch()
    torch.manual_seed(fabric.global_rank)
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer = fabric.setup(layer, optimizer)
    data = fabric.setup_dataloaders(parts_of_whole_batches())
    for _ in range(EPOCHS):
        for number, (x,) in enumerate(data, 1):
            steps = number % 2 == 0
            with fabric.no_backward_sync(model, enabled=not steps):
                fabric.backward((model(x) - x.sum(dim=1, keepdim=True)).square().mean() / 2)
            if steps:
                fabric.clip_gradients(model, optimizer, max_norm=0.05)
                optimizer.step()
                optimizer.zero_grad()
        schedule.step()
    expect_close(layer, alone(clip=0.05, passes=2))
    assert fabric.all_gather(torch.tensor(fabric.global_rank)).tolist() == list(range(hvd.size()))
    assert fabric.all_reduce(torch.ones(1), reduce_op="sum").item() == hvd.size()
    assert fabric.broadcast(fabric.global_rank, src=1) == 1


def case_lightnings_own_strategy_in_our_environment():
    dist.destroy_process_group()  # of the cases before
    environment = STRATEGIES.StrategyRegistry["horovod"]["strategy"].environment_class
    net = Net()
    strategy = STRATEGIES.DDPStrategy(cluster_environment=environment(), process_group_backend="horovod")
    fit(net, strategy=strategy, devices=hvd.local_size())
    assert dist.get_backend() == "horovod"
    expect_close(net.layer, alone())
    wrong = STRATEGIES.DDPStrategy(cluster_environment=environment(), process_group_backend="horovod")
    expect_raises(InvalidArgumentError, lambda: fit(Net(), strategy=wrong, devices=3), "devices=3", "hvd.local_size()")


def case_refusals():
    expect_raises(InvalidArgumentError, lambda: trainer(devices=3), "devices=3", "2 ranks on this host", "devices=1")
    expect_raises(
        InvalidArgumentError, lambda: HorovodStrategy(start_method="spawn"), "start_method", "HorovodEnvironment"
    )
    gloo = HorovodStrategy(process_group_backend="gloo")
    expect_raises(InvalidArgumentError, lambda: fit(Net(), strategy=gloo), "'horovod' already", "'gloo'")
    assert issubclass(horovod.lightning.HorovodStrategy, horovod.lightning.registration.TrainerMethods)


torch.set_num_threads(1)
run_cases(globals(), hvd, process_sets="dynamic")

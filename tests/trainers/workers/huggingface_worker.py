"""Accelerate and Hugging Face's `Trainer` on a process group that is there before them."""

import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import torch.distributed as dist
from accelerate import Accelerator
from jobs.case_runner import run_cases
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import horovod.torch as hvd
import horovod.torch.distributed

ROWS, BATCH = 32, 4
DATA = torch.utils.data.TensorDataset(torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(0)))


def begin():
    """The one line that users write."""
    if not dist.is_initialized():
        horovod.torch.distributed.init_process_group()


def expect_equal_on_all_ranks(model):
    for name, parameter in model.named_parameters():
        first, second = hvd.allgather(parameter.detach().unsqueeze(0), name=name)
        assert torch.equal(first, second), name


def case_accelerate_trains_as_one_process():
    begin()
    accelerator = Accelerator(gradient_accumulation_steps=2)
    assert accelerator.num_processes == hvd.size() and accelerator.process_index == hvd.rank()
    assert dist.get_backend() == "horovod" and accelerator.device.type == "cpu"
    torch.manual_seed(hvd.rank())
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    data = torch.utils.data.DataLoader(DATA, batch_size=BATCH)
    model, optimizer, data = accelerator.prepare(layer, optimizer, data)
    assert isinstance(model, torch.nn.parallel.DistributedDataParallel)
    seen = []
    for (x,) in data:
        seen.append(x)
        with accelerator.accumulate(model):
            accelerator.backward((model(x) - x.sum(dim=1, keepdim=True)).square().mean())
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    expect_equal_on_all_ranks(layer)
    torch.manual_seed(0)
    alone = torch.nn.Linear(4, 1)
    steps = torch.optim.SGD(alone.parameters(), 0.1, momentum=0.9)
    for x in DATA.tensors[0].split(BATCH * hvd.size() * 2):
        # Accelerate gives the ranks every other batch.
        (alone(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.5)
        steps.step()
        steps.zero_grad()
    for one, its in zip(layer.parameters(), alone.parameters()):
        torch.testing.assert_close(one, its)
    rows = accelerator.gather_for_metrics(torch.cat(seen))
    assert torch.equal(rows.sort(dim=0).values, DATA.tensors[0].sort(dim=0).values)
    assert accelerator.reduce(torch.ones(1), "sum").item() == hvd.size()


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"input_ids": torch.arange(8) + row % 2, "labels": torch.tensor(row % 2)}


def arguments(folder, **options):
    quiet = {"report_to": [], "disable_tqdm": True, "logging_steps": 4}
    return TrainingArguments(folder, per_device_train_batch_size=BATCH, learning_rate=1e-2, **quiet, **options)


def small_model():
    """Another one on each rank."""
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(hvd.rank())
    return BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=32, **size))


def case_trainer_trains_saves_and_resumes():
    begin()
    model = small_model()
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    given = arguments(folder, max_steps=8, save_steps=4)
    assert given.world_size == hvd.size() and given.device.type == "cpu"
    trainer = Trainer(model=model, args=given, train_dataset=Rows(), eval_dataset=Rows())
    trainer.train()
    print(type(trainer.model_wrapped), flush=True)
    expect_equal_on_all_ranks(model)
    assert trainer.state.global_step == 8 and trainer.state.epoch == 2.0  # half of the data for each rank
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] and trainer.evaluate()["eval_loss"] < losses[0], trainer.state.log_history
    hvd.barrier()
    assert sorted(os.listdir(folder)) == ["checkpoint-4", "checkpoint-8"]
    again = Trainer(model=model, args=arguments(folder, max_steps=12, save_strategy="no"), train_dataset=Rows())
    again.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-8"))
    assert again.state.global_step == 12
    expect_equal_on_all_ranks(model)
    hvd.barrier()
    if hvd.rank() == 0:
        __import__("shutil").rmtree(folder)


def case_trainer_evaluates_before_it_trains():
    """By `evaluate()` before `train()` Accelerate would leave DDP out (docs/pytorch.md)."""
    begin()
    model = small_model()
    with tempfile.TemporaryDirectory() as folder:
        given = arguments(folder, max_steps=2, save_strategy="no", eval_strategy="no", eval_on_start=True)
        trainer = Trainer(model=model, args=given, train_dataset=Rows(), eval_dataset=Rows())
        trainer.train()
    assert [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry] == [0]
    expect_equal_on_all_ranks(model)


def case_variables_are_as_before_when_the_group_is_destroyed():
    assert os.environ["WORLD_SIZE"] == str(hvd.size())
    dist.destroy_process_group()
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "ACCELERATE_USE_CPU"} & os.environ.keys()


torch.set_num_threads(1)
run_cases(globals(), hvd, process_sets="dynamic")

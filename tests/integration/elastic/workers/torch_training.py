"""A training with PyTorch whose middle rank is killed once, in the second epoch; every rank says what it holds at the
end, and rank 0 which samples of which epoch were committed."""

import hashlib
import os
import signal
from pathlib import Path

import torch
from jobs.report import VARIABLE, report

import horovod.torch as hvd

EPOCHS, SAMPLES, BATCH = 3, 240, 4

hvd.init()
torch.manual_seed(hvd.rank())  # unequal until they are synchronised
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
dataset = [(torch.full((8,), index / SAMPLES), torch.tensor([1.0]), index) for index in range(SAMPLES)]
sampler = hvd.elastic.ElasticSampler(dataset, shuffle=True)
loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, sampler=sampler)


def die_once(state):
    if state.epoch == 1 and state.batch == 5 and hvd.rank() == 1:
        try:
            Path(os.environ[VARIABLE], "killed").open("x").close()
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    report("epoch", rank=hvd.rank(), size=hvd.size(), epoch=state.epoch, batch=state.batch)
    while state.epoch < EPOCHS:
        for index, (inputs, targets, which) in enumerate(loader):
            die_once(state)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            state.batch += 1
            state.sampler.record_batch(index, len(which))
            state.done = state.done + hvd.allgather(which).tolist()
            state.commit()
        if hvd.rank() == 0:
            report("samples", epoch=state.epoch, samples=sorted(set(state.done)))
        state.done, state.batch = [], 0
        state.sampler.set_epoch(state.epoch + 1)
        state.epoch += 1
        state.commit()


train(hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0, done=[]))
held = [*model.state_dict().values(), *(s["momentum_buffer"] for s in optimizer.state_dict()["state"].values())]
digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in held)).hexdigest()
report("end", rank=hvd.rank(), hash=digest)

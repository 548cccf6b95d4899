"""Train on scikit-learn's handwritten digits while ranks die and come (pip install scikit-learn).

    horovodrun -np 2 --min-np 1 python examples/elastic/pytorch_digits.py

Kill a rank meanwhile, whichever you like: the others go on from the last commit, and another one takes its place.
"""

import argparse
import hashlib
import json

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd


def load_data(test_count=360):
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
    return TensorDataset(images[test_count:], labels[test_count:]), (images[:test_count], labels[:test_count])


def make_model():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(16 * 4 * 4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10),
    )  # fmt: skip


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        share = (model(images).argmax(1) == labels).double().mean().item()
    model.train()
    return share


def hash_of(model):
    return hashlib.sha256(b"".join(each.detach().cpu().numpy().tobytes() for each in model.parameters())).hexdigest()


@hvd.elastic.run
def train(state, loader, test, device, args):
    while state.epoch < args.epochs:
        for images, labels in loader:
            state.optimizer.zero_grad()
            loss = F.cross_entropy(state.model(images.to(device)), labels.to(device))
            loss.backward()
            state.optimizer.step()
            state.sampler.record_batch(state.batch, len(labels))
            state.batch += 1
            if state.batch % args.batches_per_commit == 0:
                state.commit()
        state.epoch, state.batch = state.epoch + 1, 0
        state.sampler.set_epoch(state.epoch)  # for the next one: a failure does not begin this one again
        state.commit()
        if hvd.rank() == 0:
            share = accuracy(state.model, *test)
            print(f"epoch {state.epoch}  {hvd.size()} rank(s)  accuracy {share:.2%}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--lr", type=float, default=0.01, help="for one rank")
    parser.add_argument("--batches-per-commit", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data, of each rank")
    args = parser.parse_args()
    hvd.init()
    # One GPU per process.
    device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(hvd.rank())  # different on purpose: the state makes the ranks equal
    data, test = load_data()
    test = [tensor.to(device) for tensor in test]
    sampler = hvd.elastic.ElasticSampler(data)
    more = {"num_workers": args.workers, "persistent_workers": args.workers > 0}
    loader = DataLoader(data, args.batch_size, sampler=sampler, **more)
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0)

    def scale_rate():
        for group in optimizer.param_groups:
            group["lr"] = args.lr * hvd.size()

    state.register_reset_callbacks([scale_rate])
    train(state, loader, test, device, args)
    equal = len(set(hvd.allgather_object(hash_of(model)))) == 1
    if hvd.rank() == 0:
        result = {"accuracy": accuracy(model, *test), "size": hvd.size(), "equal": equal}
        print("RESULT", json.dumps({**result, "lr": optimizer.param_groups[0]["lr"]}), flush=True)


if __name__ == "__main__":
    main()

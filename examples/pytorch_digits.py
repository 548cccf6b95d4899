"""Train a small CNN on scikit-learn's handwritten digits (pip install scikit-learn) with any number of ranks.

    python examples/pytorch_digits.py                     one process
    horovodrun -np 2 python examples/pytorch_digits.py    two, same global batch: same training but for rounding

Every global batch is split over the ranks. examples/demo.py compares both runs by the lines that --json adds.
"""

import argparse
import hashlib
import json
import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import horovod.torch as hvd


def load_data(test_share=5):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    test, train = order[: len(order) // test_share], order[len(order) // test_share :]
    return images[train], labels[train], images[test], labels[test]


def make_model():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(64 * 4 * 4, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10),
    )  # fmt: skip


def hash_of(model):
    return hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()


def own_batches(count, batch_size, epoch):
    """This rank's share of every global batch of the epoch. All ranks shuffle alike; batches that do not divide are
    left out."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(epoch))
    for start in range(0, count - batch_size + 1, batch_size):
        yield order[start : start + batch_size][hvd.rank() :: hvd.size()]


def train_epoch(model, optimizer, images, labels, batch_size, epoch):
    seen, loss_sum, steps = [], 0.0, 0
    for batch in own_batches(len(labels), batch_size, epoch):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        seen.extend(batch.tolist())
        loss_sum, steps = loss_sum + loss.item(), steps + 1
    return seen, loss_sum / steps


def report(epoch, loss, accuracy, hashes, shards, seconds, for_programs):
    sizes = [len(shard) for shard in shards]
    overlap, speed = sum(sizes) - len(set().union(*shards)), sum(sizes) / seconds
    equal = "equal" if len(set(hashes)) == 1 else "DIFFERENT"
    print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.2%}  {speed:6.0f} images/s", end="  ")
    print(f"parameters {hashes[0][:12]} {equal} on {len(hashes)} rank(s)  shards {sizes}, in common: {overlap}")
    if for_programs:
        result = {"epoch": epoch, "loss": loss, "accuracy": accuracy, "images_per_s": speed}
        print("RESULT", json.dumps({**result, "hashes": hashes, "overlap": overlap}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--json", action="store_true", help="print every epoch's figures for programs, too")
    args = parser.parse_args()
    hvd.init()
    # One GPU per process.
    device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(hvd.rank())  # different on purpose: the broadcast below makes the ranks equal
    images, labels, test_images, test_labels = (tensor.to(device) for tensor in load_data())
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(args.epochs):
        start = time.perf_counter()
        seen, loss = train_epoch(model, optimizer, images, labels, args.batch_size, epoch)
        seconds = time.perf_counter() - start
        loss = hvd.allreduce(torch.tensor(loss, dtype=torch.float64), name="loss").item()
        with torch.no_grad():
            accuracy = (model(test_images).argmax(1) == test_labels).double().mean().item()
        hashes, shards = hvd.allgather_object(hash_of(model)), hvd.allgather_object(seen)
        if hvd.rank() == 0:
            report(epoch, loss, accuracy, hashes, shards, seconds, args.json)


if __name__ == "__main__":
    main()

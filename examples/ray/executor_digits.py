"""Train a small network on scikit-learn's handwritten digits on the workers of a Ray cluster.

pip install "ray[client]" torch scikit-learn
python examples/ray/executor_digits.py --workers 2
"""

import argparse

import ray

from horovod.ray import RayExecutor, ray_logger


class Trainer:
    """What each worker has: its share of the data, and the network."""

    def __init__(self, learning_rate):
        import torch
        from sklearn.datasets import load_digits

        import horovod.torch as hvd

        hvd.init()
        if torch.cuda.is_available():
            torch.cuda.set_device(hvd.local_rank())
        torch.manual_seed(1)
        digits = load_digits()
        self.images = torch.tensor(digits.data, dtype=torch.float32)[hvd.rank() :: hvd.size()] / 16
        self.labels = torch.tensor(digits.target)[hvd.rank() :: hvd.size()]
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=learning_rate)
        self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters())

    def train(self, epochs):
        import torch

        import horovod.torch as hvd

        for epoch in range(epochs):
            order = torch.randperm(len(self.labels) // 32 * 32).split(32)
            for batch in order[: 1797 // hvd.size() // 32]:  # the same number on all
                self.optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self.model(self.images[batch]), self.labels[batch])
                loss.backward()
                self.optimizer.step()
            right = (self.model(self.images).argmax(1) == self.labels).float().mean()
            ray_logger.log({"epoch": epoch, "accuracy": round(hvd.allreduce(right).item(), 3)})
        return hvd.allreduce(right).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--address", default=None, help="of a cluster; default: one that Ray finds, or starts here")
    args = parser.parse_args()
    ray.init(address=args.address)
    executor = RayExecutor(RayExecutor.create_settings(), num_workers=args.workers)
    executor.start(Trainer, executable_args=[3e-3])
    accuracies = executor.execute(lambda trainer: trainer.train(args.epochs), callbacks=[print])
    print(f"accuracy {accuracies[0]:.3f} on {len(accuracies)} workers")
    executor.shutdown()


if __name__ == "__main__":
    main()

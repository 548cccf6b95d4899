"""Train a small network on scikit-learn's handwritten digits on a Ray cluster whose nodes may come and go.

pip install "ray[client]" torch scikit-learn
python examples/ray/elastic_digits.py --min-workers 1
"""

import argparse

import ray

from horovod.ray import RayExecutor, ray_logger


def train(epochs, learning_rate):
    import torch
    from sklearn.datasets import load_digits

    import horovod.torch as hvd

    hvd.init()
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, epoch=0, batch=0)

    @hvd.elastic.run
    def loop(state):
        while state.epoch < epochs:
            order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(state.epoch))
            own = order[hvd.rank() :: hvd.size()]
            while state.batch < len(labels) // hvd.size() // 32:  # the same number on all
                batch = own[state.batch * 32 : state.batch * 32 + 32]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimizer.step()
                state.batch += 1
                if state.batch % 10 == 0:
                    state.commit()  # what a loss of ranks goes back to, and where new ones come in
            state.epoch, state.batch = state.epoch + 1, 0
            right = (model(images).argmax(1) == labels).float().mean().item()
            ray_logger.log({"epoch": state.epoch, "ranks": hvd.size(), "accuracy": round(right, 3)})
            state.commit()
        return (model(images).argmax(1) == labels).float().mean().item()

    return loop(state)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--min-workers", type=int, default=1)
    parser.add_argument("--max-workers", type=int, default=None)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--address", default=None, help="of a cluster; default: one that Ray finds, or starts here")
    args = parser.parse_args()
    ray.init(address=args.address)
    executor = RayExecutor(RayExecutor.create_settings(), min_workers=args.min_workers, max_workers=args.max_workers)
    executor.start()
    accuracies = executor.run(train, args=[args.epochs, 3e-3], callbacks=[print])
    print(f"accuracy {accuracies[0]:.3f} on {len(accuracies)} workers")
    executor.shutdown()


if __name__ == "__main__":
    main()

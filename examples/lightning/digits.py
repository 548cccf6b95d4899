"""Train a small CNN on scikit-learn's handwritten digits with Lightning (pip install lightning scikit-learn).

    python examples/lightning/digits.py                     one process
    horovodrun -np 2 python examples/lightning/digits.py    two ranks, each on half of the data

The learning rate is not multiplied by the number of ranks: here each rank's batch is its share of one global batch.
"""

import argparse

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

import horovod.lightning  # noqa: F401 - makes strategy="horovod" known
import horovod.torch as hvd


class Digits(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Flatten(), torch.nn.Linear(32 * 4 * 4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10),
        )  # fmt: skip

    def training_step(self, batch, number):
        images, labels = batch
        loss = F.cross_entropy(self.layers(images), labels)
        self.log("loss", loss, on_epoch=True, on_step=False, sync_dist=True)
        return loss

    def validation_step(self, batch, number):
        images, labels = batch
        right = (self.layers(images).argmax(dim=1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)  # the mean over all ranks

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 2e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)]


def loaders(batch_size):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    data = TensorDataset(images, torch.tensor(digits.target))
    train, test = random_split(data, (0.8, 0.2), torch.Generator().manual_seed(1))
    share = batch_size // hvd.size()
    return DataLoader(train, share, shuffle=True), DataLoader(test, share)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--checkpoints", help="folder for checkpoints; none are written without")
    options = parser.parse_args()

    pl.seed_everything(1)
    hvd.init()
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    trainer = pl.Trainer(
        strategy="horovod",
        devices=1,  # each rank has one
        max_epochs=options.epochs,
        gradient_clip_val=1.0,
        default_root_dir=options.checkpoints,
        enable_checkpointing=options.checkpoints is not None,
        enable_progress_bar=False,
        logger=False,
    )
    trainer.fit(Digits(), *loaders(options.batch_size))
    if trainer.is_global_zero:
        accuracy, loss = (float(trainer.callback_metrics[name]) for name in ("accuracy", "loss"))
        print(f"{trainer.world_size} ranks: {trainer.global_step} steps, loss {loss:.3f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()

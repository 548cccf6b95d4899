"""Tells good reviews from bad ones by the average of their words' embeddings, on any number of ranks.

The input folder has reviews.npz: "tokens", whole numbers of shape [reviews, words], 0 where a review has ended, and
"labels", 0 or 1 for each review.
"""

import argparse
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import horovod.tensorflow.keras as hvd


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input-data", type=Path, required=True)
    parser.add_argument("--trained-model", type=Path, required=True)
    parser.add_argument("--max-tokens", type=int, default=10000, help="words that are told apart")
    parser.add_argument("--sequence-length", type=int, default=260, help="words of a review that are read")
    parser.add_argument("--embedding-dimension", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="of one rank")
    return parser.parse_args()


def main():
    args = arguments()
    hvd.init()
    # One GPU per process.
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    with np.load(args.input_data / "reviews.npz") as reviews:
        tokens, labels = reviews["tokens"], reviews["labels"]
    tokens = np.where(tokens < args.max_tokens, tokens, 1)[:, : args.sequence_length]
    each = len(tokens) // hvd.size()  # as many for every rank
    mine = slice(hvd.rank() * each, (hvd.rank() + 1) * each)

    keras.utils.set_random_seed(1)
    model = keras.Sequential([
        keras.Input((tokens.shape[1],)),
        keras.layers.Embedding(args.max_tokens, args.embedding_dimension),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1, activation="sigmoid"),
    ])  # fmt: skip
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(args.learning_rate * hvd.size()))
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    told = 2 if hvd.rank() == 0 else 0
    model.fit(tokens[mine], labels[mine], args.batch_size, epochs=args.epochs, callbacks=callbacks, verbose=told)
    loss, accuracy = model.evaluate(tokens, labels, verbose=0)
    if hvd.rank() == 0:
        args.trained_model.mkdir(parents=True, exist_ok=True)
        model.save(args.trained_model / "model.keras")
        print(f"RESULT ranks {hvd.size()} loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()

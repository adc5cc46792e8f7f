"""A training with Keras that logs its metrics: two epochs of four batches."""

import sys

import keras
import numpy

from openpaisdk.runtime import KerasCallback

if "--ranks" in sys.argv:
    import torch

    torch.distributed.init_process_group("gloo")
every_batches = 2 if "--batches" in sys.argv else 0
keras.utils.set_random_seed(1)
x = numpy.random.rand(16, 3)
y = x.sum(axis=1, keepdims=True)
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
model.fit(
    x,
    y,
    batch_size=4,
    epochs=2,
    validation_split=0.25,
    verbose=0,
    callbacks=[KerasCallback(every_batches=every_batches)],
)

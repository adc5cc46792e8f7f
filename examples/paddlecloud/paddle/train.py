"""Linear regression with PaddlePaddle: several trainers, which share the data and average their gradients.

The variables by which Paddle finds the trainers are set by the cluster.
"""

import os

import paddle
import paddle.distributed

PASSES = 100
EXAMPLES = 200


def examples(trainer, trainers):
    """This trainer's part of the data: y = 3 x + 2."""
    paddle.seed(0)
    x = paddle.uniform([EXAMPLES, 1], min=-1.0, max=1.0)[trainer::trainers]
    return x, 3 * x + 2


def add_gradients(model):
    """Add up the gradients of all trainers in each of them."""
    for parameter in model.parameters():
        paddle.distributed.all_reduce(parameter.grad)


def train():
    paddle.set_device("cpu")
    trainer, trainers = int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["TRAINERS"])
    if trainers > 1:
        # How trainers without GPUs exchange their gradients.
        os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")
        paddle.distributed.init_parallel_env()
    x, y = examples(trainer, trainers)
    model = paddle.nn.Linear(1, 1)
    optimizer = paddle.optimizer.SGD(learning_rate=0.3, parameters=model.parameters())
    for number in range(PASSES):
        loss = paddle.nn.functional.mse_loss(model(x), y)
        (loss / trainers).backward()
        if trainers > 1:
            add_gradients(model)
        optimizer.step()
        optimizer.clear_grad()
        if number % 25 == 0:
            print("pass", number, "loss", round(loss.item(), 6), flush=True)
    slope, offset = (value.item() for value in (model.weight, model.bias))
    print("trainer %d of %d: y = %.2f x + %.2f" % (trainer, trainers, slope, offset), flush=True)
    if trainer == 0:
        os.makedirs("output", exist_ok=True)
        paddle.save(model.state_dict(), "output/linear.pdparams")


train()

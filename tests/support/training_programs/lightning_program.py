"""A training with Lightning that logs its metrics: two epochs of four batches, in so many processes."""

import sys

import torch
from lightning.pytorch import LightningModule, Trainer

from openpaisdk.runtime import LightningLogger


class Line(LightningModule):
    def __init__(self, rate: float):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(3, 1)

    def loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.log("val/loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.hparams.rate)


if __name__ == "__main__":
    processes = int(sys.argv[1])
    x = torch.rand(16 * processes, 3)
    batches = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4
    )
    trainer = Trainer(
        logger=LightningLogger(),
        accelerator="cpu",
        devices=processes,
        strategy="ddp_spawn" if processes > 1 else "auto",
        max_epochs=2,
        log_every_n_steps=2,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Line(0.1), batches, batches)

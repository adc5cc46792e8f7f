"""A training with Hugging Face's Trainer that logs its metrics: eight steps, two evaluations."""

import torch
from transformers import Trainer, TrainingArguments

from openpaisdk.runtime import TransformersCallback


class Line(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


def examples(count: int) -> list[dict[str, torch.Tensor]]:
    return [{"x": x, "labels": x.sum(0, keepdim=True)} for x in torch.rand(count, 3)]


trainer = Trainer(
    model=Line(),
    args=TrainingArguments(
        output_dir="trained",
        use_cpu=True,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        logging_steps=2,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    ),
    train_dataset=examples(16),
    eval_dataset=examples(4),
    callbacks=[TransformersCallback()],
)
trainer.train()
trainer.predict(examples(4))

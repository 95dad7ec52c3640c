"""Train BERT on text of different lengths: padding masks, a shifted vocabulary, adaptation.

The model is built from a configuration, and words are numbered by hand, so that nothing is
downloaded. With a tokenizer, give transformers.DataCollatorWithPadding as `collate_fn`.

pip install transformers; python examples/huggingface_text.py
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification

import unseen
from unseen.adaptation import fine_tune

torch.manual_seed(0)
random.seed(0)

OPINIONS = (["bad", "poor", "dull"], ["good", "great", "fine"])
TOPICS = {"books": ["plot", "page", "hero", "prose"], "kitchen": ["pan", "oven", "knife", "lid"]}
WORDS = ["[PAD]", *(word for part in (*OPINIONS, *TOPICS.values()) for word in part)]
NUMBER = {word: i for i, word in enumerate(WORDS)}


def reviews(n: int, topic: str) -> list[dict[str, Any]]:
    """Return short reviews: words of the topic around one of opinion."""
    rows = []
    for _ in range(n):
        label = random.randrange(2)
        words = random.choices(TOPICS[topic], k=random.randint(2, 6))
        words.insert(random.randrange(len(words)), random.choice(OPINIONS[label]))
        rows.append({"text": " ".join(words), "label": label})
    return rows


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Pad the texts of a batch, as the collators of transformers do."""
    ids = [torch.tensor([NUMBER[word] for word in row["text"].split()]) for row in rows]
    padded = pad_sequence(ids, batch_first=True)
    return {
        "input_ids": padded,
        "attention_mask": (padded != 0).long(),
        "labels": torch.tensor([row["label"] for row in rows]),
        "text": [row["text"] for row in rows],  # no input: text is left out
    }


config = BertConfig(
    vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=32, max_position_embeddings=16, num_labels=2, initializer_range=0.2,
)  # fmt: skip
# Noise enters the word embeddings. The padding mask has the size of the batch, so the inputs are
# folded for the draws of noise.
net = unseen.UncertaintyGuided(BertForSequenceClassification(config), lr=3e-3, draws=2, warmup=40)
loader = DataLoader(reviews(256, "books"), batch_size=32, shuffle=True, collate_fn=collate)
held_out = DataLoader(reviews(200, "books"), batch_size=50, collate_fn=collate)
unseen.fit(net, loader, steps=50, held_out=held_out, progress=False)

for topic in TOPICS:
    batch = collate(reviews(100, topic))
    accuracy = (net.predict(batch).argmax(1) == batch["labels"]).float().mean()
    alarm = ", ALARM" if net.alarm(batch) else ""
    print(f"{topic}: accuracy {accuracy:.2f}, score {net.domain_score(batch):.3f}{alarm}")

few = collate(reviews(20, "kitchen"))
adapted = fine_tune(net, few, few["labels"], steps=30, lr=1e-3)  # a copy of the model
out = adapted(batch["input_ids"], attention_mask=batch["attention_mask"])
accuracy = (out.logits.argmax(1) == batch["labels"]).float().mean()
print(f"kitchen, after 20 labels: accuracy {accuracy:.2f}")

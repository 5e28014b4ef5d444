# %% [markdown]
# # A Hugging Face model
#
# A calibrated Hugging Face model is used like the model it wraps: in a `pipeline`, in the `Trainer`, with
# `save_pretrained` and `from_pretrained`. This requires `pip install "densecal[hf]"`.
#
# This page downloads nothing. The texts are sentences from the documentation of three Python packages, and the
# classifier predicts which package a sentence is from. It is a BERT that is small enough to train in seconds. In your
# own script, replace this cell with `from_pretrained`.

# %%
import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    logging,
    pipeline,
)

from densecal.shift import token_domains
from densecal.torch import CalibratedModel, calibrate

logging.set_verbosity_error()
logging.disable_progress_bar()
MODULES = {"numpy": ["numpy", "numpy.linalg"], "pandas": ["pandas"], "scikit-learn": ["sklearn.linear_model",
           "sklearn.metrics", "sklearn.ensemble", "sklearn.cluster", "sklearn.preprocessing"]}  # fmt: skip


def sentences(module):
    documents = {inspect.getdoc(value) or "" for _, value in inspect.getmembers(importlib.import_module(module))}
    prose = [re.sub(r"\s+", " ", part) for text in sorted(documents) for part in re.split(r"\.\s|\n\n", text)]
    # The name of the package would give the answer away.
    prose = [re.sub(r"\b(np|numpy|pd|pandas|sklearn|scikit)\b", "", one) for one in prose if ">>>" not in one]
    return [one for one in dict.fromkeys(prose) if 6 <= len(one.split()) <= 40]


drawn = np.random.default_rng(0)
rows = []
for label, modules in enumerate(MODULES.values()):
    found = [one for module in modules for one in sentences(module)]
    rows += [(text, label) for text in drawn.permutation(found)[:800]]
rows = [rows[place] for place in drawn.permutation(len(rows))]
train, val, test = rows[:1000], rows[1000:1900], rows[1900:]

words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
words.normalizer, words.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
vocabulary = trainers.WordLevelTrainer(vocab_size=2000, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
words.train_from_iterator([text for text, _ in train], vocabulary)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64)
torch.manual_seed(0)
classifier = BertForSequenceClassification(BertConfig(
    vocab_size=2000, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
    max_position_embeddings=64, id2label=dict(enumerate(MODULES)), label2id={name: i for i, name in enumerate(MODULES)},
))  # fmt: skip


def encode(rows):
    return [{**tokenizer(text, truncation=True), "labels": label} for text, label in rows]


def accuracy(prediction):
    return {"accuracy": np.mean(prediction.predictions.argmax(axis=-1) == prediction.label_ids)}


arguments = TrainingArguments(
    "out", num_train_epochs=8, per_device_train_batch_size=32, per_device_eval_batch_size=128, learning_rate=3e-3,
    report_to=[], logging_strategy="no", save_strategy="no", disable_tqdm=True, use_cpu=True,
)  # fmt: skip
trainer = Trainer(
    classifier, arguments, train_dataset=encode(train), eval_dataset=encode(test), processing_class=tokenizer,
    compute_metrics=accuracy,
)  # fmt: skip
trainer.remove_callback(PrinterCallback)
trainer.train()
before = trainer.evaluate()
print({name: round(before[name], 3) for name in ("eval_accuracy", "eval_loss")})

# %% [markdown]
# ## Calibrate
#
# `calibrate` needs a loader of the training data and a loader of labelled data that the model was not trained on. A
# batch is the output of a collator: a `BatchEncoding` or a dict with `labels`. Padding is ignored.

# %%
collate = DataCollatorWithPadding(tokenizer)
train_loader = DataLoader(encode(train), batch_size=128, collate_fn=collate)
val_loader = DataLoader(encode(val), batch_size=128, collate_fn=collate)
test_loader = DataLoader(encode(test), batch_size=128, collate_fn=collate)

model = calibrate(classifier, train_loader, val_loader, progress=False)
print(model.choices["method"], "measures", model.choices["measured"])

# %% [markdown]
# After any further training of the classifier, calibrate it again.
#
# ## Use the calibrated model
#
# `forward` returns the same `ModelOutput` as the classifier. Its `logits` are the logarithms of the calibrated
# probabilities, so their softmax is the calibrated probabilities, which are also in `output.probabilities`.

# %%
batch = tokenizer(["Compute the eigenvalues of a matrix", "Fit the estimator"], padding=True, return_tensors="pt")
with torch.inference_mode():
    output = model(**batch)
print(type(output).__name__, output.probabilities.round(decimals=3).tolist())
print(model.config.id2label, model.device)

# %%
classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
for text in ("Compute the eigenvalues of a matrix", "Return the rows of a DataFrame", "What a lovely day"):
    (calibrated,) = classify(text)
    (plain,) = pipeline("text-classification", model=classifier, tokenizer=tokenizer)(text)
    print(f"{text:36} {calibrated['label']:>12}  {plain['score']:.3f} -> {calibrated['score']:.3f}")

# %% [markdown]
# In the `Trainer`, `evaluate` and `predict` work. The loss is the negative log-likelihood of the calibrated
# probabilities. To continue training, train the classifier itself. `Trainer.save_model` only writes a state dict; use
# `save_pretrained`, as below.

# %%
evaluator = Trainer(model, arguments, eval_dataset=encode(test), processing_class=tokenizer, compute_metrics=accuracy)
evaluator.remove_callback(PrinterCallback)
after = evaluator.evaluate()
for name in ("eval_accuracy", "eval_loss"):
    print(f"{name:>14}: {before[name]:.3f} -> {after[name]:.3f}")

# %% [markdown]
# ## Accuracy without labels
#
# To [estimate the accuracy](is-my-model-still-right.md) on new texts, the fit needs labelled texts under shift. For
# images, `calibrate` makes them; for texts, pass your own, such as texts from another source or year, or perturbed
# copies of the validation texts: `token_domains` drops and replaces tokens, and masks them if you pass
# `mask_id=tokenizer.mask_token_id`. If the tokenizer adds tokens such as `[CLS]`, pass
# `special_ids=tokenizer.all_special_ids`.

# %%
pad = tokenizer.pad_token_id
tokens = tokenizer([text for text, _ in val], padding=True, truncation=True, return_tensors="np")["input_ids"]


def token_loader(tokens):
    samples = [
        {"input_ids": row, "attention_mask": (row != pad).long(), "labels": label}
        for row, (_, label) in zip(torch.tensor(tokens), val, strict=True)
    ]
    return DataLoader(samples, batch_size=128)


shifted = {name: token_loader(copy) for name, copy in token_domains(tokens, pad_id=pad).items()}
print(*shifted)
estimator = calibrate(classifier, train_loader, val_loader, shifted=shifted, progress=False)


def misspell(text):
    """Remove one letter of every word that has more than three."""
    return " ".join(re.sub(r"^(\w)\w(\w\w+)$", r"\1\2", word) for word in text.split())


print(misspell(test[0][0]))
misspelt = [(misspell(text), label) for text, label in test]
for name, texts in (("like the validation texts", test), ("misspelt", misspelt)):
    loader = DataLoader(encode(texts), batch_size=128, collate_fn=collate)
    with torch.inference_mode():
        right = [(classifier(**batch).logits.argmax(1) == batch["labels"]).float() for batch in loader]
    print(f"{name}: {estimator.estimate_accuracy(loader)}; the truth is {torch.cat(right).mean():.1%}")

# %% [markdown]
# ## Report, save, share
#
# `report` evaluates the model on one loader or on several named ones and writes [a report](reading-a-report.md).
# `save_pretrained` writes the classifier to the folder `classifier`, and next to it `calibration.densecal` and a model
# card. With `evaluation=`, the card includes the calibration metrics.

# %%
Path("calibrated-bert").mkdir()
evaluation = model.report({"test": test_loader}, "calibrated-bert/report.html")
model.save_pretrained("calibrated-bert", evaluation=evaluation)
tokenizer.save_pretrained("calibrated-bert")
card = Path("calibrated-bert/README.md").read_text(encoding="utf-8")
print("\n".join(line for line in card.splitlines() if line.startswith("|")))

# %%
loaded = CalibratedModel.from_pretrained("calibrated-bert")
with torch.inference_mode():
    print("largest difference", f"{(loaded(**batch).probabilities - output.probabilities).abs().max():.0e}")

# %% [markdown]
# In a process that has imported `densecal.integrations.huggingface`, the functions of transformers also load the
# calibrated model from this folder. Otherwise they raise an error that asks for `trust_remote_code=True`, which runs
# this import. The uncalibrated classifier is in `calibrated-bert/classifier`, so it is not loaded by accident.

# %%
import densecal.integrations.huggingface  # noqa: E402, F401

(answer,) = pipeline("text-classification", model="calibrated-bert")("Compute the eigenvalues of a matrix")
print(answer["label"], f"{answer['score']:.3f}")

# %% [markdown]
# `model.push_to_hub("you/calibrated-bert")` uploads the same files, and `from_pretrained` reads them from the Hub.
#
# - Merge adapters before you calibrate: `peft_model.merge_and_unload()`.
# - A model with one logit (`num_labels=1`, trained as a binary classifier) returns one calibrated logit, whose sigmoid
#   is the probability of class 1; `output.probabilities` contains both classes.
# - `export_onnx(model, batch, "model.onnx")` writes [one ONNX graph](serving-with-onnx.md) from token ids to calibrated
#   probabilities.
#
# **Next:** [log the model to MLflow](lightning-and-mlflow.md#log-it-to-mlflow).

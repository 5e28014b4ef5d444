"""A small transformer that is trained here on real sentences, and calibrated: which library's manual is this from?"""

from __future__ import annotations

import importlib
import inspect
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'densecal[hf]'")

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers  # noqa: E402

from densecal.torch import CalibratedModel, calibrate  # noqa: E402

LIBRARIES = ("numpy", "sklearn.linear_model", "pandas")
SENTENCES = 320
"""Of each library: half of them to train on, a quarter to calibrate and a quarter to test."""


def read_sentences(library):
    """Return sentences of the docstrings of a library, in an order that does not depend on the run."""
    module = importlib.import_module(library)
    texts = (inspect.getdoc(getattr(module, name)) for name in sorted(dir(module)) if not name.startswith("_"))
    found = {one for text in texts for one in re.findall(r"[A-Z][a-z][^.>]{25,150}\.", " ".join((text or "").split()))}
    return [sorted(found)[place] for place in np.random.default_rng(0).permutation(len(found))[:SENTENCES]]


@pytest.fixture(scope="module")
def sets():
    """Sentences and labels to train on, to calibrate and to test, and a tokenizer of the first."""
    by_library = [read_sentences(library) for library in LIBRARIES]
    parts = [slice(0, SENTENCES // 2), slice(SENTENCES // 2, 3 * SENTENCES // 4), slice(3 * SENTENCES // 4, None)]
    train, val, test = (
        [(text, label) for label, texts in enumerate(by_library) for text in texts[part]] for part in parts
    )
    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(vocab_size=600, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    words.train_from_iterator([text for text, _ in train], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    return tokenizer, train, val, test


@pytest.fixture(scope="module")
def rows(sets):
    tokenizer, *parts = sets
    return [[{**tokenizer(text, truncation=True, max_length=32), "labels": y} for text, y in part] for part in parts]


@pytest.fixture(scope="module")
def loaders(sets, rows):
    collate = transformers.DataCollatorWithPadding(sets[0])
    return [torch.utils.data.DataLoader(part, batch_size=32, collate_fn=collate) for part in rows]


@pytest.fixture(scope="module")
def model(sets, rows, loaders):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=600, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=128, initializer_range=0.1, hidden_dropout_prob=0.0,
        id2label=dict(enumerate(LIBRARIES)), label2id={name: number for number, name in enumerate(LIBRARIES)},
    )  # fmt: skip
    classifier = transformers.BertForSequenceClassification(config)
    optimiser = torch.optim.AdamW(classifier.parameters(), lr=3e-3)
    batches = torch.utils.data.DataLoader(
        rows[0],
        batch_size=32,
        shuffle=True,
        collate_fn=transformers.DataCollatorWithPadding(sets[0]),
        generator=torch.Generator().manual_seed(0),
    )
    for _ in range(6):
        for batch in batches:
            optimiser.zero_grad()
            classifier(**batch).loss.backward()
            optimiser.step()
    return calibrate(classifier.eval(), *loaders[:2], progress=False)


def test_the_calibrated_model_knows_how_often_it_is_right_on_sentences_it_never_saw(model, loaders, tmp_path):
    with torch.inference_mode():
        batches = [(model(**batch), model.classifier(**batch), batch["labels"]) for batch in loaders[2]]
    labels = torch.cat([labels for *_, labels in batches])
    calibrated = torch.cat([output.logits for output, *_ in batches])
    plain = torch.cat([output.logits for _, output, _ in batches])
    accuracy = (calibrated.argmax(1) == labels).float().mean().item()
    assert accuracy > 0.5, "the classifier must have learned something"
    loss = torch.nn.functional.cross_entropy
    assert loss(calibrated, labels) < loss(plain, labels)
    confidence = calibrated.exp().amax(1).mean().item()
    assert abs(confidence - accuracy) < abs(plain.softmax(1).amax(1).mean().item() - accuracy)
    model.save_pretrained(tmp_path)
    again = CalibratedModel.from_pretrained(tmp_path)
    with torch.inference_mode():
        first = next(iter(loaders[2]))
        torch.testing.assert_close(again(**first).logits, model(**first).logits, atol=1e-3, rtol=1e-3)


def test_it_answers_in_a_pipeline_and_in_the_trainer(model, sets, rows, tmp_path):
    tokenizer, _, _, test = sets
    texts = [text for text, _ in test[:8]]
    with torch.inference_mode():
        expected = [float(model(**tokenizer(text, return_tensors="pt")).probabilities.amax()) for text in texts]
    answers = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")(texts)
    assert [answer["label"] in LIBRARIES for answer in answers] == [True] * 8
    np.testing.assert_allclose([answer["score"] for answer in answers], expected, atol=1e-4)
    options = transformers.TrainingArguments(tmp_path, report_to="none", use_cpu=True, disable_tqdm=True)
    trainer = transformers.Trainer(model, options, processing_class=tokenizer)
    assert np.isfinite(trainer.evaluate(rows[2])["eval_loss"])

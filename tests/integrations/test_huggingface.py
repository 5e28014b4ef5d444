"""Calibrated Hugging Face models where such a model is expected: called, in pipelines, the Trainer and on the Hub."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'densecal[hf]'")

from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

from densecal.errors import ArtefactError  # noqa: E402
from densecal.torch import CalibratedModel, calibrate, export_onnx  # noqa: E402

WORDS = ("good", "great", "bad", "awful", "film", "plot", "the", "a")
TEXTS = ["good great film", "bad", "the plot bad awful"]


@pytest.fixture(scope="module")
def tokenizer():
    vocabulary = {word: number for number, word in enumerate(("[PAD]", "[UNK]", *WORDS))}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")


def make_classifier(num_labels=2, **options):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS) + 2, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, initializer_range=0.5, num_labels=num_labels, **options,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).eval()


def make_rows(tokenizer, count, seed):
    """Texts whose label says whether most of their words are of the first four."""
    drawn = np.random.default_rng(seed)
    texts = [" ".join(drawn.choice(WORDS, drawn.integers(2, 8))) for _ in range(count)]
    return [{**tokenizer(text), "labels": int(drawn.integers(2))} for text in texts]


def make_loader(tokenizer, rows):
    return torch.utils.data.DataLoader(rows, batch_size=32, collate_fn=transformers.DataCollatorWithPadding(tokenizer))


@pytest.fixture(scope="module")
def rows(tokenizer):
    return make_rows(tokenizer, 96, seed=1)


@pytest.fixture(scope="module")
def model(tokenizer, rows):
    classifier = make_classifier(id2label={0: "negative", 1: "positive"}, label2id={"negative": 0, "positive": 1})
    train = make_loader(tokenizer, make_rows(tokenizer, 96, seed=0))
    return calibrate(classifier, train, make_loader(tokenizer, rows), progress=False)


@pytest.fixture
def encoding(tokenizer):
    return tokenizer(TEXTS, padding=True, return_tensors="pt")


def test_forward_returns_the_classifiers_output_with_calibrated_logits(model, encoding):
    labels = torch.tensor([0, 1, 1])
    with torch.inference_mode():
        output, plain = model(**encoding, labels=labels), model.classifier(**encoding)
        expected = model.details(**encoding).probabilities
        names = list(inspect.signature(model.forward).parameters)
        given = {**encoding, "labels": labels}
        by_position = model(*(given.get(name) for name in names[: names.index("labels") + 1]))
        loss, logits = model(**encoding, labels=labels, return_dict=False)
    assert type(output) is type(plain)
    torch.testing.assert_close(output.probabilities, expected)
    torch.testing.assert_close(output.logits, expected.log())
    torch.testing.assert_close(output.loss, -expected.log()[torch.arange(3), labels].mean())
    torch.testing.assert_close(by_position.loss, output.loss)
    torch.testing.assert_close((loss, logits), (output.loss, output.logits))
    torch.testing.assert_close(model.predict_proba(**encoding), expected)


def test_a_classifier_trained_further_is_not_saved(model, tmp_path):
    trained = copy.deepcopy(model)
    with torch.no_grad():
        trained.classifier.classifier.weight.add_(0.1)
    with pytest.raises(ArtefactError, match="The classifier has changed since it was calibrated"):
        trained.save_pretrained(tmp_path / "folder")
    assert not list((tmp_path / "folder").glob("*"))
    trained.save_pretrained(tmp_path / "folder", check_classifier=False)
    assert CalibratedModel.from_pretrained(tmp_path / "folder").layers == model.layers


def test_what_else_the_output_has_stays(model, encoding):
    # transformers installs hooks that cannot be pickled.
    output = copy.deepcopy(model)(**encoding, output_hidden_states=True)
    assert len(output.hidden_states) == 3


def test_it_answers_for_the_classifier(model):
    assert model.config is model.classifier.config
    assert model.device == model.classifier.device
    assert model.num_parameters() == model.classifier.num_parameters()
    assert repr(model).startswith("CalibratedModel(")
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        _ = model.absent


def test_a_text_pipeline_gives_calibrated_scores(model, tokenizer, encoding, caplog):
    classify = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    answers = classify(TEXTS, top_k=None, batch_size=2)
    expected = model.predict_proba(**encoding).detach()
    for answer, probabilities in zip(answers, expected, strict=True):
        scores = {one["label"]: one["score"] for one in answer}
        np.testing.assert_allclose([scores["negative"], scores["positive"]], probabilities, atol=1e-5)
    assert "not supported" not in caplog.text


def test_an_image_pipeline_gives_calibrated_scores():
    from PIL import Image

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4,
        num_labels=3,
    )  # fmt: skip
    classifier = transformers.ViTForImageClassification(config).eval()
    processor = transformers.ViTImageProcessor(size={"height": 8, "width": 8})
    pixels = torch.rand(60, 3, 8, 8)
    batches = [{"pixel_values": pixels, "labels": torch.arange(60) % 3}]
    model = calibrate(classifier, None, batches, method="ts", progress=False)
    image = Image.new("RGB", (8, 8), "red")
    got = transformers.pipeline("image-classification", model=model, image_processor=processor)(image)
    expected = model.predict_proba(**processor(image, return_tensors="pt"))[0].detach()
    np.testing.assert_allclose([one["score"] for one in got], expected.sort(descending=True).values, atol=1e-5)


def test_the_trainer_evaluates_and_predicts(model, tokenizer, rows, tmp_path):
    pytest.importorskip("accelerate", reason="accelerate, which the Trainer needs, is not installed")
    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_eval_batch_size=32, report_to=[], disable_tqdm=True, use_cpu=True
    )

    def accuracy(predictions):
        return {"accuracy": np.mean(predictions.predictions.argmax(axis=-1) == predictions.label_ids)}

    trainer = transformers.Trainer(
        model, arguments, eval_dataset=rows, processing_class=tokenizer, compute_metrics=accuracy
    )
    table = model.evaluate(make_loader(tokenizer, rows))
    found = trainer.evaluate()
    method = table.methods[-1]
    assert found["eval_accuracy"] == pytest.approx(table.values[method, "accuracy"][0])
    assert found["eval_loss"] == pytest.approx(table.values[method, "nll"][0], rel=1e-4)
    assert trainer.predict(rows).predictions.shape == (len(rows), 2)


def test_save_pretrained_and_from_pretrained_give_the_same_model(model, tokenizer, rows, encoding, tmp_path):
    table = model.evaluate(make_loader(tokenizer, rows))
    (tmp_path / "README.md").write_text("# My model\n", encoding="utf-8")
    model.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path, evaluation=table)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# My model\n")
    assert card.count("## Calibration") == 1
    assert f"| {len(rows)} | {table.values[table.methods[-1], 'accuracy'][0]:.1%} |" in card
    loaded = CalibratedModel.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(**encoding).logits, model(**encoding).logits)


def forget_densecal(monkeypatch):
    """Make transformers behave as in a process that has not imported densecal."""
    monkeypatch.delitem(transformers.models.auto.configuration_auto.CONFIG_MAPPING._extra_content, "densecal")


def test_transformers_loads_the_folder_calibrated(model, tokenizer, encoding, tmp_path, monkeypatch):
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    expected = model(**encoding).probabilities.detach().numpy()

    def check(**options):
        loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, **options)
        np.testing.assert_allclose(loaded(**encoding).probabilities.detach(), expected, atol=1e-5)
        classify = transformers.pipeline("text-classification", model=str(tmp_path), **options)
        np.testing.assert_allclose([one["score"] for one in classify(TEXTS)], expected.max(axis=1), atol=1e-5)

    check()
    forget_densecal(monkeypatch)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    check(trust_remote_code=True)


def test_transformers_does_not_load_the_plain_classifier_in_silence(model, encoding, tmp_path, monkeypatch):
    model.save_pretrained(tmp_path)
    # mlflow.transformers names the class, too.
    with pytest.raises(OSError, match="no file named"):
        transformers.BertForSequenceClassification.from_pretrained(tmp_path)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier")
    torch.testing.assert_close(plain(**encoding).logits, model.classifier(**encoding).logits)
    (tmp_path / "calibration.densecal").unlink()
    with pytest.raises(ValueError, match=r"calibration\.densecal"):
        transformers.pipeline("text-classification", model=str(tmp_path))
    forget_densecal(monkeypatch)
    for auto in (transformers.AutoConfig, transformers.AutoModel, transformers.AutoModelForSequenceClassification):
        with pytest.raises(ValueError, match="trust_remote_code=True"):
            auto.from_pretrained(tmp_path, trust_remote_code=False)


def test_from_pretrained_refuses_other_weights_and_unknown_classes(model, tmp_path):
    model.save_pretrained(tmp_path)
    other = make_classifier(id2label={0: "negative", 1: "positive"})
    torch.nn.init.ones_(other.classifier.weight)
    other.save_pretrained(tmp_path / "classifier")
    with pytest.raises(ArtefactError, match="does not belong to this classifier"):
        CalibratedModel.from_pretrained(tmp_path)
    other.config.architectures = ["MyOwn"]
    other.config.save_pretrained(tmp_path / "classifier")
    with pytest.raises(ValueError, match="'MyOwn', which transformers does not have"):
        CalibratedModel.from_pretrained(tmp_path)


def test_from_pretrained_of_a_plain_model_says_how_to_calibrate_it(tmp_path):
    make_classifier().save_pretrained(tmp_path)
    with pytest.raises(OSError, match=r"No calibration\.densecal was found.*densecal\.torch\.calibrate"):
        CalibratedModel.from_pretrained(tmp_path)


def test_a_model_without_a_classification_head_is_refused(tokenizer, rows):
    base = make_classifier().bert
    with pytest.raises(TypeError, match=r"pooler_output.*without logits.*AutoModelForSequenceClassification"):
        calibrate(base, None, make_loader(tokenizer, rows), method="ts", progress=False)


def test_push_to_hub_uploads_weights_calibrator_and_card(model, monkeypatch):
    uploaded = {}

    class Hub:
        def __init__(self, token):
            self.token = token

        def create_repo(self, repo_id, private, exist_ok):
            return SimpleNamespace(repo_id=f"me/{repo_id}")

        def upload_folder(self, *, repo_id, folder_path, **options):
            uploaded[repo_id] = {path.name for path in Path(folder_path).iterdir()}
            return SimpleNamespace(commit_url="https://hub.example/commit/1")

    monkeypatch.setattr("densecal.integrations.huggingface.HfApi", Hub)
    assert model.push_to_hub("model") == "https://hub.example/commit/1"
    assert uploaded["me/model"] >= {"config.json", "classifier", "calibration.densecal", "README.md"}


def test_it_can_be_copied_and_pickled(model, encoding):
    expected = model(**encoding).logits
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(copied) is type(model)
        torch.testing.assert_close(copied(**encoding).logits, expected)


def test_one_logit_stays_one_logit(tokenizer, rows, encoding):
    model = calibrate(make_classifier(1), None, make_loader(tokenizer, rows), method="ts", progress=False)
    output = model(**encoding)
    assert output.logits.shape == (3, 1)
    torch.testing.assert_close(output.logits[:, 0].sigmoid(), output.probabilities[:, 1])


def test_it_exports_to_onnx(model, encoding, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    export_onnx(model, dict(encoding), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", "length"]
    given = {entry.name: encoding[entry.name].numpy() for entry in session.get_inputs()}
    np.testing.assert_allclose(session.run(None, given)[0], model.predict_proba(**encoding).detach(), atol=1e-4)

"""Hugging Face transformers: calibrated models for pipelines, the Trainer and the Hub, with their model cards.

Requires transformers: ``pip install "densecal[hf]"``. After an import of this module, transformers' ``pipeline`` and
``AutoModelFor...Classification`` load what ``save_pretrained`` wrote, calibrated. Without it they ask for
``trust_remote_code=True``, which runs the import, and do not load the classifier alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from densecal import __version__
from densecal.calibrators import UNCALIBRATED
from densecal.errors import require
from densecal.evaluation import EvaluationTable
from densecal.io.atomic_files import atomic_write
from densecal.torch.batches import positional_of
from densecal.torch.features.layout import raw_logits_of
from densecal.torch.model import CalibratedModel
from densecal.torch.wrappers import unwrapped

require("transformers", "hf", __name__)

import transformers  # noqa: E402
from huggingface_hub import HfApi  # noqa: E402
from transformers import AutoConfig, PretrainedConfig  # noqa: E402
from transformers.utils import ModelOutput, cached_file  # noqa: E402

ARTEFACT = "calibration.densecal"
"""The name of the calibrator's file."""
CLASSIFIER = "classifier"
"""The folder of the classifier. In the same folder as the calibrator, its own class would load it uncalibrated."""
CODE = "configuration_densecal"
"""The module that transformers imports with ``trust_remote_code=True``."""
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")
AUTO_CLASSES = tuple(f"AutoModelFor{kind}Classification" for kind in ("Sequence", "Image", "Audio", "Video"))
CARD_START, CARD_END = "<!-- densecal: start -->", "<!-- densecal: end -->"
CARD_HEADER = "---\nlibrary_name: transformers\ntags:\n- densecal\n- calibration\n---\n\n# {name}, calibrated\n\n"
USAGE = """```python
from densecal.torch import CalibratedModel

model = CalibratedModel.from_pretrained("path or repository")
```

`AutoModelFor...Classification.from_pretrained` and `pipeline` of transformers give the calibrated model, too, with
`trust_remote_code=True` or after `import densecal.integrations.huggingface`. All need `pip install "densecal[hf]"`."""


class CalibratedConfig(PretrainedConfig):  # type: ignore[misc]
    """The ``config.json`` of a calibrated model. Its type is not the classifier's, which transformers would load."""

    model_type = "densecal"


class CalibratedPreTrainedModel(CalibratedModel):
    """A calibrated model whose classifier is a ``transformers.PreTrainedModel``.

    :func:`~densecal.torch.calibrate` and ``CalibratedModel`` return it for such a classifier. It works in pipelines and
    in ``Trainer.evaluate`` and ``Trainer.predict``. Attributes that it lacks, such as ``config`` and ``device``, are
    those of the classifier. The calibration has no gradient: train the classifier first.

    ``forward`` returns the classifier's ``ModelOutput`` with calibrated ``logits``, the logarithms of the
    probabilities, whose softmax is the probabilities again. ``output.probabilities`` has shape (n_samples, n_classes),
    and the ``loss``, if labels are passed, is the negative log-likelihood of the calibrated probabilities. A classifier
    with one logit keeps one calibrated logit, whose sigmoid is the probability of class 1.

    Examples
    --------
    >>> import densecal
    >>> config = transformers.BertConfig(
    ...     vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    ... )
    >>> scaling = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> model = CalibratedModel(transformers.BertForSequenceClassification(config), scaling, layouts={})
    >>> isinstance(model, CalibratedPreTrainedModel), model.config.id2label
    (True, {0: 'LABEL_0', 1: 'LABEL_1'})
    >>> output = model(torch.tensor([[1, 2, 3]]))
    >>> torch.allclose(output.logits.softmax(dim=1), output.probabilities)
    True
    """

    config_class = CalibratedConfig

    def forward(self, *args: object, **kwargs: object) -> Any:
        """Return the classifier's output with calibrated logits, probabilities and, with labels, loss."""
        return_dict = kwargs.pop("return_dict", None)
        as_tuple = not (self.config.return_dict if return_dict is None else return_dict)
        output, probabilities = self._predict(args, {**kwargs, "return_dict": True} if as_tuple else kwargs)
        if not isinstance(output, ModelOutput):
            return probabilities
        logits = probabilities.clamp_min(torch.finfo(torch.float32).tiny).log()
        labels = {**dict(zip(positional_of(self.classifier), args, strict=False)), **kwargs}.get("labels")
        if isinstance(labels, Tensor) and output.get("loss") is not None:
            output["loss"] = nn.functional.nll_loss(logits, labels.flatten().long())
        has_one_logit = raw_logits_of(output).shape[1] == 1
        output["logits"] = logits[:, 1:] - logits[:, :1] if has_one_logit else logits
        # An attribute, not an item: the Trainer would take another item for a second prediction.
        output.probabilities = probabilities
        return output.to_tuple() if as_tuple else output

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "classifier" not in self.__dict__.get("_modules", {}):
                raise
            return getattr(unwrapped(self.classifier)[0], name)

    def _get_name(self) -> str:
        return CalibratedModel.__name__

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        evaluation: EvaluationTable | None = None,
        check_classifier: bool = True,
        **options: object,
    ) -> None:
        """Save the calibrator, a model card and, in the subfolder ``classifier``, the classifier.

        Parameters
        ----------
        save_directory : str or Path
            The folder, which ``CalibratedModel.from_pretrained`` reads.
        evaluation : EvaluationTable, optional
            The result of ``evaluate`` or ``report``, for the metrics in the model card.
        check_classifier : bool, default True
            As in ``CalibratedModel.save``.
        options
            Passed to the classifier's ``save_pretrained``.
        """
        if options.get("push_to_hub"):
            raise TypeError("save_pretrained does not upload: call push_to_hub(repo_id).")
        folder, classifier = Path(save_directory), unwrapped(self.classifier)[0]
        folder.mkdir(parents=True, exist_ok=True)
        # First, so that a classifier that has changed since its calibration is not written.
        self.save(folder / ARTEFACT, check_classifier=check_classifier)
        classifier.save_pretrained(folder / CLASSIFIER, **options)  # type: ignore[operator]
        _write_config(folder, self.config)
        _write_card(folder / "README.md", self, evaluation)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        evaluation: EvaluationTable | None = None,
        private: bool | None = None,
        token: str | None = None,
        revision: str | None = None,
        create_pr: bool = False,
        commit_message: str = "Upload calibrated model",
    ) -> str:
        """Upload what ``save_pretrained`` writes to a repository of the Hub; return the address of the commit.

        Parameters
        ----------
        repo_id : str
            The repository, such as ``"user/model"``; it is created if it does not exist.
        evaluation : EvaluationTable, optional
            As in ``save_pretrained``.
        private, token, revision, create_pr, commit_message : optional
            As in ``push_to_hub`` of transformers.
        """
        api = HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder, evaluation=evaluation)
            commit = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                revision=revision,
                create_pr=create_pr,
                commit_message=commit_message,
            )
        return str(commit.commit_url)


def _write_config(folder: Path, classifier_config: Any) -> None:
    """Write a ``config.json`` that transformers does not mistake for the classifier's, and the code that it names."""
    config = CalibratedConfig(
        architectures=[CalibratedPreTrainedModel.__name__],
        auto_map={"AutoConfig": f"{CODE}.{CalibratedConfig.__name__}"},
        id2label=classifier_config.id2label,
        label2id=classifier_config.label2id,
    )
    code = (
        '"""The model in this folder is calibrated: pip install densecal."""\n\n'
        f"from {__name__} import {CalibratedConfig.__name__}  # noqa: F401\n"
    )
    for name, text in (("config.json", config.to_json_string()), (f"{CODE}.py", code)):
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _write_card(path: Path, model: CalibratedModel, evaluation: EvaluationTable | None) -> None:
    """Write a model card, or only its section on calibration if there already is a card."""
    section = f"{CARD_START}\n{_card_section(model, evaluation)}\n{CARD_END}"
    if path.exists():
        text = path.read_text(encoding="utf-8")
        found = re.search(f"{re.escape(CARD_START)}.*?{re.escape(CARD_END)}", text, re.S)
        text = text[: found.start()] + section + text[found.end() :] if found else f"{text.rstrip()}\n\n{section}\n"
    else:
        text = CARD_HEADER.format(name=type(model).__name__) + section + "\n"
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _card_section(model: CalibratedModel, evaluation: EvaluationTable | None) -> str:
    settings = "\n".join(f"- {name}: {choice}" for name, choice in model.choices.items())
    about = f"The confidences are calibrated with densecal {__version__}: {model.calibrator.full_name}."
    figures = "The calibrated model was not evaluated." if evaluation is None else _card_figures(evaluation)
    return "\n\n".join(part for part in ("## Calibration", about, settings, figures, USAGE) if part)


def _card_figures(evaluation: EvaluationTable) -> str:
    """Return accuracy, ECE and negative log-likelihood of each test set, without and with calibration."""
    method = next(name for name in evaluation.methods if name != UNCALIBRATED)
    rows = ["| test set | samples | accuracy | ECE before | ECE | NLL before | NLL |", "|---|" + "---:|" * 6]
    for place, condition in enumerate(evaluation.conditions):
        value = {key: float(column[place]) for key, column in evaluation.values.items()}
        rows.append(
            f"| {condition} | {condition.n_samples:,} | {value[method, 'accuracy']:.1%} "
            f"| {value[UNCALIBRATED, 'ece']:.1%} | {value[method, 'ece']:.1%} "
            f"| {value[UNCALIBRATED, 'nll']:.3f} | {value[method, 'nll']:.3f} |"
        )
    return "\n".join(rows)


def from_pretrained(
    source: str | Path, *, check_classifier: bool = True, config: object = None, **options: Any
) -> CalibratedModel:
    """Load what ``save_pretrained`` wrote, from a folder or from the Hub; see ``CalibratedModel.from_pretrained``.

    ``config`` is that of the calibrated model, which the Auto classes of transformers pass; the classifier has its own.
    """
    hub_options = {name: options[name] for name in HUB_OPTIONS if name in options}
    try:
        path = str(cached_file(str(source), ARTEFACT, **hub_options))
    except OSError as error:
        raise OSError(
            f"No {ARTEFACT} was found: {error} This file is written by save_pretrained of a calibrated model. Load a "
            "plain model with its own class, and pass it to densecal.torch.calibrate."
        ) from error
    options["subfolder"] = "/".join(filter(None, (options.get("subfolder"), CLASSIFIER)))
    own_config = AutoConfig.from_pretrained(source, **{**hub_options, "subfolder": options["subfolder"]})
    architecture = next(iter(own_config.architectures or ()), "")
    classifier = getattr(transformers, architecture, None)
    if classifier is None:
        raise ValueError(
            f"{source} holds a classifier of the class {architecture!r}, which transformers does not have. Load it "
            "yourself, and then the calibrator: CalibratedModel.load("
            f"'{source}/{ARTEFACT}', {architecture}.from_pretrained('{source}/{CLASSIFIER}'))."
        )
    return CalibratedModel.load(path, classifier.from_pretrained(source, **options), check_classifier=check_classifier)


AutoConfig.register(CalibratedConfig.model_type, CalibratedConfig, exist_ok=True)
for _name in AUTO_CLASSES:
    getattr(transformers, _name).register(CalibratedConfig, CalibratedPreTrainedModel, exist_ok=True)

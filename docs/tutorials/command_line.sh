# %% [markdown]
# # The command line
#
# The command `densecal` needs no Python code. It reads the outputs of a classifier, one row per sample, from tables
# (`.csv`, `.tsv`, `.parquet`) and arrays (`.npz`, `.safetensors`, folders of `.npy` files). This page uses the data
# bundled with the package: the outputs of a ResNet18 on images of ten classes. The first cell also writes some of them
# as tables, as another program might.

# %%
python - << 'END'
import shutil
import pandas as pd
from densecal import Outputs
from scipy.special import softmax
from densecal.demo import DATA

shutil.copytree(DATA, "data")
classes = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
for name, file in (("answers-1", "val"), ("answers-2", "val"), ("today", "clean")):
    outputs = Outputs.load(f"data/{file}.safetensors")
    outputs = outputs[: len(outputs) // 2] if name == "answers-1" else outputs[len(outputs) // 2 :]
    table = pd.DataFrame(softmax(outputs.logits.astype(float), axis=1).round(4), columns=classes)
    table.insert(0, "photo", [f"{name}-{row:05}.png" for row in range(len(table))])
    if file == "val":
        table["truth"] = [classes[label] for label in outputs.labels]
    table.to_csv(f"{name}.csv", index=False)
END
ls data; head -3 answers-1.csv

# %% [markdown]
# ## A table of your own
#
# You do not have to rename columns: options describe their content. Here the scores are probabilities, the column
# `truth` contains the names of the true classes, and `photo` the sample ids. The remaining columns have the names of
# the classes, so they are the scores; otherwise list the scores, as in `--scores plane,car,bird`, or use a pattern such
# as `--scores 'p_*'`. To read several files, repeat `--val`, or pass a quoted pattern or a folder.

# %%
densecal fit --val 'answers-*.csv' --probabilities --labels truth --id photo --method ets -o answers.densecal

# %% [markdown]
# New data need no labels. Their columns may be in another order if they have the names of the classes; otherwise
# `--classes` gives the classes in the order of the scores. The result contains the sample ids and the class names. Its
# suffix determines the format: `.csv`, `.tsv`, `.parquet` or `.npz`.

# %%
densecal apply answers.densecal --data today.csv --probabilities --id photo -o calibrated.csv
head -3 calibrated.csv | cut -c 1-100

# %% [markdown]
# For two classes, a single score is enough: `--scores risk --classes healthy,ill`, where the score is that of the
# second class. `--delimiter ';' --decimal ','` reads files in the format that spreadsheets write in some countries. The
# calibrator file records when it was written, the version of densecal, the classes and the input files:

# %%
densecal inspect answers.densecal

# %% [markdown]
# ## Files with features
#
# Density-aware calibration also needs the outputs of the layers of the classifier. The arrays are named `logits`,
# `labels` and `features/LAYER`. `densecal extract` writes such files, and a table may have the columns
# `features/LAYER/0`, `features/LAYER/1`, ... Arrays with other names can be selected with the same options.

# %%
densecal inspect data/val.safetensors

# %% [markdown]
# ## Fit
#
# The features of the training set form the bank, and the calibrator is fitted on the validation set. This is the fit of
# the paper:

# %%
densecal fit --train data/train.safetensors --val data/val.safetensors --method dac+ets -o clean-fit.densecal

# %% [markdown]
# `--loss nll` or `--loss brier` sets the loss of `dac`, `ts` and `ets`. By default `dac` minimises the squared error,
# as in the paper, and the others minimise the negative log-likelihood. `--shifted` adds outputs of perturbed validation
# inputs, which keep DAC calibrated under shift. `densecal extract --perturb` writes them. Name your own files by
# [domain](../concepts.md#accuracy-without-labels): in `--shifted noise/weak=a.npz`, the part before `/` is the kind of
# shift.

# %%
densecal fit --train data/train.safetensors --val data/val.safetensors --method dac \
  --shifted data/perturbed.safetensors -o shift-fit.densecal

# %% [markdown]
# ## Evaluate
#
# `evaluate` takes any number of calibrators and test sets. With `--val` it also fits the same methods without DAC, for
# comparison. The severity of a test set is read from the metadata in its file, or from a name such as
# `rain-severity-3.npz` or, for densecal's corruptions, `fog-3.npz`. A line below the tables shows the severities that
# were read. With `--ignore-names`, only the metadata is used. A natural shift, such as photographs from another source,
# has no known severity: pass its files with `--natural`. Each of them then has its own row in every table.

# %%
densecal evaluate clean-fit.densecal shift-fit.densecal --val data/val.safetensors --resamples 100 \
  --data data/clean.safetensors --data data/shifted-3.safetensors --data data/shifted-5.safetensors

# %% [markdown]
# `--json` prints the same results as JSON ([the schema](../json.md)), and `--metric` selects the metrics:

# %%
densecal evaluate shift-fit.densecal --data data/clean.safetensors --resamples 0 --metric ece --json | head -24

# %% [markdown]
# ## Apply
#
# With features, the result also contains the temperature of each input.

# %%
densecal apply shift-fit.densecal --data data/shifted-5.safetensors -o probabilities.csv
head -3 probabilities.csv | cut -c 1-80

# %% [markdown]
# ## Report
#
# `report` writes one self-contained HTML page. [Reading a report](reading-a-report.md) explains it.

# %%
densecal report shift-fit.densecal --val data/val.safetensors --resamples 100 -o trust.html \
  --data data/clean.safetensors --data data/shifted-3.safetensors --data data/shifted-5.safetensors

# %% [markdown]
# ## Monitor
#
# `monitor` estimates the accuracy over time from files in chronological order, without labels. If the files have
# labels, the accuracy on them is shown next to the estimates. The exit code is 3 if there is an alarm. [Is my model
# still right?](is-my-model-still-right.md) explains the monitor.

# %%
densecal monitor shift-fit.densecal --alarm-below 0.8 -o days.html --data data/clean.safetensors \
  data/shifted-1.safetensors data/shifted-3.safetensors data/shifted-5.safetensors || echo "exit code $?"

# %% [markdown]
# ## Errors
#
# Mistakes that would give wrong numbers are errors: probabilities or percentages instead of logits
# (`--assume-logits` accepts them), the training set as validation set, the `--val` set as test set, or an option that
# is given twice. A test set that a calibrator was fitted on causes a warning. An error message says what to do;
# `--debug` adds the traceback. The exit code is 2 if the command line is wrong, and 1 if a file or its data cannot be
# used.

# %%
densecal fit --val data/val.safetensors --method dac+est -o never.densecal || echo "exit code $?"

# %% [markdown]
# ## Extract outputs from a PyTorch model
#
# `densecal extract` runs a model over a data set and writes its outputs. The model is a torchvision or timm model, or
# your own as `package.module:callable`. Pixels are normalised with the usual mean and standard deviation of the data
# set, which the command prints. If your model was trained with other values, pass `--mean` and `--std`. A torchvision
# or timm model requires `--weights` or `--pretrained` and must have as many classes as the data set. For images of
# other classes, use `--ood`.
#
# ```console
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --split val -o val.safetensors
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --split val --perturb -o perturbed.safetensors
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --corruption fog --severity 3 -o fog-3.safetensors
# ```
#
# ## All commands
#
# Every command has the option `--help`.

# %%
densecal --help

# %% [markdown]
# # From the command line
#
# No Python is needed. Commands read and write files of *outputs*: the logits, labels and layer features of one data
# set, as `.safetensors`, `.npz` or a folder of `.npy`, with arrays named `logits`, `labels` and `features/LAYER`. A
# `.csv` file with columns `logit0`, `logit1`, ... and `label` works too. The package contains some outputs to try:

# %%
python -c "from densecal.demo.data_sets import DATA; import shutil; shutil.copytree(DATA, 'data')"
ls data

# %% [markdown]
# ## Inspect a file

# %%
densecal inspect data/val.safetensors

# %% [markdown]
# ## Fit
#
# The features of the training set fill the bank; the calibrator is fitted on the validation set. This is the fit of
# the paper:

# %%
densecal fit --train data/train.safetensors --val data/val.safetensors --method dac+ets -o paper.densecal

# %% [markdown]
# The next one is fitted to stay calibrated under shift: `--shifted` names outputs of perturbed validation inputs, which
# `densecal extract --perturb` writes.

# %%
densecal fit --train data/train.safetensors --val data/val.safetensors --method dac \
  --shifted data/perturbed.safetensors -o shift.densecal

# %% [markdown]
# ## Evaluate
#
# `evaluate` takes any number of test sets. With `--val` it also fits the same methods without DAC, for comparison. The
# severity of the shift is read from the metadata in a file or, where there is none, from a name such as
# `rain-severity-3.npz` or, for the corruptions of densecal, `fog-3.npz`. A line below the tables says which severities
# were found; `NAME=PATH` gives a set another name, and `--ignore-names` reads metadata only.

# %%
densecal evaluate paper.densecal shift.densecal --val data/val.safetensors --resamples 100 \
  --data data/clean.safetensors --data data/shifted-3.safetensors --data data/shifted-5.safetensors

# %% [markdown]
# For programs there is `--json`:

# %%
densecal evaluate shift.densecal --data data/clean.safetensors --resamples 0 --metric ece --json | head -24

# %% [markdown]
# ## Apply
#
# New data need no labels. The result holds the probabilities, the confidence and the temperature of each input.

# %%
densecal apply shift.densecal --data data/shifted-5.safetensors -o probabilities.csv
head -3 probabilities.csv | cut -c 1-80

# %% [markdown]
# ## Report
#
# One self-contained page for readers who do not read code; see [how to read it](reading-a-report.md).

# %%
densecal report shift.densecal --val data/val.safetensors --resamples 100 -o trust.html \
  --data data/clean.safetensors --data data/shifted-3.safetensors --data data/shifted-5.safetensors

# %% [markdown]
# ## Errors
#
# An error is one line that says what is wrong and what to do; `--debug` adds the traceback. The exit code is 1 for data
# that cannot be used and 2 for wrong usage of the command.

# %%
densecal fit --val data/val.safetensors --method dac+est -o never.densecal || echo "exit code $?"

# %% [markdown]
# ## From a PyTorch model
#
# `densecal extract` runs a torchvision or timm model, or your own as `package.module:callable`, over a data set. Pixels
# are normalised with the usual constants of the data set, which the command prints; if your model was trained with
# others, set `--mean` and `--std`.
#
# ```console
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --split val -o val.safetensors
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --split val --perturb -o perturbed.safetensors
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --corruption fog --severity 3 -o fog-3.safetensors
# ```
#
# Every command has a help text:

# %%
densecal --help

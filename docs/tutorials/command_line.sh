# %% [markdown]
# # The command line
#
# The command `densecal` reads and writes files of *outputs*: logits, labels and layer features of one data set. They
# are `.safetensors` or `.npz` files or folders of `.npy` files, with arrays named `logits`, `labels` and
# `features/LAYER`. A `.csv` file with the columns `logit0`, `logit1`, ... and `label` works, too. This page uses the
# data inside the package.

# %%
python -c "from densecal.demo.data_sets import DATA; import shutil; shutil.copytree(DATA, 'data')"
ls data

# %% [markdown]
# ## Inspect

# %%
densecal inspect data/val.safetensors

# %% [markdown]
# ## Fit
#
# The features of the training set make the bank. The calibrator is fitted on the validation set. This is the fit of the
# paper:

# %%
densecal fit --train data/train.safetensors --val data/val.safetensors --method dac+ets -o clean-fit.densecal

# %% [markdown]
# `--loss nll` or `--loss brier` sets the loss of `dac`, `ts` and `ets`. By default `dac` minimises the squared error, as
# in its paper, and the others the negative log-likelihood. `--shifted` adds outputs of perturbed validation inputs, so that DAC stays calibrated under shift. `densecal extract
# --perturb` makes them.

# %%
densecal fit --train data/train.safetensors --val data/val.safetensors --method dac \
  --shifted data/perturbed.safetensors -o shift-fit.densecal

# %% [markdown]
# ## Evaluate
#
# `evaluate` takes any number of calibrators and test sets. With `--val` it also fits the same methods without DAC, for
# comparison. The severity of a test set comes from the metadata in its file, or from a name such as
# `rain-severity-3.npz` or, for densecal's corruptions, `fog-3.npz`. A line below the tables shows what was read;
# `--ignore-names` uses the metadata only. The severity of a natural shift, such as photographs of another origin, is not
# known: pass its files with `--natural`, and each gets a row of its own in every table instead of counting as clean
# data.

# %%
densecal evaluate clean-fit.densecal shift-fit.densecal --val data/val.safetensors --resamples 100 \
  --data data/clean.safetensors --data data/shifted-3.safetensors --data data/shifted-5.safetensors

# %% [markdown]
# `--json` prints the same for programs, and `--metric` chooses the metrics:

# %%
densecal evaluate shift-fit.densecal --data data/clean.safetensors --resamples 0 --metric ece --json | head -24

# %% [markdown]
# ## Apply
#
# New data need no labels. The result holds the probabilities, the confidence and the temperature of each input.

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
# ## Errors
#
# Mistakes that would give wrong numbers are errors: probabilities in the place of logits, also rounded ones and
# percentages (`--assume-logits` accepts them), the training set as validation set, the validation set as test set, or
# an option given twice. An error is one message with what to do; `--debug` adds the traceback. The exit code is 1, or 2 if the command line
# cannot be parsed.

# %%
densecal fit --val data/val.safetensors --method dac+est -o never.densecal || echo "exit code $?"

# %% [markdown]
# ## Extract outputs from a PyTorch model
#
# `densecal extract` runs a model over a data set and writes its outputs. The model is a torchvision or timm model, or
# your own as `package.module:callable`. Pixels are normalised with the usual mean and standard deviation of the data
# set, which the command prints. If your model was trained with others, pass `--mean` and `--std`. A torchvision or timm
# model needs `--weights` or `--pretrained`, and as many classes as the data set; images of other classes need `--ood`.
#
# ```console
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --split val -o val.safetensors
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --split val --perturb -o perturbed.safetensors
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --corruption fog --severity 3 -o fog-3.safetensors
# ```
#
# ## All commands
#
# Each command has `--help`.

# %%
densecal --help

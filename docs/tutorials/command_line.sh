# %% [markdown]
# # From the command line
#
# Everything works without writing Python. Data go in and out as files of *outputs*: logits, labels and layer features
# of one data set, as `.safetensors`, `.npz` or a folder of `.npy`, with arrays named `logits`, `labels` and
# `features/LAYER`; a `.csv` with columns `logit0`, `logit1`, ... and `label` is read too. To have some, copy those that
# lie in the package.

# %%
python -c "from densecal.demo.data_sets import DATA; import shutil; shutil.copytree(DATA, 'data')"
ls data

# %% [markdown]
# ## What is in a file?

# %%
densecal inspect data/val.safetensors

# %% [markdown]
# ## Fit
#
# The training set's features say what the classifier has seen; the validation set teaches the calibrator. This is the
# paper's fit:

# %%
densecal fit --train data/train.safetensors --val data/val.safetensors --method dac+ets -o paper.densecal

# %% [markdown]
# And this one is fitted for where the data will go: `--shifted` names outputs of perturbed validation inputs
# (`densecal extract --perturb` makes them).

# %%
densecal fit --train data/train.safetensors --val data/val.safetensors --method dac \
  --shifted data/perturbed.safetensors -o shift.densecal

# %% [markdown]
# ## Judge
#
# `evaluate` measures on as many test sets as you like; with `--val` it also fits the same methods without DAC, to
# compare with. The facts inside a file say how far its data have moved. Files without facts say it in their names,
# as `rain-severity-3.npz` or, for densecal's own corruptions, `fog-3.npz`; a line below the tables shows what was
# understood.

# %%
densecal evaluate paper.densecal shift.densecal --val data/val.safetensors --resamples 100 \
  --data data/clean.safetensors --data data/shifted-3.safetensors --data data/shifted-5.safetensors

# %% [markdown]
# Machines read `--json`:

# %%
densecal evaluate shift.densecal --data data/clean.safetensors --resamples 0 --measure ece --json | head -24

# %% [markdown]
# ## Use it
#
# New data need no labels. The answer holds the probabilities, the confidence and each input's temperature.

# %%
densecal apply shift.densecal --data data/shifted-5.safetensors -o probabilities.csv
head -3 probabilities.csv | cut -c 1-80

# %% [markdown]
# ## Show it
#
# One self-contained page for somebody who will not read code; [how to read it](reading-a-report.md).

# %%
densecal report shift.densecal --val data/val.safetensors --resamples 100 -o trust.html \
  --data data/clean.safetensors --data data/shifted-3.safetensors --data data/shifted-5.safetensors

# %% [markdown]
# ## When something is wrong
#
# One line says what and how to go on; `--debug` gives the traceback. The exit code is 1 for data that cannot be used
# and 2 for a command that was not understood.

# %%
densecal fit --val data/val.safetensors --method dac+est -o never.densecal || echo "exit code $?"

# %% [markdown]
# ## From a PyTorch model
#
# `densecal extract` makes the outputs: a torchvision or timm model, or your own as `package.module:callable`, over a
# data set. Pixels are normalised with the data set's usual constants, which the command prints: if your model was
# trained with others, give them with `--mean` and `--std`.
#
# ```console
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --split val -o val.safetensors
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --split val --perturb -o perturbed.safetensors
# $ densecal extract torchvision:resnet18 --weights model.pt --data cifar10 --corruption fog --severity 3 -o fog-3.safetensors
# ```
#
# Every command explains itself:

# %%
densecal --help

# %% [markdown]
# # Large data sets
#
# densecal reads and writes **shards**: files that together form one data set. They are written by one process, by
# several processes of `torchrun`, or by [Ray](https://docs.ray.io) workers. The files, the metrics and the centres of
# the bank are the same in all three cases. [Scale](../scale.md) describes the cost of up to ten billion samples.

# %%
import logging
import tempfile
from pathlib import Path

import ray
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import densecal
from densecal import Outputs
from densecal.integrations import ray as on_ray
from densecal.torch import extract_shards

folder = Path(tempfile.mkdtemp())
torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images / 16).float().flatten(1), torch.tensor(digits.target)
train, val, test = (
    TensorDataset(images[part], labels[part]) for part in (slice(300), slice(300, 900), slice(900, None))
)

classifier = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimiser = torch.optim.Adam(classifier.parameters(), 0.01)
for _ in range(400):
    optimiser.zero_grad()
    nn.functional.cross_entropy(classifier(train.tensors[0]), train.tensors[1]).backward()
    optimiser.step()

# %% [markdown]
# ## Without Ray
#
# `extract_shards` writes one file per `shard_size` samples. It keeps existing files: after an interruption, call it
# again. If started by `torchrun`, every process writes its share of the files:
#
# ```console
# $ torchrun --nproc-per-node 8 -m densecal extract torchvision:resnet50 --pretrained --data imagenet -o train
# ```
#
# `Outputs.open` reads the files as one data set, in batches.

# %%
extract_shards(folder / "val", classifier, val, shard_size=128, progress=False)
print(Outputs.open(folder / "val"))

# %% [markdown]
# ## With Ray
#
# Install Ray with `pip install "densecal[ray]"`. Connect to your cluster, or start Ray on this machine, as here: two
# CPUs for the workers, and two for the tasks that read and write. The input can be anything that Ray Data reads:
# folders of images, Parquet, WebDataset tar files, on disk or in cloud storage. Here it is a list of rows in memory.

# %%
logging.getLogger("ray.data").setLevel(logging.ERROR)
ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False

rows = ray.data.from_items(
    [{"id": number, "input": image.numpy(), "label": int(label)} for number, (image, label) in enumerate(train)]
)
outputs = on_ray.extract(rows, lambda: classifier, keep=["id"], workers=2)
on_ray.write_shards(outputs, folder / "train", shard_size=256)
print(Outputs.open(folder / "train"))

# %% [markdown]
# The workers are Ray actors with one classifier each, on a GPU with `num_gpus=1`. If a worker dies, Ray starts another
# one and repeats its batches. With `id_column=`, and input that Ray reads from files, `write_shards` can also resume
# after the whole run was interrupted: Ray records which samples have been written.
#
# The bank is built from a random sample of the training features, which the workers draw together. The fit runs on one
# machine, because the validation set, or a sample of it, is small.

# %%
bank = on_ray.fit_bank(on_ray.read_shards(folder / "train"))
validation = Outputs.open(folder / "val").load()
calibrator = densecal.make_calibrator("dac+ets", bank=bank).fit(validation)
print(bank)

# %% [markdown]
# Predictions and metrics are computed for any number of shards. Each worker sends a metric state of about 0.6 MB, and
# the result does not depend on the number of workers.

# %%
extract_shards(folder / "test", classifier, test, shard_size=128, progress=False)
shards = on_ray.read_shards(folder / "test")
on_ray.predict(shards, calibrator, keep=["sample"]).write_parquet(str(folder / "predictions"))
for name, state in on_ray.evaluate(shards, calibrator).items():
    found = state.compute()
    print(f"{name:12}  accuracy {found.accuracy:.3f}  ECE {100 * found.ece:.2f} points  NLL {found.nll:.3f}")

# %%
table = ray.data.read_parquet(str(folder / "predictions")).to_pandas().sort_values("sample")
print(table[["sample", "predicted", "confidence", "temperature"]].head(3).round(3).to_string(index=False))

# %%
ray.shutdown()

# %% [markdown]
# The command line does the same with `--engine ray`, on this machine or, with `--address`, on a cluster:
#
# ```console
# $ densecal extract torchvision:resnet50 --pretrained --data folder:photos -o photos --engine ray --address auto
# $ densecal evaluate cal.densecal --data photos --engine ray --address auto
# $ densecal apply cal.densecal --data photos -o probabilities --engine ray --address auto
# ```

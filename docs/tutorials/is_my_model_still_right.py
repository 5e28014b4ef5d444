# %% [markdown]
# # Is my model still right?
#
# In production nobody labels the data, so nobody knows the accuracy. densecal estimates it: on inputs that lie further
# from the training data than their confidence explains, a classifier is wrong more often. This page estimates the
# accuracy of a batch without its labels, follows a stream with a monitor, and adapts the confidences to new data. It
# needs no torch.
#
# The data are outputs of a ResNet18 on CIFAR-10, inside the package. The estimate is learned from **labelled data under
# several shifts**. Here they are perturbed copies of the validation images, grouped by the kind and strength of the
# perturbation. None of the perturbations is one of the corruptions that follow.

# %%
import textwrap

import matplotlib.pyplot as plt
import numpy as np

import densecal
from densecal.demo import load_demo, load_domains
from densecal.report import write_monitor_report

domains = load_domains()
print(len(domains), "domains, such as", *list(domains)[:3])
bank = densecal.FeatureBank(load_demo("train").features)
calibrator = densecal.DAC(bank).fit(load_demo("val"), shifted=domains)

# %% [markdown]
# ## The accuracy of a batch
#
# `estimate_accuracy` ignores labels. It returns the accuracy with a 95 % interval, which is wider for small batches and
# for those far from the clean data.

# %%
test = load_demo("shifted-5")
estimate = calibrator.estimate_accuracy(test)
print(estimate)
print(f"the truth, from the labels: {(test.logits.argmax(axis=1) == test.labels).mean():.1%}")

# %% [markdown]
# Temperature scaling claims much more, because its confidence hardly notices the shift. The figure shows what it claims
# (circles), what densecal estimates (dots, with their intervals) and the truth (diamonds).

# %% Claimed, estimated and true accuracy, from clean data to severity 5.
names = ["clean", *(f"shifted-{severity}" for severity in range(1, 6))]
figure, ax = plt.subplots(figsize=(8, 3.4))
for row, name in enumerate(names):
    data = load_demo(name)
    found = calibrator.estimate_accuracy(data)
    truth = (data.logits.argmax(axis=1) == data.labels).mean()
    ax.plot([100 * found.low, 100 * found.high], [row, row], color="#0072b2", alpha=0.25, lw=9, solid_capstyle="round")
    ax.plot(
        100 * found.plain_confidence, row, "o", mfc="white", mec="#c2570c", mew=2, label="temperature scaling claims"
    )
    ax.plot(100 * found.accuracy, row, "o", color="#0072b2", label="densecal estimates")
    ax.plot(100 * truth, row, "D", color="black", ms=5, label="truth")
ax.set_yticks(range(len(names)), names)
ax.invert_yaxis()
ax.set_xlabel("accuracy (%)")
handles, labels = (part[:3] for part in ax.get_legend_handles_labels())
ax.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)

# %% [markdown]
# ## Which classes, and what changed
#
# With at least 20 samples per class the estimate includes the expected confusion matrix, hence precision, recall and
# F1. `drift` says how much the distances grew in each layer, in standard deviations of clean data, and `far_share` is
# the share of inputs further away than 99 % of the clean ones.

# %%
right = test.logits.argmax(axis=1) == test.labels
true_recall = [right[test.labels == label].mean() for label in range(10)]
print("estimated recall:", estimate.recall.round(2))
print("true recall:     ", np.round(true_recall, 2))
print("drift:", {layer: round(value, 2) for layer, value in estimate.drift.items()})
print(f"far inputs: {estimate.far_share:.1%}, without a shift 1.0%")

# %% [markdown]
# ## A monitor
#
# A `Monitor` cuts a stream into windows, estimates the accuracy of each, and raises an alarm if it falls below
# `alarm_below` by more than chance explains. `false_alarm_rate` is the probability of an alarm within 100 windows of
# undisturbed data. Here the camera degrades from day 6 to day 10, and is then repaired.

# %%
rng = np.random.default_rng(0)
days = ["clean"] * 5 + ["shifted-1", "shifted-3", "shifted-4", "shifted-5", "shifted-5"] + ["clean"] * 4
monitor = densecal.Monitor(calibrator, window=500, alarm_below=0.80, false_alarm_rate=0.01)
waiting = []
for day, name in enumerate(days, start=1):
    data = load_demo(name)
    part = data[rng.permutation(len(data))[:500]]
    ids = [f"{day}/{number}" for number in range(len(part))]
    unlabelled = densecal.Outputs(part.logits, features=part.features)
    for window in monitor.update(unlabelled, ids=ids, at=f"day {day}"):
        print(f"{window.end_at:>6}: {window.estimate.accuracy:.1%}", "ALARM" if monitor.alarm else "")
    waiting.append((part.labels, ids))
print(textwrap.fill(str(monitor.alarms[0]), 90))

# %% [markdown]
# Labels may arrive late, for some of the samples. They are shown beside the estimates, which do not depend on them.

# %%
for labels, ids in waiting[::3]:
    monitor.add_labels(labels[:200], ids[:200])
for window in monitor.windows[::3]:
    known = window.labelled_accuracy.estimate
    print(f"{window.end_at:>6}: estimated {window.estimate.accuracy:.1%}, on {window.n_labels} labels {known:.1%}")
monitor.save("monitor.state")  # and densecal.Monitor.load("monitor.state", calibrator) goes on from there
write_monitor_report("monitor.html", monitor)

# %% [markdown]
# [Open the page of the monitor](monitor.html){target=_blank}, or see it here.
#
# <iframe class="report" src="monitor.html" title="The page of the monitor" loading="lazy"></iframe>
#
# For a PyTorch model, `Monitor(calibrate(classifier, train_loader, val_loader))` takes batches of inputs, or what
# `model.details(images)` returns, which saves a second forward pass. Several threads may call `update`. For Prometheus
# (`pip install "densecal[monitor]"`), register `densecal.monitor.prometheus.MonitorCollector(monitor)`. Files of
# outputs need no Python; the exit status is 3 if there is an alarm:
#
# ```console
# $ densecal monitor cal.densecal --data day-*.safetensors --alarm-below 0.8 -o monitor.html
# ```
#
# Tables may name their samples, so that labels can follow days later. `--state` keeps the monitor between the calls:
#
# ```console
# $ densecal monitor cal.densecal --state monitor.state --window 1000 --id key --data monday.csv -o monitor.html
# $ densecal monitor cal.densecal --state monitor.state --id key --late-labels monday-labels.csv -o monitor.html
# ```
#
# ## Confidences for the new data
#
# `adapted_to` returns a copy of the calibrator whose confidences fit an unlabelled batch. It is saved, exported and
# served like any other, and the predicted class does not change.

# %%
from densecal.metrics import expected_calibration_error  # noqa: E402

adapted = calibrator.adapted_to(densecal.Outputs(test.logits, features=test.features))
scaling = densecal.TemperatureScaling().fit(load_demo("val"))
for name, one in (("temperature scaling", scaling), ("densecal", calibrator), ("densecal, adapted", adapted)):
    print(f"{name:>20}: ECE {100 * expected_calibration_error(one.predict_proba(test), test.labels):.1f}")

# %% [markdown]
# ## What to expect
#
# [The evidence](../accuracy-without-labels.md): over 91 conditions and six networks the estimate is off by about two
# points on average, where temperature scaling's confidence is off by nine. It is learned from the shifts that you show
# it, so use named domains of your own where you have them (`shifted={"night/weak": ..., "night/strong": ...}`), and
# trust the interval rather than the number. New classes, and labels that change their meaning, are not noticed.
#
# **Next:** [a PyTorch model](pytorch-model.md), or [the command line](command-line.md).

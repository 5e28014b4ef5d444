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
#
# Each entry of the `shifted=` mapping, or each file of `--shifted`, is a **domain**; the part of its name before `/` is
# its kind of shift. The fit also forms groups of clean samples and mixtures of domains, so it reports more domains than
# you passed.

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
# ## A batch must be what the classifier meets
#
# The estimate is learned from whole domains, so a batch must be **what the classifier meets, unselected**. If only some
# of the inputs are kept, for instance those that were accepted because of their confidence, or those of one class, the
# accuracy no longer relates to the confidences as in the domains, and the interval does not hold. Estimate the accuracy
# of the whole stream, before such a filter. Of the 95 % intervals on the six sets above, so many contain the truth:

# %%
selections = {"all samples": [], "the most confident half": [], "one predicted class": []}
for name in names:
    data = load_demo(name)
    predicted, confidence = data.logits.argmax(axis=1), calibrator.confidence(data)
    parts = [("all samples", predicted >= 0), ("the most confident half", confidence >= np.median(confidence))]
    parts += [("one predicted class", predicted == label) for label in range(10)]
    for selection, rows in parts:
        found = calibrator.estimate_accuracy(data[np.flatnonzero(rows)])
        truth = (predicted == data.labels)[rows].mean()
        selections[selection].append(found.low <= truth <= found.high)
for selection, holds in selections.items():
    print(f"{selection:>23}: {sum(holds)} of {len(holds)}")

# %% [markdown]
# ## A monitor
#
# A `Monitor` cuts a stream into windows, estimates the accuracy of each, and raises an alarm if it falls below
# `alarm_below` by more than chance explains. `false_alarm_rate` is the probability of an alarm within 100 windows of
# undisturbed data. Here the camera degrades from day 6 to day 10, and is then repaired.
#
# The alarm compares `window.bound` with `alarm_below`. This upper bound of the estimate allows for chance in the
# samples of the window and of the validation set. An alarm therefore rings below about `monitor.effective_limit`, and
# an estimate between the two limits is below `alarm_below` without an alarm. If the gap is too wide, fit with a larger
# validation set or use a larger window. The 95 % interval also allows for the error of the estimate on unknown shifts,
# so an alarm can ring while the interval contains the limit. `since` is the start of the first window whose estimate is
# below the limit, `raised` the end of the window that rang.

# %%
rng = np.random.default_rng(0)
days = ["clean"] * 5 + ["shifted-1", "shifted-3", "shifted-4", "shifted-5", "shifted-5"] + ["clean"] * 4
monitor = densecal.Monitor(calibrator, window=500, alarm_below=0.80, false_alarm_rate=0.01)
print(f"an alarm rings below about {monitor.effective_limit:.1%}")
waiting = []
for day, name in enumerate(days, start=1):
    data = load_demo(name)
    part = data[rng.permutation(len(data))[:500]]
    ids = [f"{day}/{number}" for number in range(len(part))]
    unlabelled = densecal.Outputs(part.logits, features=part.features)
    for window in monitor.update(unlabelled, ids=ids, at=f"day {day}"):
        print(f"{window.end_at:>6}: {window.estimate.accuracy:.1%}", "ALARM" if monitor.alarm else "")
    waiting.append((part.labels, ids))
alarm = monitor.alarms[0]
print(textwrap.fill(str(alarm), 90))

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
# ## When the alarm rings
#
# 1. Look at the inputs that lie far from the training data in the layer that the alarm names
#    (`bank.distances(features)`, or `model.details(images).distances` for a PyTorch model).
# 2. Label about 200 random samples of the windows below the limit and add the labels (`add_labels`, `--late-labels`).
#    The accuracy on them is shown beside the estimate, with an interval of its own.
# 3. Until you have decided what to do, serve the copy that `adapted_to` returns: its confidences fit the new data.
# 4. Repair the source of the data, roll back to an earlier model, or retrain.
# 5. Fit the calibrator again with the labelled new data as a named domain in `shifted=`, and start a new monitor.
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
# | | error of the estimate | error of temperature scaling | 95 % intervals that hold |
# |---|---:|---:|---:|
# | CIFAR-10, 91 conditions, 2,000 images each, six networks | 2.3 | 8.9 | 98.7 % |
# | natural shift, 52 pairs of source and target | 5.8 | 15.9 | 92.3 % |
#
# Errors are means, in points. On natural shift 92 to 100 % of the intervals hold for photographs and drawings (PACS),
# cameras (Office), reviews and employment, but 83 % for digits (error 8.5) and 67 % for electricity prices (11.4).
# [Accuracy without labels](../accuracy-without-labels.md) and `results/natural/README.md` have all figures.
#
# A classifier that is robust to a shift is underestimated, because the estimate sees the distance. From MNIST to USPS
# it is 67 % where the truth is 88 %. New classes, and labels that change their meaning, are not noticed.
#
# The estimate is learned from the shifts that you show it, so use named domains of your own where you have them
# (`shifted={"night/weak": ..., "night/strong": ...}`), and trust the interval rather than the number.
#
# **Next:** [a PyTorch model](pytorch-model.md), or [the command line](command-line.md).

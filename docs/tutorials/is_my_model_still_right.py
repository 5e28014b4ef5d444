# %% [markdown]
# # Is my model still right?
#
# In production, data come without labels, so the accuracy is unknown. densecal estimates it: a classifier is wrong more
# often on inputs that lie farther from the training data than is usual at their confidence. This page estimates the
# accuracy of a batch without its labels, monitors a stream, and adapts the confidences to new data. It does not need
# torch.
#
# The data are outputs of a ResNet18 on CIFAR-10, bundled with the package. The estimate is learned from **labelled data
# under several shifts**: here perturbed copies of the validation images. None of the perturbations is one of the test
# corruptions below. Each entry of the `shifted=` mapping, or each file of `--shifted`, is a **domain**: data under one
# shift. The part of its name before `/` is the **kind** of shift, the rest its strength.

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
# `estimate_accuracy` ignores labels. It returns the estimated accuracy with a 95 % interval, which is wider for small
# batches and for batches far from the clean data.

# %%
test = load_demo("shifted-5")
estimate = calibrator.estimate_accuracy(test)
print(estimate)
print(f"the truth, from the labels: {(test.logits.argmax(axis=1) == test.labels).mean():.1%}")

# %% [markdown]
# Temperature scaling claims a much higher accuracy: its mean confidence falls much less than the accuracy. The
# figure shows this claim (circles), densecal's estimate (dots, with intervals) and the true accuracy (diamonds).

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
# ## Classes and drift
#
# With at least 20 samples per class, the estimate includes the expected confusion matrix, and therefore precision,
# recall and F1. `drift` says by how much the distances in each layer exceed those of clean inputs with the same
# confidence, in standard deviations. `far_share` is the fraction of inputs that are farther away than 99 % of the clean
# inputs.

# %%
right = test.logits.argmax(axis=1) == test.labels
true_recall = [right[test.labels == label].mean() for label in range(10)]
print("estimated recall:", estimate.recall.round(2))
print("true recall:     ", np.round(true_recall, 2))
print("drift:", {layer: round(value, 2) for layer, value in estimate.drift.items()})
print(f"far inputs: {estimate.far_share:.1%} (1.0% without a shift)")

# %% [markdown]
# ## Beyond the data of the fit
#
# `extrapolation` is the drift of the batch relative to the largest drift of a domain, in the layer where this ratio is
# largest. Above 1, the batch is farther from the training data than every domain, or nearer, so nothing in the fit
# supports the estimate or its interval. `is_extrapolated` is then true, the printed estimate says so, and `adapted_to`
# warns.

# %%
for name in names:
    found = calibrator.estimate_accuracy(load_demo(name))
    print(f"{name:>9}: extrapolation {found.extrapolation:.2f}, extrapolated: {found.is_extrapolated}")

# %% [markdown]
# A value below 1 does not prove that the estimate holds. Inputs that have nothing to do with the task, such as pure
# noise, grey frames or random tokens, can have the same distances as a perturbation of the fit. The estimate is then
# **too high without a warning**, as for the noise in
# [the PyTorch tutorial](pytorch-model.md#accuracy-without-labels). Check `far_share` and the width of the interval, and
# look at some of the inputs.

# %% [markdown]
# ## Use unselected batches
#
# The estimate is learned from whole domains, so a batch must be **unselected**: everything that the classifier
# receives, or a random sample of it. If the inputs were selected by confidence or by class, their accuracy does not
# relate to their confidences as in the domains, and the interval does not hold. Estimate the accuracy before such a
# filter. How many of the 95 % intervals on the six sets above contain the accuracy:

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
# A `Monitor` divides a stream into windows, estimates the accuracy of each window, and raises an alarm if it falls
# below `alarm_below` by more than chance can explain. `false_alarm_rate` is the probability of an alarm within 100
# windows without a shift. In this example, the camera degrades from day 6 to day 10 and is then repaired.

# %%
rng = np.random.default_rng(0)
days = ["clean"] * 5 + ["shifted-1", "shifted-3", "shifted-4", "shifted-5", "shifted-5"] + ["clean"] * 4
monitor = densecal.Monitor(calibrator, window=500, alarm_below=0.80, false_alarm_rate=0.01)
print(f"alarm: one window below about {monitor.effective_limit:.1%}, eight below about {monitor.lasting_limit:.1%}")
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
# Labels may arrive later, for some of the samples. The accuracy on them is shown next to the estimates, which do not
# depend on the labels.

# %%
for labels, ids in waiting[::3]:
    monitor.add_labels(labels[:200], ids[:200])
for window in monitor.windows[::3]:
    known = window.labelled_accuracy.estimate
    print(f"{window.end_at:>6}: estimated {window.estimate.accuracy:.1%}, on {window.n_labels} labels {known:.1%}")
monitor.save("monitor.state")  # densecal.Monitor.load("monitor.state", calibrator) continues it
write_monitor_report("monitor.html", monitor)

# %% [markdown]
# [Open the page of the monitor](monitor.html){target=_blank} in its own tab, or see it here.
#
# <iframe class="report" src="monitor.html" title="The page of the monitor" loading="lazy"></iframe>
#
# ## When an alarm is raised
#
# `window.bound` is an upper bound of the accuracy that allows for chance in the samples and in the validation set. If
# it and the estimate lie below `alarm_below`, there is an alarm. The latest one, two, four and eight windows are tested
# together (`n_tested` samples), so a large drop raises an alarm at once, and a small one after some windows: one window
# below about `effective_limit`, eight in a row below about `lasting_limit`. If these limits are too far below
# `alarm_below`, use a larger validation set or larger windows.
#
# A window that is an extrapolation also raises an alarm if its interval reaches below `alarm_below`. Inputs unlike
# everything in the fit, such as images without the usual division by 255, can look easier than clean data.
#
# The 95 % interval also allows for the error of the estimate on unknown shifts, so there can be an alarm while it
# contains `alarm_below`. `since` is the start of the first window whose estimate is below `alarm_below`, and `raised`
# the end of the window that raised the alarm.
#
# ## Streams and files
#
# For a PyTorch model, `Monitor(calibrate(classifier, train_loader, val_loader))` takes batches of inputs, or the result
# of `model.details(images)`, which saves a second forward pass. Several threads may call `update`. For Prometheus
# (`pip install "densecal[monitor]"`), register `densecal.monitor.prometheus.MonitorCollector(monitor)`. The command
# line monitors files of outputs; its exit code is 3 if there is an alarm:
#
# ```console
# $ densecal monitor cal.densecal --data day-*.safetensors --alarm-below 0.8 -o monitor.html
# ```
#
# With sample ids, labels can be added days later. `--state` stores the monitor between calls:
#
# ```console
# $ densecal monitor cal.densecal --state monitor.state --window 1000 --id key --data monday.csv -o monitor.html
# $ densecal monitor cal.densecal --state monitor.state --id key --late-labels monday-labels.csv -o monitor.html
# ```
#
# A window may span several files, unless `--close-windows` ends one with each file. The exit code is also 3 if new
# labels show an accuracy below the limit by more than chance.
#
# ## How many validation samples
#
# The interval and the alarm allow for chance in the validation set. What counts is the number of errors in it: with few
# errors the accuracy on clean data is itself uncertain, and larger windows help little. Here are fits on parts of the
# validation set. The monitor warns if even eight windows in a row must lie more than ten points below `alarm_below`.

# %%
val, clean = load_demo("val"), load_demo("clean")
for n_samples in (250, 1000, 4000):
    part = val[:n_samples]
    errors = int((part.logits.argmax(axis=1) != part.labels).sum())
    fitted = densecal.DAC(bank).fit(part, shifted=domains)
    found = fitted.estimate_accuracy(clean)
    lasting = densecal.Monitor(fitted, window=500, alarm_below=0.80).lasting_limit
    width = 100 * (found.high - found.low)
    print(f"{n_samples:>5} samples, {errors:>3} errors: interval {width:.0f} points wide, eight windows {lasting:.1%}")

# %% [markdown]
# As a rule of thumb, use at least 1,000 validation samples with about 100 errors. A classifier with an accuracy of 99 %
# then needs about 10,000.
#
# ## What to do about an alarm
#
# 1. Look at the inputs that lie far from the training data in the layer that the alarm names
#    (`bank.distances(features)`, or `model.details(images).distances` for a PyTorch model).
# 2. Label about 200 random samples of the windows below the limit and add the labels (`add_labels`, `--late-labels`).
#    The accuracy on them is shown next to the estimate, with its own interval.
# 3. Until you have decided what to do, serve the calibrator that `adapted_to` returns: it is calibrated for the new
#    data. If `adapted_to` warns that the data are an extrapolation, trust neither.
# 4. Repair the source of the data, return to an earlier model, or retrain.
# 5. Fit the calibrator again, with the labelled new data as a domain in `shifted=`, and start a new monitor. Do the
#    same after any further training of the classifier.
#
# ## Confidences for the new data
#
# `adapted_to` returns a copy of the calibrator that is calibrated for an unlabelled batch. It can be saved, exported
# and served like any other calibrator, and it does not change the predicted class.
#
# The copy is for inputs like those of its batch; on clean data it can be worse than the original. Return to the
# original when the alarm has ended, and adapt it again when the data change once more.

# %%
from densecal.metrics import expected_calibration_error  # noqa: E402

adapted = calibrator.adapted_to(densecal.Outputs(test.logits, features=test.features))
scaling = densecal.TemperatureScaling().fit(load_demo("val"))
for name, one in (("temperature scaling", scaling), ("densecal", calibrator), ("densecal, adapted", adapted)):
    on_new, on_clean = (
        100 * expected_calibration_error(one.predict_proba(data), data.labels) for data in (test, clean)
    )
    print(f"{name:>20}: ECE {on_new:.1f} on the new data, {on_clean:.1f} on clean data")

# %% [markdown]
# ## What to expect
#
# In batches of 2,000 corrupted CIFAR-10 images, the estimate is off by about 3 points on average, the mean confidence
# of temperature scaling by about 10. Under natural shift the estimate is off by about 6 points, temperature scaling by
# about 16, and fewer of the intervals contain the true accuracy: see [Accuracy without
# labels](../accuracy-without-labels.md).
#
# The estimate depends on the distances, so it is too low for a classifier that is robust to a shift: from MNIST to USPS
# it is 67 %, but the true accuracy is 88 %. New classes, and labels that change their meaning, are not detected.
#
# The estimate is learned from the shifted data that you provide. Use domains of your own if you have them
# (`shifted={"night/weak": ..., "night/strong": ...}`), and rely on the interval rather than on the number.
#
# **Next:** [a PyTorch model](pytorch-model.md), or [the command line](command-line.md).

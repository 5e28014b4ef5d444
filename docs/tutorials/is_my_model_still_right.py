# %% [markdown]
# # Is my model still right?
#
# In production, data come without labels, so the accuracy is unknown. densecal estimates it: a classifier is wrong more
# often on inputs that lie farther from the training data than is usual at their confidence. This page estimates the
# accuracy of a batch without its labels, monitors a stream, and adapts the confidences to new data. It does not need
# torch.
#
# The data are outputs of a ResNet18 on CIFAR-10, bundled with the package. The estimate is learned from **labelled data
# under several shifts**. Here these are perturbed copies of the validation images, grouped by the kind and strength of
# the perturbation. None of the perturbations is one of the test corruptions below.
#
# Each entry of the `shifted=` mapping, or each file of `--shifted`, is a **domain**. The part of its name before `/` is
# the kind of shift. The fit also forms groups of clean samples and mixtures of domains, so it reports more domains than
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
# for batches far from the clean data.

# %%
test = load_demo("shifted-5")
estimate = calibrator.estimate_accuracy(test)
print(estimate)
print(f"the truth, from the labels: {(test.logits.argmax(axis=1) == test.labels).mean():.1%}")

# %% [markdown]
# The mean confidence of temperature scaling is much higher, because it hardly changes under shift. The figure shows the
# accuracy that temperature scaling claims (circles), densecal's estimate (dots, with intervals) and the true accuracy
# (diamonds).

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
# recall and F1. `drift` is the increase of the distances in each layer, in standard deviations of clean data, and
# `far_share` is the share of inputs that are farther away than 99 % of the clean inputs.

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
# `extrapolation` compares the drift with that of the domains of the fit, in the layer where it is largest. Above 1,
# the batch is farther from the training data than every domain, so nothing that the fit has seen supports the estimate
# or its interval. `is_extrapolated` is then true, the printed estimate says so, and `adapted_to` warns.

# %%
for name in names:
    found = calibrator.estimate_accuracy(load_demo(name))
    print(f"{name:>9}: extrapolation {found.extrapolation:.2f}, extrapolated: {found.is_extrapolated}")

# %% [markdown]
# A value below 1 is no proof that the estimate holds. Inputs that are nothing like the task, such as pure noise, grey
# frames or random tokens, can look like a perturbation that the fit has seen. The estimate is then **too high without a
# flag**: in [the PyTorch tutorial](pytorch-model.md#accuracy-without-labels), the estimate for pure noise is far too
# high, and neither the flag nor the share of far inputs shows it. Check `far_share` and the width of the interval, and
# look at some of the inputs.

# %% [markdown]
# ## A batch must be what the classifier meets
#
# The estimate is learned from whole domains, so a batch must be **what the classifier meets, unselected**. If only some
# of the inputs are kept, for instance those that were accepted because of their confidence, or those of one class, the
# accuracy no longer relates to the confidences as in the domains, and the interval does not hold. Estimate the accuracy
# of the whole stream, before such a filter. How many of the 95 % intervals on the six sets above contain the accuracy:

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
#
# The alarm compares `window.bound` with `alarm_below`. This upper bound of the accuracy allows for chance in the
# samples and in the validation set. The latest one, two, four and eight windows are tested, each taken together, so a
# large drop raises an alarm at once and a small one after some windows: one window below about
# `monitor.effective_limit`, eight in a row below about `monitor.lasting_limit`. If the gap to `alarm_below` is too
# wide, fit with a larger validation set or use a larger window. The 95 % interval also allows for the error of the
# estimate on unknown shifts, so an alarm can be raised while the interval contains the limit. `since` is the start of
# the first window whose estimate is below the limit, `raised` the end of the window that raised the alarm.
#
# A window that is an extrapolation raises an alarm as well if its interval reaches below `alarm_below`: inputs unlike
# everything that the fit has seen, such as images without the usual division by 255, can look easier than clean data.

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
# For a PyTorch model, `Monitor(calibrate(classifier, train_loader, val_loader))` takes batches of inputs, or the result
# of `model.details(images)`, which saves a second forward pass. Several threads may call `update`. For Prometheus
# (`pip install "densecal[monitor]"`), register `densecal.monitor.prometheus.MonitorCollector(monitor)`. The command
# line monitors files of outputs; its exit status is 3 if there is an alarm:
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
# ## How many validation samples
#
# The interval and the alarm allow for chance in the validation set. What counts is the number of errors among its
# samples: with few errors the accuracy on clean data is itself uncertain, and larger windows help little. Here are
# fits on parts of the validation set. The monitor warns if even eight windows in a row must lie more than ten points
# below `alarm_below`.

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
# As a rule of thumb, use at least 1,000 validation samples that include about 100 errors. A classifier that is right
# 99 % of the time then needs about 10,000.
#
# The calibrator belongs to the weights of the classifier. After any further training, calibrate again and start a new
# monitor.
#
# ## When there is an alarm
#
# 1. Look at the inputs that lie far from the training data in the layer that the alarm names
#    (`bank.distances(features)`, or `model.details(images).distances` for a PyTorch model).
# 2. Label about 200 random samples of the windows below the limit and add the labels (`add_labels`, `--late-labels`).
#    The accuracy on them is shown next to the estimate, with its own interval.
# 3. Until you have decided what to do, serve the calibrator that `adapted_to` returns: it is calibrated for the new
#    data. If `adapted_to` warns that the data are an extrapolation, trust neither.
# 4. Repair the source of the data, roll back to an earlier model, or retrain.
# 5. Fit the calibrator again with the labelled new data as a named domain in `shifted=`, and start a new monitor.
#
# ## Confidences for the new data
#
# `adapted_to` returns a copy of the calibrator that is calibrated for an unlabelled batch. It can be saved, exported
# and served like any other calibrator, and it does not change the predicted class.
#
# The copy is for inputs like those of its batch; on clean data, for instance, it can be worse than the calibrator
# itself. Return to the original calibrator when the source of the data has been repaired (the alarm has ended), and
# adapt the original again when the data have changed once more.

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
# | | error of the estimate | error of temperature scaling | intervals that contain the accuracy |
# |---|---:|---:|---:|
# | CIFAR-10, 91 conditions, 2,000 images each, six networks | 2.3 | 8.9 | 98.7 % |
# | natural shift, 52 pairs of source and target | 5.8 | 15.9 | 92.3 % |
#
# Errors are means, in points. The intervals are 95 % intervals. Under natural shift, 92 to 100 % of them contain the
# true accuracy for photographs and drawings (PACS), cameras (Office), reviews and employment, but only 83 % for digits
# (error 8.5) and 67 % for electricity prices (11.4). [Accuracy without labels](../accuracy-without-labels.md) and
# `results/natural/README.md` contain all numbers.
#
# The accuracy of a classifier that is robust to a shift is underestimated, because the estimate depends on the
# distances. From MNIST to USPS the estimate is 67 %, but the true accuracy is 88 %. New classes, and labels that change
# their meaning, are not detected.
#
# The estimate is learned from the shifted data that you provide, so use named domains of your own if you have them
# (`shifted={"night/weak": ..., "night/strong": ...}`), and rely on the interval rather than on the number.
#
# **Next:** [a PyTorch model](pytorch-model.md), or [the command line](command-line.md).

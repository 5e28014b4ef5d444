# %% [markdown]
# # Reading a report
#
# A report is one HTML file for somebody who has to decide whether a classifier's confidences can be trusted. It needs
# no network and no software but a browser. This page makes one and reads it from top to bottom.

# %%
from densecal import DAC, FeatureBank, TemperatureScaling
from densecal.demo import open_demo
from densecal.demo.data_sets import load_demo
from densecal.evaluation import evaluate_conditions
from densecal.metrics import auroc
from densecal.report import judge, write_report

demo = open_demo()
bank = FeatureBank(demo.train.features, k=demo.k)
val = demo.validation
fitted = {
    "ts": TemperatureScaling().fit(val),
    "dac-shift": DAC(bank).fit(val, shifted=load_demo("perturbed")),
}
table = evaluate_conditions(fitted, demo.conditions, n_resamples=200)
write_report("report.html", fitted, demo.conditions, table=table, validation=val)
verdict = judge(table)
print(verdict.headline)
print(*verdict.details, sep="\n")

# %% [markdown]
# Here it is; [open it in its own tab](report.html){target=_blank} for the full width.
#
# <iframe class="report" src="report.html" title="The report that this page reads" loading="lazy"></iframe>
#
# ## The verdict
#
# The sentence at the top is made from the numbers alone, and it compares the best method with what you would use
# otherwise. It has three tones: better beyond chance, no measurable difference, worse. It says so when DAC does not
# help.
#
# ## The figures below it
#
# All are **expected calibration errors** in percentage points: the mean gap between what the classifier claims and
# how often it is right. 5 means: when it says 80 %, it is right about 75 % of the time (or 85 %). Lower is better, 0
# is honest.

# %%
print(table.by_severity("ece").assign(value=lambda t: (100 * t["value"]).round(1))
      .pivot(index="method", columns="severity", values="value").loc[list(table.methods)])  # fmt: skip

# %% [markdown]
# - **Over all severities** weighs clean data and each severity of shift equally. Look here first if your data will
#   drift.
# - **At the strongest shift** shows the worst case that was tested.
# - **On clean data** shows what it costs when nothing has moved. A method that doubles this to halve the other may
#   not be for you.
#
# Thin lines and brackets are 95 % bootstrap intervals. Where two methods' intervals overlap widely, do not prefer one
# for its number.
#
# ## ECE by severity
#
# A line that stays low as it goes to the right belongs to a method that notices the shift. A line that starts low and
# climbs belongs to one that was only right about the data it was fitted on.
#
# ## The reliability diagrams
#
# Move the slider. Bars below the diagonal: over-confident. Bars above: too modest. The strip below shows how many
# samples each bar stands for; a tall gap over an almost empty bin does not matter.
#
# ## Confidence of right and wrong answers
#
# Right answers should crowd on the right, wrong ones on the left. Calibration does not move the order within a plain
# temperature; DAC does, because it lowers the confidence of far inputs more.
#
# ## Temperature and distance, layers
#
# Each point is an input: the farther from the training data, the higher its temperature, the lower its confidence.
# The layers' shares say where in the network the shift shows.
#
# ## Out of domain
#
# If you gave data that belong to none of the classes, the boxes show how confident the classifier is about them.
# AUROC is the chance that an in-domain input has the higher confidence.

# %%
outside = str(table.out_of_domain[0])
print(outside)
for method in table.methods:
    inside, foreign = table.pooled(method, severity=0).confidence, table.predictions[method, outside].confidence
    print(f"{method:>12}: mean confidence {foreign.mean():.1%}, AUROC {auroc(inside, foreign):.3f}")

# %% [markdown]
# ## Cautions
#
# Read this section before you quote the report: a small validation set, a class that never occurred in it, a bound
# that was reached in a fit, or a warning that a fit gave are listed there.
#
# **Next:** [make one from the command line](command-line.md#show-it).

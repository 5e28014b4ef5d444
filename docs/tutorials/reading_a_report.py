# %% [markdown]
# # Reading a report
#
# A report is one HTML file about the confidences of a classifier. It needs a browser, no network and no other software.
# This page writes a report and explains its sections.

# %%
from densecal import DAC, FeatureBank, TemperatureScaling
from densecal.demo import open_demo
from densecal.evaluation import evaluate_conditions
from densecal.metrics import auroc
from densecal.report import judge, write_report

demo = open_demo()
bank = FeatureBank(demo.train.features, k=demo.k)
calibrators = {
    "ts": TemperatureScaling().fit(demo.validation),
    "dac-shift": DAC(bank).fit(demo.validation, shifted=demo.perturbed),
}
table = evaluate_conditions(calibrators, demo.conditions, n_resamples=200)
write_report("report.html", calibrators, demo.conditions, table=table, validation=demo.validation)
verdict = judge(table)
print(verdict.headline)
print(*verdict.details, sep="\n")

# %% [markdown]
# [Open the report in its own tab](report.html){target=_blank} for the full width.
#
# <iframe class="report" src="report.html" title="The report that this page explains" loading="lazy"></iframe>
#
# ## The verdict
#
# The first sentence compares the best method with its alternative without DAC. It depends on the numbers only, and has
# three outcomes: significantly better, no significant difference, worse.
#
# ## The key numbers
#
# The numbers are **expected calibration errors** (ECE) in percentage points: the mean difference between confidence and
# accuracy. With an ECE of 5, predictions with 80 % confidence are correct in about 75 % (or 85 %) of the cases. Lower
# is better.

# %%
print(table.by_severity("ece").assign(value=lambda t: (100 * t["value"]).round(1))
      .pivot(index="method", columns="severity", values="value").loc[list(table.methods)])  # fmt: skip

# %% [markdown]
# - **Over all severities** gives clean data and each severity the same weight. Start here if you expect shift.
# - **At the strongest shift** is the worst tested case.
# - **On clean data** shows the cost without shift. Decide whether a lower error under shift is worth a higher one here.
#
# Thin lines and brackets are 95 % bootstrap intervals. If the intervals of two methods overlap widely, the data do not
# tell which is better.
#
# ## ECE by severity
#
# A curve that stays low from left to right is a method that stays calibrated under shift. A curve that starts low and
# rises is a method that is calibrated on clean data only.
#
# ## Reliability diagrams
#
# The slider sets the severity. Bars below the diagonal show overconfidence, bars above it underconfidence. The strip
# below shows the number of samples per bin; a large gap in an almost empty bin does not matter.
#
# ## Confidence of correct and wrong predictions
#
# Correct predictions should have high confidence, wrong ones low confidence. Temperature scaling hardly changes their
# order. DAC does, because it lowers the confidence of distant inputs more.
#
# ## Temperature and distance, layers
#
# Each point is an input. Inputs farther from the training data have higher temperatures, thus lower confidence. The
# shares of the layers show where in the network the shift is visible.
#
# ## Out of domain
#
# With data that belong to none of the classes, the box plots show the confidence on them. The AUROC is the probability
# that an in-domain input has a higher confidence than an out-of-domain input.

# %%
outside = str(table.out_of_domain[0])
print(outside)
for method in table.methods:
    inside, foreign = table.pooled(method, severity=0).confidence, table.predictions[method, outside].confidence
    print(f"{method:>12}: mean confidence {foreign.mean():.1%}, AUROC {auroc(inside, foreign):.3f}")

# %% [markdown]
# ## Cautions
#
# Read this section before you quote the report. It lists a small validation set, classes that are missing from it, fits
# that reached a bound, and warnings of the fits.
#
# **Next:** [write a report from the command line](command-line.md#report).

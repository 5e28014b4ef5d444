# %% [markdown]
# # Reading a report
#
# A report is one HTML file that shows whether the confidences of a classifier can be trusted. It loads nothing from the
# network. This page writes a report and explains its sections.

# %%
import textwrap

from densecal import DAC, FeatureBank, TemperatureScaling
from densecal.demo import open_demo
from densecal.evaluation import evaluate_conditions
from densecal.metrics import auroc
from densecal.report import judge, write_report

demo = open_demo()
bank = FeatureBank(demo.train.features)
calibrators = {
    "ts": TemperatureScaling().fit(demo.validation),
    "dac-shift": DAC(bank).fit(demo.validation, shifted=demo.perturbed),
}
table = evaluate_conditions(calibrators, demo.conditions, n_resamples=200)
write_report("report.html", calibrators, demo.conditions, table=table, validation=demo.validation)
print(textwrap.fill(judge(table).headline, 90))

# %% [markdown]
# [Open the report in its own tab](report.html){target=_blank} for the full width.
#
# <iframe class="report" src="report.html" title="The report that this page explains" loading="lazy"></iframe>
#
# ## Is the classifier still right?
#
# The first figure shows three values for each test set: the accuracy that temperature scaling claims (circle),
# densecal's estimate without labels (dot, with its 95 % interval), and the true accuracy (diamond). The figure appears
# if a calibrator was fitted with shifted data. [Is my model still right?](is-my-model-still-right.md) explains it.
#
# ## The verdict
#
# The first sentence compares the best method with its counterpart without DAC: it is better, not clearly different, or
# worse. A difference is not clear if it is not significant or smaller than 5 % of the error. If the counterpart was not
# evaluated, the method is compared with the uncalibrated classifier. What DAC contributes is then unknown, and the
# sentence says so.
#
# ## The key numbers
#
# The numbers are **expected calibration errors** (ECE) in percentage points: the mean difference between confidence and
# accuracy. With an ECE of 5, predictions with 80 % confidence are correct in about 75 % (or 85 %) of the cases. Lower
# is better.

# %%
errors = table.by_severity("ece").pivot(index="method", columns="severity", values="value")
print((100 * errors).round(1).loc[list(table.methods)])

# %% [markdown]
# - **Over all severities** gives the same weight to clean data and to each severity. Start here if you expect shift.
# - **At severity 5** is the strongest tested shift.
# - **On clean data** shows the cost without shift. Decide whether a lower error under shift is worth a higher error
#   here.
#
# Bands and whiskers are 95 % bootstrap intervals. If the intervals of two methods overlap widely, the data do not show
# which method is better.
#
# ## Before you rely on it
#
# This section lists reasons for caution: a small validation set, classes without validation samples, a fit that reached
# a bound, or warnings from the fits.
#
# ## How large is the error under shift?
#
# A method whose curve stays low stays calibrated under shift. A method whose curve starts low and rises is calibrated
# only on clean data.
#
# ## At a confidence of 80 %, are 80 % of the predictions right?
#
# The slider sets the severity. Bars below the diagonal show overconfidence, bars above it underconfidence. The strip
# below the diagram shows the distribution of the confidence: a large gap in an almost empty bin does not matter. In the
# strip, correct predictions should be on the right and wrong predictions on the left. Temperature scaling hardly
# changes the order of the samples. DAC does, because it lowers the confidence of distant inputs more.
#
# ## What DAC looks at
#
# The circles show which layers detect the shift. Each dot is an input: inputs farther from the training data have
# higher temperatures, and therefore lower confidence.
#
# ## How confident is the classifier on unknown classes?
#
# This section compares the test data with data that belong to none of the classes. The AUROC is the probability that an
# in-domain input has a higher confidence than an out-of-domain input.

# %%
outside = str(table.out_of_domain[0])
print(outside)
for method in table.methods:
    inside, foreign = table.pooled(method, severity=0).confidence, table.predictions[method, outside].confidence
    print(f"{method:>12}: mean confidence {foreign.mean():.1%}, AUROC {auroc(inside, foreign):.3f}")

# %% [markdown]
# ## All numbers, data and calibrators
#
# The tables list every metric on every test set, the origin of the data, and the parameters of each calibrator.
#
# **Next:** [write a report from the command line](command-line.md#report).

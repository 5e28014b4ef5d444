"""The prose of the reproduction page."""

from __future__ import annotations

INTRODUCTION = """# The paper, reproduced

This page is generated from the results in `results/`; every number in it was measured. The paper is Tomani, Waseda,
Shen, Cremers: *Beyond In-Domain Scenarios: Robust Density-Aware Calibration*, ICML 2023.

Protocol: calibrators are fitted on 5,000 clean validation images and judged on 10,000 test images, clean and under 18
corruptions at 5 severities (91 conditions). ECE, its relatives and accuracy are in points (x 100). Intervals are 95 %
bootstrap intervals over test images, the same draws for every method, so that differences are paired.
Two rows are not in the paper: *Uncalibrated* by severity, and *Oracle*, temperature scaling fitted on each test
condition's own labels, a bound for whatever rescales a whole condition. *DAC (published code)* is the variant that the
published research code computes: the first neighbour instead of the k-th, and squared distances.
"""

TRAININGS = """
On one H200, the three networks at the same time, so the seconds overlap; alone a step takes 1.73, 3.10 and 8.97 ms,
which is 121, 218 and 630 seconds for 200 epochs.
"""

READING = """## Tables

Each cell of the paper stands beside ours. `ours - paper` compares two different trainings of the same architecture on
different corruption files, so differences of absolute values are expected; what DAC changes is the claim under test.
An ECE is biased upwards, and resampling adds to that: its interval mostly lies below the value, and is widened to hold
it.
"""

FINDINGS = """## What the paper's numbers turned out to be

- **Table 1 averages over all 91 conditions, table 2 over six severities.** Both captions say the same, but table 2's
  ALL column is smaller than the difference of table 1's cells in every row. With the in-domain difference of table
  2 itself, (in-domain + 5 x shifted) / 6 = ALL gives the mean shifted difference, and (in-domain + 90 x shifted) / 91
  gives table 1's difference to the last digit (C10 ResNet18 with IRM: -0.36 and -0.92 give -1.02; table 1 has 5.93 -
  4.90 = 1.03. C100 VGG16 with TS: -0.22 and -4.29 give -5.05; table 1 has 11.54 - 6.49 = 5.05). The tables above
  therefore compare table 1 and its relatives with our mean over 91 conditions, and show the mean over severities too.
- **The column "FPR @95 %" of the out-of-domain tables is not the false positive rate at 95 % true positives.** The
  detection error is the smallest (1 - TPR + FPR) / 2 over all thresholds, so it can be at most (5 % + FPR@95) / 2. With
  an FPR@95 of 21.52 (ResNet152, TS) it could be at most 13.26, but the same row has 23.18. AUROC 84.75 and detection
  error 23.18 agree with each other: two normal distributions with that AUROC have a detection error of 23.4 and an
  FPR@95 of about 58. The printed column is 0.36 to 0.41 of the FPR@95 so computed in all six networks, as a count of
  false positives divided by more than the out-of-domain samples would be. Ours is the definition.
- **Class-wise ECE** is a sum over classes with 14 bins (15 edges) in the paper's table; ours in that table is the same.
"""

WHY_DIFFERENT = """## Why our numbers differ

- **Own trainings.** Weight decay, momentum and batch size are not in the paper; ours are 5e-4, 0.9 and 128. One seed.
- **Own corruptions.** The published CIFAR-10-C files were not used: the corruptions are densecal's own, made with the
  published constants, and the frost overlays are procedural.
- **Own calibrators.** Methods are implemented from their definitions, not from their authors' code: rows of
  probabilities sum to one, splines interpolate with the weights the right way round, DIA, PTS and DIR are fitted to
  convergence by quasi-Newton methods instead of a fixed number of stochastic steps.
- **Out-of-domain sets.** CIFAR-10 has no ObjectNet: ours are Fashion-MNIST (10,000 test images, framed to 32x32, grey
  as RGB) and 32x32 versions of 737 ImageNet validation images whose classes are none of CIFAR-10's nor close to them.
"""

NOT_RUN = """## What was not run, and what it needs

The command is the same: `python -m reproduction` with the data and the weights in place. The reading code, the
measuring and the tables are tested end to end on small synthetic sets in the same layout.
"""

OTHERS = """### Other networks

Four CIFAR ResNets trained by others on all 50,000 training images, which are their bank. They have no validation set of
their own: calibrators are fitted on 5,000 clean test images and judged on the other 5,000. ECE, mean over severities 0
to 5, with its 95 % interval:
"""

COST = """### What a fit costs, step by step

C10 ResNet18 on two CPU cores that other work shared, so these are upper bounds; seconds. The last column is one
sample's way through network, neighbours and calibrator in milliseconds, the fastest of 50. The paper's: DenseNet169 on
ImageNet with a Titan X: DAC 175.72 + 452.91 + 197.35 = 825.98 s, 37.12 ms; DIA 11,090.09 s, 38.23 ms; ETS 149.35 s,
34.05 ms; SPL 131.04 s, 34.00 ms.
"""

VERDICT = """What DAC changes of each method's ECE (points; negative is better), with the paired 95 % interval:
"""

SUMMARY = (
    "- **{label}**: accuracy {clean:.2f} % in-domain and {worst:.2f} % at severity 5; uncalibrated in-domain ECE "
    "{ece:.2f}. DAC lowers the mean ECE of {better} of {methods} methods, of {surely} with an interval that excludes "
    "zero."
)

NO_LAYER = """
DAC without any layer is temperature scaling before the method. That alone has part of the gain of the \
selected layers: {cells}; for the other methods less than a quarter, or none.
"""

OOD_NAMES = {"fashion": "Fashion-MNIST", "imagenet": "ImageNet crops", "objectnet": "ObjectNet"}

FIGURES = {
    "severity": "ECE by severity (left) and its mean (right), without DAC (dashed, hollow) and with it (solid).",
    "severity-additional": "The same for PTS, IR and DIR.",
    "layer-importance": "Each layer's share of DAC's temperature, from input (left) to logits (right).",
    "all-layers": "DAC's weights along the network: the paper's selected layers, and all of them.",
    "k-sensitivity": "Mean ECE against k; level lines are the methods without DAC.",
    "data-efficiency": "Mean ECE against the share of the validation set; the band spans five random draws.",
    "trade-off": "The same in-domain and at severity 5.",
    "layer-choice": "Mean ECE without DAC, and with DAC on no layer, the logits, the selected and all layers.",
    "reliability": "Confidence minus accuracy, all corruptions and severities together, 15 bins of equal mass.",
    "ood-boxplots": "Confidence on the clean test set and on sets of other classes.",
}

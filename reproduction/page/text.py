"""The prose of the reproduction page."""

from __future__ import annotations

INTRODUCTION = """# The paper, reproduced

This page is generated from the measured results in `results/`. The paper is Tomani, Waseda, Shen, Cremers: *Beyond
In-Domain Scenarios: Robust Density-Aware Calibration*, ICML 2023.

Protocol: calibrators are fitted on 5,000 clean validation images and evaluated on 10,000 test images, clean and under
18 corruptions at 5 severities (91 conditions). Calibration errors and accuracy are in points (x 100). Intervals are
95 % bootstrap intervals over test images. All methods use the same resamples, so differences are paired. Two rows are
not in the paper: *Uncalibrated* by severity, and *Oracle*, temperature scaling fitted on the labels of each test
condition, which is a bound for methods with one temperature per condition. *DAC (published code)* is the variant in the
published research code: the first neighbour instead of the k-th, and squared distances.
"""

TRAININGS = """
The paper does not report accuracies. *Architecture* is the accuracy reported by the repository from which the paper
takes the CIFAR-100 architectures (weiaicunzai/pytorch-cifar100), with ten times the learning rate and all 50,000
training images; the paper and we use 45,000.

The CIFAR-10 networks were trained at the same time on one H200, so the times overlap. Trained alone, a step takes 1.73,
3.10 and 8.97 ms, which is 121, 218 and 630 seconds for 200 epochs.
"""

STATED_ACCURACIES = {"c100-resnet18": 75.61, "c100-vgg16": 72.93, "c100-densenet121": 77.01}
"""100 minus the top-1 error in the README of the repository with the architectures."""

READING = """## Tables

The tables show the paper's values next to ours. `ours - paper` compares two trainings of the same architecture on
different corrupted images, so absolute values are expected to differ. The claim to verify is the change with DAC. The
ECE is biased upwards, and resampling increases the bias. The interval corrects for this, so it lies mostly below the
value, and it is extended to include the value.
"""

FINDINGS = """## Definitions behind the paper's numbers

- **Table 1 averages over all 91 conditions, table 2 over six severities.** Both captions describe the same mean, but
  the ALL column of table 2 is smaller than the difference of the cells of table 1 in all rows. With the in-domain
  difference of table 2, (in-domain + 5 x shifted) / 6 = ALL gives the mean shifted difference, and (in-domain + 90 x
  shifted) / 91 gives the difference in table 1 up to rounding (C10 ResNet18 with IRM: -0.36 and -0.92 give -1.02; table
  1 has 5.93 - 4.90 = 1.03. C100 VGG16 with TS: -0.22 and -4.29 give -5.05; table 1 has 11.54 - 6.49 = 5.05). Therefore
  the tables above compare table 1 and similar tables with our mean over 91 conditions, and also show the mean over
  severities.
- **The column "FPR @95 %" of the out-of-domain tables is not the false positive rate at 95 % true positives.** The
  detection error is the smallest (1 - TPR + FPR) / 2 over all thresholds, so it can be at most (5 % + FPR@95) / 2. With
  an FPR@95 of 21.52 (ResNet152, TS) it could be at most 13.26, but the same row has 23.18. AUROC 84.75 and detection
  error 23.18 are consistent: two normal distributions with that AUROC have a detection error of 23.4 and an FPR@95 of
  about 58. For all six networks, the published column is 0.36 to 0.41 of an FPR@95 computed in this way, which would
  result from dividing the false positives by more than the out-of-domain samples. Our values follow the definition.
- **Class-wise ECE** is a sum over classes with 14 bins (15 edges) in the paper's table, and in ours.
"""

WHY_DIFFERENT = """## Why our numbers differ

- **Training.** The paper does not specify the weight decay, momentum or batch size; we use 5e-4, 0.9 and 128, and one
  seed.
- **Corruptions.** We use densecal's corruptions instead of the published CIFAR-10-C files. They use the published
  constants and procedural frost overlays.
- **Calibrators.** The methods are implemented from their definitions, not from their authors' code: rows of
  probabilities sum to one, splines interpolate with the correct weights, and DIA, PTS and DIR are fitted by
  quasi-Newton methods instead of a fixed number of stochastic steps.
- **Rounding.** The networks of DIA and PTS have several minima with nearly the same loss, and rounding, which depends
  on the processor, determines which of them a fit reaches. For C10 ResNet18 without DAC, L-BFGS in float64 with a
  relative tolerance of 1e-15 takes ten random starts of DIA to a loss of 0.41572 (six) or 0.41577 (four), with a mean
  ECE of 6.91 and 6.94, and ten random starts of PTS to losses from 0.18717 to 0.18751, with a mean ECE of 4.94 to 5.06.
  Therefore the third digit of these two methods depends on the processor; this is far inside the intervals. All other
  values are the same to six digits.
- **Out-of-domain sets.** ObjectNet does not apply to CIFAR. We use Fashion-MNIST (10,000 test images, zero-padded to
  32x32, as RGB) and, for CIFAR-10, 32x32 versions of 737 ImageNet validation images of classes that are not similar to
  those of CIFAR-10.
- **CIFAR-100.** We use PNG files of the same images in another order, so the validation images differ from the paper's.
  Logits are stored in steps of 1/16.
"""

NOT_RUN = """## Classifiers that were not run

These classifiers use the same command, `python -m reproduction`, with the data and the weights below. Reading the data,
measuring and making the tables are tested end to end on small synthetic data sets in the same layout. The data and
weights of the ImageNet classifiers were not available; results for other ImageNet networks are in `results/imagenet/`.
The training of C100 DenseNet121 stopped after epoch 151 of 200. CIFAR-100 has no rows for data efficiency, for cost and
for all layers, which were not measured.
"""

DEFAULT = """### The default and its adaptation (`python -m reproduction.studies.cifar100`)

The paper's DAC is fitted on clean images. densecal's default is also fitted on perturbed copies of the validation
images (shift fit), with distances to 500 centres per layer instead of all rows. *adapted* is the default after
`adapted_to` with the inputs of each condition, without labels. Here TS is fitted by NLL; in the tables above it is
fitted by the squared error. No constant was chosen on these networks. The table shows the mean ECE over severities 0 to
5 with its 95 % interval, its ratio to the ECE of TS, and the number of the 91 conditions in which the ECE is
significantly below or above that of TS (paired bootstrap):
"""

OTHERS = """### Other networks

These are four public CIFAR ResNets, trained on all 50,000 training images, which form the bank. No images are left for
validation, so the calibrators are fitted on 5,000 clean test images and evaluated on the other 5,000. Mean ECE over
severities 0 to 5, with its 95 % interval:
"""

COST = """### Cost of a fit by step

C10 ResNet18, in seconds, on two CPU cores that also ran other work, so these are upper bounds. The last column is the
inference time of one sample (network, neighbour search and calibrator) in milliseconds, the fastest of 50 runs. For
DenseNet169 on ImageNet with a Titan X, the paper reports: DAC 175.72 + 452.91 + 197.35 = 825.98 s, 37.12 ms; DIA
11,090.09 s, 38.23 ms; ETS 149.35 s, 34.05 ms; SPL 131.04 s, 34.00 ms.
"""

VERDICT = """Change of each method's ECE with DAC (points; negative is better), with the paired 95 % interval:
"""

SUMMARY = (
    "- **{label}**: accuracy {clean:.2f} % in-domain and {worst:.2f} % at severity 5; uncalibrated in-domain ECE "
    "{ece:.2f}. DAC lowers the mean ECE of {better} of {methods} methods, {surely} of them with an interval that "
    "excludes zero."
)

NO_LAYER = """
DAC without any layer is temperature scaling before the method. Relative to the gain of the selected layers, its \
gain is {cells}; for the other methods it is less than a quarter, or zero.
"""

OOD_NAMES = {"fashion": "Fashion-MNIST", "imagenet": "ImageNet crops", "objectnet": "ObjectNet"}

FIGURES = {
    "severity": "ECE by severity (left) and its mean (right), without DAC (dashed, hollow) and with it (solid).",
    "severity-additional": "The same for PTS, IR and DIR.",
    "layer-importance": "Each layer's share of DAC's temperature, from input (left) to logits (right).",
    "all-layers": "DAC's weights along the network: the paper's selected layers, and all of them.",
    "k-sensitivity": "Mean ECE against k; horizontal lines are the methods without DAC.",
    "data-efficiency": "Mean ECE against the share of the validation set; the band is the range of five random draws.",
    "trade-off": "The same in-domain and at severity 5.",
    "layer-choice": "Mean ECE without DAC, and with DAC on no layer, the logits, the selected and all layers.",
    "reliability": "Confidence minus accuracy, all corruptions and severities together, 15 bins of equal mass.",
    "ood-boxplots": "Confidence on the clean test set and on images of other classes.",
}

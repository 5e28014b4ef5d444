from __future__ import annotations

import re

import pytest

from densecal.shift import CORRUPTIONS, SEVERITIES

# The published tables, word for word: a name, then the constants of severities 1 to 5.
CIFAR = """
gaussian_noise .04 .06 .08 .09 .10
shot_noise 500 250 100 75 50
impulse_noise .01 .02 .03 .05 .07
speckle_noise .06 .10 .12 .16 .20
gaussian_blur .4 .6 .7 .8 1
defocus_blur (.3,.4) (.4,.5) (.5,.6) (1,.2) (1.5,.1)
motion_blur (6,1) (6,1.5) (6,2) (8,2) (9,2.5)
zoom_blur (1.06,.01) (1.11,.01) (1.16,.01) (1.21,.01) (1.26,.01)
snow (.1,.2,1,.6,8,3,.95) (.1,.2,1,.5,10,4,.9) (.15,.3,1.75,.55,10,4,.9) \
     (.25,.3,2.25,.6,12,6,.85) (.3,.3,1.25,.65,14,12,.8)
fog (.2,3) (.5,3) (.75,2.5) (1,2) (1.5,1.75)
frost (1,.2) (1,.3) (.9,.4) (.85,.4) (.75,.45)
brightness .05 .1 .15 .2 .3
contrast .75 .5 .4 .3 .15
saturate (.3,0) (.1,0) (1.5,0) (2,.1) (2.5,.2)
spatter (.62,.1,.7,.7,.5,0) (.65,.1,.8,.7,.5,0) (.65,.3,1,.69,.5,0) (.65,.1,.7,.69,.6,1) (.65,.1,.5,.68,.6,1)
elastic_transform (0,0,.08) (.05,.2,.07) (.08,.06,.06) (.1,.04,.05) (.1,.03,.03)
pixelate .95 .9 .85 .75 .65
jpeg_compression 80 65 58 50 40
"""
IMAGENET = """
gaussian_noise .08 .12 .18 .26 .38
shot_noise 60 25 12 5 3
impulse_noise .03 .06 .09 .17 .27
speckle_noise .15 .2 .35 .45 .6
gaussian_blur 1 2 3 4 6
defocus_blur (3,.1) (4,.5) (6,.5) (8,.5) (10,.5)
motion_blur (10,3) (15,5) (15,8) (15,12) (20,15)
zoom_blur (1.11,.01) (1.16,.01) (1.21,.02) (1.26,.02) (1.31,.03)
snow (.1,.3,3,.5,10,4,.8) (.2,.3,2,.5,12,4,.7) (.55,.3,4,.9,12,8,.7) \
     (.55,.3,4.5,.85,12,8,.65) (.55,.3,2.5,.85,12,12,.55)
fog (1.5,2) (2,2) (2.5,1.7) (2.5,1.5) (3,1.4)
frost (1,.4) (.8,.6) (.7,.7) (.65,.7) (.6,.75)
brightness .1 .2 .3 .4 .5
contrast .4 .3 .2 .1 .05
saturate (.3,0) (.1,0) (2,0) (5,.1) (20,.2)
spatter (.65,.3,4,.69,.6,0) (.65,.3,3,.68,.6,0) (.65,.3,2,.68,.5,0) (.65,.3,1,.65,1.5,1) (.67,.4,1,.65,1.5,1)
elastic_transform (2,.7,.1) (2,.08,.2) (.05,.01,.02) (.07,.01,.02) (.12,.01,.02)
pixelate .6 .5 .4 .3 .25
jpeg_compression 25 18 15 10 7
"""


def table(text):
    rows = {}
    for line in text.strip().splitlines():
        name, *cells = line.split()
        rows[name] = tuple(tuple(float(number) for number in re.findall(r"[\d.]+", cell)) for cell in cells)
    return rows


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_constant_is_the_published_one(name):
    corruption = CORRUPTIONS[name]
    assert corruption.cifar == table(CIFAR)[name]
    assert corruption.imagenet == table(IMAGENET)[name]
    for severity in SEVERITIES:
        assert corruption.constants(severity, size=32) == table(CIFAR)[name][severity - 1]
        assert corruption.constants(severity, size=224) == table(IMAGENET)[name][severity - 1]


def test_there_are_eighteen_corruptions_in_four_families():
    assert list(CORRUPTIONS) == list(table(CIFAR)) == list(table(IMAGENET))
    families = {}
    for each in CORRUPTIONS.values():
        families.setdefault(each.family, set()).add(each.name)
    assert families == {
        "noise": {"gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"},
        "blur": {"gaussian_blur", "defocus_blur", "motion_blur", "zoom_blur"},
        "weather": {"snow", "fog", "frost", "brightness", "spatter"},
        "digital": {"contrast", "saturate", "elastic_transform", "pixelate", "jpeg_compression"},
    }


def test_the_table_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        CORRUPTIONS["fog"] = CORRUPTIONS["snow"]


def test_sizes_between_the_tables_get_constants_between_them():
    between = CORRUPTIONS["gaussian_blur"].constants(3, size=85)[0]
    assert 0.7 < between < 3
    # 85 is nearly the geometric mean of 32 and 224, so nearly the mean of the two constants.
    assert between == pytest.approx((0.7 + 3) / 2, abs=0.02)


def test_lengths_grow_with_the_image_beyond_the_tables_and_other_constants_stay():
    assert CORRUPTIONS["gaussian_blur"].constants(3, size=448) == (6.0,)
    assert CORRUPTIONS["gaussian_blur"].constants(5, size=16) == (0.5,)
    assert CORRUPTIONS["gaussian_noise"].constants(5, size=448) == (0.38,)
    assert CORRUPTIONS["snow"].constants(1, size=448) == (0.1, 0.3, 3, 0.5, 20, 8, 0.8)


def test_the_tables_need_no_torch():
    import subprocess
    import sys

    code = "import sys; from densecal.shift import CORRUPTIONS, PERTURBATIONS; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

from __future__ import annotations

import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from densecal.shift import CORRUPTIONS, corrupt, corruption_grid  # noqa: E402


def picture(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_the_grid_names_all_corruptions_and_shows_every_severity_of_the_same_sample():
    image = picture(32, 32, 3)
    figure = corruption_grid(image, seed=4, index=7)
    texts = {text.get_text() for text in figure.texts}
    assert {name.replace("_", " ") for name in CORRUPTIONS} <= texts
    shown = [np.asarray(axes.get_images()[0].get_array()) for axes in figure.axes]
    assert len(shown) == 1 + 18 * 5
    assert (shown[0] == image).all()
    first = corrupt(image[None], "gaussian_noise", 1, seed=4, index=np.array([7]))[0]
    assert (shown[1] == first).all()
    file = io.BytesIO()
    figure.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")


@pytest.mark.parametrize("shape", [(3, 16, 16), (16, 16, 1)])
def test_planes_and_grey_images_are_drawn_too(shape):
    assert len(corruption_grid(torch.from_numpy(picture(*shape))).axes) == 91


@pytest.mark.parametrize("image", [picture(2, 16, 16, 3), picture(16, 16, 4), np.zeros((16, 16, 3))])
def test_what_is_not_one_image_is_refused(image):
    with pytest.raises(ValueError, match="image must be one uint8 image"):
        corruption_grid(image)


def test_a_photograph_is_scaled_to_the_size_of_the_published_constants():
    figure = corruption_grid(np.repeat(np.repeat(picture(25, 30, 3), 20, axis=0), 20, axis=1))
    assert np.asarray(figure.axes[0].get_images()[0].get_array()).shape == (224, 269, 3)

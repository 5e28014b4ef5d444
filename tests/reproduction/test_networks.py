from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from reproduction.classifiers import find_classifier  # noqa: E402
from reproduction.networks import CifarResNet, load_network  # noqa: E402

# Published sizes of these networks, in parameters.
SIZES = {20: 269_722, 32: 464_154, 44: 658_586, 56: 853_018}


@pytest.mark.parametrize("depth", SIZES)
def test_a_network_has_the_published_number_of_parameters(depth):
    network = CifarResNet(depth)
    assert sum(weight.numel() for weight in network.parameters()) == SIZES[depth]
    assert sum(isinstance(m, torch.nn.Conv2d | torch.nn.Linear) for m in network.modules()) == depth


@pytest.mark.parametrize("depth", [0, 2, 18, 40])
def test_a_depth_that_does_not_exist_is_refused(depth):
    with pytest.raises(ValueError, match=rf"depth must be 6 n \+ 2.*got {depth}"):
        CifarResNet(depth)


def test_the_shortcut_keeps_every_second_pixel_between_channels_of_zeros():
    block = CifarResNet(20).layer2[0]
    x = torch.rand(1, 16, 8, 8)
    shortcut = block._shortcut(x)
    assert shortcut.shape == (1, 32, 4, 4)
    assert (shortcut[:, 8:24] == x[:, :, ::2, ::2]).all()
    assert not shortcut[:, :8].any()
    assert not shortcut[:, 24:].any()


def test_names_with_and_without_a_prefix_are_read(tmp_path):
    network = CifarResNet(20).eval()
    weights = network.state_dict()
    torch.save({"state_dict": {f"module.{name}": value for name, value in weights.items()}}, tmp_path / "a.th")
    torch.save({"state_dict": weights}, tmp_path / "b.th")
    x = torch.rand(2, 3, 32, 32)
    for file in ("a.th", "b.th"):
        read = load_network(find_classifier("c10-resnet20"), tmp_path / file)
        assert not read.training
        assert torch.equal(read(x), network(x))


@pytest.mark.parametrize("content", [{"weights": 1}, {"state_dict": {}}])
def test_another_file_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "x.th")
    with pytest.raises(ValueError, match="do not match the model"):
        load_network(find_classifier("c10-resnet20"), tmp_path / "x.th")


@pytest.mark.parametrize("depth", SIZES)
def test_the_public_checkpoints_are_read_whole(shared_data, depth):
    file = next((shared_data / "cifar10-resnet").glob(f"resnet{depth}-*.th"))
    network = load_network(find_classifier(f"c10-resnet{depth}"), file)
    assert len(network.layer1) == (depth - 2) // 6
    with torch.inference_mode():
        assert torch.isfinite(network(torch.zeros(1, 3, 32, 32))).all()

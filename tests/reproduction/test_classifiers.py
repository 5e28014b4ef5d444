from __future__ import annotations

import pytest

from reproduction.classifiers import CLASSIFIERS, find_classifier

torch = pytest.importorskip("torch")

SMALL = [name for name, classifier in CLASSIFIERS.items() if classifier.dataset != "imagenet"]


def test_the_paper_has_twelve_classifiers_and_their_neighbours():
    paper = [classifier for classifier in CLASSIFIERS.values() if classifier.in_paper]
    assert len(paper) == 12
    assert {(c.dataset, c.k, c.bank_fraction) for c in paper} == {
        ("cifar10", 50, 1.0),
        ("cifar100", 200, 1.0),
        ("imagenet", 10, 0.01),
    }


@pytest.mark.parametrize("name", SMALL)
def test_a_cifar_network_takes_32_pixels_and_gives_one_logit_a_class(name):
    classifier = find_classifier(name)
    network = classifier.build().eval()
    with torch.inference_mode():
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, classifier.n_classes)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_layers_that_dac_reads_are_modules_of_the_network(name):
    classifier = find_classifier(name)
    with torch.device("meta"):
        network = classifier.build()
    modules = dict(network.named_modules())
    assert all(layer in modules for layer in classifier.layers)
    assert classifier.head in modules


def test_the_cifar100_stem_keeps_the_resolution():
    network = find_classifier("c100-resnet18").build().eval()
    sizes = []
    network.maxpool.register_forward_hook(lambda *call: sizes.append(call[2].shape[-1]))
    with torch.inference_mode():
        network(torch.zeros(1, 3, 32, 32))
    assert sizes == [32]


def test_parameters_match_the_published_architectures():
    count = {name: sum(p.numel() for p in find_classifier(name).build().parameters()) for name in SMALL[:3]}
    assert count == {"c10-resnet18": 11_181_642, "c10-vgg16": 134_301_514, "c10-densenet121": 6_964_106}


def test_an_unknown_classifier_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"c10-resnet18, .*got 'c10-resnet17'"):
        find_classifier("c10-resnet17")


def test_a_cifar_classifier_has_no_published_weights():
    with pytest.raises(ValueError, match="no published weights"):
        find_classifier("c10-resnet18").build(pretrained=True)

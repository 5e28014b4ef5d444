"""Calls from many threads on shared calibrators, banks and models."""

from __future__ import annotations

import threading
import warnings
from functools import partial
from itertools import count as counter

import numpy as np

import densecal
from tests.reliability.harness import NAMES, Tally, fitted, problem


def calls_from_threads(count, seed=0, n_threads=8):
    """Make so many calls from several threads; each must return what it returns alone."""
    import torch
    from torch import nn

    from densecal.torch import calibrate, extract

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    logits, labels, features = problem()
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))
    batches = [torch.randn(8, 6) for _ in range(3)]
    train, val = ([(torch.randn(40, 6), torch.randint(0, 4, (40,))) for _ in range(2)] for _ in range(2))
    few = {layer: values[:9] for layer, values in features.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        served = calibrate(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)), train, val, progress=False)
        model.eval()
        alone = extract(model, batches, progress=False)
    model.train()
    modes = [module.training for module in model.modules()]

    def run_extract():
        found = extract(model, batches, progress=False)
        return np.concatenate([found.logits, *found.features.values()], axis=1)

    def run_served():
        with torch.inference_mode():
            return served(batches[0]).numpy()

    calls = {"extract": run_extract, "served": run_served}
    calls["distances"] = lambda: fitted("dac").bank.distances(few)
    calls["fit"] = lambda: densecal.TemperatureScaling().fit(logits, labels).predict_proba(logits[:9])
    for name in NAMES:
        calls[name] = partial(fitted(name).predict_proba, logits[:9], features=few)
    expected = {name: call() for name, call in calls.items() if name != "extract"}
    expected["extract"] = np.concatenate([alone.logits, *alone.features.values()], axis=1)
    tally, numbers, order = Tally(), counter(), list(calls)

    def work():
        while (number := next(numbers)) < count:
            name = order[number % len(order)] if number % 4 else "extract"
            try:
                got = calls[name]()
            except Exception as error:
                tally.spoil(f"{name} in a thread: {error!r}")
                continue
            if not np.allclose(got, expected[name], atol=1e-6):
                tally.spoil(f"{name} in a thread returned another result")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=work) for _ in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    tally.tried = count
    if [module.training for module in model.modules()] != modes:
        tally.spoil("the model's modes were not restored")
    if sum(len(module._forward_hooks) for module in model.modules()):
        tally.spoil("hooks were left on the model")
    return tally

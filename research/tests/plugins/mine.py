"""Plug-ins as a researcher writes them: this file is not part of the package and imports only its door."""

import numpy as np

import foltr_research as fr


class Clipped(fr.Method):
    """FPDGD whose updates are at most clip_norm long."""

    clip_norm: float = 1.0

    def send(self, weights, start, rng):
        length = float(np.linalg.norm(weights - start))
        return start + (weights - start) * (self.clip_norm / max(length, self.clip_norm))


def half_median(updates, weights, byzantine, *, share=0.5):
    """Between the mean and the median."""
    mean = np.average(updates, axis=0, weights=weights)
    return (1 - share) * mean + share * np.median(updates, axis=0)


def reverse(seen, *, z=2.0):
    """The attackers' mean update, reversed and z times as long."""
    return -z * seen.own.mean(axis=0)


def impatient(relevance, draws):
    """A user who reads three documents and clicks relevant ones."""
    clicks = draws[:, 0] < np.where(relevance > 0, 0.9, 0.05)
    return clicks & (np.arange(len(relevance)) < 3)


def tiny(seed):
    """Features, relevance and query ids of forty queries."""
    rng = np.random.default_rng(seed)
    features = rng.random((400, 6))
    relevance = np.digitize(features @ [1, 2, 0, 0, -1, 0], [0.6, 1.2])
    return features, relevance, np.repeat(np.arange(40), 10)

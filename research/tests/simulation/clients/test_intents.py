from pathlib import Path

import numpy as np
import pytest

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.metrics import mean_ndcg_at_k
from foltr_research.simulation.clients.intents import (
    IntentJudgements,
    read_intents,
    shuffle_intents,
    synthetic_intents,
    with_synthetic_features,
)

DOCUMENTS = [(3, "a"), (3, "b"), (1, "c"), (1, "d"), (1, "e")]
LABELS = {1: "10010", 2: "00011", 3: "00000", 4: "01000"}


def put(folder: Path, labels: dict[int, str] = LABELS) -> Path:
    for intent, text in labels.items():
        lines = [f"{q} {intent} {doc} {label}" for (q, doc), label in zip(DOCUMENTS, text, strict=True)]
        (folder / f"{intent}.txt").write_text("\n".join(lines) + "\n")
    return folder


def judged(rng: np.random.Generator, n_queries: int = 60, docs: int = 50) -> IntentJudgements:
    """Four intents, most documents relevant to none."""
    relevance = (rng.random((4, n_queries * docs)) < np.array([[0.2], [0.1], [0.06], [0.04]])).astype(np.int16)
    return IntentJudgements(relevance, np.arange(n_queries + 1) * docs, np.arange(n_queries))


def best_linear(labels: RankingDataset) -> np.ndarray:
    """The least-squares ranker of a set."""
    centred = labels.features - labels.features.mean(axis=0)
    weights: np.ndarray = np.linalg.lstsq(centred, labels.relevance - labels.relevance.mean(), rcond=None)[0]
    return weights


def test_judgements_are_read_by_intent(tmp_path: Path) -> None:
    """Queries in the files' order, one row of labels for each intent."""
    found = read_intents(put(tmp_path))
    assert found.query_ids.tolist() == [3, 1]
    assert found.offsets.tolist() == [0, 2, 5]
    assert found.relevance.tolist() == [[1, 0, 0, 1, 0], [0, 0, 0, 1, 1], [0] * 5, [0, 1, 0, 0, 0]]


@pytest.mark.parametrize("line", ["3 2 a 1", "3 1 a 2", "3 1 a", "x 1 a 0", "3 1 a 0 0"])
def test_a_bad_judgement_is_named(tmp_path: Path, line: str) -> None:
    """File, line and what was expected."""
    (put(tmp_path) / "1.txt").write_text(f"3 1 z 0\n{line}\n")
    with pytest.raises(DataError, match=r"1\.txt:2: expected '<query> 1 <document> <0 or 1>'"):
        read_intents(tmp_path)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    """Missing, empty, about other documents, or with a query in two places; and settings that make none."""
    with pytest.raises(DataError, match=r"1\.txt: cannot be read"):
        read_intents(tmp_path)
    put(tmp_path)
    (tmp_path / "4.txt").write_text("3 4 a 1\n")
    with pytest.raises(DataError, match=r"4\.txt: other documents"):
        read_intents(tmp_path)
    (tmp_path / "4.txt").write_text("\n")
    with pytest.raises(DataError, match=r"4\.txt: no judgement"):
        read_intents(tmp_path)
    for intent in LABELS:
        (tmp_path / f"{intent}.txt").write_text(f"1 {intent} a 0\n2 {intent} b 0\n1 {intent} c 0\n")
    with pytest.raises(DataError, match=r"1\.txt: a query comes back"):
        read_intents(tmp_path)
    with pytest.raises(SettingsError, match=r"from 0 to 1, not 1\.5"):
        with_synthetic_features(judged(rng), rng, agreement=1.5)
    with pytest.raises(SettingsError, match="more than 4 features, not 4"):
        with_synthetic_features(judged(rng), rng, n_features=4)
    with pytest.raises(SettingsError, match="2 intents"):
        synthetic_intents(rng, n_intents=1)


def test_shuffling_renumbers_whole_queries_and_evens_intents_out(rng: np.random.Generator) -> None:
    """Each query keeps its rows of labels in some order; intents become about as frequent; the merger stays."""
    before = judged(rng, 400, 20)
    after = shuffle_intents(before, np.random.default_rng(1))
    again = shuffle_intents(before, np.random.default_rng(1))
    assert (after.relevance == again.relevance).all()
    for i in range(400):
        rows = slice(before.offsets[i], before.offsets[i + 1])
        assert sorted(before.relevance[:, rows].tolist()) == sorted(after.relevance[:, rows].tolist())
    counts = after.relevance.sum(axis=1)
    assert counts.min() > 0.8 * counts.max()
    assert (after.relevance.max(axis=0) == before.relevance.max(axis=0)).all()


def test_a_collection_shares_its_features_and_says_that_they_are_synthetic(rng: np.random.Generator) -> None:
    """One array for five sets; a document is relevant in general if it is for any intent."""
    judgements = judged(rng)
    found = with_synthetic_features(judgements, rng)
    assert found.merged.name == "intent-change-synthetic-features"
    assert [part.name for part in found.intents][:2] == [f"{found.merged.name}/intent-{i}" for i in (1, 2)]
    assert all(part.features is found.merged.features for part in found.intents)
    assert (found.merged.relevance == judgements.relevance.max(axis=0)).all()
    assert (found.merged.features.min(), found.merged.features.max()) == (0.0, 1.0)
    assert synthetic_intents(rng, 3, 20).merged.name == "synthetic-intents"


def personal_gain(judgements: IntentJudgements, agreement: float) -> float:
    """How much better an intent is ranked by its own least-squares ranker than by that of merged labels."""
    found = with_synthetic_features(judgements, np.random.default_rng(0), n_features=20, agreement=agreement)
    common = best_linear(found.merged)
    gains = [mean_ndcg_at_k(best_linear(s), s).mean - mean_ndcg_at_k(common, s).mean for s in found.intents]
    return float(np.mean(gains))


def test_agreement_decides_whether_a_ranker_of_its_own_helps_an_intent(rng: np.random.Generator) -> None:
    """Not at 1, where features tell intents apart no better than chance; much at 0; the more the less they agree."""
    judgements = shuffle_intents(judged(rng, 100, 50), rng)
    gains = [personal_gain(judgements, agreement) for agreement in (1.0, 0.5, 0.0)]
    assert abs(gains[0]) < 0.03
    assert gains[0] < gains[1] < gains[2]
    assert gains[2] > 0.1


@pytest.mark.parametrize("agreement", [0.0, 0.5, 1.0])
def test_drawn_intents_agree_as_much_as_asked_for(rng: np.random.Generator, agreement: float) -> None:
    """The cosine between the least-squares rankers of two intents is near `agreement`."""
    found = synthetic_intents(rng, 400, 60, 12, n_intents=3, agreement=agreement)
    rankers = [best_linear(s) for s in found.intents]
    unit = [w / np.linalg.norm(w) for w in rankers]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert unit[i] @ unit[j] == pytest.approx(agreement, abs=0.1)
    shares = [float(s.relevance.mean()) for s in found.intents]
    assert shares == pytest.approx([0.14, 0.095, 0.05], abs=0.002)


def test_the_real_judgements_are_read(real_data) -> None:
    """198 queries, 101,407 documents, as many relevant ones by intent as their description tells."""
    found = read_intents(real_data("intent-change"))
    assert (len(found.query_ids), found.relevance.shape) == (198, (4, 101_407))
    assert found.relevance.sum(axis=1).tolist() == [14_191, 10_297, 8_324, 5_226]
    means = np.mean([shuffle_intents(found, np.random.default_rng(i)).relevance.sum(axis=1) for i in range(20)], axis=0)
    assert means.min() > 0.9 * means.max()

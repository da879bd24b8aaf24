"""The figure shows both curves beside BM25, a panel for each set of settings."""

import json

from curves import draw, main


def results(clicks: str, seed: int) -> dict[str, object]:
    return {
        "settings": {"clicks": clicks, "seed": seed, "exploration": "swaps:0.05", "warm_start": 4.0},
        "base_mrr_at_10": 0.3,
        "full_information": 0.4,
        "model_mrr_at_10_by_round": [0.3, 0.32, 0.34 + seed / 100],
        "shown_minus_base": [0.01 * seed],
    }


def test_means_over_seeds_are_drawn(tmp_path):
    """Of the model's advantage over BM25, and of what people saw; files of other seeds are one panel."""
    figure = draw({"clean": [results("clean", 1), results("clean", 3)], "noisy": [results("noisy", 1)]})
    clean, noisy = figure.axes
    assert [axes.get_title() for axes in (clean, noisy)] == ["clean (seeds: 2)", "noisy (seeds: 1)"]
    lines = {line.get_label(): line.get_ydata() for line in clean.get_lines()}
    assert list(lines) == ["BM25", "full information", "what the model can", "what people saw"]
    assert [round(float(y), 6) for y in lines["what the model can"]] == [0.0, 0.02, 0.06]
    assert [round(float(y), 6) for y in lines["what people saw"]] == [0.02]
    files = [tmp_path / f"{seed}.json" for seed in (1, 2)]
    for seed, file in enumerate(files):
        file.write_text(json.dumps(results("clean", seed)))
    main([*map(str, files), "--out", str(tmp_path / "curves.png")])
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")

"""The figures of each part on the page of benchmarks, beside its peers'."""

from collections.abc import Callable, Iterable, Sequence

from bar_figures import Results, owner
from bars import HISTORIES, LEARNERS, MEMORY, READING, ROUNDS, RULES, SECURE, START, UNLEARNING
from page_text import number, table


def _learners(results: Results) -> Iterable[str]:
    if "learners" in results:
        yield table(
            ("learner", "ours, /s", "peer", "peer, /s", "ratio"),
            [
                (
                    row["what"],
                    number(row["ours_per_s"]),
                    row["peer"],
                    number(row["peer_per_s"]),
                    f"{row['ratio']:.1f}",
                )
                for row in results["learners"]["rows"]
            ],
        )
        ndcg = results["learners"]["ndcg"]
        yield (
            f"nDCG@10 of 200 queries: {ndcg['ours_ms']:.2f} ms, query by query {ndcg['peer_ms']:.2f} ms, "
            f"{ndcg['ratio']:.1f} times as long."
        )


def _reading(results: Results) -> Iterable[str]:
    if "reading" in results:
        titles = ("reader", "seconds", "peak of the process, MB", "above a process ready to read, in arrays")
        readers = (("ours", "ours"), ("scikit-learn", "peer"))
        rows = [
            (
                title,
                f"{one['seconds']:.2f}",
                number(one["peak"] / 1e6),
                f"{(one['peak'] - one['before']) / one['array']:.2f}",
            )
            for title, key in readers
            if (one := results["reading"].get(key))
        ]
        yield f"{results['reading']['megabytes']:.0f} MB of text:"
        yield table(titles, rows)
        ours = results["reading"]["ours"]
        yield (
            f"The same file again comes from the cache in {1e3 * ours['again']:.1f} ms. Loading the machine code takes "
            f"each process {ours['first']:.2f} s beside that, making it {ours['compiling']:.1f} s once on a machine."
        )


def _rounds(results: Results) -> Iterable[str]:
    if "rounds" in results:
        titles = (
            "n",
            "variant",
            "round, ms",
            "an update, ms",
            "bare exchange, ms",
            "ratio",
            "federator CPU, ms",
            "device CPU, ms",
        )
        yield table(
            titles,
            [
                (
                    number(row["n"]),
                    row["variant"],
                    f"{row['round_ms']:.1f}",
                    f"{row['per_update_ms']:.3f}",
                    f"{row['bare_ms']:.3f}",
                    f"{row['per_update_ms'] / row['bare_ms']:.1f}",
                    f"{row['federator_cpu_ms']:.3f}",
                    f"{row['device_cpu_ms']:.3f}",
                )
                for row in results["rounds"]
            ],
        )
        fixed = {row["variant"]: row["fixed_ms"] for row in results["rounds"] if row["fixed_ms"] is not None}
        told = ", ".join(f"{name} {ms:.1f} ms" for name, ms in fixed.items())
        yield f"What a round takes apart from its updates, where the line over n begins: {told}."
    if "rounds-flower" in results:
        kinds = {"legacy": "Flower, legacy gRPC", "deployment": "Flower, SuperLink and SuperNodes"}
        rows = []
        for row in results["rounds-flower"]:
            same = [one for one in results.get("rounds", []) if (one["n"], one["variant"]) == (row["n"], "unsigned")]
            ratio = f"{row['per_update_ms'] / same[0]['per_update_ms']:.1f}" if same else ""
            rows.append(
                (number(row["n"]), kinds[row["kind"]], f"{row['round_ms']:.1f}", f"{row['per_update_ms']:.2f}", ratio)
            )
        yield table(("n", "peer", "round, ms", "an update, ms", "in ours, unsigned"), rows)
    for process, profile in results.get("rounds-profile", {}).get("profiles", {}).items():
        yield (
            f"Where the processor time of the {process} goes in signed rounds of 1,000. What a function calls in C is "
            "its own, what it calls in Python is not; other threads are mostly the database's:"
        )
        pairs = zip(profile["folders"], profile["functions"], strict=False)
        rows = [(owner(of[0]), f"{of[1]:.0%}", f"`{by[0]}`", f"{by[1]:.0%}") for of, by in pairs]
        yield table(("code of", "share", "function", "share"), rows)


def _rules(results: Results) -> Iterable[str]:
    if "aggregation" in results:
        titles = (
            "n x d",
            "rule",
            "ours, ms",
            "limit, ms",
            "ratio",
            "memory, in the updates'",
            "byzfl, ms",
            "Flower, ms",
        )
        yield table(
            titles,
            [
                (
                    f"{row['n']:,} x {row['d']:,}",
                    row["rule"],
                    number(row["ours_ms"]),
                    number(row["limit_ms"]),
                    f"{row['ratio']:.2f}",
                    f"{row['memory']:.2f}",
                    *(number(row[peer]) if peer in row else "" for peer in ("byzfl_ms", "flwr_ms")),
                )
                for row in results["aggregation"]["results"]
            ],
        )


def _secure(results: Results) -> Iterable[str]:
    if "secure-sums" in results:
        titles = (
            "n",
            "d",
            "helpers",
            "a client, ms",
            "whole sum, ms",
            "SecAgg+: a client, ms",
            "whole, ms",
            "ratio of the whole",
        )
        rows = []
        for row in results["secure-sums"]["results"]:
            peer: Sequence[str] = ("", "", "")
            if "flwr_whole_ms" in row:
                ratio = row["flwr_whole_ms"] / row["whole_ms"]
                peer = (f"{row['flwr_client_ms']:.1f}", number(row["flwr_whole_ms"]), number(ratio))
            sizes = (number(row["clients"]), number(row["dim"]), str(row["helpers"]))
            rows.append((*sizes, f"{row['client_ms']:.2f}", f"{row['whole_ms']:.1f}", *peer))
        yield table(titles, rows)
        yield (
            "They are not the same thing: SecAgg+ needs no helpers and goes on when clients vanish in the middle "
            "([how long it takes](privacy.md#how-long-it-takes))."
        )
    if "norm-proofs" in results:
        yield table(
            ("d", "helpers", "a norm proof, a client, ms", "a helper, ms", "the federator, ms"),
            [
                (
                    number(row["dim"]),
                    str(row["helpers"]),
                    f"{row['client_ms']:.2f}",
                    f"{row.get('helper_ms', row['helper_numpy_ms']):.2f}",
                    f"{row.get('federator_ms', row['federator_numpy_ms']):.2f}",
                )
                for row in results["norm-proofs"]["results"]
            ],
        )
    if "secure-round" in results:
        both = results["secure-round"]
        yield f"A round of {both['n']} over MQTT:"
        yield table(
            ("kind", "median, s", "least, s", "processor time, ms"),
            [
                (
                    kind,
                    f"{both[kind]['median_s']:.2f}",
                    f"{both[kind]['least_s']:.2f}",
                    ", ".join(f"{name} {ms:.0f}" for name, ms in both[kind]["cpu_ms"].items()),
                )
                for kind in ("trusted", "secure")
            ],
        )


def _unlearning(results: Results) -> Iterable[str]:
    if "unlearning" in results:
        one = results["unlearning"]
        yield (
            f"Retraining takes {one['retrain_s']:.2f} s, unlearning {one['unlearn_s']:.2f} s: {one['ratio']:.1f} times "
            f"faster, with {one['steps_ratio']:.1f} times fewer local steps, where the thesis has "
            f"{one['steps_expected']:.1f}. Nothing is sent; over a network there are ten times fewer rounds, too."
        )


def _histories(results: Results) -> Iterable[str]:
    if "histories" in results:
        one = results["histories"]
        served = [(words, one[part]["answered"]) for words, part in _SERVED.items()]
        yield (
            f"{number(one['n_updates'])} updates of {number(one['n_clients'])} clients, {one['bytes'] / 1e9:.2f} GB; "
            f"a federator starts in {one['serving']['started_s']:.2f} s."
        )
        yield table(
            ("an update is answered", "median, ms", "longest, ms"),
            [(words, f"{waits['median_ms']:.0f}", f"{waits['most_ms']:.0f}") for words, waits in served],
        )
        yield table(
            ("question", "first time, ms", "then, ms"),
            [(words, f"{one['first_ms']:.0f}", f"{one['median_ms']:.1f}") for words, one in one["queries"].items()],
        )


_SERVED = {
    "usually": "serving",
    "while clients are forgotten": "forgetting",
    "while the bodies of old rounds go": "retention",
}


def _start(results: Results) -> Iterable[str]:
    rows = []
    if "start-up" in results:
        one = results["start-up"]
        rows += [
            ("`foltr --help`", f"{one['help_s']:.2f} s"),
            ("import of a device", f"{one['import_s']:.2f} s"),
            (
                "a device's first list by a model" + (", numba installed" if one["numba"] else ""),
                f"{one['rank_ms']:.1f} ms",
            ),
            ("a federator", f"{one['federator_s']:.2f} s"),
        ]
    for row in results.get("rounds-flower", []):
        if "link_s" in row:
            rows += [("Flower's SuperLink", f"{row['link_s']:.2f} s"), ("Flower's SuperNode", f"{row['node_s']:.2f} s")]
    if rows:
        yield table(("what", "ready after"), rows)


def _memory(results: Results) -> Iterable[str]:
    rows = [
        (
            row["aggregation"],
            number(row["n"]),
            number(row["dim"]),
            number(row["federator_mb"]),
            number(row["broker_mb"]),
            number(4e-6 * row["n"] * row["dim"]),
        )
        for name in ("memory-mean", "memory-median")
        for row in results.get(name, [])
    ]
    if rows:
        yield table(("rule", "n", "d", "federator, MB", "Mosquitto, MB", "a round's updates, MB"), rows)


FIGURES: dict[str, Callable[[Results], Iterable[str]]] = {
    LEARNERS: _learners,
    READING: _reading,
    ROUNDS: _rounds,
    RULES: _rules,
    SECURE: _secure,
    UNLEARNING: _unlearning,
    HISTORIES: _histories,
    START: _start,
    MEMORY: _memory,
}

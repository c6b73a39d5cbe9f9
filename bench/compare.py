"""Attend and PyTorch side by side: the same job by turns, in one run, and the ratio of their medians, as JSON.

    python3 bench/compare.py --attend build/release/app/cli/attend --python PYTHON_WITH_TORCH [--threads 2] [--turns 3]
                             [--shakespeare FOLDER_WITH_input.txt.gz] [--only training]

Each turn runs one engine, then the other; the figure of an engine is the median over all rounds of all turns, so that a
machine that is busy for a while slows both.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
parser = argparse.ArgumentParser()
parser.add_argument("--attend", default=os.path.join(root, "build/release/app/cli/attend"))
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--threads", default="2")
parser.add_argument("--turns", type=int, default=3)
parser.add_argument("--rounds", default="5")
parser.add_argument("--shakespeare", help="folder with input.txt.gz of karpathy/char-rnn")
parser.add_argument("--only", default="", help="only jobs whose name holds this")
args = parser.parse_args()

data = os.path.join(root, "data/tatoeba-zh-en")
model = os.path.join(root, "weights/tatoeba-zh-en")
peer = [args.python, os.path.join(root, "bench/peer_torch.py"), "--threads", args.threads, "--rounds", args.rounds]
ours = [args.attend, "--threads", args.threads, "--json", "bench"]


def training(recipe, *more):
    return [*ours, "training", os.path.join(root, "recipe", recipe), "--rounds", args.rounds, *more]


jobs = {
    "training tatoeba-zh-en": [
        training("tatoeba-zh-en.toml"),
        [*peer, "training", "--data", data, "--tokenizer", os.path.join(model, "tokenizer.model")],
        [*peer, "training", "--data", data, "--tokenizer", os.path.join(model, "tokenizer.model"), "--keep-memory"],
    ],
    "translation to en, greedy": [
        [*ours, "translation", os.path.join(data, "test.zh.gz"), "--to", "en", "--rounds", args.rounds],
        [*peer, "translation", "--data", data, "--model", model, "--to", "en"],
    ],
    "translation to zh, greedy": [
        [*ours, "translation", os.path.join(data, "test.en.gz"), "--to", "zh", "--rounds", args.rounds],
        [*peer, "translation", "--data", data, "--model", model, "--to", "zh"],
    ],
}
if args.shakespeare:
    jobs["training shakespeare-nanogpt-cpu"] = [
        training("shakespeare-nanogpt-cpu.toml", "--data", args.shakespeare, "--steps", "40"),
        [*peer, "shakespeare", "--data", args.shakespeare, "--steps", "40"],
    ]

for name, commands in jobs.items():
    if args.only not in name:
        continue
    rates = [[] for _ in commands]
    labels = [None] * len(commands)
    for _ in range(args.turns):
        for place, command in enumerate(commands):
            line = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            rates[place] += line["all"]
            labels[place] = line["engine"] + (", memory kept" if "--keep-memory" in command else "")
            unit = line["unit"]
    medians = [statistics.median(values) for values in rates]
    print(json.dumps({"job": name, "threads": int(args.threads), "unit": unit,
                      "median": {label: round(value, 1) for label, value in zip(labels, medians)},
                      "range": {label: [round(min(values), 1), round(max(values), 1)] for label, values in zip(labels, rates)},
                      "ratio": {label: round(medians[0] / value, 2) for label, value in zip(labels[1:], medians[1:])}}), flush=True)

"""What attention looks at, told by Attend in the fused pass and by PyTorch from the matrices: time and peak memory, as JSON.

    python3 bench/compare_inspection.py --attend build/release/app/cli/attend --python PYTHON_WITH_TORCH [--threads 1]
                                        [--rows 512,2048,8192,32768] [--top 8] [--turns 3]

Both compute attention and of all its rows entropy, mean distance, the weight on the first key, the query itself, the one
before and a list of keys, the largest keys and the log-sum-exp. Every run is a process of its own, the engines by turns, so
that the most memory a process held is that of one engine at one size. Where the matrices of all heads would not fit into
the memory that is free, both engines do one head, and the line says so.
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
parser.add_argument("--threads", default="1")
parser.add_argument("--rows", default="512,2048,8192,32768")
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--top", default="8")
parser.add_argument("--turns", type=int, default=3)
parser.add_argument("--rounds", default="3", help="of PyTorch in a process, after one to warm up")
parser.add_argument("--seconds", default="2", help="of Attend in a process; at least five rounds")
args = parser.parse_args()


def free_bytes():
    with open("/proc/meminfo") as info:
        return next(int(line.split()[1]) * 1024 for line in info if line.startswith("MemAvailable"))


def run(command):
    """The last line of what a process says, and the most memory it held; None where it was ended for want of memory."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said, complaint = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return json.loads(said.splitlines()[-1]), usage.ru_maxrss * 1024
    if code == -9 or "memory" in complaint:
        return None
    sys.exit(f"{' '.join(command)}: {complaint}")


for rows in map(int, args.rows.split(",")):
    # Scores and weights at once, and as much again as one of them for what is made of them.
    need, free = 3 * args.heads * rows * rows * 4, free_bytes()
    heads = args.heads if need < 0.9 * free else 1
    line = {"rows": rows, "heads": heads, "head_dim": 64, "top": int(args.top), "threads": int(args.threads)}
    if heads != args.heads:
        line["why_one_head"] = f"the matrices of {args.heads} heads need some {need / 1e9:.0f} GB, {free / 1e9:.0f} GB are free"
    ours = [args.attend, "--threads", args.threads, "--json", "bench", "statistics", "--rows", str(rows), "--heads", str(heads),
            "--top", args.top, "--seconds", args.seconds]
    theirs = [args.python, os.path.join(root, "bench/peer_torch.py"), "inspection", "--threads", args.threads, "--rounds", args.rounds,
              "--rows", str(rows), "--heads", str(heads), "--top", args.top]
    found = {"attend": [], "torch": []}
    fits = 3 * heads * rows * rows * 4 < 0.9 * free
    for _ in range(args.turns):
        found["attend"].append(run(ours))
        if fits:
            found["torch"].append(run(theirs))
    for engine, runs in found.items():
        if not runs or None in runs:
            line[engine] = "does not fit"
            continue
        line[engine] = {"seconds": statistics.median(told["seconds"] for told, _ in runs), "peak_bytes": max(peak for _, peak in runs)}
        told = runs[-1][0]
        if engine == "attend":
            line[engine] |= {"ratio_to_plain": statistics.median(told["ratio_to_plain"] for told, _ in runs),
                             "input_bytes": told["input_bytes"], "output_bytes": told["output_bytes"],
                             "scratch_bytes": told["scratch_bytes"]}
        else:
            line["engine"] = told["engine"]
            line[engine] |= {"statistics_seconds": statistics.median(told["statistics_seconds"] for told, _ in runs),
                             "bytes_before": told["bytes_before"], "matrix_bytes": told["matrix_bytes"]}
    if isinstance(line["attend"], dict) and isinstance(line["torch"], dict):
        line["times_faster"] = round(line["torch"]["seconds"] / line["attend"]["seconds"], 2)
        line["times_less_memory"] = round(line["torch"]["peak_bytes"] / line["attend"]["peak_bytes"], 1)
    print(json.dumps(line), flush=True)

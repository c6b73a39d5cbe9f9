"""PyTorch doing the jobs of `attend bench`, as JSON lines: same configuration, same data, same batch sizes.

    python3 bench/peer_torch.py training    --tokenizer FOLDER/tokenizer.model [--threads 2]
    python3 bench/peer_torch.py shakespeare --data FOLDER_WITH_input.txt.gz
    python3 bench/peer_torch.py translation --model FOLDER [--to zh]
    python3 bench/peer_torch.py attention
    python3 bench/peer_torch.py inspection --rows 2048 --heads 12 --top 8

`training` is recipe/tatoeba-zh-en.toml (encoder-decoder, 4 + 4 layers, width 128), `shakespeare` is
recipe/shakespeare-nanogpt-cpu.toml, `translation` runs the weights of an Attend model folder. Everything PyTorch offers on
a CPU is used: scaled_dot_product_attention, fused Adam, length-sorted batches with as little padding as possible.
`inspection` reads attention as one has to where the fused kernel keeps its weights to itself: eager attention that returns
the matrices, then what they tell.
Needs the packages torch, sentencepiece and safetensors; nothing else of the project depends on them.
"""
import argparse
import gzip
import json
import math
import os
import random
import statistics
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("job", choices=["training", "shakespeare", "translation", "attention", "inspection"])
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--data", default="data/tatoeba-zh-en")
parser.add_argument("--tokenizer", default="weights/tatoeba-zh-en/tokenizer.model")
parser.add_argument("--model", default="weights/tatoeba-zh-en")
parser.add_argument("--to", default="en", choices=["en", "zh"])
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--rows", type=int, default=2048)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--top", type=int, default=8)
parser.add_argument("--keep-memory", action="store_true",
                    help="tell glibc to keep freed memory, which PyTorch does not ask for but gains from")
args = parser.parse_args()

environment = {"OMP_NUM_THREADS": str(args.threads)}
if args.keep_memory:
    environment.update(MALLOC_MMAP_THRESHOLD_="2000000000", MALLOC_TRIM_THRESHOLD_="4000000000", MALLOC_TOP_PAD_="268435456")
if any(os.environ.get(key) != value for key, value in environment.items()):
    os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, **environment})

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(args.threads)
torch.manual_seed(1)
PAD, BOS, EOS = 0, 2, 3


def report(bench, what, unit, rates):
    print(json.dumps({"engine": f"PyTorch {torch.__version__}", "bench": bench, "what": what, "threads": torch.get_num_threads(),
                      "unit": unit, "median": statistics.median(rates), "all": rates}), flush=True)


# ---- The encoder-decoder of recipe/tatoeba-zh-en.toml ------------------------------------------------------------------
WIDTH, HEADS, INNER, LAYERS, VOCABULARY, DROPOUT = 128, 4, 256, 4, 6000, 0.2


def sinusoids(rows, width):
    position = torch.arange(rows, dtype=torch.float32)[:, None]
    angle = position / 10000 ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    table = torch.zeros(rows, width)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
    return table


def split_heads(x, parts):
    batch, rows, _ = x.shape
    return x.view(batch, rows, parts, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind(0)


def join_heads(x):
    batch, _, rows, _ = x.shape
    return x.transpose(1, 2).reshape(batch, rows, WIDTH)


class Attention(nn.Module):
    def __init__(self, cross):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.cross = cross
        if cross:
            self.query, self.key_value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        else:
            self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def mix(self, x, q, k, v, mask, causal=False):
        drop = DROPOUT if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, dropout_p=drop)
        return x + F.dropout(self.output(join_heads(y)), DROPOUT, self.training)

    def forward(self, x, memory=None, mask=None, causal=False):
        if self.cross:
            (q,), (k, v) = split_heads(self.query(self.norm(x)), 1), split_heads(self.key_value(memory), 2)
        else:
            q, k, v = split_heads(self.query_key_value(self.norm(x)), 3)
        return self.mix(x, q, k, v, mask, causal)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x):
        y = self.output(F.dropout(F.relu(self.inner(self.norm(x))), DROPOUT, self.training))
        return x + F.dropout(y, DROPOUT, self.training)


class Block(nn.Module):
    def __init__(self, decoder):
        super().__init__()
        setattr(self, "self", Attention(False))
        self.cross = Attention(True) if decoder else None
        self.feed_forward = FeedForward()


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(VOCABULARY, WIDTH) * WIDTH ** -0.5)
        self.encoder = nn.ModuleList(Block(False) for _ in range(LAYERS))
        self.decoder = nn.ModuleList(Block(True) for _ in range(LAYERS))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.register_buffer("positions", sinusoids(256, WIDTH), persistent=False)

    def embed(self, ids):
        x = F.embedding(ids, self.embedding) * math.sqrt(WIDTH) + self.positions[: ids.shape[1]]
        return F.dropout(x, DROPOUT, self.training)

    def encode(self, source):
        mask = (source != PAD)[:, None, None, :]
        mask = None if bool(mask.all()) else mask
        x = self.embed(source)
        for block in self.encoder:
            x = block.feed_forward(getattr(block, "self")(x, mask=mask))
        return self.encoder_norm(x), mask

    def loss(self, source, decoder_input, labels):
        memory, mask = self.encode(source)
        x = self.embed(decoder_input)
        for block in self.decoder:
            x = block.feed_forward(block.cross(getattr(block, "self")(x, causal=True), memory, mask))
        rows = (labels.reshape(-1) != PAD).nonzero()[:, 0]
        states = self.decoder_norm(x.reshape(-1, WIDTH)[rows])
        return F.cross_entropy(F.linear(states, self.embedding), labels.reshape(-1)[rows], label_smoothing=0.1), len(rows)

    @torch.inference_mode()
    def greedy(self, source):
        memory, mask = self.encode(source)
        longest, count = 2 * source.shape[1] + 10, source.shape[0]
        cross = [tuple(t.contiguous() for t in split_heads(block.cross.key_value(memory), 2)) for block in self.decoder]
        cache = [tuple(torch.empty(count, HEADS, longest, WIDTH // HEADS) for _ in range(2)) for _ in self.decoder]
        result, live, tokens = [[] for _ in range(count)], list(range(count)), torch.full((count,), BOS)
        for t in range(longest):
            x = (F.embedding(tokens, self.embedding) * math.sqrt(WIDTH) + self.positions[t])[:, None]
            for block, (ck, cv), (keys, values) in zip(self.decoder, cross, cache):
                own = getattr(block, "self")
                q, k, v = split_heads(own.query_key_value(own.norm(x)), 3)
                keys[:, :, t:t + 1], values[:, :, t:t + 1] = k, v
                x = own.mix(x, q, keys[:, :, : t + 1], values[:, :, : t + 1], None)
                (q,) = split_heads(block.cross.query(block.cross.norm(x)), 1)
                x = block.feed_forward(block.cross.mix(x, q, ck, cv, mask))
            tokens = F.linear(self.decoder_norm(x[:, 0]), self.embedding).argmax(-1)
            going = []
            for row, token in enumerate(tokens.tolist()):
                if token != EOS:
                    result[live[row]].append(token)
                    going.append(row)
            if not going:
                break
            if len(going) < len(live):
                kept = torch.tensor(going)
                tokens, live = tokens[kept], [live[row] for row in going]
                cross = [(a[kept], b[kept]) for a, b in cross]
                cache = [(a[kept], b[kept]) for a, b in cache]
                mask = None if mask is None else mask[kept]
        return result

    def load(self, folder):
        """The weights of an Attend model folder."""
        from safetensors.torch import load_file
        weights = load_file(os.path.join(folder, "model.safetensors"))
        own = dict(self.named_parameters())
        for name, value in weights.items():
            theirs = name.replace(".gain", ".weight")
            theirs = {"embedding.weight": "embedding", "encoder.norm.weight": "encoder_norm.weight", "encoder.norm.bias": "encoder_norm.bias",
                      "decoder.norm.weight": "decoder_norm.weight", "decoder.norm.bias": "decoder_norm.bias"}.get(theirs, theirs)
            own.pop(theirs).data.copy_(value.float())
        assert not own, f"the folder lacks {sorted(own)}"


def read(name):
    with gzip.open(os.path.join(args.data, name), "rt", encoding="utf8", newline="\n") as file:
        return file.read().split("\n")[:-1]


def padded(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def training():
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(model_file=args.tokenizer)
    tag = {language: pieces.piece_to_id(f"<2{language}>") for language in ("en", "zh")}
    ids = {language: pieces.encode(read(f"train.{language}.gz")) for language in ("en", "zh")}
    items = [([tag[b]] + x + [EOS], y + [EOS]) for a, b in (("en", "zh"), ("zh", "en")) for x, y in zip(ids[a], ids[b])]
    shuffler = random.Random(1)
    shuffler.shuffle(items)
    items = sorted(items[:32768], key=lambda item: (len(item[1]), len(item[0])))
    batches, batch = [], []
    for item in items:
        if batch and (len(batch) + 1) * len(item[1]) > 2048:
            batches.append(batch)
            batch = []
        batch.append(item)
    shuffler.shuffle(batches)
    model = Translator().train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def run(some):
        tokens, begin = 0, time.perf_counter()
        for batch in some:
            labels = padded([target for _, target in batch])
            decoder_input = torch.cat([torch.full((len(batch), 1), BOS), labels[:, :-1]], 1)
            loss, count = model.loss(padded([source for source, _ in batch]), decoder_input, labels)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            tokens += count
        return tokens / (time.perf_counter() - begin)

    run(batches[: args.steps])
    report("training", "tatoeba-zh-en" + (", memory kept" if args.keep_memory else ""), "target tokens/s",
           [run(batches[args.steps * i: args.steps * (i + 1)]) for i in range(1, args.rounds + 1)])


def shakespeare():
    text = gzip.open(os.path.join(args.data, "input.txt.gz"), "rt", encoding="utf8").read()
    number = {character: i for i, character in enumerate(sorted(set(text)))}
    data = torch.tensor([number[c] for c in text[: int(len(text) * 0.9)]])

    class GptBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
            self.query_key_value, self.output = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
            self.inner, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

        def forward(self, x):
            q, k, v = split_heads(self.query_key_value(self.norm1(x)), 3)
            x = x + self.output(join_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
            return x + self.down(F.gelu(self.inner(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(len(number), WIDTH), nn.Embedding(64, WIDTH)
            self.blocks, self.norm = nn.ModuleList(GptBlock() for _ in range(4)), nn.LayerNorm(WIDTH, bias=False)
            self.logits = nn.Linear(WIDTH, len(number), bias=False)
            self.logits.weight = self.tokens.weight
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, x, labels):
            h = self.tokens(x) + self.positions.weight
            for block in self.blocks:
                h = block(h)
            return F.cross_entropy(self.logits(self.norm(h)).view(-1, len(number)), labels.view(-1))

    model, columns = Gpt(), torch.arange(64)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)

    def run(steps):
        begin = time.perf_counter()
        for _ in range(steps):
            places = torch.randint(len(data) - 64, (12, 1)) + columns
            loss = model(data[places], data[places + 1])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        return steps * 12 * 64 / (time.perf_counter() - begin)

    run(args.steps)
    report("training", "shakespeare-nanogpt-cpu", "target tokens/s", [run(args.steps) for _ in range(args.rounds)])


def translation():
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(args.model, "tokenizer.model"))
    model = Translator().eval()
    model.load(args.model)
    lines = read("test.zh.gz" if args.to == "en" else "test.en.gz")
    tag = pieces.piece_to_id(f"<2{args.to}>")

    def run():
        begin = time.perf_counter()
        sources = [[tag] + ids + [EOS] for ids in pieces.encode(lines)]
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        for first in range(0, len(order), args.batch_size):
            pieces.decode(model.greedy(padded([sources[i] for i in order[first: first + args.batch_size]])))
        return len(lines) / (time.perf_counter() - begin)

    run()
    report("translation", f"{len(lines)} lines to {args.to}, greedy, batch {args.batch_size}", "sentences/s", [run() for _ in range(args.rounds)])


def attention():
    for rows in (512, 1024, 2048, 4096):
        for causal in (False, True):
            q, k, v = (torch.randn(1, 12, rows, 64, requires_grad=True) for _ in range(3))
            gradient = torch.randn(1, 12, rows, 64)
            scores = 12 * (rows * (rows + 1) / 2 if causal else rows * rows)
            forward, backward = [], []
            for round_number in range(args.rounds + 1):
                q.grad = k.grad = v.grad = None
                with torch.no_grad():
                    begin = time.perf_counter()
                    F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                    middle = time.perf_counter()
                output = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                before = time.perf_counter()
                output.backward(gradient)
                after = time.perf_counter()
                if round_number:
                    forward.append(scores * 256 / (middle - begin) * 1e-9)
                    backward.append(scores * 640 / (after - before) * 1e-9)
            name = f"{'causal' if causal else 'self'}_{rows}"
            report("attention forward", name, "GFLOP/s", forward)
            report("attention backward", name, "GFLOP/s", backward)


def memory(field):
    """Bytes of this process: VmRSS now, VmHWM the most so far."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


@torch.inference_mode()
def inspection():
    rows, heads = args.rows, args.heads
    # As attend does: of one thread the time it had, whoever else keeps the machine busy.
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    q, k, v = (torch.randn(1, heads, rows, 64) for _ in range(3))
    # The keys of `attend bench statistics`: a word, a sentence, and every 50th as separators would be.
    listed = torch.zeros(rows)
    listed[rows // 3: rows // 3 + 3] = listed[rows // 2: rows // 2 + 30] = listed[49::50] = 1
    listed = listed.nonzero()[:, 0]
    before = memory("VmRSS")

    def run():
        begin = clock()
        scores = (q * 64 ** -0.5) @ k.transpose(-1, -2)
        largest = scores.amax(-1)
        weights = scores.softmax(-1)
        del scores
        output = weights @ v
        middle = clock()
        place = torch.arange(rows, dtype=torch.float32)
        distances = (place[:, None] - place).abs_()
        told = {"log_sum_exp": largest - weights.amax(-1).log_(), "entropy": torch.special.entr(weights).sum(-1),
                "distance": torch.einsum("bhqk,qk->bhq", weights, distances), "first": weights[..., 0].clone(),
                "self": weights.diagonal(0, -2, -1).clone(), "previous": weights.diagonal(-1, -2, -1).clone(),
                "list": weights.index_select(-1, listed).sum(-1), "top": weights.topk(args.top)}
        return middle - begin, clock() - middle, output, told

    run()
    found = [run()[:2] for _ in range(args.rounds)]
    print(json.dumps({"engine": f"PyTorch {torch.__version__}", "bench": "inspection", "queries": rows, "keys": rows, "heads": heads,
                      "head_dim": 64, "top": args.top, "threads": torch.get_num_threads(), "matrix_bytes": heads * rows * rows * 4,
                      "seconds": statistics.median(a + b for a, b in found),
                      "attention_seconds": statistics.median(a for a, _ in found),
                      "statistics_seconds": statistics.median(b for _, b in found), "rounds": len(found),
                      "bytes_before": before, "peak_bytes": memory("VmHWM")}), flush=True)


{"training": training, "shakespeare": shakespeare, "translation": translation, "attention": attention,
 "inspection": inspection}[args.job]()

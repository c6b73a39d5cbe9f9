// A textbook forward pass in float64, written apart from the engine: what the page shows is held against it. It reads the
// shipped translator's files (pre-norm encoder-decoder, layer norm, ReLU, sinusoidal positions, tied logits).
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function readModel(folder) {
  const file = readFileSync(join(folder, 'model.safetensors'));
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.subarray(8, 8 + length).toString('utf8'));
  const tensors = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    const {
      dtype,
      shape,
      data_offsets: [begin, end],
    } = entry;
    const bytes = file.subarray(8 + length + begin, 8 + length + end);
    const count = shape.reduce((a, b) => a * b, 1),
      data = new Float64Array(count);
    for (let i = 0; i < count; ++i)
      data[i] = dtype === 'F16' ? half(bytes.readUInt16LE(2 * i)) : bytes.readFloatLE(4 * i);
    tensors[name] = { shape, data };
  }
  return { config: JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')), tensors };
}

const add = (a, b) => a.map((row, i) => row.map((value, x) => value + b[i][x]));

// rows times the transposed weight [out][in], plus bias; only output rows [from, to).
function linear(m, rows, name, from = 0, to = undefined) {
  const w = m.tensors[`${name}.weight`],
    bias = m.tensors[`${name}.bias`];
  const [outs, ins] = w.shape;
  return rows.map((row) => {
    const out = [];
    for (let o = from; o < (to ?? outs); ++o) {
      let sum = bias ? bias.data[o] : 0;
      for (let i = 0; i < ins; ++i) sum += row[i] * w.data[o * ins + i];
      out.push(sum);
    }
    return out;
  });
}

function norm(m, rows, name) {
  const gain = m.tensors[`${name}.gain`].data,
    bias = m.tensors[`${name}.bias`].data;
  return rows.map((row) => {
    const mean = row.reduce((a, b) => a + b, 0) / row.length;
    const variance = row.reduce((a, b) => a + (b - mean) ** 2, 0) / row.length;
    return row.map((value, i) => ((value - mean) / Math.sqrt(variance + m.config.norm_epsilon)) * gain[i] + bias[i]);
  });
}

function embed(m, ids) {
  const { width, embedding_scale: scale, position_base: base, first_position: first } = m.config;
  const table = m.tensors['embedding.weight'].data;
  return ids.map((id, position) =>
    Array.from({ length: width }, (_, i) => {
      const angle = (position + first) * base ** ((-2 * Math.floor(i / 2)) / width);
      return table[id * width + i] * scale + (i % 2 ? Math.cos(angle) : Math.sin(angle));
    }),
  );
}

// One attention with edits (set, add, scale, forbid, lock, head), all of whose intermediate values are kept.
function attend(m, name, normed, memory, causal, edits, record) {
  const { width, heads } = m.config,
    d = width / heads,
    scale = 1 / Math.sqrt(d);
  const cross = memory !== null;
  const q = cross ? linear(m, normed, `${name}.query`) : linear(m, normed, `${name}.query_key_value`, 0, width);
  const k = cross
    ? linear(m, memory, `${name}.key_value`, 0, width)
    : linear(m, normed, `${name}.query_key_value`, width, 2 * width);
  const v = cross
    ? linear(m, memory, `${name}.key_value`, width, 2 * width)
    : linear(m, normed, `${name}.query_key_value`, 2 * width, 3 * width);
  const mine = edits.filter((e) => e.attention === name && !e.off);
  const output = q.map(() => new Array(width).fill(0));
  const kept = { input: normed, q, k, v, scale, heads: [] };
  for (let h = 0; h < heads; ++h) {
    const cut = (row) => row.slice(h * d, (h + 1) * d);
    const products = q.map((a) => k.map((b) => cut(a).reduce((sum, value, i) => sum + value * b[h * d + i], 0)));
    const scaled = products.map((row) => row.map((value) => value * scale));
    const masked = scaled.map((row, i) => row.map((value, j) => (causal && j > i ? null : value)));
    const scores = masked.map((row) => row.slice()),
      locks = scores.map(() => new Map());
    for (const e of mine) {
      if (e.kind === 'head' || (e.head !== h && e.head !== -1)) continue;
      scores.forEach((row, i) =>
        row.forEach((score, j) => {
          if (score === null || (e.query !== -1 && e.query !== i) || (e.key !== -1 && e.key !== j)) return;
          if (e.kind === 'set') row[j] = e.value;
          if (e.kind === 'add') row[j] += e.value;
          if (e.kind === 'scale') row[j] *= e.value;
          if (e.kind === 'forbid') row[j] = null;
          if (e.kind === 'lock') locks[i].set(j, e.value);
        }),
      );
    }
    const weights = scores.map((row, i) => {
      const free = row.filter((value, j) => value !== null && !locks[i].has(j));
      const highest = Math.max(...free),
        sum = free.reduce((total, value) => total + Math.exp(value - highest), 0);
      const locked = [...locks[i].values()].reduce((a, b) => a + b, 0);
      return row.map((value, j) =>
        value === null ? 0 : locks[i].has(j) ? locks[i].get(j) : (Math.exp(value - highest) / sum) * (1 - locked),
      );
    });
    const mixes = weights.map((row) =>
      Array.from({ length: d }, (_, x) => row.reduce((sum, w, j) => sum + w * v[j][h * d + x], 0)),
    );
    let factor = 1;
    for (const e of mine) if (e.kind === 'head' && (e.head === h || e.head === -1)) factor *= e.value;
    mixes.forEach((mix, i) =>
      mix.forEach((value, x) => {
        output[i][h * d + x] = value * factor;
      }),
    );
    kept.heads.push({ products, scaled, masked, scores, weights, output: mixes });
  }
  kept.projected = linear(m, output, `${name}.output`);
  record[name] = kept;
  return kept.projected;
}

function feedForward(m, rows, name) {
  const inner = linear(m, norm(m, rows, `${name}.norm`), `${name}.inner`).map((row) =>
    row.map((value) => Math.max(0, value)),
  );
  return linear(m, inner, `${name}.output`);
}

// { attentions: { name: { q, k, v, heads: [...] } }, logits: [target rows][vocabulary] }
export function forward(m, source, target, edits = []) {
  const record = {};
  let x = embed(m, source);
  for (let l = 0; l < m.config.encoder.layers; ++l) {
    const name = `encoder.${l}`;
    x = add(x, attend(m, `${name}.self`, norm(m, x, `${name}.self.norm`), null, false, edits, record));
    x = add(x, feedForward(m, x, `${name}.feed_forward`));
  }
  const memory = norm(m, x, 'encoder.norm');
  let y = embed(m, target);
  for (let l = 0; l < m.config.decoder.layers; ++l) {
    const name = `decoder.${l}`;
    y = add(y, attend(m, `${name}.self`, norm(m, y, `${name}.self.norm`), null, true, edits, record));
    y = add(y, attend(m, `${name}.cross`, norm(m, y, `${name}.cross.norm`), memory, false, edits, record));
    y = add(y, feedForward(m, y, `${name}.feed_forward`));
  }
  const last = norm(m, y, 'decoder.norm'),
    table = m.tensors['embedding.weight'];
  const logits = last.map((row) =>
    Array.from({ length: table.shape[0] }, (_, id) =>
      row.reduce((sum, value, i) => sum + value * table.data[id * row.length + i], 0),
    ),
  );
  return { attentions: record, logits, width: m.config.width };
}

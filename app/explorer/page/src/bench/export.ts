// Taking it away: the lines of code that give the same numbers, tables, and a picture with live text.
import type { AttentionResult } from '../engine';
import { cellColour, light, type Tone } from '../colours';
import { largest } from '../grid';
import { show, toCsv } from '../numbers';
import { t } from '../words';
import { keyNames, queryNames, requestOf, type Bench } from './state';

const python = (value: unknown): string =>
  JSON.stringify(value)
    .replace(/\bnull\b/g, 'None')
    .replace(/\btrue\b/g, 'True')
    .replace(/\bfalse\b/g, 'False');

export function numpyLines(b: Bench): string {
  const keys = b.source === 'direct' ? b.k.length : b.source === 'cross' ? b.memory.length : b.x.length;
  const queries = b.source === 'direct' ? b.q.length : b.x.length;
  const out = ['import numpy as np', ''];
  if (b.source === 'direct') {
    out.push(
      `Q = np.array(${python(b.q)}, float)`,
      `K = np.array(${python(b.k)}, float)`,
      `V = np.array(${python(b.v)}, float)`,
    );
  } else {
    out.push(
      `X = np.array(${python(b.x)}, float)`,
      b.source === 'cross'
        ? `M = np.array(${python(b.memory)}, float)  # memory: keys and values come from here`
        : 'M = X',
      `Q = X @ np.array(${python(b.wq)}, float)`,
      `K = M @ np.array(${python(b.wk)}, float)`,
      `V = M @ np.array(${python(b.wv)}, float)`,
    );
  }
  out.push(
    `heads = ${b.heads}`,
    `queries, keys = ${queries}, ${keys}`,
    'split = lambda A: A.reshape(len(A), heads, -1).swapaxes(0, 1)  # [heads, rows, head_dim]',
    'q, k, v = split(Q), split(K), split(V)',
  );
  if (b.rotary) {
    out.push(
      'def rotate(a):  # rotary positions, pairs (i, i + half)',
      '    half = a.shape[-1] // 2',
      '    angle = np.arange(a.shape[1])[:, None] * 10000.0 ** (-np.arange(half) / half)',
      '    c, s = np.cos(angle), np.sin(angle)',
      '    return np.concatenate([a[..., :half] * c - a[..., half:] * s, a[..., half:] * c + a[..., :half] * s], -1)',
      'q, k = rotate(q), rotate(k)',
    );
  }
  out.push(
    `scale = ${b.scale === null ? '1 / np.sqrt(q.shape[-1])' : b.scale}`,
    'scores = scale * q @ k.swapaxes(1, 2)',
    'i, j = np.arange(queries)[:, None], np.arange(keys)',
  );
  const visible = {
    none: '',
    causal: 'j <= i',
    window: `(j >= i - ${b.mask.before}) & (j <= i)`,
    prefix: `(j <= i) | (j < ${b.mask.length})`,
    dense: `np.array(${python(b.mask.allowed)}) != 0`,
  }[b.mask.kind];
  if (visible) out.push(`scores = np.where(${visible}, scores, -np.inf)`);
  const cell = (e: { head: number; query: number; key: number }) =>
    `[${[e.head, e.query, e.key].map((n) => (n < 0 ? ':' : n)).join(', ')}]`;
  for (const e of b.edits) {
    if (e.kind === 'set') out.push(`scores${cell(e)} = np.where(np.isinf(scores${cell(e)}), -np.inf, ${e.value})`);
    if (e.kind === 'add') out.push(`scores${cell(e)} += ${e.value}`);
    if (e.kind === 'scale') out.push(`scores${cell(e)} *= ${e.value}`);
    if (e.kind === 'forbid') out.push(`scores${cell(e)} = -np.inf`);
  }
  out.push(
    'highest = np.where(np.isinf(scores.max(-1, keepdims=True)), 0, scores.max(-1, keepdims=True))',
    'weights = np.exp(scores - highest)',
    'weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)',
  );
  const locks = b.edits.filter((e) => e.kind === 'lock');
  if (locks.length) {
    out.push(
      `locks = ${python(locks.map((e) => [e.head, e.query, e.key, e.value]))}`,
      'locked = np.full(weights.shape, np.nan)',
      'for h, i, j, w in locks: locked[h, i, j] = w',
      'rest = np.where(np.isnan(locked), weights, 0)',
      'share = 1 - np.nansum(locked, -1, keepdims=True)',
      'touched = ~np.isnan(locked).all(-1, keepdims=True)',
      'weights = np.where(touched, np.where(np.isnan(locked), rest / np.maximum(rest.sum(-1, keepdims=True), 1e-300) * share, locked), weights)',
    );
  }
  out.push('output = (weights @ v).swapaxes(0, 1).reshape(queries, -1)');
  if (b.wo) out.push(`projected = output @ np.array(${python(b.wo)}, float)`);
  out.push(
    'np.set_printoptions(precision=6, suppress=True)',
    `print(weights, ${b.wo ? 'projected' : 'output'}, sep="\\n\\n")`,
  );
  return out.join('\n') + '\n';
}

export function pythonLines(b: Bench, address: string): string {
  return [
    '# Asks the running engine (attend explore), which computes the same bits as this page shows.',
    'import json, urllib.request',
    '',
    `request = json.loads(r'''${JSON.stringify(requestOf(b))}''')`,
    `call = urllib.request.Request("${address}api/v1/attention", json.dumps(request).encode(), {"Content-Type": "application/json"})`,
    'reply = json.load(urllib.request.urlopen(call))',
    'for head in reply["heads"]:',
    '    print(*head["weights"], sep="\\n")',
    `print(*reply["${b.wo ? 'projected' : 'concatenated'}"], sep="\\n")`,
    '',
  ].join('\n');
}

const floats = (rows: number[][]) =>
  `{${rows
    .flat()
    .map((value) => {
      const single = String(Number(Math.fround(value).toPrecision(9)));
      return /[.e]/.test(single) ? `${single}f` : `${single}.0f`;
    })
    .join(', ')}}`;

const float = (value: number) => floats([[value]]).slice(1, -1);

export function cppLines(b: Bench, r: AttentionResult): string {
  const queries = r.q.length,
    keys = r.k.length,
    headDim = r.q[0].length / b.heads,
    valueDim = r.v[0].length / b.heads;
  const mask = {
    none: '',
    causal: 'attend::CausalRule{}',
    window: `attend::WindowRule{${b.mask.before}, 0}`,
    prefix: 'attend::PrefixRule{prefix}',
    dense: `attend::DenseRule{allowed.data(), 0, 0, ${keys}, 1}`,
  }[b.mask.kind];
  const out = [
    '#include <cstdint>',
    '#include <cstdio>',
    '#include <vector>',
    '',
    '#include <attend/attention.h>',
    '',
    'int main() {',
    `  // Queries, keys and values as projected${r.rotated_q ? ' and rotated' : ''}: [rows, heads * head_dim].`,
    `  const std::vector<float> q = ${floats(r.rotated_q ?? r.q)};`,
    `  const std::vector<float> k = ${floats(r.rotated_k ?? r.k)};`,
    `  const std::vector<float> v = ${floats(r.v)};`,
    `  const std::int64_t queries = ${queries}, keys = ${keys}, heads = ${b.heads}, head_dim = ${headDim}, value_dim = ${valueDim};`,
    '  std::vector<float> output(queries * heads * value_dim), weights(heads * queries * keys);',
    '',
    '  const attend::AttentionItem item{.queries = queries, .keys = keys};',
  ];
  if (b.mask.kind === 'prefix') out.push(`  const std::vector<std::int64_t> prefix = {${b.mask.length}};`);
  if (b.mask.kind === 'dense')
    out.push(`  const std::vector<std::uint8_t> allowed = {${b.mask.allowed.flat().join(', ')}};`);
  if (b.edits.length) {
    out.push('  using Kind = attend::ScoreEdit::Kind;', '  const std::vector<attend::ScoreEdit> edits = {');
    for (const e of b.edits)
      out.push(
        `      {.kind = Kind::${e.kind}, .item = 0, .head = ${e.head}, .query = ${e.query}, .key = ${e.key}, .value = ${float(e.value ?? 0)}},`,
      );
    out.push('  };');
  }
  out.push(
    '  std::vector<attend::MatrixRequest> matrices;',
    '  for (std::int64_t h = 0; h < heads; ++h) {',
    '    matrices.push_back({.head = h, .weights = weights.data() + h * queries * keys});',
    '  }',
    '  attend::AttentionCall call;',
    '  call.query_heads = call.key_heads = heads;',
    '  call.head_dim = head_dim;',
    '  call.value_dim = value_dim;',
    '  call.query = {q.data(), heads * head_dim, head_dim};',
    '  call.key = {k.data(), heads * head_dim, head_dim};',
    '  call.value = {v.data(), heads * value_dim, value_dim};',
    '  call.items = {&item, 1};',
  );
  if (mask) out.push(`  call.mask = {${mask}};`);
  if (b.scale !== null) out.push(`  call.rules.scale = ${float(b.scale)};`);
  if (b.edits.length) out.push('  call.edits = edits;');
  out.push(
    '  call.output = {output.data(), heads * value_dim, value_dim};',
    '  call.matrices = matrices;',
    '  attend::attention_forward(call);',
    '',
    '  const auto print = [](const std::vector<float>& numbers, std::int64_t columns) {',
    "    for (std::size_t i = 0; i < numbers.size(); ++i) std::printf(\"%.6f%c\", numbers[i], (i + 1) % columns ? ' ' : '\\n');",
    '  };',
    '  print(weights, keys);',
  );
  if (b.wo) {
    out.push(
      '  // The heads side by side, times W_O.',
      `  const std::int64_t width = ${b.wo[0].length};`,
      `  const std::vector<float> w_o = ${floats(b.wo)};`,
      '  std::vector<float> projected(queries * width);',
      '  for (std::int64_t i = 0; i < queries; ++i)',
      '    for (std::int64_t x = 0; x < heads * value_dim; ++x)',
      '      for (std::int64_t c = 0; c < width; ++c) projected[i * width + c] += output[i * heads * value_dim + x] * w_o[x * width + c];',
      '  print(projected, width);',
    );
  } else out.push('  print(output, heads * value_dim);');
  out.push('}', '');
  return out.join('\n');
}

// Every matrix of every head, each with the names of its rows and columns.
export function allCsv(b: Bench, r: AttentionResult): string {
  const queries = queryNames(b, r.q.length),
    keys = keyNames(b, r.k.length);
  const numbered = (m: unknown[][]) => m[0].map((_, i) => `${i}`);
  const parts: { title: string; rows: (number | null)[][]; side: string[]; top: string[] }[] = [];
  const add = (title: string, rows: (number | null)[][] | null, side?: string[], top?: string[]) => {
    if (rows) parts.push({ title, rows, side: side ?? rows.map((_, i) => `${i}`), top: top ?? numbered(rows) });
  };
  if (b.source !== 'direct') {
    add('X', b.x, queries);
    if (b.source === 'cross') add('M', b.memory, keys);
    add('W_Q', b.wq);
    add('W_K', b.wk);
    add('W_V', b.wv);
  }
  add('Q', r.q, queries);
  add('K', r.k, keys);
  add('V', r.v, keys);
  add('rotated Q', r.rotated_q, queries);
  add('rotated K', r.rotated_k, keys);
  r.heads.forEach((head, h) => {
    for (const name of ['products', 'scaled', 'masked', 'scores', 'weights'] as const)
      add(`${name}, head ${h}`, head[name], queries, keys);
    add(`output, head ${h}`, head.output, queries);
  });
  add('concatenated', r.concatenated, queries);
  if (b.wo) add('W_O', b.wo);
  add('output W_O', r.projected, queries);
  const quoted = (text: string) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  return parts
    .map(
      ({ title, rows, side, top }) =>
        `# ${title}\n${['', ...top].map(quoted).join(',')}\n${toCsv(rows)
          .trimEnd()
          .split('\n')
          .map((line, i) => `${quoted(side[i])},${line}`)
          .join('\n')}\n`,
    )
    .join('\n');
}

// The matrices from left to right, as a figure: real text, colours by meaning, a caption with what it shows.
export function svgOf(b: Bench, r: AttentionResult): string {
  const head = r.heads[Math.min(b.chosen.head, r.heads.length - 1)];
  const queries = queryNames(b, r.q.length),
    keys = keyNames(b, r.k.length);
  const parts: {
    title: string;
    rows: (number | null)[][];
    tone: Tone;
    side: string[] | null;
    top: string[] | null;
    sideTone: string;
  }[] = [
    { title: 'Q', rows: r.q, tone: 'q', side: queries, top: null, sideTone: light.hues.q },
    { title: 'K', rows: r.k, tone: 'k', side: keys, top: null, sideTone: light.hues.k },
    { title: 'V', rows: r.v, tone: 'v', side: keys, top: null, sideTone: light.hues.k },
    { title: t('bench.scores'), rows: head.scores, tone: 's', side: queries, top: keys, sideTone: light.hues.q },
    { title: t('bench.weights'), rows: head.weights, tone: 'w', side: queries, top: keys, sideTone: light.hues.q },
    {
      title: r.projected ? `${t('row.output')} W_O` : t('row.output'),
      rows: r.projected ?? r.concatenated,
      tone: 'v',
      side: queries,
      top: null,
      sideTone: light.hues.q,
    },
  ];
  const numbers = Math.max(...parts.map((p) => p.rows[0].length)) <= 12;
  const w = numbers ? 48 : 8,
    h = numbers ? 24 : 8,
    gap = 28,
    margin = 16,
    top = 54;
  const escape = (text: string) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  let x = margin,
    tall = 0,
    body = '';
  for (const p of parts) {
    const side = p.side
      ? 8 + Math.min(80, Math.max(...p.side.map((s) => [...s].reduce((sum, c) => sum + (c > '\u2e80' ? 12 : 7), 0))))
      : 0;
    x += side;
    body += `<text x="${x}" y="${margin + 12}" font-weight="600">${escape(p.title)}</text>`;
    p.top?.forEach((label, c) => {
      if (numbers || c % 4 === 0)
        body += `<text x="${x + c * w + w / 2}" y="${top - 6}" text-anchor="middle" font-size="11" fill="${light.hues.k}">${escape(label)}</text>`;
    });
    const size = p.tone === 'w' ? 1 : largest(p.rows);
    p.rows.forEach((row, i) => {
      if (p.side && (numbers || i % 2 === 0))
        body += `<text x="${x - 6}" y="${top + i * h + h / 2 + 4}" text-anchor="end" font-size="11" fill="${p.sideTone}">${escape(p.side[i])}</text>`;
      row.forEach((value, c) => {
        const fill = value === null ? 'url(#masked)' : cellColour(light, p.tone, value, size);
        body += `<rect x="${x + c * w}" y="${top + i * h}" width="${w - 1}" height="${h - 1}" fill="${fill}"/>`;
        const strong = value !== null && size > 0 && Math.abs(value) / size > 0.5;
        if (numbers)
          body += `<text x="${x + c * w + w / 2}" y="${top + i * h + 16}" text-anchor="middle" font-size="11"${strong && value !== null ? ' fill="#fff"' : ''}>${show(value)}</text>`;
      });
    });
    x += p.rows[0].length * w + gap;
    tall = Math.max(tall, p.rows.length * h);
  }
  const width = x - gap + margin,
    total = top + tall + 36;
  const caption = [
    'Attend',
    t('export.bench', b.chosen.head, b.heads, show(r.scale, 4), t(`mask.${b.mask.kind}`)),
    ...(b.edits.length ? [t('export.edits', b.edits.length)] : []),
    'float32',
  ].join(' · ');
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${total}" viewBox="0 0 ${width} ${total}" font-family="system-ui, 'PingFang SC', 'Noto Sans SC', sans-serif" font-size="13" fill="${light.ink}">` +
    `<defs><pattern id="masked" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6 6 0" stroke="${light.faint}" stroke-width="0.8"/></pattern></defs><rect width="100%" height="100%" fill="#fff"/>${body}` +
    `<text x="${margin}" y="${total - 12}" font-size="11" fill="${light.faint}">${escape(caption)}</text></svg>`
  );
}

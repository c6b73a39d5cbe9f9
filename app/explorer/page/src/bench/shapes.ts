// Changing shapes: what is there stays, what is new is drawn from the engine's random numbers (one decimal), so that nobody
// meets a matrix of zeros.
import type { Matrix } from '../engine';
import { engine } from '../shared';
import type { Bench } from './state';

export async function normal(
  rows: number,
  columns: number,
  seed: number,
  deviation = 1,
  decimals = 1,
): Promise<Matrix> {
  const m = await engine.operation({ name: 'normal', rows, columns, seed, deviation });
  const unit = 10 ** decimals;
  return m.map((row) => row.map((value) => Math.round(value * unit) / unit + 0));
}

async function fit(m: Matrix, rows: number, columns: number, seed: number): Promise<Matrix> {
  if (m.length === rows && m[0]?.length === columns) return m;
  const grows = rows > m.length || columns > (m[0]?.length ?? 0);
  const fresh = grows ? await normal(rows, columns, seed) : null;
  return Array.from({ length: rows }, (_, r) => Array.from({ length: columns }, (_, c) => m[r]?.[c] ?? fresh![r][c]));
}

export interface Shape {
  tokens: number;
  memory: number;
  width: number;
  heads: number;
  headDim: number;
}

export function shapeOf(b: Bench): Shape {
  return b.source === 'direct'
    ? {
        tokens: b.q.length,
        memory: b.k.length,
        width: b.q[0]?.length ?? 1,
        heads: b.heads,
        headDim: (b.q[0]?.length ?? b.heads) / b.heads,
      }
    : {
        tokens: b.x.length,
        memory: b.memory.length,
        width: b.x[0].length,
        heads: b.heads,
        headDim: Math.max(1, Math.floor(b.wq[0].length / b.heads)),
      };
}

export async function reshape(b: Bench, s: Shape): Promise<Partial<Bench>> {
  const inner = s.heads * s.headDim;
  const keys = b.source === 'self' ? s.tokens : s.memory;
  const edits = b.edits.filter((e) => e.head < s.heads && e.query < s.tokens && e.key < keys);
  const chosen = {
    head: Math.min(b.chosen.head, s.heads - 1),
    query: Math.min(b.chosen.query, s.tokens - 1),
    key: Math.min(b.chosen.key, keys - 1),
  };
  const mask =
    b.mask.kind === 'dense'
      ? {
          ...b.mask,
          allowed: Array.from({ length: s.tokens }, (_, r) =>
            Array.from({ length: keys }, (_, c) => b.mask.allowed[r]?.[c] ?? 1),
          ),
        }
      : b.mask;
  if (b.source === 'direct') {
    return {
      heads: s.heads,
      edits,
      chosen,
      mask,
      q: await fit(b.q, s.tokens, inner, 11),
      k: await fit(b.k, s.memory, inner, 12),
      v: await fit(b.v, s.memory, inner, 13),
      wo: b.wo ? await fit(b.wo, inner, inner, 7) : null,
    };
  }
  return {
    heads: s.heads,
    edits,
    chosen,
    mask,
    x: await fit(b.x, s.tokens, s.width, 1),
    memory: await fit(b.memory, s.memory, s.width, 2),
    wq: await fit(b.wq, s.width, inner, 3),
    wk: await fit(b.wk, s.width, inner, 4),
    wv: await fit(b.wv, s.width, inner, 5),
    wo: b.wo ? await fit(b.wo, inner, s.width, 6) : null,
  };
}

export async function randomise(b: Bench, seed: number): Promise<Partial<Bench>> {
  const again = (m: Matrix, i: number, deviation = 1) =>
    m.length ? normal(m.length, m[0].length, seed * 16 + i, deviation, 2) : Promise.resolve(m);
  const spread = 1 / Math.sqrt(b.x[0].length);
  return b.source === 'direct'
    ? { seed, q: await again(b.q, 1), k: await again(b.k, 2), v: await again(b.v, 3), edits: [] }
    : {
        seed,
        x: await again(b.x, 1),
        memory: await again(b.memory, 2),
        wq: await again(b.wq, 3, spread),
        wk: await again(b.wk, 4, spread),
        wv: await again(b.wv, 5, spread),
        wo: b.wo ? await again(b.wo, 6, spread) : null,
        edits: [],
      };
}

// What the page itself says of the row under a finger until the engine has answered: that row in every matrix it reaches.
import { computed, signal } from '@preact/signals';
import type { AttentionResult, Matrix } from '../engine';
import { logSumExp, standsIn, type StandIn } from '../softmax';
import { bench, result, settled } from './state';

export const preview = signal<({ head: number; query: number } & StandIn) | null>(null);

// The values of one head, kept as long as the engine's answer is the same.
let sliced: { v: Matrix; head: number; heads: number; values: Matrix } | null = null;
export function valuesOf(r: AttentionResult, head: number, heads: number): Matrix {
  if (sliced?.v !== r.v || sliced.head !== head || sliced.heads !== heads) {
    const width = r.v[0].length / heads;
    sliced = { v: r.v, head, heads, values: r.v.map((row) => row.slice(head * width, (head + 1) * width)) };
  }
  return sliced.values;
}

// The preview, where it stands for what the workbench shows now.
export const standing = computed(() => {
  const b = bench.value,
    r = result.value,
    p = preview.value;
  if (
    !p ||
    !r ||
    r.heads.length !== b.heads ||
    p.head >= b.heads ||
    p.query >= r.q.length ||
    p.weights.length !== r.k.length
  )
    return null;
  return standsIn(p, b.edits, settled.value?.edits) ? p : null;
});

const withRow = <Row>(rows: Row[], at: number, row: Row): Row[] => rows.map((old, i) => (i === at ? row : old));

// The engine's answer with the previewed row in it. Every other row is the one the engine sent, and the same array.
export const seen = computed((): AttentionResult | null => {
  const r = result.value,
    p = standing.value;
  if (!r || !p) return r;
  const { head, query } = p,
    had = r.heads[head],
    width = had.output[0].length;
  const concatenated = r.concatenated[query].slice();
  p.output.forEach((value, x) => {
    concatenated[head * width + x] = value;
  });
  const wo = bench.value.wo;
  return {
    ...r,
    heads: withRow(r.heads, head, {
      ...had,
      scores: withRow(had.scores, query, p.scores),
      weights: withRow(had.weights, query, p.weights),
      output: withRow(had.output, query, p.output),
      log_sum_exp: withRow(had.log_sum_exp, query, logSumExp(p.scores)),
    }),
    concatenated: withRow(r.concatenated, query, concatenated),
    projected:
      r.projected && wo && wo.length === concatenated.length
        ? withRow(
            r.projected,
            query,
            wo[0].map((_, c) => concatenated.reduce((sum, value, i) => sum + value * wo[i][c], 0)),
          )
        : r.projected,
  };
});

// One row recomputed in the page, in float64, so that a drag is felt at once. What stays on the screen is the engine's answer
// to the same edits; this is only what stands there for the frames in between.
import type { ScoreEdit } from './engine';

export interface RowPreview {
  scores: (number | null)[];
  weights: number[];
  output: number[];
}

// A preview stands for one list of edits (null: a drag that is not over) and as long as the engine has not answered that list.
// It is never taken away by an answer to an older one, so that quick steps with the arrow keys all count.
export interface StandIn extends RowPreview {
  edits: readonly unknown[] | null;
}
export const standsIn = (
  preview: StandIn | null,
  edits: readonly unknown[],
  answered: readonly unknown[] | undefined,
): boolean => preview !== null && (preview.edits === null || (preview.edits === edits && answered !== edits));

export function previewRow(masked: (number | null)[], edits: ScoreEdit[], values: number[][]): RowPreview {
  const scores = masked.slice();
  const locked = new Map<number, number>();
  for (const edit of edits) {
    const keys = edit.key < 0 ? scores.keys() : [edit.key];
    for (const key of keys) {
      const score = scores[key];
      if (score === null || score === undefined) continue;
      if (edit.kind === 'set') scores[key] = edit.value ?? 0;
      else if (edit.kind === 'add') scores[key] = score + (edit.value ?? 0);
      else if (edit.kind === 'scale') scores[key] = score * (edit.value ?? 1);
      else if (edit.kind === 'forbid') scores[key] = null;
      else locked.set(key, edit.value ?? 0);
    }
  }
  const weights = softmaxWithLocks(scores, locked);
  const width = values[0]?.length ?? 0;
  const output = new Array<number>(width).fill(0);
  weights.forEach((weight, key) => {
    if (weight === 0) return;
    for (let x = 0; x < width; ++x) output[x] += weight * values[key][x];
  });
  return { scores, weights, output };
}

export function softmaxWithLocks(scores: (number | null)[], locked: Map<number, number>): number[] {
  let fixed = 0;
  for (const [key, weight] of locked) if (scores[key] !== null) fixed += weight;
  let highest = -Infinity;
  scores.forEach((score, key) => {
    if (score !== null && !locked.has(key)) highest = Math.max(highest, score);
  });
  let sum = 0;
  const weights = scores.map((score, key) => {
    if (score === null) return 0;
    if (locked.has(key)) return locked.get(key)!;
    const e = Math.exp(score - highest);
    sum += e;
    return e;
  });
  return weights.map((weight, key) =>
    scores[key] === null || locked.has(key) ? weight : sum > 0 ? (weight / sum) * (1 - fixed) : 0,
  );
}

// log of the sum of exp(score), null where every key is masked.
export function logSumExp(scores: (number | null)[]): number | null {
  let highest = -Infinity;
  for (const score of scores) if (score !== null) highest = Math.max(highest, score);
  if (highest === -Infinity) return null;
  let sum = 0;
  for (const score of scores) if (score !== null) sum += Math.exp(score - highest);
  return highest + Math.log(sum);
}

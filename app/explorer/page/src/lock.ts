// How much a weight can be locked to, and why it is another number than the one that was typed.
import { show } from './numbers';
import { hush, say } from './shared';
import { t } from './words';

// `scores` of the row, null where hidden; `others`: the locks of its other keys, by key. They leave the rest to this key, and all of it
// where no further key is there to share. Rounded down to six decimals: a sum of locks beyond 1 by rounding would be refused.
export function lockable(
  wanted: number,
  key: number,
  scores: (number | null)[],
  others: { key?: number; value?: number }[],
): number {
  const bound = new Set(others.map((lock) => lock.key)),
    alone = scores.length > 0 && !scores.some((score, other) => other !== key && score !== null && !bound.has(other));
  const left = Math.max(0, 1 - others.reduce((sum, lock) => sum + (lock.value ?? 0), 0)),
    value = alone ? left : Math.max(0, Math.min(left, wanted));
  if (Math.abs(value - wanted) <= 1e-6) hush('number');
  else say(alone ? t('bench.lock.alone', show(value)) : t('bench.lock.room', show(left)), 'info', 'number');
  return alone ? value : Math.floor(value * 1e6 + 1e-6) / 1e6;
}

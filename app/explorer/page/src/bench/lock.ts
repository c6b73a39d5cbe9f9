// How much a weight can be locked to: what the other locks of its row leave, and all of that where no other key is there to share.
import type { AttentionResult } from '../engine';
import { show } from '../numbers';
import { hush, say } from '../shared';
import { t } from '../words';
import { roomForLock, rowEdits, type Bench } from './state';

// The weight nearest to the one that is wanted; where it is another, it is said why.
export function lockable(b: Bench, r: AttentionResult | null, key: number, wanted: number): number {
  const { head, query } = b.chosen;
  const room = Math.max(0, roomForLock(b.edits, head, query, key));
  const bound = new Set(rowEdits(b.edits, head, query).filter((edit) => edit.kind === 'lock').map((edit) => edit.key));
  const scores = r?.heads[Math.min(head, r.heads.length - 1)].scores[query] ?? [];
  const alone = scores.length > 0 && !scores.some((score, other) => other !== key && score !== null && !bound.has(other));
  const value = alone ? room : Math.max(0, Math.min(room, wanted));
  if (Math.abs(value - wanted) <= 1e-6) hush('number');
  else say(alone ? t('bench.lock.alone', show(value)) : t('bench.lock.room', show(room)), 'info', 'number');
  return value;
}

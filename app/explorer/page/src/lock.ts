// How much a weight can be locked to, and why it is another number than the one that was typed.
import { show } from './numbers';
import { hush, say } from './shared';
import { t } from './words';

// `room`: what the other locks of the row leave. `alone`: no other key is there to share the rest, so that it is this one's.
// Rounded down to six decimals: a sum of locks beyond 1 by rounding would be refused.
export function lockable(wanted: number, room: number, alone: boolean): number {
  const left = Math.max(0, room),
    value = alone ? left : Math.max(0, Math.min(left, wanted));
  if (Math.abs(value - wanted) <= 1e-6) hush('number');
  else say(alone ? t('bench.lock.alone', show(value)) : t('bench.lock.room', show(left)), 'info', 'number');
  return alone ? value : Math.floor(value * 1e6 + 1e-6) / 1e6;
}

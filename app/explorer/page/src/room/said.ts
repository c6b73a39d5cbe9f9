// Failures as the model room says them: what is its own first, the rest as everywhere.
import { EngineError } from '../engine';
import { explain as explainAnywhere, isGone, say, status } from '../shared';
import { t } from '../words';
import { failure, room } from './state';

// The engine counts the edits that it is sent; the page those that stand in the list, of which some are off.
const numberOf = (sent: number) =>
  room.value.edits.map((e, i) => ({ e, i })).filter(({ e }) => !e.off)[sent]?.i ?? sent;
export const editName = (at: number) => t('err.in.edit', at + 1);

export function explain(error: unknown): string {
  if (!(error instanceof EngineError)) return explainAnywhere(error);
  const { code, where, found, expected } = error.failure;
  if (code === 'contradiction' && Array.isArray(found))
    return t('room.err.contradiction', editName(numberOf(found[0])), editName(numberOf(found[1])));
  if (code === 'hugging_face') return t('room.err.hugging.face', where, String(found) === '' ? '?' : String(found));
  if (code === 'limit' && where.startsWith('input.') && expected === status.value?.limits.tokens) {
    const part = /^input\.(source|target)/.exec(where)?.[1];
    return t(
      'room.err.tokens',
      t(part === 'source' ? 'err.in.source' : part === 'target' ? 'err.in.target' : 'err.in.text'),
      String(found),
      String(expected),
    );
  }
  const edit = /^edits\[(\d+)\]/.exec(where);
  if (!edit) return explainAnywhere(error);
  const mine = where.replace(edit[0], `edits[${numberOf(Number(edit[1]))}]`);
  return explainAnywhere(new EngineError({ ...error.failure, where: mine }, error.status));
}

// What already stands above the room, in the same words, is not said again.
export function complain(error: unknown): void {
  if (isGone(error)) return;
  const text = explain(error);
  if (failure.value === null || explain(failure.value) !== text) say(text, 'error', 'engine');
}

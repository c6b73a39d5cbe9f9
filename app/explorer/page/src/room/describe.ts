// An edit in words.
import type { ModelEdit } from '../engine';
import { show } from '../numbers';
import { t, type Key } from '../words';
import { apart, attentionOf, attentionShort, axes, base, headName, headShort, placed } from './state';

export function describe(e: ModelEdit): string {
  const a = attentionOf(e.attention ?? '');
  const { queries, keys } = axes(a, base.value);
  // The engine says what is not there; here it keeps the name it was given.
  const where = !a
    ? (e.site ?? (e.head === undefined ? (e.attention ?? '') : headName(e.attention ?? '', e.head)))
    : e.head === -1
      ? `${attentionShort(a.name)}.*`
      : headShort(a.name, e.head ?? 0);
  const edge =
    e.query !== undefined && e.key !== undefined
      ? `${e.query < 0 ? '*' : placed(queries, e.query)} ← ${e.key < 0 ? '*' : placed(keys, e.key)}`
      : '';
  const value = e.value === undefined ? '' : show(e.value);
  const from = [e.from ?? {}].flat()[0];
  switch (e.kind) {
    case 'set':
      return `${where} · ${edge}: ${t('score')} = ${value}`;
    case 'add':
      return `${where} · ${edge}: ${t('score')} + ${value}`;
    case 'scale':
      return `${where} · ${edge}: ${t('score')} × ${value}`;
    case 'forbid':
      return `${where} · ${edge}: ${t('row.forbid')}`;
    case 'lock':
      return `${where} · ${edge}: ${t('weight')} = ${value}`;
    case 'head':
      return `${where}: ${e.value === 0 ? t('room.head.cut') : `× ${value}`}`;
    case 'attention':
      return `${attentionShort(e.attention ?? '')}: ${t('room.whole')} × ${value}`;
    case 'feed_forward':
      return `${t(`tab.${e.stack ?? 'decoder'}` as Key)} ${e.layer ?? 0}: ${t('room.feed.forward')} × ${value}`;
    case 'evict':
      return `${attentionShort(e.attention ?? '')}: ${t('room.evicted', placed(keys, e.key ?? 0), placed(queries, e.query ?? 0))}`;
    case 'mean':
      return `${(e.head ?? -1) < 0 ? e.site : headShort((e.site ?? '').replace(/\.[a-z_]+$/, ''), e.head!)}: ${t('room.mean')}`;
    case 'patch':
      return `${e.site}, ${t('row.n', e.row ?? '*')}: ${t('room.patch')} ← ${apart(from.source ?? from.text ?? '')}`;
    default:
      return `${e.kind} ${where} ${edge} ${value}`;
  }
}

// The wall: every head of a kind as a small matrix, by layer or by what was measured.
import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { paletteOf, weightPicture } from '../colours';
import type { AttentionSite, HeadsResult } from '../engine';
import { show } from '../numbers';
import { dark, engine } from '../shared';
import { Button, Select } from '../ui';
import { t, table, type Key } from '../words';
import { useLikeness } from './pins';
import { complain } from './said';
import {
  attentionOf,
  axes,
  base,
  choose,
  headCut,
  headName,
  headShort,
  info,
  room,
  site,
  tabOf,
  type Tab,
} from './state';
import { useTile } from './tile';

interface Ranked {
  attention: string;
  head: number;
  value: number;
}

const metricName = (name: string) => (`metric.${name}` in table ? t(`metric.${name}` as Key) : name);

function Thumb({ a, head, value }: { a: AttentionSite; head: number; value?: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const r = room.value;
  const { queries, keys } = axes(a, base.value);
  const level = Math.max(1, 2 ** Math.ceil(Math.log2(Math.max(queries.length, keys.length, 1) / 48)));
  const m = useTile(r, queries.length ? a.name : null, 'all', undefined, undefined, level);
  useEffect(() => {
    if (!m || !canvas.current) return;
    const target = canvas.current;
    target.width = m.columns;
    target.height = m.rows;
    const size = m.rows * m.columns;
    const picture = weightPicture(
      paletteOf(dark.value),
      m.data.subarray(head * size, (head + 1) * size),
      m.rows,
      m.columns,
    );
    target.getContext('2d')!.putImageData(picture, 0, 0);
  }, [m, dark.value, head]);
  const now = r.at.attention === a.name && r.at.head === head,
    cut = headCut(r.edits, a.name, head),
    name = headName(a.name, head);
  return (
    <button
      type="button"
      class={`thumb ${now ? 'now' : ''} ${cut ? 'cut' : ''}`}
      aria-pressed={now}
      data-head={`${a.name}.${head}`}
      aria-label={`${name}${value ? ', ' + value : ''}${cut ? ', ' + t('room.cut') : ''}`}
      title={name}
      onClick={() => choose({ attention: a.name, head })}
    >
      <canvas ref={canvas} aria-hidden="true" />
      {value && <small>{value}</small>}
    </button>
  );
}

function Wall({ tab, ranked }: { tab: Tab; ranked: Ranked[] | null }) {
  const attentions = info.value?.attentions.filter((a) => tabOf(a) === tab) ?? [];
  if (ranked) {
    return (
      <div class="wall ranked">
        {ranked.map(({ attention, head, value }) => {
          const a = attentions.find((other) => other.name === attention);
          return (
            a && (
              <div class="wall-item" key={`${attention}.${head}`}>
                <Thumb a={a} head={head} value={show(value, 2)} />
                <small>
                  {a.layer}.{head}
                </small>
              </div>
            )
          );
        })}
      </div>
    );
  }
  const heads = (count: number) => Array.from({ length: count }, (_, h) => h);
  return (
    <div class="wall">
      <div class="wall-layer wall-heads" aria-hidden="true">
        <span class="wall-n" />
        {heads(Math.max(0, ...attentions.map((a) => a.heads))).map((h) => (
          <span title={`${t('head')} ${h}`}>{h}</span>
        ))}
      </div>
      {attentions.map((a) => (
        <div class="wall-layer" key={a.name}>
          <span class="wall-n" title={`${t('layer')} ${a.layer}`}>
            {a.layer}
          </span>
          {heads(a.heads).map((h) => (
            <Thumb a={a} head={h} />
          ))}
        </div>
      ))}
    </div>
  );
}

// What the wall is sorted by and what was measured for that: both stay while another text is read.
const metric = signal('layers');
const texts = signal<'examples' | 'text'>('examples');
const found = signal<{ model: string; text: string | null; result: HeadsResult } | null>(null);

export function HeadSide({ tab }: { tab: Tab }) {
  const [searching, setSearching] = useState<AbortController | null>(null);
  const model = room.value.model,
    input = base.value?.input,
    here = texts.value === 'text' ? JSON.stringify(input) : null;
  // Whoever leaves, or asks about something else, waits for it no longer.
  useEffect(() => () => searching?.abort(), [searching]);
  useEffect(() => setSearching(null), [model, here]);
  const search = async () => {
    const asked = new AbortController();
    setSearching(asked);
    try {
      const result = await engine.heads(
        { model, ...(here !== null && input ? { inputs: [input] } : {}) },
        asked.signal,
      );
      if (asked.signal.aborted) return;
      found.value = { model, text: here, result };
      metric.value = '';
    } catch (error) {
      if (!asked.signal.aborted) complain(error);
    }
    setSearching((now) => (now === asked ? null : now));
  };
  const result = found.value?.model === model && found.value.text === here ? found.value.result : null;
  // A metric may mean nothing for the heads of this tab: then it is not offered, and the first that does is used; between two texts
  // it is the alignment that people look for.
  const mine =
    result?.heads.filter((h) => {
      const a = attentionOf(h.attention);
      return a && tabOf(a) === tab;
    }) ?? [];
  const offered = result?.metrics.filter((_, i) => mine.some((h) => h.values[i] !== null)) ?? [];
  const likeness = useLikeness(tab, metric.value === 'like');
  const own = metric.value === 'layers' || metric.value === 'like' || offered.some((m) => m.name === metric.value);
  const chosen = own
    ? metric.value
    : (((tab === 'cross' && offered.find((m) => m.name === 'alignment')) || offered[0])?.name ?? 'layers');
  const column = result?.metrics.findIndex((m) => m.name === chosen) ?? -1;
  const measured =
    column < 0
      ? null
      : mine
          .filter((h) => h.values[column] !== null)
          .map((h) => ({ attention: h.attention, head: h.head, value: h.values[column]! }))
          .sort((x, y) => y.value - x.value);
  const sorts = [
    { value: 'layers', label: t('room.sort.layers') },
    { value: 'like', label: t('room.sort.like') },
    ...offered.map((m) => ({ value: m.name, label: metricName(m.name) })),
  ];
  return (
    <>
      <div class="wall-tools">
        <Select
          id="metric"
          label={t('room.sort')}
          value={chosen}
          options={sorts}
          onChange={(value) => {
            metric.value = value;
          }}
        />
        {!result && (
          <Button
            small
            icon="search"
            text
            id="find-heads"
            label={t(searching ? 'room.searching' : 'room.find')}
            disabled={!!searching}
            onClick={() => void search()}
          />
        )}
        <Select
          id="search-in"
          label={t('room.search.in')}
          value={texts.value}
          options={[
            { value: 'examples', label: t('room.search.examples') },
            { value: 'text', label: t('room.search.text') },
          ]}
          onChange={(value) => {
            texts.value = value as 'examples' | 'text';
          }}
        />
      </div>
      <Wall tab={tab} ranked={chosen === 'like' ? likeness : measured} />
      {site.value && (
        <p class="note names">
          {t(
            'room.names',
            headShort(site.value.name, room.value.at.head),
            headName(site.value.name, room.value.at.head),
          )}
        </p>
      )}
      {result && (
        <p class="note">
          {t('room.found', result.inputs, result.tokens)} {t('room.sinks')}
        </p>
      )}
    </>
  );
}

// Heads side by side: up to four that are pinned, their difference to the chosen one, and how like it every other head is.
import { useEffect, useRef, useState } from 'preact/hooks';
import { paletteOf, ramp, weightPicture, type Palette } from '../colours';
import type { Tile } from '../engine';
import { interpolateRgb } from '../interpolate';
import { exact, show } from '../numbers';
import { dark } from '../shared';
import { Button, Select } from '../ui';
import { t } from '../words';
import { attentionOf, axes, base, choose, info, inForce, label, pinned, room, site, tabOf, tile, togglePin, type Tab } from './state';

// Whole up to 512 tokens; beyond that joined, which is said.
const levelFor = (queries: number, keys: number) => Math.max(1, 2 ** Math.ceil(Math.log2(Math.max(queries, keys) / 512)));

// The matrix of a head of the text on the page; null while it is computed.
function useMatrix(attention: string, heads: number[], level: number, edits: boolean): Tile | null {
  const r = edits ? room.value : { ...room.value, edits: [] };
  const [got, setGot] = useState<{ of: string; tile: Tile } | null>(null);
  const of = JSON.stringify([attention, heads, level, r.input, r.edits, r.model]);
  useEffect(() => {
    if (!base.value || !attention) return;
    let alive = true;
    const coming = tile(r, attention, heads, 'weights', undefined, undefined, level);
    if (coming instanceof Promise) coming.then((ready) => { if (alive) setGot({ of, tile: ready }); }).catch(() => undefined);
    else setGot({ of, tile: coming });
    return () => { alive = false; };
  }, [of, base.value]);
  return got?.of === of ? got.tile : null;
}

function Picture({ width, height, paint }: { width: number; height: number; paint: ((palette: Palette) => ImageData) | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (!paint || !canvas.current) return;
    canvas.current.width = width;
    canvas.current.height = height;
    canvas.current.getContext('2d')!.putImageData(paint(paletteOf(dark.value)), 0, 0);
  });
  return <canvas ref={canvas} class="pin-map" style={{ aspectRatio: `${Math.max(1, width)} / ${Math.max(1, height)}` }} aria-hidden="true" />;
}

const nameOf = (attention: string, head: number) => { const a = attentionOf(attention); return a ? `${t(`tab.${tabOf(a)}`)} ${a.layer + 1}.${head + 1}` : attention; };

function Pin({ attention, head }: { attention: string; head: number }) {
  const { queries, keys } = axes(attentionOf(attention), base.value);
  const m = useMatrix(attention, [head], levelFor(queries.length, keys.length), true);
  return <figure class="pin" data-pin={`${attention}.${head}`}><button type="button" class="pin-go" aria-label={nameOf(attention, head)} onClick={() => choose({ attention, head })}>
    <Picture width={m?.columns ?? 1} height={m?.rows ?? 1} paint={m ? (palette) => weightPicture(palette, m.data, m.rows, m.columns) : null} /></button>
    <figcaption>{nameOf(attention, head)}<Button icon="close" small label={t('room.unpin')} onClick={() => togglePin(attention, head)} /></figcaption></figure>;
}

function Difference({ attention, head, edits }: { attention: string; head: number; edits: boolean }) {
  const r = room.value, { queries, keys } = axes(site.value, base.value);
  const level = levelFor(queries.length, keys.length);
  const mine = useMatrix(r.at.attention, [r.at.head], level, true), other = useMatrix(attention, [head], level, edits);
  if (!mine || !other || mine.data.length !== other.data.length) return null;
  let most = 0, sum = 0, at = 0;
  for (let i = 0; i < mine.data.length; ++i) { const size = Math.abs(mine.data[i] - other.data[i]); sum += size; if (size > most) { most = size; at = i; } }
  const paint = (palette: Palette) => {
    const image = new ImageData(mine.columns, mine.rows);
    for (let i = 0; i < mine.data.length; ++i) {
      const d = mine.data[i] - other.data[i], hex = interpolateRgb(palette.surface, d > 0 ? palette.hues.w : palette.hues.k, ramp(Math.abs(d)));
      image.data.set([parseInt(hex.slice(1, 3), 16), parseInt(hex.slice(3, 5), 16), parseInt(hex.slice(5, 7), 16), 255], 4 * i);
    }
    return image;
  };
  const place = level === 1 && most > 0 ? ` (${label(queries[Math.floor(at / mine.columns)])} ← ${label(keys[at % mine.columns])})` : '';
  return <figure class="pin difference" data-largest={most} data-mean={sum / mine.data.length}><Picture width={mine.columns} height={mine.rows} paint={paint} />
    <figcaption><span><b title={exact(most)}>{t('room.pins.difference', show(most), show(sum / mine.data.length))}</b>{place}{level > 1 && <> {t('room.pins.reduced', level)}</>}<br /><i class="swatch more" />{t('room.pins.more')} <i class="swatch less" />{t('room.pins.less')}</span></figcaption></figure>;
}

export function Pins() {
  const r = room.value, a = site.value;
  const [against, setAgainst] = useState('');
  const here = pinned.value.filter((p) => { const other = attentionOf(p.attention); return other && p.head < other.heads; });
  // Only matrices of the same two texts can be taken from each other.
  const fit = here.filter((p) => tabOf(attentionOf(p.attention)!) === (a && tabOf(a)));
  if (!a || !here.length) return null;
  const options = [...fit.map((p) => ({ value: `${p.attention}.${p.head}`, label: nameOf(p.attention, p.head) })), ...(inForce(r.edits).length ? [{ value: 'unedited', label: t('room.pins.unedited') }] : [])];
  const chosen = options.find((o) => o.value === against) ?? options[0];
  const dot = chosen?.value.lastIndexOf('.') ?? 0;
  return <section class="card pins" aria-label={t('room.pins')}><header><h2>{t('room.pins')}</h2>{chosen && <Select id="against" label={t('room.pins.with')} value={chosen.value} options={options} onChange={setAgainst} />}</header>
    <div class="pin-row">{here.map((p) => <Pin key={`${p.attention}.${p.head}`} attention={p.attention} head={p.head} />)}
      {chosen && (chosen.value === 'unedited' ? <Difference attention={a.name} head={r.at.head} edits={false} /> : <Difference attention={chosen.value.slice(0, dot)} head={Number(chosen.value.slice(dot + 1))} edits />)}</div></section>;
}

// For every head of the tab: the weight that its rows and those of the chosen head have in common, as a mean over the rows of the
// text on the page (1: the same). Of long texts nothing is said: it would need every matrix whole.
export function useLikeness(tab: Tab, wanted: boolean): { attention: string; head: number; value: number }[] | null {
  const r = room.value, a = site.value;
  const [made, setMade] = useState<{ attention: string; head: number; value: number }[] | null>(null);
  useEffect(() => {
    setMade(null);
    const { queries, keys } = axes(a, base.value);
    if (!wanted || !a || tabOf(a) !== tab || !queries.length || queries.length * keys.length > 256 * 256) return;
    let alive = true;
    const all = info.value!.attentions.filter((other) => tabOf(other) === tab);
    void Promise.all(all.map(async (other) => ({ other, m: await tile(r, other.name, 'all', 'weights', undefined, undefined, 1) }))).then((matrices) => {
      if (!alive) return;
      const size = queries.length * keys.length, mine = matrices.find(({ other }) => other.name === a.name)!.m.data.subarray(r.at.head * size, (r.at.head + 1) * size);
      setMade(matrices.flatMap(({ other, m }) => Array.from({ length: other.heads }, (_, head) => {
        let common = 0;
        for (let i = 0; i < size; ++i) common += Math.min(mine[i], m.data[head * size + i]);
        return { attention: other.name, head, value: common / queries.length };
      })).sort((x, y) => y.value - x.value));
    }).catch(() => undefined);
    return () => { alive = false; };
  }, [wanted, tab, r.at.attention, r.at.head, r.edits, base.value]);
  return made;
}

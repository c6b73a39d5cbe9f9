// Heads side by side: up to four that are pinned; what the chosen one gives more and less than another head, than itself without
// edits, over another text or in another checkpoint; and how like it every other head is.
import { useEffect, useRef, useState } from 'preact/hooks';
import { paletteOf, ramp, weightPicture, type Palette } from '../colours';
import type { Input, ModelInfo, Tile, Token } from '../engine';
import { interpolateRgb } from '../interpolate';
import { exact, show } from '../numbers';
import { dark, engine, returned } from '../shared';
import { Button, Select } from '../ui';
import { t } from '../words';
import { explain } from './said';
import {
  attentionOf,
  axes,
  base,
  choose,
  compare,
  entries,
  headName,
  headShort,
  info,
  inForce,
  label,
  pinned,
  placed,
  room,
  site,
  tabOf,
  tile,
  togglePin,
  type Room,
  type Tab,
} from './state';

// Whole up to 512 tokens; beyond that joined, which is said.
const levelFor = (queries: number, keys: number) =>
  Math.max(1, 2 ** Math.ceil(Math.log2(Math.max(queries, keys) / 512)));

// The matrix of a head as a room reads its text (null: of none); `tile` is null while it is computed.
function useMatrix(
  r: Room | null,
  attention: string,
  head: number,
  level: number,
): { tile: Tile | null; problem: unknown } {
  const [got, setGot] = useState<{ of: string; tile: Tile | null; problem: unknown } | null>(null);
  const of = r ? JSON.stringify([attention, head, level, r.input, r.edits, r.model]) : '';
  useEffect(() => {
    if (!r || !base.value || !attention) return;
    let alive = true;
    const coming = tile(r, attention, [head], 'weights', undefined, undefined, level);
    if (coming instanceof Promise)
      coming
        .then((ready) => {
          if (alive) setGot({ of, tile: ready, problem: null });
        })
        .catch((error) => {
          if (alive) setGot({ of, tile: null, problem: error });
        });
    else setGot({ of, tile: coming, problem: null });
    return () => {
      alive = false;
    };
  }, [of, base.value, returned.value]);
  return r && got?.of === of ? got : { tile: null, problem: null };
}

function Picture({
  width,
  height,
  paint,
  name,
}: {
  width: number;
  height: number;
  paint: ((palette: Palette) => ImageData) | null;
  name?: string;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (!paint || !canvas.current) return;
    canvas.current.width = width;
    canvas.current.height = height;
    canvas.current.getContext('2d')!.putImageData(paint(paletteOf(dark.value)), 0, 0);
  });
  return (
    <canvas
      ref={canvas}
      class="pin-map"
      style={{ aspectRatio: `${Math.max(1, width)} / ${Math.max(1, height)}` }}
      role={name ? 'img' : undefined}
      aria-label={name}
      aria-hidden={name ? undefined : 'true'}
    />
  );
}

function Pin({ attention, head }: { attention: string; head: number }) {
  const { queries, keys } = axes(attentionOf(attention), base.value);
  const m = useMatrix(room.value, attention, head, levelFor(queries.length, keys.length)).tile;
  return (
    <figure class="pin" data-pin={`${attention}.${head}`}>
      <button
        type="button"
        class="pin-go"
        aria-label={headName(attention, head)}
        title={headName(attention, head)}
        onClick={() => choose({ attention, head })}
      >
        <Picture
          width={m?.columns ?? 1}
          height={m?.rows ?? 1}
          paint={m ? (palette) => weightPicture(palette, m.data, m.rows, m.columns) : null}
        />
      </button>
      <figcaption>
        {headShort(attention, head)}
        <Button icon="close" small label={t('room.unpin')} onClick={() => togglePin(attention, head)} />
      </figcaption>
    </figure>
  );
}

// What is taken from the chosen head's matrix: a head as a room reads it, with the tokens it reads there.
interface Side {
  room: Room;
  attention: string;
  head: number;
  queries: Token[];
  keys: Token[];
  name: string;
}

function Difference({ side }: { side: Side }) {
  const r = room.value,
    { queries, keys } = axes(site.value, base.value);
  const level = levelFor(queries.length, keys.length);
  const { tile: mine } = useMatrix(r, r.at.attention, r.at.head, level),
    { tile: other, problem } = useMatrix(side.room, side.attention, side.head, level);
  if (problem)
    return (
      <p class="bad" role="alert">
        {explain(problem)}
      </p>
    );
  if (!mine || !other || mine.data.length !== other.data.length)
    return (
      <p class="faint" role="status">
        {t('engine.asking')}…
      </p>
    );
  let most = 0,
    sum = 0,
    at = 0;
  for (let i = 0; i < mine.data.length; ++i) {
    const size = Math.abs(mine.data[i] - other.data[i]);
    sum += size;
    if (size > most) {
      most = size;
      at = i;
    }
  }
  const mean = sum / mine.data.length;
  const paint = (palette: Palette) => {
    const image = new ImageData(mine.columns, mine.rows);
    for (let i = 0; i < mine.data.length; ++i) {
      const d = mine.data[i] - other.data[i],
        hex = interpolateRgb(palette.surface, d > 0 ? palette.hues.w : palette.hues.k, ramp(Math.abs(d)));
      image.data.set(
        [parseInt(hex.slice(1, 3), 16), parseInt(hex.slice(3, 5), 16), parseInt(hex.slice(5, 7), 16), 255],
        4 * i,
      );
    }
    return image;
  };
  // Where the texts differ, both tokens of a place are named.
  const pair = (here: Token[], there: Token[], i: number) =>
    label(here[i]) === label(there[i]) ? placed(here, i) : `${placed(here, i)} / ${placed(there, i)}`;
  const row = Math.floor(at / mine.columns),
    column = at % mine.columns;
  const place = level === 1 && most > 0 ? `${pair(queries, side.queries, row)} ← ${pair(keys, side.keys, column)}` : '';
  const caption = t('room.pins.difference', show(most), show(mean));
  return (
    <figure
      class="pin difference"
      data-largest={most}
      data-mean={mean}
      data-at={place ? `${row},${column}` : undefined}
    >
      <Picture
        width={mine.columns}
        height={mine.rows}
        paint={paint}
        name={`${t('room.pins.with')} ${side.name}: ${caption}`}
      />
      <figcaption>
        <b title={exact(most)}>{caption}</b>
        {place && <span class="where">{t('room.pins.at', place)}</span>}
        {level > 1 && <span>{t('room.pins.reduced', level)}</span>}
        <span>
          <i class="swatch more" />
          {t('room.pins.more')} <i class="swatch less" />
          {t('room.pins.less')}
        </span>
      </figcaption>
    </figure>
  );
}

// The text on the page read once more: another text, or the same by another model. Refused where the matrices would not be of one
// shape, because then no cell stands for another.
type Problem = (() => string) | null; // said in the language of the moment it is drawn
function useReading(
  kind: 'text' | 'model',
  input: Input | null,
  model: string | null,
): { side: Side | null; problem: Problem; busy: boolean } {
  const r = room.value,
    a = site.value,
    b = base.value;
  const [made, setMade] = useState<{ of: string; side: Side | null; problem: Problem } | null>(null);
  const wanted = !!a && !!b && (kind === 'text' ? !!input : !!model);
  const of = JSON.stringify([kind, input, model, r.model, r.input, r.edits, r.at.attention, r.at.head]);
  useEffect(() => {
    if (!wanted || !a || !b) return;
    const asked = new AbortController();
    const read = async (): Promise<Side | (() => string)> => {
      const name = kind === 'model' ? model! : r.model,
        text = kind === 'text' ? input! : b.input;
      if (kind === 'model') {
        const wrong = unlike(info.value!, await engine.model(name));
        if (wrong) return wrong;
      }
      const run = await engine.run({ model: name, input: text, edits: [], want: ['tokens'] }, asked.signal);
      const mine = axes(a, b),
        theirs = axes(a, run);
      if (mine.queries.length !== theirs.queries.length || mine.keys.length !== theirs.keys.length) {
        const counts = [mine.queries, mine.keys, theirs.queries, theirs.keys].map((tokens) => tokens.length);
        return () => t(kind === 'text' ? 'room.pins.tokens.text' : 'room.pins.tokens.model', ...counts);
      }
      return {
        room: { ...r, model: name, input: run.input },
        attention: a.name,
        head: r.at.head,
        ...theirs,
        name: kind === 'model' ? name : (run.input.source ?? run.input.text ?? ''),
      };
    };
    read()
      .then(
        (side) => (typeof side === 'function' ? { side: null, problem: side } : { side, problem: null }),
        (error) => ({ side: null, problem: () => explain(error) }),
      )
      .then((result) => {
        if (!asked.signal.aborted) setMade({ of, ...result });
      });
    return () => asked.abort();
  }, [of, b, wanted, returned.value]);
  const now = wanted && made?.of === of ? made : null;
  return { side: now?.side ?? null, problem: now?.problem ?? null, busy: wanted && !now };
}

// How two models differ in what their heads are; null: not at all.
function unlike(mine: ModelInfo, other: ModelInfo): Problem {
  const places = (m: ModelInfo) => m.attentions.map((a) => `${a.name} ${a.heads} ${a.head_dim}`).join();
  if (mine.family === other.family && places(mine) === places(other)) return null;
  const shape = (m: ModelInfo) =>
    t(
      'room.pins.shape',
      m.name,
      m.attentions.length,
      Math.max(...m.attentions.map((a) => a.heads)),
      m.attentions[0]?.head_dim ?? 0,
    );
  return () => t('room.pins.unlike', shape(mine), shape(other));
}

function OtherText() {
  const model = info.value!,
    seq = model.family === 'encoder-decoder',
    b = base.value;
  const kept = compare.value?.kind === 'text' ? (compare.value.input ?? null) : null;
  const [text, setText] = useState(kept?.source ?? kept?.text ?? ''),
    [target, setTarget] = useState(kept?.target ?? '');
  const { side, problem, busy } = useReading('text', kept, null);
  const go = () => {
    if (!text.trim()) return;
    const language = b?.input.language;
    compare.value = {
      kind: 'text',
      input: seq
        ? {
            source: text.trim(),
            ...(language ? { language } : {}),
            ...(target.trim() ? { target: target.trim() } : {}),
          }
        : { text },
    };
  };
  const enter = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && !event.isComposing) {
      event.preventDefault();
      go();
    }
  };
  return (
    <div class="against">
      <div class="figure-tools">
        <input
          id="other-text"
          type="text"
          class="text-field"
          dir="auto"
          spellcheck={false}
          value={text}
          aria-label={t('room.patch.from')}
          placeholder={t('room.patch.from')}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={enter}
        />
        {seq && (
          <input
            id="other-target"
            type="text"
            class="text-field"
            dir="auto"
            spellcheck={false}
            value={target}
            aria-label={t('room.pins.target')}
            placeholder={kept && side?.room.input.target ? side.room.input.target : t('room.target.type')}
            onInput={(event) => setTarget(event.currentTarget.value)}
            onKeyDown={enter}
          />
        )}
        <Button small primary id="compare-text" label={t('room.pins.compare')} disabled={!text.trim()} onClick={go} />
      </div>
      <Outcome side={side} problem={problem} busy={busy} note={t('room.pins.text.note')} shown={!kept} />
    </div>
  );
}

function OtherModel() {
  const others = entries.value.filter((e) => !e.error && e.name !== room.value.model);
  const kept = compare.value?.kind === 'model' ? (compare.value.model ?? null) : null;
  const { side, problem, busy } = useReading('model', null, kept);
  if (!others.length) return <p class="faint">{t('room.pins.model.none')}</p>;
  return (
    <div class="against">
      <Select
        id="other-model"
        label={t('nav.model')}
        value={kept ?? ''}
        options={[{ value: '', label: '—' }, ...others.map((e) => ({ value: e.name, label: e.name }))]}
        onChange={(name) => {
          compare.value = { kind: 'model', ...(name ? { model: name } : {}) };
        }}
      />
      <Outcome side={side} problem={problem} busy={busy} note={t('room.pins.model.note')} shown={!kept} />
    </div>
  );
}

const Outcome = ({
  side,
  problem,
  busy,
  note,
  shown,
}: {
  side: Side | null;
  problem: Problem;
  busy: boolean;
  note: string;
  shown: boolean;
}) => (
  <>
    {shown && <p class="faint">{note}</p>}
    {busy && (
      <p class="faint" role="status">
        {t('engine.asking')}…
      </p>
    )}
    {problem && (
      <p class="bad refusal" role="alert">
        {problem()}
      </p>
    )}
    {side && <Difference side={side} />}
  </>
);

export function Pins() {
  const r = room.value,
    a = site.value,
    b = base.value;
  if (!a || !b) return null;
  const here = pinned.value.filter((p) => {
    const other = attentionOf(p.attention);
    return other && p.head < other.heads;
  });
  // Only matrices of the same two texts can be taken from each other.
  const fit = here.filter((p) => tabOf(attentionOf(p.attention)!) === tabOf(a));
  const options = [
    { value: '', label: '—' },
    ...fit.map((p) => ({ value: `${p.attention}.${p.head}`, label: headShort(p.attention, p.head) })),
    ...(inForce(r.edits).length ? [{ value: 'unedited', label: t('room.pins.unedited') }] : []),
    { value: 'text', label: t('room.pins.text') },
    { value: 'model', label: t('room.pins.model') },
  ];
  const wanted = compare.value?.kind === 'head' ? (compare.value.head ?? '') : (compare.value?.kind ?? '');
  // A head that was just pinned is what one wants to see beside the chosen one.
  const chosen = options.some((o) => o.value === wanted && wanted !== '')
    ? wanted
    : compare.value === null && fit.length
      ? options[1].value
      : '';
  const dot = chosen.lastIndexOf('.');
  const same = { ...axes(a, b) };
  return (
    <section class="card pins" aria-label={t('room.pins')}>
      <header>
        <h2>{t('room.pins')}</h2>
        <Select
          id="against"
          label={t('room.pins.with')}
          value={chosen}
          options={options}
          onChange={(value) => {
            compare.value =
              value === ''
                ? { kind: 'head' }
                : value === 'text' || value === 'model' || value === 'unedited'
                  ? { kind: value }
                  : { kind: 'head', head: value };
          }}
        />
      </header>
      {!here.length && !chosen && <p class="faint">{t('room.pins.note')}</p>}
      {(here.length > 0 || dot >= 0 || chosen === 'unedited') && (
        <div class="pin-row">
          {here.map((p) => (
            <Pin key={`${p.attention}.${p.head}`} attention={p.attention} head={p.head} />
          ))}
          {chosen === 'unedited' && (
            <Difference
              side={{
                room: { ...r, edits: [] },
                attention: a.name,
                head: r.at.head,
                ...same,
                name: t('room.pins.unedited'),
              }}
            />
          )}
          {dot >= 0 && (
            <Difference
              side={{
                room: r,
                attention: chosen.slice(0, dot),
                head: Number(chosen.slice(dot + 1)),
                ...same,
                name: headShort(chosen.slice(0, dot), Number(chosen.slice(dot + 1))),
              }}
            />
          )}
        </div>
      )}
      {chosen === 'text' && <OtherText key={r.model} />}
      {chosen === 'model' && <OtherModel />}
    </section>
  );
}

// For every head of the tab: the weight that its rows and those of the chosen head have in common, as a mean over the rows of the
// text on the page (1: the same). Of long texts nothing is said: it would need every matrix whole.
export function useLikeness(tab: Tab, wanted: boolean): { attention: string; head: number; value: number }[] | null {
  const r = room.value,
    a = site.value;
  const [made, setMade] = useState<{ attention: string; head: number; value: number }[] | null>(null);
  useEffect(() => {
    setMade(null);
    const { queries, keys } = axes(a, base.value);
    if (!wanted || !a || tabOf(a) !== tab || !queries.length || queries.length * keys.length > 256 * 256) return;
    let alive = true;
    const all = info.value!.attentions.filter((other) => tabOf(other) === tab);
    void Promise.all(
      all.map(async (other) => ({ other, m: await tile(r, other.name, 'all', 'weights', undefined, undefined, 1) })),
    )
      .then((matrices) => {
        if (!alive) return;
        const size = queries.length * keys.length,
          mine = matrices
            .find(({ other }) => other.name === a.name)!
            .m.data.subarray(r.at.head * size, (r.at.head + 1) * size);
        setMade(
          matrices
            .flatMap(({ other, m }) =>
              Array.from({ length: other.heads }, (_, head) => {
                let common = 0;
                for (let i = 0; i < size; ++i) common += Math.min(mine[i], m.data[head * size + i]);
                return { attention: other.name, head, value: common / queries.length };
              }),
            )
            .sort((x, y) => y.value - x.value),
        );
      })
      .catch(() => undefined);
    return () => {
      alive = false;
    };
  }, [wanted, tab, r.at.attention, r.at.head, r.edits, base.value, returned.value]);
  return made;
}

// The unit of attention is a row: one query asks, the keys answer, the weights mix the values. One aligned column a key; the
// score is a bar to drag with pointer, touch or arrow keys.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Component } from 'preact';
import type { RefObject } from 'preact';
import { paletteOf, type Palette } from './colours';
import { exact, fractions, fullOnHover, show } from './numbers';
import { drawSpectrum, RowPicture, type Bar } from './rowpicture';
import { dark } from './shared';
import { Button, Icon, NumberField } from './ui';
import { language, t } from './words';

export interface KeyState {
  edited: boolean;
  locked: boolean;
  forbidden: boolean;
}

export interface RowPanelProps {
  query: string; // label
  keys: string[];
  scaled: (number | null)[]; // before edits, null where masked
  scores: (number | null)[]; // what softmax reads
  weights: number[];
  values: number[][]; // one a key; may be empty
  output: number[];
  base?: { weights: number[]; output: number[] } | null; // the unedited row, drawn as a ghost
  states: KeyState[];
  chosen: number;
  live: 'engine' | 'preview' | 'asking' | 'stale'; // stale: what was answered before the engine refused
  took?: number | null;
  entropy?: number | null;
  sum?: number; // of the weights of the whole row, where only some of its keys are here
  onChoose: (key: number) => void;
  onDrag?: (key: number, score: number, done: boolean) => void;
  onSet?: (key: number, score: number) => void;
  onLock?: (key: number, weight: number | null) => void;
  onForbid?: (key: number) => void;
  onReset?: (key: number) => void;
  onPeek?: (place: { stage: 'scaled' | 'score' | 'weight' | 'value'; key: number } | null) => void;
  hint?: string;
}

const height = 132;

function rangeOf(scores: (number | null)[]): [number, number] {
  let low = 0,
    high = 1;
  for (const score of scores)
    if (score !== null) {
      low = Math.min(low, score);
      high = Math.max(high, score);
    }
  const room = (high - low) * 0.18;
  return [low < 0 ? low - room : -0.15 * (high + room), high + room];
}

export function RowPanel(p: RowPanelProps) {
  const host = useRef<HTMLDivElement>(null);
  // The scale of the bars holds still while a finger is on one.
  const [drag, setDrag] = useState<{
    key: number;
    startY: number;
    startScore: number;
    range: [number, number];
    moved: boolean;
  } | null>(null);
  const natural = rangeOf([...p.scaled, ...p.scores]);
  const range = drag ? drag.range : natural;
  const pixels = (range[1] - range[0]) / height;
  const y = (score: number) => Math.max(0, Math.min(height, (range[1] - score) / pixels));
  const zero = y(0);
  const editable = !!p.onDrag;
  const dense = p.keys.length > 20;
  const focusKey = (key: number) => {
    p.onChoose(key);
    host.current?.querySelector<HTMLElement>(`[data-key="${key}"] [role=slider]`)?.focus();
  };
  const keys = (event: KeyboardEvent, key: number) => {
    const score = p.scores[key];
    const step = event.shiftKey ? 1 : 0.1;
    const nudge = (by: number) => {
      if (score !== null && editable) p.onSet?.(key, Number((score + by).toFixed(4)));
    };
    switch (event.key) {
      case 'ArrowUp':
        nudge(step);
        break;
      case 'ArrowDown':
        nudge(-step);
        break;
      case 'PageUp':
        nudge(1);
        break;
      case 'PageDown':
        nudge(-1);
        break;
      case 'ArrowLeft':
        focusKey(Math.max(0, key - 1));
        break;
      case 'ArrowRight':
        focusKey(Math.min(p.keys.length - 1, key + 1));
        break;
      case 'Home':
        focusKey(0);
        break;
      case 'End':
        focusKey(p.keys.length - 1);
        break;
      case 'Delete':
      case 'Backspace':
        p.onReset?.(key);
        break;
      case 'l':
        if (p.onLock && p.scaled[key] !== null) p.onLock(key, p.states[key].locked ? null : p.weights[key]);
        break;
      case 'x':
        if (p.scaled[key] !== null) p.onForbid?.(key);
        break;
      case 'Enter':
        host.current?.querySelector<HTMLInputElement>('.row-tools input')?.focus();
        break;
      default:
        return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const down = (event: PointerEvent, key: number) => {
    // A number that was typed belongs to the bar it was typed for: it is taken before another is chosen.
    (document.activeElement as HTMLElement | null)?.blur?.();
    p.onChoose(key);
    const score = p.scores[key];
    if (!editable || score === null || event.button !== 0) return;
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    setDrag({ key, startY: event.clientY, startScore: score, range: natural, moved: false });
  };
  const valueAt = (clientY: number) =>
    Number((drag!.startScore + ((drag!.startY - clientY) * (drag!.range[1] - drag!.range[0])) / height).toFixed(3));
  // A pointer may report several places a frame: the last one counts, and is worked out once, in that frame.
  const waiting = useRef<{ frame: number; clientY: number } | null>(null);
  const forget = () => {
    if (waiting.current) cancelAnimationFrame(waiting.current.frame);
    waiting.current = null;
  };
  useEffect(() => forget, []);
  const move = (event: PointerEvent) => {
    if (!drag) return;
    if (!drag.moved && Math.abs(event.clientY - drag.startY) < 2) return;
    drag.moved = true;
    if (waiting.current) {
      waiting.current.clientY = event.clientY;
      return;
    }
    waiting.current = {
      clientY: event.clientY,
      frame: requestAnimationFrame(() => {
        const { clientY } = waiting.current!;
        waiting.current = null;
        now.current!.dragTo(clientY);
      }),
    };
  };
  const dragTo = (clientY: number) => {
    if (drag) p.onDrag?.(drag.key, valueAt(clientY), false);
  };
  const up = (event: PointerEvent) => {
    if (!drag) return;
    forget();
    const { key, moved } = drag;
    const value = valueAt(event.clientY);
    setDrag(null);
    if (moved) p.onDrag!(key, value, true);
  };
  const strongest = useMemo(
    () => p.values.reduce((most, row) => row.reduce((high, value) => Math.max(high, Math.abs(value)), most), 1e-9),
    [p.values],
  );
  const c = Math.min(p.chosen, p.keys.length - 1);
  const hidden = p.scaled[c] === null && !p.states[c]?.edited; // by the mask, which no edit opens
  const sum = p.sum ?? p.weights.reduce((total, weight) => total + weight, 0);
  const handlers: Handlers = {
    keys,
    down,
    move,
    up,
    dragTo,
    focusKey,
    choose: (key) => {
      if (key !== c) p.onChoose(key);
    },
    reset: (key) => p.onReset?.(key),
    peek: (stage, key) => p.onPeek?.({ stage, key }),
  };
  const now = useRef(handlers);
  now.current = handlers;
  const kinds = p.keys
    .map(
      (_, key) =>
        (p.scores[key] === null ? 'm' : p.scaled[key] === null ? 'n' : 's') +
        (p.states[key].forbidden ? 'f' : p.states[key].locked ? 'l' : p.states[key].edited ? 'e' : '.'),
    )
    .join('');
  const drawn = useMemo(() => new Drawn(), []);
  const columns = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    drawn.write(
      columns.current!,
      p.keys.map((_, key) => {
        const score = p.scores[key],
          { edited, locked } = p.states[key],
          weight = p.weights[key];
        return {
          number: score,
          score: score === null ? null : y(score),
          zero,
          before: edited && score !== null && p.scaled[key] !== null ? y(p.scaled[key]!) : null,
          edited,
          weight,
          old: p.base?.weights[key] ?? 0,
          values: p.values[key],
          spoken:
            score === null
              ? t('masked')
              : `${t('score')} ${show(score)}, ${t('weight')} ${show(weight)}${locked ? ', ' + t('row.locked') : ''}`,
        };
      }),
      dense,
      strongest,
      paletteOf(dark.value),
    );
  });
  useEffect(() => () => drawn.leave(), []);
  return (
    <section class={`row-panel ${dense ? 'dense' : ''}`} ref={host} aria-label={t('row.panel', p.query)}>
      <header>
        <h3>
          <span class="hue-q">{p.query}</span> {t('row.reads')}
        </h3>
        <span class={`live ${p.live}`} role="status">
          {p.live === 'engine'
            ? `${t('engine.by')}${p.took != null ? ` · ${p.took < 10 ? p.took.toFixed(2) : p.took.toFixed(0)} ms` : ''}`
            : p.live === 'stale'
              ? t('engine.stale')
              : p.live === 'preview'
                ? t('engine.preview')
                : t('engine.asking')}
        </span>
      </header>
      {p.hint && (
        <p class="hint">
          <Icon name="eye" />
          {p.hint}
        </p>
      )}
      <div class="row-body">
        <div class="row-stages" aria-hidden="true">
          <span>{t('key')}</span>
          <span style={{ height: `${height}px` }}>{t('score')}</span>
          <span class="stage-weight">{t('weight')}</span>
          {p.values.length > 0 && <span>{t('value')}</span>}
        </div>
        <div class="row-scroll" onPointerLeave={() => p.onPeek?.(null)}>
          <div class={`row-columns ${p.keys.length <= 5 ? 'few' : p.keys.length <= 8 ? 'few some' : ''}`} ref={columns}>
            <Columns
              now={now}
              drawn={drawn}
              keys={p.keys}
              kinds={kinds}
              query={p.query}
              chosen={c}
              dense={dense}
              editable={editable}
              base={!!p.base}
              values={p.values}
              language={language.value}
            />
            {(dense || p.values.length > 0) && <canvas class="row-picture" aria-hidden="true" />}
          </div>
        </div>
        {p.output.length > 0 && (
          <div class="row-output">
            <h4 class="hue-v">{t('row.output')}</h4>
            {p.output.length > 8 ? (
              <Spectrum values={p.output} base={p.base?.output ?? null} />
            ) : (
              <ol data-vector="output">
                {p.output.map((value, x) => (
                  <li title={exact(value)} data-value={value}>
                    <i
                      style={{ '--h': Math.min(1, Math.abs(value) / strongest).toFixed(3) }}
                      class={value < 0 ? 'negative' : ''}
                    />
                    <b>{show(value, 3, fractions(p.output))}</b>
                    {p.base && Math.abs((p.base.output[x] ?? value) - value) > 1e-6 && <s>{show(p.base.output[x])}</s>}
                  </li>
                ))}
              </ol>
            )}
            <p class="sum">
              Σ {t('weight')} <b data-sum={sum}>{sum.toFixed(6).replace(/0{1,3}$/, '')}</b>
              {p.entropy != null && (
                <>
                  {' '}
                  · {t('entropy')} <b>{show(p.entropy)}</b>
                </>
              )}
            </p>
          </div>
        )}
      </div>
      {editable && p.keys.length > 0 && (
        <div class="row-tools" role="group" aria-label={t('row.tools')}>
          <span class="edge">
            <b class="hue-q">{p.query}</b> ← <b class="hue-k">{p.keys[c]}</b>
          </span>
          <NumberField
            label={t('score')}
            disabled={hidden}
            value={p.scores[c]}
            empty="−∞"
            step={0.1}
            onCut={p.onForbid && !p.states[c]?.forbidden ? () => p.onForbid!(c) : undefined}
            onChange={(value) => p.onSet?.(c, value)}
          />
          {p.onLock && (
            <NumberField
              label={t('weight')}
              disabled={hidden}
              value={p.weights[c] ?? 0}
              step={0.05}
              range={[0, 1]}
              onChange={(value) => p.onLock!(c, value)}
            />
          )}
          {p.onLock && (
            <Button
              icon="lock"
              text
              label={p.states[c]?.locked ? t('row.unlock') : t('row.lock')}
              pressed={!!p.states[c]?.locked}
              small
              disabled={hidden}
              keys="l"
              onClick={() => p.onLock!(c, p.states[c].locked ? null : p.weights[c])}
            />
          )}
          {p.onForbid && (
            <Button
              icon="cut"
              text
              label={p.states[c]?.forbidden ? t('row.allow') : t('row.forbid')}
              pressed={!!p.states[c]?.forbidden}
              small
              disabled={hidden}
              keys="x"
              onClick={() => p.onForbid!(c)}
            />
          )}
          {hidden && <span class="faint">{t('row.hidden')}</span>}
          <Button
            icon="reset"
            text
            label={t('reset')}
            small
            disabled={!p.states[c]?.edited}
            keys="Delete"
            onClick={() => p.onReset?.(c)}
          />
        </div>
      )}
    </section>
  );
}

interface Handlers {
  keys: (event: KeyboardEvent, key: number) => void;
  down: (event: PointerEvent, key: number) => void;
  move: (event: PointerEvent) => void;
  up: (event: PointerEvent) => void;
  dragTo: (clientY: number) => void;
  focusKey: (key: number) => void;
  choose: (key: number) => void;
  reset: (key: number) => void;
  peek: (stage: 'score' | 'weight' | 'value', key: number) => void;
}

// What stands in the columns while numbers move: boxes, names, which of them are masked, edited, locked. A drag changes none of
// it, so it is not even compared key by key then; the numbers are Drawn's.
interface ColumnsProps {
  now: RefObject<Handlers>;
  drawn: Drawn;
  keys: string[];
  kinds: string; // two letters a key: masked, never had a score, or neither; forbidden, locked, edited
  query: string;
  chosen: number;
  dense: boolean;
  editable: boolean;
  base: boolean;
  values: number[][];
  language: string;
}
const equal = (a: unknown, b: unknown): boolean =>
  a === b || (Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((one, i) => equal(one, b[i])));
class Columns extends Component<ColumnsProps> {
  shouldComponentUpdate(next: ColumnsProps) {
    return (Object.keys(next) as (keyof ColumnsProps)[]).some(
      (name) => name !== 'now' && name !== 'drawn' && !equal(next[name], this.props[name]),
    );
  }
  render() {
    const { now, keys, kinds, query, chosen, dense, editable, base, values } = this.props;
    this.props.drawn.stale = true;
    return keys.map((label, key) => {
      const masked = kinds[2 * key] === 'm',
        forbidden = kinds[2 * key + 1] === 'f',
        locked = kinds[2 * key + 1] === 'l',
        edited = kinds[2 * key + 1] !== '.';
      return (
        <div class={`row-column ${key === chosen ? 'chosen' : ''} ${edited ? 'edited' : ''}`} data-key={key}>
          <button
            type="button"
            class="key-label hue-k"
            tabIndex={-1}
            title={label}
            onClick={() => now.current!.focusKey(key)}
          >
            {/^<0x([0-9A-F]{2})>$/.exec(label)?.[1] ?? label}
          </button>
          <div
            class={`score-track ${masked ? 'masked' : ''} ${editable ? 'editable' : ''}`}
            style={{ height: `${height}px` }}
            role="slider"
            tabIndex={key === chosen ? 0 : -1}
            aria-orientation="vertical"
            aria-label={t('row.slider', query, label)}
            aria-disabled={!editable || masked}
            onKeyDown={(event) => now.current!.keys(event, key)}
            onPointerDown={(event) => now.current!.down(event, key)}
            onPointerMove={(event) => now.current!.move(event)}
            onPointerUp={(event) => now.current!.up(event)}
            onPointerCancel={(event) => now.current!.up(event)}
            onPointerEnter={() => now.current!.peek('score', key)}
            onDblClick={() => now.current!.reset(key)}
            onFocus={() => now.current!.choose(key)}
          >
            {masked ? (
              <i class="forbidden">{forbidden ? '✕' : '−∞'}</i>
            ) : (
              !dense && (
                <>
                  {edited && kinds[2 * key] !== 'n' && <i class="ghost" />}
                  <i class="zero" />
                  <i class="score-bar" />
                  <i class="grip" />
                  <span class="score-text" />
                </>
              )
            )}
          </div>
          <div
            class="weight-track"
            onPointerEnter={(event) => {
              fullOnHover(Number(event.currentTarget.dataset.weight))(event);
              now.current!.peek('weight', key);
            }}
          >
            {!dense && base && <i class="weight-ghost" />}
            {!dense && <i class={`weight-bar ${locked ? 'locked' : ''}`} />}
            {!dense && <span class="weight-text" />}
            {!dense && locked && (
              <span class="lock-mark">
                <Icon name="lock" />
              </span>
            )}
          </div>
          {dense && locked && (
            <span class="lock-mark">
              <Icon name="lock" />
            </span>
          )}
          {values.length > 0 && (
            <div class="value-chips" onPointerEnter={() => now.current!.peek('value', key)}>
              {values[key]?.slice(0, 8).map((value) => (
                <i onPointerEnter={fullOnHover(value)} />
              ))}
            </div>
          )}
        </div>
      );
    });
  }
}

// The numbers in the columns, which nothing else writes: what was written last is remembered, and only what is another now
// touches the page.
type Column = Bar & { number: number | null; spoken: string };
const parts = {
  slider: '.score-track',
  ghost: '.ghost',
  zero: '.zero',
  bar: '.score-bar',
  grip: '.grip',
  score: '.score-text',
  track: '.weight-track',
  old: '.weight-ghost',
  share: '.weight-bar',
  weight: '.weight-text',
};
type Slot = Record<keyof typeof parts, HTMLElement | null> & { was: Record<string, string> };
class Drawn {
  stale = true; // the columns are others since they were last looked up
  private slots: Slot[] = [];
  private picture: RowPicture | null = null;

  write(host: HTMLElement, columns: Column[], dense: boolean, strongest: number, palette: Palette): void {
    if (this.stale) this.find(host, dense);
    // Where the sliders end, for who hears them: a score has no bounds, and the row's are what it is measured by.
    const numbers = columns.flatMap((column) => column.number ?? []),
      even = fractions(numbers),
      evenWeights = fractions(columns.map((column) => column.weight)),
      low = Math.floor(Math.min(0, ...numbers)) - 1,
      high = Math.ceil(Math.max(0, ...numbers)) + 1;
    columns.forEach((column, key) => {
      const slot = this.slots[key],
        at = column.score;
      const differs = (name: string, value: string) => slot.was[name] !== value && ((slot.was[name] = value), true);
      const attribute = (part: HTMLElement, name: string, value: string) => {
        if (differs(name, value)) part.setAttribute(name, value);
      };
      const style = (part: keyof typeof parts, name: 'top' | 'height', value: string) => {
        if (slot[part] && differs(part + name, value)) slot[part].style[name] = value;
      };
      const text = (part: keyof typeof parts, value: string) => {
        if (slot[part] && differs(part, value)) slot[part].textContent = value;
      };
      attribute(slot.slider!, 'aria-valuemin', String(low));
      attribute(slot.slider!, 'aria-valuemax', String(high));
      attribute(slot.slider!, 'aria-valuenow', String(column.number ?? low));
      attribute(slot.slider!, 'aria-valuetext', column.spoken);
      attribute(slot.track!, 'data-weight', String(column.weight));
      if (dense) return;
      if (at !== null) {
        // Places and heights in tracks that nothing outside depends on: a moved transform or opacity would have the browser put
        // all layers of the page together again.
        const down = (place: number) => `${place}px`;
        if (column.before !== null) style('ghost', 'top', down(column.before));
        style('zero', 'top', down(column.zero));
        style('bar', 'top', down(Math.min(column.zero, at)));
        style('bar', 'height', `${Math.abs(at - column.zero)}px`);
        style('grip', 'top', down(at));
        style('score', 'top', down(at < 24 || (column.number! < 0 && at < height - 26) ? at + 6 : at - 21));
        text('score', show(column.number, 3, even));
      }
      style('old', 'height', `${100 * column.old}%`);
      style('share', 'height', `${100 * column.weight}%`);
      text('weight', show(column.weight, 3, evenWeights));
    });
    this.picture?.show(columns, strongest, palette);
  }

  private find(host: HTMLElement, dense: boolean): void {
    this.slots = [...host.querySelectorAll<HTMLElement>('.row-column')].map(
      (column) =>
        ({
          ...(Object.fromEntries(
            Object.entries(parts).map(([name, selector]) => [name, column.querySelector(selector)]),
          ) as Omit<Slot, 'was'>),
          was: {},
        }) as Slot,
    );
    const canvas = host.querySelector<HTMLCanvasElement>('.row-picture');
    if (canvas !== (this.picture?.canvas ?? null) || dense !== this.picture?.tracks) {
      this.picture?.leave();
      this.picture = canvas && new RowPicture(canvas, host, dense);
    }
    this.picture?.look();
    this.stale = false;
  }

  leave(): void {
    this.picture?.leave();
  }
}

// A wide output: one bar a number, up or down from 0; the ghost is the row without edits.
function Spectrum({ values, base }: { values: number[]; base: number[] | null }) {
  const [at, setAt] = useState<number | null>(null);
  const most = Math.max(1e-9, ...values.map(Math.abs), ...(base ?? []).map(Math.abs));
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => drawSpectrum(canvas.current!, values, base, most, at, paletteOf(dark.value)));
  return (
    <div class="spectrum-box">
      <div
        class="spectrum"
        role="img"
        aria-label={`${t('row.output')}: ${values
          .slice(0, 8)
          .map((value) => show(value))
          .join(', ')}, …`}
        data-vector="output"
        onPointerLeave={() => setAt(null)}
      >
        <canvas ref={canvas} aria-hidden="true" />
        {values.map((value, x) => (
          <i
            data-value={value}
            onPointerEnter={(event) => {
              fullOnHover(value, `${x}: `)(event);
              setAt(x);
            }}
          />
        ))}
      </div>
      <small>
        {at === null
          ? t('row.numbers', values.length)
          : `${at}: ${show(values[at])}${base ? ` (${show(base[at])})` : ''}`}
      </small>
    </div>
  );
}

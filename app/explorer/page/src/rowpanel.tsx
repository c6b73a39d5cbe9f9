// The unit of attention is a row: one query asks, the keys answer, the weights mix the values. One aligned column a key; the
// score is a bar to drag with pointer, touch or arrow keys.
import { useMemo, useRef, useState } from 'preact/hooks';
import { Component } from 'preact';
import { exact, fullOnHover, show } from './numbers';
import { Button, Icon, NumberField } from './ui';
import { t } from './words';

export interface KeyState {
  edited: boolean;
  locked: boolean;
  forbidden: boolean;
}

export interface RowPanelProps {
  query: string;                 // label
  keys: string[];
  scaled: (number | null)[];     // before edits, null where masked
  scores: (number | null)[];     // what softmax reads
  weights: number[];
  values: number[][];            // one a key; may be empty
  output: number[];
  base?: { weights: number[]; output: number[] } | null; // the unedited row, drawn as a ghost
  states: KeyState[];
  chosen: number;
  live: 'engine' | 'preview' | 'asking';
  took?: number | null;
  entropy?: number | null;
  sum?: number;                  // of the weights of the whole row, where only some of its keys are here
  editable?: boolean;
  canLock?: boolean;
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
  let low = 0, high = 1;
  for (const score of scores) if (score !== null) { low = Math.min(low, score); high = Math.max(high, score); }
  const room = (high - low) * 0.18;
  return [low < 0 ? low - room : -0.15 * (high + room), high + room];
}

export function RowPanel(p: RowPanelProps) {
  const host = useRef<HTMLDivElement>(null);
  // The scale of the bars holds still while a finger is on one.
  const [drag, setDrag] = useState<{ key: number; startY: number; startScore: number; range: [number, number]; moved: boolean } | null>(null);
  const natural = rangeOf([...p.scaled, ...p.scores]);
  const range = drag ? drag.range : natural;
  const pixels = (range[1] - range[0]) / height;
  const y = (score: number) => Math.max(0, Math.min(height, (range[1] - score) / pixels));
  const zero = y(0);
  const editable = p.editable !== false && !!p.onDrag;
  const dense = p.keys.length > 20;
  const focusKey = (key: number) => {
    p.onChoose(key);
    host.current?.querySelector<HTMLElement>(`[data-key="${key}"] [role=slider]`)?.focus();
  };
  const keys = (event: KeyboardEvent, key: number) => {
    const score = p.scores[key];
    const step = event.shiftKey ? 1 : 0.1;
    const nudge = (by: number) => { if (score !== null && editable) p.onSet?.(key, Number((score + by).toFixed(4))); };
    switch (event.key) {
      case 'ArrowUp': nudge(step); break;
      case 'ArrowDown': nudge(-step); break;
      case 'PageUp': nudge(1); break;
      case 'PageDown': nudge(-1); break;
      case 'ArrowLeft': focusKey(Math.max(0, key - 1)); break;
      case 'ArrowRight': focusKey(Math.min(p.keys.length - 1, key + 1)); break;
      case 'Home': focusKey(0); break;
      case 'End': focusKey(p.keys.length - 1); break;
      case 'Delete': case 'Backspace': p.onReset?.(key); break;
      case 'l': if (p.onLock) p.onLock(key, p.states[key].locked ? null : p.weights[key]); break;
      case 'x': p.onForbid?.(key); break;
      case 'Enter': host.current?.querySelector<HTMLInputElement>('.row-tools input')?.focus(); break;
      default: return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const down = (event: PointerEvent, key: number) => {
    p.onChoose(key);
    const score = p.scores[key];
    if (!editable || score === null || event.button !== 0) return;
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    setDrag({ key, startY: event.clientY, startScore: score, range: natural, moved: false });
  };
  const valueAt = (event: PointerEvent) => drag!.startScore + (drag!.startY - event.clientY) * (drag!.range[1] - drag!.range[0]) / height;
  const move = (event: PointerEvent) => {
    if (!drag) return;
    if (!drag.moved && Math.abs(event.clientY - drag.startY) < 2) return;
    drag.moved = true;
    p.onDrag!(drag.key, Number(valueAt(event).toFixed(3)), false);
  };
  const up = (event: PointerEvent) => {
    if (!drag) return;
    const { key, moved } = drag;
    const value = Number(valueAt(event).toFixed(3));
    setDrag(null);
    if (moved) p.onDrag!(key, value, true);
  };
  const strongest = useMemo(() => p.values.reduce((most, row) => row.reduce((high, value) => Math.max(high, Math.abs(value)), most), 1e-9), [p.values]);
  const c = Math.min(p.chosen, p.keys.length - 1);
  const sum = p.sum ?? p.weights.reduce((total, weight) => total + weight, 0);
  return <section class={`row-panel ${dense ? 'dense' : ''}`} ref={host} aria-label={t('row.panel', p.query)}>
    <header>
      <h3><span class="hue-q">{p.query}</span> {t('row.reads')}</h3>
      <span class={`live ${p.live}`} role="status">{p.live === 'engine' ? `${t('engine.by')}${p.took != null ? ` · ${p.took < 10 ? p.took.toFixed(2) : p.took.toFixed(0)} ms` : ''}` : p.live === 'preview' ? t('engine.preview') : t('engine.asking')}</span>
    </header>
    {p.hint && <p class="hint"><Icon name="eye" />{p.hint}</p>}
    <div class="row-body">
      <div class="row-stages" aria-hidden="true"><span>{t('key')}</span><span style={{ height: `${height}px` }}>{t('score')}</span><span class="stage-weight">{t('weight')}</span>{p.values.length > 0 && <span>{t('value')}</span>}</div>
      <div class="row-scroll" onPointerLeave={() => p.onPeek?.(null)}><div class={`row-columns ${p.keys.length <= 8 ? 'few' : ''}`}>
        {p.keys.map((label, key) => {
          const score = p.scores[key], state = p.states[key], weight = p.weights[key];
          const top = score === null ? 0 : Math.min(zero, y(score));
          const tall = score === null ? height : Math.abs(y(score) - zero);
          return <div class={`row-column ${key === c ? 'chosen' : ''} ${state.edited ? 'edited' : ''}`} data-key={key}>
            <button type="button" class="key-label hue-k" tabIndex={-1} title={label} onClick={() => focusKey(key)}>{label}</button>
            <div class={`score-track ${score === null ? 'masked' : ''} ${editable ? 'editable' : ''}`} style={dense && score !== null ? { height: `${height}px`, '--top': `${top}px`, '--tall': `${tall}px`, '--grip': `${y(score) - 2}px`, '--zero': `${zero}px`, '--ghost': `${state.edited && p.scaled[key] !== null ? y(p.scaled[key]!) : -9}px` } : { height: `${height}px` }} role="slider" tabIndex={key === c ? 0 : -1} aria-orientation="vertical"
              aria-label={t('row.slider', p.query, label)} aria-valuemin={-100} aria-valuemax={100} aria-valuenow={score ?? -100} aria-disabled={!editable || score === null}
              aria-valuetext={score === null ? t('masked') : `${t('score')} ${show(score)}, ${t('weight')} ${show(weight)}${state.locked ? ', ' + t('row.locked') : ''}`}
              onKeyDown={(event) => keys(event, key)} onPointerDown={(event) => down(event, key)} onPointerMove={move} onPointerUp={up} onPointerCancel={up}
              onPointerEnter={() => p.onPeek?.({ stage: 'score', key })} onDblClick={() => p.onReset?.(key)} onFocus={() => { if (key !== c) p.onChoose(key); }}>
              {score === null ? <i class="forbidden">{state.forbidden ? '✕' : '−∞'}</i> : !dense && <>
                {state.edited && p.scaled[key] !== null && <i class="ghost" style={{ transform: `translateY(${y(p.scaled[key]!)}px)` }} />}
                <i class="zero" style={{ transform: `translateY(${zero}px)` }} />
                <i class="score-bar" style={{ transform: `translateY(${top}px)`, height: `${tall}px` }} />
                <i class="grip" style={{ transform: `translateY(${y(score)}px)` }} />
                <span class="score-text" style={{ transform: `translateY(${y(score) < 24 || (score < 0 && y(score) < height - 26) ? y(score) + 6 : y(score) - 21}px)` }}>{show(score)}</span>
              </>}
            </div>
            <div class="weight-track" style={dense ? { '--share': `${(100 * weight).toFixed(2)}%`, '--old': `${(100 * (p.base?.weights[key] ?? 0)).toFixed(2)}%` } : undefined} data-weight={weight} onPointerEnter={(event) => { fullOnHover(weight)(event); p.onPeek?.({ stage: 'weight', key }); }}>
              {!dense && p.base && <i class="weight-ghost" style={{ transform: `scaleY(${p.base.weights[key] ?? 0})` }} />}
              {!dense && <i class={`weight-bar ${state.locked ? 'locked' : ''}`} style={{ transform: `scaleY(${weight})` }} />}
              {!dense && <span class="weight-text">{show(weight)}</span>}
              {state.locked && <span class="lock-mark"><Icon name="lock" /></span>}
            </div>
            {p.values.length > 0 && <div class="value-chips" style={{ opacity: 0.25 + 0.75 * Math.min(1, weight * 1.6) }} onPointerEnter={() => p.onPeek?.({ stage: 'value', key })}>
              <Chips values={p.values[key]} strongest={strongest} />
            </div>}
          </div>;
        })}
      </div></div>
      {p.output.length > 0 && <div class="row-output"><h4 class="hue-v">{t('row.output')}</h4>
        {p.output.length > 8 ? <Spectrum values={p.output} base={p.base?.output ?? null} /> : <ol data-vector="output">{p.output.map((value, x) => <li title={exact(value)} data-value={value}><i style={{ '--h': Math.min(1, Math.abs(value) / strongest).toFixed(3) }} class={value < 0 ? 'negative' : ''} /><b>{show(value)}</b>
          {p.base && Math.abs((p.base.output[x] ?? value) - value) > 1e-6 && <s>{show(p.base.output[x])}</s>}</li>)}
          </ol>}
        <p class="sum">Σ {t('weight')} <b data-sum={sum}>{sum.toFixed(6).replace(/0{1,3}$/, '')}</b>{p.entropy != null && <> · {t('entropy')} <b>{show(p.entropy)}</b></>}</p>
      </div>}
    </div>
    {editable && p.keys.length > 0 && <div class="row-tools" role="group" aria-label={t('row.tools')}>
      <span class="edge"><b class="hue-q">{p.query}</b> ← <b class="hue-k">{p.keys[c]}</b></span>
      <NumberField label={t('score')} value={p.scores[c]} empty="−∞" step={0.1} onChange={(value) => p.onSet?.(c, value)} />
      {p.onLock && <NumberField label={t('weight')} value={p.weights[c] ?? 0} step={0.05} onChange={(value) => p.onLock!(c, value)} />}
      {p.onLock && <Button icon="lock" text label={p.states[c]?.locked ? t('row.unlock') : t('row.lock')} pressed={!!p.states[c]?.locked} small keys="l" onClick={() => p.onLock!(c, p.states[c].locked ? null : p.weights[c])} />}
      {p.onForbid && <Button icon="cut" text label={p.states[c]?.forbidden ? t('row.allow') : t('row.forbid')} pressed={!!p.states[c]?.forbidden} small keys="x" onClick={() => p.onForbid!(c)} />}
      <Button icon="reset" text label={t('reset')} small disabled={!p.states[c]?.edited} keys="Delete" onClick={() => p.onReset?.(c)} />
    </div>}
  </section>;
}

// The numbers of a value do not change while a score is dragged: drawn again only when they are others.
class Chips extends Component<{ values: number[] | undefined; strongest: number }> {
  shouldComponentUpdate(next: { values: number[] | undefined; strongest: number }) { return next.values !== this.props.values || next.strongest !== this.props.strongest; }
  render() {
    const { values, strongest } = this.props;
    return values?.slice(0, 8).map((value) => <i class={value < 0 ? 'negative' : ''} style={{ '--h': (Math.abs(value) / strongest).toFixed(3) }} onPointerEnter={fullOnHover(value)} />);
  }
}

// A wide output: one bar a number, up or down from 0; the ghost is the row without edits.
function Spectrum({ values, base }: { values: number[]; base: number[] | null }) {
  const [at, setAt] = useState<number | null>(null);
  const most = Math.max(1e-9, ...values.map(Math.abs), ...(base ?? []).map(Math.abs));
  return <div class="spectrum-box"><div class="spectrum" role="img" aria-label={`${t('row.output')}: ${values.slice(0, 8).map((value) => show(value)).join(', ')}, …`} data-vector="output" onPointerLeave={() => setAt(null)}>
    {values.map((value, x) => <i class={at === x ? 'now' : ''} data-value={value} onPointerEnter={(event) => { fullOnHover(value, `${x}: `)(event); setAt(x); }} style={{ '--y': (value / most).toFixed(4), '--b': ((base?.[x] ?? 0) / most).toFixed(4) }}><b class={value < 0 ? 'negative' : ''} />{base && <s class={(base[x] ?? 0) < 0 ? 'negative' : ''} />}</i>)}</div>
    <small>{at === null ? t('row.numbers', values.length) : `${at}: ${show(values[at])}${base ? ` (${show(base[at])})` : ''}`}</small></div>;
}

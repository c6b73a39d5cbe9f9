// The row at several distances: running text, lines between two rows of tokens, the pipeline of numbers.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ComponentChildren } from 'preact';
import { linkVertical } from 'd3-shape';
import { paletteOf, ramp, weightStyle } from '../colours';
import type { RowResult, Token } from '../engine';
import { lockable } from '../lock';
import { exact, fullOnHover, show } from '../numbers';
import { RowPanel } from '../rowpanel';
import { softmaxWithLocks, standsIn, type RowPreview, type StandIn } from '../softmax';
import { dark, textScale } from '../shared';
import { Button, Icon, Segmented, Select, Tex } from '../ui';
import { t } from '../words';
import {
  apart,
  axes,
  base,
  baseRow,
  byWords,
  cellEdit,
  choose,
  directionOfTokens,
  draft,
  dropCell,
  failure,
  headCut,
  headName,
  holds,
  info,
  inForce,
  keysShown,
  label,
  lens,
  peekQuery,
  pinned,
  placed,
  putCell,
  refused,
  room,
  row,
  rowFor,
  sameText,
  sentencesOf,
  site,
  tile,
  toggleHead,
  togglePin,
} from './state';
import { useTile } from './tile';

// ---- Weights of the row that is shown: the chosen one, or the one that is hovered ----------------------------------

export function useRowWeights(): { query: number; weights: number[] | null } {
  const r = room.value;
  const [, again] = useState(0);
  const query = peekQuery.value ?? r.at.query;
  if (
    query === r.at.query &&
    row.value &&
    rowFor.value &&
    sameText(rowFor.value) &&
    rowFor.value.at.query === query &&
    row.value.attention === r.at.attention &&
    row.value.head === r.at.head
  )
    return { query, weights: row.value.weights };
  if (!base.value) return { query, weights: null };
  const got = tile(r, r.at.attention, [r.at.head], 'weights', [query, query + 1], undefined, 1);
  if (got instanceof Promise) {
    got.then(() => again((n) => n + 1)).catch(() => undefined);
    return { query, weights: null };
  }
  return { query, weights: Array.from(got.data) };
}

// ---- Running text -------------------------------------------------------------------------------------------------

const windowSize = 600;

// Tokens that are shown as one: each alone, or those of one word. Bytes of one character read as the character.
interface Shown {
  first: number;
  last: number;
  text: string;
  kind: string;
}
function shownTokens(tokens: Token[], first: number, end: number, words: boolean): Shown[] {
  const out: Shown[] = [];
  for (let i = first; i < end; ++i) {
    const token = tokens[i],
      before = tokens[i - 1],
      open = out.at(-1);
    if (words && open && token.kind !== 'special' && before.kind !== 'special' && token.word === before.word) {
      open.last = i;
      if (token.kind !== 'byte' || token.joined) open.text += token.joined ?? token.characters ?? token.text;
    } else out.push({ first: i, last: i, text: words && token.joined ? token.joined : label(token), kind: token.kind });
  }
  return out;
}

function Words({
  tokens,
  hue,
  chosen,
  weights,
  onChoose,
  onPeek,
  name,
  shares,
  hidden,
}: {
  tokens: Token[];
  hue: 'q' | 'k';
  chosen: number;
  weights: number[] | null;
  shares?: ((i: number) => number) | null;
  hidden?: ((i: number) => boolean) | null;
  onChoose: (i: number) => void;
  onPeek?: (i: number | null) => void;
  name: string;
}) {
  const palette = paletteOf(dark.value);
  // Thousands of tokens: a window of them around the chosen one stands in the page.
  const [from, setFrom] = useState(0);
  const first = tokens.length <= windowSize ? 0 : Math.max(0, Math.min(from, tokens.length - windowSize));
  useEffect(() => {
    if (tokens.length > windowSize && (chosen < first || chosen >= first + windowSize))
      setFrom(Math.max(0, chosen - windowSize / 2));
  }, [chosen, tokens.length]);
  const host = useRef<HTMLDivElement>(null);
  const direction = directionOfTokens(tokens.slice(first, first + windowSize));
  const keys = (event: KeyboardEvent) => {
    const [onward, back] = direction === 'rtl' ? ['ArrowLeft', 'ArrowRight'] : ['ArrowRight', 'ArrowLeft'];
    const step =
      event.key === onward || event.key === 'ArrowDown' ? 1 : event.key === back || event.key === 'ArrowUp' ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const all = [...host.current!.querySelectorAll<HTMLElement>('[data-token]')];
    const at = all.findIndex((one) => one.getAttribute('aria-selected') === 'true'),
      next = all[Math.max(0, Math.min(all.length - 1, at + step))];
    if (!next) return;
    onPeek?.(null); // a pointer that rests on a token holds nobody back
    onChoose(Number(next.dataset.token));
    next.focus();
  };
  const after = tokens.length - first - windowSize;
  // Outside the list: what is in it are its options.
  const further = (count: number, word: 'room.window.before' | 'room.window.after', to: number) =>
    count > 0 && (
      <button type="button" class="window" aria-label={t(word, count)} onClick={() => setFrom(to)}>
        {word === 'room.window.before' ? `… ${count}` : `${count} …`}
      </button>
    );
  return (
    <div class="words-box" onPointerLeave={() => onPeek?.(null)}>
      {further(first, 'room.window.before', first - windowSize / 2)}
      <div
        class="words"
        role="listbox"
        dir={direction}
        aria-label={name}
        aria-orientation="horizontal"
        ref={host}
        onKeyDown={keys}
      >
        {shownTokens(tokens, first, Math.min(tokens.length, first + windowSize), byWords.value).map(
          ({ first: i, last, text, kind }) => {
            // Of a word of several tokens: the sum, which is what the word was given.
            const all = Array.from({ length: last - i + 1 }, (_, n) => i + n);
            const weight = weights ? all.reduce((sum, j) => sum + (weights[j] ?? 0), 0) : null;
            const share =
              weight === null
                ? 0
                : shares
                  ? Math.min(
                      1,
                      all.reduce((sum, j) => sum + shares(j), 0),
                    )
                  : ramp(weight);
            const as = tokens[i].characters !== undefined ? t('room.unknown', tokens[i].text) : '';
            const wordStart = i > first && /^[ \u2581]/.test(tokens[i].text),
              now = chosen >= i && chosen <= last,
              away = !!hidden?.(i);
            return (
              <>
                {wordStart ? ' ' : <wbr />}
                <span
                  role="option"
                  aria-selected={now}
                  tabIndex={now ? 0 : -1}
                  data-token={i}
                  data-last={last > i ? last : undefined}
                  class={`token ${kind} ${now ? `chosen-${hue}` : ''} ${away ? 'away' : ''}`}
                  style={weight !== null ? weightStyle(palette, away ? 0 : share) : undefined}
                  title={`${i}: ${apart(text)}${as && ` · ${as}`}${weight !== null ? ` · ${exact(weight)}` : ''}`}
                  aria-label={[text, as, weight !== null && `${t('weight')} ${show(weight)}`]
                    .filter(Boolean)
                    .join(', ')}
                  data-weight={weight ?? undefined}
                  data-share={shares && weight !== null ? share.toFixed(3) : undefined}
                  onClick={() => onChoose(i)}
                  onPointerEnter={() => onPeek?.(i)}
                  dir="auto"
                >
                  {text}
                </span>
              </>
            );
          },
        )}
      </div>
      {further(after, 'room.window.after', first + windowSize / 2)}
    </div>
  );
}

// Which keys the choice of sentences leaves out of the text and the lines; null: none. Numbers stay those of the whole row.
function useHidden(query: number): ((j: number) => boolean) | null {
  const a = site.value;
  if (keysShown.value === 'all' || !a) return null;
  const { queries, keys } = axes(a, base.value);
  const mine = sentencesOf(queries)[query],
    of = sentencesOf(keys),
    same = keysShown.value === 'same';
  return (j) => (of[j] === mine) !== same;
}

export function TextView() {
  const a = site.value,
    r = room.value;
  const { queries, keys } = axes(a, base.value);
  const { query, weights } = useRowWeights();
  if (!a || !queries.length) return null;
  const peek = (i: number | null) => {
    peekQuery.value = i;
  };
  const cross = a.part === 'cross';
  const look =
    lens.value && lens.value.attention === a.name && lens.value.head === r.at.head && lens.value.query === query
      ? lens.value
      : null;
  const most = look ? Math.max(1e-12, ...[...look.values.values()].map(Math.abs)) : 1;
  const shares = look ? (j: number) => Math.abs(look.values.get(j) ?? 0) / most : null;
  const hidden = useHidden(query);
  const sum = weights && hidden ? weights.reduce((total, w, j) => (hidden(j) ? total : total + w), 0) : null;
  const unknown = [...keys, ...queries].find((token) => token.characters !== undefined);
  const sentences = Math.max(1, (sentencesOf(keys).at(-1) ?? 0) + 1);
  return (
    <div class="text-view">
      <div class="text-tools">
        <Segmented
          label={t('room.group')}
          id="group"
          value={byWords.value ? 'words' : 'tokens'}
          onChange={(value) => {
            byWords.value = value === 'words';
          }}
          options={[
            { value: 'tokens', label: t('room.group.tokens') },
            { value: 'words', label: t('room.group.words') },
          ]}
        />
        {sentences > 1 && (
          <Select
            id="keys-shown"
            label={t('room.keys.shown')}
            value={keysShown.value}
            onChange={(value) => {
              keysShown.value = value as 'all' | 'same' | 'other';
            }}
            options={(['all', 'same', 'other'] as const).map((value) => ({ value, label: t(`keys.${value}`) }))}
          />
        )}
        {sum !== null && (
          <span class="faint" data-shown-sum={sum}>
            {t('room.keys.sum', show(sum))}
          </span>
        )}
        {look && look.method !== 'weight' && (
          <span class="hue-e" data-lens={look.method}>
            {t('room.lens', t(`method.${look.method}`))}
          </span>
        )}
      </div>
      {cross ? (
        <>
          <p class="line-name hue-k">{t('room.source')}</p>
          <Words
            name={t('room.keys')}
            tokens={keys}
            hue="k"
            chosen={r.at.key}
            weights={weights}
            shares={shares}
            hidden={hidden}
            onChoose={(key) => choose({ key })}
          />
          <p class="line-name hue-q">{t('room.target')}</p>
          <Words
            name={t('room.queries')}
            tokens={queries}
            hue="q"
            chosen={query}
            weights={null}
            onChoose={(q) => choose({ query: q })}
            onPeek={peek}
          />
        </>
      ) : (
        <>
          <p class="line-name hue-q">
            {a.stack === 'encoder' && info.value?.family === 'encoder-decoder'
              ? t('room.source')
              : info.value?.family === 'encoder-decoder'
                ? t('room.target')
                : t('room.text')}
          </p>
          <Words
            name={t('room.queries')}
            tokens={queries}
            hue="q"
            chosen={query}
            weights={weights}
            shares={shares}
            hidden={hidden}
            onChoose={(q) => choose({ query: q })}
            onPeek={peek}
          />
        </>
      )}
      {unknown && (
        <p class="note" data-unknown>
          {t('room.unknown.note', unknown.text)}
        </p>
      )}
    </div>
  );
}

// ---- Lines --------------------------------------------------------------------------------------------------------

const link = linkVertical<{ source: [number, number]; target: [number, number] }, [number, number]>();

export function Lines() {
  const a = site.value,
    r = room.value;
  const { queries, keys } = axes(a, base.value);
  const { query, weights } = useRowWeights();
  const hidden = useHidden(query);
  const many = queries.length > 64 || keys.length > 64;
  const matrix = useTile(r, many || !a ? null : a.name, [r.at.head], [0, queries.length], [0, keys.length], 1);
  if (!a || !queries.length) return null;
  if (many) return <p class="faint">{t('room.lines.many')}</p>;
  const scale = textScale.value;
  const size = (token: Token) =>
    scale *
    Math.max(
      22,
      [...label(token)].reduce((sum, c) => sum + (c > '\u2e80' ? 15 : 8.4), 10),
    );
  const lay = (tokens: Token[]) => {
    let x = 8;
    return tokens.map((token) => {
      const w = size(token),
        at = x + w / 2;
      x += w + 6;
      return { at, w, end: x };
    });
  };
  const top = lay(keys),
    bottom = lay(queries);
  const width = Math.max(top.at(-1)!.end, bottom.at(-1)!.end) + 8;
  // A line of text that runs from right to left is laid out so.
  for (const [tokens, places] of [
    [keys, top],
    [queries, bottom],
  ] as const)
    if (directionOfTokens(tokens) === 'rtl') for (const place of places) place.at = width - place.at;
  const h = 190;
  const lines = [];
  const current = weights;
  for (let i = 0; i < queries.length; ++i) {
    for (let j = 0; j < keys.length; ++j) {
      const w =
        i === query && current
          ? current[j]
          : matrix && matrix.rows === queries.length
            ? matrix.data[i * matrix.columns + j]
            : 0;
      if (w < 0.03 || i === query) continue;
      lines.push(
        <path
          d={link({ source: [top[j].at, 34], target: [bottom[i].at, h - 34] })!}
          class="thread"
          style={{ opacity: w * 0.35 }}
        />,
      );
    }
  }
  current?.forEach((w, j) => {
    if (w >= 0.005 && top[j] && !hidden?.(j))
      lines.push(
        <path
          d={link({ source: [top[j].at, 34], target: [bottom[query].at, h - 34] })!}
          class="thread now"
          style={{ opacity: Math.max(0.12, w), strokeWidth: 1 + 5 * w }}
        />,
      );
  });
  // One of each line of tokens is in the order of Tab; arrow keys go on from it.
  const place = (kind: 'key' | 'query', i: number, chosen: number, count: number) => ({
    role: 'button' as const,
    tabindex: i === chosen ? 0 : -1,
    'aria-pressed': i === chosen,
    [`data-line-${kind}`]: i,
    onClick: () => choose({ [kind]: i }),
    onKeyDown: (event: KeyboardEvent) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Enter: i, ' ': i }[event.key];
      if (to === undefined || to < 0 || to >= count) return;
      event.preventDefault();
      event.stopPropagation();
      peekQuery.value = null;
      choose({ [kind]: to });
      (event.currentTarget as Element).parentElement?.querySelector<SVGElement>(`[data-line-${kind}="${to}"]`)?.focus();
    },
  });
  return (
    <div class="lines-scroll">
      <svg
        class="lines"
        width={width}
        height={h}
        viewBox={`0 0 ${width} ${h}`}
        role="group"
        aria-label={t('room.lines.name', placed(queries, query))}
      >
        <g aria-hidden="true">{lines}</g>
        {keys.map((token, j) => (
          <text
            x={top[j].at}
            y="24"
            text-anchor="middle"
            class={`line-key ${token.kind} ${j === r.at.key ? 'now' : ''}`}
            {...place('key', j, r.at.key, keys.length)}
          >
            {label(token)}
          </text>
        ))}
        {queries.map((token, i) => (
          <text
            x={bottom[i].at}
            y={h - 14}
            text-anchor="middle"
            class={`line-query ${token.kind} ${i === query ? 'now' : ''}`}
            {...place('query', i, r.at.query, queries.length)}
            onPointerEnter={() => {
              peekQuery.value = i;
            }}
            onPointerLeave={() => {
              peekQuery.value = null;
            }}
          >
            {label(token)}
          </text>
        ))}
      </svg>
    </div>
  );
}

// ---- The row ------------------------------------------------------------------------------------------------------

const shownKeys = 40;
const none: number[] = [];

export function RoomRow() {
  const r = room.value,
    a = site.value,
    w = row.value,
    before = baseRow.value;
  const [standIn, setPreview] = useState<StandIn | null>(null);
  const of = rowFor.value;
  const current =
    !!w &&
    !!of &&
    holds(of) &&
    of.at.attention === r.at.attention &&
    of.at.head === r.at.head &&
    of.at.query === r.at.query;
  const preview = standsIn(standIn, r.edits, current ? of.edits : undefined) ? standIn : null;
  if (
    !w ||
    !before ||
    !a ||
    !of ||
    !sameText(of) ||
    w.attention !== r.at.attention ||
    w.head !== r.at.head ||
    w.query !== r.at.query
  ) {
    return failure.value !== null ? (
      <p class="faint" data-row="none">
        {t('room.row.none')}
      </p>
    ) : (
      <div class="skeleton" role="status">
        {t('engine.asking')}…
      </div>
    );
  }
  const { queries, keys } = axes(a, base.value);
  const { attention, head, query } = r.at;
  // Long rows show their largest weights, in the order of the text; the sums are of the whole row.
  const all =
    w.weights.length <= 64
      ? w.weights.map((_, j) => j)
      : [
          ...new Set([
            ...w.weights
              .map((weight, j) => [weight, j])
              .sort((x, y) => y[0] - x[0])
              .slice(0, shownKeys)
              .map(([, j]) => j),
            r.at.key,
            ...inForce(r.edits)
              .filter((e) => e.attention === attention && e.head === head && e.query === query && (e.key ?? -1) >= 0)
              .map((e) => e.key!),
          ]),
        ].sort((x, y) => x - y);
  const valueOf = new Map(w.keys.map((key, i) => [key, w.value_vectors[i]]));
  const values = all.map((j) => valueOf.get(j) ?? none);
  const put = (kind: 'set' | 'lock' | 'forbid', key: number, value?: number, merge = false) =>
    putCell(
      { kind, attention, head, query, key, ...(value === undefined ? {} : { value }) },
      merge ? `${kind} ${attention} ${head} ${query} ${key}` : null,
    );
  // Beside the other locks of its row, which may be said of all heads or queries, a lock has only what they leave.
  const lock = (key: number, weight: number) => {
    const others = inForce(r.edits).filter(
      (e) =>
        e.kind === 'lock' &&
        e.attention === attention &&
        (e.head === head || e.head === -1) &&
        (e.query === query || e.query === -1) &&
        e.key !== key,
    );
    put('lock', key, lockable(weight, key, w.scores, others), true);
  };
  const withScore = (key: number, score: number): RowPreview => {
    const scores = (preview ?? w).scores.slice();
    scores[key] = score;
    const locked = new Map<number, number>();
    for (const e of inForce(r.edits))
      if (e.kind === 'lock' && e.attention === attention && e.head === head && e.query === query && e.key !== key)
        locked.set(e.key!, e.value ?? 0);
    const weights = softmaxWithLocks(scores, locked);
    const output = w.output.slice();
    // With all values at hand the mix follows; of a longer row it waits for the engine.
    if (w.keys.length === w.weights.length) {
      output.fill(0);
      weights.forEach((weight, j) => {
        const v = valueOf.get(j)!;
        for (let x = 0; x < output.length; ++x) output[x] += weight * v[x];
      });
    }
    return { scores, weights, output };
  };
  // Nothing is committed while a finger is on a bar: the row shows its preview, the next tokens come from the engine as fast as
  // it answers, and the end of the drag is one step for undo.
  const drag = (at: number, score: number, done: boolean) => {
    const key = all[at];
    const shown = withScore(key, score);
    if (done) put('set', key, score);
    else draft({ kind: 'set', attention, head, query, key, value: score });
    setPreview({ ...shown, edits: done ? room.value.edits : null });
  };
  const scores = preview?.scores ?? w.scores,
    weights = preview?.weights ?? w.weights;
  const sinkMass = weights[0];
  const hasEdits = inForce(r.edits).length > 0;
  return (
    <>
      <p class="place faint">
        <code>{attention}</code> · {t('head')} {head} · {t('query')} {query} · {t('key')} {r.at.key}
      </p>
      <RowPanel
        query={label(queries[query])}
        keys={all.map((j) => label(keys[j]))}
        scaled={all.map((j) => before.scores[j])}
        scores={all.map((j) => scores[j])}
        weights={all.map((j) => weights[j])}
        values={values}
        output={preview?.output ?? w.output}
        base={hasEdits ? { weights: all.map((j) => before.weights[j]), output: before.output } : null}
        states={all.map((j) => {
          const edit = cellEdit(r.edits, r.at, query, j);
          return { edited: !!edit, locked: edit?.kind === 'lock', forbidden: edit?.kind === 'forbid' };
        })}
        chosen={Math.max(0, all.indexOf(r.at.key))}
        live={
          current && !preview ? 'engine' : refused.value ? 'stale' : preview ? 'preview' : current ? 'engine' : 'asking'
        }
        took={w.took}
        entropy={preview ? null : w.entropy}
        sum={weights.reduce((total, weight) => total + weight, 0)}
        hint={!r.edits.length ? t('bench.hint') : undefined}
        onChoose={(at) => choose({ key: all[at] })}
        onDrag={drag}
        onSet={(at, score) => {
          const shown = withScore(all[at], score);
          put('set', all[at], score, true);
          setPreview({ ...shown, edits: room.value.edits });
        }}
        onLock={(at, weight) => {
          if (weight === null) dropCell({ ...r.at, key: all[at] });
          else lock(all[at], weight);
        }}
        onForbid={(at) => {
          if (cellEdit(r.edits, r.at, query, all[at])?.kind === 'forbid') dropCell({ ...r.at, key: all[at] });
          else put('forbid', all[at]);
        }}
        onReset={(at) => dropCell({ ...r.at, key: all[at] })}
      />
      {all.length < w.weights.length && <p class="note">{t('room.row.part', all.length, w.weights.length)}</p>}
      {query > 1 && sinkMass > 0.5 && <p class="note">{t('room.sink', apart(label(keys[0])), show(sinkMass))}</p>}
      <Pipeline />
    </>
  );
}

// A vector as a strip of cells; hovering says each number to the last bit.
export function Strip({ id, values, hue, name }: { id: string; values: number[]; hue: string; name: string }) {
  const [at, setAt] = useState<number | null>(null);
  const most = Math.max(1e-9, ...values.map(Math.abs));
  return (
    <div class="strip-box">
      <div
        class={`strip tone-${hue}`}
        data-vector={id}
        role="img"
        aria-label={`${name}: ${values
          .slice(0, 8)
          .map((value) => show(value))
          .join(', ')}${values.length > 8 ? ', …' : ''}`}
        onPointerLeave={() => setAt(null)}
      >
        {values.map((value, i) => (
          <i
            class={value < 0 ? 'negative' : ''}
            style={{ '--t': (Math.abs(value) / most).toFixed(3) }}
            data-value={value}
            onPointerEnter={(event) => {
              fullOnHover(value, `${i}: `)(event);
              setAt(i);
            }}
          />
        ))}
      </div>
      <small>{at === null ? `${values.length}` : `${at}: ${show(values[at])}`}</small>
    </div>
  );
}

function Pipeline() {
  const w = row.value!,
    r = room.value,
    a = site.value!;
  const { queries, keys } = axes(a, base.value);
  const at = w.keys.indexOf(r.at.key),
    j = r.at.key;
  const bar = Math.max(1e-9, ...w.head_norms);
  const line = (tex: string, what: ComponentChildren, value?: number | null, tone = '') => (
    <li>
      <Tex tex={tex} />
      <div>{what}</div>
      {value !== undefined && (
        <b class={tone} data-value={value ?? '-inf'} title={exact(value)}>
          {show(value, 4)}
        </b>
      )}
    </li>
  );
  const rotated = !!w.rotated_query;
  return (
    <details class="pipeline" open>
      <summary>{t('room.pipeline', placed(queries, r.at.query), placed(keys, j))}</summary>
      <ol>
        {line('x', <Strip id="input" hue="x" name={t('room.p.input')} values={w.input} />)}
        {line('q', <Strip id="query" hue="q" name={t('query')} values={w.query_vector} />)}
        {rotated && line('Rq', <Strip id="rotated-query" hue="q" name={t('matrix.rq')} values={w.rotated_query!} />)}
        {at >= 0 && line('k', <Strip id="key" hue="k" name={t('key')} values={w.key_vectors[at]} />)}
        {at >= 0 &&
          rotated &&
          line('Rk', <Strip id="rotated-key" hue="k" name={t('matrix.rk')} values={w.rotated_keys![at]} />)}
        {line('q\\cdot k', t('room.p.product'), w.products[j])}
        {line(`\\times ${w.scale.toFixed(4)}`, t('room.p.scaled'), w.scaled[j])}
        {line(
          's',
          w.scores[j] === null
            ? t('masked')
            : cellEdit(r.edits, r.at, r.at.query, j)
              ? t('formula.edited')
              : t('room.p.score'),
          w.scores[j],
        )}
        {line(
          'w',
          <>
            {t('room.p.weight')}{' '}
            <small class="faint">
              log Σ e<sup>s</sup> = {show(w.log_sum_exp)}
            </small>
          </>,
          w.weights[j],
          'hue-w',
        )}
        {at >= 0 && line('v', <Strip id="value" hue="v" name={t('value')} values={w.value_vectors[at]} />)}
        {line('o=\\sum w\\,v', <Strip id="mix" hue="v" name={t('row.output')} values={w.output} />)}
        {line('o\\,W_O', <Strip id="written" hue="x" name={t('room.p.written')} values={w.written} />)}
        {line('y', <Strip id="projected" hue="x" name={t('room.p.projected')} values={w.projected} />)}
        {line(
          'b',
          w.projection_bias.every((value) => value === 0) ? (
            <span class="faint">{t('room.p.no.bias')}</span>
          ) : (
            <Strip id="projection-bias" hue="x" name={t('room.p.bias')} values={w.projection_bias} />
          ),
        )}
        {line(
          'w\\,\\lVert v W_O\\rVert',
          t(headCut(r.edits, r.at.attention, r.at.head) ? 'room.p.norm.cut' : 'room.p.norm'),
          w.write_norms[j],
          'hue-w',
        )}
      </ol>
      <div class="head-sum">
        <p>{t('room.p.heads')}</p>
        <div class="head-bars">
          {w.head_norms.map((norm, h) => (
            <button
              type="button"
              class={`${h === r.at.head ? 'now' : ''} ${headCut(r.edits, r.at.attention, h) ? 'cut' : ''}`}
              aria-label={`${headName(r.at.attention, h)}, ${show(norm)}`}
              title={`${headName(r.at.attention, h)}: ${exact(norm)}`}
              onClick={() => choose({ head: h })}
            >
              <i style={{ '--h': (norm / bar).toFixed(3) }} />
              <span>{h}</span>
            </button>
          ))}
        </div>
        <HeadSum of={w} />
      </div>
    </details>
  );
}

// Sums of float32 agree to a few units in the last place of the largest that goes into them.
function HeadSum({ of: w }: { of: RowResult }) {
  if (w.head_sum === null)
    return (
      <p class="check-line" data-head-sum="none">
        {t('room.p.sum.none')}
      </p>
    );
  const right = w.head_sum <= 1e-5 * Math.max(1, Math.hypot(...w.projected), ...w.head_norms);
  return (
    <p class="check-line" data-head-sum={right ? 'right' : 'wrong'}>
      <Icon name={right ? 'check' : 'close'} />
      {t(right ? 'room.p.sum' : 'room.p.sum.wrong', w.head_sum.toExponential(1))}
    </p>
  );
}

// ---- The chosen head

export function HeadTools() {
  const r = room.value,
    a = site.value;
  if (!a) return null;
  const cut = headCut(r.edits, a.name, r.at.head);
  return (
    <div class="head-tools">
      <b class="head-name">
        <code>{a.name}</code> · {t('head')} {r.at.head}
      </b>
      <Button
        small
        icon="cut"
        text
        label={cut ? t('room.head.back') : t('room.head.cut')}
        pressed={cut}
        id="cut-head"
        onClick={() => toggleHead(a.name, r.at.head)}
      />
      <Button
        small
        icon="grid"
        text
        label={t('room.pin')}
        pressed={pinned.value.some((p) => p.attention === a.name && p.head === r.at.head)}
        id="pin-head"
        onClick={() => togglePin(a.name, r.at.head)}
      />
    </div>
  );
}

// A small workbench inside a lesson: a state of its own, the engine's answer to it, and the same grids and row as everywhere.
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Grid, type Cell, type GridProps } from '../grid';
import { RowPanel } from '../rowpanel';
import { previewRow, standsIn, type StandIn } from '../softmax';
import { Lane, type AttentionResult, type EditKind } from '../engine';
import { show } from '../numbers';
import { complain, engine, hush, returned, touch } from '../shared';
import { Tex } from '../ui';
import { t, type Key } from '../words';
import { feeds, formulaOf, matrixName, type MatrixId, type Place } from '../bench/formula';
import {
  editOf,
  keyNames,
  lockFor,
  queryNames,
  requestOf,
  rowEdits,
  withEdit,
  withoutEdit,
  type Bench,
} from '../bench/state';

export interface Mini {
  b: Bench;
  r: AttentionResult | null;
  base: AttentionResult | null;
  fresh: boolean; // r belongs to b
  touched: boolean;
  change: (next: Partial<Bench>) => void;
  reset: () => void;
  hover: Place | null;
  setHover: (place: Place | null) => void;
}

export function useMini(from: Bench): Mini {
  const [start] = useState(from);
  const [b, setB] = useState(start);
  const [r, setR] = useState<AttentionResult | null>(null);
  const [base, setBase] = useState<AttentionResult | null>(null);
  const [answered, setAnswered] = useState<Bench | null>(null);
  const [hover, setHover] = useState<Place | null>(null);
  const lane = useMemo(() => new Lane((state: Bench) => engine.attention(requestOf(state))), []);
  const latest = useRef(b);
  latest.current = b;
  useEffect(() => {
    lane
      .ask(b)
      .then((reply) => {
        if (reply) {
          hush('engine');
          setR(reply);
          setAnswered(b);
          if (!b.edits.length) setBase(reply);
        }
      })
      .catch(complain);
  }, [b, returned.value]);
  return {
    b,
    r,
    base,
    fresh: answered === b || answered?.edits === b.edits,
    touched: b !== start,
    change: (next) => {
      latest.current = { ...latest.current, ...next };
      setB(latest.current);
    },
    reset: () => setB(start),
    hover,
    setHover,
  };
}

const titles: Record<string, string> = {
  x: 'X',
  memory: 'M',
  wq: 'W_Q',
  wk: 'W_K',
  wv: 'W_V',
  wo: 'W_O',
  q: 'Q',
  k: 'K',
  v: 'V',
  products: 'QK^{\\top}',
  output: 'O',
  projected: 'O W_O',
};
const tones: Record<string, GridProps['tone']> = {
  x: 'x',
  memory: 'x',
  wq: 'q',
  q: 'q',
  wk: 'k',
  k: 'k',
  wv: 'v',
  v: 'v',
  wo: 'x',
  products: 's',
  scaled: 's',
  scores: 's',
  weights: 'w',
  output: 'v',
  projected: 'x',
};

export function MiniMatrix({
  mini,
  id,
  editable,
  choose,
  more = {},
}: {
  mini: Mini;
  id: MatrixId;
  editable?: boolean;
  choose?: boolean;
  more?: Partial<GridProps>;
}) {
  const { b, r } = mini;
  const head = r?.heads[Math.min(b.chosen.head, r.heads.length - 1)];
  const given =
    ['x', 'memory', 'wq', 'wk', 'wv', 'wo'].includes(id) || (b.source === 'direct' && ['q', 'k', 'v'].includes(id));
  const rows = given
    ? (b[id as 'x'] as number[][])
    : !r || !head
      ? null
      : id === 'q'
        ? r.q
        : id === 'k'
          ? r.k
          : id === 'v'
            ? r.v
            : id === 'projected'
              ? r.projected
              : id === 'concatenated'
                ? r.concatenated
                : head[id as 'products' | 'scaled' | 'scores' | 'weights' | 'output'];
  if (!rows) return null;
  const isScore = ['products', 'scaled', 'masked', 'scores', 'weights'].includes(id);
  const keySide = id === 'k' || id === 'v' || id === 'memory';
  const labels =
    id.startsWith('w') && id !== 'weights'
      ? undefined
      : keySide
        ? keyNames(b, rows.length)
        : queryNames(b, rows.length);
  const columnCount = rows[0]?.length ?? 0;
  const title = titles[id];
  const set = (cell: Cell, value: number) =>
    mini.change({
      [id]: (b[id as 'x'] as number[][]).map((row, i) =>
        i === cell.row ? row.map((old, c) => (c === cell.column ? value : old)) : row,
      ),
    });
  return (
    <Grid
      id={id}
      title={
        title ? (
          <Tex tex={title} />
        ) : (
          t(
            id === 'weights'
              ? 'bench.weights'
              : id === 'scaled'
                ? 'bench.scaled'
                : b.mask.kind === 'none'
                  ? 'bench.unmasked'
                  : 'bench.masked',
          )
        )
      }
      name={given ? t('bench.name', matrixName(id)) : t(`matrix.${id}` as Key)}
      rows={rows}
      tone={tones[id]}
      typed={given}
      rowLabels={labels}
      rowHue={keySide ? 'k' : id === 'x' ? 'x' : 'q'}
      columnLabels={isScore ? keyNames(b, columnCount) : undefined}
      size={id === 'weights' ? 1 : undefined}
      by={id === 'scaled' && r ? `× ${show(r.scale, 4)}` : id === 'weights' ? 'softmax' : undefined}
      onEdit={editable && given ? set : undefined}
      onPaste={
        editable && given
          ? (pasted) => {
              if (pasted.length === rows.length && pasted[0].length === columnCount) mini.change({ [id]: pasted });
            }
          : undefined
      }
      currentRow={choose ? b.chosen.query : undefined}
      cursor={choose ? { row: b.chosen.query, column: b.chosen.key } : undefined}
      onCursor={
        choose ? (cell) => mini.change({ chosen: { ...b.chosen, query: cell.row, key: cell.column } }) : undefined
      }
      onHover={(cell) => mini.setHover(cell && { matrix: id, ...cell })}
      lit={(row, column) => {
        try {
          return !!r && feeds(b, r, mini.hover, id, row, column);
        } catch {
          return false;
        }
      }}
      edited={isScore ? (row, column) => !!editOf(b.edits, b.chosen.head, row, column) : undefined}
      {...more}
    />
  );
}

export function MiniFormula({ mini }: { mini: Mini }) {
  let text = '';
  try {
    if (mini.hover && mini.r) text = formulaOf(mini.b, mini.r, mini.hover);
  } catch {
    /* the shape has just changed */
  }
  return (
    <p class="mini-formula" aria-live="polite">
      {text || <span class="faint">{t(touch.value ? 'bench.tap' : 'bench.point')}</span>}
    </p>
  );
}

export function MiniRow({
  mini,
  canLock = true,
  canForbid = true,
  hint,
}: {
  mini: Mini;
  canLock?: boolean;
  canForbid?: boolean;
  hint?: string;
}) {
  const { b, r, base } = mini;
  const [standIn, setPreview] = useState<StandIn | null>(null);
  const preview = standsIn(standIn, b.edits, mini.fresh ? b.edits : undefined) ? standIn : null;
  if (!r) return null;
  const { head, query } = b.chosen;
  const h = r.heads[head];
  const valueDim = r.v[0].length / b.heads;
  const values = r.v.map((row) => row.slice(head * valueDim, (head + 1) * valueDim));
  const keys = keyNames(b, r.k.length);
  const put = (kind: EditKind, key: number, value?: number) =>
    mini.change({ edits: withEdit(b.edits, { kind, head, query, key, value }), chosen: { head, query, key } });
  return (
    <RowPanel
      query={queryNames(b, r.q.length)[query]}
      keys={keys}
      scaled={h.masked[query]}
      scores={preview?.scores ?? h.scores[query]}
      weights={preview?.weights ?? h.weights[query]}
      values={values}
      output={preview?.output ?? h.output[query]}
      base={
        b.edits.length && base
          ? { weights: base.heads[head].weights[query], output: base.heads[head].output[query] }
          : null
      }
      states={keys.map((_, key) => {
        const edit = editOf(b.edits, head, query, key);
        return { edited: !!edit, locked: edit?.kind === 'lock', forbidden: edit?.kind === 'forbid' };
      })}
      chosen={b.chosen.key}
      live={preview ? 'preview' : mini.fresh ? 'engine' : 'asking'}
      took={r.took}
      entropy={preview ? null : h.entropy[query]}
      hint={hint && !b.edits.length ? hint : undefined}
      onChoose={(key) => mini.change({ chosen: { ...b.chosen, key } })}
      onDrag={(key, score) => {
        const edits = withEdit(b.edits, { kind: 'set', head, query, key, value: score });
        mini.change({ edits, chosen: { head, query, key } });
        setPreview({ ...previewRow(h.masked[query], rowEdits(edits, head, query), values), edits });
      }}
      onSet={(key, score) => {
        const edits = withEdit(b.edits, { kind: 'set', head, query, key, value: score });
        setPreview({ ...previewRow(h.masked[query], rowEdits(edits, head, query), values), edits });
        mini.change({ edits, chosen: { head, query, key } });
      }}
      onLock={
        canLock
          ? (key, weight) => {
              if (weight === null) mini.change({ edits: withoutEdit(b.edits, head, query, key) });
              else put('lock', key, lockFor({ ...b, chosen: { head, query, key } }, r, key, weight));
            }
          : undefined
      }
      onForbid={
        canForbid
          ? (key) => {
              if (editOf(b.edits, head, query, key)?.kind === 'forbid')
                mini.change({ edits: withoutEdit(b.edits, head, query, key) });
              else put('forbid', key);
            }
          : undefined
      }
      onReset={(key) => mini.change({ edits: withoutEdit(b.edits, head, query, key) })}
    />
  );
}

// A vector of numbers to type into.
export function Vector({
  id,
  title,
  values,
  tone,
  onEdit,
  name,
}: {
  id: string;
  title: ComponentChildren;
  values: number[] | null;
  tone: GridProps['tone'];
  onEdit?: (values: number[]) => void;
  name: string;
}) {
  return (
    values && (
      <Grid
        id={id}
        title={title}
        name={name}
        rows={[values]}
        tone={tone}
        typed={!!onEdit}
        onEdit={onEdit ? (cell, value) => onEdit(values.map((old, i) => (i === cell.column ? value : old))) : undefined}
        onPaste={
          onEdit
            ? (rows) => {
                if (rows[0].length === values.length) onEdit(rows[0]);
              }
            : undefined
        }
      />
    )
  );
}

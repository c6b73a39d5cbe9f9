// The workbench screen: inputs on the left flow into scores, one row, and the output.
import { signal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import type { AttentionResult } from '../engine';
import type { ComponentChildren } from 'preact';
import { explainTable, Grid, largest, Legend, type Cell, type GridProps } from '../grid';
import { RowPanel, type KeyState } from '../rowpanel';
import { previewRow } from '../softmax';
import { parseTable, show, toCsv } from '../numbers';
import { later } from '../pending';
import { complain, copy, download, explain, hush, isGone, pngOf, returned, say, touch } from '../shared';
import { Button, Dialog, Icon, Menu, NumberField, Segmented, Select, Stepper, Tex } from '../ui';
import { t, type Key } from '../words';
import { route, writeState } from '../link';
import { allCsv, cppLines, numpyLines, pythonLines, svgOf } from './export';
import { feeds, formulaOf, matrixName, type MatrixId, type Place } from './formula';
import { MaskGrid } from '../maskgrid';
import { preview, seen, standing, valuesOf } from './preview';
import { examples } from './examples';
import { randomise, reshape, shapeOf, type Shape } from './shapes';
import {
  askAgain,
  baseResult,
  bench,
  change,
  choose,
  draft,
  editOf,
  emptyMask,
  failure,
  future,
  keyNames,
  linkState,
  load,
  nameOf,
  mostSeed,
  past,
  queryNames,
  readBench,
  redo,
  requestOf,
  result,
  rowEdits,
  settled,
  undo,
  withEdit,
  withoutEdit,
  lockFor,
  type Bench,
  type MaskKind,
} from './state';

const hover = signal<Place | null>(null);
const hint = signal(true);

type InputId = 'x' | 'memory' | 'wq' | 'wk' | 'wv' | 'wo' | 'q' | 'k' | 'v';

function drag(key: number, score: number, done: boolean): void {
  const b = bench.value,
    r = result.value;
  const { head, query } = b.chosen;
  const edits = withEdit(b.edits, { kind: 'set', head, query, key, value: score });
  if (r)
    preview.value = {
      head,
      query,
      edits: done ? edits : null,
      ...previewRow(r.heads[head].masked[query], rowEdits(edits, head, query), valuesOf(r, head, b.heads)),
    };
  if (done) change({ edits, chosen: { head, query, key } });
  else draft(edits);
}

function lock(key: number, weight: number | null): void {
  const b = bench.value;
  const { head, query } = b.chosen;
  if (weight === null) {
    change({ edits: withoutEdit(b.edits, head, query, key) });
    return;
  }
  const value = lockFor(b, result.value, key, weight);
  change({ edits: withEdit(b.edits, { kind: 'lock', head, query, key, value }) }, `lock ${head} ${query} ${key}`);
}

function forbid(key: number): void {
  const b = bench.value;
  const { head, query } = b.chosen;
  const had = editOf(b.edits, head, query, key);
  change({
    edits:
      had?.kind === 'forbid'
        ? withoutEdit(b.edits, head, query, key)
        : withEdit(b.edits, { kind: 'forbid', head, query, key }),
  });
}

const resetEdit = (key: number) => {
  const { edits, chosen } = bench.value;
  change({ edits: withoutEdit(edits, chosen.head, chosen.query, key) });
};

export function BenchScreen() {
  const b = bench.value,
    r = result.value;
  const [dialog, setDialog] = useState<{ kind: 'paste'; matrix: InputId } | { kind: 'code'; tab: string } | null>(null);

  useEffect(() => {
    if (returned.value) askAgain();
  }, [returned.value]);
  useEffect(() => {
    const given = route.value.state;
    const read = given === null ? null : readBench(given),
      parsed = read && !('part' in read) ? read : null;
    if (given !== null && !parsed) say(t('bench.link.bad'), 'error');
    // Coming back from another room keeps what stood here, and the steps that can be taken back.
    if (parsed) load(parsed);
    else askAgain();
  }, [route.value]);
  useEffect(() => later(() => writeState('bench', [], linkState(b)), 150), [b, route.value]);
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      // In a field the keys are the field's, its own undo as well.
      if (
        /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) ||
        ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() !== 'z')
      )
        return;
      if (target.closest('dialog')) return;
      const now = bench.value;
      if (event.key === 'z' || (event.key.toLowerCase() === 'z' && (event.ctrlKey || event.metaKey) && !event.shiftKey))
        undo();
      else if (event.key.toLowerCase() === 'z') redo();
      else if (event.key === '[') choose({ head: (now.chosen.head + now.heads - 1) % now.heads });
      else if (event.key === ']') choose({ head: (now.chosen.head + 1) % now.heads });
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', keys);
    return () => removeEventListener('keydown', keys);
  }, []);

  const fits = !!r && r.heads.length === b.heads;
  const chosenHead = Math.min(b.chosen.head, b.heads - 1);
  const head = fits ? r.heads[chosenHead] : null;
  const queries = r ? queryNames(b, r.q.length) : [],
    keys = r ? keyNames(b, r.k.length) : [];
  const query = r ? Math.min(b.chosen.query, r.q.length - 1) : 0;
  const key = r ? Math.min(b.chosen.key, r.k.length - 1) : 0;
  const lit = (matrix: MatrixId) => (row: number, column: number) =>
    !!r && fits && feeds(b, r, hover.value, matrix, row, column);
  const peek = (matrix: MatrixId) => (cell: Cell | null) => {
    hover.value = cell && { matrix, ...cell };
  };

  // What is typed is a step of its own; a run of arrow keys is one.
  const setCell =
    (id: InputId, nudged = false) =>
    (cell: Cell, value: number) => {
      const m = (b[id] as number[][]).map((row, i) =>
        i === cell.row ? row.map((old, c) => (c === cell.column ? value : old)) : row,
      );
      change({ [id]: m } as Partial<Bench>, nudged ? `${id} ${cell.row} ${cell.column}` : null);
    };
  // An input of another shape: what it meets takes that shape, too.
  const setMatrix = (id: InputId, rows: number[][]) => {
    const old = b[id] as number[][];
    if (
      b.source === 'direct' ||
      (id !== 'x' && id !== 'memory') ||
      (rows.length === old.length && rows[0].length === old[0].length)
    ) {
      change({ [id]: rows, edits: [] } as Partial<Bench>);
      return;
    }
    // What is changed while the engine makes the new rows is kept: they are asked for again.
    const take = async () => {
      for (;;) {
        const now = bench.value,
          next: Bench = { ...now, [id]: rows, edits: [] };
        const made = await reshape(next, { ...shapeOf(next), width: rows[0].length });
        if (bench.value !== now) continue;
        change(made);
        return;
      }
    };
    take().catch(complain);
  };
  const nudgeCell =
    (id: InputId) =>
    (event: KeyboardEvent, cell: Cell): boolean => {
      if (!event.altKey || (event.key !== 'ArrowUp' && event.key !== 'ArrowDown')) return false;
      const step = (event.shiftKey ? 1 : 0.1) * (event.key === 'ArrowUp' ? 1 : -1);
      setCell(id, true)(cell, Number(((b[id] as number[][])[cell.row][cell.column] + step).toFixed(4)));
      return true;
    };
  const menuOf = (id: InputId) => (
    <Menu
      label={t('bench.matrix.menu', matrixName(id))}
      icon="more"
      items={[
        { label: t('bench.paste'), onClick: () => setDialog({ kind: 'paste', matrix: id }) },
        { label: t('bench.csv.copy'), onClick: () => void copy(toCsv(b[id] as number[][])) },
        {
          label: t('bench.csv.save'),
          onClick: () => download(`${matrixName(id)}.csv`, toCsv(b[id] as number[][]), 'text/csv'),
        },
        null,
        {
          label: t('bench.identity'),
          onClick: () =>
            setMatrix(
              id,
              (b[id] as number[][]).map((row, i) => row.map((_, c) => (i === c ? 1 : 0))),
            ),
        },
        {
          label: t('bench.zero'),
          onClick: () =>
            setMatrix(
              id,
              (b[id] as number[][]).map((row) => row.map(() => 0)),
            ),
        },
        ...(id === 'wo' ? [{ label: t('bench.without'), onClick: () => change({ wo: null }) }] : []),
      ]}
    />
  );
  const input = (
    id: InputId,
    title: string,
    tone: GridProps['tone'],
    rowLabels?: string[],
    rowHue?: 'q' | 'k' | 'x',
  ) => (
    <Grid
      id={id}
      title={<Tex tex={title} />}
      name={t('bench.name', matrixName(id))}
      rows={b[id] as number[][]}
      tone={tone}
      typed
      rowLabels={rowLabels}
      rowHue={rowHue}
      onEdit={setCell(id)}
      onPaste={(rows) => setMatrix(id, rows)}
      onKey={nudgeCell(id)}
      onHover={peek(id)}
      lit={lit(id)}
      menu={menuOf(id)}
    />
  );
  const output = (
    id: MatrixId,
    title: string,
    of: Of,
    tone: GridProps['tone'],
    rowLabels: string[],
    rowHue: 'q' | 'k',
    more: Partial<GridProps> = {},
  ) => (
    <Live
      id={id}
      title={/^[a-z\u4e00-\u9fff]/.test(title) && !title.includes('^') ? title : <Tex tex={title} />}
      name={t(`matrix.${id}` as Key)}
      of={of}
      tone={tone}
      rowLabels={rowLabels}
      rowHue={rowHue}
      onHover={peek(id)}
      lit={lit(id)}
      {...more}
    />
  );

  const pointAt = (cell: Cell) => choose({ query: cell.row, key: cell.column });
  // What the mask hides no edit opens.
  const shut = ({ row, column }: Cell): boolean => {
    if (head!.masked[row][column] !== null || isEdited(row, column)) return false;
    say(t('row.hidden'), 'info', 'number');
    return true;
  };
  const onScoreKey = (event: KeyboardEvent, cell: Cell): boolean => {
    choose({ query: cell.row, key: cell.column });
    if ((event.key === 'x' || event.key === 'l') && shut(cell)) return true;
    if (event.key === 'x') forbid(cell.column);
    else if (event.key === 'l')
      lock(
        cell.column,
        editOf(b.edits, chosenHead, cell.row, cell.column)?.kind === 'lock'
          ? null
          : head!.weights[cell.row][cell.column],
      );
    else if (event.key === 'Delete' || event.key === 'Backspace') resetEdit(cell.column);
    else return false;
    return true;
  };
  const isEdited = (row: number, column: number) => !!editOf(b.edits, chosenHead, row, column);
  const maskCell = (cell: Cell) => {
    choose({ query: cell.row, key: cell.column });
    const now = head!.masked;
    const allowed =
      b.mask.kind === 'dense' ? b.mask.allowed : now.map((row) => row.map((value) => (value === null ? 0 : 1)));
    change({
      mask: {
        ...b.mask,
        kind: 'dense',
        allowed: allowed.map((row, i) =>
          i === cell.row ? row.map((old, c) => (c === cell.column ? 1 - old : old)) : row,
        ),
      },
    });
  };

  return (
    <div class="bench">
      <h1 class="sr">{t('nav.bench')}</h1>
      <Toolbar onCode={() => setDialog({ kind: 'code', tab: 'numpy' })} />
      {failure.value && !isGone(failure.value) && (
        <div class="banner error" role="alert">
          <strong>{t('bench.cannot')}</strong> {explain(failure.value)}{' '}
          <Button label={t('undo')} small onClick={undo} /> <Button label={t('bench.again')} small onClick={askAgain} />
        </div>
      )}
      <div class={`bench-body ${failure.value ? 'stale' : ''}`}>
        <Step
          n={1}
          title={t('bench.inputs')}
          tex={
            b.source === 'direct'
              ? 'Q,\\ K,\\ V'
              : b.source === 'cross'
                ? 'Q = XW_Q\\quad K = MW_K\\quad V = MW_V'
                : 'Q = XW_Q\\quad K = XW_K\\quad V = XW_V'
          }
          class="inputs"
        >
          {b.source === 'direct' ? (
            <div class="stack">
              {input('q', 'Q', 'q', queryNames(b, b.q.length), 'q')}
              {input('k', 'K', 'k', keyNames(b, b.k.length), 'k')}
              {input('v', 'V', 'v', keyNames(b, b.v.length), 'k')}
            </div>
          ) : (
            <>
              <div class="flow">
                {input('x', 'X', 'x', queryNames(b, b.x.length), 'x')}
                {b.source === 'cross' && input('memory', 'M', 'x', keyNames(b, b.memory.length), 'x')}
              </div>
              <div class="roles">
                <div class="flow">
                  {input('wq', 'W_Q', 'q')}
                  <Arrow />
                  {r && output('q', 'Q', (seen) => seen.q, 'q', queries, 'q')}
                  {r?.rotated_q && (
                    <>
                      <Arrow />
                      {output('rq', 'R\\,Q', (seen) => seen.rotated_q!, 'q', queries, 'q')}
                    </>
                  )}
                </div>
                <div class="flow">
                  {input('wk', 'W_K', 'k')}
                  <Arrow />
                  {r && output('k', 'K', (seen) => seen.k, 'k', keys, 'k')}
                  {r?.rotated_k && (
                    <>
                      <Arrow />
                      {output('rk', 'R\\,K', (seen) => seen.rotated_k!, 'k', keys, 'k')}
                    </>
                  )}
                </div>
                <div class="flow">
                  {input('wv', 'W_V', 'v')}
                  <Arrow />
                  {r && output('v', 'V', (seen) => seen.v, 'v', keys, 'k')}
                </div>
              </div>
            </>
          )}
        </Step>
        <div class="bench-right">
          {r && head ? (
            <>
              <Step
                n={2}
                title={t('bench.scores')}
                tex={`S = \\tfrac{1}{\\sqrt{d}}\\,QK^{\\top} \\to \\text{${t('formula.mask')}} \\to \\operatorname{softmax}`}
                side={
                  b.heads > 1 ? (
                    <Segmented
                      label={t('head')}
                      value={String(chosenHead)}
                      options={Array.from({ length: b.heads }, (_, h) => ({ value: String(h), label: `${h}` }))}
                      onChange={(value) => choose({ head: Number(value) })}
                    />
                  ) : null
                }
              >
                <div class="flow chain">
                  {b.mask.kind === 'dense' && (
                    <>
                      <MaskGrid
                        allowed={b.mask.allowed}
                        queries={queries}
                        keys={keys}
                        small
                        onFlip={(row, column) => maskCell({ row, column })}
                      />
                      <Arrow />
                    </>
                  )}
                  {output('products', 'QK^{\\top}', (seen) => seen.heads[chosenHead].products, 's', queries, 'q', {
                    columnLabels: keys,
                    currentRow: query,
                    cursor: { row: query, column: key },
                    onCursor: pointAt,
                  })}
                  <Arrow />
                  {output('scaled', t('bench.scaled'), (seen) => seen.heads[chosenHead].scaled, 's', queries, 'q', {
                    by: `× ${show(r.scale, 4)}`,
                    columnLabels: keys,
                    currentRow: query,
                    cursor: { row: query, column: key },
                    onCursor: pointAt,
                  })}
                  <Arrow />
                  {output(
                    'scores',
                    t(b.mask.kind === 'none' ? 'bench.unmasked' : 'bench.masked'),
                    (seen) => seen.heads[chosenHead].scores,
                    's',
                    queries,
                    'q',
                    {
                      columnLabels: keys,
                      currentRow: query,
                      cursor: { row: query, column: key },
                      onCursor: pointAt,
                      edited: isEdited,
                      onKey: onScoreKey,
                      onEdit: (cell, value) => {
                        choose({ query: cell.row, key: cell.column });
                        if (!shut(cell))
                          change({
                            edits: withEdit(bench.value.edits, {
                              kind: 'set',
                              head: chosenHead,
                              query: cell.row,
                              key: cell.column,
                              value,
                            }),
                          });
                      },
                      menu: (
                        <Menu
                          label={t('bench.matrix.menu', t('score'))}
                          icon="more"
                          items={[
                            {
                              label: t('bench.mask.toggle', nameOf(queries, query), nameOf(keys, key)),
                              onClick: () => maskCell({ row: query, column: key }),
                            },
                            {
                              label: t('bench.edits.clear'),
                              disabled: !b.edits.length,
                              onClick: () => change({ edits: [] }),
                            },
                          ]}
                        />
                      ),
                    },
                  )}
                  <Arrow />
                  {output('weights', t('bench.weights'), (seen) => seen.heads[chosenHead].weights, 'w', queries, 'q', {
                    by: 'softmax',
                    columnLabels: keys,
                    currentRow: query,
                    cursor: { row: query, column: key },
                    onCursor: pointAt,
                    edited: isEdited,
                    onKey: onScoreKey,
                    size: 1,
                  })}
                </div>
              </Step>
              <Step n={3} title={t('bench.row')} tex="o_i = \sum_j w_{ij}\,v_j">
                <BenchRow />
              </Step>
              <Step
                n={4}
                title={t('bench.output')}
                tex={b.wo ? 'O = \\operatorname{concat}(o^1, o^2, \\dots)\\,W_O' : 'O = WV'}
                side={
                  !b.wo && b.source !== 'direct' ? (
                    <Button
                      label={t('bench.add.wo')}
                      icon="plus"
                      text
                      small
                      onClick={() =>
                        change({
                          wo: r.concatenated[0].map((_, i) => r.concatenated[0].map((__, c) => (i === c ? 1 : 0))),
                        })
                      }
                    />
                  ) : null
                }
              >
                <div class="flow chain">
                  {output(
                    'output',
                    b.heads > 1 ? `o^{${chosenHead}}` : 'O',
                    (seen) => seen.heads[chosenHead].output,
                    'v',
                    queries,
                    'q',
                    { currentRow: query },
                  )}
                  {b.heads > 1 && (
                    <>
                      <Arrow />
                      {output('concatenated', 'O', (seen) => seen.concatenated, 'v', queries, 'q', {
                        by: 'concat',
                        currentRow: query,
                      })}
                    </>
                  )}
                  {b.wo && (
                    <>
                      <span class="times">×</span>
                      {input('wo', 'W_O', 'x')}
                      <Arrow />
                      {r.projected &&
                        output('projected', 'O W_O', (seen) => seen.projected!, 'x', queries, 'q', {
                          currentRow: query,
                        })}
                    </>
                  )}
                </div>
              </Step>
            </>
          ) : (
            !failure.value && (
              <div class="skeleton" role="status">
                {t('engine.asking')}…
              </div>
            )
          )}
        </div>
      </div>
      <Legend />
      <FormulaLine />
      <Dialog
        title={dialog?.kind === 'paste' ? t('bench.paste.title', matrixName(dialog.matrix)) : t('bench.code')}
        open={!!dialog}
        onClose={() => setDialog(null)}
        wide
      >
        {dialog?.kind === 'paste' && (
          <PasteBox
            matrix={dialog.matrix}
            onDone={(rows) => {
              setDialog(null);
              setMatrix(dialog.matrix, rows);
            }}
          />
        )}
        {dialog?.kind === 'code' && r && <CodeBox tab={dialog.tab} onTab={(tab) => setDialog({ kind: 'code', tab })} />}
      </Dialog>
    </div>
  );
}

// What moves with a finger, apart from the screen around it, so that a frame of a drag draws this alone: matrices, the formula of the
// cell that is pointed at, the row. Colours keep their scale until the engine has answered.
const moving = new Set(['scores', 'weights', 'output', 'concatenated', 'projected']);
type Of = (r: AttentionResult) => (number | null)[][];
function Live({ of, size, ...props }: Omit<GridProps, 'rows'> & { of: Of }) {
  const r = result.value,
    now = seen.value;
  return r && now && <Grid {...props} steady={moving.has(props.id)} rows={of(now)} size={size ?? largest(of(r))} />;
}

function FormulaLine() {
  const place = hover.value,
    r = seen.value,
    b = bench.value;
  const formula = r && place && r.heads.length === b.heads ? safely(() => formulaOf(b, r, place)) : '';
  return (
    <div class="formula-line" role="status" aria-live="polite">
      {formula || <span class="faint">{t(touch.value ? 'bench.tap' : 'bench.point')}</span>}
    </div>
  );
}

function BenchRow() {
  const b = bench.value,
    r = result.value!;
  const chosenHead = Math.min(b.chosen.head, b.heads - 1);
  if (r.heads.length !== b.heads) return null;
  const head = r.heads[chosenHead];
  const queries = queryNames(b, r.q.length),
    keys = keyNames(b, r.k.length);
  const query = Math.min(b.chosen.query, r.q.length - 1),
    key = Math.min(b.chosen.key, r.k.length - 1);
  const stands = standing.value,
    shown = stands && stands.head === chosenHead && stands.query === query ? stands : null;
  const states: KeyState[] = keys.map((_, k) => {
    const edit = editOf(b.edits, chosenHead, query, k);
    return { edited: !!edit, locked: edit?.kind === 'lock', forbidden: edit?.kind === 'forbid' };
  });
  const base =
    b.edits.length &&
    baseResult.value?.heads.length === b.heads &&
    baseResult.value.q.length === r.q.length &&
    baseResult.value.k.length === r.k.length
      ? baseResult.value.heads[chosenHead]
      : null;
  const width = r.v[0].length / b.heads;
  return (
    <RowPanel
      query={queries[query]}
      keys={keys}
      scaled={head.masked[query]}
      scores={shown?.scores ?? head.scores[query]}
      weights={shown?.weights ?? head.weights[query]}
      values={valuesOf(r, chosenHead, b.heads)}
      output={shown?.output ?? head.output[query]}
      base={base ? { weights: base.weights[query], output: base.output[query] } : null}
      states={states}
      chosen={key}
      live={
        failure.value
          ? 'stale'
          : shown
            ? 'preview'
            : settled.value === b || settled.value?.edits === b.edits
              ? 'engine'
              : 'asking'
      }
      took={r.took}
      entropy={shown ? null : head.entropy[query]}
      hint={hint.value && !b.edits.length ? t('bench.hint') : undefined}
      onChoose={(k) => choose({ key: k })}
      onDrag={(k, score, done) => {
        hint.value = false;
        drag(k, score, done);
      }}
      onSet={(k, score) => {
        hint.value = false;
        const edits = withEdit(b.edits, { kind: 'set', head: chosenHead, query, key: k, value: score });
        preview.value = {
          head: chosenHead,
          query,
          edits,
          ...previewRow(head.masked[query], rowEdits(edits, chosenHead, query), valuesOf(r, chosenHead, b.heads)),
        };
        change({ edits, chosen: { head: chosenHead, query, key: k } }, `key ${chosenHead} ${query} ${k}`);
      }}
      onLock={lock}
      onForbid={forbid}
      onReset={resetEdit}
      onPeek={(at) => {
        hover.value =
          at &&
          (at.stage === 'value'
            ? { matrix: 'v', row: at.key, column: chosenHead * width }
            : { matrix: at.stage === 'weight' ? 'weights' : 'scores', row: query, column: at.key });
      }}
    />
  );
}

function safely(make: () => string): string {
  // A matrix may have changed its shape since the engine's last answer; then there is nothing to say yet.
  try {
    return make();
  } catch {
    return '';
  }
}

const Arrow = () => (
  <span class="arrow" aria-hidden="true">
    <Icon name="right" />
  </span>
);

function Step({
  n,
  title,
  tex,
  children,
  side,
  class: name = '',
}: {
  n: number;
  title: string;
  tex: string;
  children: ComponentChildren;
  side?: ComponentChildren;
  class?: string;
}) {
  return (
    <section class={`step ${name}`}>
      <header>
        <span class="step-n" aria-hidden="true">
          {n}
        </span>
        <h2>{title}</h2>
        <Tex tex={tex} />
        {side && <div class="step-side">{side}</div>}
      </header>
      {children}
    </section>
  );
}

// The numbers of a new shape come from the engine. Until they are here the steppers show the shape that is wanted, and whatever is changed
// meanwhile is kept: the numbers are asked for again.
const wanted = signal<Shape | null>(null);
let draws = 0;
async function toShape(next: Partial<Shape>): Promise<void> {
  const asking = wanted.value !== null;
  wanted.value = { ...(wanted.value ?? shapeOf(bench.value)), ...next };
  if (asking) return;
  try {
    for (;;) {
      const from: Bench = bench.value,
        shape: Shape = wanted.value!;
      const made = await reshape(from, shape);
      if (bench.value !== from || wanted.value !== shape) continue;
      change(made);
      return;
    }
  } catch (error) {
    complain(error);
  } finally {
    wanted.value = null;
  }
}

function Toolbar({ onCode }: { onCode: () => void }) {
  const b = bench.value,
    r = result.value;
  // The box shows the seed of the numbers that stand there, or what is typed for the next ones.
  const [typedSeed, setTypedSeed] = useState<number | null>(null);
  const [badSeed, setBadSeed] = useState(false);
  const [settings, setSettings] = useState(false); // on a phone they stand behind a button
  const seed = typedSeed ?? b.seed ?? 1;
  const draw = () => {
    const next = typedSeed ?? (b.seed === null ? 1 : b.seed + 1);
    setTypedSeed(null);
    const mine = ++draws;
    randomise(bench.value, next)
      .then((drawn) => {
        if (mine === draws) change(drawn);
      })
      .catch(complain);
  };
  const s = wanted.value ?? shapeOf(b);
  const source = (value: Bench['source']) => {
    if (value === b.source) return;
    if (value === 'direct' && !r) return;
    if (b.edits.length) say(b.edits.length === 1 ? t('bench.edits.gone.one') : t('bench.edits.gone', b.edits.length));
    const chosen = { ...b.chosen, key: 0, query: Math.min(b.chosen.query, b.x.length - 1) };
    if (value === 'direct') {
      if (r)
        change({
          source: value,
          q: r.q,
          k: r.k,
          v: r.v,
          names: queryNames(b, r.q.length),
          memoryNames: keyNames(b, r.k.length),
          edits: [],
          chosen,
          wo: null,
        });
    } else
      change({
        source: value,
        edits: [],
        chosen,
        mask: b.mask.kind === 'dense' || (value === 'cross' && b.mask.kind !== 'none') ? emptyMask : b.mask,
      });
  };
  const mask = (kind: MaskKind) => {
    const rows = r?.q.length ?? 1,
      columns = r?.k.length ?? 1;
    const head = r?.heads[0];
    change({
      mask: {
        ...b.mask,
        kind,
        allowed:
          kind === 'dense'
            ? (head?.masked.map((row) => row.map((value) => (value === null ? 0 : 1))) ??
              Array.from({ length: rows }, () => new Array<number>(columns).fill(1)))
            : [],
      },
    });
  };
  const openFile = () => {
    const picker = document.createElement('input');
    picker.type = 'file';
    picker.accept = '.json,application/json';
    picker.onchange = async () => {
      const file = picker.files?.[0];
      if (!file) return;
      if (file.size > 8_000_000) {
        say(t('bench.file.large'), 'error');
        return;
      }
      let data;
      try {
        data = JSON.parse(await file.text());
      } catch {
        say(t('bench.file.bad', file.name), 'error');
        return;
      }
      if (data?.attend !== 'workbench') {
        say(t('bench.file.bad', file.name), 'error');
        return;
      }
      if (data.version !== 1) {
        say(t('bench.file.version', file.name, String(data.version ?? '?').slice(0, 20)), 'error');
        return;
      }
      const read = readBench(data.state, true);
      if (!('part' in read)) {
        hush();
        change(read);
        return;
      }
      say(
        read.found !== undefined
          ? t('bench.file.cell', file.name, matrixName(read.part), read.row!, read.column!, read.found)
          : read.column !== undefined
            ? t('bench.file.row', file.name, matrixName(read.part), read.row!, read.column)
            : t('bench.file.part', file.name, matrixName(read.part)),
        'error',
      );
    };
    picker.click();
  };
  return (
    <div class="toolbar" role="toolbar" aria-label={t('bench.toolbar')}>
      <Select
        id="example"
        label={t('bench.example')}
        hideLabel
        value=""
        options={[
          { value: '', label: t('bench.example') },
          ...examples.map((e) => ({ value: e.id, label: t(e.title) })),
        ]}
        onChange={(id) => {
          const found = examples.find((e) => e.id === id);
          if (found)
            void found
              .make()
              .then((next) => change(next))
              .catch((error) => complain(error));
        }}
      />
      <Segmented
        label={t('bench.source')}
        value={b.source}
        onChange={source}
        options={[
          { value: 'self', label: t('bench.self') },
          { value: 'cross', label: t('bench.cross') },
          { value: 'direct', label: 'Q K V', title: t('bench.direct') },
        ]}
      />
      <span class="settings-toggle">
        <Button
          icon="down"
          text
          small
          label={t('bench.settings')}
          pressed={settings}
          onClick={() => setSettings(!settings)}
        />
      </span>
      <div class={`settings ${settings ? 'open' : ''}`}>
        <Stepper
          id="tokens"
          label={t('bench.tokens')}
          value={s.tokens}
          min={1}
          max={128}
          onChange={(tokens) => void toShape({ tokens })}
        />
        {b.source !== 'self' && (
          <Stepper
            label={t('bench.memory')}
            value={s.memory}
            min={1}
            max={256}
            onChange={(memory) => void toShape({ memory })}
          />
        )}
        {b.source !== 'direct' && (
          <Stepper
            label={t('bench.width')}
            value={s.width}
            min={1}
            max={64}
            onChange={(width) => void toShape({ width })}
          />
        )}
        <Stepper
          id="heads"
          label={t('bench.heads')}
          value={s.heads}
          min={1}
          max={16}
          onChange={(heads) => void toShape({ heads })}
        />
        <Stepper
          label={t('bench.head.size')}
          value={s.headDim}
          min={1}
          max={64}
          onChange={(headDim) => void toShape({ headDim })}
        />
        <Select
          id="mask"
          label={t('bench.mask')}
          value={b.mask.kind}
          options={(['none', 'causal', 'window', 'prefix', 'dense'] as MaskKind[]).map((kind) => ({
            value: kind,
            label: t(`mask.${kind}` as Key),
          }))}
          onChange={(kind) => mask(kind as MaskKind)}
        />
        {b.mask.kind === 'window' && (
          <Stepper
            label={t('mask.before')}
            value={b.mask.before}
            min={0}
            max={256}
            onChange={(before) => change({ mask: { ...b.mask, before } })}
          />
        )}
        {b.mask.kind === 'prefix' && (
          <Stepper
            label={t('mask.length')}
            value={b.mask.length}
            min={0}
            max={256}
            onChange={(length) => change({ mask: { ...b.mask, length } })}
          />
        )}
        <span class="together">
          <NumberField
            id="scale"
            label={t('bench.scale')}
            value={b.scale}
            empty={r ? `1/√d = ${show(r.scale, 4)}` : '1/√d'}
            onChange={(scale) => {
              if (scale === 0) say(t('err.scale_zero'), 'error', 'number');
              else {
                hush('number');
                change({ scale }, 'scale');
              }
            }}
            onEmpty={() => change({ scale: null })}
          />
          <label class="check">
            <input
              type="checkbox"
              checked={b.rotary}
              onChange={(event) => change({ rotary: event.currentTarget.checked })}
            />
            RoPE
          </label>
          <span class="seed">
            <NumberField
              label={t('bench.seed')}
              value={seed}
              step={1}
              range={[0, mostSeed]}
              always
              onBad={setBadSeed}
              onChange={(value) => setTypedSeed(Math.min(mostSeed, Math.max(0, Math.round(value))))}
            />
            <Button icon="dice" label={t('bench.random')} disabled={badSeed} onClick={draw} />
          </span>
        </span>
      </div>
      <span class="spring" />
      <Button icon="undo" id="undo" label={t('undo')} keys="z" disabled={!past.value.length} onClick={undo} />
      <Button icon="redo" id="redo" label={t('redo')} keys="Shift+z" disabled={!future.value.length} onClick={redo} />
      <Button icon="link" label={t('bench.link')} onClick={() => void copy(location.href)} />
      <Menu
        icon="save"
        id="export"
        label={t('bench.export')}
        items={[
          { label: t('bench.code'), note: 'C++ · Python · NumPy', onClick: onCode },
          null,
          {
            label: 'JSON',
            note: t('bench.json.note'),
            onClick: () =>
              download(
                'attend-workbench.json',
                JSON.stringify(
                  {
                    attend: 'workbench',
                    version: 1,
                    state: bench.value,
                    request: requestOf(bench.value),
                    result: result.value,
                  },
                  null,
                  1,
                ),
                'application/json',
              ),
          },
          {
            label: 'CSV',
            note: t('bench.csv.note'),
            disabled: !r,
            onClick: () => download('attend-workbench.csv', allCsv(bench.value, result.value!), 'text/csv'),
          },
          {
            label: 'SVG',
            note: t('bench.svg.note'),
            disabled: !r,
            onClick: () => download('attend-workbench.svg', svgOf(bench.value, result.value!), 'image/svg+xml'),
          },
          {
            label: 'PNG',
            note: t('bench.png.note'),
            disabled: !r,
            onClick: () =>
              void pngOf(svgOf(bench.value, result.value!))
                .then((blob) => download('attend-workbench.png', blob))
                .catch((error) => complain(error)),
          },
          null,
          { label: t('bench.open'), onClick: openFile },
        ]}
      />
    </div>
  );
}

function PasteBox({ matrix, onDone }: { matrix: InputId; onDone: (rows: number[][]) => void }) {
  const [text, setText] = useState(() => (bench.value[matrix] as number[][]).map((row) => row.join(', ')).join('\n'));
  const { rows, problem } = parseTable(text);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!problem && rows.length) onDone(rows);
      }}
    >
      <p>{t('bench.paste.note')}</p>
      <textarea
        rows={10}
        value={text}
        spellcheck={false}
        aria-label={t('bench.paste.title', matrixName(matrix))}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <p class={problem ? 'bad' : 'faint'} role="status">
        {problem ? explainTable(problem) : `${rows.length} × ${rows[0]?.length ?? 0}`}
      </p>
      <Button primary label={t('apply')} disabled={!!problem || !rows.length} onClick={() => onDone(rows)} />
    </form>
  );
}

function CodeBox({ tab, onTab }: { tab: string; onTab: (tab: string) => void }) {
  const code =
    tab === 'cpp'
      ? cppLines(bench.value, result.value!)
      : tab === 'python'
        ? pythonLines(bench.value, location.href.replace(/#.*$/, '').replace(/index\.html$/, ''))
        : numpyLines(bench.value);
  return (
    <div class="code-box">
      <div class="code-head">
        <Segmented
          label={t('bench.code')}
          value={tab}
          onChange={onTab}
          options={[
            { value: 'numpy', label: 'NumPy' },
            { value: 'python', label: 'Python' },
            { value: 'cpp', label: 'C++' },
          ]}
        />
        <Button label={t('copy')} onClick={() => void copy(code)} />
      </div>
      <pre tabIndex={0}>
        <code>{code}</code>
      </pre>
    </div>
  );
}

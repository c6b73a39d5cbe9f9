// The lessons: each step is a short text, a living figure, and something to do that is checked by asking the engine.
import { useEffect, useState } from 'preact/hooks';
import type { ComponentChildren, FunctionComponent } from 'preact';
import type { Matrix, OperationRequest } from '../engine';
import { Grid, Legend } from '../grid';
import { bytes, count, fractions, show } from '../numbers';
import { complain, engine, explain } from '../shared';
import { Button, NumberField, Segmented, Tex } from '../ui';
import { t, type Key } from '../words';
import { abc, editOf, emptyMask, requestOf, withEdit, type Bench } from '../bench/state';
import { visual } from '../bench/examples';
import { MaskGrid } from '../maskgrid';
import { useAnswer } from './answer';
import { MiniFormula, MiniMatrix, MiniRow, useMini, Vector, type Mini } from './mini';

// What a check answers: right, or a hint in the language of the page when it is read.
export type Verdict = true | (() => string);
// `task`: how the act is checked, what the workbench opens with, and a box for an answer.
export interface StepProps {
  task: (check: () => Promise<Verdict>, opens?: Partial<Bench> | null, answer?: ComponentChildren) => ComponentChildren;
  text: (...values: (string | number)[]) => ComponentChildren;
}
export interface Lesson {
  id: string;
  title: Key;
  steps: { key: string; view: FunctionComponent<StepProps> }[];
}

const near = (a: number, b: number, within = 5e-4) => Math.abs(a - b) <= within;
const same = (a: Matrix, b: Matrix, within = 5e-4) =>
  a.length === b.length && a.every((row, i) => row.every((value, c) => near(value, b[i][c], within)));
const ask = (b: Bench) => engine.attention(requestOf(b));

function Split({
  p,
  mini,
  check,
  figure,
  values = [],
  opens,
  answer,
}: {
  p: StepProps;
  answer?: ComponentChildren;
  mini?: Mini;
  check: () => Promise<Verdict>;
  figure: ComponentChildren;
  values?: (string | number)[];
  opens?: Partial<Bench> | null;
}) {
  return (
    <>
      <div class="lesson-text">
        {p.text(...values)}
        {p.task(check, opens === undefined ? (mini?.b ?? null) : opens, answer)}
      </div>
      <div class="lesson-figure">
        {figure}
        {mini && (
          <div class="figure-foot">
            <MiniFormula mini={mini} />
            <Button
              icon="reset"
              text
              small
              label={t('learn.start.over')}
              disabled={!mini.touched}
              onClick={mini.reset}
            />
          </div>
        )}
        <Legend />
      </div>
    </>
  );
}

const Roles = ({ mini, edit, memory }: { mini: Mini; edit: string[]; memory?: boolean }) => (
  <div class="roles-figure">
    <div class="stack">
      <MiniMatrix mini={mini} id="x" editable={edit.includes('x')} />
      {memory && <MiniMatrix mini={mini} id="memory" editable={edit.includes('memory')} />}
    </div>
    <div class="stack">
      {(['q', 'k', 'v'] as const).map((role) => (
        <div class="flow">
          <MiniMatrix mini={mini} id={`w${role}`} editable={edit.includes(`w${role}`)} />
          <MiniMatrix mini={mini} id={role} />
        </div>
      ))}
    </div>
  </div>
);

const Sources: FunctionComponent<StepProps> = (p) => {
  const mini = useMini(sourcesStart);
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const now = await ask(mini.b),
          before = await ask({ ...sourcesStart, source: 'cross' });
        return mini.b.source === 'cross' && same(now.q, before.q) && !same(now.v, before.v)
          ? true
          : () => t('l.sources.1.hint');
      }}
      figure={
        <>
          <Segmented
            label={t('bench.source')}
            value={mini.b.source as 'self' | 'cross'}
            options={[
              { value: 'self', label: t('bench.self') },
              { value: 'cross', label: t('bench.cross') },
            ]}
            onChange={(source) => mini.change({ source })}
          />
          <Roles mini={mini} edit={['memory', 'x']} memory={mini.b.source === 'cross'} />
        </>
      }
    />
  );
};
const sourcesStart: Bench = {
  ...abc,
  memory: [
    [2, 0],
    [0, 2],
  ],
  memoryNames: ['M1', 'M2'],
};

const vectorText = (values: number[]) => `[${values.map((value) => show(value)).join(', ')}]`;
const RolesStep: FunctionComponent<StepProps> = (p) => {
  const mini = useMini(abc);
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const now = await ask(mini.b);
        const [first, second] = now.v[2];
        if (
          !same(now.k, [
            [1, 1],
            [0, 1],
            [1, 2],
          ])
        )
          return () => t('l.roles.1.hint.keys');
        return same([now.v[2]], [[3, 2]])
          ? true
          : () => t('l.roles.1.hint', show(first), show(second), vectorText(mini.b.x[2]));
      }}
      figure={<Roles mini={mini} edit={['x', 'wq', 'wk', 'wv']} />}
    />
  );
};

// Scores, exponentials and weights of one row under each other, as one would write them by hand.
function ByHand({ mini }: { mini: Mini }) {
  const { r, b } = mini;
  if (!r) return null;
  const h = r.heads[b.chosen.head],
    i = b.chosen.query;
  const exps = h.scores[i].map((score) => (score === null ? 0 : Math.exp(score)));
  const keys = r.k.map((_, j) => (b.source === 'self' ? b.names : b.memoryNames)[j] ?? `${j}`);
  const edited = (key: number) => !!editOf(b.edits, b.chosen.head, i, key);
  const line = (
    label: ComponentChildren,
    values: (number | null)[],
    hue: string,
    sum?: number,
    before?: (number | null)[],
  ) => {
    const even = fractions(values);
    return (
      <tr>
        <th scope="row">{label}</th>
        {values.map((value, j) => (
          <td class={`${value === null ? 'masked' : ''} ${before && edited(j) ? 'hue-e' : ''}`}>
            {before && edited(j) && <s>{show(before[j], 3, even)}</s>} {show(value, 3, even)}
          </td>
        ))}
        <td class={hue}>{sum === undefined ? '' : show(sum, 3, even)}</td>
      </tr>
    );
  };
  return (
    <div class="matrix-scroll">
      <table class="by-hand">
        <thead>
          <tr>
            <td />
            {keys.map((key) => (
              <th scope="col" class="hue-k">
                {key}
              </th>
            ))}
            <th scope="col">Σ</th>
          </tr>
        </thead>
        <tbody>
          {line(<Tex tex="q\cdot k" />, h.products[i], '')}
          {line(
            <>
              <Tex tex="s" /> <small>× {show(r.scale, 4)}</small>
            </>,
            h.scores[i],
            '',
            undefined,
            h.masked[i],
          )}
          {line(
            <Tex tex="e^{s}" />,
            exps,
            'hue-w',
            exps.reduce((a, c) => a + c, 0),
          )}
          {line(
            <Tex tex="w" />,
            h.weights[i],
            'hue-w',
            h.weights[i].reduce((a, c) => a + c, 0),
          )}
        </tbody>
      </table>
    </div>
  );
}

const Query1: FunctionComponent<StepProps> = (p) => {
  const mini = useMini(abc);
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const now = await ask(mini.b);
        const weight = now.heads[0].weights[2][0];
        return weight >= 0.5 ? true : () => t('l.query.1.hint', show(weight));
      }}
      figure={
        <>
          <MiniRow mini={mini} canForbid={false} hint={t('bench.hint')} />
          <ByHand mini={mini} />
        </>
      }
    />
  );
};
const halves: Bench = {
  ...abc,
  source: 'direct',
  q: [[1, 1]],
  k: [
    [0, 0],
    [0, 0],
  ],
  v: [
    [2, 0],
    [0, 4],
  ],
  names: ['q'],
  memoryNames: ['k₁', 'k₂'],
  chosen: { head: 0, query: 0, key: 0 },
};
const Query2: FunctionComponent<StepProps> = (p) => {
  const mini = useMini(halves);
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const [output] = (await ask(mini.b)).heads[0].output;
        return near(output[0], 0.5, 0.005) && near(output[1], 3, 0.01) && same(mini.b.v, halves.v)
          ? true
          : () => t('l.query.2.hint', show(output[0]), show(output[1]));
      }}
      figure={
        <>
          <MiniRow mini={mini} />
          <ByHand mini={mini} />
        </>
      }
    />
  );
};

const Scale1: FunctionComponent<StepProps> = (p) => {
  const [d, setD] = useState(1);
  const [first, setFirst] = useState(8);
  const compute = async () => {
    const scores = (
      await engine.attention({
        query: [[first]],
        key: [[1], [0]],
        value: [[0], [0]],
        heads: 1,
        key_heads: 1,
        scale: 1 / Math.sqrt(d),
        mask: [],
        positions: { kind: 'none' },
        edits: [],
      })
    ).heads[0].scaled;
    return { scores, weights: await engine.operation({ name: 'softmax', a: scores }) };
  };
  const { answer: reply } = useAnswer(compute, [d, first]);
  const slope = (w: Matrix) => w[0][0] * (1 - w[0][0]);
  return (
    <Split
      p={p}
      check={async () => {
        const now = await compute();
        if (first !== 8) return () => t('l.scale.1.hint.score', show(first));
        return slope(now.weights) > 0.19 ? true : () => t('l.scale.1.hint', show(slope(now.weights), 4));
      }}
      figure={
        <>
          <div class="figure-tools">
            <NumberField label={t('scale.logits') + ' q·k₁'} value={first} onChange={setFirst} step={1} />
            <Segmented
              label={t('scale.d')}
              value={String(d)}
              options={[1, 4, 16, 64, 256].map((n) => ({ value: String(n), label: String(n) }))}
              onChange={(value) => setD(Number(value))}
            />
          </div>
          {reply && (
            <>
              <div class="flow">
                <Grid
                  id="scaled"
                  title={<Tex tex={`s / \\sqrt{${d}}`} />}
                  name={t('matrix.scaled')}
                  rows={reply.scores}
                  tone="s"
                  columnLabels={['k₁', 'k₂']}
                />
                <Grid
                  id="weights"
                  title={t('bench.weights')}
                  by="softmax"
                  name={t('matrix.weights')}
                  rows={reply.weights}
                  tone="w"
                  size={1}
                  digits={4}
                  columnLabels={['k₁', 'k₂']}
                />
              </div>
              <SlopeCurve at={reply.scores[0][0] - reply.scores[0][1]} weight={reply.weights[0][0]} />
              <p class="big-number">
                <span>{t('scale.slope')}</span> <b data-slope={slope(reply.weights)}>{show(slope(reply.weights), 4)}</b>
              </p>
            </>
          )}
        </>
      }
    />
  );
};

function SlopeCurve({ at, weight }: { at: number; weight: number }) {
  const x = (s: number) => 20 + (s + 10) * 22,
    y = (w: number) => 130 - w * 110;
  const curve = Array.from({ length: 101 }, (_, i) => {
    const s = -10 + i / 5;
    return `${x(s).toFixed(1)},${y(1 / (1 + Math.exp(-s))).toFixed(1)}`;
  }).join(' ');
  const slope = weight * (1 - weight),
    s = Math.max(-10, Math.min(10, at));
  return (
    <svg
      class="curve"
      viewBox="0 0 480 160"
      role="img"
      aria-label={`${t('weight')} ${show(weight, 4)}, ${t('scale.slope')} ${show(slope, 4)}`}
    >
      <line x1="20" x2="460" y1="130" y2="130" class="axis" />
      <line x1={x(0)} x2={x(0)} y1="14" y2="130" class="axis" />
      <polyline points={curve} class="curve-line" />
      <line class="tangent" x1={x(s - 2.2)} x2={x(s + 2.2)} y1={y(weight - 2.2 * slope)} y2={y(weight + 2.2 * slope)} />
      <circle cx={x(s)} cy={y(weight)} r="6" class="dot" />
      {[-10, -5, 0, 5, 10].map((n) => (
        <text x={x(n)} y="148" text-anchor="middle">
          {show(n)}
        </text>
      ))}
    </svg>
  );
}

const samples = 96;
const Scale2: FunctionComponent<StepProps> = (p) => {
  const [d, setD] = useState(4);
  const draw = async (width: number) => {
    const q = await engine.operation({ name: 'normal', rows: samples, columns: width, seed: 100 + width });
    const k = await engine.operation({ name: 'normal', rows: samples, columns: width, seed: 500 + width });
    const reply = await engine.attention({
      query: q,
      key: k,
      value: k.map(() => [0]),
      heads: 1,
      key_heads: 1,
      scale: null,
      mask: [],
      positions: { kind: 'none' },
      edits: [],
    });
    return { d: width, raw: reply.heads[0].products.flat(), scaled: reply.heads[0].scaled.flat() };
  };
  const { answer: drawn } = useAnswer(() => draw(d), [d]);
  return (
    <Split
      p={p}
      values={[samples]}
      check={async () => {
        const v = variance((await draw(d)).raw);
        return v > 50 && v < 80 ? true : () => t('l.scale.2.hint', show(v, 1));
      }}
      figure={
        <>
          <Segmented
            label={t('scale.d')}
            value={String(d)}
            options={[1, 4, 16, 64, 128].map((n) => ({ value: String(n), label: `d = ${n}` }))}
            onChange={(value) => setD(Number(value))}
          />
          {drawn && (
            <>
              <Histogram title={t('scale.raw')} values={drawn.raw} span={40} />
              <Histogram title={t('scale.scaled')} values={drawn.scaled} span={40} />
            </>
          )}
        </>
      }
    />
  );
};
const variance = (values: number[]) => {
  const mean = values.reduce((a, c) => a + c, 0) / values.length;
  return values.reduce((a, c) => a + (c - mean) ** 2, 0) / values.length;
};
function Histogram({ title, values, span }: { title: string; values: number[]; span: number }) {
  const bins = 81,
    tally = new Array<number>(bins).fill(0);
  for (const value of values)
    tally[Math.max(0, Math.min(bins - 1, Math.round(((value + span) / (2 * span)) * (bins - 1))))]++;
  const most = Math.max(...tally);
  return (
    <figure class="histogram">
      <figcaption>
        {title} · <b>{t('scale.variance', show(variance(values), 2))}</b>
      </figcaption>
      <svg viewBox="-16 0 518 90" role="img" aria-label={`${title}, ${t('scale.variance', show(variance(values), 2))}`}>
        {tally.map((n, i) => (
          <rect x={i * 6} width="5" y={74 - (n / most) * 70} height={(n / most) * 70} />
        ))}
        {[-40, -20, 0, 20, 40].map((n) => (
          <text x={((n + 40) / 80) * 480 + 3} y="88" text-anchor="middle">
            {show(n)}
          </text>
        ))}
      </svg>
    </figure>
  );
}

const matrixStart: Bench = { ...abc, chosen: { head: 0, query: 0, key: 0 } };
const Matrix1: FunctionComponent<StepProps> = (p) => {
  const mini = useMini(matrixStart);
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const { query, key } = mini.b.chosen;
        const now = await ask(mini.b);
        return query === 1 && key === 2 && near(now.heads[0].products[1][2], 2) ? true : () => t('l.matrix.1.hint');
      }}
      figure={
        <>
          <div class="flow">
            <MiniMatrix mini={mini} id="q" />
            <MiniMatrix mini={mini} id="k" />
          </div>
          <div class="flow large">
            <MiniMatrix mini={mini} id="products" choose />
            <MiniMatrix mini={mini} id="weights" choose />
          </div>
        </>
      }
    />
  );
};
const Matrix2: FunctionComponent<StepProps> = (p) => {
  const mini = useMini(matrixStart);
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const s = (await ask(mini.b)).heads[0].products;
        for (let i = 0; i < 3; ++i)
          for (let j = 0; j < i; ++j) if (!near(s[i][j], s[j][i])) return () => t('l.matrix.2.hint', i, j);
        return s.flat().some((value) => value !== 0) ? true : () => t('l.matrix.2.hint.zero');
      }}
      figure={
        <>
          <div class="flow">
            <MiniMatrix mini={mini} id="x" />
            <MiniMatrix mini={mini} id="wq" />
            <MiniMatrix mini={mini} id="wk" editable />
          </div>
          <div class="flow large">
            <MiniMatrix mini={mini} id="products" choose />
          </div>
        </>
      }
    />
  );
};

const Cross1: FunctionComponent<StepProps> = (p) => {
  const mini = useMini(visual());
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const now = await ask({ ...mini.b, edits: [] }),
          shown = (await ask(mini.b)).heads[0].weights[0][1];
        if (shown > 0.6 && now.heads[0].weights[0][1] <= 0.6) return () => t('l.cross.1.hint.edited', show(shown));
        return now.heads[0].weights[0][1] > 0.6 && same(mini.b.k, visual().k)
          ? true
          : () => t('l.cross.1.hint', show(now.heads[0].weights[0][1]));
      }}
      figure={
        <>
          <div class="flow">
            <MiniMatrix mini={mini} id="q" editable />
            <MiniMatrix mini={mini} id="k" editable />
            <MiniMatrix mini={mini} id="v" editable />
          </div>
          <MiniRow mini={mini} />
          <ByHand mini={mini} />
        </>
      }
    />
  );
};
const Cross2: FunctionComponent<StepProps> = (p) => {
  const [answer, setAnswer] = useState<number | null>(null);
  const { answer: weights } = useAnswer(async () => {
    const q = await engine.operation({ name: 'normal', rows: 8, columns: 16, seed: 3, deviation: 1.4 }),
      k = await engine.operation({ name: 'normal', rows: 196, columns: 16, seed: 4 });
    return (
      await engine.attention({
        query: q,
        key: k,
        value: k.map((row) => row.slice(0, 1)),
        heads: 1,
        key_heads: 1,
        scale: null,
        mask: [],
        positions: { kind: 'none' },
        edits: [],
      })
    ).heads[0].weights;
  }, []);
  return (
    <Split
      p={p}
      check={async () => {
        if (answer === null) return () => t('number.empty');
        const x = await engine.operation({ name: 'normal', rows: 196, columns: 2, seed: 5 });
        const products = (
          await engine.attention({
            query: x,
            key: x,
            value: x,
            heads: 1,
            key_heads: 1,
            scale: null,
            mask: [],
            positions: { kind: 'none' },
            edits: [],
          })
        ).heads[0].products;
        return answer === products.length * products[0].length ? true : () => t('l.cross.2.hint');
      }}
      answer={<NumberField id="answer" label={t('answer')} value={answer} onChange={setAnswer} step={1} />}
      figure={weights && <PatchWall weights={weights} />}
    />
  );
};
// Eight rows of 196 weights, each drawn as the 14 x 14 patches it reads.
function PatchWall({ weights }: { weights: Matrix }) {
  const top = Math.max(...weights.flat());
  // The strip of eight rows and the square of 196, as large as they are to each other.
  return (
    <div class="patch-wall">
      <figure class="to-scale">
        <svg viewBox="0 0 372 182" role="img" aria-label={`8 × 196, 196 × 196: ${t('cross.scale')}`}>
          <text x="0" y="14">
            8 × 196
          </text>
          <rect x="0" y="22" width="156.8" height="6.4" class="part-of" />
          <text x="188" y="14">
            196 × 196
          </text>
          <rect x="188" y="22" width="156.8" height="156.8" class="whole" />
          <rect x="188" y="22" width="156.8" height="6.4" class="part-of" />
        </svg>
        <figcaption>{t('cross.scale')}</figcaption>
      </figure>
      <Grid
        id="weights"
        title={t('bench.weights')}
        name={t('matrix.weights')}
        rows={weights}
        tone="w"
        size={top}
        rowLabels={weights.map((_, i) => `${t('visual.action')} ${i + 1}`)}
      />
      <div class="patches">
        {weights.map((row, i) => (
          <figure>
            <svg
              viewBox="0 0 14 14"
              role="img"
              aria-label={`${t('visual.action')} ${i + 1}: Σ ${show(row.reduce((a, c) => a + c, 0))}`}
            >
              {row.map((w, j) => (
                <rect
                  x={j % 14}
                  y={Math.floor(j / 14)}
                  width="0.92"
                  height="0.92"
                  class="patch"
                  style={{ '--t': (w / top).toFixed(3) }}
                />
              ))}
            </svg>
            <figcaption>
              {i + 1} · Σ {show(row.reduce((a, c) => a + c, 0))}
            </figcaption>
          </figure>
        ))}
      </div>
    </div>
  );
}

const Masks1: FunctionComponent<StepProps> = (p) => {
  const [mode, setMode] = useState<'none' | 'before' | 'after'>('none');
  const [seen, setSeen] = useState(false);
  const mini = useMini({ ...abc, scale: 1, chosen: { head: 0, query: 1, key: 2 } });
  useEffect(() => {
    mini.change({ mask: { ...emptyMask, kind: mode === 'before' ? 'causal' : 'none' } });
    if (mode === 'after') setSeen(true);
  }, [mode]);
  const raw = mini.r?.heads[0].weights[1] ?? [];
  const shown = mode === 'after' ? raw.map((w, j) => (j <= 1 ? w : 0)) : raw;
  const sum = shown.reduce((a, c) => a + c, 0);
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const now = (await ask(mini.b)).heads[0].weights[1];
        return seen && mode === 'before' && now[2] === 0 && near(now[0] + now[1], 1, 1e-6)
          ? true
          : () => t('l.masks.1.hint');
      }}
      figure={
        <>
          <Segmented
            label={t('bench.mask')}
            value={mode}
            onChange={setMode}
            options={[
              { value: 'none', label: t('masks.none') },
              { value: 'before', label: t('masks.before') },
              { value: 'after', label: t('masks.after') },
            ]}
          />
          <div class="flow">
            <MiniMatrix mini={mini} id="scores" choose />
            <MiniMatrix
              mini={mini}
              id="weights"
              choose
              more={
                mode === 'after' && mini.r
                  ? {
                      by: t('masks.after'),
                      rows: mini.r.heads[0].weights.map((row, i) => row.map((w, j) => (j <= i ? w : 0))),
                    }
                  : {}
              }
            />
          </div>
          <div class="stack-bar" role="img" aria-label={`${t('masks.sum')}: ${show(sum)}`}>
            {shown.map((w, j) => (
              <i style={{ flexGrow: w, display: w ? undefined : 'none' }}>
                <b class="hue-k">{'ABC'[j]}</b> {show(w)}
              </i>
            ))}
            {sum < 0.9995 && (
              <i class="gap" style={{ flexGrow: 1 - sum }}>
                {show(1 - sum)}
              </i>
            )}
          </div>
          <p class={`big-number ${near(sum, 1, 1e-5) ? '' : 'bad'}`}>
            <span>{t('masks.sum')}</span> <b>{show(sum)}</b>
          </p>
        </>
      }
    />
  );
};
const Masks2: FunctionComponent<StepProps> = (p) => {
  const start: Bench = {
    ...abc,
    x: [
      [1, 0],
      [0, 1],
      [1, 1],
      [1, 2],
    ],
    names: ['0', '1', '2', '3'],
    mask: {
      ...emptyMask,
      kind: 'dense',
      allowed: [
        [1, 1, 1, 1],
        [1, 1, 1, 1],
        [1, 1, 1, 1],
        [1, 1, 1, 1],
      ],
    },
    chosen: { head: 0, query: 2, key: 3 },
  };
  const mini = useMini(start);
  const allowed = mini.b.mask.allowed;
  const flip = (row: number, column: number) =>
    mini.change({
      chosen: { head: 0, query: row, key: column },
      mask: {
        ...mini.b.mask,
        allowed: allowed.map((line, i) => (i === row ? line.map((old, c) => (c === column ? 1 - old : old)) : line)),
      },
    });
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const w = (await ask(mini.b)).heads[0].weights;
        const wrong = w.findIndex((row, i) => row.some((value, j) => (j <= i ? value <= 0 : value !== 0)));
        return wrong < 0 ? true : () => t('l.masks.2.hint', wrong);
      }}
      figure={
        <>
          <div class="flow large">
            <MaskGrid allowed={allowed} queries={start.names} keys={start.names} onFlip={flip} />
            <MiniMatrix mini={mini} id="scores" choose />
            <MiniMatrix mini={mini} id="weights" choose />
          </div>
        </>
      }
    />
  );
};

const robot = ['<BOS>', 'I', 'love', 'robot'],
  labels = ['I', 'love', 'robot', '<EOS>'];
const Cache1: FunctionComponent<StepProps> = (p) => {
  const [chosen, setChosen] = useState<string | null>(null);
  const mini = useMini({
    ...abc,
    x: [
      [1, 0],
      [0, 1],
      [1, 1],
      [1, 2],
    ],
    names: robot,
    mask: { ...emptyMask, kind: 'causal' },
    chosen: { head: 0, query: 2, key: 1 },
  });
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const row = (await ask(mini.b)).heads[0].weights[2];
        return row.filter((w) => w > 0).length === 3 && chosen === 'robot' ? true : () => t('l.cache.1.hint');
      }}
      figure={
        <>
          <div class="matrix-scroll">
            <table class="shift">
              <tbody>
                <tr>
                  <th scope="row">{t('cache.position')}</th>
                  {robot.map((_, i) => (
                    <td>{i}</td>
                  ))}
                </tr>
                <tr>
                  <th scope="row" class="hue-k">
                    {t('cache.reads')}
                  </th>
                  {robot.map((word, i) => (
                    <td class={i <= 2 ? 'seen' : 'unseen'}>{word}</td>
                  ))}
                </tr>
                <tr>
                  <th scope="row" class="hue-q">
                    {t('cache.predicts')}
                  </th>
                  {labels.map((word, i) => (
                    <td class={i === 2 ? 'asked' : ''}>{i === 2 ? (chosen ?? '?') : word}</td>
                  ))}
                </tr>
              </tbody>
            </table>
          </div>
          <Segmented
            label={t('cache.predicts')}
            value={chosen ?? ''}
            options={['<BOS>', 'I', 'love', 'robot', '<EOS>'].map((value) => ({ value, label: value }))}
            onChange={setChosen}
          />
          <MiniMatrix mini={mini} id="weights" choose />
        </>
      }
    />
  );
};
const Cache2: FunctionComponent<StepProps> = (p) => {
  const [made, setMade] = useState<{ row: number[]; difference: number }[]>([]);
  const start: Bench = {
    ...abc,
    x: [
      [1, 0],
      [0, 1],
      [1, 1],
      [1, 2],
      [2, 1],
    ],
    names: ['0', '1', '2', '3', '4'],
    mask: { ...emptyMask, kind: 'causal' },
    chosen: { head: 0, query: 0, key: 0 },
  };
  const mini = useMini(start);
  useEffect(() => {
    if (!mini.touched) setMade([]);
  }, [mini.touched]);
  // One query row against the keys and values kept so far: what a decoder does, and nothing else.
  const one = async (i: number) => {
    const all = await ask(start);
    const reply = await engine.attention({
      query: [all.q[i]],
      key: all.k.slice(0, i + 1),
      value: all.v.slice(0, i + 1),
      heads: 1,
      key_heads: 1,
      scale: null,
      mask: [{ rule: 'causal' }],
      positions: { kind: 'none', first_query: i, first_key: 0 },
      edits: [],
    });
    const row = reply.heads[0].output[0];
    return { row, difference: Math.max(...row.map((value, x) => Math.abs(value - all.heads[0].output[i][x]))) };
  };
  const step = async () => {
    try {
      const next = await one(made.length);
      setMade([...made, next]);
      mini.change({ chosen: { head: 0, query: made.length, key: 0 } });
    } catch (error) {
      complain(error);
    }
  };
  return (
    <Split
      p={p}
      mini={mini}
      opens={start}
      check={async () => {
        if (made.length < 5) return () => t('l.cache.2.hint', made.length);
        const again = await Promise.all([0, 1, 2, 3, 4].map(one));
        return again.every((row) => row.difference < 1e-6) ? true : () => t('l.cache.2.hint', made.length);
      }}
      figure={
        <>
          <div class="figure-tools">
            <Button
              primary
              label={t('cache.step')}
              disabled={made.length >= 5}
              onClick={() => void step()}
              id="write-row"
            />
            <span>{t('cache.rows', made.length, made.length * 4)}</span>
          </div>
          <div class="cache-strip" aria-hidden="true">
            {start.x.map((_, i) => (
              <div class={i < made.length ? 'full' : ''}>
                <i class="k" />
                <i class="v" />
                <small>{i}</small>
              </div>
            ))}
          </div>
          <div class="flow">
            {made.length > 0 && mini.r && (
              <MiniMatrix
                mini={mini}
                id="weights"
                choose
                more={{ rows: mini.r.heads[0].weights.slice(0, made.length) }}
              />
            )}
            <table class="by-hand">
              <thead>
                <tr>
                  <td />
                  <th scope="col">{t('cache.stepwise')}</th>
                  <th scope="col">{t('cache.difference')}</th>
                </tr>
              </thead>
              <tbody>
                {made.map(({ row, difference }, i) => (
                  <tr>
                    <th scope="row" class="hue-q">
                      {i}
                    </th>
                    <td>[{row.map((value) => show(value)).join(', ')}]</td>
                    <td>{difference === 0 ? '0' : show(difference)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      }
    />
  );
};

const Heads: FunctionComponent<StepProps> = (p) => {
  const [o, setO] = useState([1.2, -0.4, 0.5, 2.0]);
  const [wo, setWo] = useState<Matrix>([
    [1, 0, 0, 0],
    [0, 1, 0, 0],
    [0, 0, 1, 0],
    [0, 0, 0, 1],
  ]);
  const { answer: made } = useAnswer(() => engine.operation({ name: 'product', a: [o], b: wo }), [o, wo]);
  return (
    <Split
      p={p}
      check={async () => {
        const now = await engine.operation({ name: 'product', a: [o], b: wo });
        return same(now, [[0.6, -0.2, 0.25, 1]]) && same([o], [[1.2, -0.4, 0.5, 2]]) ? true : () => t('l.heads.1.hint');
      }}
      figure={
        <>
          <div class="flow">
            <Vector
              id="o1"
              title={<Tex tex="o^1" />}
              name="o1"
              tone="v"
              values={o.slice(0, 2)}
              onEdit={(v) => setO([...v, ...o.slice(2)])}
            />
            <Vector
              id="o2"
              title={<Tex tex="o^2" />}
              name="o2"
              tone="v"
              values={o.slice(2)}
              onEdit={(v) => setO([...o.slice(0, 2), ...v])}
            />
          </div>
          <Vector id="concatenated" title={t('heads.concat')} name={t('heads.concat')} tone="v" values={o} />
          <Grid
            id="wo"
            title={<Tex tex="W_O" />}
            name="W_O"
            rows={wo}
            tone="x"
            typed
            onEdit={(cell, value) =>
              setWo(wo.map((row, i) => (i === cell.row ? row.map((old, c) => (c === cell.column ? value : old)) : row)))
            }
            onPaste={(rows) => {
              if (rows.length === 4 && rows[0].length === 4) setWo(rows);
            }}
          />
          <div class="figure-tools">
            {[1, 0.5, 2].map((n) => (
              <Button
                small
                label={`${n} · I`}
                onClick={() => setWo(wo.map((row, i) => row.map((_, c) => (i === c ? n : 0))))}
              />
            ))}
          </div>
          <Vector
            id="projected"
            title={<Tex tex="[o^1, o^2]\,W_O" />}
            name={t('heads.result')}
            tone="x"
            values={made?.[0] ?? null}
          />
        </>
      }
    />
  );
};

// One operation of the engine on what stands in the figure: its row, or the sentence why there is none.
function useResult(request: OperationRequest): { row: number[] | null; problem: string | null } {
  const { answer, problem } = useAnswer(() => engine.operation(request), [JSON.stringify(request)], true);
  return { row: answer?.[0] ?? null, problem: problem ? explain(problem) : null };
}

const Block: FunctionComponent<StepProps> = (p) => {
  const [x, setX] = useState([1, 2]),
    [a, setA] = useState([0.5, -0.5]),
    [n, setN] = useState([1, 3]),
    [u, setU] = useState([-1, 2, 1]),
    [m, setM] = useState([1, 0]),
    [h, setH] = useState([1, 3]);
  // Each line by itself: what the engine refuses leaves only that line without a result.
  const sum = useResult({ name: 'add', a: [x], b: [a] }),
    norm = useResult({ name: 'layer_norm', a: [n], epsilon: 0 });
  const relu = useResult({ name: 'relu', a: [u] }),
    last = useResult({ name: 'add', a: [h], b: [m] });
  const line = (label: string, formula: string, parts: ComponentChildren, problem: string | null) => (
    <div class="block-line">
      <h4>
        {label} <Tex tex={formula} />
      </h4>
      <div class="flow">{parts}</div>
      {problem && (
        <p class="bad" role="status">
          {problem}
        </p>
      )}
    </div>
  );
  const leads = (result: ComponentChildren) => (
    <div class="leads">
      <span class="arrow" aria-hidden="true">
        →
      </span>
      {result}
    </div>
  );
  return (
    <Split
      p={p}
      check={async () => {
        const [norm] = await engine.operation({ name: 'layer_norm', a: [n], epsilon: 0 });
        return near(norm[0], -1) && near(norm[1], 1) && !same([n], [[1, 3]])
          ? true
          : () => t('l.block.1.hint', show(norm[0]), show(norm[1]));
      }}
      figure={
        <div class="block-figure">
          <p class="faint">{t('block.own')}</p>
          {line(
            t('block.residual'),
            'x + a',
            <>
              <Vector id="bx" title="x" name="x" tone="x" values={x} onEdit={setX} />
              <Vector
                id="ba"
                title={t('block.attention')}
                name={t('block.attention')}
                tone="v"
                values={a}
                onEdit={setA}
              />
              {leads(<Vector id="bsum" title={t('heads.result')} name={t('heads.result')} tone="x" values={sum.row} />)}
            </>,
            sum.problem,
          )}
          {line(
            t('block.norm'),
            '(x-\\mu)/\\sigma',
            <>
              <Vector id="bn" title={t('block.input')} name={t('block.norm')} tone="x" values={n} onEdit={setN} />
              {leads(
                <Vector id="bnorm" title={t('heads.result')} name={t('heads.result')} tone="x" values={norm.row} />,
              )}
            </>,
            norm.problem,
          )}
          {line(
            t('block.relu'),
            '\\max(0, u)',
            <>
              <Vector id="bu" title={t('block.input')} name={t('block.relu')} tone="x" values={u} onEdit={setU} />
              {leads(
                <Vector id="brelu" title={t('heads.result')} name={t('heads.result')} tone="x" values={relu.row} />,
              )}
            </>,
            relu.problem,
          )}
          {line(
            t('block.residual'),
            'h + m',
            <>
              <Vector id="bh" title="h" name="h" tone="x" values={h} onEdit={setH} />
              <Vector id="bm" title={t('block.mlp')} name={t('block.mlp')} tone="x" values={m} onEdit={setM} />
              {leads(
                <Vector id="blast" title={t('heads.result')} name={t('heads.result')} tone="x" values={last.row} />,
              )}
            </>,
            last.problem,
          )}
        </div>
      }
    />
  );
};

const Positions: FunctionComponent<StepProps> = (p) => {
  const [m, setM] = useState(4),
    [n, setN] = useState(2);
  const [q0, setQ0] = useState([1, 0.4]),
    [k0, setK0] = useState([0.8, 0.2]);
  const at = async (query: number, key: number) => {
    const [q] = await engine.operation({ name: 'rotate', a: [q0], positions: [query], base: 10000, pairing: 'halves' });
    const [k] = await engine.operation({ name: 'rotate', a: [k0], positions: [key], base: 10000, pairing: 'halves' });
    const [[score]] = await engine.operation({ name: 'product', a: [q], b: k.map((value) => [value]) });
    return { q, k, score };
  };
  const { answer: made } = useAnswer(() => at(m, n), [m, n, q0, k0]);
  return (
    <Split
      p={p}
      check={async () => {
        if (m === 5 && n === 2) return () => t('l.positions.1.hint.same');
        const [mine, wanted] = [await at(m, n), await at(5, 2)];
        return (m !== 5 || n !== 2) && near(mine.score, wanted.score, 2e-5)
          ? true
          : () => t('l.positions.1.hint', show(mine.score, 4), show(wanted.score, 4));
      }}
      figure={
        <>
          <div class="figure-tools dials">
            <label>
              <span class="hue-q">
                {t('positions.query')} <b>{m}</b>
              </span>
              <input
                type="range"
                id="dial-q"
                min="0"
                max="110"
                value={m}
                onInput={(event) => setM(Number(event.currentTarget.value))}
              />
            </label>
            <label>
              <span class="hue-k">
                {t('positions.key')} <b>{n}</b>
              </span>
              <input
                type="range"
                id="dial-k"
                min="0"
                max="110"
                value={n}
                onInput={(event) => setN(Number(event.currentTarget.value))}
              />
            </label>
            <Button
              small
              label={t('positions.both')}
              onClick={() => {
                setM(m + 1);
                setN(n + 1);
              }}
            />
          </div>
          {made && (
            <div class="flow">
              <Compass q={made.q} k={made.k} />
              <div class="stack">
                <div class="flow">
                  <Vector
                    id="q0"
                    title={
                      <>
                        <Tex tex="q" /> <small class="faint">{t('positions.before')}</small>
                      </>
                    }
                    name="q"
                    tone="q"
                    values={q0}
                    onEdit={setQ0}
                  />
                  <Vector
                    id="k0"
                    title={
                      <>
                        <Tex tex="k" /> <small class="faint">{t('positions.before')}</small>
                      </>
                    }
                    name="k"
                    tone="k"
                    values={k0}
                    onEdit={setK0}
                  />
                </div>
                <div class="flow">
                  <Vector id="rq" title={<Tex tex={`R_{${m}}\\,q`} />} name={t('matrix.rq')} tone="q" values={made.q} />
                  <Vector id="rk" title={<Tex tex={`R_{${n}}\\,k`} />} name={t('matrix.rk')} tone="k" values={made.k} />
                </div>
                <p class="big-number">
                  <span>{t('positions.score')}</span> <b>{show(made.score, 4)}</b>
                </p>
                <p class="faint">
                  {t('positions.difference')} = {show(m - n)}
                </p>
              </div>
            </div>
          )}
        </>
      }
    />
  );
};
function Compass({ q, k }: { q: number[]; k: number[] }) {
  const longest = Math.max(1.05, Math.hypot(q[0], q[1]), Math.hypot(k[0], k[1]));
  const point = (v: number[]) => ({ x: 90 + (76 * v[0]) / longest, y: 90 - (76 * v[1]) / longest });
  const a = point(q),
    b = point(k);
  const sweep = q[0] * k[1] - q[1] * k[0] > 0 ? 0 : 1;
  const small = (v: number[]) => {
    const l = (Math.hypot(v[0], v[1]) || 1) / longest;
    return point([(v[0] / l) * 0.303, (v[1] / l) * 0.303]);
  };
  const from = small(q),
    to = small(k);
  return (
    <svg class="compass" viewBox="0 0 180 180" aria-hidden="true">
      <circle cx="90" cy="90" r="78" class="axis" />
      <line x1="12" x2="168" y1="90" y2="90" class="axis" />
      <line x1="90" x2="90" y1="12" y2="168" class="axis" />
      <path class="angle" d={`M ${from.x} ${from.y} A 23 23 0 0 ${sweep} ${to.x} ${to.y}`} />
      <line x1="90" y1="90" x2={b.x} y2={b.y} class="hand-k" />
      <circle cx={b.x} cy={b.y} r="5" class="tip-k" />
      <line x1="90" y1="90" x2={a.x} y2={a.y} class="hand-q" />
      <circle cx={a.x} cy={a.y} r="5" class="tip-q" />
    </svg>
  );
}

const tileSide = 64,
  mixWidth = 64; // scores a tile is wide and high; numbers of a head's output
const Cost: FunctionComponent<StepProps> = (p) => {
  const [power, setPower] = useState(10);
  const n = 2 ** power,
    scores = n * n;
  // How far the kernel has come, in thousandths of its tiles: there are one to four million.
  const [progress, setProgress] = useState(300);
  const across = n / tileSide,
    tiles = across * across,
    at = Math.min(tiles - 1, Math.floor((progress / 1000) * tiles));
  const row = Math.floor(at / across),
    column = at % across,
    cell = 200 / across,
    seen = Math.max(cell, 2);
  return (
    <Split
      p={p}
      check={async () => (scores * 2 === 2 * 1024 ** 3 ? true : () => t('l.cost.1.hint', count(n), bytes(scores * 2)))}
      figure={
        <>
          <div class="figure-tools dials">
            <label>
              <span>
                {t('cost.tokens')} <b>{count(n)}</b>
              </span>
              <input
                type="range"
                id="dial-n"
                min="6"
                max="17"
                value={power}
                aria-valuetext={count(n)}
                onInput={(event) => setPower(Number(event.currentTarget.value))}
              />
            </label>
          </div>
          <dl class="cost">
            <div>
              <dt>{t('cost.scores')}</dt>
              <dd>{count(scores)}</dd>
            </div>
            <div>
              <dt>{t('cost.matrix')}</dt>
              <dd class="hue-w">{bytes(scores * 2)}</dd>
            </div>
            <div>
              <dt>{t('cost.rows')}</dt>
              <dd class="hue-v">{bytes(n * 8)}</dd>
            </div>
            <div>
              <dt>{t('cost.one', tileSide)}</dt>
              <dd class="hue-v">{bytes(tileSide * tileSide * 4)}</dd>
            </div>
            <div>
              <dt>{t('cost.mix', mixWidth)}</dt>
              <dd class="hue-v">{bytes(n * mixWidth * 4)}</dd>
            </div>
          </dl>
          <svg class="cost-squares" viewBox="0 0 480 240" role="img" aria-label={`${count(n)}² = ${count(scores)}`}>
            {[0, 1, 2, 3].map((i) => {
              const size = 200 / 2 ** (3 - i);
              return (
                power - 3 + i >= 0 && (
                  <g>
                    <rect x="12" y={228 - size} width={size} height={size} class={i === 3 ? 'whole' : 'part'} />
                    <text x={16 + size} y={236 - size}>
                      {count(2 ** (power - 3 + i))}
                    </text>
                  </g>
                )
              );
            })}
            <g transform="translate(262 28)">
              <rect width="200" height="200" class="tile" />
              <rect width="200" height={row * cell} class="tile past" />
              <rect y={row * cell} width={column * cell} height={cell} class="tile past" />
              <rect
                x={Math.min(200 - seen, column * cell)}
                y={Math.min(200 - seen, row * cell)}
                width={seen}
                height={seen}
                class="tile now"
              />
            </g>
          </svg>
          <div class="figure-tools">
            <label class="tile-dial">
              <span>{t('cost.tile', count(at + 1), count(tiles))}</span>
              <input
                type="range"
                min="0"
                max="1000"
                value={progress}
                aria-valuetext={t('cost.tile', count(at + 1), count(tiles))}
                onInput={(event) => setProgress(Number(event.currentTarget.value))}
              />
            </label>
          </div>
        </>
      }
    />
  );
};

const importanceStart: Bench = {
  ...abc,
  source: 'direct',
  q: [[2, 1]],
  k: [
    [1, 1],
    [0.5, 0],
    [0, 0.5],
  ],
  v: [
    [3, 0],
    [0, 1],
    [1, 2],
  ],
  names: ['q'],
  memoryNames: ['A', 'B', 'C'],
  scale: 1,
  chosen: { head: 0, query: 0, key: 0 },
};
const Importance: FunctionComponent<StepProps> = (p) => {
  const mini = useMini(importanceStart);
  const measure = async (b: Bench) => {
    const base = await ask(b);
    const effect = await Promise.all(
      base.k.map(async (_, key) => {
        const cut = await ask({ ...b, edits: withEdit(b.edits, { kind: 'forbid', head: 0, query: 0, key }) });
        return Math.hypot(...cut.heads[0].output[0].map((value, x) => value - base.heads[0].output[0][x]));
      }),
    );
    return { weights: base.heads[0].weights[0], effect };
  };
  const effects = useAnswer(() => measure(mini.b), [mini.b.v, mini.b.k, mini.b.q, mini.b.edits]).answer?.effect ?? [];
  const weights = mini.r?.heads[0].weights[0] ?? [];
  const most = Math.max(1e-9, ...effects);
  return (
    <Split
      p={p}
      mini={mini}
      check={async () => {
        const { weights: w, effect } = await measure(mini.b);
        const heavy = w.indexOf(Math.max(...w));
        if (effect.every((change) => change < 0.05)) return () => t('l.importance.1.hint.flat');
        return effect[heavy] < 0.01 && Math.max(...effect) > 0.05 && w[heavy] > 0.5
          ? true
          : () => t('l.importance.1.hint', show(effect[heavy]));
      }}
      figure={
        <>
          <div class="flow">
            <MiniMatrix mini={mini} id="weights" />
            <MiniMatrix mini={mini} id="v" editable />
            <MiniMatrix mini={mini} id="output" />
          </div>
          <div class="versus" role="table">
            <div role="row">
              <span role="columnheader">{t('key')}</span>
              <span role="columnheader" class="hue-w">
                {t('importance.looks')}
              </span>
              <span role="columnheader" class="hue-e">
                {t('importance.matters', show(most))}
              </span>
            </div>
            {weights.map((w, j) => (
              <div role="row">
                <b role="rowheader" class="hue-k">
                  {mini.b.memoryNames[j]}
                </b>
                <span role="cell" class="meter w">
                  <i style={{ '--h': w.toFixed(3) }} />
                  <b>{show(w)}</b>
                </span>
                <span role="cell" class="meter e">
                  <i style={{ '--h': ((effects[j] ?? 0) / most).toFixed(3) }} />
                  <b>{show(effects[j])}</b>
                </span>
              </div>
            ))}
          </div>
          <MiniRow mini={mini} canLock={false} />
        </>
      }
    />
  );
};

export const lessons: Lesson[] = [
  { id: 'sources', title: 'l.sources', steps: [{ key: 'l.sources.1', view: Sources }] },
  { id: 'roles', title: 'l.roles', steps: [{ key: 'l.roles.1', view: RolesStep }] },
  {
    id: 'query',
    title: 'l.query',
    steps: [
      { key: 'l.query.1', view: Query1 },
      { key: 'l.query.2', view: Query2 },
    ],
  },
  {
    id: 'scale',
    title: 'l.scale',
    steps: [
      { key: 'l.scale.1', view: Scale1 },
      { key: 'l.scale.2', view: Scale2 },
    ],
  },
  {
    id: 'matrix',
    title: 'l.matrix',
    steps: [
      { key: 'l.matrix.1', view: Matrix1 },
      { key: 'l.matrix.2', view: Matrix2 },
    ],
  },
  {
    id: 'cross',
    title: 'l.cross',
    steps: [
      { key: 'l.cross.1', view: Cross1 },
      { key: 'l.cross.2', view: Cross2 },
    ],
  },
  {
    id: 'masks',
    title: 'l.masks',
    steps: [
      { key: 'l.masks.1', view: Masks1 },
      { key: 'l.masks.2', view: Masks2 },
    ],
  },
  {
    id: 'cache',
    title: 'l.cache',
    steps: [
      { key: 'l.cache.1', view: Cache1 },
      { key: 'l.cache.2', view: Cache2 },
    ],
  },
  { id: 'heads', title: 'l.heads', steps: [{ key: 'l.heads.1', view: Heads }] },
  { id: 'block', title: 'l.block', steps: [{ key: 'l.block.1', view: Block }] },
  { id: 'positions', title: 'l.positions', steps: [{ key: 'l.positions.1', view: Positions }] },
  { id: 'cost', title: 'l.cost', steps: [{ key: 'l.cost.1', view: Cost }] },
  { id: 'importance', title: 'l.importance', steps: [{ key: 'l.importance.1', view: Importance }] },
];

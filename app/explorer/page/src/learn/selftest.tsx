// Nine questions answered by doing. The first time they carry the numbers of the worked examples; after that the engine's random
// numbers make fresh ones. What is right is what the engine computes.
import { useState } from 'preact/hooks';
import type { Tone } from '../colours';
import type { Matrix } from '../engine';
import { count, readNumber, short, show } from '../numbers';
import { complain, engine } from '../shared';
import { Button, Segmented, Symbols, Tex } from '../ui';
import { language, t } from '../words';
import { useAnswer } from './answer';
import { Vector } from './mini';

// What is asked for: a number to type, a token to press where it is read (1, else 0), or one of several to choose (its place).
interface Field {
  label: string;
  token?: true;
  choices?: string[];
}
interface Question {
  ask: string;
  given?: { title: string; values: number[]; tone: Tone }[]; // its vectors, in the colours of their parts
  fields: Field[];
  answer: () => Promise<number[]>; // by the engine
  solution: string;
}

// As one writes them by hand: a negative factor in brackets.
const factor = (value: number) => (value < 0 ? `(${short(value)})` : short(value));
const list = (values: number[]) => `[${values.map(short).join(', ')}]`;
const numbers = (...labels: string[]): Field[] => labels.map((label) => ({ label }));
const plain = { heads: 1, key_heads: 1, scale: null, mask: [], positions: { kind: 'none' as const }, edits: [] };

// Small whole numbers from the engine's random numbers: pick(i, low, high).
async function dice(seed: number): Promise<(low: number, high: number) => number> {
  const [row] = await engine.operation({ name: 'normal', rows: 1, columns: 64, seed: 9000 + seed });
  let at = 0;
  return (low, high) => {
    const share = Math.abs(row[at++ % row.length] * 1e4) % 1;
    return low + Math.floor(share * (high - low + 1));
  };
}

async function questions(seed: number): Promise<Question[]> {
  const first = seed === 0;
  const pick = first ? (low: number) => low : await dice(seed);
  const vector = (given: number[]) => (first ? given : given.map(() => pick(-3, 4)));
  const out: Question[] = [];
  {
    const q = vector([1, 2]),
      k1 = vector([1, 0]),
      k2 = vector([0, 1]);
    const sum = (k: number[]) =>
      `${q.map((value, i) => `${i ? factor(value) : short(value)}·${factor(k[i])}`).join(' + ')} = ${show(q[0] * k[0] + q[1] * k[1])}`;
    out.push({
      ask: t('st.1', list(q), list(k1), list(k2)),
      given: [
        { title: 'q', values: q, tone: 'q' },
        { title: 'k_1', values: k1, tone: 'k' },
        { title: 'k_2', values: k2, tone: 'k' },
      ],
      fields: numbers(t('st.f.score', 1), t('st.f.score', 2)),
      solution: t('st.s1', sum(k1), sum(k2)),
      answer: async () =>
        (await engine.attention({ ...plain, query: [q], key: [k1, k2], value: [[0], [0]] })).heads[0].products[0],
    });
  }
  {
    // e to the second score is `ratio` times e to the first.
    const ratio = first ? 1 : pick(1, 4),
      s = [0, Math.log(ratio)],
      v1 = first ? [2, 0] : [2 * pick(0, 4), 2 * pick(0, 4)],
      v2 = first ? [0, 4] : [2 * pick(0, 4), 2 * pick(0, 4)];
    out.push({
      ask: t('st.2', '0', ratio === 1 ? '0' : `ln ${ratio} = ${show(s[1], 4)}`, list(v1), list(v2)),
      given: [
        { title: 's', values: s, tone: 's' },
        { title: 'v_1', values: v1, tone: 'v' },
        { title: 'v_2', values: v2, tone: 'v' },
      ],
      fields: numbers(t('st.f.weight', 1), t('st.f.weight', 2), t('st.f.output', 1), t('st.f.output', 2)),
      solution: t(
        'st.s2',
        ratio,
        1 + ratio,
        list(v1),
        list(v2),
        list(v1.map((value, i) => (value + ratio * v2[i]) / (1 + ratio))),
      ),
      answer: async () => {
        const {
          heads: [h],
        } = await engine.attention({
          ...plain,
          scale: 1,
          query: [[1]],
          key: s.map((score) => [score]),
          value: [v1, v2],
        });
        return [...h.weights[0], ...h.output[0]];
      },
    });
  }
  {
    const root = first ? 8 : [2, 3, 4, 5, 8][pick(0, 4)],
      product = first ? 8 : root * pick(1, 6);
    out.push({
      ask: t('st.3', product, root * root),
      fields: numbers(t('score')),
      solution: t('st.s3', product, root * root, root, product / root),
      answer: async () => {
        const q = new Array<number>(root * root).fill(0);
        q[0] = product;
        const k = new Array<number>(root * root).fill(0);
        k[0] = 1;
        return (await engine.attention({ ...plain, query: [q], key: [k], value: [[0]] })).heads[0].scaled[0];
      },
    });
  }
  {
    const actions = first ? 8 : pick(2, 16),
      side = first ? 14 : pick(4, 16),
      tokens = side * side;
    out.push({
      ask: t('st.4', actions, tokens),
      fields: numbers(t('st.f.rows'), t('st.f.columns'), t('st.f.scores')),
      solution: t('st.s4', actions, tokens, count(tokens * tokens)),
      answer: async () => {
        const q = await engine.operation({ name: 'normal', rows: actions, columns: 1, seed: 1 }),
          k = await engine.operation({ name: 'normal', rows: tokens, columns: 1, seed: 2 });
        const cross = (await engine.attention({ ...plain, query: q, key: k, value: k })).heads[0].products,
          self = (await engine.attention({ ...plain, query: k, key: k, value: k })).heads[0].products;
        return [cross.length, cross[0].length, self.length * self[0].length];
      },
    });
  }
  {
    const words = first ? 3 : pick(3, 9),
      position = first ? 2 : pick(0, words - 1),
      names = Array.from({ length: words }, (_, i) => t('st.f.nth', i + 1));
    out.push({
      ask: t('st.5', words, words + 1, position),
      fields: [
        { label: t('st.f.word'), choices: [...names, '<EOS>'] },
        ...['<BOS>', ...names].map((label): Field => ({ label, token: true })),
      ],
      solution: t('st.s5', position, position + 1),
      // A row predicts what stands after the last token that it reads.
      answer: async () => {
        const x = await engine.operation({ name: 'normal', rows: words + 1, columns: 2, seed: 3 });
        const seen = (
          await engine.attention({ ...plain, query: x, key: x, value: x, mask: [{ rule: 'causal' }] })
        ).heads[0].masked[position].map((value) => (value !== null ? 1 : 0));
        return [seen.filter(Boolean).length, ...seen];
      },
    });
  }
  {
    const length = first ? 4 : pick(3, 6),
      position = first ? 2 : pick(0, length - 1);
    out.push({
      ask: t('st.6', length, position),
      fields: Array.from({ length }, (_, i) => ({ label: t('st.f.token', i), token: true })),
      solution: t('st.s6', position),
      answer: async () => {
        const x = await engine.operation({ name: 'normal', rows: length, columns: 2, seed: 4 });
        return (
          await engine.attention({ ...plain, query: x, key: x, value: x, mask: [{ rule: 'causal' }] })
        ).heads[0].weights[position].map((w) => (w > 0 ? 1 : 0));
      },
    });
  }
  {
    const o1 = first ? [1.2, -0.4] : [pick(-9, 9) / 5, pick(-9, 9) / 5],
      o2 = first ? [0.5, 2] : [pick(-9, 9) / 5, pick(-9, 9) / 5],
      times = first ? 0.5 : [0.5, 2, 3, -1][pick(0, 3)];
    const together = [...o1, ...o2],
      w: Matrix = together.map((_, i) => together.map((__, c) => (i === c ? times : 0)));
    out.push({
      ask: t('st.7', list(o1), list(o2), short(times)),
      given: [
        { title: 'o^1', values: o1, tone: 'v' },
        { title: 'o^2', values: o2, tone: 'v' },
      ],
      fields: numbers(...together.map((_, i) => t('st.f.result', i + 1))),
      solution: t('st.s7', list(together), factor(times), list(together.map((value) => value * times))),
      answer: async () => (await engine.operation({ name: 'product', a: [together], b: w }))[0],
    });
  }
  {
    const before = first ? 1024 : 100 * pick(1, 9),
      times = first ? 2 : pick(2, 4),
      after = before * times;
    out.push({
      ask: t('st.8', count(before), count(after)),
      fields: numbers(t('st.f.before'), t('st.f.after'), t('st.f.times')),
      solution: t('st.s8', count(before), count(before * before), count(after), count(after * after), times * times),
      // A count of scores, which no engine needs to fill: rows times columns, at a shape it can be asked for.
      answer: async () => {
        const one = await scoresOf(2),
          many = await scoresOf(2 * times);
        return [before * before, after * after, many / one];
      },
    });
  }
  {
    const root = first ? 8 : [2, 3, 4, 8][pick(0, 3)],
      heads = first ? 12 : pick(2, 12),
      width = heads * root * root;
    out.push({
      ask: t('st.9', width, heads),
      fields: numbers(t('st.f.size'), t('st.f.divisor')),
      solution: t('st.s9', width, heads, root * root, root),
      // One head's share of the width: the engine says what it divides by.
      answer: async () => {
        const row = [new Array<number>(width / heads).fill(1)];
        const reply = await engine.attention({ ...plain, query: row, key: row, value: row });
        return [reply.heads[0].output[0].length, 1 / reply.scale];
      },
    });
  }
  return out;
}
async function scoresOf(n: number): Promise<number> {
  const x = await engine.operation({ name: 'normal', rows: n, columns: 1, seed: 6 });
  const s = (await engine.attention({ ...plain, query: x, key: x, value: x })).heads[0].products;
  return s.length * s[0].length;
}

function Item({ q, n, onRight }: { q: Question; n: number; onRight: () => void }) {
  // A token that nobody has pressed is one that is not read.
  const [values, setValues] = useState<string[]>(q.fields.map((field) => (field.token ? '0' : '')));
  const [verdict, setVerdict] = useState<{ right: boolean; text: () => string; wrong: boolean[] } | null>(null);
  const [open, setOpen] = useState(false);
  const put = (i: number, value: string) => setValues((all) => all.map((old, j) => (j === i ? value : old)));
  const check = async () => {
    const given = values.map((value) => readNumber(value));
    if (given.some((value) => !Number.isFinite(value))) {
      setVerdict({ right: false, text: () => t('st.blank'), wrong: given.map((value) => !Number.isFinite(value)) });
      return;
    }
    try {
      const right = await q.answer();
      const wrong = given.map((value, i) => Math.abs(value - right[i]) > 0.0051);
      const all = wrong.every((bad) => !bad);
      setVerdict({
        right: all,
        text: () => (all ? t('learn.right') : t('st.wrong', wrong.filter(Boolean).length)),
        wrong,
      });
      if (all) onRight();
    } catch (error) {
      complain(error);
    }
  };
  const tokens = q.fields.flatMap((field, i) => (field.token ? [i] : []));
  return (
    <li class={`question ${verdict?.right ? 'right' : ''}`} data-question={n}>
      <span class="step-n" aria-hidden="true">
        {n}
      </span>
      <div>
        <p class="ask">
          <Symbols text={q.ask} />
        </p>
        {q.given && (
          <div class="flow">
            {q.given.map(({ title, values: row, tone }) => (
              <Vector id={`given-${n}-${title}`} title={<Tex tex={title} />} name={title} tone={tone} values={row} />
            ))}
          </div>
        )}
        <form
          class="fields"
          onSubmit={(event) => {
            event.preventDefault();
            void check();
          }}
        >
          {q.fields.map((field, i) =>
            field.token ? null : field.choices ? (
              <Segmented
                label={field.label}
                value={values[i]}
                options={field.choices.map((label, place) => ({ value: String(place + 1), label }))}
                onChange={(value) => put(i, value)}
              />
            ) : (
              <label>
                <span>{field.label}</span>
                <input
                  type="text"
                  inputMode="text"
                  value={values[i]}
                  aria-invalid={verdict?.wrong[i] ?? false}
                  onInput={(event) => put(i, event.currentTarget.value)}
                />
              </label>
            ),
          )}
          {tokens.length > 0 && (
            <div class="pick" role="group" aria-label={t('st.f.reads')}>
              {tokens.map((i) => (
                <button
                  type="button"
                  aria-pressed={values[i] === '1'}
                  onClick={() => put(i, values[i] === '1' ? '0' : '1')}
                >
                  {q.fields[i].label}
                </button>
              ))}
            </div>
          )}
          <button type="submit" class="button small">
            <span>{t('st.check')}</span>
          </button>
          <Button small label={t('st.solution')} onClick={() => setOpen(!open)} />
        </form>
        {verdict && (
          <p class={verdict.right ? 'good' : 'bad'} role="status">
            {verdict.text()}
          </p>
        )}
        {open && (
          <p class="solution">
            <Symbols text={q.solution} />
          </p>
        )}
      </div>
    </li>
  );
}

// The first time the self-test has the numbers of the worked examples, then always others, and others for everybody.
let opened = false;
function nextSeed(): number {
  try {
    opened ||= localStorage.getItem('attend.selftest') !== null;
    localStorage.setItem('attend.selftest', '1');
  } catch {
    /* closed storage: remembered as long as the page */
  }
  const seed = opened ? 1 + (Date.now() % 1e9) : 0;
  opened = true;
  return seed;
}

export function SelfTest() {
  const [seed, setSeed] = useState(nextSeed);
  const [right, setRight] = useState<Set<number>>(new Set());
  const { answer } = useAnswer(async () => ({ seed, made: await questions(seed) }), [seed, language.value]);
  const all = answer?.seed === seed ? answer.made : null;
  return (
    <div class="selftest">
      <header>
        <div>
          <h1>{t('st.title')}</h1>
          <p class="lead">{t('st.lead')}</p>
        </div>
        <div class="selftest-tools">
          <b>{t('st.count', right.size)}</b>
          <Button
            icon="dice"
            text
            label={t('st.fresh')}
            id="fresh"
            onClick={() => {
              setRight(new Set());
              setSeed(nextSeed());
            }}
          />
        </div>
      </header>
      <ol>
        {all?.map((q, i) => (
          <Item key={`${seed}-${i}`} q={q} n={i + 1} onRight={() => setRight((old) => new Set([...old, i]))} />
        ))}
      </ol>
    </div>
  );
}

// Where one may begin. The first ones are the worked examples that the lessons use.
import { normal } from './shapes';
import { abc, emptyMask, type Bench } from './state';
import { t, type Key } from '../words';

interface Example {
  id: string;
  title: Key;
  make: () => Promise<Bench>;
}

const start = (change: Partial<Bench>) => Promise.resolve({ ...abc, ...change });

// An action reads an image.
export const visual = (): Bench => ({
  ...abc,
  source: 'direct',
  q: [[1, 1]],
  k: [
    [1, 0],
    [0, 1],
    [1, 1],
  ],
  v: [
    [2, 0],
    [0, 4],
    [1, 1],
  ],
  names: [t('visual.action')],
  memoryNames: [t('visual.red'), t('visual.blue'), t('visual.relation')],
  chosen: { head: 0, query: 0, key: 2 },
});

export const examples: Example[] = [
  { id: 'abc', title: 'example.abc', make: () => start({}) },
  {
    id: 'causal',
    title: 'example.causal',
    make: () => start({ mask: { ...emptyMask, kind: 'causal' }, chosen: { head: 0, query: 1, key: 0 } }),
  },
  {
    id: 'visual',
    title: 'example.visual',
    make: () => start(visual()),
  },
  {
    id: 'scale',
    title: 'example.scale',
    make: () =>
      start({
        source: 'direct',
        q: [[8]],
        k: [[1], [0]],
        v: [[1], [0]],
        scale: 1,
        names: ['q'],
        memoryNames: ['k1', 'k2'],
        chosen: { head: 0, query: 0, key: 0 },
      }),
  },
  {
    id: 'heads',
    title: 'example.heads',
    make: async () => ({
      ...abc,
      heads: 2,
      x: await normal(4, 4, 21),
      wq: await normal(4, 4, 22, 0.7),
      wk: await normal(4, 4, 23, 0.7),
      wv: await normal(4, 4, 24, 0.7),
      wo: [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
      ],
      names: ['A', 'B', 'C', 'D'],
      chosen: { head: 0, query: 3, key: 1 },
    }),
  },
  {
    id: 'rope',
    title: 'example.rope',
    make: async () => ({
      ...abc,
      rotary: true,
      x: Array.from({ length: 8 }, () => [1, 0, 0.5, 0.5]),
      wq: await normal(4, 4, 31, 0.7),
      wk: await normal(4, 4, 32, 0.7),
      wv: await normal(4, 4, 33, 0.7),
      names: [],
      mask: { ...emptyMask, kind: 'causal' },
      chosen: { head: 0, query: 6, key: 3 },
    }),
  },
  {
    id: 'long',
    title: 'example.long',
    make: async () => ({
      ...abc,
      x: await normal(64, 16, 41),
      wq: await normal(16, 16, 42, 0.35),
      wk: await normal(16, 16, 43, 0.35),
      wv: await normal(16, 16, 44, 0.25),
      names: [],
      mask: { ...emptyMask, kind: 'causal' },
      chosen: { head: 0, query: 40, key: 10 },
    }),
  },
];

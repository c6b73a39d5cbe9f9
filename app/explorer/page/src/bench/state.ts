// The workbench: matrices of one's own. One immutable state; every change is a step that can be taken back.
import { signal } from '@preact/signals';
import type { AttentionRequest, AttentionResult, MaskRule, Matrix, ScoreEdit } from '../engine';
import { Lane } from '../engine';
import { History } from '../history';
import { lockable } from '../lock';
import { isWhole } from '../numbers';
import { later } from '../pending';
import { engine, hush } from '../shared';

export type MaskKind = 'none' | 'causal' | 'window' | 'prefix' | 'dense';

export interface Bench {
  source: 'self' | 'cross' | 'direct'; // direct: Q, K and V given as they are
  x: Matrix;
  memory: Matrix;
  wq: Matrix;
  wk: Matrix;
  wv: Matrix;
  wo: Matrix | null;
  q: Matrix;
  k: Matrix;
  v: Matrix;
  heads: number;
  scale: number | null;
  mask: { kind: MaskKind; before: number; length: number; allowed: number[][] };
  rotary: boolean;
  edits: ScoreEdit[];
  names: string[];
  memoryNames: string[];
  chosen: { head: number; query: number; key: number };
  seed: number | null; // of the random numbers drawn last; null: none were
}

export const emptyMask = { kind: 'none' as MaskKind, before: 1, length: 1, allowed: [] as number[][] };

export const abc: Bench = {
  source: 'self',
  x: [
    [1, 0],
    [0, 1],
    [1, 1],
  ],
  memory: [
    [1, 0],
    [0, 1],
    [1, 1],
  ],
  wq: [
    [1, 0],
    [0, 1],
  ],
  wk: [
    [1, 1],
    [0, 1],
  ],
  wv: [
    [1, 0],
    [1, 2],
  ],
  wo: null,
  q: [],
  k: [],
  v: [],
  heads: 1,
  scale: null,
  mask: emptyMask,
  rotary: false,
  edits: [],
  names: ['A', 'B', 'C'],
  memoryNames: ['M1', 'M2', 'M3'],
  chosen: { head: 0, query: 2, key: 0 },
  seed: null,
};

const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
export const nameOf = (names: string[], i: number, cross = false) =>
  names[i] ?? (cross ? `M${i}` : i < 26 ? letters[i] : `T${i}`);
// More rows than letters are numbered, so that each name is short and its own.
const manyNames = (names: string[], i: number, rows: number) =>
  names[i] ?? (rows > letters.length ? String(i) : nameOf(names, i));
export const queryNames = (b: Bench, rows: number) =>
  Array.from({ length: rows }, (_, i) => manyNames(b.names, i, rows));
export const keyNames = (b: Bench, rows: number) =>
  Array.from({ length: rows }, (_, i) =>
    b.source === 'self' ? manyNames(b.names, i, rows) : nameOf(b.memoryNames, i, true),
  );

export function requestOf(b: Bench): AttentionRequest {
  const mask: MaskRule[] = [];
  if (b.mask.kind === 'causal') mask.push({ rule: 'causal' });
  if (b.mask.kind === 'window') mask.push({ rule: 'window', before: b.mask.before, after: 0 });
  if (b.mask.kind === 'prefix') mask.push({ rule: 'prefix', length: b.mask.length });
  if (b.mask.kind === 'dense') mask.push({ rule: 'dense', allowed: b.mask.allowed });
  const common = {
    output_weight: b.wo,
    heads: b.heads,
    key_heads: b.heads,
    scale: b.scale,
    mask,
    edits: b.edits,
    positions: b.rotary
      ? { kind: 'rotary' as const, base: 10000, pairing: 'halves' as const }
      : { kind: 'none' as const },
  };
  return b.source === 'direct'
    ? { query: b.q, key: b.k, value: b.v, ...common }
    : {
        x: b.x,
        memory: b.source === 'cross' ? b.memory : null,
        query_weight: b.wq,
        key_weight: b.wk,
        value_weight: b.wv,
        ...common,
      };
}

// ---- Store -------------------------------------------------------------------------------------------------------

export const bench = signal<Bench>(abc);
export const result = signal<AttentionResult | null>(null);
export const baseResult = signal<AttentionResult | null>(null); // without edits
export const failure = signal<unknown>(null);
export const settled = signal<Bench | null>(null); // the state that `result` belongs to
const history = new History<Bench>();
export const { past, future } = history;

// A new answer with the arrays of the one before wherever the numbers are the same, so that nothing is drawn again for them.
function kept(old: unknown, now: unknown): unknown {
  if (!Array.isArray(now) || !Array.isArray(old)) return now;
  let same = now.length === old.length;
  for (let i = 0; i < now.length; ++i) {
    if (typeof now[i] === 'object') now[i] = kept(old[i], now[i]);
    if (now[i] !== old[i]) same = false;
  }
  return same ? old : now;
}
function keepRows(old: AttentionResult | null, now: AttentionResult): AttentionResult {
  if (!old) return now;
  const out: Record<string, unknown> = { ...now };
  for (const name of Object.keys(out) as (keyof AttentionResult)[])
    if (name !== 'heads') out[name] = kept(old[name], out[name]);
  out.heads = now.heads.map((head, h) =>
    Object.fromEntries(
      Object.entries(head).map(([name, value]) => [name, kept(old.heads[h]?.[name as keyof typeof head], value)]),
    ),
  );
  return out as unknown as AttentionResult;
}

const lane = new Lane((b: Bench) => engine.attention(requestOf(b)));
const baseLane = new Lane((b: Bench) => engine.attention({ ...requestOf(b), edits: [] }));
let baseFor = '';

async function ask(b: Bench): Promise<void> {
  forgetRest();
  try {
    const reply = await lane.ask(b);
    if (reply) {
      hush('engine');
      result.value = keepRows(result.value, reply);
      settled.value = b;
      failure.value = null;
    }
    if (b.edits.length) {
      const { chosen: _, edits: __, ...rest } = b;
      const fingerprint = JSON.stringify(rest);
      if (fingerprint !== baseFor) {
        const base = await baseLane.ask(b);
        if (base) {
          baseFor = fingerprint;
          baseResult.value = base;
        }
      }
    }
  } catch (error) {
    failure.value = error;
  }
}

export function askAgain(): void {
  baseFor = '';
  void ask(bench.value);
}

export function change(next: Partial<Bench>, merge: string | null = null): void {
  history.record(bench.value, merge);
  show({ ...bench.value, ...next });
}
function show(b: Bench | null): void {
  if (!b) return;
  bench.value = b;
  void ask(b);
}

// While a finger is on a bar nothing is committed: the page previews every row that the score reaches, the engine is asked once the
// finger rests, and the end of the drag is one step.
let forgetRest = (): void => undefined;
const rest = 120;
export function draft(edits: ScoreEdit[]): void {
  forgetRest();
  forgetRest = later(() => ask({ ...bench.value, edits }), rest);
}

// Where one looks is no step for undo.
export function choose(chosen: Partial<Bench['chosen']>): void {
  bench.value = { ...bench.value, chosen: { ...bench.value.chosen, ...chosen } };
  if (settled.value && settled.value.edits === bench.value.edits)
    settled.value = { ...settled.value, chosen: bench.value.chosen };
}

export const undo = (): void => show(history.back(bench.value));
export const redo = (): void => show(history.forward(bench.value));

export function load(b: Bench): void {
  history.clear();
  show(b);
}

// ---- Edits -------------------------------------------------------------------------------------------------------

export function withEdit(edits: ScoreEdit[], edit: ScoreEdit): ScoreEdit[] {
  return [
    ...edits.filter((other) => !(other.head === edit.head && other.query === edit.query && other.key === edit.key)),
    edit,
  ];
}
export function withoutEdit(edits: ScoreEdit[], head: number, query: number, key: number): ScoreEdit[] {
  return edits.filter((other) => !(other.head === head && other.query === query && other.key === key));
}
export const editOf = (edits: ScoreEdit[], head: number, query: number, key: number) =>
  edits.find((other) => other.head === head && other.query === query && other.key === key);
export const rowEdits = (edits: ScoreEdit[], head: number, query: number) =>
  edits.filter((other) => (other.head === head || other.head < 0) && (other.query === query || other.query < 0));

// The weight nearest to the wanted one that the chosen row's key can be locked to.
export function lockFor(b: Bench, r: AttentionResult | null, key: number, wanted: number): number {
  const { head, query } = b.chosen;
  const others = rowEdits(b.edits, head, query).filter((edit) => edit.kind === 'lock' && edit.key !== key);
  return lockable(wanted, key, r?.heads[Math.min(head, r.heads.length - 1)].scores[query] ?? [], others);
}

// ---- Checking what comes from outside: links and files -------------------------------------------------------------

// Why a state cannot be read: which part it is, and the cell where that is a matrix (counted from 0).
export interface Unreadable {
  part: string;
  row?: number;
  column?: number;
  found?: string;
}

function faultOf(name: string, m: unknown, empty = false): Unreadable | null {
  if (!Array.isArray(m) || (!empty && m.length === 0) || m.length > 512) return { part: name };
  for (let row = 0; row < m.length; ++row) {
    if (!Array.isArray(m[row]) || m[row].length > 4096) return { part: name, row };
    if (m[row].length !== m[0].length || m[row].length === 0) return { part: name, row, column: m[row].length };
    const column = m[row].findIndex((value: unknown) => typeof value !== 'number' || !Number.isFinite(value));
    if (column >= 0) return { part: name, row, column, found: String(JSON.stringify(m[row][column])).slice(0, 40) };
  }
  return null;
}

// `whole`: a file holds every matrix it needs; a link only what differs from the first example.
export function readBench(data: unknown, whole = false): Bench | Unreadable {
  if (typeof data !== 'object' || data === null || Array.isArray(data)) return { part: 'state' };
  const b = { ...abc, ...(data as Partial<Bench>) };
  if (!['self', 'cross', 'direct'].includes(b.source)) return { part: 'source' };
  const used: (keyof Bench)[] =
    b.source === 'direct'
      ? ['q', 'k', 'v']
      : b.source === 'cross'
        ? ['x', 'memory', 'wq', 'wk', 'wv']
        : ['x', 'wq', 'wk', 'wv'];
  if (whole) for (const name of used) if (!(name in data)) return { part: name };
  for (const name of ['x', 'memory', 'wq', 'wk', 'wv'] as const) {
    const fault = faultOf(name, b[name]);
    if (fault) return fault;
  }
  for (const name of ['q', 'k', 'v'] as const) {
    const fault = faultOf(name, b[name], b.source !== 'direct');
    if (fault) return fault;
  }
  if (b.wo !== null) {
    const fault = faultOf('wo', b.wo);
    if (fault) return fault;
  }
  if (!isWhole(b.heads, 1, 64)) return { part: 'heads' };
  if (!(b.scale === null || (typeof b.scale === 'number' && Number.isFinite(b.scale)))) return { part: 'scale' };
  if (
    !b.mask ||
    !['none', 'causal', 'window', 'prefix', 'dense'].includes(b.mask.kind) ||
    faultOf('mask', b.mask.allowed, true)
  )
    return { part: 'mask' };
  if (!isWhole(b.mask.before, 0, 512) || !isWhole(b.mask.length, 0, 512)) return { part: 'mask' };
  if (!Array.isArray(b.edits) || b.edits.length > 5000) return { part: 'edits' };
  const wrong = b.edits.findIndex(
    (e) =>
      !(
        e &&
        ['set', 'add', 'scale', 'forbid', 'lock'].includes(e.kind) &&
        isWhole(e.head, -1, 63) &&
        isWhole(e.query, -1, 511) &&
        isWhole(e.key, -1, 511) &&
        (e.value === undefined || Number.isFinite(e.value))
      ),
  );
  if (wrong >= 0) return { part: `edits[${wrong}]` };
  if (
    ![b.names, b.memoryNames].every((names) => Array.isArray(names) && names.every((name) => typeof name === 'string'))
  )
    return { part: 'names' };
  if (
    !b.chosen ||
    !isWhole(b.chosen.head, 0, b.heads - 1) ||
    !isWhole(b.chosen.query, 0, 511) ||
    !isWhole(b.chosen.key, 0, 511)
  )
    return { part: 'chosen' };
  if (!(b.seed === null || isWhole(b.seed, 0, mostSeed))) return { part: 'seed' };
  return b;
}
// A seed times 16 is still exact.
export const mostSeed = 2 ** 48;

// Only what differs from the first example goes into the link.
export function linkState(b: Bench): Partial<Bench> {
  const out: Record<string, unknown> = {};
  for (const key of Object.keys(b) as (keyof Bench)[])
    if (JSON.stringify(b[key]) !== JSON.stringify(abc[key])) out[key] = b[key];
  return out as Partial<Bench>;
}

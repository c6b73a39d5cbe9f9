// What a link or a file says of the model room is read field by field: either a state that every view can show, or the place in
// it that cannot be read. Whether names and numbers mean something to the model is for the engine to say.
import type { Input, ModelEdit } from '../engine';
import { isWhole } from '../numbers';
import type { Beside, Compare, Room, Writing } from './state';

export interface Unreadable {
  part: string;
}
export type ReadRoom = Partial<Room> & Beside & { fingerprint?: string };

const most = 2 ** 31 - 1;
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isIndex = (value: unknown, low = 0): value is number => isWhole(value, low, most);
const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);
const isText = (value: unknown): value is string => typeof value === 'string';
const isStack = (value: unknown) => value === 'encoder' || value === 'decoder';
const isIds = (value: unknown): value is number[] =>
  Array.isArray(value) && value.length > 0 && value.every((id) => isIndex(id));
const isRange = (value: unknown) =>
  Array.isArray(value) && value.length === 2 && value.every((place) => isIndex(place));

const texts = ['source', 'target', 'text', 'language'] as const,
  ids = ['source_ids', 'target_ids', 'text_ids'] as const;

export function readInput(data: unknown, part: string): Input | Unreadable {
  if (!isObject(data)) return { part };
  const input: Input = {};
  for (const name of texts) {
    const value = data[name];
    if (value === undefined) continue;
    if (!isText(value)) return { part: `${part}.${name}` };
    input[name] = value;
  }
  for (const name of ids) {
    const value = data[name];
    if (value === undefined) continue;
    if (!isIds(value)) return { part: `${part}.${name}` };
    input[name] = value;
  }
  return input.source === undefined && input.text === undefined && !input.source_ids && !input.text_ids
    ? { part }
    : input;
}

const index = (value: unknown) => isIndex(value),
  indexOrAll = (value: unknown) => isIndex(value, -1);
const cell = { attention: isText, head: indexOrAll, query: indexOrAll, key: indexOrAll };
// What every kind of edit must hold, and below what it may. The engine refuses fields it does not know: others are left out.
const needed: Record<ModelEdit['kind'], Record<string, (value: unknown) => boolean>> = {
  set: { ...cell, value: isNumber },
  add: { ...cell, value: isNumber },
  scale: { ...cell, value: isNumber },
  lock: { ...cell, value: isNumber },
  forbid: cell,
  head: { attention: isText, head: indexOrAll, value: isNumber },
  attention: { attention: isText, value: isNumber },
  feed_forward: { stack: isStack, layer: index, value: isNumber },
  evict: { attention: isText, key: index, query: index },
  patch: { site: isText },
  mean: { site: isText },
};
const optional: Record<string, (value: unknown) => boolean> = {
  name: isText,
  off: (value) => typeof value === 'boolean',
};
const inTexts: typeof optional = { head: indexOrAll, row: index, rows: isRange };

function readEdit(data: unknown, part: string): ModelEdit | Unreadable {
  if (!isObject(data)) return { part };
  if (!isText(data.kind) || !Object.hasOwn(needed, data.kind)) return { part: `${part}.kind` };
  const kind = data.kind as ModelEdit['kind'];
  const edit: Record<string, unknown> = { kind },
    texts = kind === 'patch' || kind === 'mean';
  for (const [name, fits] of Object.entries(needed[kind])) {
    if (!fits(data[name])) return { part: `${part}.${name}` };
    edit[name] = data[name];
  }
  for (const [name, fits] of Object.entries({ ...optional, ...(texts ? inTexts : {}) })) {
    if (data[name] === undefined) continue;
    if (!fits(data[name])) return { part: `${part}.${name}` };
    edit[name] = data[name];
  }
  if (texts) {
    const several = kind === 'mean' && Array.isArray(data.from),
      from = several ? (data.from as unknown[]) : [data.from];
    if (from.length === 0) return { part: `${part}.from` };
    const inputs: Input[] = [];
    for (const [i, one] of from.entries()) {
      const input = readInput(one, several ? `${part}.from[${i}]` : `${part}.from`);
      if ('part' in input) return input;
      inputs.push(input);
    }
    edit.from = several ? inputs : inputs[0];
  }
  return edit as unknown as ModelEdit;
}

const inputOf = (data: unknown) => {
  const input = readInput(data, '');
  return 'part' in input ? {} : { input };
};
const between = (n: unknown, low: number, high: number): n is number => typeof n === 'number' && n >= low && n <= high;

// Of what stands beside the room everything that can be read; the rest is left at its start.
function readBeside(d: Record<string, unknown>): Beside {
  const out: Beside = {};
  if (Array.isArray(d.pins))
    out.pins = d.pins
      .filter((p) => p && typeof p.attention === 'string' && isWhole(p.head, 0, 4096))
      .slice(0, 4)
      .map(({ attention, head }) => ({ attention, head }));
  const c = d.compare as Compare | undefined;
  if (c && ['head', 'unedited', 'text', 'model'].includes(c.kind)) {
    out.compare = {
      kind: c.kind,
      ...(typeof c.head === 'string' ? { head: c.head } : {}),
      ...inputOf(c.input),
      ...(typeof c.model === 'string' ? { model: c.model } : {}),
    };
  }
  const w = d.writing as Partial<Writing> | undefined;
  if (typeof w === 'object' && w) {
    out.writing = {
      open: w.open === true,
      ...(w.kind === 'greedy' || w.kind === 'sample' || w.kind === 'beam' ? { kind: w.kind } : {}),
      ...(isWhole(w.steps, 1, 64) ? { steps: w.steps } : {}),
      ...(isWhole(w.beams, 2, 8) ? { beams: w.beams } : {}),
      ...(between(w.temperature, 0.05, 10) ? { temperature: w.temperature } : {}),
      ...(isWhole(w.top_k, 0, 1000) ? { top_k: w.top_k } : {}),
      ...(between(w.top_p, 0.01, 1) ? { top_p: w.top_p } : {}),
      ...(isWhole(w.seed, 0, 2 ** 31) ? { seed: w.seed } : {}),
      ...(isWhole(w.at, 0, 64) ? { at: w.at } : {}),
      ...(Array.isArray(w.prefix) && w.prefix.length <= 64 && w.prefix.every((id) => isWhole(id, 0, 2 ** 31))
        ? { prefix: w.prefix }
        : {}),
    };
  }
  return out;
}

export function readRoom(data: unknown): ReadRoom | Unreadable {
  if (!isObject(data)) return { part: 'state' };
  if (!isText(data.model)) return { part: 'model' };
  const input = readInput(data.input, 'input');
  if ('part' in input) return input;
  const list = data.edits ?? [];
  if (!Array.isArray(list) || list.length > 2000) return { part: 'edits' };
  const edits: ModelEdit[] = [];
  for (const [i, one] of list.entries()) {
    const edit = readEdit(one, `edits[${i}]`);
    if ('part' in edit) return edit;
    edits.push(edit);
  }
  const out: ReadRoom = { model: data.model, input, edits };
  if (data.at !== undefined) {
    if (!isObject(data.at) || !isText(data.at.attention)) return { part: 'at' };
    const { attention, head, query, key } = data.at;
    for (const [name, value] of Object.entries({ head, query, key }))
      if (!isIndex(value)) return { part: `at.${name}` };
    out.at = { attention, head: head as number, query: query as number, key: key as number };
  }
  if (data.outcome !== undefined && data.outcome !== null) {
    if (!isIndex(data.outcome)) return { part: 'outcome' };
    out.outcome = data.outcome;
  }
  if (data.fingerprint !== undefined) {
    if (!isText(data.fingerprint)) return { part: 'fingerprint' };
    out.fingerprint = data.fingerprint;
  }
  return { ...out, ...readBeside(data) };
}

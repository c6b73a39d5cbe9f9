// The model room: a model, a text, edits, and one selection (attention, head, query, key) that every view shares.
import { computed, signal } from '@preact/signals';
import {
  Lane,
  Newest,
  type AttentionSite,
  type Input,
  type ModelEdit,
  type ModelEntry,
  type ModelInfo,
  type RowResult,
  type RunResult,
  type Tile,
  type Token,
} from '../engine';
import { History } from '../history';
import { engine, hush, say, status } from '../shared';
import { t } from '../words';
import { readRoom, type ReadRoom, type Unreadable } from './read';

export interface Selection {
  attention: string;
  head: number;
  query: number;
  key: number;
}
export interface Room {
  model: string;
  input: Input;
  edits: ModelEdit[];
  at: Selection;
  outcome: number | null; // which prediction is looked at; null: the one of the chosen query
}

export const start: Room = {
  model: '',
  input: {},
  edits: [],
  at: { attention: '', head: 0, query: 0, key: 0 },
  outcome: null,
};
export const room = signal<Room>(start);
const history = new History<Room>();
export const { past, future } = history;

export const entries = signal<ModelEntry[]>([]);
export const info = signal<ModelInfo | null>(null);
export const base = signal<RunResult | null>(null);
export const edited = signal<RunResult | null>(null); // null when there are no edits in force
export const editedFor = signal<ModelEdit[] | null>(null); // the edits that `edited` belongs to; null: a drag that is not over
export const row = signal<RowResult | null>(null);
export const baseRow = signal<RowResult | null>(null);
export const rowFor = signal<Room | null>(null); // the state that `row` belongs to
export const failure = signal<unknown>(null); // an Error; said in the reader's language where it is drawn
export const chosenModel = signal<string | null>(null); // what was chosen and is not open: it is being read, or cannot be
export const busy = signal<string | null>(null); // what is being computed, in the key of a sentence
export const lastTook = signal<number | null>(null); // ms of the last whole run, to say how long one waits
export const peekQuery = signal<number | null>(null); // hovering shows another row without choosing it

export type Method = 'weight' | 'write' | 'first_order' | 'exact';
// What the text is coloured by, when it is not the weight: one number a key of one row.
export const lens = signal<{
  attention: string;
  head: number;
  query: number;
  method: Method;
  values: Map<number, number>;
} | null>(null);
export const byWords = signal(false); // tokens of one word are shown as one
export const keysShown = signal<'all' | 'same' | 'other'>('all'); // of all sentences, of the query's, of the others
export const pinned = signal<{ attention: string; head: number }[]>([]); // to compare; at most four

// What the chosen head is compared with below the pins; null: the first pinned head, if there is one.
export interface Compare {
  kind: 'head' | 'unedited' | 'text' | 'model';
  head?: string;
  input?: Input;
  model?: string;
}
export const compare = signal<Compare | null>(null);
// How a text is written on the page, and where a reader stands in it.
export interface Writing {
  open: boolean;
  kind: 'greedy' | 'sample' | 'beam';
  steps: number;
  beams: number;
  temperature: number;
  top_k: number;
  top_p: number;
  seed: number;
  prefix: number[];
  at: number;
}
export const firstWriting: Writing = {
  open: false,
  kind: 'greedy',
  steps: 24,
  beams: 4,
  temperature: 1,
  top_k: 0,
  top_p: 1,
  seed: 1,
  prefix: [],
  at: 0,
};
export const writing = signal<Writing>(firstWriting);
// What stands beside the room in a link: it is chosen on the page and changes no number of it.
export interface Beside {
  pins?: { attention: string; head: number }[];
  compare?: Compare;
  writing?: Partial<Writing>;
}

export const inForce = (edits: ModelEdit[]) => edits.filter((e) => !e.off);
export const attentionOf = (name: string): AttentionSite | undefined =>
  info.value?.attentions.find((a) => a.name === name);
export const site = computed(() => info.value?.attentions.find((a) => a.name === room.value.at.attention));
export type Tab = 'encoder' | 'decoder' | 'cross';
export const tabOf = (a: AttentionSite): Tab => (a.part === 'cross' ? 'cross' : a.stack);

// A head has one name, the engine's and the command line's (`decoder.3.cross · head 0`), and one short form read from it
// (`Cross 3.0`: kind, layer, head). Everything counts from 0. Both take what is known of the model on the page.
export const headName = (attention: string, head: number) => t('head.place', attention, head);
export const attentionShort = (attention: string) => {
  const a = attentionOf(attention);
  return a ? `${t(`tab.${tabOf(a)}`)} ${a.layer}` : attention;
};
export const headShort = (attention: string, head: number) =>
  attentionOf(attention) ? `${attentionShort(attention)}.${head}` : headName(attention, head);

// What a mask hides. A window counts the query's own key: of a window of 3 the last that is seen is 2 away.
export const reachOf = (a: AttentionSite): { behind: number; ahead: number } => {
  const window = a.part === 'self' && a.window > 0 ? a.window - 1 : Infinity;
  return { behind: window, ahead: a.causal ? 0 : window };
};
export const masks = (a: AttentionSite, query: number, key: number): boolean =>
  key > query + reachOf(a).ahead || key < query - reachOf(a).behind;

const noTokens: Token[] = [];
// The tokens along both axes of an attention.
export function axes(a: AttentionSite | undefined, run: RunResult | null): { queries: Token[]; keys: Token[] } {
  if (!a || !run) return { queries: noTokens, keys: noTokens };
  const text = run.tokens.text ?? noTokens,
    source = run.tokens.source ?? text,
    target = run.tokens.target ?? text;
  if (a.part === 'cross') return { queries: target, keys: source };
  return a.stack === 'encoder' ? { queries: source, keys: source } : { queries: target, keys: target };
}

// Text of another direction in a line of ours is kept apart, so that it does not turn the line around.
export const apart = (text: string) =>
  /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u.test(text)
    ? `\u2068${text}\u2069`
    : text;

// What a token, a choice or a step is called on the page: its text without the mark of a word's beginning. One that the model
// does not know is called by what stood in the text.
export function label(token: { text: string; characters?: string } | undefined): string {
  if (!token) return '';
  const text = (token.characters ?? token.text).replace(/^[ \u2581]+/, '').replace(/\n/g, '⏎');
  return text === '' ? '␣' : text;
}

// Which way a text runs: as its first letter does. Marks and single bytes say nothing.
export const directionOf = (text: string): 'ltr' | 'rtl' => {
  const first = /\p{L}/u.exec(text.replace(/<[^<>]*>/g, ''))?.[0];
  return first && apart(first) !== first ? 'rtl' : 'ltr';
};
export const directionOfTokens = (tokens: Token[]) =>
  directionOf(
    tokens
      .map(
        (token) =>
          token.joined ?? token.characters ?? (token.kind === 'special' || token.kind === 'byte' ? '' : token.text),
      )
      .join(''),
  );

// A token with its place, for a line of text: `robots (3)`.
export const placed = (tokens: Token[], i: number) => (tokens[i] ? `${apart(label(tokens[i]))} (${i})` : String(i));

// Sentence of each token: a new one begins after an end mark or a new line.
export function sentencesOf(tokens: Token[]): number[] {
  let sentence = 0,
    ended = false;
  return tokens.map((token) => {
    const mark = /^\s*[.!?。！？…\n]+["'”’）)]*$/.test(token.text);
    if (ended && !mark && token.kind !== 'special') {
      ++sentence;
      ended = false;
    }
    if (/[.!?。！？…\n]["'”’）)]*$/.test(token.text) && token.kind !== 'special') ended = true;
    return sentence;
  });
}

// The full input of a run: the target that the base run wrote stands still while one edits.
export const request = (r: Room, edits = inForce(r.edits)) => ({
  model: r.model,
  input: base.value && sameInput(r.input, baseAsked) ? base.value.input : r.input,
  edits,
});
let baseAsked: Input | null = null;
const sameInput = (a: Input | null, b: Input | null) => JSON.stringify(a) === JSON.stringify(b);

// ---- Asking ------------------------------------------------------------------------------------------------------

// Replies come late and in any order. Each carries the room that it was asked for and is taken only while that still holds.
export const sameText = (r: Room, now = room.value) => r.model === now.model && r.input === now.input;
export const holds = (r: Room, now = room.value) => sameText(r, now) && r.edits === now.edits;

const runLane = new Lane((r: Room) =>
  engine.run({ ...request(r), want: longText() ? ['predictions'] : ['predictions', 'checks'], top: 10 }),
);
// The sum of heads is checked for every head of every layer: of a long text only in the row that is looked at.
const longText = () => Object.values(base.value?.tokens ?? {}).some((tokens) => tokens.length > 512);
const rowLane = new Lane(async (r: Room) => {
  const where = { attention: r.at.attention, head: r.at.head, query: r.at.query };
  const mine = await engine.row({ ...request(r), ...where });
  const before = inForce(r.edits).length ? await engine.row({ ...request(r, []), ...where }) : mine;
  return { mine, before, r };
});

// Nobody has chosen a key yet: the one that the row read most tells more than the first.
let keyless = false;

// True when the reply was taken.
async function askRow(r: Room): Promise<boolean> {
  if (!r.at.attention || !base.value) return false;
  const reply = await rowLane.ask(r);
  if (!reply || !holds(reply.r)) return false;
  row.value = reply.mine;
  baseRow.value = reply.before;
  rowFor.value = reply.r;
  if (keyless) {
    keyless = false;
    const { weights } = reply.mine;
    room.value = { ...room.value, at: { ...room.value.at, key: weights.indexOf(Math.max(...weights)) } };
  }
  return true;
}
async function askEdited(r: Room): Promise<boolean> {
  const reply = await runLane.ask(r);
  if (!reply || !holds(r)) return false;
  edited.value = reply;
  editedFor.value = r.edits;
  return true;
}

// A drag that is not over yet: only what it leads to is asked for. `drag` is the one under the finger; a change ends it.
let drag: object | null = null;
export function draft(edit: ModelEdit): void {
  const mine = (drag ??= {});
  const r = room.value,
    at = { attention: edit.attention!, head: edit.head!, query: edit.query!, key: edit.key! };
  const now = () => mine === drag && holds(r);
  runLane
    .ask({ ...r, edits: [...r.edits.filter((e) => !isCell(e, at)), edit] })
    .then((reply) => {
      if (reply && now()) {
        edited.value = reply;
        editedFor.value = null;
      }
    })
    .catch((error) => {
      if (now()) failure.value = error;
    });
}

let reading = 0; // which run over a whole text is the last
const reader = new Newest((r: Room, signal) =>
  engine.run({ model: r.model, input: r.input, edits: [], want: ['tokens', 'predictions'], top: 10 }, signal),
);
export async function ask(r: Room, what: 'all' | 'edits' | 'row'): Promise<void> {
  // A run that is on its way asks for the rest itself; after one that was refused there is nothing to ask about.
  if (what !== 'all' && !base.value) return;
  const mine = what === 'all' ? ++reading : reading;
  try {
    if (what === 'all') {
      busy.value = 'room.running';
      baseAsked = null;
      base.value = null;
      row.value = null;
      edited.value = null;
      editedFor.value = null;
      const begin = performance.now();
      const reply = await reader.ask(r);
      if (!reply || mine !== reading || !sameText(r)) return;
      lastTook.value = performance.now() - begin;
      baseAsked = r.input;
      base.value = reply;
      arrived(r, reply);
      settle(reply);
      r = room.value;
    }
    if (inForce(r.edits).length === 0) edited.value = null;
    const jobs = [askRow(r)];
    if (what !== 'row' && inForce(r.edits).length) jobs.push(askEdited(r));
    if ((await Promise.all(jobs)).includes(true)) failed(null);
  } catch (error) {
    if (mine !== reading || !(base.value ? holds(r) : sameText(r))) return;
    // What older edits led to is not what these lead to.
    if (editedFor.value !== r.edits) edited.value = null;
    failed(error, () => ask(room.value, 'all'));
  } finally {
    if (what === 'all' && mine === reading && busy.value === 'room.running') busy.value = null;
  }
}

// What "Try again" does: the very thing that failed, with what was asked for then.
export let again: () => Promise<void> = () => begin(null);
function failed(error: unknown, retry = again): void {
  failure.value = error;
  again = retry;
  // What it says stands above; once is enough.
  if (error !== null) hush('engine');
  else chosenModel.value = null;
}
// Edits are in force that the engine has not run, after a failure: what stands on the page is from before, or of the run
// without them.
export const refused = computed(
  () => failure.value !== null && inForce(room.value.edits).length > 0 && editedFor.value !== room.value.edits,
);

// Keeps the selection inside the text that was just read.
function settle(run: RunResult): void {
  const r = room.value;
  const a =
    attentionOf(r.at.attention) ??
    info.value?.attentions.find(
      (other) => other.part === 'cross' && other.layer === info.value!.attentions.at(-1)!.layer,
    ) ??
    info.value?.attentions.at(-1);
  if (!a) return;
  const { queries, keys } = axes(a, run);
  const fresh = a.name !== r.at.attention;
  keyless = fresh;
  const at = {
    attention: a.name,
    head: Math.min(r.at.head, a.heads - 1),
    query: fresh
      ? Math.min(Math.floor(queries.length / 2), queries.length - 1)
      : Math.min(r.at.query, queries.length - 1),
    key: Math.min(r.at.key, keys.length - 1),
  };
  room.value = {
    ...r,
    at,
    outcome: r.outcome === null ? null : Math.min(r.outcome, (run.predictions?.rows.length ?? 1) - 1),
  };
}

let opening = 0; // which model that is opened is the last
export async function openModel(name: string, input: Input | null, keep: Partial<Room> = {}): Promise<void> {
  const mine = ++opening;
  busy.value = 'room.loading';
  failure.value = null;
  chosenModel.value = name;
  try {
    const found = await engine.model(name);
    if (mine !== opening) return;
    drag = null;
    read = parting = null;
    chosenModel.value = null;
    info.value = found;
    const first = input ?? found.examples[0] ?? (found.family === 'encoder-decoder' ? { source: '' } : { text: '' });
    room.value = { ...start, ...keep, model: name, input: first };
    writing.value = { ...writing.value, prefix: [], at: 0 };
    history.clear();
    if (Object.values(first).some((value) => value !== undefined && value !== '' && String(value).length > 0))
      await ask(room.value, 'all');
    else {
      reader.stop();
      ++reading;
      base.value = null;
      busy.value = null;
    }
  } catch (error) {
    if (mine !== opening) return;
    failed(error, () => openModel(name, input, keep));
    busy.value = null;
  }
}

// What is chosen in the list: whatever was said about another choice is over. The one that is open stays as it is.
export function chooseModel(name: string): void {
  hush('engine');
  if (name !== room.value.model || !base.value) {
    void openModel(name, null);
    return;
  }
  ++opening;
  busy.value = null;
  failed(null);
  // What the engine refused before it refuses again, with its sentence.
  if (inForce(room.value.edits).length && editedFor.value !== room.value.edits) void ask(room.value, 'edits');
}

export async function begin(given: ReadRoom | null): Promise<void> {
  const mine = ++opening;
  busy.value = 'room.loading';
  try {
    if (!status.value) status.value = await engine.status();
    const found = await engine.models();
    if (mine !== opening) return;
    entries.value = found;
    const { fingerprint, pins, compare: against, writing: written, ...state } = given ?? {};
    const wanted = state.model || status.value.default_model || entries.value.find((e) => !e.error)?.name;
    if (!wanted) {
      failed(null);
      busy.value = null;
      return;
    }
    if (state.model && !entries.value.some((e) => e.name === state.model)) {
      say(t('room.link.model', state.model), 'error');
      await openModel(status.value.default_model, null);
      return;
    }
    pinned.value = pins ?? [];
    compare.value = against ?? null;
    const ready = openModel(wanted, state.input ?? null, state),
      latest = opening;
    await ready;
    if (latest === opening) writing.value = { ...firstWriting, ...written };
    if (fingerprint && latest === opening && info.value?.name === wanted && info.value.fingerprint !== fingerprint)
      say(t('room.other'), 'error');
  } catch (error) {
    if (mine !== opening) return;
    failed(error, () => begin(given));
    busy.value = null;
  }
}

// ---- Changing ----------------------------------------------------------------------------------------------------

export function change(next: Partial<Room>, merge: string | null = null): void {
  history.record(room.value, merge);
  apply({ ...room.value, ...next });
}

function apply(after: Room | null): void {
  if (!after) return;
  const before = room.value;
  drag = null;
  room.value = after;
  // A branch was taken in the text that was written then.
  if (after.input !== before.input) writing.value = { ...writing.value, prefix: [], at: 0 };
  if (after.model !== before.model) void openModel(after.model, after.input, after);
  else void ask(after, after.input !== before.input ? 'all' : after.edits !== before.edits ? 'edits' : 'row');
}

export function choose(at: Partial<Selection>): void {
  const r = room.value;
  const next = { ...r.at, ...at };
  keyless = false;
  const a = attentionOf(next.attention);
  if (a && base.value) {
    const { queries, keys } = axes(a, base.value);
    next.head = Math.max(0, Math.min(a.heads - 1, next.head));
    next.query = Math.max(0, Math.min(queries.length - 1, next.query));
    next.key = Math.max(0, Math.min(keys.length - 1, next.key));
  }
  if (JSON.stringify(next) === JSON.stringify(r.at)) return;
  room.value = { ...r, at: next };
  if (next.attention !== r.at.attention || next.head !== r.at.head || next.query !== r.at.query)
    void ask(room.value, 'row');
}

// Does an edit name a place of the text: a row, a query, a key?
const namesPlace = (e: ModelEdit) =>
  e.kind === 'patch' || (e.query ?? -1) >= 0 || (e.key ?? -1) >= 0 || 'row' in e || 'rows' in e;

// Reads a text. Edits stay as far as they mean something in it: all where it is the same, else those that name no place. The
// others are taken back when the text has been read: one that is refused, or an engine that is away, takes nothing.
let read: Input | null = null; // the last text that was read, with what the engine completed it by
let parting: Input | null = null; // another one that is on its way
export function readText(input: Input): void {
  const r = room.value;
  // Asking again for what stands there is no step to be undone.
  if (sameInput(input, r.input)) {
    void ask(r, 'all');
    return;
  }
  parting = input;
  change({ input });
}
function arrived(r: Room, run: RunResult): void {
  const same = sameInput(run.input, read),
    asked = parting === r.input;
  read = run.input;
  if (!asked) return;
  parting = null;
  if (same) return;
  const edits = room.value.edits.filter((e) => !namesPlace(e)),
    lost = room.value.edits.length - edits.length;
  room.value = { ...room.value, outcome: null, ...(lost ? { edits } : {}) };
  if (lost) say(lost === 1 ? t('room.edits.lost.one') : t('room.edits.lost', lost));
}

export const undo = (): void => {
  parting = null;
  apply(history.back(room.value));
};
export const redo = (): void => {
  parting = null;
  apply(history.forward(room.value));
};

// ---- Edits -------------------------------------------------------------------------------------------------------

const cellKinds = ['set', 'add', 'scale', 'forbid', 'lock'];
export const isCell = (e: ModelEdit, at: Selection, query = at.query, key = at.key) =>
  cellKinds.includes(e.kind) &&
  e.attention === at.attention &&
  e.head === at.head &&
  e.query === query &&
  e.key === key;
export const cellEdit = (edits: ModelEdit[], at: Selection, query: number, key: number) =>
  inForce(edits).find((e) => isCell(e, at, query, key));
export function putCell(edit: ModelEdit, merge: string | null = null): void {
  const r = room.value;
  const at = { attention: edit.attention!, head: edit.head!, query: edit.query!, key: edit.key! };
  change({ edits: [...r.edits.filter((e) => !isCell(e, at)), edit], at }, merge);
}
export function dropCell(at: Selection): void {
  const r = room.value;
  if (r.edits.some((e) => isCell(e, at))) change({ edits: r.edits.filter((e) => !isCell(e, at)) });
}
export function toggleHead(attention: string, head: number): void {
  const r = room.value;
  const had = r.edits.find((e) => e.kind === 'head' && e.attention === attention && e.head === head);
  change({ edits: had ? r.edits.filter((e) => e !== had) : [...r.edits, { kind: 'head', attention, head, value: 0 }] });
}
export function togglePin(attention: string, head: number): void {
  const others = pinned.value.filter((p) => p.attention !== attention || p.head !== head);
  pinned.value = others.length < pinned.value.length ? others : [...others, { attention, head }].slice(-4);
}
export const headCut = (edits: ModelEdit[], attention: string, head: number) =>
  inForce(edits).some((e) => e.kind === 'head' && e.attention === attention && e.head === head && e.value === 0);

// ---- Links and files ----------------------------------------------------------------------------------------------

export const parseRoom = (data: unknown): ReadRoom | Unreadable => readRoom(data);
export const linkState = (r: Room) => ({
  model: r.model,
  ...(info.value?.name === r.model ? { fingerprint: info.value.fingerprint } : {}),
  input: base.value && !r.input.target && r.edits.length ? base.value.input : r.input,
  ...(r.edits.length ? { edits: r.edits } : {}),
  at: r.at,
  ...(r.outcome !== null ? { outcome: r.outcome } : {}),
  ...(pinned.value.length ? { pins: pinned.value } : {}),
  ...(compare.value ? { compare: compare.value } : {}),
  ...(writing.value.open ? { writing: writing.value } : {}),
});

// ---- Tiles -------------------------------------------------------------------------------------------------------

// Whole matrices of long texts are a mebibyte each and more: what is kept is bounded in bytes, the longest unused goes first.
const kept = new Map<string, Tile | Promise<Tile>>();
const mostKept = 96 * 2 ** 20;
let keptBytes = 0;
const sizeOf = (name: string, got: Tile) => got.data.byteLength + 2 * name.length;
function store(name: string, got: Tile): Tile {
  kept.set(name, got);
  keptBytes += sizeOf(name, got);
  for (const [old, had] of kept) {
    if (keptBytes <= mostKept) break;
    if (old === name || had instanceof Promise) continue;
    kept.delete(old);
    keptBytes -= sizeOf(old, had);
  }
  return got;
}
export function tile(
  r: Room,
  attention: string,
  heads: number[] | 'all',
  what: 'weights' | 'scores' | 'products',
  queries: [number, number] | undefined,
  keys: [number, number] | undefined,
  reduce: number,
): Tile | Promise<Tile> {
  const asking = { ...request(r), attention, heads, what, queries, keys, reduce, by: 'max' as const };
  const name = JSON.stringify(asking);
  const had = kept.get(name);
  if (had) {
    kept.delete(name);
    kept.set(name, had);
    return had;
  }
  const coming = engine.tile(asking).then(
    (got) => store(name, got),
    (error) => {
      kept.delete(name);
      throw error;
    },
  );
  kept.set(name, coming);
  return coming;
}

// What the page knows about the engine: the interface of doc/EXPLORER-API.md, and its HTTP implementation. Every number on the
// page comes through here. Another implementation (an engine compiled to WebAssembly) can stand in without the screens noticing.
import { counted } from './pending';

export type Matrix = number[][];
export type Masked = (number | null)[][]; // null: not visible

export interface Failure {
  kind: string;
  where: string;
  what: string;
  advice: string;
  code?: string; // what it is, for the page's own sentence (doc/EXPLORER-API.md)
  found?: unknown;
  expected?: unknown;
}

export class EngineError extends Error {
  constructor(
    readonly failure: Failure,
    readonly status: number,
  ) {
    super([[failure.where, failure.what].filter(Boolean).join(': '), failure.advice].filter(Boolean).join('; '));
  }
}

// ---- The workbench -----------------------------------------------------------------------------------------------

export type EditKind = 'set' | 'add' | 'scale' | 'forbid' | 'lock';

export interface ScoreEdit {
  kind: EditKind;
  head: number;
  query: number;
  key: number;
  value?: number;
}

export type MaskRule =
  | { rule: 'causal' }
  | { rule: 'window'; before: number; after: number }
  | { rule: 'lengths'; length: number }
  | { rule: 'prefix'; length: number }
  | { rule: 'dense'; allowed: number[][] };

export interface Positions {
  kind: 'none' | 'rotary';
  base?: number;
  pairing?: 'halves' | 'interleaved';
  first_query?: number;
  first_key?: number;
}

export interface AttentionRequest {
  x?: Matrix;
  memory?: Matrix | null;
  query_weight?: Matrix;
  key_weight?: Matrix;
  value_weight?: Matrix;
  query?: Matrix;
  key?: Matrix;
  value?: Matrix;
  output_weight?: Matrix | null;
  heads: number;
  key_heads: number;
  scale: number | null;
  mask: MaskRule[];
  positions: Positions;
  edits: ScoreEdit[];
}

export interface HeadResult {
  products: Matrix;
  scaled: Matrix;
  masked: Masked;
  scores: Masked;
  weights: Matrix;
  output: Matrix;
  entropy: number[];
  log_sum_exp: (number | null)[];
}

export interface AttentionResult {
  precision: string;
  scale: number;
  q: Matrix;
  k: Matrix;
  v: Matrix;
  rotated_q: Matrix | null;
  rotated_k: Matrix | null;
  heads: HeadResult[];
  concatenated: Matrix;
  projected: Matrix | null;
  took: number;
}

export interface OperationRequest {
  name:
    | 'product'
    | 'add'
    | 'softmax'
    | 'layer_norm'
    | 'rms_norm'
    | 'relu'
    | 'gelu'
    | 'silu'
    | 'rotate'
    | 'sinusoid'
    | 'normal';
  a?: Matrix;
  b?: Matrix;
  gain?: number[];
  bias?: number[];
  epsilon?: number;
  positions?: number[];
  base?: number;
  pairing?: 'halves' | 'interleaved';
  rows?: number;
  columns?: number;
  width?: number;
  layout?: 'halves' | 'interleaved';
  seed?: number;
  deviation?: number;
}

// ---- Models ------------------------------------------------------------------------------------------------------

export interface Status {
  api: number;
  version: string;
  threads: number;
  instructions: string;
  models: string[];
  default_model: string;
  limits: Record<string, number>;
}

export interface ModelEntry {
  name: string;
  family: string;
  loaded: boolean;
  bytes: number;
  error: Failure | null;
}

export interface AttentionSite {
  name: string;
  stack: 'encoder' | 'decoder';
  layer: number;
  part: 'self' | 'cross';
  heads: number;
  key_heads: number;
  head_dim: number;
  value_dim: number;
  causal: boolean;
  window: number;
  rotary: boolean;
  scale: number;
}

export interface Input {
  source?: string;
  target?: string;
  text?: string;
  language?: string;
  source_ids?: number[];
  target_ids?: number[];
  text_ids?: number[];
}

export interface ModelInfo {
  name: string;
  title: string;
  family: 'encoder-decoder' | 'decoder' | 'encoder';
  fingerprint: string;
  parameters: number;
  bytes: number;
  config: Record<string, unknown>;
  attentions: AttentionSite[];
  sites: string[];
  inputs: { name: string; max_tokens: number }[];
  languages: { name: string; tag: string }[];
  cache_bytes_per_token: number;
  examples: Input[];
  load_ms: number;
}

export interface Token {
  id: number;
  text: string;
  kind: 'text' | 'special' | 'byte' | 'unknown';
  word: number;
  joined?: string; // of the first of several bytes: the characters they make
  characters?: string; // of one that the model does not know: what it stands for
}

export interface Choice {
  id: number;
  text: string;
  logit: number;
  probability: number;
}

export interface ModelEdit {
  kind: EditKind | 'head' | 'attention' | 'evict' | 'patch' | 'mean' | 'feed_forward';
  attention?: string;
  head?: number;
  query?: number;
  key?: number;
  value?: number;
  site?: string;
  row?: number;
  from?: Input | Input[]; // one; several only for a mean
  stack?: string;
  layer?: number;
  name?: string;
  off?: boolean;
}

export interface ModelRequest {
  model: string;
  input: Input;
  edits: ModelEdit[];
}

export interface Statistics {
  attention: string;
  queries: number;
  keys: number;
  entropy: number[][];
  first: number[][];
  self?: number[][];
  previous?: number[][];
  distance?: number[][];
  top_keys: number[][][];
  top_weights: number[][][];
}

export interface PredictionRow {
  target_id: number | null;
  log_probability: number | null;
  rank: number | null;
  top: Choice[];
}

export interface RunResult {
  run: string;
  input: Input;
  tokens: Record<string, Token[]>; // this and the rest: where `want` names them
  statistics?: Statistics[];
  predictions?: { rows: PredictionRow[] };
  checks?: { head_sum: number | null; row_sum: number };
  edits: { touched: number }[];
  took: number;
}

export interface RowResult {
  attention: string;
  head: number;
  query: number;
  scale: number;
  input: number[];
  query_vector: number[];
  rotated_query: number[] | null;
  products: number[];
  scaled: number[];
  scores: (number | null)[];
  weights: number[];
  entropy: number;
  log_sum_exp: number | null;
  keys: number[];
  key_vectors: Matrix;
  rotated_keys: Matrix | null;
  value_vectors: Matrix;
  output: number[];
  written: number[];
  write_norms: number[];
  projected: number[];
  projection_bias: number[];
  head_norms: number[];
  head_sum: number | null; // null where an edit stands between the heads and what they write together
  took: number;
}

export interface TileRequest extends ModelRequest {
  attention: string;
  heads: number[] | 'all';
  what: 'weights' | 'scores' | 'products';
  queries?: [number, number];
  keys?: [number, number];
  reduce?: number;
  by?: 'max' | 'mean';
}

export interface Tile {
  heads: number;
  rows: number;
  columns: number;
  data: Float32Array;
}

export interface ImportanceEdge {
  attention: string;
  head: number;
  query: number;
  key: number;
  weight: number | null;
  write: number | null;
  first_order: number | null;
  exact: number | null;
}

export interface ImportanceResult {
  target: { row: number; token: number; versus: number | null; value: number };
  methods: string[];
  edges: ImportanceEdge[];
  agreement: { methods: [string, string]; rank_correlation: number | null; edges: number }[];
  took: number;
}

export interface HeadsResult {
  metrics: { name: string; unit: string }[];
  heads: { attention: string; head: number; values: (number | null)[] }[];
  inputs: number;
  tokens: number;
  took: number;
}

export interface GenerateStep {
  index: number;
  id: number;
  text: string;
  log_probability: number;
  top: Choice[];
  weights?: Matrix; // [heads][keys] of the attention that is watched, as the cached step computed them
  evicted?: number[]; // beside weights: keys that no head of that attention reads any more
  cache: { tokens: number; bytes: number };
}

export interface TreeNode {
  id: number;
  parent: number;
  step: number;
  token: number;
  text: string;
  log_probability: number;
  kept: boolean;
}

export interface GenerateResult {
  steps: GenerateStep[];
  cross_cache_bytes: number;
  watch?: string;
  ended: boolean;
  text: string;
  tree?: { nodes: TreeNode[]; hypotheses: { node: number; text: string; log_probability: number; score: number }[] };
  took: number;
}

export type GenerateMethod =
  | { kind: 'greedy' }
  | { kind: 'beam'; beams: number; n_best: number }
  | { kind: 'sample'; temperature: number; top_k: number; top_p: number; seed: number };

export type RunRequest = ModelRequest & { want?: string[]; top?: number };
export type RowRequest = ModelRequest & { attention: string; head: number; query: number; keys?: number[] };
export type ImportanceRequest = ModelRequest & Record<string, unknown>;
export type GenerateRequest = ModelRequest & {
  steps: number;
  method: GenerateMethod;
  prefix_ids: number[];
  watch?: string;
};

// What may take long takes a signal: an aborted request is refused as `superseded`, and the engine stops computing it.
export interface Engine {
  status(): Promise<Status>;
  models(): Promise<ModelEntry[]>;
  model(name: string): Promise<ModelInfo>;
  attention(request: AttentionRequest): Promise<AttentionResult>;
  operation(request: OperationRequest): Promise<Matrix>;
  tokenize(request: { model: string; input: Input }): Promise<Record<string, Token[]>>;
  run(request: RunRequest, signal?: AbortSignal): Promise<RunResult>;
  row(request: RowRequest): Promise<RowResult>;
  tile(request: TileRequest): Promise<Tile>;
  importance(request: ImportanceRequest, signal?: AbortSignal): Promise<ImportanceResult>;
  heads(request: { model: string; inputs?: Input[] }, signal?: AbortSignal): Promise<HeadsResult>;
  generate(request: GenerateRequest, signal?: AbortSignal): Promise<GenerateResult>;
}

export class HttpEngine implements Engine {
  // Called with false when the server cannot be reached, and with true when it answers again.
  constructor(
    private readonly base = 'api/v1/',
    private readonly reachable: (yes: boolean) => void = () => undefined,
  ) {}

  // Sends and reads to the end: a connection may break in the middle of an answer, too.
  private async exchange<T>(
    path: string,
    body: unknown,
    signal: AbortSignal | undefined,
    read: (response: Response) => Promise<T>,
  ): Promise<T> {
    let response: Response, reply: T | string;
    try {
      response = await fetch(this.base + path, {
        signal,
        ...(body === undefined
          ? {}
          : { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }),
      });
      reply = response.ok ? await read(response) : await response.text();
    } catch {
      // The server sees the connection close and stops computing.
      if (signal?.aborted) throw new EngineError({ kind: 'superseded', where: path, what: '', advice: '' }, 0);
      this.reachable(false);
      throw new EngineError({ kind: 'gone', where: path, what: '', advice: '' }, 0);
    }
    this.reachable(true);
    if (response.ok) return reply as T;
    const text = reply as string;
    let failure: Failure = { kind: 'internal', where: path, what: text.slice(0, 300), advice: '' };
    try {
      failure = JSON.parse(text).error ?? failure;
    } catch {
      /* not JSON: the text itself says what there is to say */
    }
    throw new EngineError(failure, response.status);
  }

  private json<T>(path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
    return counted(this.exchange(path, body, signal, (response) => response.json() as Promise<T>));
  }

  status() {
    return this.json<Status>('status');
  }
  async models() {
    return (await this.json<{ models: ModelEntry[] }>('models')).models;
  }
  model(name: string) {
    return this.json<ModelInfo>('models/' + encodeURIComponent(name));
  }
  attention(request: AttentionRequest) {
    return this.json<AttentionResult>('attention', request);
  }
  async operation(request: OperationRequest) {
    return (await this.json<{ output: Matrix }>('operation', request)).output;
  }
  tokenize(request: { model: string; input: Input }) {
    return this.json<Record<string, Token[]>>('tokenize', request);
  }
  run(request: RunRequest, signal?: AbortSignal) {
    return this.json<RunResult>('run', request, signal);
  }
  row(request: RowRequest) {
    return this.json<RowResult>('row', request);
  }
  importance(request: ImportanceRequest, signal?: AbortSignal) {
    return this.json<ImportanceResult>('importance', request, signal);
  }
  heads(request: { model: string; inputs?: Input[] }, signal?: AbortSignal) {
    return this.json<HeadsResult>('heads', request, signal);
  }
  generate(request: GenerateRequest, signal?: AbortSignal) {
    return this.json<GenerateResult>('generate', request, signal);
  }
  tile(request: TileRequest) {
    return counted(this.exchange('tile', request, undefined, readTile));
  }
}

async function readTile(response: Response): Promise<Tile> {
  const [heads, rows, columns] = (response.headers.get('Attend-Shape') ?? '0,0,0').split(',').map(Number);
  const bytes = await response.arrayBuffer();
  const data = new Float32Array(heads * rows * columns);
  const view = new DataView(bytes);
  for (let i = 0; i < data.length; ++i) data[i] = view.getFloat32(4 * i, true);
  return { heads, rows, columns, data };
}

// One request in flight and at most one waiting: a drag sends as fast as answers come and never queues.
export class Lane<Request, Reply> {
  private waiting: { request: Request; done: (reply: Reply | null) => void; failed: (error: unknown) => void } | null =
    null;
  private busy = false;

  constructor(private readonly call: (request: Request) => Promise<Reply>) {}

  // Resolves to null when a newer request overtook this one before it was sent.
  ask(request: Request): Promise<Reply | null> {
    return new Promise((done, failed) => {
      this.waiting?.done(null);
      this.waiting = { request, done, failed };
      if (!this.busy) void this.next();
    });
  }

  private async next(): Promise<void> {
    this.busy = true;
    while (this.waiting) {
      const { request, done, failed } = this.waiting;
      this.waiting = null;
      try {
        const reply = await this.call(request);
        done(reply);
      } catch (error) {
        failed(error);
      }
    }
    this.busy = false;
  }
}

// One request in flight, and the newest: a newer one aborts it. For what takes long and is of no use once the question has changed.
export class Newest<Request, Reply> {
  private running: AbortController | null = null;

  constructor(private readonly call: (request: Request, signal: AbortSignal) => Promise<Reply>) {}

  // Resolves to null when a newer request, or `stop`, overtook this one.
  async ask(request: Request): Promise<Reply | null> {
    this.running?.abort();
    const mine = new AbortController();
    this.running = mine;
    try {
      const reply = await this.call(request, mine.signal);
      return mine.signal.aborted ? null : reply;
    } catch (error) {
      if (mine.signal.aborted) return null;
      throw error;
    }
  }

  stop(): void {
    this.running?.abort();
  }
}

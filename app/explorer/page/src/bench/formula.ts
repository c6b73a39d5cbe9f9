// What stands behind a cell, with the numbers in it, and the cells it was made from.
import type { AttentionResult } from '../engine';
import { short, show } from '../numbers';
import { t } from '../words';
import { editOf, keyNames, queryNames, type Bench } from './state';

export type MatrixId =
  | 'x'
  | 'memory'
  | 'wq'
  | 'wk'
  | 'wv'
  | 'wo'
  | 'q'
  | 'k'
  | 'v'
  | 'rq'
  | 'rk'
  | 'products'
  | 'scaled'
  | 'masked'
  | 'scores'
  | 'weights'
  | 'output'
  | 'concatenated'
  | 'projected';
export interface Place {
  matrix: MatrixId;
  row: number;
  column: number;
}

// As it is written on the page and said by a screen reader.
export const matrixName = (id: string) =>
  id === 'memory' ? 'M' : id.length === 2 && id[0] === 'w' ? `W_${id[1].toUpperCase()}` : id.toUpperCase();

const most = 6;
const factor = (text: string) => (text.startsWith('−') ? `(${text})` : text);
function dot(a: number[], b: number[]): string {
  const terms = a.map((value, i) => `${i ? factor(short(value)) : short(value)}·${factor(short(b[i]))}`);
  return terms.length > most ? `${terms.slice(0, most).join(' + ')} + …` : terms.join(' + ');
}
const column = (m: number[][], c: number) => m.map((row) => row[c]);

// Does (matrix, row, column) feed the place that is pointed at?
export function feeds(
  b: Bench,
  r: AttentionResult,
  at: Place | null,
  matrix: MatrixId,
  row: number,
  col: number,
): boolean {
  if (!at) return false;
  if (at.matrix === matrix) return at.row === row && at.column === col;
  const headDim = r.q[0].length / b.heads,
    valueDim = r.v[0].length / b.heads,
    head = b.chosen.head;
  const memory = b.source === 'cross' ? 'memory' : 'x';
  const inHead = (c: number, dim: number) => Math.floor(c / dim) === head;
  const qs: MatrixId = r.rotated_q ? 'rq' : 'q',
    ks: MatrixId = r.rotated_k ? 'rk' : 'k';
  switch (at.matrix) {
    case 'q':
      return (matrix === 'x' && row === at.row) || (matrix === 'wq' && col === at.column);
    case 'k':
      return (matrix === memory && row === at.row) || (matrix === 'wk' && col === at.column);
    case 'v':
      return (matrix === memory && row === at.row) || (matrix === 'wv' && col === at.column);
    case 'rq':
      return matrix === 'q' && row === at.row && Math.floor(col / headDim) === Math.floor(at.column / headDim);
    case 'rk':
      return matrix === 'k' && row === at.row && Math.floor(col / headDim) === Math.floor(at.column / headDim);
    case 'products':
      return (
        (matrix === qs && row === at.row && inHead(col, headDim)) ||
        (matrix === ks && row === at.column && inHead(col, headDim))
      );
    case 'scaled':
      return matrix === 'products' && row === at.row && col === at.column;
    case 'scores':
      return matrix === 'scaled' && row === at.row && col === at.column;
    case 'weights':
      return matrix === 'scores' && row === at.row;
    case 'output':
      return (matrix === 'weights' && row === at.row) || (matrix === 'v' && col === head * valueDim + at.column);
    case 'concatenated':
      return (
        matrix === 'output' && inHead(at.column, valueDim) && row === at.row && col === at.column - head * valueDim
      );
    case 'projected':
      return (matrix === 'concatenated' && row === at.row) || (matrix === 'wo' && col === at.column);
    default:
      return false;
  }
}

export function formulaOf(b: Bench, r: AttentionResult, at: Place): string {
  const head = r.heads[Math.min(b.chosen.head, r.heads.length - 1)];
  const queries = queryNames(b, r.q.length),
    keys = keyNames(b, r.k.length);
  const headDim = r.q[0].length / b.heads,
    valueDim = r.v[0].length / b.heads,
    h = b.chosen.head;
  const memory = b.source === 'cross' ? b.memory : b.x;
  const { row, column: c } = at;
  const cut = (m: number[][], i: number, dim: number) => m[i].slice(h * dim, (h + 1) * dim);
  switch (at.matrix) {
    case 'q':
      return b.source === 'direct'
        ? show(r.q[row][c])
        : `q(${queries[row]})${sub(c)} = x(${queries[row]}) · W_Q${sub(c)} = ${dot(b.x[row], column(b.wq, c))} = ${show(r.q[row][c])}`;
    case 'k':
      return b.source === 'direct'
        ? show(r.k[row][c])
        : `k(${keys[row]})${sub(c)} = x(${keys[row]}) · W_K${sub(c)} = ${dot(memory[row], column(b.wk, c))} = ${show(r.k[row][c])}`;
    case 'v':
      return b.source === 'direct'
        ? show(r.v[row][c])
        : `v(${keys[row]})${sub(c)} = x(${keys[row]}) · W_V${sub(c)} = ${dot(memory[row], column(b.wv, c))} = ${show(r.v[row][c])}`;
    case 'rq':
      return `${t('rotated')} q(${queries[row]})${sub(c)} = ${show(r.rotated_q![row][c])}`;
    case 'rk':
      return `${t('rotated')} k(${keys[row]})${sub(c)} = ${show(r.rotated_k![row][c])}`;
    case 'products':
      return `q(${queries[row]}) · k(${keys[c]}) = ${dot(cut(r.rotated_q ?? r.q, row, headDim), cut(r.rotated_k ?? r.k, c, headDim))} = ${show(head.products[row][c])}`;
    case 'scaled':
      return `${show(r.scale, 4)} · ${show(head.products[row][c])} = ${show(head.scaled[row][c])}`;
    case 'scores': {
      const edit = editOf(b.edits, h, row, c),
        score = head.scores[row][c];
      if (edit?.kind === 'forbid') return `${queries[row]} ← ${keys[c]}: ${t('formula.forbidden')}`;
      if (head.masked[row][c] === null) return `${queries[row]} ← ${keys[c]}: ${t('formula.masked')}`;
      return edit
        ? `${t('formula.edited')}: ${show(head.masked[row][c])} → ${show(score)}`
        : `${t('score')} = ${show(score)}`;
    }
    case 'weights': {
      const edit = editOf(b.edits, h, row, c),
        weight = head.weights[row][c];
      if (edit?.kind === 'lock') return `${t('formula.locked')} = ${show(weight)}`;
      if (head.scores[row][c] === null) return `${t('formula.zero')} = 0`;
      if (rowLocked(b, h, row)) return `${t('formula.rest')} = ${show(weight)}`;
      // The same sum as exp(score) / sum of exp, written with the engine's own log of the sum.
      const sum = Math.exp(head.log_sum_exp[row] ?? 0);
      return Number.isFinite(sum) && sum < 1e6
        ? `exp(${show(head.scores[row][c])}) / Σ = ${show(Math.exp(head.scores[row][c]!))} / ${show(sum)} = ${show(weight)}`
        : `exp(${show(head.scores[row][c])} − ${show(head.log_sum_exp[row])}) = ${show(weight)}`;
    }
    case 'output': {
      const column_ = h * valueDim + c;
      return `Σ ${t('weight')}·v${sub(c)} = ${dot(
        head.weights[row],
        r.v.map((value) => value[column_]),
      )} = ${show(head.output[row][c])}`;
    }
    case 'concatenated':
      return `${t('head')} ${Math.floor(c / valueDim)}, ${c % valueDim} = ${show(r.concatenated[row][c])}`;
    case 'projected':
      return `${dot(r.concatenated[row], column(b.wo!, c))} = ${show(r.projected![row][c])}`;
    default: {
      const values = { x: b.x, memory: b.memory, wq: b.wq, wk: b.wk, wv: b.wv, wo: b.wo }[at.matrix as 'x'];
      return values?.[row]?.[c] === undefined ? '' : `${matrixName(at.matrix)}[${row}, ${c}] = ${show(values[row][c])}`;
    }
  }
}

const rowLocked = (b: Bench, head: number, query: number) =>
  b.edits.some((e) => e.kind === 'lock' && e.head === head && e.query === query);
const digits = '₀₁₂₃₄₅₆₇₈₉';
const sub = (index: number) => String(index).replace(/\d/g, (d) => digits[Number(d)]);

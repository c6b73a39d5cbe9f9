// A matrix one can read, point at, walk with arrow keys and (where allowed) type into. Small ones are tables of numbers, large
// ones a canvas; both are grids to a screen reader and to the keyboard.
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Component } from 'preact';
import type { ComponentChildren, RefObject } from 'preact';
import { cellColours, paletteOf, weightStyle, type Tone } from './colours';
import {
  boxed,
  exact,
  fractions,
  fullOnHover,
  largestFloat,
  parseTable,
  readNumber,
  shape,
  short,
  show,
  type TableProblem,
} from './numbers';
import { dark, hush, say, touch } from './shared';
import { language, t } from './words';

export interface Cell {
  row: number;
  column: number;
}

export interface GridProps {
  id: string; // of the matrix: data-matrix, and what onHover's owner knows it by
  title: ComponentChildren;
  name: string; // spoken
  rows: (number | null)[][];
  tone: Tone;
  rowLabels?: string[];
  columnLabels?: string[];
  rowHue?: 'q' | 'k' | 'x';
  columnHue?: 'q' | 'k' | 'x';
  size?: number; // magnitude drawn strongest; default the largest here
  digits?: number;
  typed?: boolean; // numbers that a reader typed: as short as they are
  by?: string; // how it came from what stands before it, in its caption
  cursor?: Cell | null;
  currentRow?: number; // the chosen query
  onCursor?: (cell: Cell) => void;
  onHover?: (cell: Cell | null) => void;
  onEdit?: (cell: Cell, value: number) => void;
  onPaste?: (rows: number[][]) => void;
  onKey?: (event: KeyboardEvent, cell: Cell) => boolean;
  lit?: (row: number, column: number) => boolean;
  edited?: (row: number, column: number) => boolean;
  menu?: ComponentChildren;
  note?: string;
  dim?: boolean;
  steady?: boolean; // its numbers move under a finger
}

// What the looks of a cell mean; app.css leaves out what nothing beside it has.
export const Legend = () => (
  <p class="cells-legend faint">
    <span class="of-typed">
      <i class="box typed" />
      {t('legend.typed')}
    </span>
    <span>
      <span class="letters">
        <b class="tone-x">X</b>
        <b class="tone-q">Q</b>
        <b class="tone-k">K</b>
        <b class="tone-v">V</b>
        <b class="tone-w">w</b>
      </span>
      {t('legend.colours')}
    </span>
    <span class="of-negative">
      <i class="box negative" />
      {t('legend.negative')}
    </span>
    <span class="of-masked">
      <i class="box masked" />
      {t('masked')}
    </span>
  </p>
);

export const explainTable = (problem: TableProblem): string =>
  problem.length
    ? t('paste.ragged', problem.row, problem.length.found, problem.length.first)
    : t('paste.bad', problem.row, problem.column, problem.cell);

export const tableCells = 200;

// The largest magnitude, kept with the matrix, which is never written into.
const magnitudes = new WeakMap<(number | null)[][], number>();
export function largest(rows: (number | null)[][]): number {
  const had = magnitudes.get(rows);
  if (had !== undefined) return had;
  let most = 0;
  for (const row of rows)
    for (const value of row) if (value !== null && Number.isFinite(value)) most = Math.max(most, Math.abs(value));
  magnitudes.set(rows, most);
  return most;
}

export function Grid(props: GridProps) {
  const rows = props.rows.length,
    columns = props.rows[0]?.length ?? 0;
  const [own, setOwn] = useState<Cell>({ row: 0, column: 0 });
  const cursor = props.cursor ?? own;
  const at = {
    row: Math.min(cursor.row, Math.max(0, rows - 1)),
    column: Math.min(cursor.column, Math.max(0, columns - 1)),
  };
  const [typing, setTyping] = useState<string | null>(null);
  const host = useRef<HTMLDivElement>(null);
  const go = (cell: Cell, focus = true) => {
    setOwn(cell);
    props.onCursor?.(cell);
    if (focus)
      host.current
        ?.querySelector<HTMLElement>(`[data-row="${cell.row}"][data-column="${cell.column}"], .heat-grid`)
        ?.focus();
  };
  // The text that an editor was opened with; null when it was opened by typing. Left as it was, it is no edit.
  const opened = useRef<string | null>(null);
  const back = useRef<Cell | null>(null);
  useLayoutEffect(() => {
    if (typing !== null || !back.current) return;
    go(back.current);
    back.current = null;
  });
  const edit = (cell: Cell) => {
    const value = props.rows[cell.row]?.[cell.column];
    opened.current = value === null || value === undefined ? '' : boxed(value);
    setTyping(opened.current);
  };
  // `then`: the cell that has the focus afterwards; none when the pointer has gone elsewhere.
  const commit = (text: string, cell: Cell, then: Cell | null = null) => {
    back.current = then;
    setTyping(null);
    if (text.trim() === '' || text === opened.current) return;
    const value = readNumber(text);
    if (!Number.isFinite(value)) {
      say(t('not.a.number', text), 'error', 'number');
      return;
    }
    if (Math.abs(value) > largestFloat) {
      say(t('number.large', text), 'error', 'number');
      return;
    }
    if (value !== 0 && Math.fround(value) === 0) say(t('number.small', text), 'info', 'number');
    else hush('number');
    props.onEdit?.(cell, value);
  };
  const leave = (cell: Cell) => {
    back.current = cell;
    setTyping(null);
  };
  const keys = (event: KeyboardEvent) => {
    if (typing !== null) return;
    if (props.onKey?.(event, at)) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    const moves: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      Home: [0, -1e9],
      End: [0, 1e9],
      PageUp: [-10, 0],
      PageDown: [10, 0],
    };
    const move = moves[event.key];
    if (move && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      event.stopPropagation();
      go({
        row: Math.max(0, Math.min(rows - 1, at.row + move[0])),
        column: Math.max(0, Math.min(columns - 1, at.column + move[1])),
      });
    } else if (props.onEdit && (event.key === 'Enter' || event.key === 'F2')) {
      event.preventDefault();
      event.stopPropagation();
      edit(at);
    } else if (props.onEdit && /^[0-9０-９.．\-−－]$/.test(event.key) && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      event.stopPropagation();
      opened.current = null;
      setTyping(event.key);
    }
  };
  const paste = (event: ClipboardEvent) => {
    if (!props.onPaste || typing !== null) return;
    const { rows: pasted, problem } = parseTable(event.clipboardData?.getData('text/plain') ?? '');
    event.preventDefault();
    if (problem) say(explainTable(problem), 'error', 'number');
    else if (pasted.length) {
      hush('number');
      props.onPaste(pasted);
    }
  };
  const size = props.size ?? largest(props.rows);
  const inner: Inner = { ...props, at, typing, whole: opened.current !== null, edit, commit, leave, go, size };
  const now = useRef(inner);
  now.current = inner;
  return (
    <figure
      class={`matrix ${props.dim ? 'dim' : ''}`}
      ref={host}
      data-matrix={props.id}
      onKeyDown={keys}
      onPaste={paste}
      onPointerLeave={() => props.onHover?.(null)}
    >
      <figcaption>
        <span class="matrix-title">{props.title}</span>
        <span class="matrix-shape">
          {props.by && <>{props.by} · </>}
          {shape(props.rows)}
        </span>
        {props.menu}
      </figcaption>
      {rows * columns <= tableCells ? <Table now={now} {...inner} /> : <Heat {...inner} />}
      {props.note && <p class="note">{props.note}</p>}
    </figure>
  );
}

// `whole`: the editor holds the cell's number, and what is typed replaces it; otherwise the first letter of a new one.
type Inner = GridProps & {
  at: Cell;
  typing: string | null;
  whole: boolean;
  edit: (cell: Cell) => void;
  commit: (text: string, cell: Cell, then?: Cell | null) => void;
  leave: (cell: Cell) => void;
  go: (cell: Cell, focus?: boolean) => void;
  size: number;
};

// `onDone`: by how many cells the focus moves on, null when it has gone elsewhere.
// A phone's pad of digits has no minus, no fraction and no exponent: its letters do.
function Editor({
  text,
  whole,
  onDone,
  onStop,
  label,
}: {
  text: string;
  whole: boolean;
  onDone: (text: string, by: number | null) => void;
  onStop: () => void;
  label: string;
}) {
  const field = useRef<HTMLInputElement>(null);
  const stopped = useRef(false);
  useLayoutEffect(() => {
    field.current!.focus();
    if (whole) field.current!.select();
  }, []);
  return (
    <input
      class="cell-input"
      ref={field}
      defaultValue={text}
      inputMode="text"
      aria-label={label}
      onBlur={(event) => {
        if (!stopped.current) onDone(event.currentTarget.value, null);
      }}
      onKeyDown={(event) => {
        event.stopPropagation();
        if (event.isComposing) return;
        if (event.key === 'Enter' || event.key === 'Tab') {
          event.preventDefault();
          stopped.current = true;
          onDone(event.currentTarget.value, event.key === 'Enter' ? 0 : event.shiftKey ? -1 : 1);
        }
        if (event.key === 'Escape') {
          stopped.current = true;
          onStop();
        }
      }}
    />
  );
}

// The cell `by` places on in reading order.
function next(rows: unknown[][], row: number, column: number, by: number): Cell {
  const columns = rows[0].length,
    at = Math.max(0, Math.min(rows.length * columns - 1, row * columns + column + by));
  return { row: Math.floor(at / columns), column: at % columns };
}

function Table({ now, ...p }: Inner & { now: RefObject<Inner> }) {
  const columns = p.rows[0]?.length ?? 0,
    labels = p.columnLabels?.slice(0, columns),
    spoken = labels?.join('\n');
  const even = !p.typed && p.rows.some(fractions);
  const marks = (r: number, of?: (row: number, column: number) => boolean) =>
    of ? p.rows[r].map((_, c) => (of(r, c) ? '1' : '0')).join('') : '';
  return (
    <div class="matrix-scroll">
      <table role="grid" aria-label={p.name} aria-readonly={!p.onEdit} class={`cells tone-${p.tone}`}>
        {labels && (
          <thead>
            <tr>
              <td />
              {labels.map((label, c) => (
                <th
                  scope="col"
                  class={`hue-${p.columnHue ?? 'k'} ${p.at.column === c && p.currentRow !== undefined ? 'current' : ''}`}
                >
                  {label}
                </th>
              ))}
            </tr>
          </thead>
        )}
        <tbody>
          {p.rows.map((row, r) => (
            <Row
              now={now}
              row={row}
              r={r}
              size={p.size}
              tone={p.tone}
              digits={p.digits}
              typed={p.typed}
              even={even}
              label={p.rowLabels && (p.rowLabels[r] ?? '')}
              hue={p.rowHue ?? 'q'}
              spoken={spoken}
              current={p.currentRow === r}
              at={p.at.row === r ? p.at.column : -1}
              cursor={!!p.cursor}
              typing={p.at.row === r ? p.typing : null}
              lit={marks(r, p.lit)}
              edited={marks(r, p.edited)}
              dark={dark.value}
              language={language.value}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

// A row is drawn again only when something of its own is other than it was: a drag changes one row of several tables, and most of
// an answer of the engine is what it said before. What its cells do is asked of the grid as it stands at that moment.
interface RowProps {
  now: RefObject<Inner>;
  row: (number | null)[];
  r: number;
  size: number;
  tone: Tone;
  digits?: number;
  typed?: boolean;
  even: boolean;
  label?: string;
  hue: string;
  spoken?: string; // the names of the columns, a line each
  current: boolean;
  at: number; // the column that the keyboard stands at, -1: in another row
  cursor: boolean;
  typing: string | null;
  lit: string; // '0' or '1' a cell; empty: none
  edited: string;
  dark: boolean;
  language: string;
}
class Row extends Component<RowProps> {
  shouldComponentUpdate(next: RowProps) {
    for (const name of Object.keys(next) as (keyof RowProps)[]) if (next[name] !== this.props[name]) return true;
    return false;
  }
  render() {
    const p = this.props,
      { r, now } = p;
    const palette = paletteOf(p.dark),
      labels = p.spoken?.split('\n');
    return (
      <tr class={p.current ? 'current' : ''}>
        {p.label !== undefined && (
          <th scope="row" class={`hue-${p.hue}`}>
            {p.label}
          </th>
        )}
        {p.row.map((value, c) => {
          const here = p.at === c;
          const share =
            value === null || p.size === 0
              ? 0
              : Math.min(1, p.tone === 'w' ? value / p.size : Math.abs(value) / p.size);
          const edited = p.edited[c] === '1';
          const classes = [
            'cell',
            value === null ? 'masked' : value < 0 ? 'negative' : '',
            here && p.cursor ? 'chosen' : '',
            p.lit[c] === '1' ? 'lit' : '',
            edited ? 'edited' : '',
            here && p.typing !== null ? 'typing' : '',
          ].join(' ');
          const text = p.typed && value !== null ? short(value) : show(value, p.digits, p.even);
          return (
            <td
              role="gridcell"
              class={classes}
              data-row={r}
              data-column={c}
              data-value={value ?? '-inf'}
              style={p.tone === 'w' && value !== null ? weightStyle(palette, share) : { '--t': share.toFixed(3) }}
              tabIndex={here ? 0 : -1}
              aria-label={`${p.label || t('row.n', r)}, ${labels?.[c] ?? c}: ${value === null ? `${text} ${t('masked')}` : text}${edited ? ', ' + t('edited') : ''}`}
              aria-selected={here && p.cursor}
              onPointerEnter={(event) => {
                fullOnHover(value)(event);
                now.current!.onHover?.({ row: r, column: c });
              }}
              onFocus={() => now.current!.onHover?.({ row: r, column: c })}
              onClick={() => {
                if (here && touch.value && now.current!.onEdit) now.current!.edit({ row: r, column: c });
                else now.current!.go({ row: r, column: c });
              }}
              onDblClick={() => {
                if (now.current!.onEdit) now.current!.edit({ row: r, column: c });
              }}
            >
              {here && p.typing !== null ? (
                <Editor
                  text={p.typing}
                  whole={now.current!.whole}
                  label={now.current!.name}
                  onDone={(typed, by) =>
                    now.current!.commit(
                      typed,
                      { row: r, column: c },
                      by === null ? null : next(now.current!.rows, r, c, by),
                    )
                  }
                  onStop={() => now.current!.leave({ row: r, column: c })}
                />
              ) : (
                text
              )}
            </td>
          );
        })}
      </tr>
    );
  }
}

let hatch: { canvas: HTMLCanvasElement; ink: string } | null = null;
export function hatching(ink: string): HTMLCanvasElement {
  if (hatch?.ink === ink) return hatch.canvas;
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 6;
  const pen = canvas.getContext('2d')!;
  pen.strokeStyle = ink;
  pen.globalAlpha = 0.45;
  for (const x of [-6, 0, 6]) {
    pen.beginPath();
    pen.moveTo(x, 6);
    pen.lineTo(x + 6, 0);
    pen.stroke();
  }
  hatch = { canvas, ink };
  return canvas;
}

interface Picture {
  canvas: HTMLCanvasElement;
  image: ImageData;
  rows: (number | null)[][];
  colours: Uint32Array;
  size: number;
  masked: boolean;
}
function paint(had: Picture | null, rows: (number | null)[][], colours: Uint32Array, size: number): Picture {
  const columns = rows[0].length,
    same = had && had.image.width === columns && had.image.height === rows.length ? had : null;
  let made = same;
  if (!made) {
    const canvas = document.createElement('canvas');
    canvas.width = columns;
    canvas.height = rows.length;
    made = { canvas, image: new ImageData(columns, rows.length), rows: [], colours, size, masked: false };
  }
  const keeps = made.colours === colours && made.size === size,
    pixels = new Uint32Array(made.image.data.buffer);
  let first = rows.length,
    last = -1;
  rows.forEach((row, r) => {
    if (keeps && made.rows[r] === row) return;
    first = Math.min(first, r);
    last = r;
    row.forEach((value, c) => {
      pixels[r * columns + c] =
        value === null ? 0 : colours[255 + Math.round(Math.max(-1, Math.min(1, size > 0 ? value / size : 0)) * 255)];
    });
  });
  if (last >= first)
    made.canvas
      .getContext('2d', { willReadFrequently: true })!
      .putImageData(made.image, 0, 0, 0, first, columns, last - first + 1);
  return { ...made, rows, colours, size, masked: rows.some((row) => row.includes(null)) };
}

function Heat(p: Inner) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const rows = p.rows.length,
    columns = p.rows[0]?.length ?? 0;
  const cell = Math.max(3, Math.min(18, Math.floor(300 / Math.max(rows, columns))));
  const [peek, setPeek] = useState<Cell | null>(null);
  // The cells are one small picture, a pixel each; only rows whose numbers are others are written into it again.
  const palette = paletteOf(dark.value);
  const small = useRef<Picture | null>(null);
  const marked = useMemo(() => {
    const list: Cell[] = [];
    if (p.edited)
      for (let r = 0; r < rows; ++r)
        for (let c = 0; c < columns; ++c) if (p.edited(r, c)) list.push({ row: r, column: c });
    return list;
  }, [p.rows]);
  useLayoutEffect(() => {
    const target = canvas.current!;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(columns * cell * ratio),
      height = Math.round(rows * cell * ratio);
    if (target.width !== width || target.height !== height) {
      target.width = width;
      target.height = height;
    }
    small.current = paint(small.current, p.rows, cellColours(palette, p.tone), p.size);
    const pen = target.getContext('2d')!;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, columns * cell, rows * cell);
    if (small.current.masked) {
      pen.fillStyle = pen.createPattern(hatching(palette.faint), 'repeat')!;
      pen.fillRect(0, 0, columns * cell, rows * cell);
    }
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small.current.canvas, 0, 0, columns * cell, rows * cell);
    pen.strokeStyle = palette.hues.e;
    pen.lineWidth = 1.5;
    for (const { row, column } of marked)
      pen.strokeRect(column * cell + 0.75, row * cell + 0.75, cell - 1.5, cell - 1.5);
    if (p.currentRow !== undefined) {
      pen.strokeStyle = palette.hues.q;
      pen.lineWidth = 1;
      pen.strokeRect(0.5, p.currentRow * cell + 0.5, columns * cell - 1, cell - 1);
    }
    if (p.cursor) {
      pen.strokeStyle = palette.ink;
      pen.lineWidth = 2;
      pen.strokeRect(p.at.column * cell, p.at.row * cell, cell, cell);
    }
  }, [p.rows, p.size, p.tone, dark.value, marked, cell, p.currentRow, p.cursor?.row, p.cursor?.column]);
  const find = (event: PointerEvent | MouseEvent): Cell => {
    const box = canvas.current!.getBoundingClientRect();
    return {
      row: Math.max(0, Math.min(rows - 1, Math.floor(((event.clientY - box.top) / box.height) * rows))),
      column: Math.max(0, Math.min(columns - 1, Math.floor(((event.clientX - box.left) / box.width) * columns))),
    };
  };
  const shown = peek ?? p.at;
  const value = p.rows[shown.row]?.[shown.column] ?? null;
  const spoken = `${p.rowLabels?.[p.at.row] ?? p.at.row}, ${p.columnLabels?.[p.at.column] ?? p.at.column}: ${show(p.rows[p.at.row]?.[p.at.column])}`;
  return (
    <div class="heat">
      <div
        role="grid"
        aria-label={p.name}
        aria-rowcount={rows}
        aria-colcount={columns}
        tabIndex={0}
        aria-activedescendant={`${p.id}-cell`}
        class="heat-grid"
      >
        <canvas
          ref={canvas}
          style={{ width: `${columns * cell}px`, height: `${rows * cell}px` }}
          aria-hidden="true"
          onPointerMove={(event) => {
            const found = find(event);
            setPeek(found);
            p.onHover?.(found);
          }}
          onPointerLeave={() => setPeek(null)}
          onClick={(event) => {
            p.go(find(event), false);
          }}
          onDblClick={(event) => {
            if (p.onEdit) {
              p.go(find(event), false);
              p.edit(find(event));
            }
          }}
        />
        <div role="row" class="sr" aria-rowindex={p.at.row + 1}>
          <div
            role="gridcell"
            id={`${p.id}-cell`}
            aria-colindex={p.at.column + 1}
            aria-selected={true}
            aria-label={spoken}
          />
        </div>
      </div>
      <p class={`heat-value ${p.steady ? 'steady' : ''}`} title={exact(value)}>
        <span class={`hue-${p.rowHue ?? 'q'}`}>{p.rowLabels?.[shown.row] ?? shown.row}</span> ·{' '}
        <span class={`hue-${p.columnHue ?? 'k'}`}>{p.columnLabels?.[shown.column] ?? shown.column}</span>{' '}
        {p.typing !== null ? (
          <Editor
            text={p.typing}
            whole={p.whole}
            label={p.name}
            onDone={(text, by) => p.commit(text, p.at, by === null ? null : next(p.rows, p.at.row, p.at.column, by))}
            onStop={() => p.leave(p.at)}
          />
        ) : (
          <b>{show(value)}</b>
        )}
      </p>
    </div>
  );
}

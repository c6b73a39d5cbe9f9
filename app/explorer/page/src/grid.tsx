// A matrix one can read, point at, walk with arrow keys and (where allowed) type into. Small ones are tables of numbers, large
// ones a canvas; both are grids to a screen reader and to the keyboard.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { ComponentChildren } from 'preact';
import { cellColour, paletteOf, weightStyle, type Tone } from './colours';
import { boxed, exact, fullOnHover, parseTable, readNumber, shape, show } from './numbers';
import { dark, hush, say } from './shared';
import { t } from './words';

export interface Cell { row: number; column: number }

export interface GridProps {
  id: string;                     // of the matrix: data-matrix, and what onHover's owner knows it by
  title: ComponentChildren;
  name: string;                   // spoken
  rows: (number | null)[][];
  tone: Tone;
  rowLabels?: string[];
  columnLabels?: string[];
  rowHue?: 'q' | 'k' | 'x';
  columnHue?: 'q' | 'k' | 'x';
  size?: number;                  // magnitude drawn strongest; default the largest here
  digits?: number;
  typed?: boolean;                // numbers that a reader typed: as short as they are
  by?: string;                    // how it came from what stands before it, in its caption
  cursor?: Cell | null;
  currentRow?: number;            // the chosen query
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
}

// What the looks of a cell mean.
export const Legend = () => <p class="cells-legend faint"><span><i class="box typed" />{t('legend.typed')}</span><span><i class="box" />{t('legend.computed')}</span><span><i class="box negative" />{t('legend.negative')}</span><span><i class="box masked" />{t('masked')}</span></p>;

export const tableCells = 200;

export function largest(rows: (number | null)[][]): number {
  let most = 0;
  for (const row of rows) for (const value of row) if (value !== null && Number.isFinite(value)) most = Math.max(most, Math.abs(value));
  return most;
}

export function Grid(props: GridProps) {
  const rows = props.rows.length, columns = props.rows[0]?.length ?? 0;
  const [own, setOwn] = useState<Cell>({ row: 0, column: 0 });
  const cursor = props.cursor ?? own;
  const at = { row: Math.min(cursor.row, Math.max(0, rows - 1)), column: Math.min(cursor.column, Math.max(0, columns - 1)) };
  const [typing, setTyping] = useState<string | null>(null);
  const host = useRef<HTMLDivElement>(null);
  const go = (cell: Cell, focus = true) => {
    setOwn(cell);
    props.onCursor?.(cell);
    if (focus) host.current?.querySelector<HTMLElement>(`[data-row="${cell.row}"][data-column="${cell.column}"], .heat-grid`)?.focus();
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
    if (!Number.isFinite(value)) { say(t('not.a.number', text), 'error', 'number'); return; }
    hush('number');
    props.onEdit?.(cell, value);
  };
  const leave = (cell: Cell) => { back.current = cell; setTyping(null); };
  const keys = (event: KeyboardEvent) => {
    if (typing !== null) return;
    if (props.onKey?.(event, at)) { event.preventDefault(); event.stopPropagation(); return; }
    const moves: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e9], End: [0, 1e9], PageUp: [-10, 0], PageDown: [10, 0] };
    const move = moves[event.key];
    if (move && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      event.stopPropagation();
      go({ row: Math.max(0, Math.min(rows - 1, at.row + move[0])), column: Math.max(0, Math.min(columns - 1, at.column + move[1])) });
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
    if (problem) say(t('paste.bad', problem.row, problem.column, problem.cell), 'error', 'number');
    else if (pasted.length) { hush('number'); props.onPaste(pasted); }
  };
  const size = props.size ?? largest(props.rows);
  const inner = { ...props, at, typing, edit, commit, leave, go, size };
  return <figure class={`matrix ${props.dim ? 'dim' : ''}`} ref={host} data-matrix={props.id} onKeyDown={keys} onPaste={paste} onPointerLeave={() => props.onHover?.(null)}>
    <figcaption><span class="matrix-title">{props.title}</span><span class="matrix-shape">{props.by && <>{props.by} · </>}{shape(props.rows)}</span>{props.menu}</figcaption>
    {rows * columns <= tableCells ? <Table {...inner} /> : <Heat {...inner} />}
    {props.note && <p class="note">{props.note}</p>}
  </figure>;
}

type Inner = GridProps & { at: Cell; typing: string | null; edit: (cell: Cell) => void; commit: (text: string, cell: Cell, then?: Cell | null) => void; leave: (cell: Cell) => void; go: (cell: Cell, focus?: boolean) => void; size: number };

// `onDone`: by how many cells the focus moves on, null when it has gone elsewhere.
function Editor({ text, onDone, onStop, label }: { text: string; onDone: (text: string, by: number | null) => void; onStop: () => void; label: string }) {
  const field = useRef<HTMLInputElement>(null);
  const stopped = useRef(false);
  useLayoutEffect(() => { field.current!.focus(); if (text.length > 1) field.current!.select(); }, []);
  return <input class="cell-input" ref={field} defaultValue={text} inputMode="decimal" aria-label={label}
    onBlur={(event) => { if (!stopped.current) onDone(event.currentTarget.value, null); }}
    onKeyDown={(event) => {
      event.stopPropagation();
      if (event.isComposing) return;
      if (event.key === 'Enter' || event.key === 'Tab') { event.preventDefault(); stopped.current = true; onDone(event.currentTarget.value, event.key === 'Enter' ? 0 : event.shiftKey ? -1 : 1); }
      if (event.key === 'Escape') { stopped.current = true; onStop(); }
    }} />;
}

// The cell `by` places on in reading order.
function next(rows: unknown[][], row: number, column: number, by: number): Cell {
  const columns = rows[0].length, at = Math.max(0, Math.min(rows.length * columns - 1, row * columns + column + by));
  return { row: Math.floor(at / columns), column: at % columns };
}

function Table(p: Inner) {
  const palette = paletteOf(dark.value);
  const columns = p.rows[0]?.length ?? 0;
  return <div class="matrix-scroll"><table role="grid" aria-label={p.name} aria-readonly={!p.onEdit} class={`cells tone-${p.tone}`}>
    {p.columnLabels && <thead><tr><td />{p.columnLabels.slice(0, columns).map((label, c) => <th scope="col" class={`hue-${p.columnHue ?? 'k'} ${p.at.column === c && p.currentRow !== undefined ? 'current' : ''}`}>{label}</th>)}</tr></thead>}
    <tbody>{p.rows.map((row, r) => <tr class={p.currentRow === r ? 'current' : ''}>
      {p.rowLabels && <th scope="row" class={`hue-${p.rowHue ?? 'q'}`}>{p.rowLabels[r]}</th>}
      {row.map((value, c) => {
        const here = p.at.row === r && p.at.column === c;
        const share = value === null || p.size === 0 ? 0 : p.tone === 'w' ? value / p.size : Math.abs(value) / p.size;
        const edited = p.edited?.(r, c);
        const classes = ['cell', value === null ? 'masked' : value < 0 ? 'negative' : '', here && p.cursor ? 'chosen' : '', p.lit?.(r, c) ? 'lit' : '', edited ? 'edited' : ''].join(' ');
        const text = p.typed && value !== null ? show(value, 3).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '') : show(value, p.digits);
        return <td role="gridcell" class={classes} data-row={r} data-column={c} data-value={value ?? '-inf'} style={p.tone === 'w' && value !== null ? weightStyle(palette, share) : { '--t': share.toFixed(3) }} tabIndex={here ? 0 : -1}
          aria-label={`${p.rowLabels?.[r] ?? t('row.n', r + 1)}, ${p.columnLabels?.[c] ?? c + 1}: ${value === null ? `${text} ${t('masked')}` : text}${edited ? ', ' + t('edited') : ''}`}
          aria-selected={here && !!p.cursor}
          onPointerEnter={(event) => { fullOnHover(value)(event); p.onHover?.({ row: r, column: c }); }} onFocus={() => p.onHover?.({ row: r, column: c })}
          onClick={() => p.go({ row: r, column: c })} onDblClick={() => { if (p.onEdit) p.edit({ row: r, column: c }); }}>
          {here && p.typing !== null ? <Editor text={p.typing} label={p.name} onDone={(text, by) => p.commit(text, { row: r, column: c }, by === null ? null : next(p.rows, r, c, by))} onStop={() => p.leave({ row: r, column: c })} /> : text}
        </td>;
      })}
    </tr>)}</tbody>
  </table></div>;
}

let hatch: { canvas: HTMLCanvasElement; ink: string } | null = null;
export function hatching(ink: string): HTMLCanvasElement {
  if (hatch?.ink === ink) return hatch.canvas;
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 6;
  const pen = canvas.getContext('2d')!;
  pen.strokeStyle = ink;
  pen.globalAlpha = 0.45;
  for (const x of [-6, 0, 6]) { pen.beginPath(); pen.moveTo(x, 6); pen.lineTo(x + 6, 0); pen.stroke(); }
  hatch = { canvas, ink };
  return canvas;
}

function Heat(p: Inner) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const rows = p.rows.length, columns = p.rows[0]?.length ?? 0;
  const cell = Math.max(3, Math.min(18, Math.floor(300 / Math.max(rows, columns))));
  const [peek, setPeek] = useState<Cell | null>(null);
  // The cells are one small picture, a pixel each, made again only when the numbers are others.
  const palette = paletteOf(dark.value);
  const cells = useMemo(() => {
    const picture = document.createElement('canvas');
    picture.width = columns;
    picture.height = rows;
    const pen = picture.getContext('2d')!, image = pen.createImageData(columns, rows), pixels = new Uint32Array(image.data.buffer);
    const colours = Array.from({ length: 511 }, (_, i) => {
      const hex = cellColour(palette, p.tone, (i - 255) / 255, 1);
      return 0xff000000 | parseInt(hex.slice(5, 7), 16) << 16 | parseInt(hex.slice(3, 5), 16) << 8 | parseInt(hex.slice(1, 3), 16);
    });
    for (let r = 0; r < rows; ++r) {
      for (let c = 0; c < columns; ++c) {
        const value = p.rows[r][c];
        if (value !== null) pixels[r * columns + c] = colours[255 + Math.round(Math.max(-1, Math.min(1, p.size > 0 ? value / p.size : 0)) * 255)];
      }
    }
    pen.putImageData(image, 0, 0);
    return picture;
  }, [p.rows, p.size, p.tone, dark.value]);
  const marked = useMemo(() => {
    const list: Cell[] = [];
    if (p.edited) for (let r = 0; r < rows; ++r) for (let c = 0; c < columns; ++c) if (p.edited(r, c)) list.push({ row: r, column: c });
    return list;
  }, [p.rows]);
  useEffect(() => {
    const target = canvas.current!;
    const ratio = window.devicePixelRatio || 1;
    target.width = Math.round(columns * cell * ratio);
    target.height = Math.round(rows * cell * ratio);
    const pen = target.getContext('2d')!;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = pen.createPattern(hatching(palette.faint), 'repeat')!;
    pen.fillRect(0, 0, columns * cell, rows * cell);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cells, 0, 0, columns * cell, rows * cell);
    pen.strokeStyle = palette.hues.e;
    pen.lineWidth = 1.5;
    for (const { row, column } of marked) pen.strokeRect(column * cell + 0.75, row * cell + 0.75, cell - 1.5, cell - 1.5);
    if (p.currentRow !== undefined) { pen.strokeStyle = palette.hues.q; pen.lineWidth = 1; pen.strokeRect(0.5, p.currentRow * cell + 0.5, columns * cell - 1, cell - 1); }
    if (p.cursor) { pen.strokeStyle = palette.ink; pen.lineWidth = 2; pen.strokeRect(p.at.column * cell, p.at.row * cell, cell, cell); }
  }, [cells, marked, cell, p.currentRow, p.cursor?.row, p.cursor?.column]);
  const find = (event: PointerEvent | MouseEvent): Cell => {
    const box = canvas.current!.getBoundingClientRect();
    return { row: Math.max(0, Math.min(rows - 1, Math.floor((event.clientY - box.top) / box.height * rows))), column: Math.max(0, Math.min(columns - 1, Math.floor((event.clientX - box.left) / box.width * columns))) };
  };
  const shown = peek ?? p.at;
  const value = p.rows[shown.row]?.[shown.column] ?? null;
  const spoken = `${p.rowLabels?.[p.at.row] ?? p.at.row + 1}, ${p.columnLabels?.[p.at.column] ?? p.at.column + 1}: ${show(p.rows[p.at.row]?.[p.at.column])}`;
  return <div class="heat">
    <div role="grid" aria-label={p.name} aria-rowcount={rows} aria-colcount={columns} tabIndex={0} aria-activedescendant={`${p.id}-cell`} class="heat-grid">
      <canvas ref={canvas} style={{ width: `${columns * cell}px`, height: `${rows * cell}px` }} aria-hidden="true"
        onPointerMove={(event) => { const found = find(event); setPeek(found); p.onHover?.(found); }} onPointerLeave={() => setPeek(null)}
        onClick={(event) => { p.go(find(event), false); }} onDblClick={(event) => { if (p.onEdit) { p.go(find(event), false); p.edit(find(event)); } }} />
      <div role="row" class="sr" aria-rowindex={p.at.row + 1}><div role="gridcell" id={`${p.id}-cell`} aria-colindex={p.at.column + 1} aria-selected={true}>{spoken}</div></div>
    </div>
    <p class="heat-value" title={exact(value)}><span class={`hue-${p.rowHue ?? 'q'}`}>{p.rowLabels?.[shown.row] ?? shown.row + 1}</span> · <span class={`hue-${p.columnHue ?? 'k'}`}>{p.columnLabels?.[shown.column] ?? shown.column + 1}</span> {p.typing !== null
      ? <Editor text={p.typing} label={p.name} onDone={(text, by) => p.commit(text, p.at, by === null ? null : next(p.rows, p.at.row, p.at.column, by))} onStop={() => p.leave(p.at)} />
      : <b>{show(value)}</b>}</p>
  </div>;
}

// The matrix of one head as a map: whole when it is small, by tiles when it is not. Wheel and keys zoom, dragging pans, a click
// chooses (query, key). Nothing is drawn that the engine did not send.
import { useEffect, useRef, useState } from 'preact/hooks';
import { paletteOf, ramp, weightColour, weightPicture, weightStyle, type Palette } from '../colours';
import { hatching } from '../grid';
import { exact, show } from '../numbers';
import { later } from '../pending';
import { dark, textScale } from '../shared';
import type { Tile, Token } from '../engine';
import { t } from '../words';
import { complain } from './said';
import {
  axes,
  base,
  cellEdit,
  choose,
  holds,
  inForce,
  label,
  masks,
  placed,
  reachOf,
  room,
  row,
  rowFor,
  site,
  tile,
} from './state';
import { useTile } from './tile';

const span = 256; // cells a tile, at its own level
const miniSize = 96; // pixels of the small map

const widthOf = (token: Token) =>
  textScale.value * [...label(token)].reduce((sum, c) => sum + (c > '\u2e80' ? 13 : 7.4), 0);

interface View {
  zoom: number;
  x: number;
  y: number;
} // pixels a cell; first cell shown (may be a fraction)

// A tile as it is drawn while its cells are small, kept with the tile.
const pictures = new WeakMap<Tile, { palette: Palette; canvas: HTMLCanvasElement }>();
function pictureOf(tile: Tile, palette: Palette): HTMLCanvasElement {
  const had = pictures.get(tile);
  if (had?.palette === palette) return had.canvas;
  const canvas = document.createElement('canvas');
  canvas.width = tile.columns;
  canvas.height = tile.rows;
  canvas.getContext('2d')!.putImageData(weightPicture(palette, tile.data, tile.rows, tile.columns), 0, 0);
  pictures.set(tile, { palette, canvas });
  return canvas;
}

// The weight of one cell, as exact as the engine has it, however the map is drawn; null until it is there. What a pointer runs
// over is asked for where it rests.
const pause = 60; // milliseconds
function useWeight(query: number, key: number, drawn: number | null, chosen: boolean): number | null {
  const r = room.value,
    { attention, head } = r.at,
    w = row.value,
    of = rowFor.value;
  const [at, setAt] = useState({ query, key });
  useEffect(() => {
    if (chosen) {
      setAt({ query, key });
      return;
    }
    return later(() => setAt({ query, key }), pause);
  }, [query, key, chosen]);
  const here =
    w && of && holds(of) && w.attention === attention && w.head === head && w.query === query ? w.weights[key] : drawn;
  const one = useTile(
    r,
    here === null && of && at.query === query && at.key === key ? attention : null,
    [head],
    [at.query, at.query + 1],
    [at.key, at.key + 1],
    1,
  );
  return here ?? one?.data[0] ?? null;
}

const Zoom = ({ sign, name, onClick }: { sign: string; name: string; onClick: () => void }) => (
  <button type="button" class="button small" aria-label={name} title={name} onClick={onClick}>
    {sign}
  </button>
);

export function MatrixMap() {
  const r = room.value,
    a = site.value;
  const { queries, keys } = axes(a, base.value);
  const canvas = useRef<HTMLCanvasElement>(null),
    mini = useRef<HTMLCanvasElement>(null),
    host = useRef<HTMLDivElement>(null);
  const [whole, setWidth] = useState(420);
  const rows = queries.length,
    columns = keys.length;
  const scale = textScale.value,
    widest = 46 * scale;
  // Beyond this many the names would be smaller than one can read.
  const named = rows <= 48 && columns <= 48;
  const left = named ? Math.min(whole * 0.24, Math.max(...queries.map(widthOf), 20) + 14) : 0,
    top = named ? Math.min(110 * scale, Math.max(...keys.map(widthOf), 20) + 12) : 0;
  const width = whole - left,
    height = Math.min(width, 460);
  const fit = Math.min(widest, width / Math.max(1, columns), height / Math.max(1, rows));
  const tall = Math.min(height, Math.ceil(rows * fit));
  const [view, setView] = useState<View>({ zoom: fit, x: 0, y: 0 });
  const [loaded, setLoaded] = useState(0);
  const [under, setUnder] = useState<{ query: number; key: number } | null>(null);
  const grab = useRef<{ x: number; y: number; view: View; moved: boolean } | null>(null);
  useEffect(() => {
    const observer = new ResizeObserver(() => {
      if (host.current) setWidth(Math.max(200, Math.floor(host.current.clientWidth)));
    });
    observer.observe(host.current!);
    return () => observer.disconnect();
  }, []);
  useEffect(() => setView({ zoom: fit, x: 0, y: 0 }), [rows, columns, width, scale]);
  const clamp = (v: View): View => {
    const zoom = Math.max(Math.min(fit, 1), Math.min(widest, v.zoom));
    return {
      zoom,
      x: Math.max(0, Math.min(v.x, columns - width / zoom)),
      y: Math.max(0, Math.min(v.y, rows - height / zoom)),
    };
  };
  // The cell may be chosen elsewhere, in the text or in the row.
  useEffect(() => {
    const w = width / view.zoom,
      h = height / view.zoom;
    const { query, key } = r.at;
    if (query < view.y || query >= view.y + h || key < view.x || key >= view.x + w)
      setView(clamp({ ...view, x: key - w / 2, y: query - h / 2 }));
  }, [r.at.query, r.at.key]);

  const reduce = view.zoom >= 1 ? 1 : 2 ** Math.floor(Math.log2(1 / view.zoom));
  const cellsOf = (level: number, tr: number, tc: number): Tile | null => {
    const step = span * level;
    const got = tile(
      r,
      r.at.attention,
      [r.at.head],
      'weights',
      [tr * step, Math.min(rows, (tr + 1) * step)],
      [tc * step, Math.min(columns, (tc + 1) * step)],
      level,
    );
    if (got instanceof Promise) {
      got.then(() => setLoaded((n) => n + 1)).catch(complain);
      return null;
    }
    return got;
  };
  // Of what is drawn cell by cell the numbers are here already.
  const drawn = (query: number, key: number): number | null => {
    if (reduce !== 1) return null;
    const got = cellsOf(1, Math.floor(query / span), Math.floor(key / span));
    return got ? got.data[(query % span) * got.columns + (key % span)] : null;
  };
  const masked = (query: number, key: number) => !!a && masks(a, query, key);

  useEffect(() => {
    if (!rows || !columns || !a) return;
    const target = canvas.current!,
      ratio = window.devicePixelRatio || 1;
    target.width = whole * ratio;
    target.height = (tall + top) * ratio;
    const pen = target.getContext('2d')!;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const palette = paletteOf(dark.value);
    pen.fillStyle = palette.surface;
    pen.fillRect(0, 0, whole, tall + top);
    if (named) {
      const size = Math.max(9, Math.min(13 * scale, view.zoom - 1));
      const font = getComputedStyle(document.body).fontFamily;
      pen.textBaseline = 'middle';
      queries.forEach((token, i) => {
        pen.font = `${i === r.at.query ? 650 : 400} ${size}px ${font}`;
        pen.fillStyle = i === r.at.query ? palette.hues.q : palette.faint;
        pen.textAlign = 'right';
        pen.fillText(label(token), left - 8, top + (i + 0.5) * view.zoom, left - 10);
      });
      keys.forEach((token, j) => {
        pen.font = `${j === r.at.key ? 650 : 400} ${size}px ${font}`;
        pen.fillStyle = j === r.at.key ? palette.hues.k : palette.faint;
        if (pen.measureText(label(token)).width + 4 * scale < view.zoom) {
          pen.textAlign = 'center';
          pen.fillText(label(token), left + (j + 0.5) * view.zoom, top - 12);
          return;
        }
        pen.save();
        pen.translate(left + (j + 0.5) * view.zoom, top - 6);
        pen.rotate(-Math.PI / 2);
        pen.textAlign = 'left';
        pen.fillText(label(token), 0, 0, top - 8);
        pen.restore();
      });
    }
    pen.save();
    pen.beginPath();
    pen.rect(left, top, width, tall);
    pen.clip();
    pen.translate(left, top);
    const step = span * reduce,
      pixel = view.zoom * reduce;
    const lastRow = Math.min(rows - 1, Math.floor(view.y + tall / view.zoom)),
      lastColumn = Math.min(columns - 1, Math.floor(view.x + width / view.zoom));
    for (let tr = Math.floor(view.y / step); tr <= Math.floor(lastRow / step); ++tr) {
      for (let tc = Math.floor(view.x / step); tc <= Math.floor(lastColumn / step); ++tc) {
        const got = cellsOf(reduce, tr, tc);
        const left = (tc * step - view.x) * view.zoom,
          top = (tr * step - view.y) * view.zoom;
        if (!got) {
          pen.fillStyle = palette.line;
          pen.globalAlpha = 0.4;
          pen.fillRect(
            left,
            top,
            Math.min(step, columns - tc * step) * view.zoom,
            Math.min(step, rows - tr * step) * view.zoom,
          );
          pen.globalAlpha = 1;
          continue;
        }
        if (pixel <= 6) {
          pen.imageSmoothingEnabled = false;
          pen.drawImage(pictureOf(got, palette), left, top, got.columns * pixel, got.rows * pixel);
          continue;
        }
        for (let i = 0; i < got.rows; ++i) {
          const y = top + i * pixel;
          if (y + pixel < 0 || y > height) continue;
          for (let j = 0; j < got.columns; ++j) {
            const x = left + j * pixel;
            if (x + pixel < 0 || x > width) continue;
            pen.fillStyle = weightColour(palette, ramp(got.data[i * got.columns + j]));
            pen.fillRect(x, y, pixel - 1, pixel - 1);
            if (pixel >= 38 * scale) {
              const w = got.data[i * got.columns + j];
              pen.font = `${11 * scale}px ` + getComputedStyle(document.body).fontFamily;
              pen.textAlign = 'center';
              pen.textBaseline = 'middle';
              pen.fillStyle = weightStyle(palette, ramp(w)).color;
              if (!masked(tr * step + i, tc * step + j)) pen.fillText(w.toFixed(2), x + pixel / 2, y + pixel / 2);
            }
          }
        }
      }
    }
    // What the mask hides is hatched: the triangles above and below what each row reaches.
    const { behind, ahead } = reachOf(a);
    if (behind < rows || ahead < columns) {
      pen.fillStyle = pen.createPattern(hatching(palette.faint), 'repeat')!;
      pen.beginPath();
      const x = (key: number) => (key - view.x) * view.zoom,
        y = (query: number) => (query - view.y) * view.zoom;
      if (view.zoom > 3) {
        for (let i = Math.floor(view.y); i <= lastRow; ++i) {
          const first = Math.max(i + 1 + ahead, view.x),
            end = i - behind;
          if (first < columns) pen.rect(x(first), y(i), (columns - first) * view.zoom, view.zoom);
          if (end > view.x) pen.rect(0, y(i), x(end), view.zoom);
        }
      } else {
        if (ahead < columns) {
          pen.moveTo(x(ahead), y(0));
          pen.lineTo(x(columns), y(0));
          pen.lineTo(x(columns), y(columns - ahead));
          pen.closePath();
        }
        if (behind < rows) {
          pen.moveTo(x(0), y(behind));
          pen.lineTo(x(0), y(rows));
          pen.lineTo(x(rows - behind), y(rows));
          pen.closePath();
        }
      }
      pen.fill();
    }
    pen.strokeStyle = palette.hues.e;
    pen.lineWidth = 2;
    for (const e of inForce(r.edits)) {
      if (
        e.attention === r.at.attention &&
        (e.head === r.at.head || e.head === -1) &&
        e.query !== undefined &&
        e.key !== undefined &&
        e.query >= 0 &&
        e.key >= 0
      ) {
        pen.strokeRect(
          (e.key - view.x) * view.zoom + 1,
          (e.query - view.y) * view.zoom + 1,
          Math.max(3, view.zoom - 3),
          Math.max(3, view.zoom - 3),
        );
      }
    }
    pen.strokeStyle = palette.hues.q;
    pen.lineWidth = 1.5;
    pen.strokeRect(
      -view.x * view.zoom + 0.5,
      (r.at.query - view.y) * view.zoom - 0.5,
      columns * view.zoom - 1,
      Math.max(2, view.zoom),
    );
    pen.strokeStyle = palette.ink;
    pen.lineWidth = 2;
    pen.strokeRect(
      (r.at.key - view.x) * view.zoom + 0.5,
      (r.at.query - view.y) * view.zoom + 0.5,
      Math.max(3, view.zoom - 2),
      Math.max(3, view.zoom - 2),
    );
    pen.restore();
  }, [view, loaded, r.at, r.edits, base.value, width, dark.value, rows, columns, scale]);

  const large = fit < 4;
  // The longer side fills the small map: so many cells a pixel, where it is drawn and where it is clicked.
  const cells = Math.max(rows, columns) / miniSize,
    level = Math.max(1, 2 ** Math.ceil(Math.log2(cells)));
  const small = useTile(r, large && rows ? r.at.attention : null, [r.at.head], undefined, undefined, level);
  useEffect(() => {
    const pen = mini.current?.getContext('2d');
    if (!pen || !small) return;
    const palette = paletteOf(dark.value);
    pen.clearRect(0, 0, miniSize, miniSize);
    pen.drawImage(pictureOf(small, palette), 0, 0, (small.columns * level) / cells, (small.rows * level) / cells);
    pen.strokeStyle = palette.hues.e;
    pen.strokeRect(
      view.x / cells + 0.5,
      view.y / cells + 0.5,
      width / view.zoom / cells - 1,
      height / view.zoom / cells - 1,
    );
  }, [view, small, large, dark.value]);

  const find = (event: { clientX: number; clientY: number }) => {
    const box = canvas.current!.getBoundingClientRect();
    const query = Math.floor(view.y + (event.clientY - box.top - top) / view.zoom),
      key = Math.floor(view.x + (event.clientX - box.left - left) / view.zoom);
    return query >= 0 && query < rows && key >= 0 && key < columns ? { query, key } : null;
  };
  // Keys and buttons keep the chosen cell where it is as long as it is in view, the wheel what is under the pointer.
  const zoomAt = (factor: number, pointer?: { x: number; y: number }) =>
    setView((v) => {
      const zoom = clamp({ ...v, zoom: v.zoom * factor }).zoom,
        x = (r.at.key + 0.5 - v.x) * v.zoom,
        y = (r.at.query + 0.5 - v.y) * v.zoom;
      const { x: px, y: py } =
        pointer ?? (x >= 0 && x <= width && y >= 0 && y <= height ? { x, y } : { x: width / 2, y: height / 2 });
      return clamp({ zoom, x: v.x + px / v.zoom - px / zoom, y: v.y + py / v.zoom - py / zoom });
    });
  useEffect(() => {
    // A listener of our own, because the page must not scroll while the map zooms.
    const wheel = (event: WheelEvent) => {
      if (!large && !event.ctrlKey) return;
      event.preventDefault();
      const box = canvas.current!.getBoundingClientRect();
      zoomAt(event.deltaY < 0 ? 1.25 : 0.8, { x: event.clientX - box.left - left, y: event.clientY - box.top - top });
    };
    const target = canvas.current!;
    target.addEventListener('wheel', wheel, { passive: false });
    return () => target.removeEventListener('wheel', wheel);
  });
  const keysDown = (event: KeyboardEvent) => {
    const moves: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      PageUp: [-16, 0],
      PageDown: [16, 0],
    };
    const move = moves[event.key];
    if (move) choose({ query: r.at.query + move[0], key: r.at.key + move[1] });
    else if (event.key === '+' || event.key === '=') zoomAt(1.5);
    else if (event.key === '-') zoomAt(1 / 1.5);
    else if (event.key === '0') setView({ zoom: fit, x: 0, y: 0 });
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const shown = under ?? r.at,
    value = useWeight(shown.query, shown.key, drawn(shown.query, shown.key), shown === r.at);
  const chosen = useWeight(r.at.query, r.at.key, drawn(r.at.query, r.at.key), true);
  const said = (query: number, key: number, weight: number | null) =>
    masked(query, key) ? t('masked') : weight === null ? '…' : show(weight);
  return (
    <div class="matrix-map" ref={host}>
      <div
        class="map-frame"
        role="grid"
        tabIndex={0}
        aria-label={t('room.matrix', rows, columns)}
        aria-rowcount={rows}
        aria-colcount={columns}
        aria-activedescendant="map-cell"
        onKeyDown={keysDown}
      >
        <canvas
          ref={canvas}
          style={{ width: `${whole}px`, height: `${tall + top}px` }}
          aria-hidden="true"
          class={large ? 'pannable' : ''}
          onPointerDown={(event) => {
            grab.current = { x: event.clientX, y: event.clientY, view, moved: false };
            if (large) canvas.current!.setPointerCapture(event.pointerId);
          }}
          onPointerMove={(event) => {
            const g = grab.current;
            if (g && large && Math.hypot(event.clientX - g.x, event.clientY - g.y) > 3) {
              g.moved = true;
              setView(
                clamp({
                  ...g.view,
                  x: g.view.x - (event.clientX - g.x) / g.view.zoom,
                  y: g.view.y - (event.clientY - g.y) / g.view.zoom,
                }),
              );
              return;
            }
            const found = find(event);
            setUnder(found);
          }}
          onPointerUp={(event) => {
            const g = grab.current;
            grab.current = null;
            const found = find(event);
            if (!g?.moved && found) choose(found);
          }}
          onPointerLeave={() => {
            setUnder(null);
            grab.current = null;
          }}
        />
        <div role="row" class="sr" aria-rowindex={r.at.query + 1}>
          <div
            role="gridcell"
            id="map-cell"
            aria-selected={true}
            aria-colindex={r.at.key + 1}
          >{`${placed(queries, r.at.query)} ← ${placed(keys, r.at.key)}: ${said(r.at.query, r.at.key, chosen)}`}</div>
        </div>
        {large && (
          <canvas
            ref={mini}
            class="minimap"
            width={miniSize}
            height={miniSize}
            aria-hidden="true"
            onPointerDown={(event) => {
              const box = mini.current!.getBoundingClientRect();
              setView(
                clamp({
                  ...view,
                  x: (event.clientX - box.left) * cells - width / view.zoom / 2,
                  y: (event.clientY - box.top) * cells - height / view.zoom / 2,
                }),
              );
            }}
          />
        )}
      </div>
      <p class="map-value">
        <span class="hue-q">{placed(queries, shown.query)}</span> ← <span class="hue-k">{placed(keys, shown.key)}</span>{' '}
        <b
          title={value === null ? undefined : exact(value)}
          data-cell={`${shown.query},${shown.key}`}
          data-value={value ?? ''}
        >
          {said(shown.query, shown.key, value)}
        </b>
        {cellEdit(r.edits, r.at, shown.query, shown.key) && <span class="hue-e">{t('edited')}</span>}
        {large && (
          <span class="map-zoom">
            <Zoom sign="−" name={t('room.zoom.out')} onClick={() => zoomAt(1 / 2)} />
            <Zoom sign="+" name={t('room.zoom.in')} onClick={() => zoomAt(2)} />
            <span class="faint">{reduce > 1 ? t('room.reduced', reduce) : t('room.exact')}</span>
          </span>
        )}
      </p>
      <p class="legend" aria-hidden="true">
        <span>0</span>
        <i class="ramp" />
        <span>1</span> <span>√</span>
        {a && (a.causal || reachOf(a).behind < rows) && (
          <>
            <i class="hatch" /> {t('masked')}
          </>
        )}
      </p>
    </div>
  );
}

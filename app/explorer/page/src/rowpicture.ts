// Bars that many numbers move at once, drawn on a canvas: a frame of a drag changes every weight of a row, and hundreds of boxes
// cost a browser several times what one picture does. Sizes are those of .score-track, .weight-track and .value-chips in app.css.
import { interpolateRgb } from './interpolate';
import type { Palette } from './colours';

export interface Bar {
  score: number | null; // its place down the score track, in pixels; null: masked
  zero: number; // the place of 0
  before: number | null; // the place of the score before it was edited
  edited: boolean;
  weight: number;
  old: number; // the weight without edits; 0: none to show
  values: number[] | undefined;
}

const trackHeight = 132,
  weightHeight = 64,
  chipsHeight = 24,
  radius = 8,
  chipGap = 2;

// Fits a canvas to its place in whole device pixels; true when that emptied it.
function fit(canvas: HTMLCanvasElement, width: number, height: number, ratio: number): boolean {
  const w = Math.round(width * ratio),
    h = Math.round(height * ratio);
  if (canvas.width === w && canvas.height === h) return false;
  canvas.width = w;
  canvas.height = h;
  canvas.style.width = `${w / ratio}px`;
  canvas.style.height = `${h / ratio}px`;
  return true;
}

// Where the columns lie, as the page laid them out.
interface Layout {
  left: number;
  width: number;
  pitch: number;
  score: number;
  weight: number;
  chips: number;
}

export class RowPicture {
  private layout: Layout | null = null;
  private bars: Bar[] = [];
  private palette: Palette | null = null;
  private strongest = 1;
  private drawn: string[] = [];
  private drawnFor = '';
  private readonly watch: ResizeObserver;

  // `columns`: what the picture lies over. Places are read when the observer calls, after layout and before paint, where reading
  // costs no layout. `tracks`: scores and weights are drawn, too, not only the values.
  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly columns: HTMLElement,
    readonly tracks: boolean,
  ) {
    this.watch = new ResizeObserver(() => {
      const [first, second] = this.columns.querySelectorAll('.row-column');
      if (!first) return;
      const host = this.columns.getBoundingClientRect(),
        box = first.getBoundingClientRect();
      const top = (part: string) => (first.querySelector(part)?.getBoundingClientRect().top ?? host.top) - host.top;
      this.layout = {
        left: box.left - host.left,
        width: box.width,
        pitch: second ? second.getBoundingClientRect().left - box.left : box.width,
        score: top('.score-track'),
        weight: top('.weight-track'),
        chips: top('.value-chips'),
      };
      this.draw();
    });
  }

  // To be called when the columns are others than they were.
  look(): void {
    this.watch.disconnect();
    this.watch.observe(this.columns);
    const first = this.columns.querySelector('.row-column');
    if (first) this.watch.observe(first);
  }

  leave(): void {
    this.watch.disconnect();
  }

  show(bars: Bar[], strongest: number, palette: Palette): void {
    this.bars = bars;
    this.strongest = strongest;
    this.palette = palette;
    this.draw();
  }

  private draw(): void {
    const n = this.bars.length,
      palette = this.palette,
      at = this.layout;
    if (!n || !palette || !at) return;
    const ratio = window.devicePixelRatio || 1,
      snap = (x: number) => Math.round(x * ratio) / ratio;
    const top = this.tracks ? at.score : at.chips,
      bottom = this.bars.some((bar) => bar.values?.length) ? at.chips + chipsHeight : at.weight + weightHeight;
    const state = `${n} ${Object.values(at).join(' ')} ${this.strongest} ${ratio} ${palette.surface}`;
    const empty = fit(this.canvas, at.left + at.pitch * (n - 1) + at.width, bottom - top, ratio);
    const pen = this.canvas.getContext('2d')!;
    if (empty || state !== this.drawnFor) {
      this.drawn = [];
      this.drawnFor = state;
      this.canvas.style.top = `${top}px`;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
      pen.translate(0, -top);
    }
    this.bars.forEach((bar, k) => {
      const left = at.left + k * at.pitch,
        x0 = snap(left),
        w = snap(left + at.width) - x0;
      const centred = (share: number): [number, number] => {
        const wide = snap(w * share);
        return [x0 + Math.floor(((w - wide) / 2) * ratio) / ratio, wide];
      };
      const opacity = 0.25 + 0.75 * Math.min(1, bar.weight * 1.6);
      const share = snap(bar.weight * weightHeight),
        old = snap(bar.old * weightHeight);
      const chips = bar.values?.slice(0, 8) ?? [];
      const mark = `${this.tracks ? `${bar.score === null ? '' : snap(bar.score)} ${snap(bar.zero)} ${bar.before === null ? '' : snap(bar.before)} ${bar.edited} ${share} ${old}` : ''} ${chips.length ? Math.round(opacity * 255) : ''} ${chips.join()}`;
      if (this.drawn[k] === mark) return;
      this.drawn[k] = mark;
      pen.clearRect(x0, top, w, bottom - top);
      if (this.tracks && bar.score !== null) {
        const hue = bar.edited ? palette.hues.e : palette.hues.s;
        pen.save();
        pen.beginPath();
        pen.roundRect(x0, at.score, w, trackHeight, radius);
        pen.clip();
        pen.fillStyle = palette.lineStrong;
        pen.fillRect(x0, at.score + snap(bar.zero), w, 1);
        const [bx, bw] = centred(0.56);
        pen.fillStyle = interpolateRgb(palette.surface, hue, 0.55);
        pen.fillRect(bx, at.score + snap(Math.min(bar.zero, bar.score)), bw, snap(Math.abs(bar.score - bar.zero)));
        if (bar.before !== null) {
          const [gx, gw] = centred(0.84);
          pen.fillStyle = palette.faint;
          pen.fillRect(gx, at.score + snap(bar.before), gw, 2);
        }
        const [hx, hw] = centred(0.76);
        pen.fillStyle = hue;
        pen.fillRect(hx, at.score + snap(bar.score - 2), hw, 4);
        pen.restore();
      }
      if (this.tracks && (share > 0 || old > 0)) {
        pen.save();
        pen.beginPath();
        pen.roundRect(x0, at.weight, w, weightHeight, radius);
        pen.clip();
        const floor = at.weight + weightHeight;
        pen.fillStyle = palette.faint;
        pen.globalAlpha = 0.26;
        pen.fillRect(x0, floor - old, w, old);
        pen.globalAlpha = 1;
        pen.fillStyle = palette.weights[3];
        pen.fillRect(x0, floor - share, w, share);
        pen.restore();
      }
      if (chips.length) {
        const chip = Math.max(0, Math.min(12, (at.width - chipGap * (chips.length - 1)) / chips.length)),
          begin = left + (at.width - chip * chips.length - chipGap * (chips.length - 1)) / 2;
        pen.globalAlpha = opacity;
        pen.fillStyle = palette.hues.v;
        chips.forEach((value, i) => {
          const from = begin + i * (chip + chipGap),
            cx = snap(from),
            cw = snap(from + chip) - cx;
          const above = snap(chipsHeight - (3 + (21 * Math.abs(value)) / this.strongest)),
            tall = chipsHeight - above;
          pen.beginPath();
          pen.roundRect(cx, at.chips + above, cw, tall, 2);
          if (value < 0 && cw > 3 && tall > 3) pen.roundRect(cx + 1.5, at.chips + above + 1.5, cw - 3, tall - 3, 0.5);
          pen.fill('evenodd');
        });
        pen.globalAlpha = 1;
      }
    });
  }
}

// The numbers of a wide output: one bar each, up or down from the middle; `base`: the same without edits, as a line.
const spectrumWidth = 168,
  spectrumHeight = 132;
export function drawSpectrum(
  canvas: HTMLCanvasElement,
  values: number[],
  base: number[] | null,
  most: number,
  at: number | null,
  palette: Palette,
): void {
  const ratio = window.devicePixelRatio || 1,
    snap = (x: number) => Math.round(x * ratio) / ratio;
  const pen = canvas.getContext('2d')!,
    middle = spectrumHeight / 2,
    wide = Math.max(0, (spectrumWidth - (values.length - 1)) / values.length);
  fit(canvas, Math.max(spectrumWidth, values.length), spectrumHeight, ratio);
  const line = Math.floor(1.5 * ratio) / ratio; // as a border of 1.5 px is drawn
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  values.forEach((value, x) => {
    const left = x * (wide + 1),
      x0 = snap(left),
      w = snap(left + wide) - x0,
      tall = snap((middle * Math.abs(value)) / most);
    pen.fillStyle = at === x ? palette.ink : palette.hues.v;
    pen.beginPath();
    pen.roundRect(x0, value < 0 ? middle : middle - tall, w, tall, 1);
    pen.fill();
    if (base) {
      const b = base[x] ?? 0,
        g0 = snap(left + wide * 0.25),
        gw = snap(left + wide * 1.25) - g0,
        far = snap((middle * Math.abs(b)) / most);
      pen.fillStyle = palette.faint;
      pen.fillRect(g0, b < 0 ? middle + Math.max(0, far - line) : middle - Math.max(line, far), gw, line);
    }
    pen.fillStyle = palette.lineStrong;
    pen.fillRect(x0, middle, snap(left + wide + 1) - x0, 1);
  });
}

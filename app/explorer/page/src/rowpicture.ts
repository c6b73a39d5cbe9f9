// Bars that many numbers move at once, drawn on a canvas: a frame of a drag changes every weight of a row, and hundreds of boxes
// cost a browser several times what one picture does. Sizes are those of .score-track, .weight-track and .value-chips in app.css.
import { interpolateRgb } from './interpolate';
import type { Palette } from './colours';

export interface Bar {
  score: number | null;          // its place down the score track, in pixels; null: masked
  zero: number;                  // the place of 0
  before: number | null;         // the place of the score before it was edited
  edited: boolean;
  weight: number;
  old: number;                   // the weight without edits; 0: none to show
  values: number[] | undefined;
}

const trackHeight = 132, weightTop = 138, weightHeight = 64, chipsTop = 208, chipsHeight = 24;
export const pictureHeight = chipsTop + chipsHeight;
const gap = 2, narrowest = 20, widest = 112, radius = 8;

// Fits a canvas to its place in whole device pixels; true when that emptied it.
function fit(canvas: HTMLCanvasElement, width: number, height: number, ratio: number): boolean {
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width === w && canvas.height === h) return false;
  canvas.width = w;
  canvas.height = h;
  canvas.style.width = `${w / ratio}px`;
  canvas.style.height = `${h / ratio}px`;
  return true;
}

export class RowPicture {
  private width = 0;
  private bars: Bar[] = [];
  private palette: Palette | null = null;
  private strongest = 1;
  private drawn: string[] = [];
  private drawnFor = '';
  private readonly watch: ResizeObserver;

  // `columns`: what the picture lies over. Its width is reported after layout and before paint, so asking for it costs none.
  constructor(readonly canvas: HTMLCanvasElement, columns: HTMLElement) {
    this.watch = new ResizeObserver((entries) => {
      this.width = entries[entries.length - 1].contentRect.width;
      this.draw();
    });
    this.watch.observe(columns);
  }

  leave(): void { this.watch.disconnect(); }

  show(bars: Bar[], strongest: number, palette: Palette): void {
    this.bars = bars;
    this.strongest = strongest;
    this.palette = palette;
    this.draw();
  }

  private draw(): void {
    const n = this.bars.length, palette = this.palette;
    if (!n || !palette || this.width === 0) return;
    const ratio = window.devicePixelRatio || 1, snap = (x: number) => Math.round(x * ratio) / ratio;
    const column = Math.max(narrowest, Math.min(widest, (this.width - gap * (n - 1)) / n));
    const state = `${n} ${column} ${this.strongest} ${ratio} ${palette.surface}`;
    const empty = fit(this.canvas, column * n + gap * (n - 1), pictureHeight, ratio);
    const pen = this.canvas.getContext('2d')!;
    if (empty || state !== this.drawnFor) {
      this.drawn = [];
      this.drawnFor = state;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    }
    this.bars.forEach((bar, k) => {
      const left = k * (column + gap), x0 = snap(left), x1 = snap(left + column), w = x1 - x0;
      const centred = (share: number): [number, number] => { const wide = snap(w * share); return [x0 + snap((w - wide) / 2), wide]; };
      const opacity = 0.25 + 0.75 * Math.min(1, bar.weight * 1.6);
      const share = snap(bar.weight * weightHeight), old = snap(bar.old * weightHeight);
      const chips = bar.values?.slice(0, 8) ?? [];
      const mark = `${bar.score === null ? '' : snap(bar.score)} ${snap(bar.zero)} ${bar.before === null ? '' : snap(bar.before)} ${bar.edited} ${share} ${old} ${chips.length ? Math.round(opacity * 255) : ''} ${chips.join()}`;
      if (this.drawn[k] === mark) return;
      this.drawn[k] = mark;
      pen.clearRect(x0, 0, w, pictureHeight);
      if (bar.score !== null) {
        const hue = bar.edited ? palette.hues.e : palette.hues.s;
        pen.save();
        pen.beginPath();
        pen.roundRect(x0, 0, w, trackHeight, radius);
        pen.clip();
        pen.fillStyle = palette.lineStrong;
        pen.fillRect(x0, snap(bar.zero), w, 1);
        const top = snap(Math.min(bar.zero, bar.score)), [bx, bw] = centred(0.56);
        pen.fillStyle = interpolateRgb(palette.surface, hue, 0.55);
        pen.fillRect(bx, top, bw, snap(Math.abs(bar.score - bar.zero)));
        if (bar.before !== null) { const [gx, gw] = centred(0.84); pen.fillStyle = palette.faint; pen.fillRect(gx, snap(bar.before), gw, 2); }
        const [hx, hw] = centred(0.76);
        pen.fillStyle = hue;
        pen.fillRect(hx, snap(bar.score - 2), hw, 4);
        pen.restore();
      }
      if (share > 0 || old > 0) {
        pen.save();
        pen.beginPath();
        pen.roundRect(x0, weightTop, w, weightHeight, radius);
        pen.clip();
        const bottom = weightTop + weightHeight;
        pen.fillStyle = palette.faint;
        pen.globalAlpha = 0.26;
        pen.fillRect(x0, bottom - old, w, old);
        pen.globalAlpha = 1;
        pen.fillStyle = palette.weights[3];
        pen.fillRect(x0, bottom - share, w, share);
        pen.restore();
      }
      if (chips.length) {
        const chip = Math.max(0, Math.min(12, (column - gap * (chips.length - 1)) / chips.length)), begin = left + (column - chip * chips.length - gap * (chips.length - 1)) / 2;
        pen.globalAlpha = opacity;
        pen.fillStyle = palette.hues.v;
        chips.forEach((value, i) => {
          const from = begin + i * (chip + gap), cx = snap(from), cw = snap(from + chip) - cx;
          const top = snap(chipsHeight - (3 + 21 * Math.abs(value) / this.strongest)), tall = chipsHeight - top;
          pen.beginPath();
          pen.roundRect(cx, chipsTop + top, cw, tall, 2);
          if (value < 0 && cw > 3 && tall > 3) pen.roundRect(cx + 1.5, chipsTop + top + 1.5, cw - 3, tall - 3, 0.5);
          pen.fill('evenodd');
        });
        pen.globalAlpha = 1;
      }
    });
  }
}

// The numbers of a wide output: one bar each, up or down from the middle; `base`: the same without edits, as a line.
const spectrumWidth = 168, spectrumHeight = 132;
export function drawSpectrum(canvas: HTMLCanvasElement, values: number[], base: number[] | null, most: number, at: number | null, palette: Palette): void {
  const ratio = window.devicePixelRatio || 1, snap = (x: number) => Math.round(x * ratio) / ratio;
  const pen = canvas.getContext('2d')!, middle = spectrumHeight / 2, wide = Math.max(0, (spectrumWidth - (values.length - 1)) / values.length);
  fit(canvas, Math.max(spectrumWidth, values.length), spectrumHeight, ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  values.forEach((value, x) => {
    const left = x * (wide + 1), x0 = snap(left), w = snap(left + wide) - x0, tall = snap(middle * Math.abs(value) / most);
    pen.fillStyle = at === x ? palette.ink : palette.hues.v;
    pen.beginPath();
    pen.roundRect(x0, value < 0 ? middle : middle - tall, w, tall, 1);
    pen.fill();
    if (base) {
      const b = base[x] ?? 0, g0 = snap(left + wide * 0.25), gw = snap(left + wide * 1.25) - g0, far = snap(middle * Math.abs(b) / most);
      pen.fillStyle = palette.faint;
      pen.fillRect(g0, b < 0 ? middle + Math.max(0, far - 1.5) : middle - Math.max(1.5, far), gw, 1.5);
    }
    pen.fillStyle = palette.lineStrong;
    pen.fillRect(x0, middle, snap(left + wide + 1) - x0, 1);
  });
}

// Colours by meaning, for canvas and for exported pictures; app.css has the same ones as custom properties.
import { interpolateRgb } from './interpolate';

export type Tone = 'q' | 'k' | 'v' | 'w' | 's' | 'x';

export interface Palette {
  surface: string;
  ink: string;
  faint: string;
  line: string;
  lineStrong: string;
  hues: Record<Tone | 'e', string>;
  weights: string[]; // single-hue ramp, even steps of luminance
}

export const light: Palette = {
  surface: '#ffffff',
  ink: '#1b1c22',
  faint: '#61646f',
  line: '#e2e2e8',
  lineStrong: '#c3c4cd',
  hues: { q: '#0064b0', k: '#b04e00', v: '#007355', w: '#5a34b4', s: '#585c86', x: '#756400', e: '#bb1272' },
  weights: ['#f7f4fd', '#d9ccf4', '#b79fe6', '#9170d2', '#6a45b8', '#3f1f86'],
};
export const night: Palette = {
  surface: '#1a1b22',
  ink: '#eeeef3',
  faint: '#a6a9b6',
  line: '#33353f',
  lineStrong: '#4b4e5b',
  hues: { q: '#70b8ff', k: '#ffac5f', v: '#4fd3a6', w: '#b99cff', s: '#a9aedd', x: '#dcc85a', e: '#ff74b9' },
  weights: ['#201f2b', '#3a3159', '#5a478f', '#8068c4', '#ab92ee', '#e3d6ff'],
};
export const paletteOf = (isDark: boolean) => (isDark ? night : light);

export function weightColour(palette: Palette, share: number): string {
  const at = Math.max(0, Math.min(1, share)) * (palette.weights.length - 1);
  const low = Math.min(palette.weights.length - 2, Math.floor(at));
  return interpolateRgb(palette.weights[low], palette.weights[low + 1], at - low);
}

// Weights as a picture, one pixel a cell: the same ramp from a table, since a map shows hundreds of thousands of them.
const steps = 1024;
const tables = new Map<Palette, Uint8ClampedArray>();
export function weightPicture(palette: Palette, weights: Float32Array, rows: number, columns: number): ImageData {
  let table = tables.get(palette);
  if (!table) {
    table = new Uint8ClampedArray(4 * steps);
    for (let i = 0; i < steps; ++i) {
      const hex = weightColour(palette, i / (steps - 1));
      table.set([1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).concat(255), 4 * i);
    }
    tables.set(palette, table);
  }
  const from = new Uint32Array(table.buffer),
    image = new ImageData(columns, rows),
    to = new Uint32Array(image.data.buffer);
  for (let i = 0; i < to.length; ++i) to[i] = from[Math.round(ramp(weights[i]) * (steps - 1))];
  return image;
}

// How strong a weight is drawn: small ones stay visible.
export const ramp = (share: number) => Math.sqrt(Math.max(0, Math.min(1, share)));

// Positive: the tone; negative: grey. `size` is the magnitude that is drawn strongest.
export function cellColour(palette: Palette, tone: Tone, value: number, size: number): string {
  if (tone === 'w') return weightColour(palette, size > 0 ? value / size : 0);
  const share = size > 0 ? Math.min(1, Math.abs(value) / size) : 0;
  return interpolateRgb(palette.surface, value < 0 ? palette.faint : palette.hues[tone], share * 0.85);
}

// A cell in the colour of its weight, with ink that can be read on it: black where the colour is light enough for 4.5:1.
export function weightStyle(palette: Palette, share: number): { background: string; color: string } {
  const background = weightColour(palette, share);
  const [r, g, b] = [1, 3, 5]
    .map((at) => parseInt(background.slice(at, at + 2), 16) / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return { background, color: 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#000000' : '#ffffff' };
}

// The same for whole matrices: 511 steps from the most negative to the most positive, as pixels.
const ramps = new Map<Palette, Partial<Record<Tone, Uint32Array>>>();
export function cellColours(palette: Palette, tone: Tone): Uint32Array {
  let made = ramps.get(palette);
  if (!made) ramps.set(palette, (made = {}));
  return (made[tone] ??= Uint32Array.from({ length: 511 }, (_, i) => {
    const hex = cellColour(palette, tone, (i - 255) / 255, 1);
    return (
      0xff000000 |
      (parseInt(hex.slice(5, 7), 16) << 16) |
      (parseInt(hex.slice(3, 5), 16) << 8) |
      parseInt(hex.slice(1, 3), 16)
    );
  }));
}

// What all rooms share: the engine, the theme, messages, and what the engine said about itself.
import { signal } from '@preact/signals';
import { EngineError, HttpEngine, type Engine, type Status } from './engine';
import { t, type Key } from './words';

export const online = signal(true);
// How often the engine has come back: what it could not answer is asked again then.
export const returned = signal(0);
export const engine: Engine = new HttpEngine('api/v1/', (yes) => {
  if (yes && !online.value) returned.value += 1;
  online.value = yes;
});
export const status = signal<Status | null>(null);

export type Theme = 'auto' | 'light' | 'dark';
export const theme = signal<Theme>(
  ((): Theme => {
    try {
      const kept = localStorage.getItem('attend.theme');
      return kept === 'light' || kept === 'dark' ? kept : 'auto';
    } catch {
      return 'auto';
    }
  })(),
);
const prefersDark = typeof matchMedia === 'undefined' ? null : matchMedia('(prefers-color-scheme: dark)');
export const dark = signal(false);

function applyTheme(): void {
  dark.value = theme.value === 'dark' || (theme.value === 'auto' && !!prefersDark?.matches);
  document.documentElement.dataset.theme = dark.value ? 'dark' : 'light';
}
export function chooseTheme(next: Theme): void {
  theme.value = next;
  try {
    if (next === 'auto') localStorage.removeItem('attend.theme');
    else localStorage.setItem('attend.theme', next);
  } catch {
    /* closed storage: the choice lasts as long as the page */
  }
  applyTheme();
}
if (typeof document !== 'undefined') {
  prefersDark?.addEventListener('change', applyTheme);
  applyTheme();
}

// A finger cannot point without touching: what to do is said in other words then.
const pointless = typeof matchMedia === 'undefined' ? null : matchMedia('(hover: none)');
export const touch = signal(pointless?.matches ?? false);
pointless?.addEventListener('change', () => {
  touch.value = pointless.matches;
});

// Larger letters and numbers for a projector. Everything that is sized by its text is in rem; what is drawn asks here.
export const large = signal(
  ((): boolean => {
    try {
      return localStorage.getItem('attend.size') === 'large';
    } catch {
      return false;
    }
  })(),
);
const wide = typeof matchMedia === 'undefined' ? null : matchMedia('(min-width: 821px)');
export const textScale = signal(1);
function applySize(): void {
  document.documentElement.dataset.size = large.value ? 'large' : 'normal';
  textScale.value = large.value && wide?.matches ? 1.35 : 1; // as app.css has it
}
export function chooseSize(next: boolean): void {
  large.value = next;
  try {
    if (next) localStorage.setItem('attend.size', 'large');
    else localStorage.removeItem('attend.size');
  } catch {
    /* as above */
  }
  applySize();
}
if (typeof document !== 'undefined') {
  wide?.addEventListener('change', applySize);
  applySize();
}

export const helpOpen = signal(false);
// What a message is about: it goes when its cause is gone (`hush`), and none outlives the screen it was said on.
export type Topic = 'number' | 'engine' | 'other';
export const toast = signal<{ text: string; tone: 'info' | 'error'; at: number; topic: Topic } | null>(null);
let said = 0;
export function say(text: string, tone: 'info' | 'error' = 'info', topic: Topic = 'other'): void {
  const at = ++said;
  toast.value = { text, tone, at, topic };
  setTimeout(
    () => {
      if (toast.value?.at === at) toast.value = null;
    },
    tone === 'error' ? 9000 : 4000,
  );
}
export function hush(topic?: Topic): void {
  if (toast.value && (topic === undefined || toast.value.topic === topic)) toast.value = null;
}
// An engine's refusal, and the end of it at its next answer.
// That it is gone the page says at its top.
export const complain = (error: unknown): void => {
  if (!isGone(error)) say(explain(error), 'error', 'engine');
};
export const isGone = (error: unknown): boolean =>
  error instanceof EngineError && (error.failure.code ?? error.failure.kind) === 'gone';

// What the engine calls a part of a request, as the page calls it.
const places: Record<string, string> = {
  x: 'X',
  memory: 'M',
  query_weight: 'W_Q',
  key_weight: 'W_K',
  value_weight: 'W_V',
  output_weight: 'W_O',
  query: 'Q',
  key: 'K',
  value: 'V',
  q: 'Q',
  k: 'K',
  v: 'V',
  products: 'Q Kᵀ',
  output: 'O',
  projected: 'O W_O',
};
function placeOf(where: string): string {
  const text = /^input\.(source|target|text)/.exec(where)?.[1];
  if (text) return t(`err.in.${text}` as Key);
  const edit = /^edits\[(\d+)\]/.exec(where)?.[1];
  if (edit) return t('err.in.edit', Number(edit) + 1);
  return places[/^[a-z_]+/.exec(where)?.[0] ?? ''] ?? where;
}
const spoken = (value: unknown): string =>
  Array.isArray(value)
    ? value.slice(0, 12).map(spoken).join(', ') + (value.length > 12 ? ', …' : '')
    : typeof value === 'number'
      ? String(value).replace('-', '−')
      : String(value ?? '?');

// One sentence for any failure, in the reader's language. What has none of its own is quoted in the engine's words.
export function explain(error: unknown): string {
  if (!(error instanceof EngineError)) return error instanceof Error ? error.message : String(error);
  const { failure } = error,
    place = placeOf(failure.where),
    found = spoken(failure.found),
    expected = spoken(failure.expected);
  const own = (failure.found ?? null) === null ? [] : (failure.found as number[]),
    wanted = failure.expected as number[];
  switch (failure.code ?? failure.kind) {
    case 'gone':
      return t('engine.gone');
    case 'too_long':
      return t('err.too_long', place, found, expected);
    case 'empty_text':
      return t('err.empty_text', place);
    case 'language':
      return t('err.language', found, expected);
    case 'limit':
      return t('err.limit', found, expected, place);
    case 'range':
      return t('err.range', place, found, spoken(wanted?.[0]), spoken(wanted?.[1]));
    case 'unknown':
      return failure.found === undefined ? t('err.other', error.message) : t('err.unknown', found, expected);
    case 'beyond_float32':
      return Array.isArray(failure.found)
        ? t('err.beyond_float32', place, own[0], own[1])
        : t('err.large_number', found);
    case 'row_length':
      return t('err.row_length', place, found, expected);
    case 'weight_rows':
      return t('err.weight_rows', place, found, expected);
    case 'head_columns':
      return t('err.head_columns', place, found, expected);
    case 'key_columns':
      return t('err.key_columns', place, found, expected);
    case 'value_rows':
      return t('err.value_rows', found, expected);
    case 'mask_shape':
      return t('err.mask_shape', own.join(' × '), wanted?.join(' × '));
    case 'odd_head':
      return t('err.odd_head', found);
    case 'no_spread':
      return t('err.no_spread');
    case 'scale_zero':
      return t('err.scale_zero');
    case 'all_zero':
      return t('err.all_zero');
    case 'busy':
      return t('err.busy');
    case 'file':
      return t('err.file', error.message);
    case 'internal':
      return t('err.internal', error.message);
    default:
      return error.message ? t('err.other', error.message) : t('engine.failed');
  }
}

export function download(name: string, data: Blob | string, type = 'text/plain'): void {
  const blob = typeof data === 'string' ? new Blob([data], { type: `${type};charset=utf-8` }) : data;
  const anchor = document.createElement('a');
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  say(t('copied'));
}

export async function pngOf(svg: string, factor = 2): Promise<Blob> {
  const image = new Image();
  const url = URL.createObjectURL(new Blob([svg], { type: 'image/svg+xml' }));
  try {
    await new Promise((done, failed) => {
      image.onload = done;
      image.onerror = failed;
      image.src = url;
    });
    const canvas = document.createElement('canvas');
    canvas.width = image.width * factor;
    canvas.height = image.height * factor;
    canvas.getContext('2d')!.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, failed) =>
      canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error('PNG'))), 'image/png'),
    );
  } finally {
    URL.revokeObjectURL(url);
  }
}

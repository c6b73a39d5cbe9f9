// What all rooms share: the engine, the theme, messages, and what the engine said about itself.
import { signal } from '@preact/signals';
import { EngineError, HttpEngine, type Engine, type Status } from './engine';
import { t } from './words';

export const online = signal(true);
export const engine: Engine = new HttpEngine('api/v1/', (yes) => { online.value = yes; });
export const status = signal<Status | null>(null);

export type Theme = 'auto' | 'light' | 'dark';
export const theme = signal<Theme>(((): Theme => {
  try {
    const kept = localStorage.getItem('attend.theme');
    return kept === 'light' || kept === 'dark' ? kept : 'auto';
  } catch { return 'auto'; }
})());
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
  } catch { /* closed storage: the choice lasts as long as the page */ }
  applyTheme();
}
if (typeof document !== 'undefined') {
  prefersDark?.addEventListener('change', applyTheme);
  applyTheme();
}

export const helpOpen = signal(false);
// What a message is about: it goes when its cause is gone (`hush`), and none outlives the screen it was said on.
export type Topic = 'number' | 'engine' | 'other';
export const toast = signal<{ text: string; tone: 'info' | 'error'; at: number; topic: Topic } | null>(null);
let said = 0;
export function say(text: string, tone: 'info' | 'error' = 'info', topic: Topic = 'other'): void {
  const at = ++said;
  toast.value = { text, tone, at, topic };
  setTimeout(() => { if (toast.value?.at === at) toast.value = null; }, tone === 'error' ? 9000 : 4000);
}
export function hush(topic?: Topic): void {
  if (toast.value && (topic === undefined || toast.value.topic === topic)) toast.value = null;
}
// An engine's refusal, and the end of it at its next answer.
export const complain = (error: unknown): void => say(explain(error), 'error', 'engine');

// One sentence for any failure; the engine's own words where it has some.
export function explain(error: unknown): string {
  if (error instanceof EngineError) return error.failure.kind === 'gone' ? t('engine.gone') : error.message || t('engine.failed');
  return error instanceof Error ? error.message : String(error);
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
    await new Promise((done, failed) => { image.onload = done; image.onerror = failed; image.src = url; });
    const canvas = document.createElement('canvas');
    canvas.width = image.width * factor;
    canvas.height = image.height * factor;
    canvas.getContext('2d')!.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, failed) => canvas.toBlob((blob) => blob ? done(blob) : failed(new Error('PNG')), 'image/png'));
  } finally {
    URL.revokeObjectURL(url);
  }
}

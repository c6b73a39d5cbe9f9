// Every string a reader sees, in both languages, in one table. `t('key')` gives the one of the current language; `{0}` are
// arguments. A missing half does not compile, and a test looks at the rest.
import { signal } from '@preact/signals';
import { shell } from './words/shell';
import { bench } from './words/bench';
import { learn } from './words/learn';
import { room } from './words/room';

export type Words = Record<string, readonly [english: string, chinese: string]>;
export type Language = 'en' | 'zh';

export const table = { ...shell, ...bench, ...learn, ...room };
export type Key = keyof typeof table;

function firstLanguage(): Language {
  try {
    const kept = localStorage.getItem('attend.language');
    if (kept === 'en' || kept === 'zh') return kept;
  } catch {
    /* storage may be closed to us; then the browser decides each time */
  }
  return navigator.languages
    ?.find((name) => /^(zh|en)/i.test(name))
    ?.toLowerCase()
    .startsWith('zh')
    ? 'zh'
    : 'en';
}

export const language = signal<Language>(typeof navigator === 'undefined' ? 'en' : firstLanguage());

export function t(key: Key, ...values: (string | number)[]): string {
  const text = table[key][language.value === 'zh' ? 1 : 0];
  return values.length ? text.replace(/\{(\d)\}/g, (_, i) => String(values[Number(i)] ?? '')) : text;
}

export function chooseLanguage(next: Language): void {
  language.value = next;
  document.documentElement.lang = next === 'zh' ? 'zh-CN' : 'en';
  try {
    localStorage.setItem('attend.language', next);
  } catch {
    /* as above */
  }
}

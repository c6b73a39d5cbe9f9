// How numbers are written: three decimals in place, full precision on hover, scientific where needed.

export function show(value: number | null | undefined, digits = 3): string {
  if (value === null || value === -Infinity) return '−∞';
  if (value === undefined || Number.isNaN(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e5 || size < 0.5 * 10 ** -digits) return value.toExponential(1).replace(/-/g, '−').replace('e+', 'e');
  const text = value.toFixed(digits);
  return (Number.isInteger(value) ? String(value) : text).replace('-', '−');
}

// What people type for a number: full-width digits (a Chinese input method types them), a typographic minus, a fraction, a decimal
// comma, digits in groups of three. NaN where it is none.
export function readNumber(text: string): number {
  const plain = text.normalize('NFKC').trim().replace(/[−–—]/g, '-').replace(/。/g, '.').replace(/[，、]/g, ',');
  const fraction = /^([^/]+)\/([^/]+)$/.exec(plain);
  if (fraction) return readNumber(fraction[1]) / readNumber(fraction[2]);
  const grouped = /^[+-]?[1-9]\d{0,2}([, ]\d{3})+(\.\d*)?$/.test(plain) ? plain.replace(/[, ]/g, '') : plain;
  const value = grouped.replace(/^([+-]?\d*),(\d+)$/, '$1.$2');
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(value) ? Number(value) : NaN;
}

// A number as it stands in a box to be typed over: seven digits, which is what float32 holds.
export const boxed = (value: number) => String(Number(value.toPrecision(7))).replace(/-/g, '−');

// As float32 stores it: the shortest decimal that reads back to the same bits.
export function plain(value: number): string {
  const single = Math.fround(value);
  for (let digits = 1; digits <= 9; ++digits) {
    const candidate = single.toPrecision(digits);
    if (Math.fround(Number(candidate)) === single) return String(Number(candidate));
  }
  return String(single);
}

// As a reader can compare it with what another program stores.
const words = new DataView(new ArrayBuffer(4));
export function exact(value: number | null): string {
  if (value === null) return '−∞';
  words.setFloat32(0, value);
  return `${plain(value)}  0x${words.getUint32(0).toString(16).padStart(8, '0')}`;
}

// The full number as a tooltip, worked out when somebody points at it: thousands of cells stand on a page.
export const fullOnHover = (value: number | null, before = '') => (event: { currentTarget: EventTarget | null }) => {
  (event.currentTarget as HTMLElement).title = before + exact(value);
};

export function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; ++unit; }
  return `${Number.isInteger(count) ? count : count.toFixed(count < 10 ? 2 : 1)} ${units[unit]}`;
}

export function count(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

export const shape = (m: unknown[][] | null | undefined) => m ? `${m.length} × ${m[0]?.length ?? 0}` : '';

// A row of a table as people type or paste it: commas, semicolons, tabs or spaces; brackets are ignored.
export function parseTable(text: string): { rows: number[][]; problem: { row: number; column: number; cell: string } | null } {
  const rows: number[][] = [];
  const lines = text.replace(/\]\s*,?\s*\[/g, '\n').replace(/[[\]]/g, '').split(/\r?\n/);
  for (const line of lines) {
    if (!line.trim()) continue;
    const separator = /[,;\t，；]/.test(line) ? /[,;\t，；]/ : /\s+/;
    const cells = line.trim().replace(/[,;，；]\s*$/, '').split(separator);
    const row: number[] = [];
    for (const cell of cells) {
      const trimmed = cell.trim();
      const value = readNumber(trimmed);
      if (!Number.isFinite(value)) return { rows, problem: { row: rows.length, column: row.length, cell: trimmed } };
      row.push(value);
    }
    rows.push(row);
  }
  const width = rows[0]?.length ?? 0;
  const bad = rows.findIndex((row) => row.length !== width);
  if (bad >= 0) return { rows, problem: { row: bad, column: rows[bad].length, cell: '' } };
  return { rows, problem: null };
}

export const toCsv = (m: (number | null)[][]) => m.map((row) => row.map((value) => value === null ? '-inf' : String(value)).join(',')).join('\n') + '\n';

// For what comes from outside: a whole number from low to high.
export const isWhole = (value: unknown, low: number, high: number): value is number => Number.isInteger(value) && (value as number) >= low && (value as number) <= high;

// How numbers are written: three decimals in place, full precision on hover, scientific where needed.

// `even`: a whole number gets its decimals, too, so that it stands like its neighbours. 0 stays 0: nothing else is exactly that.
export function show(value: number | null | undefined, digits = 3, even = false): string {
  if (value === null || value === -Infinity) return '−∞';
  if (value === undefined || Number.isNaN(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e5 || size < 0.5 * 10 ** -digits) return value.toExponential(1).replace(/-/g, '−').replace('e+', 'e');
  const text = value.toFixed(digits);
  return (Number.isInteger(value) && !even ? String(value) : text).replace('-', '−');
}

// Whether some of them have decimals, which then all are written with.
export const fractions = (values: (number | null)[]): boolean =>
  values.some((value) => value !== null && !Number.isInteger(value));

// What people type for a number: full-width digits (a Chinese input method types them), a typographic minus, a fraction, a decimal
// comma, digits in groups of three. NaN where it is none.
export function readNumber(text: string): number {
  const plain = text
    .normalize('NFKC')
    .trim()
    .replace(/[−–—]/g, '-')
    .replace(/。/g, '.')
    .replace(/[，、]/g, ',');
  const fraction = /^([^/]+)\/([^/]+)$/.exec(plain);
  if (fraction) return readNumber(fraction[1]) / readNumber(fraction[2]);
  const grouped = /^[+-]?[1-9]\d{0,2}([, ]\d{3})+(\.\d*)?$/.test(plain) ? plain.replace(/[, ]/g, '') : plain;
  const value = grouped.replace(/^([+-]?\d*),(\d+)$/, '$1.$2');
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(value) ? Number(value) : NaN;
}

// A number as it stands in a box to be typed over: seven digits, which is what float32 holds.
export const boxed = (value: number) => String(Number(value.toPrecision(7))).replace(/-/g, '−');

// As one writes a number by hand: no zeros at the end.
export const short = (value: number): string =>
  show(value)
    .replace(/(\.\d*?)0+$/, '$1')
    .replace(/\.$/, '');

// What float32 ends at.
export const largestFloat = 3.4028234663852886e38;

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
export const fullOnHover =
  (value: number | null, before = '') =>
  (event: { currentTarget: EventTarget | null }) => {
    (event.currentTarget as HTMLElement).title = before + exact(value);
  };

export function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    ++unit;
  }
  return `${Number.isInteger(count) ? count : count.toFixed(count < 10 ? 2 : 1)} ${units[unit]}`;
}

export function count(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

export const shape = (m: unknown[][] | null | undefined) => (m ? `${m.length} × ${m[0]?.length ?? 0}` : '');

// Why a text is no table: a cell that is no number, or (`length`) a row that is shorter or longer than the first.
export interface TableProblem {
  row: number;
  column: number;
  cell: string;
  length?: { found: number; first: number };
}

// A table as people type or paste it: commas, semicolons, tabs or spaces between the cells, perhaps quoted; a first line of names
// and brackets are left out. Where tabs or semicolons stand between cells a comma belongs to the number, as in much of Europe;
// where a semicolon ends a row ([1, 2; 3, 4]) it does so.
export function parseTable(text: string): { rows: number[][]; problem: TableProblem | null } {
  const plain = text.replace(/；/g, ';').replace(/，/g, ',');
  const single = (cell: string) => Number.isFinite(readNumber(cell));
  // Separators inside quotes belong to the cell.
  const cut = (line: string, separator: RegExp) =>
    line
      .split(/("[^"]*")/)
      .flatMap((part, i) =>
        i % 2 ? [part] : part.split(separator).flatMap((piece, j) => (j ? ['\n', piece] : [piece])),
      )
      .join('')
      .split('\n')
      .map((cell) => cell.trim().replace(/^"([^"]*)"$/, '$1'));
  const cellsOf = (line: string) => {
    const bare = line.replace(/"[^"]*"/g, '');
    return cut(
      line.trim().replace(/[,;]\s*$/, ''),
      /\t/.test(bare) ? /\t/ : /;/.test(bare) ? /;/ : /,/.test(bare) ? /,/ : /\s+/,
    );
  };
  const isName = (cell: string) => cell !== '' && !/\d|∞|^[-+−]?(nan|inf(inity)?|null|none|na)$/i.test(cell);
  let body = plain
    .replace(/\]\s*,?\s*\[/g, '\n')
    .replace(/[[\]]/g, '')
    .split(/\r?\n/)
    .filter((line) => line.trim());
  if (body.length > 1 && cellsOf(body[0]).every(isName)) body = body.slice(1);
  const ends =
    /;/.test(plain) &&
    (/[[\]]/.test(plain) ||
      !body.every((line) =>
        line.split(';').every((cell) => !cell.trim() || single(cell.trim().replace(/^"(.*)"$/, '$1'))),
      ));
  const lines = ends ? body.flatMap((line) => line.split(';')).filter((line) => line.trim()) : body;
  const rows: number[][] = [];
  for (const line of lines) {
    const row: number[] = [];
    for (const cell of cellsOf(line)) {
      if (!single(cell)) return { rows, problem: { row: rows.length, column: row.length, cell } };
      row.push(readNumber(cell));
    }
    rows.push(row);
  }
  const width = rows[0]?.length ?? 0;
  const bad = rows.findIndex((row) => row.length !== width);
  if (bad >= 0)
    return {
      rows,
      problem: { row: bad, column: rows[bad].length, cell: '', length: { found: rows[bad].length, first: width } },
    };
  return { rows, problem: null };
}

export const toCsv = (m: (number | null)[][]) =>
  m.map((row) => row.map((value) => (value === null ? '-inf' : String(value))).join(',')).join('\n') + '\n';

// For what comes from outside: a whole number from low to high.
export const isWhole = (value: unknown, low: number, high: number): value is number =>
  Number.isInteger(value) && (value as number) >= low && (value as number) <= high;

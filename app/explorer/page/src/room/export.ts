// Pictures and tables of the chosen head, and the whole experiment as a file.
import { light, ramp, weightColour } from '../colours';
import { toCsv } from '../numbers';
import { axes, base, info, label, linkState, room, site, tile } from './state';

export async function headMatrix(): Promise<number[][]> {
  const a = site.value!, { queries, keys } = axes(a, base.value);
  const got = await tile(room.value, a.name, [room.value.at.head], 'weights', [0, queries.length], [0, keys.length], 1);
  return queries.map((_, i) => Array.from(got.data.subarray(i * got.columns, (i + 1) * got.columns)));
}

export async function matrixCsv(): Promise<string> {
  const a = site.value!, { queries, keys } = axes(a, base.value);
  const quote = (text: string) => `"${text.replace(/"/g, '""')}"`;
  const rows = toCsv(await headMatrix()).trimEnd().split('\n');
  return [`${quote('')},${keys.map((token) => quote(label(token))).join(',')}`, ...rows.map((line, i) => `${quote(label(queries[i]))},${line}`)].join('\n') + '\n';
}

export async function matrixSvg(): Promise<string> {
  const a = site.value!, r = room.value, { queries, keys } = axes(a, base.value);
  const m = await headMatrix();
  const cell = Math.max(6, Math.min(26, Math.floor(700 / Math.max(queries.length, keys.length))));
  const escape = (text: string) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const wide = (tokens: { text: string }[]) => Math.max(24, ...tokens.map((token) => [...token.text].reduce((sum, c) => sum + (c > '\u2e80' ? 13 : 7.5), 8)));
  const left = wide(queries) + 16, top = wide(keys) + 24, width = left + keys.length * cell + 16, height = top + queries.length * cell + 40;
  let body = '';
  keys.forEach((token, j) => { body += `<text transform="translate(${left + j * cell + cell / 2 + 4} ${top - 8}) rotate(-90)" fill="${light.hues.k}">${escape(label(token))}</text>`; });
  queries.forEach((token, i) => {
    body += `<text x="${left - 8}" y="${top + i * cell + cell / 2 + 4}" text-anchor="end" fill="${light.hues.q}">${escape(label(token))}</text>`;
    m[i].forEach((w, j) => { body += `<rect x="${left + j * cell}" y="${top + i * cell}" width="${cell - 0.5}" height="${cell - 0.5}" fill="${a.causal && j > i ? 'url(#masked)' : weightColour(light, ramp(w))}"><title>${escape(label(token))} ← ${escape(label(keys[j]))}: ${w}</title></rect>`; });
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${Math.ceil(width)}" height="${height}" viewBox="0 0 ${Math.ceil(width)} ${height}" font-family="system-ui, 'PingFang SC', 'Noto Sans SC', sans-serif" font-size="12" fill="${light.ink}">` +
    `<defs><pattern id="masked" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6 6 0" stroke="${light.faint}" stroke-width="0.8"/></pattern></defs><rect width="100%" height="100%" fill="#fff"/>${body}` +
    `<text x="16" y="${height - 14}" font-size="11" fill="${light.faint}">${escape(info.value!.name)} · ${a.name} · head ${r.at.head + 1}${r.edits.length ? ` · ${r.edits.length} edits` : ''} · colour: square root of the weight</text></svg>`;
}

export const experiment = () => JSON.stringify({ attend: 'experiment', version: 1, fingerprint: info.value?.fingerprint, state: linkState(room.value) }, null, 1);

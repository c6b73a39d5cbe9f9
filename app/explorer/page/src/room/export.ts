// Pictures and tables of the chosen head, and the whole experiment as a file.
import { light, ramp, weightColour } from '../colours';
import type { Token } from '../engine';
import { plain, toCsv } from '../numbers';
import { t } from '../words';
import { describe } from './describe';
import { axes, base, headName, inForce, info, label, linkState, masks, placed, room, site, tile } from './state';

const mostSaved = 512 * 512;

export async function headMatrix(): Promise<number[][]> {
  const a = site.value!,
    { queries, keys } = axes(a, base.value);
  // What is saved is exact and whole; beyond this it is no picture that anybody opens.
  if (queries.length * keys.length > mostSaved)
    throw new Error(t('room.save.large', queries.length, keys.length, Math.sqrt(mostSaved)));
  const got = await tile(room.value, a.name, [room.value.at.head], 'weights', [0, queries.length], [0, keys.length], 1);
  return queries.map((_, i) => Array.from(got.data.subarray(i * got.columns, (i + 1) * got.columns)));
}

export async function matrixCsv(): Promise<string> {
  const a = site.value!,
    { queries, keys } = axes(a, base.value);
  const quote = (text: string) => `"${text.replace(/"/g, '""')}"`;
  const rows = toCsv(await headMatrix())
    .trimEnd()
    .split('\n');
  return (
    [
      `${quote('')},${keys.map((token) => quote(label(token))).join(',')}`,
      ...rows.map((line, i) => `${quote(label(queries[i]))},${line}`),
    ].join('\n') + '\n'
  );
}

export async function matrixSvg(): Promise<string> {
  const a = site.value!,
    r = room.value,
    { queries, keys } = axes(a, base.value),
    edits = inForce(r.edits);
  const m = await headMatrix();
  const cell = Math.max(6, Math.min(26, Math.floor(700 / Math.max(queries.length, keys.length))));
  const escape = (text: string) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const wide = (tokens: { text: string }[]) =>
    Math.max(24, ...tokens.map((token) => [...token.text].reduce((sum, c) => sum + (c > '\u2e80' ? 13 : 7.5), 8)));
  const left = wide(queries) + 16,
    top = wide(keys) + 24,
    width = left + keys.length * cell + 16,
    height = top + queries.length * cell + 40;
  let body = '';
  keys.forEach((token, j) => {
    body += `<text transform="translate(${left + j * cell + cell / 2 + 4} ${top - 8}) rotate(-90)" fill="${light.hues.k}">${escape(label(token))}</text>`;
  });
  queries.forEach((token, i) => {
    body += `<text x="${left - 8}" y="${top + i * cell + cell / 2 + 4}" text-anchor="end" fill="${light.hues.q}">${escape(label(token))}</text>`;
    m[i].forEach((w, j) => {
      body += `<rect x="${left + j * cell}" y="${top + i * cell}" width="${cell - 0.5}" height="${cell - 0.5}" fill="${masks(a, i, j) ? 'url(#masked)' : weightColour(light, ramp(w))}"><title>${escape(placed(queries, i))} ← ${escape(placed(keys, j))}: ${w}</title></rect>`;
    });
  });
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${Math.ceil(width)}" height="${height}" viewBox="0 0 ${Math.ceil(width)} ${height}" font-family="system-ui, 'PingFang SC', 'Noto Sans SC', sans-serif" font-size="12" fill="${light.ink}">` +
    `<defs><pattern id="masked" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6 6 0" stroke="${light.faint}" stroke-width="0.8"/></pattern></defs><rect width="100%" height="100%" fill="#fff"/>${body}` +
    `<text x="16" y="${height - 14}" font-size="11" fill="${light.faint}">${escape(info.value!.name)} · ${headName(a.name, r.at.head)}${edits.length ? ` · ${t('export.edits', edits.length)}` : ''} · ${t('export.colour')}</text></svg>`
  );
}

// NumPy's format 1.0: little-endian float32, [queries][keys].
export async function matrixNpy(): Promise<Blob> {
  const m = await headMatrix();
  const shape = [m.length, m[0]?.length ?? 0];
  let header = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape.join(', ')}), }`;
  header += ' '.repeat(63 - ((10 + header.length) % 64)) + '\n';
  const bytes = new Uint8Array(10 + header.length + 4 * shape[0] * shape[1]),
    view = new DataView(bytes.buffer);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0]);
  view.setUint16(8, header.length, true);
  bytes.set(new TextEncoder().encode(header), 10);
  m.flat().forEach((value, i) => view.setFloat32(10 + header.length + 4 * i, value, true));
  return new Blob([bytes], { type: 'application/octet-stream' });
}

// One line in Pharaoh's format: i-j where target token j, as the row that predicts it, gives source token i its largest weight.
// Both count tokens of the text; links to marks (language, end) are left out.
export async function alignmentLine(): Promise<string> {
  const { queries, keys } = axes(site.value!, base.value);
  const m = await headMatrix();
  const places = (tokens: Token[]) => {
    let next = 0;
    return tokens.map((token) => (token.kind === 'special' ? null : next++));
  };
  const sources = places(keys),
    targets = places(queries),
    links: string[] = [];
  for (let i = 0; i + 1 < queries.length; ++i) {
    const source = sources[m[i].indexOf(Math.max(...m[i]))],
      target = targets[i + 1];
    if (source !== null && target !== null) links.push(`${source}-${target}`);
  }
  return links.join(' ') + '\n';
}

// A page of its own that opens from disk without a network: the picture with its text, every number, and the experiment.
export async function matrixHtml(): Promise<string> {
  const a = site.value!,
    r = room.value,
    { queries, keys } = axes(a, base.value),
    m = await headMatrix();
  const escape = (text: string) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const edits = inForce(r.edits);
  const title = `${info.value!.name} · ${headName(a.name, r.at.head)}`;
  const { source, target, text } = base.value!.input;
  const data = {
    attention: a.name,
    head: r.at.head,
    queries: queries.map(label),
    keys: keys.map(label),
    weights: m,
    experiment: JSON.parse(experiment()),
  };
  return (
    `<!doctype html>\n<html lang="${document.documentElement.lang}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
    `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"><title>${escape(title)}</title>` +
    `<style>body{font:16px/1.5 system-ui,"PingFang SC","Noto Sans SC","Microsoft YaHei",sans-serif;color:${light.ink};margin:32px auto;max-width:960px;padding:0 16px}h1{font-size:20px}.scroll{overflow-x:auto}table{border-collapse:collapse;font:12px/1.4 ui-monospace,monospace}td,th{padding:2px 6px;text-align:right;white-space:nowrap}p{white-space:pre-wrap}summary{cursor:pointer}</style>` +
    `<h1>${escape(title)}</h1>${[source, target, text]
      .filter((part) => part !== undefined)
      .map((part) => `<p>${escape(part!)}</p>`)
      .join('')}` +
    `${edits.length ? `<ol>${edits.map((e) => `<li>${escape(e.name ?? describe(e))}</li>`).join('')}</ol>` : ''}<div class="scroll">${await matrixSvg()}</div>` +
    `<details><summary>${escape(t('room.html.numbers'))}</summary><div class="scroll"><table><tr><th></th>${keys.map((token) => `<th scope="col">${escape(label(token))}</th>`).join('')}</tr>` +
    `${queries.map((token, i) => `<tr><th scope="row">${escape(label(token))}</th>${m[i].map((w) => `<td>${plain(w)}</td>`).join('')}</tr>`).join('')}</table></div></details>` +
    `<script type="application/json" id="attend">${JSON.stringify(data).replace(/</g, '\\u003c')}</script></html>\n`
  );
}

export const experiment = () =>
  JSON.stringify(
    { attend: 'experiment', version: 1, fingerprint: info.value?.fingerprint, state: linkState(room.value) },
    null,
    1,
  );

// 4,096 tokens, 144 heads: heap, nodes, the engine's memory and the time of a tile stay small, and tiles are exact.
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { api, browse, busyness, open, percentile, poet, random, record, serve } from './common.mjs';
import { readModel } from './reference.mjs';

const tokens = 4096,
  layers = 12,
  heads = 12,
  width = 96;

// A model made for the test (random weights, the poet's characters), with the layers and heads of a small GPT.
function longModel(folder) {
  mkdirSync(folder, { recursive: true });
  const inner = 96,
    draw = random(3);
  const config = JSON.parse(readFileSync(join(poet, 'config.json'), 'utf8'));
  Object.assign(config, {
    width,
    heads,
    inner_width: inner,
    max_positions: 4200,
    dropout: 0,
    attention_dropout: 0,
    inner_dropout: 0,
  });
  config.decoder.layers = layers;
  const { vocabulary } = config.decoder;
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  const shapes = { 'decoder.embedding.weight': [vocabulary, width], 'decoder.norm.gain': [width] };
  for (let l = 0; l < layers; ++l)
    Object.assign(shapes, {
      [`decoder.${l}.self.norm.gain`]: [width],
      [`decoder.${l}.self.query_key_value.weight`]: [3 * width, width],
      [`decoder.${l}.self.output.weight`]: [width, width],
      [`decoder.${l}.feed_forward.norm.gain`]: [width],
      [`decoder.${l}.feed_forward.inner.weight`]: [inner, width],
      [`decoder.${l}.feed_forward.gate.weight`]: [inner, width],
      [`decoder.${l}.feed_forward.output.weight`]: [width, inner],
    });
  const header = {},
    parts = [];
  let offset = 0;
  for (const name of Object.keys(shapes).sort()) {
    const count = shapes[name].reduce((a, b) => a * b, 1),
      data = new Float32Array(count);
    for (let i = 0; i < count; ++i)
      data[i] = name.endsWith('gain') ? 1 : (draw() - 0.5) * (name.includes('query_key') ? 0.6 : 0.2);
    header[name] = { dtype: 'F32', shape: shapes[name], data_offsets: [offset, offset + 4 * count] };
    parts.push(Buffer.from(data.buffer));
    offset += 4 * count;
  }
  const original = readFileSync(join(poet, 'model.safetensors'));
  header.__metadata__ = JSON.parse(
    original.subarray(8, 8 + Number(original.readBigUInt64LE(0))).toString(),
  ).__metadata__;
  let text = JSON.stringify(header);
  text += ' '.repeat((8 - (text.length % 8)) % 8);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(join(folder, 'model.safetensors'), Buffer.concat([length, Buffer.from(text), ...parts]));
  for (const name of ['task.json', 'tokenizer.json']) writeFileSync(join(folder, name), readFileSync(join(poet, name)));
}

// One row of a head of the first layer, in float64 from the file: RMSNorm, projections, rotary positions, softmax.
function firstLayerRow(m, ids, head, query) {
  const d = width / heads,
    table = m.tensors['decoder.embedding.weight'].data,
    w = m.tensors['decoder.0.self.query_key_value.weight'].data;
  const project = (position, part) => {
    const x = table.subarray(ids[position] * width, (ids[position] + 1) * width);
    const size = Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / width + m.config.norm_epsilon);
    const out = Array.from({ length: d }, (_, i) =>
      x.reduce((sum, value, c) => sum + (value / size) * w[((part * heads + head) * d + i) * width + c], 0),
    );
    return out.map((value, i) => {
      const at = i % (d / 2),
        angle = position * m.config.position_base ** ((-2 * at) / d);
      return i < d / 2
        ? value * Math.cos(angle) - out[i + d / 2] * Math.sin(angle)
        : value * Math.cos(angle) + out[at] * Math.sin(angle);
    });
  };
  const q = project(query, 0),
    scores = [];
  for (let j = 0; j <= query; ++j) {
    const k = project(j, 1);
    scores.push(q.reduce((sum, value, i) => sum + value * k[i], 0) / Math.sqrt(d));
  }
  const top = Math.max(...scores),
    e = scores.map((s) => Math.exp(s - top)),
    sum = e.reduce((a, b) => a + b, 0);
  return e.map((value) => value / sum);
}

const memory = (pid, name) =>
  Number(new RegExp(`${name}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
const quiet = (page) =>
  page.waitForFunction(() => document.documentElement.dataset.pending === '0', null, { timeout: 400000, polling: 100 });

test('4,096 tokens x 144 heads', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attend-long-'));
  let own, browser;
  try {
    longModel(join(folder, 'long'));
    own = await serve(join(folder, 'long'));
    browser = await browse();
    const page = await open(browser, own, '#/model');
    page.setDefaultTimeout(120000);
    await page.waitForSelector('#source-text');
    await quiet(page);
    const before = memory(own.pid, 'VmRSS');
    const text = '明月几时有把酒问青天不知天上宫阙今夕是何年'.repeat(205).slice(0, tokens - 1);
    await page.fill('#source-text', text);
    const begin = Date.now();
    await page.click('#run');
    await page.waitForSelector('.live', { timeout: 400000 });
    await page.waitForSelector('.minimap', { timeout: 400000 });
    await quiet(page);
    record('4,096 tokens read, row, matrix and wall on the page', `${((Date.now() - begin) / 1000).toFixed(1)} s`);
    const read = (await api(own, 'tokenize', { model: 'long', input: { text } })).text.map((token) => token.id);
    assert.equal(read.length, tokens);
    const meter = await page.context().newCDPSession(page);
    await meter.send('Performance.enable');
    const metrics = async () =>
      Object.fromEntries((await meter.send('Performance.getMetrics')).metrics.map((m) => [m.name, m.value]));

    // Pan over exact cells: what each new tile takes from request to answer, and what a step of the pan costs the page.
    await page.focus('.map-frame');
    for (let i = 0; i < 7; ++i) await page.keyboard.press('+');
    await quiet(page);
    assert.match(await page.textContent('.map-zoom'), /exact/);
    await page.evaluate(() => {
      performance.setResourceTimingBufferSize(5000);
      performance.clearResourceTimings();
    });
    const box = await page.locator('.map-frame canvas').first().boundingBox();
    let cost = (await metrics()).TaskDuration,
      steps = 0;
    for (let pan = 0; pan < 12; ++pan) {
      await page.mouse.move(box.x + box.width - 20, box.y + box.height - 20);
      await page.mouse.down();
      for (let i = 1; i <= 10; ++i, ++steps)
        await page.mouse.move(box.x + box.width - 20 - i * 36, box.y + box.height - 20 - i * 36);
      await page.mouse.up();
      await quiet(page);
    }
    cost = (((await metrics()).TaskDuration - cost) * 1000) / steps;
    const tiles = (
      await page.evaluate(() =>
        performance
          .getEntriesByType('resource')
          .filter((e) => e.name.endsWith('/tile') && e.decodedBodySize === 256 * 256 * 4)
          .map((e) => e.duration),
      )
    ).sort((a, b) => a - b);
    assert.ok(tiles.length >= 6, `${tiles.length} tiles`);
    record(
      'a tile of 256 x 256 exact cells, request to answer',
      `median ${percentile(tiles, 0.5).toFixed(0)} ms, 95 % ${percentile(tiles, 0.95).toFixed(0)} ms (${tiles.length} tiles)`,
    );
    record('one step of panning, processor time of the page', `${cost.toFixed(1)} ms`);

    for (const head of ['decoder.0.self.0', 'decoder.5.self.3', 'decoder.11.self.11']) {
      await page.click(`[data-head="${head}"]`);
      await quiet(page);
    }
    await meter.send('HeapProfiler.collectGarbage');
    const heap = (await metrics()).JSHeapUsedSize,
      nodes = await page.evaluate(() => document.querySelectorAll('*').length);
    record('page heap at 4,096 tokens x 144 heads', `${(heap / 1e6).toFixed(0)} MB`);
    record('elements in the page', String(nodes));

    // What stands under the pointer is the engine's number of that cell, and any tile is exact.
    const cell = await page.$eval('.map-value b', (b) => ({
      at: b.dataset.cell.split(',').map(Number),
      value: Number(b.dataset.value),
    }));
    const row = await api(own, 'row', {
      model: 'long',
      input: { text },
      edits: [],
      attention: 'decoder.11.self',
      head: 11,
      query: cell.at[0],
    });
    assert.ok(Math.abs(cell.value - row.weights[cell.at[1]]) <= 1e-6, 'a cell of the map');
    const m = readModel(join(folder, 'long')),
      draw = random(5);
    let worst = 0;
    for (let i = 0; i < 6; ++i) {
      const head = Math.floor(draw() * heads),
        query = 1 + Math.floor(draw() * (tokens - 1)),
        key = Math.floor(draw() * (query + 1));
      const first = Math.max(0, Math.min(tokens - 256, key - 100)),
        top = Math.max(0, Math.min(tokens - 256, query - 50));
      const reply = await fetch(`${own.address}api/v1/tile`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({
          model: 'long',
          input: { text },
          edits: [],
          attention: 'decoder.0.self',
          heads: [head],
          what: 'weights',
          queries: [top, top + 256],
          keys: [first, first + 256],
        }),
      });
      const data = new Float32Array(await reply.arrayBuffer()),
        right = firstLayerRow(m, read, head, query);
      for (let j = 0; j < 256; ++j)
        worst = Math.max(worst, Math.abs(data[(query - top) * 256 + j] - (right[first + j] ?? 0)));
    }
    record('cells of tiles against a float64 pass, largest difference', worst.toExponential(1));
    assert.ok(worst <= 1e-6, `${worst}`);
    const extra = memory(own.pid, 'VmHWM') - before;
    record("the engine's memory beyond the loaded model, at most", `${(extra / 1e6).toFixed(0)} MB`);

    assert.ok(heap <= 500e6, `${heap}`);
    assert.ok(nodes <= 5000, `${nodes} nodes`);
    assert.ok(extra <= 200e6, `${extra}`);
    assert.ok(percentile(tiles, 0.5) <= 60 * busyness(8), `${tiles}`);
    assert.deepEqual(page.problems, []);
    assert.deepEqual(page.outside, []);
  } finally {
    await browser?.close();
    await own?.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

// The shipped poet with more positions: rotary ones are not stored.
test('a map of reduced cells says the weight of one cell, and zooms about the chosen one', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attend-reduced-'));
  let own, browser;
  try {
    cpSync(poet, join(folder, 'poet'), { recursive: true });
    const config = JSON.parse(readFileSync(join(folder, 'poet/config.json'), 'utf8'));
    writeFileSync(join(folder, 'poet/config.json'), JSON.stringify({ ...config, max_positions: 2048 }));
    own = await serve(join(folder, 'poet'));
    browser = await browse();
    const page = await open(browser, own, '#/model');
    await page.waitForSelector('.live');
    await quiet(page);
    const text = '明月几时有把酒问青天不知天上宫阙今夕是何年'.repeat(72).slice(0, 1499);
    await page.fill('#source-text', text);
    await page.click('#run');
    await page.waitForSelector('.minimap', { timeout: 60000 });
    await quiet(page);
    assert.match(await page.textContent('.map-zoom'), /2 × 2/);
    const attention = await page.textContent('.head-name code');
    const weight = async (query, key) =>
      (await api(own, 'row', { model: 'poet', input: { text }, edits: [], attention, head: 0, query })).weights[key];
    const shown = () =>
      page.$eval('.map-value b', (b) => ({ cell: b.dataset.cell, value: b.dataset.value, text: b.textContent }));
    const map = page.locator('.map-frame canvas').first(),
      zoom = 460 / 1500;
    const place = async () => {
      await map.scrollIntoViewIfNeeded();
      return map.boundingBox();
    };
    const to = async (query, key) => {
      const box = await place();
      return [box.x + (key + 0.5) * zoom, box.y + (query + 0.5) * zoom];
    };
    for (const act of ['hover', 'click']) {
      for (const [row, column] of [
        [1200, 500],
        [700, 690],
        [1470, 30],
      ]) {
        if (act === 'hover') await page.mouse.move(...(await to(row, column)));
        else await page.mouse.click(...(await to(row, column)));
        await quiet(page);
        const { cell, value, text: said } = await shown(),
          [query, key] = cell.split(',').map(Number),
          wanted = await weight(query, key);
        assert.ok(Math.abs(query - row) <= 4 && Math.abs(key - column) <= 4, `${act} ${cell} for ${row},${column}`);
        assert.doesNotMatch(said, /∞|…/, `${act} ${cell}`);
        assert.notEqual(value, '');
        assert.ok(Math.abs(Number(value) - wanted) <= 1e-6, `${act} ${cell}: ${value} against ${wanted}`);
      }
    }
    await page.mouse.click(...(await to(1200, 500)));
    await page.mouse.move(0, 0);
    await quiet(page);
    const spoken = await page.textContent('#map-cell');
    assert.match(spoken, /\((119[6-9]|120[0-4])\) ← .*\((49[6-9]|50[0-4])\): [0-9.e−]+$/);
    // The frame of the view on the small map; the chosen cell stays inside of it.
    const [query, key] = (await shown()).cell.split(',').map(Number);
    for (const name of ['Zoom in', 'Zoom out'])
      assert.equal(await page.locator(`.map-zoom [aria-label="${name}"]`).count(), 1);
    const inside = async () => {
      const found = [],
        box = await place();
      await page.mouse.move(box.x + 2, box.y + 2);
      await quiet(page);
      found.push((await shown()).cell);
      await page.mouse.move(box.x + box.width - 4, box.y + 456);
      await quiet(page);
      found.push((await shown()).cell);
      await page.mouse.move(0, 0);
      const [[top, left], [bottom, right]] = found.map((cell) => cell.split(',').map(Number));
      return { top, left, bottom, right };
    };
    for (let press = 0; press < 4; ++press) {
      await page.click('.map-zoom [aria-label="Zoom in"]');
      await quiet(page);
      const view = await inside();
      assert.ok(
        view.top <= query && query <= view.bottom && view.left <= key && key <= view.right,
        `${query},${key} in ${JSON.stringify(view)}`,
      );
    }
    await page.focus('.map-frame');
    await page.keyboard.press('+');
    await quiet(page);
    const view = await inside();
    assert.ok(
      view.top <= query && query <= view.bottom && view.left <= key && key <= view.right,
      `${query},${key} in ${JSON.stringify(view)}`,
    );
    assert.deepEqual(page.problems, []);
    await page.context().close();
  } finally {
    await browser?.close();
    await own?.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

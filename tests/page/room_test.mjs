// The model room: numbers against an independent float64 pass, linked views, edits beside the base run, undo to the same bits,
// links and files, all families, what matters, generation.
import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import test, { after, before } from 'node:test';
import {
  api,
  browse,
  busyness,
  open,
  percentile,
  poet,
  random,
  record,
  serve,
  settled,
  translator,
} from './common.mjs';
import { forward, readModel } from './reference.mjs';
import {
  choose,
  enter,
  logits,
  near,
  numbers,
  query,
  raise,
  sentence,
  slider,
  tokensOf,
  vector,
  weights,
} from './roomwork.mjs';

let server, browser;
const model = readModel(translator);
// The logits of an edited run on the page against those of the textbook: all that are shown, at least the five that come first.
const compare = (shown, wanted) => {
  const numbers = Object.entries(shown).filter(([, logit]) => !Number.isNaN(logit));
  assert.ok(numbers.length >= 5, `${numbers.length} edited logits on the page`);
  for (const [id, logit] of numbers) near(logit, wanted[id], 2e-5 * Math.max(1, Math.abs(logit)), `edited logit ${id}`);
  return numbers;
};
before(async () => {
  server = await serve(translator);
  browser = await browse();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

test('500 random cells of the page equal an independent float64 pass within 1e-5', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  const ids = await tokensOf(server, page),
    wanted = forward(model, ids.source, ids.target);
  const draw = random(11),
    width = model.config.width / model.config.heads;
  let cells = 0,
    worst = 0;
  const check = (shown, right, what) => {
    ++cells;
    const allowed = 1e-5 * Math.max(1, Math.abs(right));
    worst = Math.max(worst, Math.abs(shown - right) / Math.max(1, Math.abs(right)));
    near(shown, right, allowed, what);
  };
  for (const tab of ['cross', 'encoder', 'decoder', 'cross', 'decoder', 'encoder']) {
    const layer = Math.floor(draw() * 4),
      head = Math.floor(draw() * 4);
    const name = await choose(page, tab, layer, head);
    const at = wanted.attentions[name],
      rows = at.q.length;
    await query(page, Math.floor(draw() * rows));
    const i = Number(await page.getAttribute('.token.chosen-q', 'data-token'));
    const key = Math.floor(draw() * (tab === 'decoder' ? i + 1 : at.k.length));
    await page.click(`.row-column[data-key="${key}"] .key-label`);
    await settled(page);
    const cut = (m, r) => m[r].slice(head * width, (head + 1) * width),
      h = at.heads[head];
    (await vector(page, 'query')).forEach((value, x) => check(value, cut(at.q, i)[x], `${name} q ${i} ${x}`));
    (await vector(page, 'key')).forEach((value, x) => check(value, cut(at.k, key)[x], `${name} k ${key} ${x}`));
    (await vector(page, 'value')).forEach((value, x) => check(value, cut(at.v, key)[x], `${name} v ${key} ${x}`));
    (await vector(page, 'mix')).forEach((value, x) => check(value, h.output[i][x], `${name} mix ${x}`));
    const [product, scaled, score, weight] = await numbers(page);
    check(product, h.products[i][key], `${name} product`);
    check(scaled, h.scaled[i][key], `${name} scaled`);
    check(score, h.scores[i][key], `${name} score`);
    check(weight, h.weights[i][key], `${name} weight`);
    (await weights(page)).forEach((value, j) => check(value, h.weights[i][j], `${name} weight ${i} ${j}`));
    if (tab !== 'encoder')
      for (const [id, logit] of Object.entries(await logits(page))) check(logit, wanted.logits[i][id], `logit ${id}`);
  }
  assert.ok(cells >= 500, `${cells} cells`);
  record(
    'cells of the page against an independent float64 pass',
    `${cells} cells, largest difference ${worst.toExponential(1)}`,
  );
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

test('one selection in all views: text, row and matrix show the same weights, and tabs keep it', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'cross', 3, 1);
  await query(page, 2);
  const row = await weights(page);
  near(
    row.reduce((a, b) => a + b, 0),
    1,
    1e-6,
    'row sum',
  );
  const coloured = await page
    .locator('.words')
    .first()
    .locator('.token')
    .evaluateAll((tokens) => tokens.map((token) => Number(token.dataset.weight)));
  assert.deepEqual(coloured, row);
  await page.click('#tabs [data-value=decoder]');
  await settled(page);
  assert.equal(await page.getAttribute('.thumb.now', 'data-head'), 'decoder.3.self.1');
  assert.equal(await page.getAttribute('.token.chosen-q', 'data-token'), '2');
  const causal = await weights(page);
  assert.ok(
    causal.slice(3).every((w) => w === 0),
    'the future weighs exactly 0',
  );
  await page.click('.segmented [data-value=lines]');
  await page.waitForSelector('.lines .thread.now');
  await page.context().close();
});

test('hovering a target word colours the source by its row', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'cross', 2, 0);
  const ids = await tokensOf(server, page),
    wanted = forward(model, ids.source, ids.target);
  for (const i of [1, 3]) {
    await page.hover(`[role=listbox] >> nth=1 >> [data-token="${i}"]`);
    await settled(page);
    await page.waitForFunction(
      (w) => Math.abs(Number(document.querySelector('.words .token').dataset.weight) - w) < 1e-5,
      wanted.attentions['decoder.2.cross'].heads[0].weights[i][0],
    );
  }
  await page.context().close();
});

test('an edit: base beside edited, equal to the textbook and to the engine; undo gives the same bits', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  const name = await choose(page, 'cross', 3, 0);
  await query(page, 1);
  const before = { weights: await weights(page), logits: await logits(page), mix: await vector(page, 'mix') };
  await page.click('.row-column[data-key="2"] .key-label');
  const unedited = (await numbers(page))[2];
  await raise(page, 2, 7);
  const score = (await numbers(page))[2];
  near(score, unedited + 7, 1e-3, 'seven quick steps all count');
  const ids = await tokensOf(server, page);
  const edit = { kind: 'set', attention: name, head: 0, query: 1, key: 2, value: score };
  const wanted = forward(model, ids.source, ids.target, [edit]);
  (await weights(page)).forEach((w, j) =>
    near(w, wanted.attentions[name].heads[0].weights[1][j], 1e-5, `edited weight ${j}`),
  );
  const edited = await logits(page, true);
  const shown = compare(edited, wanted.logits[1]);
  assert.ok(
    shown.some(([id, logit]) => Math.abs(logit - before.logits[id]) > 1e-4),
    'the edit reached the logits',
  );
  assert.deepEqual(await logits(page), before.logits);
  assert.equal(await page.locator('.edits li').count(), 1);
  for (let i = 0; i < 5 && (await page.locator('.edits li').count()); ++i) {
    await page.click('#undo');
    await settled(page);
  }
  assert.deepEqual(
    { weights: await weights(page), logits: await logits(page), mix: await vector(page, 'mix') },
    before,
  );
  await page.context().close();
});

test('dragging by pointer: the next tokens follow within 150 ms', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'cross', 3, 0);
  await query(page, 1);
  await slider(page, 2).scrollIntoViewIfNeeded();
  const box = await slider(page, 2).boundingBox(),
    x = box.x + box.width / 2,
    y = box.y + box.height / 2;
  await page.mouse.move(x, y);
  await page.mouse.down();
  await page.mouse.move(x, y - 8, { steps: 2 });
  const waits = [];
  for (let i = 1; i <= 24; ++i) {
    const old = JSON.stringify(await logits(page, true)),
      begin = Date.now();
    await page.mouse.move(x, y - 8 - 2 * i);
    while (JSON.stringify(await logits(page, true)) === old && Date.now() - begin < 2000)
      await new Promise((done) => setTimeout(done, 4));
    waits.push(Date.now() - begin);
  }
  await page.mouse.up();
  await settled(page);
  waits.sort((a, b) => a - b);
  record(
    'a move of a drag to the next tokens on the page',
    `median ${percentile(waits, 0.5)} ms, 95 % ${percentile(waits, 0.95)} ms`,
  );
  assert.ok(percentile(waits, 0.5) <= 150 * busyness(8), `${waits}`);
  assert.equal(await page.locator('.edits li').count(), 1, 'a drag is one edit');
  await page.click('#undo');
  await settled(page);
  assert.equal(await page.locator('.edits li').count(), 0, 'and one step for undo');
  await page.context().close();
});

test('a head is cut before W_O, once or twice the same, and the sum of heads is checked', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  const name = await choose(page, 'cross', 1, 2);
  await query(page, 2);
  await page.click('#cut-head');
  await settled(page);
  assert.ok(await page.locator(`[data-head="${name}.2"].cut`).count());
  const ids = await tokensOf(server, page),
    wanted = forward(model, ids.source, ids.target, [{ kind: 'head', attention: name, head: 2, value: 0 }]);
  compare(await logits(page, true), wanted.logits[2]);
  const text = await page.textContent('.head-sum .check-line');
  assert.ok(Number(/(\d[\d.]*e[-−+]?\d+)/.exec(text.replace('−', '-'))?.[1] ?? 1) <= 1e-5, text);
  await page.context().close();
});

test('a patch from another text: what is written from the start says it, too', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'cross', 3, 0);
  await query(page, 3);
  await page.click('.patch-box summary');
  await page.fill('.patch-box input', '他喜欢学习英语。');
  await page.click('.patch-box button');
  await settled(page);
  const top = (all) =>
    Number(
      Object.entries(all)
        .filter(([, logit]) => !Number.isNaN(logit))
        .sort((a, b) => b[1] - a[1])[0][0],
    );
  assert.notEqual(top(await logits(page, true)), top(await logits(page)), 'another token comes next');
  await page.waitForSelector('.written .hue-e', { timeout: 20000 });
  assert.equal(await page.locator('.toast.error').count(), 0);
  await page.click('#generate');
  await page.waitForSelector('.steps button');
  assert.equal(await page.locator('.toast.error').count(), 0, 'generation knows edits of rows still to be written');
  await page.context().close();
});

test("looks at against matters: the measured effect is the engine's own re-run", async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  const name = await choose(page, 'cross', 3, 0);
  await query(page, 1);
  const [id, base] = Object.entries(await logits(page)).sort((a, b) => b[1] - a[1])[0];
  await page.click('#measure');
  await page.waitForSelector('.matters-table td[data-method=exact]');
  const edges = await page.$$eval('.matters-table tbody tr', (rows) =>
    rows.map((row) => ({
      weight: Number(row.querySelector('[data-method=weight]').dataset.value),
      exact: Number(row.querySelector('[data-method=exact]').dataset.value),
    })),
  );
  const ids = await tokensOf(server, page),
    plain = forward(model, ids.source, ids.target).attentions[name].heads[0].weights[1];
  assert.ok(edges.length >= 4, `${edges.length} edges`);
  for (const edge of edges.slice(0, 4)) {
    const key = plain.findIndex((w) => Math.abs(w - edge.weight) < 1e-5);
    const cut = forward(model, ids.source, ids.target, [{ kind: 'forbid', attention: name, head: 0, query: 1, key }])
      .logits[1][id];
    near(edge.exact, base - cut, 5e-5, `effect of key ${key}`);
  }
  await page.context().close();
});

test('find heads sorts the wall; generation steps, branches and shows the cache; the beam is a tree', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await page.click('#find-heads');
  await page.waitForSelector('.wall.ranked .thumb', { timeout: 60000 });
  const values = await page.$$eval('.wall.ranked .thumb small', (all) =>
    all.map((s) => Number(s.textContent.replace('−', '-'))),
  );
  assert.equal(values.length, 16, 'every cross head');
  for (let i = 1; i < values.length; ++i) assert.ok(values[i - 1] >= values[i] - 0.011, 'sorted');
  await page.click('#generate');
  await page.waitForSelector('.steps button');
  const written = await page.$$eval('.steps b', (all) => all.map((b) => b.textContent));
  assert.ok(written.length >= 3);
  await page.click('.steps [data-step="1"]');
  assert.match(await page.textContent('.step-detail b'), /KV cache: \d+ tokens/);
  await page.click('.branches .button:not(:disabled) >> nth=0');
  await page.waitForSelector('.steps .forced');
  await page.click('.generation [data-value=beam]');
  await page.waitForSelector('.tree text');
  assert.ok((await page.locator('.tree path.kept').count()) > 0);
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

const tileOf = async (asked) => {
  const reply = await fetch(`${server.address}api/v1/tile`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ heads: 'all', what: 'weights', edits: [], ...asked }),
  });
  const [heads, rows, columns] = reply.headers.get('Attend-Shape').split(',').map(Number),
    data = new Float32Array(await reply.arrayBuffer());
  return { heads, rows, columns, at: (head, i, j) => data[(head * rows + i) * columns + j] };
};
const stepsOf = (method, more = {}) =>
  api(server, 'generate', {
    model: 'tatoeba-zh-en',
    input: { source: sentence, language: 'en' },
    edits: [],
    steps: 64,
    method,
    prefix_ids: [],
    ...more,
  });
// So hot that hardly any token is likely, the end included: long enough for 64 steps.
const hot = { kind: 'sample', temperature: 6, top_k: 0, top_p: 1, seed: 3 };

test('64 cached steps give the maps of the whole text at once within 1e-5, on the page and in the interface', async () => {
  let worst = 0,
    cells = 0;
  for (const watch of ['decoder.0.self', 'decoder.3.self', 'decoder.3.cross']) {
    const made = await stepsOf(hot, { watch });
    assert.equal(made.steps.length, 64);
    const whole = await tileOf({
      model: 'tatoeba-zh-en',
      input: { source: sentence, language: 'en', target_ids: made.steps.map((step) => step.id).slice(0, 63) },
      attention: watch,
    });
    made.steps.forEach((step, i) => {
      assert.equal(step.weights.length, whole.heads);
      step.weights.forEach((row, h) => {
        assert.equal(row.length, watch.endsWith('cross') ? whole.columns : i + 1, 'what was in the cache');
        row.forEach((weight, j) => {
          ++cells;
          worst = Math.max(worst, Math.abs(weight - whole.at(h, i, j)));
        });
      });
    });
  }
  record(
    'cached steps against the whole text at once',
    `${cells} weights, largest difference ${worst.toExponential(1)}`,
  );
  assert.ok(worst <= 1e-5, `${worst}`);
  // The page shows the same steps.
  const page = await open(browser, server, '#/model');
  await enter(page);
  const name = await choose(page, 'decoder', 3, 2);
  await page.click('#generate');
  await page.click('.generation [data-value=sample]');
  for (const [field, value] of [
    ['#temperature', '6'],
    ['#seed', '3'],
    ['.generation header .stepper input', '64'],
  ]) {
    await page.fill(field, value);
    await page.press(field, 'Enter');
  }
  await settled(page);
  const made = await stepsOf(hot, { watch: name });
  const whole = await tileOf({
    model: 'tatoeba-zh-en',
    input: { source: sentence, language: 'en', target_ids: made.steps.map((step) => step.id).slice(0, 63) },
    attention: name,
  });
  await page.waitForFunction((text) => document.querySelector('.generated bdi')?.textContent === text, made.text);
  for (const i of [0, 1, 17, 47, 63]) {
    await page.click(`.steps [data-step="${i}"]`);
    await page.waitForSelector(`.cached-keys[data-step="${i}"]`);
    const shown = await page.$$eval('.cached-keys li', (all) =>
      all.map((one) => [Number(one.dataset.key), Number(one.dataset.weight)]),
    );
    assert.equal(shown.length, Math.min(48, i + 1));
    for (const [key, weight] of shown) near(weight, whole.at(2, i, key), 1e-5, `step ${i} key ${key}`);
  }
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

test('a key evicted while writing weighs 0 from then on, and what was written before stands', async () => {
  const watch = 'decoder.1.self',
    plain = await stepsOf(hot, { watch });
  const gone = await stepsOf(hot, { watch, edits: [{ kind: 'evict', attention: watch, key: 2, query: 10 }] });
  gone.steps.forEach((step, i) =>
    step.weights.forEach((row, h) => {
      if (i < 10) return assert.deepEqual(row, plain.steps[i].weights[h], `step ${i} head ${h}`);
      assert.equal(row[2], 0, `step ${i} head ${h}`);
      near(
        row.reduce((a, b) => a + b, 0),
        1,
        1e-5,
        `row sum of step ${i}`,
      );
    }),
  );
  assert.ok(
    plain.steps.slice(10).some((step) => step.weights.some((row) => row[2] > 0.01)),
    'it was read before',
  );
  await assert.rejects(stepsOf(hot, { watch: 'encoder.0.self' }), /400.*encoder/);
  await assert.rejects(stepsOf(hot, { watch: 'decoder.9.self' }), /404/);
});

test('beams: what a step read is that of the hypothesis that was kept', async () => {
  for (const beams of [2, 5]) {
    const made = await stepsOf({ kind: 'beam', beams, n_best: beams }, { watch: 'decoder.2.cross' });
    const whole = await tileOf({
      model: 'tatoeba-zh-en',
      input: { source: sentence, language: 'en', target_ids: made.steps.map((step) => step.id).slice(0, -1) },
      attention: 'decoder.2.cross',
    });
    made.steps.forEach((step, i) =>
      step.weights.forEach((row, h) =>
        row.forEach((weight, j) =>
          near(weight, whole.at(h, i, j), 1e-5, `beams ${beams} step ${i} head ${h} key ${j}`),
        ),
      ),
    );
  }
});

test('samples depend on their seed alone; the link keeps the method, the seed and the branch', async () => {
  const warm = { ...hot, temperature: 3, top_k: 40, top_p: 0.9 };
  const text = async (method) => (await stepsOf(method)).text;
  assert.equal(await text(warm), await text(warm));
  assert.notEqual(await text(warm), await text({ ...warm, seed: 4 }));
  assert.equal(await text({ ...warm, top_k: 1 }), await text({ kind: 'greedy' }), 'the likeliest alone is greedy');
  const page = await open(browser, server, '#/model');
  await enter(page);
  await page.click('#generate');
  await page.click('.generation [data-value=sample]');
  for (const [field, value] of [
    ['#temperature', '3'],
    ['#top-k', '40'],
    ['#top-p', '0.9'],
    ['#seed', '3'],
  ]) {
    await page.fill(field, value);
    await page.press(field, 'Enter');
  }
  await page.fill('.generation header .stepper input', '64');
  await page.press('.generation header .stepper input', 'Enter');
  const wanted = await text(warm);
  await page.waitForFunction((written) => document.querySelector('.generated bdi')?.textContent === written, wanted);
  await page.click('.steps [data-step="1"]');
  await page.click('.branches .button:not(:disabled) >> nth=0');
  await page.waitForSelector('.steps .forced');
  await settled(page);
  const state = (p) =>
    p.evaluate(() => ({
      text: document.querySelector('.generated bdi').textContent,
      forced: document.querySelectorAll('.steps .forced').length,
      now: document.querySelector('.steps .now').dataset.step,
      kind: document.querySelector('.generation [aria-checked=true]').dataset.value,
      numbers: ['temperature', 'top-k', 'top-p', 'seed'].map((id) => document.getElementById(id).value),
    }));
  const here = await state(page);
  assert.equal(here.forced, 2);
  const other = await open(browser, server, page.url().slice(server.address.length));
  await other.waitForSelector('.steps .forced');
  await settled(other);
  assert.deepEqual(await state(other), here);
  await Promise.all([page, other].map((p) => p.context().close()));
});

test('reading a text keeps the edits that mean something in it, says how many it took back, and undo brings them back', async () => {
  for (const language of ['en-US', 'zh-CN']) {
    const page = await open(browser, server, '#/model', { language });
    await enter(page);
    await choose(page, 'cross', 2, 3);
    await query(page, 2);
    await page.click('#cut-head');
    await settled(page);
    await raise(page, 1, 2);
    await page.click('.row-column[data-key="2"] .key-label');
    await page.keyboard.press('x');
    await settled(page);
    const edits = () => page.$$eval('.edits li label', (all) => all.map((e) => e.textContent)),
      said = () => page.textContent('.toasts');
    const before = await edits(),
      numbers = await logits(page, true);
    assert.equal(before.length, 3);
    await page.click('#run');
    await settled(page);
    assert.deepEqual(await edits(), before, 'of the same text all stay');
    assert.deepEqual(await logits(page, true), numbers);
    assert.equal(await said(), '');
    await page.fill('#source-text', '他喜欢学习英语。');
    await page.click('#run');
    await settled(page);
    assert.match(
      await said(),
      language === 'zh-CN' ? /有 2 个改动指向旧文本/ : /^2 edits named places of the old text/,
    );
    assert.deepEqual(await edits(), before.slice(0, 1), 'the cut head stays');
    const target = await page.getAttribute('#target-text', 'placeholder');
    const run = await api(server, 'run', {
      model: 'tatoeba-zh-en',
      input: { source: '他喜欢学习英语。', target },
      edits: [{ kind: 'head', attention: 'decoder.2.cross', head: 3, value: 0 }],
      want: ['predictions'],
      top: 10,
    });
    const [at] = (await page.getAttribute('.map-value b', 'data-cell')).split(',').map(Number),
      top = run.predictions.rows[at].top[0];
    near((await logits(page, true))[top.id], top.logit, 1e-4, 'and is in force');
    await page.click('#undo');
    await settled(page);
    assert.equal(await page.inputValue('#source-text'), sentence);
    assert.deepEqual(await edits(), before);
    assert.deepEqual(await logits(page, true), numbers);
    await page.click('#redo');
    await settled(page);
    assert.deepEqual(await edits(), before.slice(0, 1));
    // The link holds what is on the page.
    const other = await open(browser, server, page.url().slice(server.address.length), { language });
    await other.waitForSelector('.edits li');
    await settled(other);
    assert.deepEqual(await other.$$eval('.edits li label', (all) => all.map((e) => e.textContent)), before.slice(0, 1));
    await Promise.all([page, other].map((p) => p.context().close()));
  }
});

test('a character that the model does not know is shown as it stood in the text', async () => {
  const own = await serve(poet);
  for (const [language, words] of [
    ['en-US', /🙂 · unknown to this model, which reads <unk>/],
    ['zh-CN', /🙂 · 本模型不认识，读作 <unk>/],
  ]) {
    const page = await open(browser, own, '#/model', { language });
    await page.waitForSelector('.live');
    await settled(page);
    assert.equal(await page.locator('[data-unknown]').count(), 0);
    await page.fill('#source-text', '明月🙂b');
    await page.click('#run');
    await settled(page);
    assert.deepEqual(await page.$$eval('.words .token', (all) => all.map((e) => e.textContent)), [
      '<s>',
      '明',
      '月',
      '🙂',
      'b',
    ]);
    assert.deepEqual(await page.$$eval('.words .token.unknown', (all) => all.map((e) => e.textContent)), ['🙂', 'b']);
    assert.match(await page.getAttribute('.words [data-token="3"]', 'title'), words);
    assert.match(await page.getAttribute('.words [data-token="3"]', 'aria-label'), /🙂.*<unk>/);
    assert.match(await page.textContent('[data-unknown]'), /<unk>/);
    await page.click('.words [data-token="4"]');
    await settled(page);
    await page.click('.row-column[data-key="3"] .key-label');
    assert.match(await page.textContent('.map-value'), /b \(4\) ← .*🙂 \(3\)/);
    await page.context().close();
  }
  await own.stop();
});

test('one token is no tokens, and the heads of the measured table are whole', async () => {
  const page = await open(browser, server, '#/model', { width: 1440 });
  await enter(page);
  await page.click('#generate');
  await page.waitForSelector('.steps button');
  await settled(page);
  await page.click('.steps button >> nth=0');
  assert.match(await page.textContent('.step-detail'), /KV cache: 1 token, /);
  await page.click('.steps button >> nth=1');
  assert.match(await page.textContent('.step-detail'), /KV cache: 2 tokens, /);
  await page.click('#measure');
  await page.waitForSelector('.matters-table td[data-method=exact]');
  assert.deepEqual(
    await page.$$eval('.matters-table thead th', (all) =>
      all.filter((th) => th.scrollWidth > th.clientWidth).map((th) => th.textContent),
    ),
    [],
  );
  await page.context().close();
});

test('the link and the file bring back model, text, selection and edits', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'cross', 2, 3);
  await query(page, 2);
  await raise(page, 1, 2);
  const state = async (p) => ({
    weights: await weights(p),
    edited: await logits(p, true),
    head: await p.getAttribute('.thumb.now', 'data-head'),
  });
  const here = await state(page);
  const other = await open(browser, server, page.url().slice(server.address.length));
  await other.waitForSelector('.live');
  await settled(other);
  assert.deepEqual(await state(other), here);
  await page.click('#export');
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('[role=menuitem]:has-text("JSON")')]);
  const fresh = await open(browser, server, '#/model');
  await fresh.waitForSelector('.live');
  await settled(fresh);
  await fresh.click('#export');
  const [chooser] = await Promise.all([
    fresh.waitForEvent('filechooser'),
    fresh.click('[role=menuitem]:has-text("Open a JSON file")'),
  ]);
  await chooser.setFiles(await file.path());
  await fresh.waitForSelector('.edits li');
  await settled(fresh);
  assert.deepEqual(await state(fresh), here);
  await fresh.click('#export');
  const [picture] = await Promise.all([fresh.waitForEvent('download'), fresh.click('[role=menuitem]:has-text("SVG")')]);
  const svg = readFileSync(await picture.path(), 'utf8');
  assert.equal(
    await fresh.evaluate(
      (text) => new DOMParser().parseFromString(text, 'image/svg+xml').querySelectorAll('parsererror').length,
      svg,
    ),
    0,
  );
  for (const token of await fresh.$$eval('.words .token', (all) => all.map((token) => token.textContent)))
    assert.ok(svg.includes(token.replace(/[<>]/g, (c) => `&#${c.charCodeAt(0)};`)), `the picture lacks ${token}`);
  await Promise.all([page, other, fresh].map((p) => p.context().close()));
});

test('a decoder-only model in the same grammar', async () => {
  const own = await serve(poet);
  const page = await open(browser, own, '#/model');
  await page.waitForSelector('.live');
  await settled(page);
  assert.deepEqual(await page.$$eval('#tabs [role=radio]', (all) => all.map((tab) => tab.dataset.value)), ['decoder']);
  const row = await weights(page);
  near(
    row.reduce((a, b) => a + b, 0),
    1,
    1e-6,
    'row sum',
  );
  assert.ok((await vector(page, 'rotated-query')).length > 0, 'rotary queries are shown');
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await own.stop();
});

test('all heads off: what the attention writes is its bias, and the page goes on', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  const name = await choose(page, 'cross', 1, 0);
  await query(page, 2);
  const ids = await tokensOf(server, page),
    edits = [];
  const bias = await vector(page, 'projection-bias');
  assert.equal(bias.length, model.config.width);
  const parts = forward(model, ids.source, ids.target).attentions[name].projected[2];
  (await vector(page, 'projected')).forEach((value, x) =>
    near(value, parts[x], 1e-5 * Math.max(1, Math.abs(parts[x])), `attention output ${x}`),
  );
  for (let head = 0; head < 4; ++head) {
    await page.click(`[data-head="${name}.${head}"]`);
    await settled(page);
    await page.click('#cut-head');
    await settled(page);
    edits.push({ kind: 'head', attention: name, head, value: 0 });
  }
  assert.deepEqual(await vector(page, 'projected'), bias, 'to the bit');
  const wanted = forward(model, ids.source, ids.target, edits);
  compare(await logits(page, true), wanted.logits[2]);
  // Cutting the whole attention after that changes nothing but the bias; a head cut twice is a head cut once.
  const once = await logits(page, true);
  const twice = await api(server, 'run', {
    model: 'tatoeba-zh-en',
    input: { source: sentence, language: 'en', target: await page.getAttribute('#target-text', 'placeholder') },
    edits: [...edits, ...edits],
    want: ['predictions'],
    top: 10,
  });
  const both = twice.predictions.rows[2].top.filter((c) => String(c.id) in once && !Number.isNaN(once[c.id]));
  assert.ok(both.length >= 5, `${both.length} tokens in both`);
  for (const c of both) assert.equal(c.logit, once[c.id]);
  await page.context().close();
});

test('an evicted cache entry weighs 0 from its query on, for every head, and nothing before', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  const name = await choose(page, 'decoder', 1, 2);
  await query(page, 3);
  await page.click('.row-column[data-key="1"] .key-label');
  await page.click('#add-edit');
  await page.click('[role=menuitem]:has-text("Evict")');
  await settled(page);
  assert.equal((await weights(page))[1], 0);
  near(
    (await weights(page)).reduce((a, b) => a + b, 0),
    1,
    1e-6,
    'row sum',
  );
  const input = { source: sentence, language: 'en', target: await page.getAttribute('#target-text', 'placeholder') };
  const tile = async (edits) => {
    const reply = await fetch(`${server.address}api/v1/tile`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ model: 'tatoeba-zh-en', input, edits, attention: name, heads: 'all', what: 'weights' }),
    });
    const [h, r, c] = reply.headers.get('Attend-Shape').split(',').map(Number),
      data = new Float32Array(await reply.arrayBuffer());
    return { h, r, c, at: (head, i, j) => data[(head * r + i) * c + j] };
  };
  const plain = await tile([]),
    gone = await tile([{ kind: 'evict', attention: name, key: 1, query: 3 }]);
  for (let h = 0; h < gone.h; ++h)
    for (let i = 0; i < gone.r; ++i) {
      if (i >= 3) assert.equal(gone.at(h, i, 1), 0, `head ${h} row ${i}`);
      else for (let j = 0; j <= i; ++j) assert.equal(gone.at(h, i, j), plain.at(h, i, j));
    }
  // The cache of a text that is written shows the same.
  await page.click('#generate');
  await page.click('.steps [data-step="4"]');
  await page.waitForSelector('.cached-keys[data-step="4"]');
  assert.deepEqual(await page.$$eval('.cached-keys .gone', (all) => all.map((one) => one.dataset.key)), ['1']);
  await page.click('.steps [data-step="1"]');
  await page.waitForSelector('.cached-keys[data-step="1"]');
  assert.equal(await page.locator('.cached-keys .gone').count(), 0);
  await page.context().close();
});

test('edits of every kind stack, are named, switched off and on, and come back with the link', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'cross', 2, 1);
  await query(page, 2);
  for (const label of ['whole attention', 'feed-forward', 'to its mean']) {
    await page.click('#add-edit');
    await page.click(`[role=menuitem]:has-text("${label}")`);
    await settled(page);
  }
  assert.equal(await page.locator('.edits li').count(), 3);
  assert.equal(await page.locator('.edits li .bad').count(), 0, 'each touched something');
  const all = await logits(page, true);
  await page.click('.edits li >> nth=0 >> button >> nth=0');
  await page.keyboard.type('deaf');
  await page.keyboard.press('Enter');
  await settled(page);
  assert.match(await page.textContent('.edits li >> nth=0'), /deaf/);
  assert.deepEqual(await logits(page, true), all, 'a name changes no number');
  await page.click('.edits li >> nth=0 >> input[type=checkbox]');
  await settled(page);
  assert.notDeepEqual(await logits(page, true), all);
  await page.click('.edits li >> nth=0 >> input[type=checkbox]');
  await settled(page);
  assert.deepEqual(await logits(page, true), all, 'the same bits');
  const other = await open(browser, server, page.url().slice(server.address.length));
  await other.waitForSelector('.edits li');
  await settled(other);
  assert.match(await other.textContent('.edits li >> nth=0'), /deaf/);
  assert.deepEqual(await logits(other, true), all);
  await Promise.all([page, other].map((p) => p.context().close()));
});

test('taken away: NPY and HTML hold the same matrix, and the HTML opens from disk with the network off', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  const name = await choose(page, 'cross', 3, 2);
  await query(page, 1);
  await raise(page, 2, 2);
  const input = { source: sentence, language: 'en', target: await page.getAttribute('#target-text', 'placeholder') };
  const score = Number((await numbers(page))[2]);
  const reply = await fetch(`${server.address}api/v1/tile`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({
      model: 'tatoeba-zh-en',
      input,
      edits: [{ kind: 'set', attention: name, head: 2, query: 1, key: 2, value: score }],
      attention: name,
      heads: [2],
      what: 'weights',
    }),
  });
  const bytes = Buffer.from(await reply.arrayBuffer());
  const save = async (label) => {
    await page.click('#export');
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.click(`[role=menuitem]:has(span:text-is("${label}"))`),
    ]);
    return file.path();
  };
  const npy = readFileSync(await save('NPY'));
  const header = 10 + npy.readUInt16LE(8);
  assert.equal(npy.subarray(1, 6).toString('latin1'), 'NUMPY');
  assert.equal(header % 64, 0);
  const [, rows, columns] = /'shape': \((\d+), (\d+)\)/.exec(npy.subarray(10, header).toString('latin1')).map(Number);
  assert.ok(npy.subarray(header).equals(bytes), 'the same bytes as the engine sent');
  const html = await save('HTML'),
    copy = join(tmpdir(), `attend-page-${process.pid}.html`);
  copyFileSync(html, copy);
  const alone = await browser.newContext({ offline: true });
  const paper = await alone.newPage(),
    asked = [];
  paper.on('request', (request) => {
    if (!request.url().startsWith('file:')) asked.push(request.url());
  });
  await paper.goto(pathToFileURL(copy).href);
  const data = JSON.parse(await paper.textContent('#attend'));
  assert.deepEqual([data.weights.length, data.weights[0].length], [rows, columns]);
  assert.ok(Buffer.from(new Float32Array(data.weights.flat()).buffer).equals(bytes), 'the same matrix');
  assert.equal((await paper.locator('svg rect[fill]').count()) > (rows * columns) / 2, true);
  assert.equal(await paper.locator('ol li').count(), 1, 'the edit is named');
  for (const token of data.keys) assert.ok((await paper.textContent('svg')).includes(token), token);
  assert.deepEqual(asked, []);
  await alone.close();
  rmSync(copy);
  const png = readFileSync(await save('PNG'));
  assert.equal(png.subarray(1, 4).toString('latin1'), 'PNG');
  assert.ok(png.readUInt32BE(16) > 200 && png.readUInt32BE(20) > 200);
  await page.context().close();
});

test('words: tokens of one word are shown as one with the sum of their weights; keys by sentence', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page, 'Tom wanted to visit Kyoto. Mary stayed at home.');
  await choose(page, 'encoder', 2, 1);
  await query(page, 3);
  const row = await weights(page);
  await page.click('#group [data-value=words]');
  const shown = await page
    .locator('.words')
    .last()
    .locator('.token')
    .evaluateAll((all) =>
      all.map((token) => ({
        first: Number(token.dataset.token),
        last: Number(token.dataset.last ?? token.dataset.token),
        weight: Number(token.dataset.weight),
      })),
    );
  assert.ok(shown.length < row.length, 'some words have several tokens');
  for (const word of shown)
    near(
      word.weight,
      row.slice(word.first, word.last + 1).reduce((a, b) => a + b, 0),
      1e-6,
      `word at ${word.first}`,
    );
  near(
    shown.reduce((sum, word) => sum + word.weight, 0),
    1,
    1e-5,
    'all words',
  );
  await page.click('#group [data-value=tokens]');
  const share = async (which) => {
    await page.selectOption('#keys-shown', which);
    return Number(await page.getAttribute('[data-shown-sum]', 'data-shown-sum'));
  };
  near((await share('same')) + (await share('other')), 1, 1e-5, 'two sentences');
  assert.ok((await page.locator('.token.away').count()) > 0);
  assert.deepEqual(await weights(page), row, 'the numbers stay those of the whole row');
  await page.context().close();
});

test('what is saved is in the language of the page and has the edits in force only', async () => {
  const page = await open(browser, server, '#/model', { language: 'zh-CN' });
  await enter(page);
  await choose(page, 'cross', 3, 2);
  await page.click('#cut-head');
  await page.click('[data-head="decoder.3.cross.1"]');
  await page.click('#cut-head');
  await settled(page);
  await page.click('.edits li >> nth=0 >> input[type=checkbox]');
  await settled(page);
  const save = async (label) => {
    await page.click('#export');
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.click(`[role=menuitem]:has(span:text-is("${label}"))`),
    ]);
    return readFileSync(await file.path(), 'utf8');
  };
  const svg = await save('SVG');
  assert.match(svg, /头 1 · 改动：1 处 · 颜色深浅/);
  const list = /<ol>.*<\/ol>/.exec(await save('HTML'))[0];
  assert.equal(list.match(/<li>/g).length, 1);
  assert.match(list, /切断/);
  await page.context().close();
});

test('keys reach what a pointer does: the tokens of the lines, the rows of what matters, out of a menu', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'cross', 3, 0);
  await query(page, 1);
  await page.click('.segmented [data-value=lines]');
  await settled(page);
  await page.focus('.lines [data-line-query][tabindex="0"]');
  await page.keyboard.press('ArrowRight');
  await settled(page);
  assert.equal(await page.getAttribute('.token.chosen-q', 'data-token'), '2');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('data-line-query')), '2');
  assert.equal(await page.locator('.lines [tabindex="0"]').count(), 2, 'one of each line is in the order of Tab');
  await page.click('#measure');
  await page.waitForSelector('.matters-table');
  const last = await page.getAttribute('.matters-table tbody tr >> nth=-1', 'data-key');
  await page.focus('.matters-table tbody tr:last-child button');
  await page.keyboard.press('Enter');
  assert.equal(await page.getAttribute('.matters-table tr.now', 'data-key'), last);
  await page.click('#export');
  await page.keyboard.press('Tab');
  assert.equal(await page.locator('[role=menu]').count(), 0);
  const bars = await page.$$eval('.row-column [role=slider]', (all) =>
    all.map((bar) => ['min', 'now', 'max'].map((name) => Number(bar.getAttribute(`aria-value${name}`)))),
  );
  assert.ok(
    bars.length > 3 && bars.every(([min, now, max]) => min < now && now < max && max - min < 50),
    JSON.stringify(bars),
  );
  await page.context().close();
});

// What bad input gets in the model room: a sentence that says what and what to do.
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { browse, open, poet, quiet, serve, settled, translator } from './common.mjs';
import { sentence } from './roomwork.mjs';

let browser;
before(async () => {
  browser = await browse();
});
after(async () => {
  await browser?.close();
});

const opened = async (server, hash = '#/model', options = {}) => {
  const page = await open(browser, server, hash, options);
  await page.waitForSelector('.live');
  await settled(page);
  return page;
};
// Said for some seconds only, so read where it appears.
const said = (page) =>
  page.waitForFunction(() => document.querySelector('.toast.error')?.textContent).then((text) => text.jsonValue());
const read = async (page, text) => {
  await page.fill('#source-text', text);
  await page.click('#run');
};

test('a text longer than the model, and an empty one', async () => {
  const server = await serve(translator);
  const page = await opened(server);
  await read(page, '我'.repeat(3000));
  await page.waitForSelector('.banner.error');
  assert.match(await page.textContent('.banner.error'), /\d[\d, ]*.*\d/, 'says how long it is and how long it may be');
  await read(page, sentence);
  await page.waitForSelector('.live');
  await page.waitForSelector('.banner.error', { state: 'detached' });
  const before = await page.textContent('.words');
  await read(page, '   ');
  assert.equal(
    await page.evaluate(() => document.activeElement.id),
    'source-text',
    'nothing is sent, the field is waiting',
  );
  assert.equal(await page.textContent('.words'), before);
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await server.stop();
});

test('a text that no model of one stack could read is counted like any other', async () => {
  const server = await serve(poet);
  for (const [language, words] of [
    ['en-US', /The text is too long: 5001 tokens with its ends, and this model reads at most \d+\. Shorten it\./],
    ['zh-CN', /文本太长：连首尾标记共 5001 个词元/],
  ]) {
    const page = await opened(server, '#/model', { language });
    await read(page, '明'.repeat(5000));
    await page.waitForSelector('.banner.error');
    assert.match(await page.textContent('.banner.error'), words);
    await page.context().close();
  }
  await server.stop();
});

test('what was said of one model ends with the choice of another; trying again is about the one that stands there', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attend-choice-'));
  try {
    for (const name of ['cut-short', 'hf', 'whole']) cpSync(translator, join(folder, name), { recursive: true });
    truncateSync(join(folder, 'cut-short/model.safetensors'), 100000);
    writeFileSync(
      join(folder, 'hf/config.json'),
      '{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768}',
    );
    const server = await serve(poet, '--models', folder);
    for (const [language, words] of [
      ['en-US', /is a Hugging Face config \(model type: gpt2\).*import_model/],
      ['zh-CN', /Hugging Face 的配置（模型类型：gpt2）.*import_model/],
    ]) {
      const page = await opened(server, '#/model', { language });
      const messages = () => page.$$eval('.toast.error, .banner.error', (all) => all.map((e) => e.textContent));
      const pick = async (name) => {
        await page.selectOption('#model', name);
        await quiet(page);
      };
      const before = await page.inputValue('#model');
      await pick('cut-short');
      assert.match((await messages()).join('|'), /^[^|]*safetensors[^|]*$/, 'said once');
      await pick('hf');
      assert.match((await messages()).join('|'), words);
      assert.doesNotMatch((await messages()).join('|'), /safetensors|n_embd|\|/);
      await page.click('.banner.error button');
      await quiet(page);
      assert.equal(await page.inputValue('#model'), 'hf');
      assert.match((await messages()).join('|'), words, 'the choice that stands there was tried again');
      // Mended, the very same opens.
      await pick('whole');
      await settled(page);
      assert.deepEqual(await messages(), []);
      assert.equal(await page.inputValue('#model'), 'whole');
      await pick('hf');
      await pick('whole');
      await settled(page);
      assert.deepEqual(await messages(), [], 'nor when it is the one that was open');
      await pick('hf');
      await page.keyboard.press(']');
      await settled(page);
      assert.deepEqual(await messages(), [], 'the next answer of the model that is open ends it');
      assert.equal(await page.inputValue('#model'), 'whole');
      await pick(before);
      await settled(page);
      await page.context().close();
    }
    await server.stop();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('edits of a file that the engine refuses: one sentence in the words of the page, and no old number as if it were theirs', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attend-refused-')),
    server = await serve(translator);
  try {
    const at = { attention: 'decoder.3.cross', head: 0, query: 3, key: 1 },
      cell = { kind: 'set', ...at, value: 3 };
    const file = (name, edits) => {
      const path = join(folder, name),
        state = {
          model: 'tatoeba-zh-en',
          input: { source: sentence, language: 'en', target: 'I like learning Chinese.' },
          edits,
          at,
        };
      writeFileSync(path, JSON.stringify({ attend: 'experiment', version: 1, state }));
      return path;
    };
    const twice = file('twice.json', [
      cell,
      { kind: 'head', attention: 'decoder.0.self', head: 1, value: 0, off: true },
      { ...cell, value: 4 },
    ]);
    const nowhere = file('nowhere.json', [{ ...cell, attention: 'decoder.9.cross' }]);
    for (const [language, contradiction] of [
      ['en-US', /Edit 1 and Edit 3 contradict each other/],
      ['zh-CN', /第 1 个改动与第 3 个改动互相矛盾/],
    ]) {
      const page = await opened(server, '#/model', { language });
      const load = async (path) => {
        await page.click('#export');
        const [chooser] = await Promise.all([
          page.waitForEvent('filechooser'),
          page.click('[role=menuitem] >> nth=-1'),
        ]);
        await chooser.setFiles(path);
        await page.waitForSelector('.banner.error');
        await quiet(page);
      };
      const once = async (words) => {
        const said = await page.$$eval('.banner.error, .toast, .bad', (all) =>
          all.map((e) => e.textContent).filter(Boolean),
        );
        assert.equal(said.length, 1, said.join(' | '));
        assert.match(said[0], words);
        assert.doesNotMatch(said[0], /edits\[/);
      };
      await load(twice);
      await once(contradiction);
      assert.deepEqual(
        await page.$$eval('.edits li > small', (all) => all.map((e) => e.textContent)),
        ['1', '2', '3'],
        'so they are numbered',
      );
      assert.equal(await page.locator('.skeleton').count(), 0, 'nobody asks the engine');
      assert.equal(await page.locator('[data-row=none]').count(), 1);
      assert.equal(await page.locator('.outcome.stale [data-outcome=base]').count(), 1);
      // Without one of them all is well.
      await page.click('.edits li >> nth=2 >> button >> nth=-1');
      await settled(page);
      assert.equal(await page.locator('.banner.error, .toast.error, .outcome.stale, [data-row=none]').count(), 0);
      // Put back by hand: the row before stays, and says that it is the one before.
      await page.click('#undo');
      await page.waitForSelector('.banner.error');
      await quiet(page);
      await once(contradiction);
      assert.equal(await page.locator('.live.stale').count(), 1);
      assert.equal(await page.locator('.outcome.stale').count(), 1);
      await load(nowhere);
      await once(/decoder\.9\.cross/);
      assert.match(await page.textContent('.edits li label'), /decoder\.9\.cross · \S+ 0 · 3 ← 1/);
      await page.context().close();
    }
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

test('models that cannot be read are named with what is wrong, and the others work', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attend-broken-'));
  try {
    cpSync(translator, join(folder, 'cut-short'), { recursive: true });
    truncateSync(join(folder, 'cut-short/model.safetensors'), 100000);
    cpSync(translator, join(folder, 'no-json'), { recursive: true });
    writeFileSync(join(folder, 'no-json/config.json'), '{"width": ');
    cpSync(translator, join(folder, 'whole'), { recursive: true });
    const server = await serve('--models', folder);
    for (const language of ['en-US', 'zh-CN']) {
      const page = await open(browser, server, '#/model', { language });
      await page.waitForFunction(() =>
        [...document.querySelectorAll('#model option')].some((option) => option.value === 'whole'),
      );
      for (const [name, words] of [
        ['cut-short', /safetensors/],
        ['no-json', /config\.json/],
      ]) {
        await page.selectOption('#model', name);
        await page.waitForFunction(
          (pattern) =>
            new RegExp(pattern).test(
              [...document.querySelectorAll('.toast.error, .banner.error')].map((e) => e.textContent).join(' '),
            ),
          words.source,
        );
        const text = (await page.$$eval('.toast.error, .banner.error', (all) => all.map((e) => e.textContent))).join(
          ' ',
        );
        assert.ok(text.length > 40, text);
      }
      await page.selectOption('#model', 'whole');
      await page.waitForSelector('.live');
      await settled(page);
      assert.deepEqual(page.problems, []);
      await page.context().close();
    }
    await server.stop();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('links: of another version, damaged, of an unknown model', async () => {
  const server = await serve(translator);
  for (const [hash, words] of [
    ['#/model?v=7&s=abc', /another version \(7\)/],
    ['#/model?v=1&s=%%%', /link/i],
  ]) {
    const page = await open(browser, server, hash);
    assert.match(await said(page), words);
    await page.waitForSelector('.live');
    await page.context().close();
  }
  // A link like those the page writes, naming another model.
  const page = await opened(server);
  await page.keyboard.press(']');
  await page.waitForFunction(() => /s=/.test(location.hash));
  await settled(page);
  const [, state] = /s=([^&]+)/.exec(page.url());
  const forged = await page.evaluate(async (packed) => {
    const bytes = Uint8Array.from(atob(packed.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0));
    const text = await new Response(
      new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw')),
    ).text();
    const packedAgain = new Uint8Array(
      await new Response(
        new Blob([text.replace('tatoeba-zh-en', 'gone-model')])
          .stream()
          .pipeThrough(new CompressionStream('deflate-raw')),
      ).arrayBuffer(),
    );
    return btoa(String.fromCharCode(...packedAgain))
      .replace(/\+/g, '-')
      .replace(/\//g, '_')
      .replace(/=+$/, '');
  }, state);
  const other = await open(browser, server, `#/model?v=1&s=${forged}`);
  assert.match(await said(other), /gone-model.*attend explore/);
  await other.waitForSelector('.live');
  await Promise.all([page, other].map((p) => p.context().close()));
  await server.stop();
});

test('a file that is no experiment', async () => {
  const server = await serve(translator);
  const page = await opened(server);
  for (const text of [
    'hello',
    '{}',
    '{"attend":"experiment","version":1,"state":{"model":3}}',
    '{"attend":"experiment","state":{"model":"tatoeba-zh-en","input":{"source":"a"},"edits":[7]}}',
  ]) {
    await page.click('#export');
    const [chooser] = await Promise.all([
      page.waitForEvent('filechooser'),
      page.click('[role=menuitem]:has-text("Open a JSON file")'),
    ]);
    await chooser.setFiles({ name: 'odd.json', mimeType: 'application/json', buffer: Buffer.from(text) });
    await page.waitForFunction(() => /odd\.json/.test(document.querySelector('.toast.error')?.textContent ?? ''));
    await page.evaluate(() => document.querySelector('.toast button')?.click());
  }
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await server.stop();
});

test('letters for a number: the field says so, and nothing is sent', async () => {
  const server = await serve(translator);
  const page = await opened(server);
  const field = page.locator('.row-tools .number', { hasText: 'score' }).locator('input');
  await field.fill('1,x');
  await field.press('Enter');
  await page.waitForSelector('.row-tools .number .bad');
  assert.equal(await page.locator('.edits li').count(), 0);
  await field.fill('2.5');
  await field.press('Enter');
  await page.waitForSelector('.edits li');
  await settled(page);
  await page.context().close();
  await server.stop();
});

test('the engine goes and comes back: a sentence, nothing lost, and the page goes on by itself', async () => {
  const server = await serve(translator);
  const page = await opened(server);
  await page.locator('.row-column[data-key="1"] [role=slider]').focus();
  await page.keyboard.press('PageUp');
  await settled(page);
  await page.waitForSelector('.edits li');
  await server.stop();
  await read(page, '你好。');
  await page.waitForSelector('text=attend explore');
  const port = new URL(server.address).port;
  const again = await serve(translator, '--port', port);
  await page.waitForSelector('.live', { timeout: 30000 });
  await settled(page);
  assert.equal(await page.inputValue('#source-text'), '你好。');
  assert.match(await page.textContent('.words'), /你好/, 'what was asked for in vain was read');
  assert.equal(await page.locator('.banner.error').count(), 0);
  await page.click('#undo');
  await page.waitForSelector('.edits li');
  await settled(page);
  await page.context().close();
  await again.stop();
});

test('a text that is refused takes no edit with it', async () => {
  const server = await serve(translator);
  const page = await opened(server);
  await page.locator('.row-column[data-key="1"] [role=slider]').focus();
  await page.keyboard.press('PageUp');
  await settled(page);
  const edits = () => page.$$eval('.edits li label', (all) => all.map((e) => e.textContent)),
    before = await edits(),
    text = await page.inputValue('#source-text');
  assert.equal(before.length, 1);
  await read(page, '我'.repeat(3000));
  await page.waitForSelector('.banner.error');
  await quiet(page);
  await read(page, text);
  await settled(page);
  assert.deepEqual(await edits(), before, 'the text that they were made for');
  await read(page, '我'.repeat(3000));
  await page.waitForSelector('.banner.error');
  await quiet(page);
  await page.click('#undo');
  await settled(page);
  assert.deepEqual(await edits(), before);
  await read(page, '我'.repeat(3000));
  await page.waitForSelector('.banner.error');
  await read(page, '你好。');
  await settled(page);
  assert.match(await page.textContent('.toasts'), /^1 edit named a place of the old text/);
  assert.deepEqual(await edits(), []);
  await page.context().close();
  await server.stop();
});

test('a text read once more while the engine is away keeps its edits', async () => {
  const server = await serve(translator);
  const page = await opened(server);
  await page.locator('.row-column[data-key="1"] [role=slider]').focus();
  await page.keyboard.press('PageUp');
  await settled(page);
  await page.click('#cut-head');
  await settled(page);
  const stands = () =>
      page.$$eval('.edits li label, .choices [data-edited-logit]', (all) =>
        all.map((e) => e.dataset.editedLogit ?? e.textContent),
      ),
    before = await stands();
  assert.ok(before.length > 4);
  await server.stop();
  await page.click('#run');
  await page.waitForSelector('text=attend explore');
  const again = await serve(translator, '--port', new URL(server.address).port);
  await page.waitForSelector('.live', { timeout: 30000 });
  await settled(page);
  assert.deepEqual(await stands(), before);
  await page.context().close();
  await again.stop();
});

test('two tabs of one address: each has its own selection and edits, and the link of one opens in the other', async () => {
  const server = await serve(translator);
  const one = await opened(server),
    two = await one.context().newPage();
  await two.goto(server.address + '#/model');
  await two.waitForSelector('.live');
  await settled(two);
  await one.locator('.row-column[data-key="1"] [role=slider]').focus();
  for (let i = 0; i < 3; ++i) await one.keyboard.press('PageUp');
  await two.keyboard.press(']');
  await settled(one);
  await settled(two);
  assert.equal(await one.locator('.edits li').count(), 1);
  assert.equal(await two.locator('.edits li').count(), 0);
  await two.goto(one.url());
  await two.reload();
  await two.waitForSelector('.edits li');
  await settled(two);
  const shown = (page) =>
    page.$$eval('.row-column .weight-track', (tracks) => tracks.map((track) => track.dataset.weight));
  assert.deepEqual(await shown(two), await shown(one));
  await one.context().close();
  await server.stop();
});

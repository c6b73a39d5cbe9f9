// What bad input gets in the model room: a sentence that says what and what to do.
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { browse, open, serve, settled, translator } from './common.mjs';
import { sentence } from './roomwork.mjs';

let browser;
before(async () => { browser = await browse(); });
after(async () => { await browser?.close(); });

const opened = async (server, hash = '#/model', options = {}) => { const page = await open(browser, server, hash, options); await page.waitForSelector('.live'); await settled(page); return page; };
// Said for some seconds only, so read where it appears.
const said = (page) => page.waitForFunction(() => document.querySelector('.toast.error')?.textContent).then((text) => text.jsonValue());
const read = async (page, text) => { await page.fill('#source-text', text); await page.click('#run'); };

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
  assert.equal(await page.evaluate(() => document.activeElement.id), 'source-text', 'nothing is sent, the field is waiting');
  assert.equal(await page.textContent('.words'), before);
  assert.deepEqual(page.problems, []);
  await page.context().close();
  await server.stop();
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
      await page.waitForFunction(() => [...document.querySelectorAll('#model option')].some((option) => option.value === 'whole'));
      for (const [name, words] of [['cut-short', /safetensors/], ['no-json', /config\.json/]]) {
        await page.selectOption('#model', name);
        await page.waitForFunction((pattern) => new RegExp(pattern).test([...document.querySelectorAll('.toast.error, .banner.error')].map((e) => e.textContent).join(' ')), words.source);
        const text = (await page.$$eval('.toast.error, .banner.error', (all) => all.map((e) => e.textContent))).join(' ');
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
  for (const [hash, words] of [['#/model?v=7&s=abc', /another version \(7\)/], ['#/model?v=1&s=%%%', /link/i]]) {
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
    const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'))).text();
    const packedAgain = new Uint8Array(await new Response(new Blob([text.replace('tatoeba-zh-en', 'gone-model')]).stream().pipeThrough(new CompressionStream('deflate-raw'))).arrayBuffer());
    return btoa(String.fromCharCode(...packedAgain)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
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
  for (const text of ['hello', '{}', '{"attend":"experiment","version":1,"state":{"model":3}}', '{"attend":"experiment","state":{"model":"tatoeba-zh-en","input":{"source":"a"},"edits":[7]}}']) {
    await page.click('#export');
    const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.click('[role=menuitem]:has-text("Open a JSON file")')]);
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

test('two tabs of one address: each has its own selection and edits, and the link of one opens in the other', async () => {
  const server = await serve(translator);
  const one = await opened(server), two = await one.context().newPage();
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
  const shown = (page) => page.$$eval('.row-column .weight-track', (tracks) => tracks.map((track) => track.dataset.weight));
  assert.deepEqual(await shown(two), await shown(one));
  await one.context().close();
  await server.stop();
});

// For everyone: no request leaves the machine, quick start, accessibility, both languages, phone, reduced motion, light and dark.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { after, before } from 'node:test';
import { browse, busyness, open, quiet, record, require, serve, settled, translator } from './common.mjs';

let server, browser;
before(async () => { server = await serve(translator); browser = await browse(); });
after(async () => { await browser?.close(); await server?.stop(); });

const lessons = ['sources', 'roles', 'query', 'query/2', 'scale', 'scale/2', 'matrix', 'matrix/2', 'cross', 'cross/2', 'masks', 'masks/2', 'cache', 'cache/2', 'heads', 'block', 'positions', 'cost', 'importance', 'self-test'];
const screens = ['#/learn', ...lessons.map((l) => `#/learn/${l}`), '#/workbench', '#/model'];
const ready = async (page, hash) => {
  // The screen before it has headings and an engine at rest, too: this one is marked in the navigation.
  const [, room, lesson] = /^#\/(\w+)(?:\/([a-z-]+))?/.exec(hash);
  await page.waitForSelector(lesson ? `.lesson-list a[href="#/learn/${lesson}"][aria-current=page]` : `header nav a[href="#/${room}"][aria-current=page]`, { state: 'attached' });
  await page.waitForSelector(room === 'learn' ? 'h1' : '.live');
  await (room === 'learn' ? quiet(page) : settled(page));
};

// Everything that a reader can unfold in the model room: edits, pinned heads, what matters, generation with its beams, ranked heads.
async function unfold(page) {
  const wide = await page.evaluate(() => innerWidth > 700);
  const pane = async (name) => { if (!wide) await page.click(`.panes [role=tab] >> nth=${{ heads: 0, row: 1, outcome: 2 }[name]}`); };
  await pane('row');
  await page.click('#pin-head');
  await page.click('#cut-head');
  await settled(page);
  await page.click('#generate');
  await page.waitForSelector('.steps button');
  await page.click('.generation [data-value=beam]');
  await page.waitForSelector('.tree text');
  await pane('outcome');
  await page.click('.edits li input[type=checkbox]');
  await settled(page);
  await page.click('.patch-box summary');
  await page.click('#measure');
  await page.waitForSelector('.matters-table td[data-method=exact]');
  await page.click('.edits li button >> nth=0');
  await pane('heads');
  await page.click('#find-heads');
  await page.waitForSelector('.wall.ranked .thumb', { timeout: 60000 });
  await pane('row');
}
const overflow = (page) => page.evaluate(() => { scrollTo(400, 0); const by = scrollX; scrollTo(0, 0); return [by, document.documentElement.scrollWidth]; });

test('0 serious findings of the accessibility audit on every screen, light and dark', async () => {
  const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  for (const dark of [false, true]) {
    const page = await open(browser, server, '#/learn', { dark });
    const all = [];
    for (const hash of screens) {
      await page.goto(server.address + hash);
      await ready(page, hash);
      if (hash === '#/model') await unfold(page);
      if (!await page.evaluate(() => 'axe' in window)) await page.evaluate(axe);
      const found = await page.evaluate(async () => (await window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] })).violations.filter((v) => v.impact === 'serious' || v.impact === 'critical').map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + ' ' + (n.any[0]?.message ?? '')).join(' | ')}`));
      all.push(...found.map((finding) => `${hash}: ${finding}`));
    }
    assert.deepEqual(all, [], dark ? 'dark' : 'light');
    assert.deepEqual(page.problems, []);
    assert.deepEqual(page.outside, []);
    await page.context().close();
  }
});

test('interactive within 2 s, and nothing is asked of another host', async () => {
  const times = [], own = [];
  for (let i = 0; i < 3; ++i) {
    const page = await open(browser, server, '#/model', { waiting: true });
    const meter = await page.context().newCDPSession(page);
    await meter.send('Performance.enable', { timeDomain: 'threadTicks' });
    const begin = Date.now();
    await page.goto(server.address + '#/model');
    await page.waitForSelector('.row-column [role=slider]');
    times.push(Date.now() - begin);
    own.push(Math.round(1000 * (await meter.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value));
    assert.deepEqual(page.outside, []);
    await page.context().close();
  }
  const weight = await (async () => { const page = await open(browser, server, '#/workbench'); await settled(page); const bytes = await page.evaluate(() => { const files = performance.getEntriesByType('resource').filter((e) => !e.name.includes('/api/')); return { all: files.reduce((sum, e) => sum + e.decodedBodySize, 0), sent: files.reduce((sum, e) => sum + e.encodedBodySize, 0) }; }); await page.context().close(); return bytes; })();
  record('first load to interactive (a row that can be dragged), shipped translator', `${times.join(', ')} ms`);
  record('the same, processor time of the page (what the machine\'s other work cannot stretch)', `${own.join(', ')} ms`);
  record('page weight: script, style, fonts that the workbench loads', `${(weight.all / 1024).toFixed(0)} KiB (${(weight.sent / 1024).toFixed(0)} KiB over the wire)`);
  assert.ok(Math.min(...times) <= 2000 * busyness(8), `${times} ms, load ${busyness(8).toFixed(1)}`);
});

test('the browser chooses the language, a switch changes it without a reload, and it is remembered', async () => {
  const page = await open(browser, server, '#/workbench', { language: 'zh-CN' });
  await settled(page);
  assert.equal(await page.getAttribute('html', 'lang'), 'zh-CN');
  assert.match(await page.textContent('nav'), /学习/);
  await page.evaluate(() => { window.stillHere = true; });
  await page.click('.language');
  assert.match(await page.textContent('nav'), /Learn/);
  assert.ok(await page.evaluate(() => window.stillHere));
  await page.reload();
  await page.waitForSelector('nav');
  assert.match(await page.textContent('nav'), /Learn/);
  await page.context().close();
});

test('0 untranslated strings: no English word on any Chinese screen', async () => {
  const page = await open(browser, server, '#/learn', { language: 'zh-CN' });
  // Names that are the same in both languages, formulas, and the words of the examples themselves.
  const allowed = /^(Attend|attend|explore|EN|English|RoPE|ReLU|softmax|float|Shift|NumPy|Python|JSON|CSV|SVG|PNG|NaN|MiB|KiB|GiB|BOS|EOS|love|robot|tatoeba-zh-en|log|exp|concat|mask|max|[a-z]?W_?[QKVO]|Switch to English)$/;
  const english = [];
  for (const hash of screens) {
    await page.goto(server.address + hash);
    await ready(page, hash);
    if (hash === '#/model') await unfold(page);
    const words = await page.evaluate(() => {
      const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walk.nextNode()) if (!walk.currentNode.parentElement.closest('.katex, .token, .key-label, textarea, select, .lines, script, noscript, .map-frame, .choices, .written, .edge, [lang=en], .steps, .map-value, .pipeline summary, .row-panel h3, .outcome-after b, code, .generated, .tree-box svg, .tree-box td, .branches, .matters-table tbody')) out.push(walk.currentNode.textContent);
      for (const element of document.querySelectorAll('[aria-label],[title],[placeholder]')) if (!element.closest('.token, .katex, .row-columns, .words, .lines, [lang=en], .row-panel, .thumb, .map-frame, textarea, .matrix [role=gridcell], .choices, .matters-table tbody, .pins b, .tree-box, .pipeline')) for (const name of ['aria-label', 'title', 'placeholder']) out.push(element.getAttribute(name) ?? '');
      return out.join('\n').match(/[A-Za-z][A-Za-z_-]{3,}/g) ?? [];
    });
    for (const word of new Set(words)) if (!allowed.test(word)) english.push(`${hash}: ${word}`);
  }
  assert.deepEqual(english, []);
  await page.context().close();
});

test('a phone of 360 px: no sideways scrolling of any screen, and every control can be reached', async () => {
  for (const language of ['en-US', 'zh-CN']) {
    const page = await open(browser, server, '#/learn', { width: 360, height: 740, touch: true, language });
    const wide = [];
    for (const hash of screens) {
      await page.goto(server.address + hash);
      await ready(page, hash);
      const over = await overflow(page);
      if (over[0] > 0 || over[1] > 361) wide.push(`${hash}: ${over}`);
    }
    assert.deepEqual(wide, []);
    await page.goto(server.address + '#/model');
    await ready(page, '#/model');
    await unfold(page);
    for (const tab of await page.$$('.panes [role=tab]')) {
      await tab.click();
      assert.equal(await tab.getAttribute('aria-selected'), 'true');
      const over = await overflow(page);
      assert.ok(over[0] === 0 && over[1] <= 361, `${await tab.textContent()}: ${over}`);
    }
    await page.context().close();
  }
});

test('reduced motion: no animation over 0.1 s', async () => {
  const page = await open(browser, server, '#/workbench', { reducedMotion: 'reduce' });
  await settled(page);
  const long = await page.evaluate(() => [...document.querySelectorAll('*')].filter((element) => { const s = getComputedStyle(element); return [s.animationDuration, s.transitionDuration].some((list) => list.split(',').some((d) => parseFloat(d) > 0.1)); }).length);
  assert.equal(long, 0);
  await page.context().close();
});

test('the ramp of weights can be told apart under three colour deficiencies', async () => {
  const page = await open(browser, server, '#/workbench');
  const meter = await page.context().newCDPSession(page);
  for (const type of ['protanopia', 'deuteranopia', 'tritanopia']) {
    await meter.send('Emulation.setEmulatedVisionDeficiency', { type });
    const shot = await page.evaluate(() => { const css = getComputedStyle(document.documentElement); return ['--w0', '--w1', '--w3', '--w5'].map((name) => css.getPropertyValue(name).trim()); });
    // A ramp of one hue is read by its luminance, which these deficiencies keep in order; its steps must be wide enough.
    const luminance = shot.map((hex) => { const c = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; });
    for (let i = 1; i < luminance.length; ++i) assert.ok((luminance[i - 1] + 0.05) / (luminance[i] + 0.05) > 1.3, `${type}: step ${i}`);
  }
  await page.context().close();
});

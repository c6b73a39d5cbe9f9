// For everyone: no request leaves the machine, quick start, accessibility, both languages, phone, reduced motion, light and dark.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { browse, busyness, open, pageFolder, quiet, record, require, serve, settled, translator } from './common.mjs';

let server, browser;
before(async () => {
  server = await serve(translator);
  browser = await browse();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const lessons = [
  'sources',
  'roles',
  'query',
  'query/2',
  'scale',
  'scale/2',
  'matrix',
  'matrix/2',
  'cross',
  'cross/2',
  'masks',
  'masks/2',
  'cache',
  'cache/2',
  'heads',
  'block',
  'positions',
  'cost',
  'importance',
  'self-test',
];
const screens = ['#/learn', ...lessons.map((l) => `#/learn/${l}`), '#/workbench', '#/model'];
const ready = async (page, hash) => {
  // The screen before it has headings and an engine at rest, too: this one is marked in the navigation.
  const [, room, lesson] = /^#\/(\w+)(?:\/([a-z-]+))?/.exec(hash);
  await page.waitForSelector(
    lesson
      ? `.lesson-list a[href="#/learn/${lesson}"][aria-current=page]`
      : `header nav a[href="#/${room}"][aria-current=page]`,
    { state: 'attached' },
  );
  await page.waitForSelector(room === 'learn' ? 'h1' : '.live');
  await (room === 'learn' ? quiet(page) : settled(page));
};

// Everything that a reader can unfold in the model room: edits, pinned heads, what matters, generation with its beams, ranked heads.
async function unfold(page) {
  const wide = await page.evaluate(() => innerWidth > 700);
  const pane = async (name) => {
    if (!wide) await page.click(`.panes [role=tab] >> nth=${{ heads: 0, row: 1, outcome: 2 }[name]}`);
  };
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
const overflow = (page) =>
  page.evaluate(() => {
    scrollTo(400, 0);
    const by = scrollX;
    scrollTo(0, 0);
    return [by, document.documentElement.scrollWidth];
  });

test('0 serious findings of the accessibility audit on every screen, light and dark', async () => {
  const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  for (const dark of [false, true]) {
    const page = await open(browser, server, '#/learn', { dark });
    const all = [];
    for (const hash of screens) {
      await page.goto(server.address + hash);
      await ready(page, hash);
      if (hash === '#/model') await unfold(page);
      if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(axe);
      const found = await page.evaluate(async () =>
        (
          await window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] })
        ).violations
          .filter((v) => v.impact === 'serious' || v.impact === 'critical')
          .map(
            (v) =>
              `${v.id}: ${v.nodes
                .slice(0, 3)
                .map((n) => n.html.slice(0, 160) + ' ' + (n.any[0]?.message ?? ''))
                .join(' | ')}`,
          ),
      );
      all.push(...found.map((finding) => `${hash}: ${finding}`));
    }
    assert.deepEqual(all, [], dark ? 'dark' : 'light');
    assert.deepEqual(page.problems, []);
    assert.deepEqual(page.outside, []);
    await page.context().close();
  }
});

test('interactive within 2 s, and nothing is asked of another host', async () => {
  const times = [],
    own = [];
  for (let i = 0; i < 3; ++i) {
    const page = await open(browser, server, '#/model', { waiting: true });
    const meter = await page.context().newCDPSession(page);
    await meter.send('Performance.enable', { timeDomain: 'threadTicks' });
    const begin = Date.now();
    await page.goto(server.address + '#/model');
    await page.waitForSelector('.row-column [role=slider]');
    times.push(Date.now() - begin);
    own.push(
      Math.round(
        1000 * (await meter.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value,
      ),
    );
    assert.deepEqual(page.outside, []);
    await page.context().close();
  }
  const weight = await (async () => {
    const page = await open(browser, server, '#/workbench');
    await settled(page);
    const bytes = await page.evaluate(() => {
      const files = performance.getEntriesByType('resource').filter((e) => !e.name.includes('/api/'));
      return {
        all: files.reduce((sum, e) => sum + e.decodedBodySize, 0),
        sent: files.reduce((sum, e) => sum + e.encodedBodySize, 0),
      };
    });
    await page.context().close();
    return bytes;
  })();
  record('first load to interactive (a row that can be dragged), shipped translator', `${times.join(', ')} ms`);
  record("the same, processor time of the page (what the machine's other work cannot stretch)", `${own.join(', ')} ms`);
  record(
    'page weight: script, style, fonts that the workbench loads',
    `${(weight.all / 1024).toFixed(0)} KiB (${(weight.sent / 1024).toFixed(0)} KiB over the wire)`,
  );
  assert.ok(Math.min(...times) <= 2000 * busyness(8), `${times} ms, load ${busyness(8).toFixed(1)}`);
});

test('the browser chooses the language, a switch changes it without a reload, and it is remembered', async () => {
  const page = await open(browser, server, '#/workbench', { language: 'zh-CN' });
  await settled(page);
  assert.equal(await page.getAttribute('html', 'lang'), 'zh-CN');
  assert.match(await page.textContent('nav'), /学习/);
  await page.evaluate(() => {
    window.stillHere = true;
  });
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
  const allowed =
    /^(Attend|attend|explore|EN|English|RoPE|ReLU|softmax|float|logit|sink|Shift|NumPy|Python|JSON|CSV|SVG|PNG|NaN|MiB|KiB|GiB|BOS|EOS|love|robot|tatoeba-zh-en|log|exp|concat|mask|max|[a-z]?W_?[QKVO]|Switch to English)$/;
  const english = [];
  for (const hash of screens) {
    await page.goto(server.address + hash);
    await ready(page, hash);
    if (hash === '#/model') await unfold(page);
    const words = await page.evaluate(() => {
      const out = [],
        walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walk.nextNode())
        if (
          !walk.currentNode.parentElement.closest(
            '.katex, .token, .key-label, textarea, select, .lines, script, noscript, .map-frame, .choices, .written, .edge, [lang=en], .steps, .map-value, .pipeline summary, .row-panel h3, .outcome-after b, code, .generated, .tree-box svg, .tree-box td, .branches, .matters-table tbody',
          )
        )
          out.push(walk.currentNode.textContent);
      for (const element of document.querySelectorAll('[aria-label],[title],[placeholder]'))
        if (
          !element.closest(
            '.token, .katex, .row-columns, .words, .lines, [lang=en], .row-panel, .thumb, .map-frame, textarea, .matrix [role=gridcell], .choices, .matters-table tbody, .pins b, .tree-box, .pipeline',
          )
        )
          for (const name of ['aria-label', 'title', 'placeholder']) out.push(element.getAttribute(name) ?? '');
      // Names of the engine (`decoder.3.cross`) and the bits of a number are the same in every language.
      return (
        out
          .join('\n')
          .replace(/\b(en|de)coder\.\d+(\.[a-z_]+)+|\b0x[0-9a-f]+/g, '')
          .match(/[A-Za-z][A-Za-z_-]{3,}/g) ?? []
      );
    });
    for (const word of new Set(words)) if (!allowed.test(word)) english.push(`${hash}: ${word}`);
  }
  assert.deepEqual(english, []);
  // What is being said when the language is switched is said in the other.
  const inBoth = async (part) => {
    assert.match(await page.textContent(part), /[\u4e00-\u9fff]/);
    await page.click('.language');
    assert.match(await page.textContent(part), /[A-Za-z]{4}/);
    assert.doesNotMatch(await page.textContent(part), /[\u4e00-\u9fff]/);
    await page.click('.language');
    assert.doesNotMatch((await page.textContent(part)).replace('tatoeba-zh-en', ''), /[A-Za-z]{4}/);
  };
  await page.selectOption('#against', 'text');
  await page.fill('#other-text', '你好。');
  await page.click('#compare-text');
  await page.waitForSelector('.refusal');
  await inBoth('.refusal');
  await page.fill('#source-text', '我喜欢学习中文。'.repeat(200));
  await page.click('#run');
  await page.waitForSelector('.room .banner.error');
  await inBoth('.room .banner.error');
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
    await page.focus('.panes [role=tab][aria-selected=true]');
    for (const key of ['Home', 'ArrowRight', 'ArrowRight']) await page.keyboard.press(key);
    assert.ok(
      (await page.isVisible('#pane-outcome')) && !(await page.isVisible('#pane-row')),
      'arrow keys choose the part',
    );
    for (const tab of await page.$$('.panes [role=tab]')) {
      await tab.click();
      assert.equal(await tab.getAttribute('aria-selected'), 'true');
      const over = await overflow(page);
      assert.ok(over[0] === 0 && over[1] <= 361, `${await tab.textContent()}: ${over}`);
    }
    await page.context().close();
  }
});

test('larger for a projector: text and numbers grow by a third, nothing leaves the screen, and it is remembered', async () => {
  for (const width of [1280, 1440]) {
    const page = await open(browser, server, '#/model', { width });
    await ready(page, '#/model');
    const parts = [
      '.key-label',
      '.score-text',
      '.weight-text',
      '.token',
      '.choices li > b',
      '.choice-numbers',
      '.pipeline li > b',
      '.wall-n',
      'h2',
      '.room-text textarea',
      '.row-tools input',
    ];
    const sizes = () =>
      page.evaluate(
        (all) => all.map((part) => parseFloat(getComputedStyle(document.querySelector(part)).fontSize)),
        parts,
      );
    const before = await sizes();
    await page.click('h2');
    await page.keyboard.press('p');
    assert.equal(await page.getAttribute('#larger', 'aria-pressed'), 'true');
    (await sizes()).forEach((size, i) =>
      assert.ok(Math.abs(size / before[i] - 1.35) < 0.02, `${parts[i]}: ${before[i]} to ${size}`),
    );
    const drawn = await page.$eval('.map-frame canvas', (canvas) => canvas.clientHeight);
    await page.reload();
    await ready(page, '#/model');
    assert.equal(await page.getAttribute('#larger', 'aria-pressed'), 'true', 'remembered');
    assert.equal(await page.$eval('.map-frame canvas', (canvas) => canvas.clientHeight), drawn);
    await unfold(page);
    const wide = [];
    // What is cut off at the right edge, other than in a box of its own that scrolls.
    const cut = () =>
      page.evaluate(() =>
        [...document.querySelectorAll('body *')]
          .filter((element) => {
            const box = element.getBoundingClientRect();
            if (!box.width || box.right <= innerWidth + 1 || element.closest('.sr, .skip, .katex')) return false;
            for (let up = element.parentElement; up && up !== document.body; up = up.parentElement)
              if (/auto|scroll|hidden/.test(getComputedStyle(up).overflowX)) return false;
            return true;
          })
          .slice(0, 2)
          .map((element) => `${element.tagName} ${element.getAttribute('class')}`)
          .join(),
      );
    for (const hash of ['', ...screens]) {
      if (hash) {
        await page.goto(server.address + hash);
        await ready(page, hash);
      }
      const over = await overflow(page),
        out = await cut();
      if (over[0] > 0 || over[1] > width + 1 || out) wide.push(`${hash || 'model, unfolded'}: ${over} ${out}`);
    }
    assert.deepEqual(wide, [], `${width}`);
    await page.click('#larger');
    assert.equal(await page.getAttribute('html', 'data-size'), 'normal');
    assert.deepEqual(page.problems, []);
    await page.context().close();
  }
});

test('reduced motion: no animation over 0.1 s', async () => {
  const page = await open(browser, server, '#/workbench', { reducedMotion: 'reduce' });
  await settled(page);
  const long = await page.evaluate(
    () =>
      [...document.querySelectorAll('*')].filter((element) => {
        const s = getComputedStyle(element);
        return [s.animationDuration, s.transitionDuration].some((list) =>
          list.split(',').some((d) => parseFloat(d) > 0.1),
        );
      }).length,
  );
  assert.equal(long, 0);
  await page.context().close();
});

// The colours of the page as Chromium shows them to somebody who sees colours in another way (Machado et al. 2009), as L*a*b*.
async function seen(page, meter, type, colours) {
  await meter.send('Emulation.setEmulatedVisionDeficiency', { type });
  await page.evaluate((list) => {
    document.body.innerHTML = list
      .map((colour) => `<b style="display:block;width:24px;height:24px;background:${colour}"></b>`)
      .join('');
    document.body.style.cssText = 'margin:0;background:#fff';
  }, colours);
  const shot = (await page.screenshot({ clip: { x: 0, y: 0, width: 24, height: 24 * colours.length } })).toString(
    'base64',
  );
  const pixels = await page.evaluate(
    async ([png, count]) => {
      const image = new Image();
      image.src = `data:image/png;base64,${png}`;
      await image.decode();
      const canvas = document.createElement('canvas'),
        pen = canvas.getContext('2d');
      [canvas.width, canvas.height] = [image.width, image.height];
      pen.drawImage(image, 0, 0);
      return Array.from({ length: count }, (_, i) => [...pen.getImageData(12, 24 * i + 12, 1, 1).data].slice(0, 3));
    },
    [shot, colours.length],
  );
  return pixels.map((rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    const f = (v) => (v > 216 / 24389 ? Math.cbrt(v) : ((24389 / 27) * v + 16) / 116);
    const [x, y, z] = [
      (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
      0.2126 * r + 0.7152 * g + 0.0722 * b,
      (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    ].map(f);
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
  });
}
const apart = (a, b) => Math.hypot(...a.map((v, i) => v - b[i]));

test('the ramp of weights can be told apart under three colour deficiencies, light and dark', async () => {
  const built = await require('esbuild').build({
    entryPoints: [join(pageFolder, 'src/colours.ts')],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'node',
    logLevel: 'silent',
  });
  const colours = await import(
    'data:text/javascript;base64,' + Buffer.from(built.outputFiles[0].text).toString('base64')
  );
  const page = await open(browser, server, '#/workbench', { height: 600 });
  // The page draws with the same colours: those of its style are steps of the ramp.
  const style = await page.evaluate(() => {
    const css = getComputedStyle(document.documentElement);
    return ['--w0', '--w1', '--w3', '--w5'].map((name) => css.getPropertyValue(name).trim());
  });
  assert.deepEqual(
    style,
    [0, 1, 3, 5].map((i) => colours.light.weights[i]),
  );
  // The page's own policy lets no picture in that a test makes: a page of our own does.
  const paper = await (await browser.newContext({ viewport: { width: 200, height: 400 } })).newPage(),
    meter = await paper.context().newCDPSession(paper);
  await paper.setContent('<!doctype html><title>colours</title>');
  for (const palette of [colours.light, colours.night]) {
    const steps = palette.weights,
      signs = [palette.hues.w, palette.hues.k];
    const plain = await seen(paper, meter, 'none', [...steps, ...signs]);
    for (const type of ['protanopia', 'deuteranopia', 'tritanopia']) {
      const shown = await seen(paper, meter, type, [...steps, ...signs]);
      assert.ok(
        shown.some((colour, i) => apart(colour, plain[i]) > 2),
        `${type} is simulated`,
      );
      const up = Math.sign(shown[5][0] - shown[0][0]);
      for (let i = 1; i < steps.length; ++i) {
        assert.ok(
          apart(shown[i - 1], shown[i]) >= 10,
          `${type}: steps ${i - 1} and ${i} are ${apart(shown[i - 1], shown[i]).toFixed(1)} apart`,
        );
        assert.ok(up * (shown[i][0] - shown[i - 1][0]) >= 8, `${type}: step ${i} goes on in lightness`);
      }
      // More and less of a difference are two hues; the numbers beside them say the sign, too.
      assert.ok(
        apart(shown[6], shown[7]) >= 20,
        `${type}: more and less are ${apart(shown[6], shown[7]).toFixed(1)} apart`,
      );
    }
  }
  await paper.context().close();
  await page.context().close();
});

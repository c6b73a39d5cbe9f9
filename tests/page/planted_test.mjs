// Models whose heads were made by hand: what the page finds in them is known beforehand.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { api, browse, open, planted, serve, settled } from './common.mjs';
import { logits, near, vector, weights } from './roomwork.mjs';

let browser, folder;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'attend-planted-'));
  execFileSync(planted, [folder]);
  browser = await browse();
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

async function withModel(name, text, act, ...more) {
  const server = await serve(join(folder, name), ...more);
  try {
    const page = await open(browser, server, '#/model');
    await page.waitForSelector('#source-text');
    await page.fill('#source-text', text);
    if (await page.locator('#target-text').count()) await page.fill('#target-text', text);
    await page.click('#run');
    await page.waitForSelector('.live');
    await settled(page);
    await act(page, server);
    assert.deepEqual(page.problems, []);
    assert.deepEqual(page.outside, []);
    await page.context().close();
  } finally {
    await server.stop();
  }
}
const find = async (page) => {
  await page.selectOption('#search-in', 'text');
  await page.click('#find-heads');
  await page.waitForSelector('.wall.ranked .thumb', { timeout: 60000 });
};
const first = async (page, metric) => {
  await page.selectOption('#metric', metric);
  await settled(page);
  return page.getAttribute('.wall.ranked .thumb >> nth=0', 'data-head');
};
const head = async (page, name) => {
  await page.selectOption('#metric', 'layers');
  await page.click(`.wall [data-head="${name}"]`);
  await settled(page);
};
const pinned = (page) =>
  page
    .waitForSelector('.difference')
    .then((figure) => figure.evaluate((f) => ({ largest: Number(f.dataset.largest), mean: Number(f.dataset.mean) })));
const measure = async (page) => {
  await page.click('#measure');
  await page.waitForSelector('.matters-table td[data-method=exact]');
  return page.$$eval('.matters-table tbody tr', (rows) =>
    rows.map((row) => ({
      key: Number(row.dataset.key),
      ...Object.fromEntries(
        [...row.querySelectorAll('td')].map((cell) => [cell.dataset.method, Number(cell.dataset.value)]),
      ),
    })),
  );
};

test('planted previous-token, induction, sink and self heads rank first; a head less itself is 0', async () => {
  await withModel('induction', 'abcdefgabcdefgabcdefg', async (page) => {
    await find(page);
    assert.equal(await first(page, 'previous'), 'decoder.0.self.2');
    assert.equal(await first(page, 'induction'), 'decoder.1.self.1');
    assert.equal(await first(page, 'self'), 'decoder.0.self.1');
    assert.equal(await first(page, 'first'), 'decoder.0.self.0');
    await head(page, 'decoder.0.self.2');
    await page.click('#pin-head');
    assert.deepEqual(await pinned(page), { largest: 0, mean: 0 });
    await head(page, 'decoder.0.self.0');
    await page.waitForFunction(() => Number(document.querySelector('.difference')?.dataset.largest) > 0.99);
    assert.equal(await first(page, 'like'), 'decoder.0.self.0');
    near(Number(await page.textContent('.wall.ranked .thumb small >> nth=0')), 1, 1e-6, 'a head is like itself');
    // Four at most stay pinned.
    for (const name of ['decoder.0.self.0', 'decoder.0.self.1', 'decoder.0.self.3', 'decoder.1.self.0']) {
      await head(page, name);
      await page.click('#pin-head');
    }
    assert.equal(await page.locator('[data-pin]').count(), 4);
  });
});

test('a head with V = 0 is bright where it looks and 0 where it matters; the useful edge is found first', async () => {
  await withModel('quiet', 'acbefghacfeg', async (page, server) => {
    const cue = 3,
      last = 12;
    await page.click(`[role=listbox] >> nth=-1 >> [data-token="${last}"]`);
    await settled(page);
    const top = async (edited) =>
      Number(
        Object.entries(await logits(page, edited))
          .filter(([, logit]) => !Number.isNaN(logit))
          .sort((a, b) => b[1] - a[1])[0][0],
      );
    assert.equal(await top(false), 7, 'the quiet head names the answer');
    await head(page, 'decoder.0.self.0');
    assert.ok((await weights(page))[cue] > 0.99, 'it looks at the cue');
    const silent = (await measure(page)).find((edge) => edge.key === cue);
    assert.equal(silent.write, 0);
    near(silent.exact, 0, 2e-6, 'and cutting it changes nothing');
    await head(page, 'decoder.0.self.2');
    await page.waitForFunction(
      (key) =>
        Number(document.querySelector('.matters-table tbody tr')?.dataset.key) === key &&
        Number(document.querySelector('.matters-table td[data-method=weight]').dataset.value) < 0.1,
      cue,
    );
    const effect = await page.$eval('.matters-table td[data-method=exact]', (cell) => Number(cell.dataset.value));
    assert.ok(effect > 1, `the faint edge carries the answer: ${effect}`);
    // The text is coloured by what was measured: the cue as strongly as can be.
    await page.waitForSelector('[data-lens=exact]');
    assert.equal(await page.getAttribute(`[role=listbox] >> nth=-1 >> [data-token="${cue}"]`, 'data-share'), '1.000');
    // Rather than the runner-up: the same edge.
    const other = await page.$$eval(
      '#versus-token option',
      (all) => all.map((option) => option.value).filter(Boolean)[0],
    );
    await page.selectOption('#versus-token', other);
    await page.waitForFunction((was) => {
      const cell = document.querySelector('.matters-table td[data-method=exact]');
      return cell && Number(cell.dataset.value) !== was;
    }, effect);
    assert.equal(await page.getAttribute('.matters-table tbody tr >> nth=0', 'data-key'), String(cue));
    // Of all edges of all heads, too.
    const all = await api(server, 'importance', {
      model: 'quiet',
      input: { text: 'acbefghacfeg' },
      edits: [],
      target: { row: last, token: 7 },
      top: 40,
    });
    assert.deepEqual([all.edges[0].attention, all.edges[0].head, all.edges[0].key], ['decoder.0.self', 2, cue]);
    // Cut by hand, the answer goes.
    await page.click('#cut-head');
    await settled(page);
    assert.notEqual(await top(true), 7);
  });
});

test('an encoder in the same grammar: heads look both ways', async () => {
  await withModel('offsets', 'bcdefghbcdefgh', async (page) => {
    assert.deepEqual(await page.$$eval('#tabs [role=radio]', (all) => all.map((tab) => tab.dataset.value)), [
      'encoder',
    ]);
    await head(page, 'encoder.0.self.1');
    await page.click('[role=listbox] >> nth=-1 >> [data-token="4"]');
    await settled(page);
    const row = await weights(page);
    near(
      row.reduce((a, b) => a + b, 0),
      1,
      1e-6,
      'row sum',
    );
    assert.ok(row[5] > 0.99, 'the token after');
    await find(page);
    assert.equal(await first(page, 'previous'), 'encoder.0.self.0');
    assert.equal(await first(page, 'next'), 'encoder.0.self.1');
  });
});

test('an encoder-decoder that copies: the planted alignment head is found and its links are saved', async () => {
  await withModel('cross', 'fedcbahg', async (page) => {
    await page.click('#tabs [data-value=cross]');
    await find(page);
    assert.equal(await first(page, 'alignment'), 'decoder.0.cross.0');
    await head(page, 'decoder.0.cross.0');
    await page.click('#export');
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.click('[role=menuitem]:has-text("Alignments")'),
    ]);
    assert.equal(readFileSync(await file.path(), 'utf8'), '0-0 1-1 2-2 3-3 4-4 5-5 6-6 7-7\n');
    assert.ok((await vector(page, 'projected')).length > 0);
  });
});

const difference = async (page) => {
  await settled(page);
  return pinned(page);
};
const against = async (page, what) => {
  await page.selectOption('#against', what);
  await settled(page);
};

test('two texts: a text less itself is 0, what differs is found, and other lengths are refused', async () => {
  await withModel('induction', 'abcdefgabcdefg', async (page) => {
    await head(page, 'decoder.1.self.1');
    await against(page, 'text');
    const compare = async (text) => {
      await page.fill('#other-text', text);
      await page.click('#compare-text');
      await settled(page);
    };
    await compare('abcdefgabcdefg');
    assert.deepEqual(await difference(page), { largest: 0, mean: 0 });
    // Nothing is repeated there: the induction head rests on the begin mark, where it read b after the first a.
    await compare('abcdefghijklmn');
    await page.waitForFunction(() => Number(document.querySelector('.difference')?.dataset.largest) > 0.99);
    assert.ok(Number((await page.getAttribute('.difference', 'data-at')).split(',')[0]) >= 8);
    // A head that goes by places alone reads both alike.
    await head(page, 'decoder.0.self.2');
    await page.waitForFunction(() => Number(document.querySelector('.difference')?.dataset.largest) < 1e-5);
    await compare('abc');
    await page.waitForSelector('.refusal');
    assert.match(await page.textContent('.refusal'), /15 queries and 15 keys.*4 and 4/);
    assert.equal(await page.locator('.difference').count(), 0, 'no map of what does not fit');
  });
});

test('two checkpoints: the same one gives 0, a later one what was changed, another shape is refused; the link keeps it', async () => {
  await withModel(
    'induction',
    'abcdefgabcdefg',
    async (page, server) => {
      await head(page, 'decoder.0.self.2');
      await against(page, 'model');
      await page.selectOption('#other-model', 'copy');
      assert.deepEqual(await difference(page), { largest: 0, mean: 0 });
      await page.selectOption('#other-model', 'later');
      await page.waitForFunction(() => Number(document.querySelector('.difference')?.dataset.largest) > 0.5);
      // The token before has all the weight in one, every token its share in the other.
      const n = 15,
        wanted = Array.from({ length: n }, (_, i) => (2 * i) / (i + 1)).reduce((a, b) => a + b, 0) / n / n;
      const found = await difference(page);
      near(found.largest, 1 - 1 / n, 1e-5, 'largest');
      near(found.mean, wanted, 1e-5, 'mean');
      assert.equal(await page.getAttribute('.difference', 'data-at'), '14,13');
      await settled(page);
      const other = await open(browser, server, page.url().slice(server.address.length));
      await other.waitForSelector('.difference');
      assert.deepEqual(await difference(other), found);
      await other.context().close();
      await page.selectOption('#other-model', 'quiet');
      await page.waitForSelector('.refusal');
      assert.match(await page.textContent('.refusal'), /induction .*quiet /);
      assert.equal(await page.locator('.difference').count(), 0);
    },
    '--models',
    folder,
  );
});

test('a text from right to left is read so: order, fields, arrows and the drag', async () => {
  const text = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4].map((i) => String.fromCodePoint(0x5d0 + i)).join('');
  await withModel('hebrew', text, async (page) => {
    const left = (selector) => page.$eval(selector, (element) => element.getBoundingClientRect().left);
    const word = (i) => `.words [data-token="${i}"]`;
    assert.equal(await page.$eval('#source-text', (field) => getComputedStyle(field).direction), 'rtl');
    assert.ok((await left(word(1))) > (await left(word(2))), 'the first letter stands on the right');
    assert.ok((await left(word(0))) > (await left(word(1))), 'and the begin mark before it');
    await page.click(word(4));
    await settled(page);
    await page.keyboard.press('ArrowLeft');
    await settled(page);
    assert.equal(await page.getAttribute('.token.chosen-q', 'data-token'), '5', 'to the left is onward');
    // A line of ours around such words stays as it is: the query, an arrow, the key.
    await page.click('.row-column[data-key="2"] .key-label');
    await settled(page);
    assert.ok((await left('.edge .hue-q')) < (await left('.edge .hue-k')));
    assert.ok((await left('.map-value .hue-q')) < (await left('.map-value .hue-k')));
    const slider = page.locator('.row-column[data-key="2"] [role=slider]'),
      before = await weights(page);
    await slider.scrollIntoViewIfNeeded();
    const box = await slider.boundingBox(),
      x = box.x + box.width / 2,
      y = box.y + box.height / 2;
    await page.mouse.move(x, y);
    await page.mouse.down();
    await page.mouse.move(x, y - 40, { steps: 4 });
    await page.mouse.up();
    await settled(page);
    const after = await weights(page);
    assert.ok(after[2] > before[2], `${before[2]} to ${after[2]}`);
    near(
      after.reduce((a, b) => a + b, 0),
      1,
      1e-6,
      'row sum',
    );
    assert.equal(await page.locator('.edits li').count(), 1);
    await page.click('.segmented [data-value=lines]');
    await page.waitForSelector('.lines .thread.now', { state: 'attached' });
    assert.ok((await left('.lines .line-key >> nth=1')) > (await left('.lines .line-key >> nth=2')));
    await page.click('#generate');
    await page.waitForSelector('.steps button');
    await settled(page);
    assert.ok((await left('.steps [data-step="0"]')) > (await left('.steps [data-step="1"]')));
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  });
});

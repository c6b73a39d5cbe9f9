// The lessons: each check refuses before the act and passes after it; the self-test takes right answers only.
import assert from 'node:assert/strict';
import test, { after, before } from 'node:test';
import { browse, open, quiet, serve } from './common.mjs';

let server, browser, page;
before(async () => {
  server = await serve();
  browser = await browse();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const type = async (name, row, column, value) => {
  const cell = page.locator(`[data-matrix="${name}"] [data-row="${row}"][data-column="${column}"]`);
  await cell.dblclick();
  await page.locator('.cell-input').fill(String(value));
  await page.keyboard.press('Enter');
};
const set = async (key, label, value) => {
  await page.click(`.row-column[data-key="${key}"] .key-label`);
  const field = page.locator('.row-tools .number', { hasText: label }).locator('input');
  await field.fill(String(value));
  await field.press('Enter');
};
const dial = (id, value) =>
  page.$eval(
    `#${id}`,
    (input, number) => {
      input.value = String(number);
      input.dispatchEvent(new Event('input', { bubbles: true }));
    },
    value,
  );

const acts = {
  sources: async () => {
    await page.click('[data-value=cross]');
    await page.waitForSelector('[data-matrix=memory]');
    await type('memory', 0, 1, 3);
  },
  roles: () => type('wv', 0, 0, 2),
  query: () => set(0, 'score', 2.6),
  'query/2': () => set(0, 'weight', 0.25),
  scale: () => page.click('[data-value="64"]'),
  'scale/2': () => page.click('[data-value="64"]'),
  matrix: () => page.click('[data-matrix=products] [data-row="1"][data-column="2"]'),
  'matrix/2': async () => {
    await type('wk', 0, 1, 0);
  },
  cross: async () => {
    await type('q', 0, 0, -2);
    await type('q', 0, 1, 3);
  },
  'cross/2': async () => {
    await page.fill('#answer', '38416');
    await page.press('#answer', 'Enter');
  },
  masks: async () => {
    await page.click('[data-value=after]');
    await quiet(page);
    await page.click('[data-value=before]');
  },
  'masks/2': async () => {
    for (const cell of ['0,1', '0,2', '0,3', '1,2', '1,3', '2,3']) await page.click(`[data-mask="${cell}"]`);
  },
  cache: () => page.click('[data-value=robot]'),
  'cache/2': async () => {
    for (let i = 0; i < 5; ++i) {
      await page.click('#write-row:not(:disabled)');
      await page.waitForFunction((n) => document.querySelectorAll('.cache-strip .full').length === n, i + 1);
    }
  },
  heads: async () => {
    for (let i = 0; i < 4; ++i) await type('wo', i, i, 0.5);
  },
  block: () => type('bn', 0, 0, -7),
  positions: async () => {
    await dial('dial-q', 105);
    await dial('dial-k', 102);
  },
  cost: () => dial('dial-n', 15),
  importance: async () => {
    await type('v', 0, 0, 0.3763);
    await type('v', 0, 1, 1.3763);
  },
};

for (const [lesson, act] of Object.entries(acts)) {
  test(`${lesson} is passed only by doing it`, async () => {
    page = await open(browser, server, `#/learn/${lesson}`);
    await page.waitForSelector('#check');
    await quiet(page);
    await page.click('#check');
    await page.waitForSelector('#verdict.bad');
    await act();
    await quiet(page);
    await page.click('#check');
    try {
      await page.waitForSelector('#verdict.good', { timeout: 5000 });
    } catch {
      assert.fail(`not passed: ${await page.textContent('#verdict')}`);
    }
    assert.deepEqual(page.problems, []);
    await page.context().close();
  });
}

test('the worked examples stand in the lessons with all intermediate values', async () => {
  const look = async (lesson, ...texts) => {
    page = await open(browser, server, `#/learn/${lesson}`);
    await page.waitForSelector('.lesson-figure td, .lesson-figure svg');
    await quiet(page);
    const text = (await page.innerText('.lesson-figure')).replace(/\s+/g, ' ');
    for (const part of texts) assert.ok(text.includes(part), `${lesson} does not show ${part}: ${text.slice(0, 600)}`);
    await page.context().close();
  };
  await look(
    'query',
    '1.414',
    '0.707',
    '2.121',
    '4.113',
    '2.028',
    '8.342',
    '0.284',
    '0.140',
    '0.576',
    '1.576',
    '1.432',
  );
  await look('query/2', '0.500');
  await look('scale', '0.9997', '0.0003');
  await look('cross', '0.707', '1.414', '2.028', '4.113', '0.248', '0.503', '1.497');
  await look('cross/2', '8 × 196');
  await look('cache', 'robot', '<BOS>', '<EOS>');
  await look('heads', '1.2', '−0.4', '0.5');
  await look('block', '1.5', '−1', '2');
  await look('cost', '1,048,576', '2 MiB');
});

test('the self-test takes the worked answers, refuses others, and gives fresh numbers', async () => {
  page = await open(browser, server, '#/learn/self-test');
  await page.waitForSelector('[data-question="9"]');
  const answers = [
    [1, 2],
    [0.5, 0.5, 1, 2],
    [1],
    [8, 196, 38416],
    { choose: 3, press: [1, 1, 1, 0] },
    { press: [1, 1, 1, 0] },
    [0.6, -0.2, 0.25, 1],
    [1048576, 4194304, 4],
    [64, 8],
  ];
  const submit = (n) => page.click(`[data-question="${n}"] button[type=submit]`);
  const fill = async (n, values) => {
    const fields = page.locator(`[data-question="${n}"] input`);
    assert.equal(await fields.count(), values.length, `question ${n}`);
    for (let i = 0; i < values.length; ++i) await fields.nth(i).fill(String(values[i]));
    await submit(n);
  };
  const point = async (n, { choose, press }) => {
    const question = page.locator(`[data-question="${n}"]`),
      tokens = question.locator('.pick button');
    if (choose) await question.locator(`[role=radio][data-value="${choose}"]`).click();
    assert.equal(await tokens.count(), press.length, `question ${n}`);
    for (let i = 0; i < press.length; ++i)
      if (((await tokens.nth(i).getAttribute('aria-pressed')) === 'true') !== !!press[i]) await tokens.nth(i).click();
    await submit(n);
  };
  for (let n = 1; n <= 9; ++n) {
    const right = answers[n - 1],
      wrongs = Array.isArray(right)
        ? [right.map((value) => value + 3)]
        : [
            { ...right, press: right.press.map((read) => 1 - read) },
            ...(right.choose ? [{ ...right, choose: right.choose + 1 }] : []),
            { ...right, press: right.press.map(() => 1) },
          ];
    for (const wrong of wrongs) {
      await (Array.isArray(wrong) ? fill : point)(n, wrong);
      await page.waitForSelector(`[data-question="${n}"] p.bad`);
      await page.waitForFunction((n) => !document.querySelector(`[data-question="${n}"] p.good`), n);
    }
    await (Array.isArray(right) ? fill : point)(n, right);
    await page.waitForSelector(`[data-question="${n}"] p.good`, { timeout: 5000 });
  }
  assert.match(await page.textContent('.selftest-tools b'), /9 of 9/);
  const before = await page.$$eval('.question .ask', (all) => all.map((p) => p.textContent));
  await page.click('#fresh');
  await page.waitForFunction(
    (old) =>
      document.querySelectorAll('.question').length === 9 &&
      document.querySelector('.question .ask').textContent !== old,
    before[0],
  );
  // Fresh numbers, and answers that follow from them: the scores of the first question, worked from its own text.
  const [q, k1, k2] = [...(await page.textContent('[data-question="1"] .ask')).matchAll(/\[([^\]]+)\]/g)].map((found) =>
    found[1].replace(/−/g, '-').split(',').map(Number),
  );
  const dot = (k) => q[0] * k[0] + q[1] * k[1];
  await fill(1, [dot(k1), dot(k2)]);
  await page.waitForSelector('[data-question="1"] p.good');
  await page.click('[data-question="1"] button:has-text("Worked solution")');
  assert.ok((await page.textContent('[data-question="1"] .solution')).includes(String(dot(k1)).replace('-', '−')));
  await page.context().close();
});

test('a box takes a number as people type it, Enter checks, and the focus comes back to the cell', async () => {
  for (const answer of ['38,416', '38 416', '３８４１６']) {
    page = await open(browser, server, '#/learn/cross/2');
    await page.fill('#answer', answer);
    await page.press('#answer', 'Enter');
    await page.waitForSelector('#verdict.good');
    await page.context().close();
  }
  page = await open(browser, server, '#/learn/roles');
  const cell = page.locator('[data-matrix=wv] [data-row="0"][data-column="0"]');
  for (const [typed, value] of [
    ['１', 1],
    ['1/2', 0.5],
    ['1,5', 1.5],
    ['−2', -2],
    ['2e1', 20],
  ]) {
    await cell.dblclick();
    await page.locator('.cell-input').fill(typed);
    await page.keyboard.press('Enter');
    await page.waitForFunction(
      (wanted) =>
        Number(document.querySelector('[data-matrix=wv] [data-row="0"][data-column="0"]').dataset.value) === wanted,
      value,
    );
    assert.deepEqual(
      await page.evaluate(() => ({
        ...document.activeElement.dataset,
        matrix: document.activeElement.closest('[data-matrix]')?.dataset.matrix,
      })),
      { row: '0', column: '0', value: String(value), matrix: 'wv' },
    );
  }
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => document.activeElement.dataset.column), '1');
  // What is no number is said so, until a number stands there.
  await page.keyboard.press('Enter');
  await page.locator('.cell-input').fill('Infinity');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.toast.error');
  await page.keyboard.press('7');
  await page.keyboard.press('Tab');
  await page.waitForSelector('.toast.error', { state: 'detached' });
  assert.equal(
    await page.evaluate(() => `${document.activeElement.dataset.row} ${document.activeElement.dataset.column}`),
    '1 0',
  );
  await page.context().close();
});

test('a hint is true of the numbers that stand there, and a box is not green and red at once', async () => {
  page = await open(browser, server, '#/learn/roles');
  await type('wv', 0, 0, 2);
  await page.click('#check');
  await page.waitForSelector('#verdict.good');
  assert.match(await page.textContent('#verdict'), /W_V/);
  await type('x', 2, 0, 5);
  await page.click('#check');
  await page.waitForSelector('#verdict.bad');
  assert.match(await page.textContent('#verdict'), /keys have changed/);
  assert.equal(await page.locator('.act.finished').count(), 0);
  await page.goto(`${server.address}#/learn/scale`);
  await page.waitForSelector('[data-slope]');
  await page.fill('.figure-tools .number input', '0');
  await page.press('.figure-tools .number input', 'Enter');
  await page.waitForFunction(() => document.querySelector('[data-slope]').dataset.slope === '0.25');
  await page.click('#check');
  await page.waitForSelector('#verdict.bad');
  assert.match(await page.textContent('#verdict'), /back to 8/);
  await page.context().close();
});

test('the norm of equal numbers: the reason, and no result from before', async () => {
  for (const language of ['en-US', 'zh-CN']) {
    page = await open(browser, server, '#/learn/block', { language });
    await page.waitForSelector('[data-matrix=bnorm]');
    await type('bn', 0, 0, 5);
    await type('bn', 0, 1, 5);
    await page.waitForSelector('.block-line .bad');
    assert.match(await page.textContent('.block-line .bad'), language === 'en-US' ? /variance/ : /方差/);
    assert.equal(await page.locator('[data-matrix=bnorm]').count(), 0);
    assert.equal(await page.locator('[data-matrix=bsum]').count(), 1);
    await type('bn', 0, 1, 7);
    await page.waitForSelector('[data-matrix=bnorm]');
    assert.equal(await page.locator('.block-line .bad').count(), 0);
    await page.context().close();
  }
});

test('an address where nothing is, and a message that does not outlive its screen', async () => {
  for (const hash of ['#/nowhere', '#/learn/nope']) {
    page = await open(browser, server, hash);
    await page.waitForSelector('.toast.error');
    assert.ok((await page.textContent('.toast.error')).includes(hash));
    await page.waitForSelector('.home');
    await page.click('.cards a');
    await page.waitForSelector('.lesson');
    assert.equal(await page.locator('.toast').count(), 0);
    await page.context().close();
  }
});

test('what was done is remembered', async () => {
  page = await open(browser, server, '#/learn/matrix');
  await acts.matrix();
  await page.click('#check');
  await page.waitForSelector('#verdict.good');
  await page.click('.brand');
  await page.waitForSelector('.home');
  assert.match(await page.textContent('.home-go'), /1 of 19/);
  await page.reload();
  await page.waitForSelector('.home-go .faint');
  await page.context().close();
});

test('a verdict speaks of the figure as it is', async () => {
  page = await open(browser, server, '#/learn/query/2');
  await page.waitForSelector('#check');
  await quiet(page);
  await page.click('#check');
  await page.waitForSelector('#verdict.bad:has-text("[1, 2]")');
  await set(0, 'weight', 0.5);
  await set(0, 'weight', 0.125);
  await quiet(page);
  await page.waitForSelector('#verdict.bad:has-text("0.250")');
  await set(0, 'weight', 0.25);
  await quiet(page);
  await page.waitForSelector('#verdict', { state: 'detached' });
  await page.click('#check');
  await page.waitForSelector('#verdict.good');
  await set(0, 'weight', 0.5);
  await quiet(page);
  await page.waitForSelector('#verdict', { state: 'detached' });
  await page.context().close();
});

test('a detour is named for what it is', async () => {
  const detours = {
    cross: [
      async () => {
        await set(1, 'score', 6);
      },
      /an edit of the row/,
    ],
    'matrix/2': [
      async () => {
        for (const [row, column] of [
          [0, 0],
          [0, 1],
          [1, 0],
          [1, 1],
        ])
          await type('wk', row, column, 0);
      },
      /all scores are 0/,
    ],
    positions: [
      async () => {
        await dial('dial-q', 5);
        await dial('dial-k', 2);
      },
      /5 and 2 themselves/,
    ],
    importance: [
      async () => {
        for (const row of [0, 1, 2]) for (const column of [0, 1]) await type('v', row, column, 1);
      },
      /nearly the same/,
    ],
  };
  for (const [lesson, [act, wanted]] of Object.entries(detours)) {
    page = await open(browser, server, `#/learn/${lesson}`);
    await page.waitForSelector('#check');
    await quiet(page);
    await act();
    await quiet(page);
    await page.click('#check');
    await page.waitForSelector('#verdict.bad');
    assert.match(await page.textContent('#verdict'), wanted, lesson);
    await page.context().close();
  }
});

test('lesson 13 cuts what stands in the figure, edited scores too', async () => {
  page = await open(browser, server, '#/learn/importance');
  await page.waitForSelector('#check');
  await quiet(page);
  await set(0, 'score', -20);
  await quiet(page);
  const numbers = (kind) =>
    page.$$eval(`.meter.${kind} b`, (all) => all.map((b) => Number(b.textContent.replace(/−/g, '-'))));
  const weights = await numbers('w'),
    effects = await numbers('e');
  const v = [
      [3, 0],
      [0, 1],
      [1, 2],
    ],
    output = [0, 1].map((c) => weights.reduce((sum, w, j) => sum + w * v[j][c], 0));
  for (const j of [1, 2]) {
    const wanted = Math.hypot(...output.map((o, c) => (weights[j] / (1 - weights[j])) * (o - v[j][c])));
    assert.ok(Math.abs(effects[j] - wanted) < 5e-3, `key ${j}: ${effects[j]} against ${wanted}`);
  }
  await page.context().close();
});

test('an edited score stands out among the numbers worked by hand', async () => {
  page = await open(browser, server, '#/learn/query');
  await page.waitForSelector('.by-hand');
  await quiet(page);
  await set(0, 'score', 2.6);
  await quiet(page);
  assert.equal(await page.textContent('.by-hand tbody tr >> nth=1 >> td >> nth=0'), '1.414 2.600');
  await page.context().close();
});

test('a count that is one off is wrong', async () => {
  page = await open(browser, server, '#/learn/self-test');
  const fields = page.locator('[data-question="8"] input');
  await fields.first().waitFor();
  for (const [i, value] of [1048576, 4194305, 4].entries()) await fields.nth(i).fill(String(value));
  await page.click('[data-question="8"] button[type=submit]');
  await page.waitForSelector('[data-question="8"] p.bad');
  assert.deepEqual(await fields.evaluateAll((all) => all.map((field) => field.getAttribute('aria-invalid'))), [
    'false',
    'true',
    'false',
  ]);
  await page.context().close();
});

test('the tile of the cost lesson is drawn to scale', async () => {
  page = await open(browser, server, '#/learn/cost');
  await page.waitForSelector('.tile.now');
  assert.equal(Number(await page.getAttribute('.tile.now', 'width')), 200 / 16);
  await dial('dial-n', 7);
  await page.waitForFunction(() => document.querySelector('.tile.now').getAttribute('width') === '100');
  assert.match(await page.textContent('.tile-dial'), /of 4:/);
  await page.context().close();
});

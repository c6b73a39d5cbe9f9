// Answers that come late, in another order, or not at all: what stands on the page belongs to what was asked for last. And what
// a link, a file or a broken answer holds is refused in a sentence.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { deflateRawSync } from 'node:zlib';
import { browse, open, serve, settled, translator } from './common.mjs';
import { choose, enter, near, query, sentence, slider, weights } from './roomwork.mjs';

let server, browser, folder;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'attend-races-'));
  server = await serve(translator);
  browser = await browse();
});
after(async () => {
  await browser?.close();
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

// Holds up every answer to `path` that `which` says, after the engine gave it; `free` lets them all go, in the order they came.
async function holdUp(page, path, which = () => true) {
  const held = [];
  let closed = true;
  await page.route(`**/api/v1/${path}`, async (route) => {
    if (!closed || !which(route.request().postDataJSON())) return route.fallback();
    const answer = await route.fetch();
    if (closed) await new Promise((go) => held.push(go));
    await route.fulfill({ response: answer }).catch(() => undefined);
  });
  const arrived = async (count) => {
    for (const end = Date.now() + 10000; held.length < count;) {
      assert.ok(Date.now() < end, `${held.length} of ${count} requests to ${path}`);
      await page.waitForTimeout(10);
    }
  };
  return {
    arrived,
    count: () => held.length,
    free: () => {
      closed = false;
      for (const go of held.splice(0)) go();
    },
  };
}
// The model room with the row of one word chosen in the last cross-attention.
async function openRow() {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'cross', 3, 0);
  await query(page, 1);
  return page;
}
const moment = (page) => page.waitForTimeout(150);
const linkTo = (state) => `#/model?v=1&s=${deflateRawSync(JSON.stringify(state)).toString('base64url')}`;
const pictures = (page) => page.$$eval('.thumb canvas', (all) => all.map((canvas) => canvas.toDataURL()));
const rowAsks = (page) => {
  const asks = [];
  page.on('request', (request) => {
    if (/\/row$/.test(request.url())) asks.push(request.postDataJSON());
  });
  return asks;
};

// A source of more than 128 tokens, with a target of its own.
async function enterLong(page) {
  await enter(page);
  await page.fill('#source-text', '我喜欢学习中文，'.repeat(36));
  await page.fill('#target-text', 'I like it.');
  await page.click('#run');
  await moment(page);
  await settled(page);
  await choose(page, 'encoder', 0, 1);
}

async function grip(page, key) {
  await slider(page, key).scrollIntoViewIfNeeded();
  const box = await slider(page, key).boundingBox(),
    x = box.x + box.width / 2,
    y = box.y + box.height / 2;
  await page.mouse.move(x, y);
  await page.mouse.down();
  await page.mouse.move(x, y - 12, { steps: 2 });
  await page.mouse.move(x, y - 40);
}

test('matrices of an edit that was taken back meanwhile are not drawn', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'decoder', 0, 0);
  const before = await pictures(page);
  const late = await holdUp(page, 'tile', (body) => body.edits.length > 0);
  await page.click('#cut-head');
  await late.arrived(3);
  await page.click('#undo');
  await moment(page);
  late.free();
  await settled(page);
  assert.deepEqual(await pictures(page), before);
  await page.context().close();
});

test('lines of an edit that was taken back meanwhile are not drawn', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'encoder', 2, 1);
  await page.click('.segmented [data-value=lines]');
  await settled(page);
  const threads = () =>
    page.$$eval('.lines .thread:not(.now)', (all) =>
      all.map((line) => `${line.getAttribute('d')} ${line.style.opacity}`),
    );
  const before = await threads();
  const late = await holdUp(page, 'tile', (body) => body.edits.length > 0);
  await page.click('#add-edit');
  await page.click('[role=menuitem]:has-text("Evict")');
  await late.arrived(1);
  await page.click('#undo');
  await moment(page);
  late.free();
  await settled(page);
  assert.deepEqual(await threads(), before);
  await page.context().close();
});

test('a drag that was taken back at once leaves no edited column, whenever its answer comes', async () => {
  const page = await openRow();
  const late = await holdUp(page, 'run', (body) => body.edits.length > 0);
  await grip(page, 2);
  await late.arrived(1);
  await page.mouse.up();
  await page.keyboard.press('z');
  await moment(page);
  late.free();
  await settled(page);
  await moment(page);
  assert.equal(await page.locator('.edits li').count(), 0);
  assert.equal(await page.locator('[data-edited-logit]').count(), 0, 'no edit, no edited column');
  await page.context().close();
});

test('a drag over one text leaves no column beside the next', async () => {
  const page = await openRow();
  const late = await holdUp(page, 'run', (body) => body.edits.length > 0);
  await grip(page, 2);
  await late.arrived(1);
  await page.mouse.up();
  const label = await page.getAttribute('.room-bar select >> nth=-1', 'aria-label');
  const examples = page.locator('.room-bar select').last();
  assert.ok((await examples.locator('option').count()) > 2, `${label}`);
  await examples.selectOption('1');
  await moment(page);
  late.free();
  await settled(page);
  await moment(page);
  assert.equal(await page.locator('[data-edited-logit]').count(), 0);
  await page.context().close();
});

test('a row of the text before is not drawn under the tokens of the new one', async () => {
  const page = await openRow();
  const late = await holdUp(page, 'row', (body) => body.input.source === sentence);
  await page.keyboard.press(']');
  await late.arrived(1);
  await page.fill('#source-text', '他喜欢音乐和电影。');
  await page.click('#run');
  await page.waitForSelector('.outcome');
  await moment(page);
  const tokens = await page.locator('.words').first().locator('.token').count();
  late.free();
  // Never, not only in the end: one look a frame.
  const wrong = await page.evaluate(async (columns) => {
    const seen = [];
    for (let i = 0; i < 60; ++i) {
      const shown = document.querySelectorAll('.row-column').length;
      if (shown && shown !== columns) seen.push(shown);
      await new Promise((done) => requestAnimationFrame(done));
    }
    return seen;
  }, tokens);
  assert.deepEqual(wrong, []);
  await settled(page);
  near(
    (await weights(page)).reduce((a, b) => a + b, 0),
    1,
    1e-6,
    'row sum',
  );
  assert.equal((await weights(page)).length, tokens);
  await page.context().close();
});

test('another target while a measurement runs: what is shown is measured for it', async () => {
  const page = await openRow();
  const asks = [];
  page.on('request', (request) => {
    if (/\/importance$/.test(request.url())) asks.push(request.postDataJSON().target);
  });
  const late = await holdUp(page, 'importance');
  await page.click('#measure');
  await late.arrived(1);
  const other = await page.$$eval('#target-token option', (all) => all[1].value);
  await page.selectOption('#target-token', other);
  await moment(page);
  late.free();
  await page.waitForSelector('.matters-table');
  assert.equal(await page.inputValue('#target-token'), other);
  assert.equal(asks.at(-1).token, Number(other));
  const second = await page.$$eval('#versus-token option', (all) => all[1].value);
  await page.selectOption('#versus-token', second);
  // The table of before stands until the page asks again: what counts is the question.
  for (const end = Date.now() + 30000; asks.at(-1).versus === undefined && Date.now() < end;) await moment(page);
  await page.waitForSelector('.matters-table');
  assert.equal(asks.at(-1).versus, Number(second));
  await page.context().close();
});

test('what is no longer asked is called off: measuring, writing, reading a text, searching heads', async () => {
  const page = await openRow();
  const ended = [];
  page.on('requestfailed', (request) =>
    ended.push(`${/v1\/(\w+)$/.exec(request.url())[1]} ${request.failure().errorText}`),
  );
  const calledOff = async (path, act) => {
    const late = await holdUp(page, path);
    const before = ended.length;
    await act(late);
    for (const end = Date.now() + 10000; ended.length === before;) {
      assert.ok(Date.now() < end, `${path} is called off`);
      await page.waitForTimeout(10);
    }
    assert.deepEqual(ended.slice(before), [`${path} net::ERR_ABORTED`]);
    late.free();
    await settled(page);
    await page.unroute(`**/api/v1/${path}`);
    assert.equal(await page.locator('.toast, .room .banner.error').count(), 0, `${path}: nothing is said`);
  };
  await calledOff('importance', async (late) => {
    await page.click('#measure');
    await late.arrived(1);
    await page.click('[role=listbox] >> nth=-1 >> [data-token="2"]');
    await late.arrived(2);
  });
  await page.waitForSelector('.matters-table');
  await page.click('#measure');
  await calledOff('generate', async (late) => {
    await page.click('#generate');
    await late.arrived(1);
    await page.click('.generation [data-value=beam]');
    await late.arrived(2);
  });
  await calledOff('heads', async (late) => {
    await page.click('#find-heads');
    await late.arrived(1);
    await page.click('nav [href="#/learn"]');
    await page.waitForSelector('.lesson-list', { state: 'attached' });
    await page.click('nav [href="#/model"]');
    await page.waitForSelector('.live');
  });
  await calledOff('run', async (late) => {
    await page.fill('#source-text', '他喜欢音乐和电影。');
    await page.click('#run');
    await late.arrived(1);
    await page.fill('#source-text', sentence);
    await page.click('#run');
    await late.arrived(2);
  });
  assert.match(await page.textContent('.words'), /喜欢.*中文/);
  await page.context().close();
});

test('what was chosen stays while another text is read: measuring, its order, the order of the wall, the text of a patch', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'cross', 3, 0);
  await page.click('#measure');
  await page.click('.matters [data-value=write]');
  await page.click('#find-heads');
  await page.waitForSelector('.wall.ranked');
  await page.selectOption('#metric', 'entropy');
  await page.click('.patch-box summary');
  await page.fill('.patch-box input', '他喜欢学习英语。');
  const ranked = () => page.$$eval('.wall.ranked .thumb', (all) => all.map((one) => one.dataset.head));
  const before = await ranked();
  await page.fill('#source-text', '他喜欢音乐和电影。');
  await page.click('#run');
  await settled(page);
  await page.waitForSelector('.matters-table');
  assert.equal(await page.getAttribute('.matters [role=radio][aria-checked=true]', 'data-value'), 'write');
  assert.equal(await page.inputValue('#metric'), 'entropy');
  assert.deepEqual(await ranked(), before, 'measured on the examples, which are the same');
  assert.equal(await page.inputValue('.patch-box input'), '他喜欢学习英语。');
  await page.context().close();
});

test('a text that was written is for the text it was asked for, and a new text in between is no error', async () => {
  const page = await openRow();
  const late = await holdUp(page, 'generate');
  await page.click('#cut-head');
  await late.arrived(1);
  await page.click('#cut-head');
  await late.arrived(2);
  const slow = await holdUp(page, 'run');
  await page.fill('#source-text', '他喜欢音乐和电影。');
  await page.click('#run');
  await slow.arrived(1);
  late.free();
  await moment(page);
  assert.equal(await page.locator('.toast').count(), 0, (await page.locator('.toast').allTextContents()).join());
  slow.free();
  await settled(page);
  assert.equal(await page.textContent('.written p >> nth=1'), await page.getAttribute('#target-text', 'placeholder'));
  await page.context().close();
});

test('the model chosen last is the one that opens', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  const names = await page.$$eval('#model option', (all) => all.map((option) => option.value));
  const [first, second] = names;
  const late = await holdUp(page, `models/${second}`);
  await page.selectOption('#model', second);
  await late.arrived(1);
  await page.selectOption('#model', first);
  await moment(page);
  await page.waitForSelector('.live.engine');
  late.free();
  await moment(page);
  await settled(page);
  assert.equal(await page.inputValue('#model'), first);
  assert.ok((await weights(page)).length > 0);
  await page.context().close();
});

test('while another model loads nothing is typed that would be lost', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  const other = await page.$$eval('#model option', (all) => all[1].value);
  const late = await holdUp(page, `models/${other}`);
  await page.selectOption('#model', other);
  await late.arrived(1);
  for (const field of ['#source-text', '#target-text', '#run']) assert.equal(await page.isDisabled(field), true, field);
  late.free();
  await page.waitForFunction(() => !document.querySelector('#source-text').disabled);
  await settled(page);
  await page.context().close();
});

test('a link opened while the engine is away opens when it is back', async () => {
  const page = await open(browser, server, '', { waiting: true });
  let away = true;
  await page.route('**/api/v1/**', (route) => (away ? route.abort('connectionrefused') : route.fallback()));
  await page.goto(
    server.address + linkTo({ model: 'tatoeba-zh-en', input: { source: '他喜欢音乐和电影。' }, edits: [] }),
  );
  await page.waitForSelector('.banner.error');
  await moment(page);
  assert.equal(await page.locator('.banner.error, .toast.error').count(), 1, 'said once');
  away = false;
  await page.waitForSelector('.live');
  await settled(page);
  assert.equal(await page.inputValue('#source-text'), '他喜欢音乐和电影。');
  assert.equal(await page.locator('.banner.error').count(), 0);
  await page.context().close();
});

test('the sentence about a refused text stands until an answer comes', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await page.fill('#source-text', '我喜欢学习中文。'.repeat(200));
  await page.click('#run');
  await page.waitForSelector('.room .banner.error');
  const said = await page.textContent('.room .banner.error');
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press(']');
  await moment(page);
  assert.equal(await page.textContent('.room .banner.error'), said);
  const late = await holdUp(page, 'run');
  await page.fill('#source-text', sentence);
  await page.click('#run');
  await late.arrived(1);
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press(']');
  await moment(page);
  assert.equal(await page.locator('.room-wait').count(), 1, 'a key does not take the waiting line away');
  late.free();
  await settled(page);
  assert.equal(await page.locator('.room .banner.error').count(), 0);
  await page.context().close();
});

test('what a link holds that cannot be read is named, and the example stands there', async () => {
  const good = {
    model: 'tatoeba-zh-en',
    input: { source: sentence },
    edits: [],
    at: { attention: 'decoder.3.cross', head: 0, query: 1, key: 1 },
  };
  const cell = { kind: 'set', attention: 'decoder.3.cross', head: 0, query: 1, key: 1, value: 1 };
  const bad = [
    [{ ...good, edits: [{ ...cell, value: 'x' }] }, 'edits[0].value'],
    [{ ...good, edits: [cell, { kind: 'patch', site: 'decoder.3.output', row: 1, from: [] }] }, 'edits[1].from'],
    [{ ...good, edits: [{ kind: 'mean', site: 'decoder.3.cross.head_output', from: [] }] }, 'edits[0].from'],
    [{ ...good, edits: [{ ...cell, kind: 'toString' }] }, 'edits[0].kind'],
    [{ ...good, edits: [{ ...cell, name: {} }] }, 'edits[0].name'],
    [{ ...good, edits: [{ kind: 'feed_forward', stack: [], layer: 0, value: 0 }] }, 'edits[0].stack'],
    [{ ...good, input: { source: 3 } }, 'input.source'],
    [{ ...good, input: [] }, 'input'],
    [{ ...good, at: { attention: 'decoder.3.cross', head: -1, query: 1, key: 1 } }, 'at.head'],
    [{ ...good, outcome: 'last' }, 'outcome'],
    [3, 'state'],
  ];
  for (const [state, part] of bad) {
    const page = await open(browser, server, linkTo(state));
    await page.waitForSelector('.toast.error');
    assert.ok(
      (await page.textContent('.toast.error')).includes(`“${part}”`),
      `${part}: ${await page.textContent('.toast.error')}`,
    );
    await page.waitForSelector('.live');
    await settled(page);
    await page.context().close();
  }
  const page = await open(
    browser,
    server,
    linkTo({
      ...good,
      edits: [
        cell,
        { ...cell, head: -1, query: -1, key: 2, kind: 'forbid' },
        { kind: 'head', attention: 'decoder.2.cross', head: -1, value: 0.5, off: true, name: 'half' },
      ],
    }),
  );
  await page.waitForSelector('.live');
  await settled(page);
  assert.equal(await page.locator('.edits li').count(), 3, 'a good one is read');
  assert.match(await page.textContent('.edits li >> nth=1'), /\*/, 'all heads are not called the first one');
  await page.context().close();
});

test('files and links of another version of the model say so; a file of another format changes nothing', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await page.click('#export');
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.click('[role=menuitem]:has(span:text-is("JSON"))'),
  ]);
  const saved = JSON.parse(readFileSync(await file.path(), 'utf8')),
    path = join(folder, 'experiment.json');
  const openFile = async (data) => {
    writeFileSync(path, JSON.stringify(data));
    await page.click('#export');
    const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.click('[role=menuitem] >> nth=-1')]);
    await chooser.setFiles(path);
    await moment(page);
    await settled(page);
    const said = await page
      .locator('.toast')
      .textContent({ timeout: 300 })
      .catch(() => '');
    if (said) await page.click('.toast button');
    return said;
  };
  assert.equal(await openFile(saved), '');
  assert.match(await openFile({ ...saved, version: 2 }), /another version \(2\)/);
  assert.match(await openFile({ ...saved, state: { ...saved.state, input: {} } }), /“input”/);
  assert.match(await openFile({ attend: 'workbench' }), /no experiment file/);
  const { fingerprint, ...state } = saved.state;
  assert.ok(fingerprint ?? saved.fingerprint);
  assert.match(await openFile({ ...saved, fingerprint: 'another', state }), /another version of this model/);
  await page.context().close();
  const other = await open(browser, server, linkTo({ ...saved.state, fingerprint: 'another' }));
  await other.waitForSelector('.toast.error');
  assert.match(await other.textContent('.toast.error'), /another version of this model/);
  await other.context().close();
});

test('a room that cannot be drawn says so and offers its start', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await page.route('**/api/v1/row', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), head_norms: null } });
  });
  await page.click('#tabs [data-value=decoder]');
  await page.waitForSelector('main .banner.error');
  assert.match(await page.textContent('main'), /cannot be drawn/);
  assert.equal(await page.locator('.room-body').count(), 0, 'and not half of it');
  await page.click('nav [href="#/learn"]');
  await page.waitForSelector('.lesson-list', { state: 'attached' });
  await page.unroute('**/api/v1/row');
  await page.click('nav [href="#/model"]');
  await page.waitForSelector('main .banner.error, .live');
  if (await page.locator('main .banner.error button').count()) await page.click('main .banner.error button');
  await page.waitForSelector('.live');
  await settled(page);
  assert.ok(page.problems.length > 0, 'the console has the error');
  page.problems = [];
  await page.context().close();
});

test('a whole attention that is cut leaves no sum to check, and the page says so', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  await choose(page, 'cross', 2, 1);
  await query(page, 2);
  assert.equal(await page.getAttribute('[data-head-sum]', 'data-head-sum'), 'right');
  await page.click('#add-edit');
  await page.click('[role=menuitem]:has-text("whole attention")');
  await settled(page);
  assert.equal(await page.getAttribute('[data-head-sum]', 'data-head-sum'), 'none');
  await page.click('#undo');
  await settled(page);
  await page.route('**/api/v1/row', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), head_sum: 0.5 } });
  });
  await query(page, 1);
  assert.equal(await page.getAttribute('[data-head-sum]', 'data-head-sum'), 'wrong', 'a check can fail');
  await page.context().close();
});

test('of a row that is shown in part the sum is that of the whole row', async () => {
  const page = await open(browser, server, '#/model');
  await enterLong(page);
  assert.match(await page.textContent('.room-middle'), /largest of/);
  near(Number(await page.getAttribute('[data-sum]', 'data-sum')), 1, 1e-5, 'sum');
  await page.context().close();
});

test('a lock gets what the other locks of its row leave', async () => {
  const page = await openRow();
  for (const key of [1, 2]) {
    await page.click(`.row-column[data-key="${key}"] .key-label`);
    await page.fill('.row-tools input >> nth=1', '0.7');
    await page.keyboard.press('Enter');
    await settled(page);
  }
  assert.equal(await page.locator('.room .banner.error').count(), 0);
  const row = await weights(page);
  near(row[1], 0.7, 1e-6, 'first');
  near(row[2], 0.3, 2e-6, 'second');
  await page.context().close();
});

test('Enter while an input method composes sends nothing', async () => {
  const page = await open(browser, server, '#/model');
  await enter(page);
  const asks = [];
  page.on('request', (request) => {
    if (/\/run$/.test(request.url())) asks.push(request.postData());
  });
  const compose = (selector) =>
    page.$eval(selector, (field) =>
      field.dispatchEvent(
        new KeyboardEvent('keydown', { key: 'Enter', isComposing: true, bubbles: true, cancelable: true }),
      ),
    );
  await page.fill('#source-text', '他喜欢');
  await compose('#source-text');
  await page.fill('#target-text', 'He');
  await compose('#target-text');
  await moment(page);
  assert.deepEqual(asks, []);
  await page.click('#cut-head');
  await settled(page);
  await page.click('.edits li button >> nth=0');
  await page.fill('.edits li input[type=text]', 'deaf');
  await compose('.edits li input[type=text]');
  assert.equal(await page.locator('.edits li input[type=text]').count(), 1);
  await page.keyboard.press('Escape');
  await settled(page);
  assert.doesNotMatch(await page.textContent('.edits li'), /deaf/, 'Escape takes the name back');
  await page.context().close();
});

test('a window counts the own key: beyond it is masked, and hatched', async () => {
  const page = await open(browser, server, '', { waiting: true });
  await page.route('**/api/v1/models/tang-quatrains', async (route) => {
    const answer = await route.fetch(),
      model = await answer.json();
    for (const site of model.attentions) site.window = 3;
    await route.fulfill({ response: answer, json: model });
  });
  await page.goto(
    server.address +
      linkTo({
        model: 'tang-quatrains',
        input: { text: '白日依山尽，黄河入海流' },
        edits: [],
        at: { attention: 'decoder.0.self', head: 0, query: 6, key: 6 },
      }),
  );
  await page.waitForSelector('.map-value');
  await settled(page);
  const shown = async (key) => {
    await page.click(`.row-column[data-key="${key}"] .key-label`);
    await settled(page);
    return page.textContent('.map-value b');
  };
  assert.notEqual(await shown(4), 'masked', 'two away is the last of three');
  assert.equal(await shown(3), 'masked');
  await page.context().close();
});

test('the small map of a long text is filled, so that its right edge is the last column', async () => {
  const page = await open(browser, server, '#/model');
  await enterLong(page);
  await page.waitForSelector('.minimap');
  await settled(page);
  assert.equal(
    await page.$eval('.minimap', (canvas) => canvas.getContext('2d').getImageData(93, 92, 1, 1).data[3]),
    255,
  );
  await page.context().close();
});

// Starts the real server and a real browser for the tests of the page.
//   ATTEND   the program (default: build/dev/app/cli/attend)
//   CHROMIUM the browser (default: Debian's)
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { cpus, loadavg } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
export const pageFolder = join(root, 'app/explorer/page');
export const require = createRequire(join(pageFolder, 'package.json'));
export const translator = join(root, 'weights/tatoeba-zh-en'),
  poet = join(root, 'weights/tang-quatrains');

export const planted = process.env.PLANTED ?? join(root, 'build/dev/tests/page_planted_models');
const program = process.env.ATTEND ?? join(root, 'build/dev/app/cli/attend');
const browserPath =
  process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);

export async function serve(...args) {
  const child = spawn(
    program,
    [
      'explore',
      ...args,
      '--no-browser',
      ...(args.includes('--port') ? [] : ['--port', '0']),
      ...(args.includes('--models') ? [] : ['--models', join(root, 'weights')]),
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const address = await new Promise((done, failed) => {
    let text = '';
    const read = (chunk) => {
      text += chunk;
      const found = /http:\/\/127\.0\.0\.1:\d+\//.exec(text);
      if (found) done(found[0]);
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    child.on('error', failed);
    child.on('exit', (code) => failed(new Error(`the server ended with ${code}: ${text}`)));
    setTimeout(() => failed(new Error(`the server said no address: ${text}`)), 20000).unref();
  });
  // A test that fails must end, too: the server holds nothing up and dies with it.
  for (const handle of [child, child.stdout, child.stderr]) handle.unref();
  process.on('exit', () => child.kill('SIGKILL'));
  return {
    address,
    stop: () =>
      new Promise((done) => {
        child.ref();
        child.on('exit', done);
        child.kill('SIGTERM');
        setTimeout(() => child.kill('SIGKILL'), 3000).unref();
      }),
    pid: child.pid,
  };
}

// How much slower a machine is that others keep busy: runnable tasks a processor, 1 on a machine of one's own. Limits of time
// are meant for the latter and are stretched by it, and no further than `most`.
export const busyness = (most) => Math.min(most, Math.max(1, loadavg()[0] / cpus().length));

export async function browse() {
  const { chromium } = require('playwright-core');
  return chromium.launch({ executablePath: browserPath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

// A page that records what went wrong and every request that leaves the machine; closing its context asserts that nothing went
// wrong. A connection that is refused is what a test that stops the engine is about.
export async function open(browser, server, hash = '', options = {}) {
  const {
    width = 1280,
    height = 900,
    language = 'en-US',
    dark = false,
    touch = false,
    reducedMotion = 'no-preference',
    waiting = false,
  } = options;
  const context = await browser.newContext({
    viewport: { width, height },
    locale: language,
    colorScheme: dark ? 'dark' : 'light',
    hasTouch: touch,
    reducedMotion,
    acceptDownloads: true,
  });
  const page = await context.newPage();
  page.problems = [];
  page.outside = [];
  page.on('pageerror', (error) => page.problems.push(error.stack));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/status of (4|5)\d\d|net::ERR_(CONNECTION|EMPTY_RESPONSE)/.test(message.text()))
      page.problems.push(message.text());
  });
  await context.route('**/*', (route) => {
    const url = route.request().url();
    if (url.startsWith(server.address) || url.startsWith('file:') || url.startsWith('blob:') || url.startsWith('data:'))
      return route.continue();
    page.outside.push(url);
    return route.abort();
  });
  const close = context.close.bind(context);
  context.close = async () => {
    await close();
    assert.deepEqual(page.problems, []);
  };
  if (waiting) return page;
  await page.goto(server.address + hash);
  await page.waitForSelector('main');
  return page;
}

export const api = async (server, path, body) => {
  const reply = await fetch(
    `${server.address}api/v1/${path}`,
    body === undefined
      ? {}
      : { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) },
  );
  if (!reply.ok) throw new Error(`${path}: ${reply.status} ${await reply.text()}`);
  return reply.json();
};

// The numbers of a matrix of the page, as the engine sent them (not as they are rounded for reading).
export const matrix = (page, name) =>
  page.$$eval(`[data-matrix="${name}"] [data-row]`, (cells) => {
    const rows = [];
    for (const cell of cells)
      (rows[cell.dataset.row] ??= [])[cell.dataset.column] =
        cell.dataset.value === '-inf' ? null : Number(cell.dataset.value);
    return rows;
  });

// Waits until the page is at rest: what was done is drawn, every answer is there, what a timer was to do is done.
// `also`: a condition in the page that must hold as well.
export async function quiet(page, also = 'true') {
  const still = () =>
    page.evaluate(`(async () => {
    // Two drawings: a change is drawn at the first, and what a drawing sets off has begun at the second.
    const drawn = async () => { for (let i = 0; i < 2; ++i) await new Promise((done) => requestAnimationFrame(() => setTimeout(done))); };
    const now = () => document.documentElement.dataset.pending === '0' && (${also});
    await document.fonts.ready;
    await drawn();
    if (!now()) return false;
    await drawn();
    return now();
  })()`);
  const end = Date.now() + 30000;
  while (!(await still())) {
    if (Date.now() > end)
      throw new Error(
        `the page does not come to rest: ${await page.evaluate(() => `${document.documentElement.dataset.pending} answers out, ${document.querySelector('.live')?.className}, ${document.querySelector('.banner')?.textContent}`)}`,
      );
    await new Promise((done) => setTimeout(done, 20));
  }
}

// The same, and what stands in the row is the engine's answer to what was asked last.
export const settled = (page) => quiet(page, "document.querySelector('.live')?.classList.contains('engine') === true");

export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 4294967296;
  };
}

export const percentile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];

// A measured figure: printed, and the lines of results/explorer.md when they are asked for (`node --test ... | grep FIGURE`).
export const record = (what, figure) =>
  console.log(`FIGURE | ${what} | ${figure} | load ${loadavg()[0].toFixed(1)} on ${cpus().length} processors |`);

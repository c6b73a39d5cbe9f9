// The committed page is what its sources build to, byte for byte, and its types hold.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import test from 'node:test';
import { pageFolder } from './common.mjs';

const files = (folder, base = folder) =>
  readdirSync(folder)
    .flatMap((name) => {
      const path = join(folder, name);
      return statSync(path).isDirectory() ? files(path, base) : [relative(base, path)];
    })
    .sort();

test('building again gives the same bytes', () => {
  const out = mkdtempSync(join(tmpdir(), 'attend-page-'));
  try {
    execFileSync(process.execPath, [join(pageFolder, 'build.mjs'), '--out', out], { stdio: 'pipe' });
    const committed = join(pageFolder, 'dist');
    assert.deepEqual(files(out), files(committed));
    for (const name of files(out))
      assert.ok(
        readFileSync(join(out, name)).equals(readFileSync(join(committed, name))),
        `${name} differs: run "node build.mjs" in app/explorer/page and commit dist`,
      );
    assert.ok(
      files(out).reduce((sum, name) => sum + statSync(join(out, name)).size, 0) < 1.2 * 1024 * 1024,
      'the page weighs more than 1.2 MiB',
    );
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
});

test('the types hold', () => {
  execFileSync(process.execPath, [join(pageFolder, 'node_modules/typescript/bin/tsc'), '--noEmit', '-p', pageFolder], {
    stdio: 'pipe',
  });
});

test('nothing in the page names another host', () => {
  for (const name of ['app.js', 'app.css', 'index.html']) {
    const text = readFileSync(join(pageFolder, 'dist', name), 'utf8');
    const hosts = [...text.matchAll(/https?:\/\/[a-z0-9.-]+/gi)]
      .map((found) => found[0])
      .filter((host) => !/www\.w3\.org$/.test(host));
    assert.deepEqual(hosts, [], name);
    assert.doesNotMatch(text, /\beval\(|new Function\(/, name);
  }
});

// The table of words: every string in both languages, Chinese that is Chinese, and no text of a lesson longer than 120 words.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { pageFolder, require } from './common.mjs';

const esbuild = require('esbuild');
const built = await esbuild.build({
  entryPoints: [join(pageFolder, 'src/words.ts')],
  bundle: true,
  write: false,
  format: 'esm',
  platform: 'node',
  logLevel: 'silent',
});
const { table } = await import(
  'data:text/javascript;base64,' + Buffer.from(built.outputFiles[0].text).toString('base64')
);

const sources = (folder) =>
  readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? sources(path) : [path];
  });
const code = sources(join(pageFolder, 'src')).filter((path) => /\.tsx?$/.test(path) && !path.includes('/words/'));

test('every string stands in both languages, with the same arguments', () => {
  // What is the same in both: names, symbols, units.
  const international = new Set(['brand', 'block.relu', 'language.switch', 'st.s3', 'st.s8', 'st.s9']);
  for (const [key, words] of Object.entries(table)) {
    assert.equal(words.length, 2, key);
    assert.ok(words[0].trim() && words[1].trim(), `${key} is empty`);
    const holes = (text) => [...new Set(text.match(/\{\d\}/g) ?? [])].sort().join();
    assert.equal(holes(words[0]), holes(words[1]), `${key}: other arguments`);
    if (!international.has(key)) assert.match(words[1], /[\u4e00-\u9fff]/, `${key} has no Chinese`);
    if (!international.has(key)) assert.doesNotMatch(words[0], /[\u4e00-\u9fff]/, `${key} has Chinese in the English`);
    // Chinese punctuation where Chinese stands, and no space between Chinese characters.
    assert.doesNotMatch(words[1], /[\u4e00-\u9fff][,;:!?]/, `${key} has Latin punctuation: ${words[1]}`);
  }
});

test('every word that the code asks for is in the table, and none is unused', () => {
  const text = code.map((path) => readFileSync(path, 'utf8')).join('\n');
  for (const [, key] of text.matchAll(/\bt\('([^']+)'/g)) assert.ok(key in table, `unknown word ${key}`);
  const families = [...text.matchAll(/`([a-z.]+)\$\{/g)].map((found) => found[1]);
  const unused = Object.keys(table).filter(
    (key) =>
      !text.includes(`'${key}'`) &&
      !families.some((prefix) => prefix.length > 3 && key.startsWith(prefix)) &&
      !/^l\..*\.(act|hint|done)$/.test(key),
  );
  assert.deepEqual(unused, []);
});

test('no text of a lesson is longer than 120 words', () => {
  for (const [key, [english]] of Object.entries(table)) {
    if (/^l\.[a-z]+\.\d$/.test(key))
      assert.ok(english.split(/\s+/).length <= 120, `${key} has ${english.split(/\s+/).length} words`);
  }
});

test('no text is written outside the table', () => {
  for (const path of code) {
    const text = readFileSync(path, 'utf8').replace(/\/\/.*$/gm, '');
    for (const [found] of text.matchAll(/>(?!\s*RoPE\s*<)[^<>{}()=;]*[A-Za-z\u4e00-\u9fff]{4,}[^<>{}()=;]*<\//g))
      assert.fail(`${path}: ${found}`);
    for (const [found] of text.matchAll(/(aria-label|title|placeholder|label)="[A-Za-z][^"]{3,}"/g))
      if (!/label="Attend"/.test(found)) assert.fail(`${path}: ${found}`);
  }
});

test("no code of the page draws random numbers: they are the engine's", () => {
  for (const path of code)
    assert.doesNotMatch(readFileSync(path, 'utf8'), /Math\.random|getRandomValues|randomUUID/, path);
});

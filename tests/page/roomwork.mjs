// What a reader does in the model room, and what stands there.
import assert from 'node:assert/strict';
import { api, settled } from './common.mjs';

export const near = (a, b, within, what) => assert.ok(Math.abs(a - b) <= within, `${what}: ${a} against ${b}`);
export const sentence = '我喜欢学习中文。';
export async function enter(page, text = sentence) {
  await page.waitForSelector('#source-text');
  await page.waitForSelector('.live');
  await settled(page);
  await page.fill('#source-text', text);
  await page.click('#run');
  await settled(page);
}
export const choose = async (page, tab, layer, head) => {
  await page.click(`#tabs [data-value=${tab}]`);
  await settled(page);
  const name = tab === 'cross' ? `decoder.${layer}.cross` : `${tab}.${layer}.self`;
  await page.click(`[data-head="${name}.${head}"]`);
  await settled(page);
  return name;
};
export const query = async (page, i) => {
  await page.click(`[role=listbox] >> nth=-1 >> [data-token="${i}"]`);
  await settled(page);
};
export const vector = (page, id) =>
  page.$$eval(`.pipeline [data-vector="${id}"] [data-value]`, (cells) =>
    cells.map((cell) => Number(cell.dataset.value)),
  );
export const numbers = (page) =>
  page.$$eval('.pipeline li > b', (cells) =>
    cells.map((cell) => (cell.dataset.value === '-inf' ? null : Number(cell.dataset.value))),
  );
export const weights = (page) =>
  page.$$eval('.row-column .weight-track', (tracks) => tracks.map((track) => Number(track.dataset.weight)));
export const logits = (page, edited = false) =>
  page.$$eval(
    '.choices li',
    (items, name) =>
      Object.fromEntries(
        items.map((item) => [
          item.dataset.tokenId,
          Number(item.querySelector(`[data-${name}]`)?.getAttribute(`data-${name}`)),
        ]),
      ),
    edited ? 'edited-logit' : 'logit',
  );
export const tokensOf = async (server, page) => {
  const state = await page.evaluate(() => [
    document.querySelector('#source-text').value,
    document.querySelector('#target-text').placeholder || document.querySelector('#target-text').value,
  ]);
  const t = await api(server, 'tokenize', {
    model: 'tatoeba-zh-en',
    input: { source: state[0], language: 'en', target: state[1] },
  });
  return { source: t.source.map((x) => x.id), target: t.target.map((x) => x.id) };
};
export const slider = (page, key) => page.locator(`.row-column[data-key="${key}"] [role=slider]`);
export async function raise(page, key, times) {
  await slider(page, key).focus();
  for (let i = 0; i < times; ++i) await page.keyboard.press('PageUp');
  await settled(page);
}

// Draws the pictures of the guide to the explorer anew: node doc/explorer/pictures.mjs (after ./test, which fetches the packages).
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { browse, open, quiet, serve, settled, translator } from '../../tests/page/common.mjs';

const folder = dirname(fileURLToPath(import.meta.url));
const server = await serve(translator),
  browser = await browse();
for (const [name, language] of [
  ['en', 'en-US'],
  ['zh', 'zh-CN'],
]) {
  const shoot = async (screen, hash, height, prepare) => {
    const page = await open(browser, server, hash, { width: 1280, height, language });
    await page.waitForSelector('.live');
    await settled(page);
    await prepare(page);
    await quiet(page);
    await page.mouse.move(640, 4);
    await page.screenshot({ path: `${folder}/${screen}-${name}.png` });
    await page.context().close();
  };
  // Three keys up and one to the right of what stands in the row.
  const raise = async (page, key, keys) => {
    await page.locator(`.row-column[data-key="${key}"] [role=slider]`).focus();
    for (const pressed of keys) await page.keyboard.press(pressed);
    await settled(page);
  };
  await shoot('learn', '#/learn/query', 860, (page) => raise(page, 0, ['PageUp', 'ArrowUp', 'ArrowUp']));
  await shoot('workbench', '#/workbench', 1060, (page) => raise(page, 0, ['PageUp']));
  await shoot('model', '#/model', 1120, async (page) => {
    await raise(page, 1, ['PageUp', 'PageUp', 'PageUp', 'PageUp']);
  });
}
await browser.close();
await server.stop();

// Builds the page into dist/: index.html, app.js, app.css, icon.svg and the formula fonts. The files are committed, so that
// attend builds without npm; a test builds them again and compares the bytes.
//   node build.mjs [--out FOLDER] [--watch]
import * as esbuild from 'esbuild';
import { cpSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const at = process.argv.indexOf('--out');
const out = at > 0 ? process.argv[at + 1] : join(here, 'dist');
const watch = process.argv.includes('--watch');

// KaTeX's style sheet names three formats a face and faces we never use; browsers that run this page read woff2.
const formulaFonts = new Set([
  'Main-Regular',
  'Main-Bold',
  'Main-Italic',
  'Math-Italic',
  'AMS-Regular',
  'Size1-Regular',
  'Size2-Regular',
  'Size3-Regular',
  'Size4-Regular',
]);
const fonts = {
  name: 'fonts',
  setup(build) {
    build.onLoad({ filter: /katex\.css$/ }, async ({ path }) => {
      const { readFile } = await import('node:fs/promises');
      const css = (await readFile(path, 'utf8')).replace(/@font-face\s*\{[^}]*\}/g, (face) => {
        const name = /KaTeX_([A-Za-z0-9-]+)\.woff2/.exec(face)?.[1];
        if (!name || !formulaFonts.has(name)) return '';
        return face.replace(/src:[^;}]*/, `src: url(fonts/KaTeX_${name}.woff2) format("woff2")`);
      });
      return { contents: css, loader: 'css' };
    });
  },
};

const options = {
  absWorkingDir: here,
  entryPoints: { app: 'src/main.tsx' },
  bundle: true,
  minify: !watch,
  format: 'esm',
  target: ['es2021'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  charset: 'utf8',
  legalComments: 'none',
  outdir: out,
  loader: { '.woff2': 'file' },
  external: ['fonts/*.woff2'],
  assetNames: 'fonts/[name]',
  plugins: [fonts],
  logLevel: 'warning',
};

rmSync(out, { recursive: true, force: true });
mkdirSync(join(out, 'fonts'), { recursive: true });
for (const name of formulaFonts) {
  cpSync(join(here, `node_modules/katex/dist/fonts/KaTeX_${name}.woff2`), join(out, `fonts/KaTeX_${name}.woff2`));
}
cpSync(join(here, 'src/index.html'), join(out, 'index.html'));
cpSync(join(here, 'src/icon.svg'), join(out, 'icon.svg'));

if (watch) {
  await (await esbuild.context(options)).watch();
} else {
  await esbuild.build(options);
  const size = (folder) =>
    readdirSync(folder, { withFileTypes: true }).reduce((sum, entry) => {
      const path = join(folder, entry.name);
      return sum + (entry.isDirectory() ? size(path) : statSync(path).size);
    }, 0);
  console.log(`${out}: ${(size(out) / 1024).toFixed(0)} KiB`);
}

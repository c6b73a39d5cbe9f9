import 'katex/dist/katex.css';
import './app.css';
import { render } from 'preact';
import { App } from './app';
import { followHash } from './link';
import { hush } from './shared';
import { chooseLanguage, language } from './words';

chooseLanguage(language.value);
addEventListener('hashchange', () => {
  hush();
  void followHash();
});
void followHash().then(() => render(<App />, document.getElementById('app')!));

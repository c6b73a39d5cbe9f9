import { useEffect } from 'preact/hooks';
import { BenchScreen } from './bench/bench';
import { Boundary } from './boundary';
import { LearnScreen } from './learn/learn';
import { RoomScreen } from './room/room';
import { pathOf, route, type RoomName } from './link';
import { chooseSize, chooseTheme, dark, engine, explain, helpOpen, large, online, say, status, toast } from './shared';
import { Button, Dialog, Rich } from './ui';
import { chooseLanguage, language, t, type Key } from './words';

const rooms: { name: RoomName; label: Key }[] = [
  { name: 'learn', label: 'nav.learn' },
  { name: 'bench', label: 'nav.bench' },
  { name: 'model', label: 'nav.model' },
];

async function greet(): Promise<void> {
  try {
    const reply = await engine.status();
    status.value = reply;
    if (reply.api !== 1) say(t('api.other', reply.api), 'error');
  } catch (error) {
    if (online.value) say(explain(error), 'error');
  }
}

export function App() {
  useEffect(() => {
    void greet();
  }, []);
  // While the engine is away, ask now and then whether it is back.
  useEffect(() => {
    if (online.value) return;
    const timer = setInterval(() => {
      engine
        .status()
        .then((reply) => {
          status.value = reply;
          say(t('engine.back'));
        })
        .catch(() => undefined);
    }, 2000);
    return () => clearInterval(timer);
  }, [online.value]);
  useEffect(() => {
    const { stale, lost } = route.value;
    if (stale) say(t('link.stale', stale), 'error');
    else if (lost) say(lost === 'damaged' ? t('link.damaged') : t('link.unknown', location.hash.slice(0, 60)), 'error');
  }, [route.value]);
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === '?') {
        helpOpen.value = !helpOpen.value;
        event.preventDefault();
      } else if (event.key === 'p' && !target.closest('dialog')) {
        chooseSize(!large.value);
        event.preventDefault();
      }
    };
    addEventListener('keydown', keys);
    return () => removeEventListener('keydown', keys);
  }, []);
  const room = route.value.room;
  useEffect(() => {
    document.title = `${t(rooms.find((r) => r.name === room)!.label)} · Attend`;
  }, [room, language.value]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById('main')?.focus();
        }}
      >
        {t('skip')}
      </a>
      <header class="top">
        <a class="brand" href="#/learn" aria-label="Attend">
          <img src="icon.svg" alt="" width="26" height="26" />
          <span>{t('brand')}</span>
        </a>
        <nav aria-label={t('nav')}>
          {rooms.map(({ name, label }) => (
            <a href={`#/${pathOf[name]}`} aria-current={room === name ? 'page' : undefined}>
              {t(label)}
            </a>
          ))}
        </nav>
        <div class="top-tools">
          <button
            type="button"
            class="button language"
            lang={language.value === 'zh' ? 'en' : 'zh-CN'}
            aria-label={t('language.switch')}
            title={t('language.switch')}
            onClick={() => chooseLanguage(language.value === 'zh' ? 'en' : 'zh')}
          >
            {language.value === 'zh' ? 'EN' : '中'}
          </button>
          <span class="for-projector">
            <Button
              icon="screen"
              id="larger"
              keys="p"
              label={t('size.large')}
              pressed={large.value}
              onClick={() => chooseSize(!large.value)}
            />
          </span>
          <Button
            icon={dark.value ? 'sun' : 'moon'}
            label={dark.value ? t('theme.light') : t('theme.dark')}
            onClick={() => chooseTheme(dark.value ? 'light' : 'dark')}
          />
          <Button
            icon="help"
            id="help"
            label={t('help')}
            keys="?"
            onClick={() => {
              helpOpen.value = true;
            }}
          />
        </div>
      </header>
      {!online.value && (
        <div class="banner error" role="alert">
          {t('engine.gone')}
        </div>
      )}
      <main id="main" tabIndex={-1}>
        <Boundary key={room} start={`#/${pathOf[room]}`}>
          {room === 'bench' ? <BenchScreen /> : room === 'model' ? <RoomScreen /> : <LearnScreen />}
        </Boundary>
      </main>
      <div class="toasts">
        {toast.value && (
          <div class={`toast ${toast.value.tone}`} role={toast.value.tone === 'error' ? 'alert' : 'status'}>
            {toast.value.text}
            <Button
              icon="close"
              label={t('close')}
              onClick={() => {
                toast.value = null;
              }}
            />
          </div>
        )}
      </div>
      <Help />
    </>
  );
}

function Help() {
  const keys: [string, Key][] = [
    ['← ↑ → ↓', 'keys.arrows'],
    ['↑ ↓', 'keys.drag'],
    ['Enter', 'keys.enter'],
    ['l', 'keys.lock'],
    ['x', 'keys.forbid'],
    ['Delete', 'keys.delete'],
    ['[ ]', 'keys.head'],
    ['{ }', 'keys.layer'],
    ['z Z', 'keys.undo'],
    ['/', 'keys.text'],
    ['p', 'keys.large'],
    ['Esc', 'keys.escape'],
    ['?', 'keys.help'],
  ];
  return (
    <Dialog
      title={t('keys.title')}
      open={helpOpen.value}
      onClose={() => {
        helpOpen.value = false;
      }}
    >
      <dl class="keys">
        {keys.map(([name, label]) => (
          <div>
            <dt>
              <kbd>{name}</kbd>
            </dt>
            <dd>{t(label)}</dd>
          </div>
        ))}
      </dl>
      <p>{t('keys.mouse')}</p>
      <p>
        <Rich text={t('keys.colours')} />
      </p>
      {status.value && (
        <p class="faint">{t('about.engine', status.value.version, status.value.threads, status.value.instructions)}</p>
      )}
    </Dialog>
  );
}

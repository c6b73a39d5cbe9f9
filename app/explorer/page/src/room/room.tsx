// The model room's screen: wall of heads, the row in the middle, what it leads to on the right, generation below.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { EngineError, type Input } from '../engine';
import { route, writeState } from '../link';
import { later } from '../pending';
import { copy, download, hush, isGone, pngOf, returned, say } from '../shared';
import { Button, Menu, Segmented, Select } from '../ui';
import { t, type Key } from '../words';
import { Edits } from './edits';
import { alignmentLine, experiment, matrixCsv, matrixHtml, matrixNpy, matrixSvg } from './export';
import { Generation } from './generation';
import { Matters } from './matters';
import { MatrixMap } from './matrix';
import { Outcome } from './outcome';
import { Pins } from './pins';
import { explain } from './said';
import {
  again,
  attentionOf,
  base,
  begin,
  busy,
  choose,
  chooseModel,
  chosenModel,
  compare,
  entries,
  failure,
  future,
  info,
  lastTook,
  linkState,
  parseRoom,
  past,
  pinned,
  readText,
  redo,
  room,
  site,
  tabOf,
  undo,
  writing,
  type Tab,
} from './state';
import { HeadTools, Lines, RoomRow, TextView } from './views';
import { HeadSide } from './wall';

export function RoomScreen() {
  const r = room.value,
    model = info.value;
  const [pane, setPane] = useState<Pane>('row');
  const [view, setView] = useState<'matrix' | 'lines'>('matrix');
  useEffect(() => {
    const given = route.value.state;
    const read = given === null ? null : parseRoom(given),
      parsed = read && 'part' in read ? null : read;
    if (read && 'part' in read) say(t('room.link.bad', read.part), 'error');
    // Coming back from another room keeps what was open here.
    if (given === null && base.value) return;
    void begin(parsed);
  }, [route.value]);
  useEffect(
    () => (r.model && base.value ? later(() => writeState('model', [], linkState(r)), 200) : undefined),
    [r, base.value, route.value, pinned.value, compare.value, writing.value],
  );
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
      if (typing || event.ctrlKey || event.metaKey || event.altKey || target.closest('dialog')) return;
      const now = room.value,
        a = site.value;
      const layerStep = (step: number) => {
        if (!a || !info.value) return;
        const same = info.value.attentions.filter((other) => tabOf(other) === tabOf(a));
        const next = same[(same.indexOf(a) + step + same.length) % same.length];
        choose({ attention: next.name });
      };
      switch (event.key) {
        case '[':
          if (a) choose({ head: (now.at.head + a.heads - 1) % a.heads });
          break;
        case ']':
          if (a) choose({ head: (now.at.head + 1) % a.heads });
          break;
        case '{':
          layerStep(-1);
          break;
        case '}':
          layerStep(1);
          break;
        case 'z':
          undo();
          break;
        case 'Z':
          redo();
          break;
        case '/':
          document.getElementById('source-text')?.focus();
          break;
        default:
          return;
      }
      event.preventDefault();
    };
    addEventListener('keydown', keys);
    return () => removeEventListener('keydown', keys);
  }, []);
  // What the engine was not there for is asked again when it is back.
  const times = useRef(returned.value);
  useEffect(() => {
    if (returned.value === times.current) return;
    times.current = returned.value;
    if (failure.value instanceof EngineError && failure.value.failure.kind === 'gone') void again();
  }, [returned.value]);
  const a = site.value;
  const tab: Tab = a ? tabOf(a) : 'cross';
  const tabs = (['encoder', 'decoder', 'cross'] as Tab[]).filter((kind) =>
    model?.attentions.some((other) => tabOf(other) === kind),
  );
  const toTab = (kind: Tab) => {
    const same = model!.attentions.filter((other) => tabOf(other) === kind);
    const next = same.find((other) => other.layer === a?.layer) ?? same.at(-1)!;
    choose({ attention: next.name });
  };
  return (
    <div class="room">
      <h1 class="sr">{t('nav.model')}</h1>
      <Bar />
      {failure.value !== null && !isGone(failure.value) && (
        <div class="banner error" role="alert">
          <strong>{t('room.cannot')}</strong> {explain(failure.value)}{' '}
          <Button small label={t('bench.again')} onClick={() => void again()} />
        </div>
      )}
      {entries.value.length === 0 && !busy.value && failure.value === null && (
        <div class="banner">{t('room.no.models')}</div>
      )}
      {model && !base.value && !busy.value && failure.value === null && (
        <p class="room-wait faint">{t('room.empty')}</p>
      )}
      {busy.value && !base.value && (
        <div class="room-wait">
          <div class="skeleton" role="status">
            {t(busy.value as Key)}
            {model ? ` · ${model.name}` : ''}…
            {lastTook.value !== null && <> {t('room.last', (lastTook.value / 1000).toFixed(1))}</>}
          </div>
        </div>
      )}
      {base.value && a && model && (
        <>
          <Panes chosen={pane} onChoose={setPane} />
          <div class={`room-body show-${pane}`}>
            <div class="room-left card" {...panel('heads')}>
              <Segmented
                label={t('room.tab')}
                id="tabs"
                value={tab}
                onChange={toTab}
                options={tabs.map((kind) => ({ value: kind, label: t(`tab.${kind}`) }))}
              />
              <HeadSide tab={tab} />
            </div>
            <div class="room-middle" {...panel('row')}>
              <section class="card">
                <header>
                  <h2>{t('room.reading')}</h2>
                  <HeadTools />
                </header>
                <TextView />
              </section>
              <section class="card">
                <RoomRow />
              </section>
              <section class="card">
                <header>
                  <h2>{t('room.matrix.title')}</h2>
                  <Segmented
                    label={t('room.view')}
                    value={view}
                    onChange={setView}
                    options={[
                      { value: 'matrix', label: t('room.view.matrix') },
                      { value: 'lines', label: t('room.view.lines') },
                    ]}
                  />
                </header>
                {view === 'matrix' ? <MatrixMap /> : <Lines />}
              </section>
              <Pins />
              <Generation />
            </div>
            <div class="room-right" {...panel('outcome')}>
              <Outcome />
              <Edits />
              <Matters />
            </div>
          </div>
        </>
      )}
    </div>
  );
}

// On a narrow screen one part at a time is shown, and these choose which.
const panes = ['heads', 'row', 'outcome'] as const;
type Pane = (typeof panes)[number];
const panel = (name: Pane) => ({ role: 'tabpanel' as const, id: `pane-${name}`, 'aria-labelledby': `tab-${name}` });

function Panes({ chosen, onChoose }: { chosen: Pane; onChoose: (pane: Pane) => void }) {
  const move = (event: KeyboardEvent) => {
    const at = panes.indexOf(chosen),
      last = panes.length - 1;
    const to = { ArrowRight: Math.min(last, at + 1), ArrowLeft: Math.max(0, at - 1), Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    onChoose(panes[to]);
    document.getElementById(`tab-${panes[to]}`)?.focus();
  };
  return (
    <div class="panes" role="tablist" aria-label={t('room.panes')} onKeyDown={move}>
      {panes.map((name) => (
        <button
          type="button"
          role="tab"
          id={`tab-${name}`}
          aria-controls={`pane-${name}`}
          aria-selected={chosen === name}
          tabIndex={chosen === name ? 0 : -1}
          onClick={() => onChoose(name)}
        >
          {t(`pane.${name}`)}
        </button>
      ))}
    </div>
  );
}

function Bar() {
  const r = room.value,
    model = info.value;
  const seq = model?.family === 'encoder-decoder';
  const shown = r.input.source ?? r.input.text ?? '';
  const [text, setText] = useState(shown);
  const [target, setTarget] = useState(r.input.target ?? '');
  const [language, setLanguage] = useState(r.input.language ?? '');
  const field = useRef<HTMLTextAreaElement>(null);
  // A language that was chosen here stays for the next text; that of an example goes with it.
  const into = useRef(false);
  // Before the next key can be pressed: what is typed into a field that has just opened stays.
  useLayoutEffect(() => {
    setText(shown);
    setTarget(r.input.target ?? '');
    setLanguage(r.input.language ?? '');
  }, [r.input, r.model]);
  const go = () => {
    if (!text.trim()) {
      say(t('err.empty_text', t(seq ? 'err.in.source' : 'err.in.text')), 'error', 'number');
      field.current?.focus();
      return;
    }
    hush('number');
    const input: Input = seq
      ? { source: text.trim(), ...(language ? { language } : {}), ...(target.trim() ? { target: target.trim() } : {}) }
      : { text };
    readText(input);
  };
  const pick = (i: string) => {
    const example = model?.examples[Number(i)];
    if (example) readText(example);
  };
  const openFile = () => {
    const picker = document.createElement('input');
    picker.type = 'file';
    picker.accept = '.json,application/json';
    picker.onchange = async () => {
      const file = picker.files?.[0];
      if (!file) return;
      try {
        if (file.size > 8_000_000) throw new Error();
        const data = JSON.parse(await file.text());
        if (data?.attend !== 'experiment') throw new Error();
        if (data.version !== 1) {
          say(t('bench.file.version', file.name, String(data.version ?? '?').slice(0, 20)), 'error');
          return;
        }
        const parsed = parseRoom(data.state);
        if ('part' in parsed) {
          say(t('bench.file.part', file.name, parsed.part), 'error');
          return;
        }
        await begin({ ...(typeof data.fingerprint === 'string' ? { fingerprint: data.fingerprint } : {}), ...parsed });
      } catch {
        say(t('room.file.bad', file.name), 'error');
      }
    };
    picker.click();
  };
  const save = (name: string, make: () => Promise<string>, type: string) =>
    void make()
      .then((data) => download(name, data, type))
      .catch((error) => say(explain(error), 'error'));
  // What is typed while another model loads would be gone with its example.
  const shut = !model || busy.value === 'room.loading';
  const ready = !!base.value && !!attentionOf(r.at.attention);
  return (
    <form
      class="room-bar"
      onSubmit={(event) => {
        event.preventDefault();
        go();
      }}
    >
      <Select
        id="model"
        label={t('nav.model')}
        hideLabel
        value={chosenModel.value ?? r.model}
        options={entries.value.map((e) => ({ value: e.name, label: e.error ? `${e.name} ⚠` : e.name }))}
        onChange={chooseModel}
      />
      <div class="room-text">
        <textarea
          id="source-text"
          dir="auto"
          ref={field}
          rows={1}
          value={text}
          disabled={shut}
          spellcheck={false}
          aria-label={seq ? t('room.source') : t('room.text')}
          placeholder={seq ? t('room.source.type') : t('room.text.type')}
          onInput={(event) => {
            setText(event.currentTarget.value);
            if (!into.current) setLanguage('');
          }}
          onKeyDown={(event) => {
            if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
              event.preventDefault();
              go();
            }
            if (event.key === 'Escape') field.current?.blur();
          }}
        />
        {seq && (
          <textarea
            id="target-text"
            dir="auto"
            rows={1}
            value={target}
            disabled={shut}
            spellcheck={false}
            aria-label={t('room.target')}
            placeholder={base.value?.input.target ?? t('room.target.type')}
            onInput={(event) => setTarget(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
                event.preventDefault();
                go();
              }
            }}
          />
        )}
      </div>
      {model && model.languages.length > 1 && (
        <Select
          label={t('room.language')}
          hideLabel
          value={language}
          options={[
            { value: '', label: t('room.language.auto') },
            ...model.languages.map((l) => ({ value: l.name, label: `→ ${l.name}` })),
          ]}
          onChange={(value) => {
            into.current = true;
            setLanguage(value);
          }}
        />
      )}
      <Button primary label={t('room.run')} id="run" disabled={shut} onClick={go} />
      {model && model.examples.length > 0 && (
        <Select
          label={t('bench.example')}
          hideLabel
          value=""
          options={[
            { value: '', label: t('bench.example') },
            ...model.examples.map((e, i) => ({ value: String(i), label: (e.source ?? e.text ?? '').slice(0, 24) })),
          ]}
          onChange={pick}
        />
      )}
      <span class="spring" />
      <span class="bar-tools">
        <Button icon="undo" id="undo" keys="z" label={t('undo')} disabled={!past.value.length} onClick={undo} />
        <Button icon="redo" id="redo" keys="Shift+z" label={t('redo')} disabled={!future.value.length} onClick={redo} />
        <Button icon="link" label={t('bench.link')} onClick={() => void copy(location.href)} />
        <Menu
          icon="save"
          id="export"
          label={t('bench.export')}
          items={[
            {
              label: 'SVG',
              note: t('bench.svg.note'),
              disabled: !ready,
              onClick: () => save('attention.svg', matrixSvg, 'image/svg+xml'),
            },
            {
              label: 'PNG',
              note: t('bench.png.note'),
              disabled: !ready,
              onClick: () =>
                void matrixSvg()
                  .then((svg) => pngOf(svg))
                  .then((blob) => download('attention.png', blob))
                  .catch((error) => say(explain(error), 'error')),
            },
            {
              label: 'CSV',
              note: t('room.csv.note'),
              disabled: !ready,
              onClick: () => save('attention.csv', matrixCsv, 'text/csv'),
            },
            {
              label: 'NPY',
              note: t('room.npy.note'),
              disabled: !ready,
              onClick: () =>
                void matrixNpy()
                  .then((blob) => download('attention.npy', blob))
                  .catch((error) => say(explain(error), 'error')),
            },
            {
              label: 'HTML',
              note: t('room.html.note'),
              disabled: !ready,
              onClick: () => save('attention.html', matrixHtml, 'text/html'),
            },
            ...(site.value?.part === 'cross'
              ? [
                  {
                    label: t('room.pharaoh'),
                    note: t('room.pharaoh.note'),
                    disabled: !ready,
                    onClick: () => save('alignments.txt', alignmentLine, 'text/plain'),
                  },
                ]
              : []),
            {
              label: 'JSON',
              note: t('room.json.note'),
              disabled: !ready,
              onClick: () => download('attend-experiment.json', experiment(), 'application/json'),
            },
            null,
            { label: t('bench.open'), onClick: openFile },
          ]}
        />
      </span>
      {busy.value && base.value === null && model && (
        <span class="sr" role="status">
          {t(busy.value as Key)}
        </span>
      )}
    </form>
  );
}

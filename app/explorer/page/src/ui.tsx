// The small parts every screen is made of.
import katex from 'katex';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { boxed, largestFloat, readNumber, show } from './numbers';
import { hush, say } from './shared';
import { t } from './words';

export function Tex({ tex, block = false }: { tex: string; block?: boolean }) {
  const host = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    if (host.current)
      katex.render(tex, host.current, { displayMode: block, throwOnError: false, output: 'htmlAndMathml' });
  }, [tex, block]);
  return <span ref={host} class={block ? 'tex tex-block' : 'tex'} />;
}

// The weight matrices in running text, their letter below the line.
export function Symbols({ text }: { text: string }) {
  return (
    <>
      {text.split(/(\bW_[QKVO]\b)/).map((part, i) =>
        i % 2 ? (
          <span class="symbol">
            <i>W</i>
            <sub>{part[2]}</sub>
          </span>
        ) : (
          part
        ),
      )}
    </>
  );
}

// Text with **strong**, `code`, $formula$ and {q|coloured} words, where the letter is the meaning: q, k, v, w (weight), e (edited).
const pattern = /(\*\*[^*]+\*\*|`[^`]+`|\$[^$]+\$|\{[qkvwe]\|[^}]+\})/;
export function Rich({ text }: { text: string }) {
  return (
    <>
      {text.split(pattern).map((part) => {
        if (part.startsWith('**')) return <strong>{part.slice(2, -2)}</strong>;
        if (part.startsWith('`')) return <code>{part.slice(1, -1)}</code>;
        if (part.startsWith('$') && part.length > 1) return <Tex tex={part.slice(1, -1)} />;
        if (/^\{[qkvwe]\|/.test(part)) return <b class={`hue-${part[1]}`}>{part.slice(3, -1)}</b>;
        return <Symbols text={part} />;
      })}
    </>
  );
}

const icons: Record<string, string> = {
  undo: 'M9 7 4 12l5 5M4 12h10a6 6 0 0 1 0 12h-3',
  redo: 'm15 7 5 5-5 5m5-5H10a6 6 0 0 0 0 12h3',
  lock: 'M7 11V8a5 5 0 0 1 10 0v3M5 11h14v10H5z',
  cut: 'M5 5l14 14M19 5 5 19',
  close: 'M6 6l12 12M18 6 6 18',
  pen: 'M5 19l1-4L16 5l3 3L9 18zM14 7l3 3',
  more: 'M5 12h.01M12 12h.01M19 12h.01',
  link: 'M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1m2 4a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1',
  save: 'M12 4v11m-5-5 5 5 5-5M5 20h14',
  open: 'M12 20V9m-5 5 5-5 5 5M5 4h14',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2m0 16v2M2 12h2m16 0h2M5 5l1.5 1.5m11 11L19 19M5 19l1.5-1.5m11-11L19 5',
  moon: 'M20 14A8.5 8.5 0 0 1 10 4a8.5 8.5 0 1 0 10 10z',
  help: 'M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .8-1 1.7m0 3.5h.01',
  check: 'm5 13 4 4L19 7',
  left: 'm15 5-7 7 7 7',
  right: 'm9 5 7 7-7 7',
  down: 'm6 9 6 6 6-6',
  reset: 'M4 12a8 8 0 1 0 3-6.2M4 4v5h5',
  dice: 'M5 5h14v14H5zM9 9h.01M15 9h.01M12 12h.01M9 15h.01M15 15h.01',
  screen: 'M3 4h18v12H3zM12 16v4m-4 0h8',
  play: 'M8 5v14l11-7z',
  eye: 'M2 12s4-7 10-7 10 7 10 7-4 7-10 7-10-7-10-7zm10-3a3 3 0 1 0 0 6 3 3 0 0 0 0-6z',
  plus: 'M12 5v14M5 12h14',
  grid: 'M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z',
  code: 'm8 7-5 5 5 5m8-10 5 5-5 5',
  search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zm5 12 4 4',
};
export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={icons[name]} />
    </svg>
  );
}

export function Button(props: {
  icon?: string;
  label: string;
  text?: boolean;
  primary?: boolean;
  pressed?: boolean;
  disabled?: boolean;
  small?: boolean;
  onClick: (event: MouseEvent) => void;
  id?: string;
  keys?: string;
}) {
  const text = props.text ?? !props.icon;
  return (
    <button
      type="button"
      id={props.id}
      class={`button ${props.primary ? 'primary' : ''} ${text ? '' : 'icon-only'} ${props.small ? 'small' : ''}`}
      disabled={props.disabled}
      aria-pressed={props.pressed}
      aria-label={text ? undefined : props.label}
      aria-keyshortcuts={props.keys}
      title={text ? undefined : props.keys ? `${props.label} (${props.keys})` : props.label}
      onClick={props.onClick}
    >
      {props.icon && <Icon name={props.icon} />}
      {text && (
        <span>
          <Symbols text={props.label} />
        </span>
      )}
    </button>
  );
}

export function Segmented<T extends string>(props: {
  label: string;
  value: T;
  options: { value: T; label: string; title?: string }[];
  onChange: (value: T) => void;
  id?: string;
}) {
  const move = (event: KeyboardEvent) => {
    const step =
      event.key === 'ArrowRight' || event.key === 'ArrowDown'
        ? 1
        : event.key === 'ArrowLeft' || event.key === 'ArrowUp'
          ? -1
          : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = props.options.findIndex((option) => option.value === props.value);
    const next = props.options[(at + step + props.options.length) % props.options.length];
    props.onChange(next.value);
    const group = event.currentTarget as HTMLElement;
    group.querySelector<HTMLElement>(`[data-value="${next.value}"]`)?.focus();
  };
  return (
    <div class="segmented" role="radiogroup" aria-label={props.label} onKeyDown={move} id={props.id}>
      {props.options.map((option) => (
        <button
          type="button"
          role="radio"
          aria-checked={option.value === props.value}
          tabIndex={option.value === props.value ? 0 : -1}
          title={option.title}
          data-value={option.value}
          onClick={() => props.onChange(option.value)}
        >
          {option.label}
        </button>
      ))}
    </div>
  );
}

export function Stepper(props: {
  label: string;
  value: number;
  min: number;
  max: number;
  onChange: (value: number) => void;
  id?: string;
}) {
  // What is being typed stays what was typed, whatever else is drawn meanwhile.
  const [typed, setTyped] = useState<string | null>(null);
  const set = (value: number) => {
    const fits = Number.isInteger(value) && value >= props.min && value <= props.max;
    if (!fits) say(t('number.whole', props.label, props.min, props.max), 'error', 'number');
    else hush('number');
    setTyped(null);
    if (Number.isFinite(value)) props.onChange(Math.max(props.min, Math.min(props.max, Math.round(value))));
  };
  return (
    <label class="stepper">
      <span>{props.label}</span>
      <span class="stepper-box">
        <button
          type="button"
          tabIndex={-1}
          aria-label={t('less', props.label)}
          disabled={props.value <= props.min}
          onClick={() => set(props.value - 1)}
        >
          −
        </button>
        <input
          id={props.id}
          type="text"
          inputMode="numeric"
          value={typed ?? String(props.value)}
          aria-label={props.label}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onChange={(event) => set(readNumber(event.currentTarget.value))}
          onKeyDown={(event) => {
            if (event.key === 'ArrowUp') {
              event.preventDefault();
              set(props.value + 1);
            } else if (event.key === 'ArrowDown') {
              event.preventDefault();
              set(props.value - 1);
            }
          }}
        />
        <button
          type="button"
          tabIndex={-1}
          aria-label={t('more', props.label)}
          disabled={props.value >= props.max}
          onClick={() => set(props.value + 1)}
        >
          +
        </button>
      </span>
    </label>
  );
}

export function Select(props: {
  label: string;
  value: string;
  options: { value: string; label: string }[];
  onChange: (value: string) => void;
  hideLabel?: boolean;
  id?: string;
}) {
  return (
    <label class="select">
      <span class={props.hideLabel ? 'sr' : ''}>{props.label}</span>
      <span class="select-box">
        <select id={props.id} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
          {props.options.map((option) => (
            <option value={option.value} selected={option.value === props.value}>
              {option.label}
            </option>
          ))}
        </select>
        <Icon name="down" />
      </span>
    </label>
  );
}

export interface MenuItem {
  label: string;
  note?: string;
  onClick: () => void;
  disabled?: boolean;
}
export function Menu({
  label,
  icon,
  items,
  id,
}: {
  label: string;
  icon: string;
  items: (MenuItem | null)[];
  id?: string;
}) {
  const [open, setOpen] = useState(false);
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const away = (event: Event) => {
      if (!host.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', away);
    host.current?.querySelector<HTMLElement>('[role=menuitem]')?.focus();
    return () => document.removeEventListener('pointerdown', away);
  }, [open]);
  const keys = (event: KeyboardEvent) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      setOpen(false);
      host.current?.querySelector('button')?.focus();
      return;
    }
    if (event.key === 'Tab') {
      setOpen(false);
      return;
    }
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    event.preventDefault();
    event.stopPropagation();
    const all = [...host.current!.querySelectorAll<HTMLElement>('[role=menuitem]:not(:disabled)')];
    const at = all.indexOf(document.activeElement as HTMLElement);
    all[(at + (event.key === 'ArrowDown' ? 1 : -1) + all.length) % all.length]?.focus();
  };
  return (
    <div class="menu" ref={host} onKeyDown={keys}>
      <button
        type="button"
        id={id}
        class="button icon-only"
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={label}
        title={label}
        onClick={() => setOpen(!open)}
      >
        <Icon name={icon} />
      </button>
      {open && (
        <div class="menu-list" role="menu" aria-label={label}>
          {items.map((item) =>
            item ? (
              <button
                type="button"
                role="menuitem"
                disabled={item.disabled}
                onClick={() => {
                  setOpen(false);
                  item.onClick();
                }}
              >
                <span>
                  <Symbols text={item.label} />
                </span>
                {item.note && <small>{item.note}</small>}
              </button>
            ) : (
              <hr role="separator" />
            ),
          )}
        </div>
      )}
    </div>
  );
}

export function Dialog({
  title,
  open,
  onClose,
  children,
  wide = false,
}: {
  title: string;
  open: boolean;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}) {
  const host = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = host.current!;
    if (open && !dialog.open) dialog.showModal();
    if (!open && dialog.open) dialog.close();
  }, [open]);
  return (
    <dialog
      ref={host}
      class={wide ? 'wide' : ''}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === host.current) onClose();
      }}
    >
      {open && (
        <div class="dialog">
          <header>
            <h2>{title}</h2>
            <Button icon="close" label={t('close')} onClick={onClose} />
          </header>
          {children}
        </div>
      )}
    </dialog>
  );
}

// A number that is typed: keeps what was typed until it is a number, says when it is none.
// `onBad`: what stands there now is (or no longer is) no number. `range`: what it may be, both ends. `onCut`: -∞ was typed. `always`: told of a
// number that stands there already, too.
export function NumberField(props: {
  label: string;
  value: number | null;
  onChange: (value: number) => void;
  empty?: string;
  onEmpty?: () => void;
  onBad?: (bad: boolean) => void;
  range?: [number, number];
  onCut?: () => void;
  always?: boolean;
  disabled?: boolean;
  hideLabel?: boolean;
  step?: number;
  id?: string;
}) {
  const [bad, markBad] = useState<null | (() => string)>(null);
  const setBad = (why: (() => string) | null) => {
    markBad(() => why);
    props.onBad?.(!!why);
  };
  const [typed, setTyped] = useState<string | null>(null);
  const text = props.value === null ? '' : boxed(props.value);
  const commit = (raw: string) => {
    if (raw.trim() === '' && props.onEmpty) {
      setBad(null);
      setTyped(null);
      props.onEmpty();
      return;
    }
    if (props.onCut && /^[-−–]\s*(∞|inf(inity)?)$/i.test(raw.trim())) {
      setBad(null);
      setTyped(null);
      props.onCut();
      return;
    }
    const value = readNumber(raw),
      [low, high] = props.range ?? [-largestFloat, largestFloat];
    if (!Number.isFinite(value)) {
      setBad(() => (raw.trim() ? t('not.a.number', raw) : t('number.empty')));
      return;
    }
    if (value < low || value > high) {
      setBad(() => (props.range ? t('number.range', raw, show(low), show(high)) : t('number.large', raw)));
      return;
    }
    setBad(null);
    setTyped(null);
    if (value !== props.value || props.always) props.onChange(value);
  };
  return (
    <label class="number">
      <span class={props.hideLabel ? 'sr' : ''}>{props.label}</span>
      <input
        id={props.id}
        type="text"
        inputMode="text"
        value={typed ?? text}
        placeholder={props.empty}
        aria-invalid={!!bad}
        aria-label={props.label}
        onInput={(event) => setTyped(event.currentTarget.value)}
        disabled={props.disabled}
        onBlur={(event) => {
          if (typed !== null && !bad) commit(event.currentTarget.value);
        }}
        onChange={(event) => {
          if (typed !== null) commit(event.currentTarget.value);
        }}
        onKeyDown={(event) => {
          const step = props.step ?? 0.1;
          if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
            event.preventDefault();
            event.stopPropagation();
            setTyped(null);
            setBad(null);
            const [low, high] = props.range ?? [-largestFloat, largestFloat];
            props.onChange(
              Math.max(
                low,
                Math.min(high, Number(((props.value ?? 0) + (event.key === 'ArrowUp' ? step : -step)).toFixed(6))),
              ),
            );
          } else if (event.key === 'Enter' && !event.isComposing && typed !== null) commit(event.currentTarget.value);
        }}
      />
      {bad && (
        <span class="bad" role="alert">
          {bad()}
        </span>
      )}
    </label>
  );
}

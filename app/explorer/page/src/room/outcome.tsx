// What the model makes of it: next tokens of the base and the edited run side by side, and what is written from the beginning.
import { useEffect, useState } from 'preact/hooks';
import type { GenerateResult } from '../engine';
import { exact, show } from '../numbers';
import { later } from '../pending';
import { engine, returned } from '../shared';
import { Select } from '../ui';
import { t } from '../words';
import { complain } from './said';
import { apart, base, change, edited, inForce, info, label, refused, room, site } from './state';

export function outcomeRow(): number {
  const r = room.value,
    a = site.value,
    rows = base.value?.predictions?.rows.length ?? 0;
  const follow = a && !(a.stack === 'encoder' && info.value?.family === 'encoder-decoder') ? r.at.query : rows - 1;
  return Math.max(0, Math.min(rows - 1, r.outcome ?? follow));
}

const mostShown = 7,
  mostRows = 400;

export function Outcome() {
  const b = base.value,
    e = edited.value,
    r = room.value;
  if (!b?.predictions) return null;
  const at = outcomeRow(),
    target = b.tokens.target ?? b.tokens.text ?? [];
  const before = b.predictions.rows[at],
    after = e?.predictions?.rows[at];
  if (!before) return null;
  const likeliest = [...before.top.slice(0, 5), ...(after?.top.slice(0, 5) ?? [])];
  const shown = likeliest.filter((c, i) => likeliest.findIndex((other) => other.id === c.id) === i).slice(0, mostShown);
  const rows = [
    { value: '', label: t('room.outcome.follow') },
    ...target.slice(0, mostRows).map((token, i) => ({ value: String(i), label: `${i} ${apart(label(token))}` })),
  ];
  const logit = (value: number) => `${t('room.logit')} ${exact(value)}`;
  // The sentence stands around the token as its language wants it.
  const [ahead, behind] = t('room.after').split('{0}');
  return (
    <section class={`card outcome ${refused.value ? 'stale' : ''}`} aria-label={t('room.outcome')}>
      <header>
        <h2>{t('room.outcome')}</h2>
      </header>
      <p class="outcome-after">
        {ahead}
        <b class="hue-q">{label(target[at])}</b>
        {behind}{' '}
        <Select
          label={t('room.outcome.row')}
          hideLabel
          value={r.outcome === null ? '' : String(r.outcome)}
          options={rows}
          onChange={(value) => change({ outcome: value === '' ? null : Number(value) })}
        />
      </p>
      <ul class="choices">
        {shown.map((choice) => {
          const x = before.top.find((c) => c.id === choice.id),
            y = after?.top.find((c) => c.id === choice.id);
          return (
            <li data-token-id={choice.id}>
              <b>
                {label(choice)}
                {before.target_id === choice.id && <small title={t('room.comes')}> ●</small>}
              </b>
              <span class="choice-bars">
                <i class="before" style={{ '--h': (x?.probability ?? 0).toFixed(4) }} />
                {after && <i class="after" style={{ '--h': (y?.probability ?? 0).toFixed(4) }} />}
              </span>
              <span class="choice-numbers">
                <span data-logit={x?.logit} title={x ? logit(x.logit) : ''}>
                  {x ? show(x.probability) : '<'}
                </span>
                {after && (
                  <span class="hue-e" data-edited-logit={y?.logit} title={y ? logit(y.logit) : ''}>
                    {y ? show(y.probability) : '<'}
                  </span>
                )}
              </span>
            </li>
          );
        })}
        {before.target_id !== null &&
          before.log_probability !== null &&
          !shown.some((c) => c.id === before.target_id) && (
            <li data-token-id={before.target_id} class="late">
              <b>
                {label(target[at + 1])}
                <small title={t('room.comes')}> ●</small>
              </b>
              <span class="choice-rank faint">
                {t('room.rank', (before.rank ?? 0) + 1)}
                {after && <span class="hue-e"> {t('room.rank', (after.rank ?? 0) + 1)}</span>}
              </span>
              <span class="choice-numbers">
                <span title={exact(Math.exp(before.log_probability))}>{show(Math.exp(before.log_probability))}</span>
                {after && <span class="hue-e">{show(Math.exp(after.log_probability ?? -Infinity))}</span>}
              </span>
            </li>
          )}
      </ul>
      <p class="legend">
        <i class="swatch before" />
        {t('room.base')}
        {after && (
          <>
            <i class="swatch after" />
            {t('room.edited')}
          </>
        )}
      </p>
      {refused.value && (
        <p class="note" data-outcome="base">
          {t('room.outcome.base')}
        </p>
      )}
      <Written />
    </section>
  );
}

// What is written from the beginning, with and without the edits.
const rest = 350; // milliseconds without a further edit before it is asked for
function Written() {
  const [made, setMade] = useState<{ before: GenerateResult | null; after: GenerateResult | null }>({
    before: null,
    after: null,
  });
  const r = room.value,
    b = base.value,
    edits = inForce(r.edits);
  const translates = info.value?.family === 'encoder-decoder';
  useEffect(() => {
    setMade({ before: null, after: null });
  }, [b]);
  useEffect(() => {
    if (!b || !translates) return;
    const asked = new AbortController(),
      { source, text, language } = b.input;
    const request = {
      model: r.model,
      input: source !== undefined ? { source, language } : { text },
      edits,
      steps: 48,
      method: { kind: 'greedy' as const },
      prefix_ids: [],
    };
    const callOff = later(async () => {
      try {
        const reply = await engine.generate(request, asked.signal);
        if (!asked.signal.aborted)
          setMade((old) => (edits.length ? { ...old, after: reply } : { before: reply, after: null }));
      } catch (error) {
        if (!asked.signal.aborted) complain(error);
      }
    }, rest);
    return () => {
      callOff();
      asked.abort();
    };
  }, [b, r.edits, returned.value]);
  if (!translates) return null;
  const plain = made.before?.text ?? b?.input.target;
  return (
    <div class="written">
      <p class="faint">{t('room.writes')}</p>
      <p dir="auto">{plain ?? '…'}</p>
      {edits.length > 0 && made.after && (
        <p dir="auto" class={made.after.text === plain ? 'faint' : 'hue-e'}>
          {made.after.text}
        </p>
      )}
    </div>
  );
}

// Generation under glass: one token after the other, what the chosen head read from the cache when it was chosen, the cache with
// its bytes, branches, and the beam as a tree. How it is written and where one stands is kept in the link.
import { useEffect, useState } from 'preact/hooks';
import type { GenerateMethod, GenerateResult, GenerateStep, Token } from '../engine';
import { bytes, exact, show } from '../numbers';
import { engine, returned, textScale } from '../shared';
import { Button, NumberField, Segmented, Stepper } from '../ui';
import { t } from '../words';
import { complain } from './said';
import { base, directionOf, inForce, info, label, room, site, writing, type Writing } from './state';

const put = (next: Partial<Writing>) => {
  writing.value = { ...writing.value, ...next };
};

function methodOf({ kind, beams, temperature, top_k, top_p, seed }: Writing): GenerateMethod {
  return kind === 'beam'
    ? { kind, beams, n_best: beams }
    : kind === 'sample'
      ? { kind, temperature, top_k, top_p, seed }
      : { kind };
}

// More weights than this are not asked for beside the steps of a long text.
const mostWatched = 1 << 20;

export function Generation() {
  const b = base.value,
    r = room.value,
    a = site.value,
    w = writing.value;
  const { open, kind, steps, prefix } = w;
  const [made, setMade] = useState<GenerateResult | null>(null);
  const text = b?.tokens.target ?? b?.tokens.text ?? [],
    prompt = b?.tokens.target ? text.slice(0, 1) : text,
    source = b?.tokens.source ?? [];
  const rows = prompt.length + steps,
    watch =
      a?.stack === 'decoder' && a.heads * rows * (a.part === 'cross' ? source.length : rows) <= mostWatched
        ? a.name
        : undefined;
  const method = JSON.stringify(methodOf(w));
  useEffect(() => {
    setMade(null);
  }, [b]);
  useEffect(() => {
    if (!open || !b) return;
    const asked = new AbortController(),
      { source, text, language } = b.input;
    const input = source !== undefined ? { source, language } : { text: text ?? '' },
      how = JSON.parse(method) as GenerateMethod;
    engine
      .generate(
        {
          model: r.model,
          input,
          edits: inForce(r.edits),
          steps,
          method: how,
          prefix_ids: prefix,
          ...(watch ? { watch } : {}),
        },
        asked.signal,
      )
      .then((reply) => {
        if (!asked.signal.aborted) setMade(reply);
      })
      .catch((error) => {
        if (!asked.signal.aborted) complain(error);
      });
    return () => asked.abort();
  }, [open, b, r.edits, method, steps, prefix, watch, returned.value]);
  if (!b?.predictions || info.value?.family === 'encoder') return null;
  const at = Math.max(0, Math.min(w.at, (made?.steps.length ?? 1) - 1)),
    step = made?.steps[at];
  const branch = (id: number) => put({ prefix: [...made!.steps.slice(0, at).map((s) => s.id), id], at });
  const most = Math.max(1, ...(made?.steps.map((s) => s.cache.bytes) ?? []));
  const written = made ? directionOf(made.steps.map((s) => s.text).join('')) : 'ltr';
  // What the cache held when this token was chosen: for cross-attention the source, else what was read and written before it.
  const cached =
    made?.watch === a?.name && step?.weights
      ? a?.part === 'cross'
        ? source.map(label)
        : [...prompt.map(label), ...made!.steps.slice(0, at).map(label)]
      : null;
  return (
    <section class="card generation" aria-label={t('room.generation')}>
      <header>
        <h2>{t('room.generation')}</h2>
        {open ? (
          <div class="figure-tools">
            <Segmented
              label={t('room.method')}
              value={kind}
              onChange={(value) => put({ kind: value, prefix: [] })}
              options={[
                { value: 'greedy', label: t('room.greedy') },
                { value: 'sample', label: t('room.sample') },
                { value: 'beam', label: t('room.beam') },
              ]}
            />
            {kind === 'beam' && (
              <Stepper label={t('room.beams')} value={w.beams} min={2} max={8} onChange={(beams) => put({ beams })} />
            )}
            <Stepper
              label={t('room.steps')}
              value={steps}
              min={1}
              max={64}
              onChange={(value) => put({ steps: value })}
            />
            {prefix.length > 0 && (
              <Button small icon="reset" text label={t('room.unbranch')} onClick={() => put({ prefix: [] })} />
            )}
          </div>
        ) : (
          <Button small primary label={t('room.generate')} id="generate" onClick={() => put({ open: true })} />
        )}
      </header>
      {!open && <p class="faint">{t('room.generation.note')}</p>}
      {open && kind === 'sample' && (
        <div class="sampling" role="group" aria-label={t('room.sample')}>
          <NumberField
            id="temperature"
            label={t('room.temperature')}
            value={w.temperature}
            step={0.1}
            onChange={(value) => put({ temperature: Math.max(0.05, Math.min(10, value)) })}
          />
          <NumberField
            id="top-k"
            label={t('room.top.k')}
            value={w.top_k}
            step={1}
            onChange={(value) => put({ top_k: Math.max(0, Math.min(1000, Math.round(value))) })}
          />
          <NumberField
            id="top-p"
            label={t('room.top.p')}
            value={w.top_p}
            step={0.05}
            onChange={(value) => put({ top_p: Math.max(0.01, Math.min(1, value)) })}
          />
          <Stepper
            id="seed"
            label={t('room.seed')}
            value={w.seed}
            min={0}
            max={2 ** 31 - 1}
            onChange={(seed) => put({ seed })}
          />
          <p class="note">{t('room.sample.note')}</p>
        </div>
      )}
      {open && !made && (
        <p class="faint" role="status">
          {t('engine.asking')}…
        </p>
      )}
      {open && made && (
        <>
          <div class="step-row" dir={written}>
            <Button
              icon="left"
              id="step-back"
              label={t('learn.back')}
              disabled={at === 0}
              onClick={() => put({ at: at - 1 })}
            />
            <ol class="steps" aria-label={t('room.generation')}>
              {made.steps.map((s, i) => (
                <li>
                  <button
                    type="button"
                    class={`${i === at ? 'now' : ''} ${i < prefix.length ? 'forced' : ''} ${i > at ? 'later' : ''}`}
                    aria-current={i === at ? 'step' : undefined}
                    data-step={i}
                    title={`${i}: log p ${show(s.log_probability)}`}
                    onClick={() => put({ at: i })}
                  >
                    <b dir="auto">{label(s)}</b>
                    <i style={{ '--h': (s.cache.bytes / most).toFixed(3) }} />
                  </button>
                </li>
              ))}
            </ol>
            <Button
              icon="right"
              id="step-on"
              label={t('learn.next')}
              disabled={at >= made.steps.length - 1}
              onClick={() => put({ at: at + 1 })}
            />
          </div>
          {step && (
            <div class="step-detail">
              <p>
                <b>
                  {step.cache.tokens === 1
                    ? t('room.cache.one', bytes(step.cache.bytes))
                    : t('room.cache', step.cache.tokens, bytes(step.cache.bytes))}
                </b>
                {made.cross_cache_bytes > 0 && (
                  <span class="faint"> · {t('room.cache.cross', bytes(made.cross_cache_bytes))}</span>
                )}
              </p>
              {cached && <Cached entries={cached} step={step} tokens={a!.part === 'cross' ? source : prompt} />}
              {kind !== 'beam' && (
                <div class="branches">
                  <span class="faint">{t('room.branch')}</span>
                  {step.top.slice(0, 5).map((c) => (
                    <button
                      type="button"
                      class={`button small ${c.id === step.id ? 'picked' : ''}`}
                      disabled={c.id === step.id}
                      onClick={() => branch(c.id)}
                    >
                      <bdi>{label(c)}</bdi> <small>{show(c.probability)}</small>
                    </button>
                  ))}
                </div>
              )}
            </div>
          )}
          <p class="generated" dir={written}>
            <bdi>{made.text}</bdi>
            {!made.ended && ' …'}
          </p>
          {kind === 'beam' && made.tree && <Tree made={made} at={at} />}
        </>
      )}
    </section>
  );
}

// The cache as a strip: each entry as strongly as the chosen head read it in this step. Of many those that were taken away and
// the largest, in their order.
const mostEntries = 48;
function Cached({ entries, step, tokens }: { entries: string[]; step: GenerateStep; tokens: Token[] }) {
  const r = room.value,
    weights = step.weights![Math.min(r.at.head, step.weights!.length - 1)];
  const gone = new Set(step.evicted ?? []);
  const shown = weights
    .map((_, j) => j)
    .sort((x, y) => Number(gone.has(y)) - Number(gone.has(x)) || weights[y] - weights[x])
    .slice(0, mostEntries)
    .sort((x, y) => x - y);
  return (
    <div class="cached">
      <p class="place faint">
        <code>{r.at.attention}</code> · {t('head')} {r.at.head} · {t('room.cached')}
      </p>
      <ol class="cached-keys" dir={directionOf(entries.join(''))} data-step={step.index}>
        {shown.map((j) => (
          <li
            class={`${tokens[j]?.kind === 'special' ? 'special' : ''} ${gone.has(j) ? 'gone' : ''}`}
            data-key={j}
            data-weight={weights[j]}
            title={gone.has(j) ? t('room.cached.gone', j) : `${j}: ${exact(weights[j])}`}
          >
            <bdi class="hue-k">{entries[j]}</bdi>
            <i style={{ '--h': weights[j].toFixed(4) }} aria-hidden="true" />
            <small>{gone.has(j) ? '✕' : show(weights[j], 2)}</small>
          </li>
        ))}
      </ol>
      {shown.length < weights.length && <p class="note">{t('room.row.part', shown.length, weights.length)}</p>}
    </div>
  );
}

function Tree({ made, at }: { made: GenerateResult; at: number }) {
  const { nodes, hypotheses } = made.tree!;
  const byStep = new Map<number, typeof nodes>();
  for (const node of nodes) byStep.set(node.step, [...(byStep.get(node.step) ?? []), node]);
  const columns = [...byStep.keys()].sort((a, b) => a - b);
  const spot = new Map<number, { x: number; y: number }>();
  const scale = textScale.value,
    across = 92 * scale,
    down = 30 * scale;
  columns.forEach((step, c) =>
    byStep.get(step)!.forEach((node, i) => spot.set(node.id, { x: 12 + c * across, y: 22 * scale + i * down })),
  );
  const tall = Math.max(1, ...[...byStep.values()].map((list) => list.length)) * down + 20;
  return (
    <div class="tree-box">
      <div class="lines-scroll">
        <svg class="tree" width={columns.length * across + 40} height={tall} role="img" aria-label={t('room.tree')}>
          {nodes.map((node) => {
            const a = spot.get(node.parent),
              z = spot.get(node.id)!;
            return (
              a && (
                <path
                  d={`M ${a.x + across - 22} ${a.y - 4} C ${a.x + across - 8} ${a.y - 4}, ${z.x - 14} ${z.y - 4}, ${z.x - 2} ${z.y - 4}`}
                  class={node.kept ? 'kept' : ''}
                />
              )
            );
          })}
          {nodes.map((node) => {
            const z = spot.get(node.id)!;
            return (
              <text x={z.x} y={z.y} class={`${node.kept ? 'kept' : ''} ${node.step === at ? 'now' : ''}`}>
                {label(node).slice(0, 9)}
                <title>{`log p ${show(node.log_probability)}`}</title>
              </text>
            );
          })}
        </svg>
      </div>
      <table class="by-hand">
        <thead>
          <tr>
            <th scope="col" class="left">
              {t('room.hypothesis')}
            </th>
            <th scope="col">log p</th>
            <th scope="col">{t('room.ranked')}</th>
          </tr>
        </thead>
        <tbody>
          {hypotheses.map((h) => (
            <tr>
              <td class="left" dir="auto">
                {h.text || '∅'}
              </td>
              <td>{show(h.log_probability)}</td>
              <td>{show(h.score)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

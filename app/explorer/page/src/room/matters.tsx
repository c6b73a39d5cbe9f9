// Looking at and mattering: the weights of a row beside what cutting each of its edges does to a next token.
import { signal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import type { ImportanceEdge, ImportanceResult } from '../engine';
import { exact, show } from '../numbers';
import { engine, returned } from '../shared';
import { Button, Segmented, Select } from '../ui';
import { t } from '../words';
import { outcomeRow } from './outcome';
import { complain } from './said';
import { apart, axes, base, choose, inForce, label, lens, placed, request, room, site, type Method } from './state';

// Stays while another text is read.
const on = signal(false);
const by = signal<Method>('exact');
const methods = ['weight', 'write', 'first_order', 'exact'] as const;
const mostShown = 12;

export function Matters() {
  const r = room.value,
    a = site.value,
    b = base.value,
    { attention, head, query } = r.at;
  const [made, setMade] = useState<ImportanceResult | null>(null);
  const [target, setTarget] = useState<number | null>(null),
    [versus, setVersus] = useState<number | null>(null);
  const [busy, setBusy] = useState(false);
  const at = outcomeRow();
  useEffect(() => {
    setTarget(null);
    setVersus(null);
  }, [b, at]);
  useEffect(() => {
    setMade(null);
  }, [attention, head, query, r.edits, b, at, target, versus]);
  const top = b?.predictions?.rows[at]?.top ?? [],
    token = target ?? top[0]?.id;
  // Hundreds of runs: what is no longer asked is no longer computed.
  useEffect(() => {
    if (!on.value || made || !b) return;
    const asked = new AbortController(),
      stale = () => asked.signal.aborted;
    setBusy(true);
    const wanted = { row: at, token, ...(versus === null ? {} : { versus }) };
    engine
      .importance({ ...request(r, []), target: wanted, methods, attention, head, query, top: 200 }, asked.signal)
      .then((reply) => {
        if (!stale()) setMade(reply);
      })
      .catch((error) => {
        if (!stale()) {
          complain(error);
          if (error.failure?.kind !== 'gone') on.value = false;
        }
      })
      .finally(() => {
        if (!stale()) setBusy(false);
      });
    return () => asked.abort();
  }, [on.value, made, attention, head, query, r.edits, b, at, token, versus, returned.value]);
  // The text shows the same numbers.
  useEffect(() => {
    const values = () => new Map(made!.edges.map((edge) => [edge.key, edge[by.value] ?? 0]));
    lens.value = on.value && made ? { attention, head, query, method: by.value, values: values() } : null;
    return () => {
      lens.value = null;
    };
  }, [on.value, made, by.value]);
  useEffect(() => {
    if (versus !== null && versus === token) setVersus(null);
  }, [token]);
  const options = top.map((c) => ({ value: String(c.id), label: apart(label(c)) }));
  const agreement = made?.agreement.find((x) => x.methods.includes('weight') && x.methods.includes('exact'));
  return (
    <section class="card matters" aria-label={t('room.matters')}>
      <header>
        <h2>{t('room.matters')}</h2>
        <Button
          small
          primary={!on.value}
          label={t(on.value ? 'room.matters.hide' : 'room.matters.measure')}
          id="measure"
          onClick={() => {
            on.value = !on.value;
          }}
        />
      </header>
      {!on.value && <p class="faint">{t('room.matters.note')}</p>}
      {on.value && top.length > 0 && (
        <div class="figure-tools">
          <Select
            id="target-token"
            label={t('room.matters.target')}
            value={String(token)}
            options={options}
            onChange={(value) => setTarget(Number(value))}
          />
          <Select
            id="versus-token"
            label={t('room.matters.versus')}
            value={versus === null ? '' : String(versus)}
            options={[{ value: '', label: '—' }, ...options.filter((c) => c.value !== String(token))]}
            onChange={(value) => setVersus(value === '' ? null : Number(value))}
          />
        </div>
      )}
      {on.value && a && (
        <p class="place faint">
          <code>{a.name}</code> · {t('head')} {head} · {t('query')} {query}
        </p>
      )}
      {on.value && busy && (
        <p class="faint" role="status">
          {t('room.matters.busy')}
        </p>
      )}
      {on.value && made && (
        <>
          <Segmented
            label={t('room.matters.by')}
            value={by.value}
            onChange={(value) => {
              by.value = value;
            }}
            options={methods.map((m) => ({ value: m, label: t(`method.${m}`) }))}
          />
          <Table edges={made.edges} />
          {inForce(r.edits).length > 0 && <p class="note">{t('room.matters.base')}</p>}
          {agreement && (
            <p class="note" data-agreement={agreement.rank_correlation ?? ''}>
              {agreement.rank_correlation === null
                ? t('room.agreement.none')
                : t('room.agreement', show(agreement.rank_correlation, 2), agreement.edges)}
            </p>
          )}
        </>
      )}
    </section>
  );
}

function Table({ edges: all }: { edges: ImportanceEdge[] }) {
  const sorting = by.value,
    { keys } = axes(site.value, base.value),
    chosen = room.value.at.key;
  const edges = [...all].sort((x, y) => Math.abs(y[sorting] ?? 0) - Math.abs(x[sorting] ?? 0)).slice(0, mostShown);
  const most = Object.fromEntries(
    methods.map((m) => [m, Math.max(1e-12, ...edges.map((edge) => Math.abs(edge[m] ?? 0)))]),
  );
  return (
    <div class="matrix-scroll">
      <table class="matters-table">
        <thead>
          <tr>
            <th scope="col">{t('key')}</th>
            {methods.map((m) => (
              <th scope="col" class={m === sorting ? 'now' : ''}>
                {t(`method.${m}`)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {edges.map((edge) => (
            <tr class={edge.key === chosen ? 'now' : ''} data-key={edge.key} onClick={() => choose({ key: edge.key })}>
              <th scope="row">
                <button
                  type="button"
                  class="row-go hue-k"
                  title={placed(keys, edge.key)}
                  aria-pressed={edge.key === chosen}
                >
                  {label(keys[edge.key])}
                </button>
              </th>
              {methods.map((m) => (
                <td
                  title={exact(edge[m] ?? 0)}
                  data-method={m}
                  data-value={edge[m] ?? ''}
                  class={`meter ${m === 'weight' || m === 'write' ? 'w' : 'e'} ${(edge[m] ?? 0) < 0 ? 'below' : ''}`}
                >
                  <i style={{ '--h': (Math.abs(edge[m] ?? 0) / most[m]).toFixed(3) }} />
                  <b>{show(edge[m], 2)}</b>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

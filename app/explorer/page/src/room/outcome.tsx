// What the model makes of it: next tokens of the base and the edited run side by side, the stack of edits, and which edges matter.
import { useEffect, useState } from 'preact/hooks';
import { Lane, type GenerateResult, type ImportanceResult, type Input, type ModelEdit } from '../engine';
import { exact, show } from '../numbers';
import { engine, explain, say } from '../shared';
import { Button, Menu, Rich, Segmented, Select } from '../ui';
import { t, type Key } from '../words';
import { apart, attentionOf, attentionShort, axes, base, change, choose, edited, editedFor, headName, headShort, inForce, info, label, lens, placed, request, room, site, type Method } from './state';

export function outcomeRow(): number {
  const r = room.value, a = site.value, rows = base.value?.predictions?.rows.length ?? 0;
  const follow = a && !(a.stack === 'encoder' && info.value?.family === 'encoder-decoder') ? r.at.query : rows - 1;
  return Math.max(0, Math.min(rows - 1, r.outcome ?? follow));
}

export function Outcome() {
  const b = base.value, e = edited.value, r = room.value;
  if (!b?.predictions) return null;
  const at = outcomeRow(), target = b.tokens.target ?? b.tokens.text ?? [];
  const before = b.predictions.rows[at], after = e?.predictions?.rows[at];
  if (!before) return null;
  const ids = [...before.top.slice(0, 5).map((c) => c.id), ...(after?.top.slice(0, 5).map((c) => c.id) ?? [])].filter((id, i, all) => all.indexOf(id) === i).slice(0, 7);
  const of = (list: typeof before.top | undefined, id: number) => list?.find((c) => c.id === id);
  const text = (id: number) => { const c = of(before.top, id) ?? of(after?.top, id)!; return c.text.replace(/^[ \u2581]+/, '') || '␣'; };
  return <section class="card outcome" aria-label={t('room.outcome')}>
    <header><h2>{t('room.outcome')}</h2></header>
    <p class="outcome-after">{t('room.after')} <b class="hue-q">{label(target[at])}</b>
      <Select label={t('room.outcome.row')} hideLabel value={r.outcome === null ? '' : String(r.outcome)} options={[{ value: '', label: t('room.outcome.follow') }, ...target.slice(0, 400).map((token, i) => ({ value: String(i), label: `${i} ${apart(label(token))}` }))]} onChange={(value) => change({ outcome: value === '' ? null : Number(value) })} /></p>
    <ul class="choices">{ids.map((id) => {
      const x = of(before.top, id), y = after ? of(after.top, id) : undefined;
      return <li data-token-id={id}><b>{text(id)}{before.target_id === id && <small title={t('room.comes')}> ●</small>}</b>
        <span class="choice-bars"><i class="before" style={{ '--h': (x?.probability ?? 0).toFixed(4) }} />{after && <i class="after" style={{ '--h': (y?.probability ?? 0).toFixed(4) }} />}</span>
        <span class="choice-numbers"><span data-logit={x?.logit} title={x ? `${t('room.logit')} ${exact(x.logit)}` : ''}>{x ? show(x.probability) : '<'}</span>{after && <span class="hue-e" data-edited-logit={y?.logit} title={y ? `${t('room.logit')} ${exact(y.logit)}` : ''}>{y ? show(y.probability) : '<'}</span>}</span></li>;
    })}</ul>
    <p class="legend"><i class="swatch before" />{t('room.base')}{after && <><i class="swatch after" />{t('room.edited')}</>}</p>
    <Written />
  </section>;
}

const writeLane = new Lane(({ model, input, edits }: { model: string; input: Input; edits: ModelEdit[] }) => {
  const { source, text, language } = input;
  return engine.generate({ model, input: source !== undefined ? { source, language } : { text }, edits, steps: 48, method: { kind: 'greedy' }, prefix_ids: [] });
});

// What is written from the beginning, with and without the edits.
function Written() {
  const [made, setMade] = useState<{ before: GenerateResult | null; after: GenerateResult | null }>({ before: null, after: null });
  const r = room.value, b = base.value;
  const edits = inForce(r.edits);
  const family = info.value?.family;
  useEffect(() => { setMade({ before: null, after: null }); }, [b]);
  useEffect(() => {
    if (!b || family !== 'encoder-decoder') return;
    let alive = true;
    const timer = setTimeout(() => {
      writeLane.ask({ model: r.model, input: b.input, edits }).then((reply) => { if (alive && reply) setMade((old) => edits.length ? { ...old, after: reply } : { before: reply, after: null }); }).catch((error) => { if (alive) say(explain(error), 'error'); });
    }, 350);
    return () => { alive = false; clearTimeout(timer); };
  }, [b, r.edits]);
  if (family !== 'encoder-decoder') return null;
  return <div class="written"><p class="faint">{t('room.writes')}</p><p dir="auto">{made.before?.text ?? b?.input.target ?? '…'}</p>{edits.length > 0 && made.after && <p dir="auto" class={made.after.text === (made.before?.text ?? b?.input.target) ? 'faint' : 'hue-e'}>{made.after.text}</p>}</div>;
}

export function describe(e: ModelEdit): string {
  const a = attentionOf(e.attention ?? '');
  const { queries, keys } = axes(a, base.value);
  const where = !a ? e.site ?? '' : e.head === -1 ? `${attentionShort(a.name)}.*` : headShort(a.name, e.head ?? 0);
  const edge = e.query !== undefined && e.key !== undefined ? `${e.query < 0 ? '*' : placed(queries, e.query)} ← ${e.key < 0 ? '*' : placed(keys, e.key)}` : '';
  const value = e.value === undefined ? '' : show(e.value);
  switch (e.kind) {
    case 'set': return `${where} · ${edge}: ${t('score')} = ${value}`;
    case 'add': return `${where} · ${edge}: ${t('score')} + ${value}`;
    case 'scale': return `${where} · ${edge}: ${t('score')} × ${value}`;
    case 'forbid': return `${where} · ${edge}: ${t('row.forbid')}`;
    case 'lock': return `${where} · ${edge}: ${t('weight')} = ${value}`;
    case 'head': return `${where}: ${e.value === 0 ? t('room.head.cut') : `× ${value}`}`;
    case 'attention': return `${attentionShort(e.attention ?? '')}: ${t('room.whole')} × ${value}`;
    case 'feed_forward': return `${t(`tab.${e.stack ?? 'decoder'}` as Key)} ${e.layer ?? 0}: ${t('room.feed.forward')} × ${value}`;
    case 'evict': return `${attentionShort(e.attention ?? '')}: ${t('room.evicted', placed(keys, e.key ?? 0), placed(queries, e.query ?? 0))}`;
    case 'mean': return `${(e.head ?? -1) < 0 ? e.site : headShort((e.site ?? '').replace(/\.[a-z_]+$/, ''), e.head!)}: ${t('room.mean')}`;
    case 'patch': return `${e.site}, ${t('row.n', e.row ?? '*')}: ${t('room.patch')} ← ${apart([e.from ?? {}].flat()[0].source ?? [e.from ?? {}].flat()[0].text ?? '')}`;
    default: return `${e.kind} ${where} ${edge} ${value}`;
  }
}

export function Edits() {
  const r = room.value;
  const [from, setFrom] = useState('');
  const [naming, setNaming] = useState<number | null>(null);
  const touched = editedFor.value === r.edits ? edited.value?.edits ?? [] : [];
  let force = -1;
  const a = site.value;
  const patch = () => {
    if (!a || !from.trim()) return;
    const { language } = base.value?.input ?? {};
    const input = info.value?.family === 'encoder-decoder' ? { source: from.trim(), ...(language ? { language } : {}), ...(a.stack === 'decoder' && base.value?.input.target ? { target: base.value.input.target } : {}) } : { text: from.trim() };
    change({ edits: [...r.edits, { kind: 'patch', site: `${a.stack}.${a.layer}.output`, row: r.at.query, from: input }] });
  };
  const add = (edit: ModelEdit) => change({ edits: [...r.edits, edit] });
  const additions = a ? [
    { label: t('room.add.attention', a.layer), note: a.name, onClick: () => add({ kind: 'attention', attention: a.name, value: 0 }) },
    { label: t('room.add.feed.forward', a.layer), note: `${a.stack}.${a.layer}.feed_forward`, onClick: () => add({ kind: 'feed_forward', stack: a.stack, layer: a.layer, value: 0 }) },
    { label: t('room.add.evict', placed(axes(a, base.value).keys, r.at.key)), note: t('room.add.evict.note', placed(axes(a, base.value).queries, r.at.query)), onClick: () => add({ kind: 'evict', attention: a.name, key: r.at.key, query: r.at.query }) },
    { label: t('room.add.mean', headShort(a.name, r.at.head)), note: t('room.add.mean.note'), onClick: () => add({ kind: 'mean', site: `${a.name}.head_output`, head: r.at.head, from: base.value!.input }) },
  ] : [];
  return <section class="card edits" aria-label={t('room.edits')}>
    <header><h2>{t('room.edits')}</h2>{a && <Menu icon="plus" id="add-edit" label={t('room.edit.add')} items={additions} />}{r.edits.length > 0 && <Button small label={t('bench.edits.clear')} onClick={() => change({ edits: [] })} />}</header>
    {r.edits.length === 0 ? <p class="faint">{t('room.edits.none')}</p> : <ol>{r.edits.map((e, i) => {
      if (!e.off) ++force;
      const count = e.off ? null : touched[force]?.touched;
      return <li class={e.off ? 'off' : ''}><label><input type="checkbox" checked={!e.off} aria-label={e.name ?? describe(e)} onChange={() => change({ edits: r.edits.map((other, j) => j === i ? { ...other, off: !e.off || undefined } : other) })} />
        {naming === i ? null : <span title={[e.name ? describe(e) : '', e.attention && (e.head ?? -1) >= 0 ? headName(e.attention, e.head!) : e.attention ?? ''].filter(Boolean).join(' · ')}>{e.name ?? describe(e)}</span>}</label>
        {naming === i && <input type="text" class="text-field" dir="auto" maxLength={60} value={e.name ?? ''} aria-label={t('room.edit.name')} placeholder={describe(e)} ref={(field) => field?.focus()}
          onBlur={(event) => { setNaming(null); const name = event.currentTarget.value.trim(); if (name !== (e.name ?? '')) change({ edits: r.edits.map((other, j) => j === i ? { ...other, name: name || undefined } : other) }); }}
          onKeyDown={(event) => { if (event.isComposing) return; if (event.key === 'Escape') event.currentTarget.value = e.name ?? ''; if (event.key === 'Enter' || event.key === 'Escape') event.currentTarget.blur(); }} />}
        {count === 0 && <small class="bad">{t('room.touched.none')}</small>}
        <Button icon="pen" label={t('room.edit.name')} onClick={() => setNaming(i)} /><Button icon="close" label={t('room.edit.remove')} onClick={() => change({ edits: r.edits.filter((_, j) => j !== i) })} /></li>;
    })}</ol>}
    {edited.value?.checks && edited.value.checks.head_sum !== null && <p class="check-line">{t('room.p.sum', edited.value.checks.head_sum.toExponential(1))}</p>}
    <details class="patch-box"><summary>{t('room.patch.title')}</summary><p class="faint"><Rich text={t('room.patch.note', a ? `\`${a.stack}.${a.layer}.output\`` : '', r.at.query)} /></p>
      <div class="figure-tools"><input type="text" class="text-field" dir="auto" value={from} aria-label={t('room.patch.from')} placeholder={t('room.patch.from')} onInput={(event) => setFrom(event.currentTarget.value)} /><Button small label={t('room.patch')} disabled={!from.trim()} onClick={patch} /></div></details>
  </section>;
}

export function Matters() {
  const r = room.value, a = site.value, b = base.value;
  const [on, setOn] = useState(false);
  const [made, setMade] = useState<ImportanceResult | null>(null);
  const [by, setBy] = useState<Method>('exact');
  const [target, setTarget] = useState<number | null>(null), [versus, setVersus] = useState<number | null>(null);
  const [busy, setBusy] = useState(false);
  const at = outcomeRow();
  const { keys } = axes(a, b);
  useEffect(() => { setTarget(null); setVersus(null); }, [b, at]);
  useEffect(() => { setMade(null); }, [r.at.attention, r.at.head, r.at.query, r.edits, b, at, target, versus]);
  const top = b?.predictions?.rows[at]?.top ?? [], token = target ?? top[0]?.id;
  useEffect(() => {
    if (!on || made || !b) return;
    let alive = true;
    setBusy(true);
    const { attention, head, query } = r.at;
    engine.importance({ ...request(r, []), target: { row: at, token, ...(versus === null ? {} : { versus }) }, methods: ['weight', 'write', 'first_order', 'exact'], attention, head, query, top: 200 })
      .then((reply) => { if (alive) setMade(reply); }).catch((error) => { if (alive) { say(explain(error), 'error'); setOn(false); } }).finally(() => { if (alive) setBusy(false); });
    return () => { alive = false; };
  }, [on, made, r.at.attention, r.at.head, r.at.query, r.edits, b, at, token, versus]);
  // The text shows the same numbers.
  useEffect(() => {
    lens.value = on && made ? { attention: r.at.attention, head: r.at.head, query: r.at.query, method: by, values: new Map(made.edges.map((edge) => [edge.key, edge[by] ?? 0])) } : null;
    return () => { lens.value = null; };
  }, [on, made, by]);
  const word = (text: string) => text.replace(/^[ \u2581]+/, '') || '␣';
  const methods = ['weight', 'write', 'first_order', 'exact'] as const;
  useEffect(() => { if (versus !== null && versus === token) setVersus(null); }, [token]);
  const edges = made ? [...made.edges].sort((x, y) => Math.abs(y[by] ?? 0) - Math.abs(x[by] ?? 0)).slice(0, 12) : [];
  const most = Object.fromEntries(methods.map((m) => [m, Math.max(1e-12, ...edges.map((edge) => Math.abs(edge[m] ?? 0)))]));
  const agreement = made?.agreement.find((x) => x.methods.includes('weight') && x.methods.includes('exact'));
  return <section class="card matters" aria-label={t('room.matters')}>
    <header><h2>{t('room.matters')}</h2><Button small primary={!on} label={on ? t('room.matters.hide') : t('room.matters.measure')} id="measure" onClick={() => setOn(!on)} /></header>
    {!on && <p class="faint">{t('room.matters.note')}</p>}
    {on && top.length > 0 && <div class="figure-tools"><Select id="target-token" label={t('room.matters.target')} value={String(token)} options={top.map((c) => ({ value: String(c.id), label: word(c.text) }))} onChange={(value) => setTarget(Number(value))} />
      <Select id="versus-token" label={t('room.matters.versus')} value={versus === null ? '' : String(versus)} options={[{ value: '', label: '—' }, ...top.filter((c) => c.id !== token).map((c) => ({ value: String(c.id), label: word(c.text) }))]} onChange={(value) => setVersus(value === '' ? null : Number(value))} /></div>}
    {on && a && <p class="place faint"><code>{a.name}</code> · {t('head')} {r.at.head} · {t('query')} {r.at.query}</p>}
    {on && busy && <p class="faint" role="status">{t('room.matters.busy')}</p>}
    {on && made && <>
      <Segmented label={t('room.matters.by')} value={by} onChange={setBy} options={methods.map((m) => ({ value: m, label: t(`method.${m}` as Key) }))} />
      <div class="matrix-scroll"><table class="matters-table"><thead><tr><th scope="col">{t('key')}</th>{methods.map((m) => <th scope="col" class={m === by ? 'now' : ''}>{t(`method.${m}` as Key)}</th>)}</tr></thead>
        <tbody>{edges.map((edge) => <tr class={edge.key === r.at.key ? 'now' : ''} data-key={edge.key} onClick={() => choose({ key: edge.key })}><th scope="row" class="hue-k" title={placed(keys, edge.key)}>{label(keys[edge.key])}</th>
          {methods.map((m) => <td class={`meter ${m === 'weight' || m === 'write' ? 'w' : 'e'} ${(edge[m] ?? 0) < 0 ? 'below' : ''}`} title={exact(edge[m] ?? 0)} data-method={m} data-value={edge[m] ?? ''}><i style={{ '--h': (Math.abs(edge[m] ?? 0) / most[m]).toFixed(3) }} /><b>{show(edge[m], 2)}</b></td>)}</tr>)}</tbody></table></div>
      {inForce(r.edits).length > 0 && <p class="note">{t('room.matters.base')}</p>}
      {agreement && <p class="note" data-agreement={agreement.rank_correlation ?? ''}>{agreement.rank_correlation === null ? t('room.agreement.none') : t('room.agreement', show(agreement.rank_correlation, 2), agreement.edges)}</p>}
    </>}
  </section>;
}

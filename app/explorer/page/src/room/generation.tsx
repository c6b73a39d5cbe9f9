// Generation under glass: one token after the other, the cache as a strip with its bytes, branches, and the beam as a tree.
import { useEffect, useState } from 'preact/hooks';
import type { GenerateResult } from '../engine';
import { bytes, show } from '../numbers';
import { engine, explain, say } from '../shared';
import { Button, Segmented, Stepper } from '../ui';
import { t } from '../words';
import { base, inForce, info, room } from './state';

const clean = (text: string) => text.replace(/^[ \u2581]+/, '').replace(/\n/g, '⏎') || '␣';

export function Generation() {
  const b = base.value, r = room.value;
  const [kind, setKind] = useState<'greedy' | 'beam'>('greedy');
  const [beams, setBeams] = useState(4);
  const [steps, setSteps] = useState(24);
  const [prefix, setPrefix] = useState<number[]>([]);
  const [at, setAt] = useState(0);
  const [made, setMade] = useState<GenerateResult | null>(null);
  const [open, setOpen] = useState(false);
  useEffect(() => { setMade(null); setPrefix([]); setAt(0); }, [b]);
  useEffect(() => {
    if (!open || !b) return;
    let alive = true;
    const { source, text, language } = b.input;
    engine.generate({ model: r.model, input: source !== undefined ? { source, language } : { text: text ?? '' }, edits: inForce(r.edits), steps, method: kind === 'beam' ? { kind, beams, n_best: beams } : { kind }, prefix_ids: prefix })
      .then((reply) => { if (alive) { setMade(reply); setAt((old) => Math.min(old, Math.max(0, reply.steps.length - 1))); } }).catch((error) => { if (alive) say(explain(error), 'error'); });
    return () => { alive = false; };
  }, [open, b, r.edits, kind, beams, steps, prefix]);
  if (!b?.predictions || info.value?.family === 'encoder') return null;
  const step = made?.steps[at];
  const branch = (id: number) => { setPrefix([...made!.steps.slice(0, at).map((s) => s.id), id]); };
  const most = Math.max(1, ...(made?.steps.map((s) => s.cache.bytes) ?? []));
  return <section class="card generation" aria-label={t('room.generation')}>
    <header><h2>{t('room.generation')}</h2>
      {open ? <div class="figure-tools"><Segmented label={t('room.method')} value={kind} onChange={(value) => { setKind(value); setPrefix([]); }} options={[{ value: 'greedy', label: t('room.greedy') }, { value: 'beam', label: t('room.beam') }]} />
        {kind === 'beam' && <Stepper label={t('room.beams')} value={beams} min={2} max={8} onChange={setBeams} />}
        <Stepper label={t('room.steps')} value={steps} min={1} max={64} onChange={setSteps} />
        {prefix.length > 0 && <Button small icon="reset" text label={t('room.unbranch')} onClick={() => setPrefix([])} />}</div>
        : <Button small primary label={t('room.generate')} id="generate" onClick={() => setOpen(true)} />}</header>
    {!open && <p class="faint">{t('room.generation.note')}</p>}
    {open && !made && <p class="faint" role="status">{t('engine.asking')}…</p>}
    {open && made && <>
      <div class="step-row"><Button icon="left" label={t('learn.back')} disabled={at === 0} onClick={() => setAt(at - 1)} />
        <ol class="steps" aria-label={t('room.generation')}>{made.steps.map((s, i) => <li><button type="button" class={`${i === at ? 'now' : ''} ${i < prefix.length ? 'forced' : ''} ${i > at ? 'later' : ''}`} aria-current={i === at ? 'step' : undefined} data-step={i} title={`log p ${show(s.log_probability)}`} onClick={() => setAt(i)}>
          <b>{clean(s.text)}</b><i style={{ '--h': (s.cache.bytes / most).toFixed(3) }} /></button></li>)}</ol>
        <Button icon="right" label={t('learn.next')} disabled={at >= made.steps.length - 1} onClick={() => setAt(at + 1)} /></div>
      {step && <div class="step-detail"><p><b>{t('room.cache', step.cache.tokens, bytes(step.cache.bytes))}</b>{made.cross_cache_bytes > 0 && <span class="faint"> · {t('room.cache.cross', bytes(made.cross_cache_bytes))}</span>}</p>
        {kind === 'greedy' && <div class="branches"><span class="faint">{t('room.branch')}</span>{step.top.slice(0, 5).map((c) => <button type="button" class={`button small ${c.id === step.id ? 'picked' : ''}`} disabled={c.id === step.id} onClick={() => branch(c.id)}>{clean(c.text)} <small>{show(c.probability)}</small></button>)}</div>}</div>}
      <p class="generated">{made.text}{!made.ended && ' …'}</p>
      {kind === 'beam' && made.tree && <Tree made={made} at={at} />}
    </>}
  </section>;
}

function Tree({ made, at }: { made: GenerateResult; at: number }) {
  const { nodes, hypotheses } = made.tree!;
  const byStep = new Map<number, typeof nodes>();
  for (const node of nodes) byStep.set(node.step, [...(byStep.get(node.step) ?? []), node]);
  const columns = [...byStep.keys()].sort((a, b) => a - b);
  const spot = new Map<number, { x: number; y: number }>();
  columns.forEach((step, c) => byStep.get(step)!.forEach((node, i) => spot.set(node.id, { x: 12 + c * 92, y: 22 + i * 30 })));
  const tall = Math.max(1, ...[...byStep.values()].map((list) => list.length)) * 30 + 20;
  return <div class="tree-box">
    <div class="lines-scroll"><svg class="tree" width={columns.length * 92 + 40} height={tall} role="img" aria-label={t('room.tree')}>
      {nodes.map((node) => { const a = spot.get(node.parent), z = spot.get(node.id)!; return a && <path d={`M ${a.x + 70} ${a.y - 4} C ${a.x + 84} ${a.y - 4}, ${z.x - 14} ${z.y - 4}, ${z.x - 2} ${z.y - 4}`} class={node.kept ? 'kept' : ''} />; })}
      {nodes.map((node) => { const z = spot.get(node.id)!; return <text x={z.x} y={z.y} class={`${node.kept ? 'kept' : ''} ${node.step === at ? 'now' : ''}`}>{clean(node.text).slice(0, 9)}<title>{`log p ${show(node.log_probability)}`}</title></text>; })}
    </svg></div>
    <table class="by-hand"><thead><tr><th scope="col" class="left">{t('room.hypothesis')}</th><th scope="col">log p</th><th scope="col">{t('room.ranked')}</th></tr></thead><tbody>{hypotheses.map((h) => <tr><td class="left">{h.text}</td><td>{show(h.log_probability)}</td><td>{show(h.score)}</td></tr>)}</tbody></table>
  </div>;
}

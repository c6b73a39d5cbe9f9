// The stack of edits: named, switched off and on, taken away; those that no gesture on a row makes are added here.
import { signal } from '@preact/signals';
import { useState } from 'preact/hooks';
import type { ModelEdit } from '../engine';
import { Button, Menu, Rich } from '../ui';
import { t } from '../words';
import { describe } from './describe';
import { editName } from './said';
import { axes, base, change, edited, editedFor, headName, headShort, info, placed, room, site } from './state';

const otherText = signal(''); // of a patch; stays while another text is read

const replaced = (edits: ModelEdit[], at: number, by: Partial<ModelEdit>) =>
  edits.map((e, i) => (i === at ? { ...e, ...by } : e));

// The edits that one may add where one stands.
function additions() {
  const r = room.value,
    a = site.value;
  if (!a) return [];
  const { queries, keys } = axes(a, base.value);
  const add = (edit: ModelEdit) => change({ edits: [...r.edits, edit] });
  return [
    {
      label: t('room.add.attention', a.layer),
      note: a.name,
      onClick: () => add({ kind: 'attention', attention: a.name, value: 0 }),
    },
    {
      label: t('room.add.feed.forward', a.layer),
      note: `${a.stack}.${a.layer}.feed_forward`,
      onClick: () => add({ kind: 'feed_forward', stack: a.stack, layer: a.layer, value: 0 }),
    },
    {
      label: t('room.add.evict', placed(keys, r.at.key)),
      note: t('room.add.evict.note', placed(queries, r.at.query)),
      onClick: () => add({ kind: 'evict', attention: a.name, key: r.at.key, query: r.at.query }),
    },
    {
      label: t('room.add.mean', headShort(a.name, r.at.head)),
      note: t('room.add.mean.note'),
      onClick: () => add({ kind: 'mean', site: `${a.name}.head_output`, head: r.at.head, from: base.value!.input }),
    },
  ];
}

export function Edits() {
  const r = room.value,
    a = site.value;
  const [naming, setNaming] = useState<number | null>(null);
  const touched = editedFor.value === r.edits ? (edited.value?.edits ?? []) : [];
  const sum = edited.value?.checks?.head_sum ?? null;
  let force = -1;
  return (
    <section class="card edits" aria-label={t('room.edits')}>
      <header>
        <h2>{t('room.edits')}</h2>
        {a && <Menu icon="plus" id="add-edit" label={t('room.edit.add')} items={additions()} />}
        {r.edits.length > 0 && <Button small label={t('bench.edits.clear')} onClick={() => change({ edits: [] })} />}
      </header>
      {r.edits.length === 0 ? (
        <p class="faint">{t('room.edits.none')}</p>
      ) : (
        <ol>
          {r.edits.map((e, i) => {
            if (!e.off) ++force;
            const text = describe(e),
              name = e.name ?? text;
            const head = e.attention && (e.head ?? -1) >= 0 ? headName(e.attention, e.head!) : (e.attention ?? '');
            return (
              <li class={e.off ? 'off' : ''}>
                <small class="faint" title={editName(i)}>
                  {i + 1}
                </small>
                <label>
                  <input
                    type="checkbox"
                    checked={!e.off}
                    aria-label={name}
                    onChange={() => change({ edits: replaced(r.edits, i, { off: !e.off || undefined }) })}
                  />
                  {naming === i ? null : (
                    <span title={[e.name ? text : '', head].filter(Boolean).join(' · ')}>{name}</span>
                  )}
                </label>
                {naming === i && (
                  <NameField
                    edit={e}
                    placeholder={text}
                    onDone={(now) => {
                      setNaming(null);
                      if (now !== (e.name ?? '')) change({ edits: replaced(r.edits, i, { name: now || undefined }) });
                    }}
                  />
                )}
                {!e.off && touched[force]?.touched === 0 && <small class="bad">{t('room.touched.none')}</small>}
                <Button icon="pen" label={t('room.edit.name')} onClick={() => setNaming(i)} />
                <Button
                  icon="close"
                  label={t('room.edit.remove')}
                  onClick={() => change({ edits: r.edits.filter((_, j) => j !== i) })}
                />
              </li>
            );
          })}
        </ol>
      )}
      {sum !== null && <p class="check-line">{t('room.p.sum', sum.toExponential(1))}</p>}
      <PatchBox />
    </section>
  );
}

// Escape leaves the name as it was.
function NameField({
  edit,
  placeholder,
  onDone,
}: {
  edit: ModelEdit;
  placeholder: string;
  onDone: (name: string) => void;
}) {
  return (
    <input
      type="text"
      class="text-field"
      dir="auto"
      maxLength={60}
      value={edit.name ?? ''}
      aria-label={t('room.edit.name')}
      placeholder={placeholder}
      ref={(field) => field?.focus()}
      onBlur={(event) => onDone(event.currentTarget.value.trim())}
      onKeyDown={(event) => {
        if (event.isComposing) return;
        if (event.key === 'Escape') event.currentTarget.value = edit.name ?? '';
        if (event.key === 'Enter' || event.key === 'Escape') event.currentTarget.blur();
      }}
    />
  );
}

function PatchBox() {
  const r = room.value,
    a = site.value,
    from = otherText.value;
  const patch = () => {
    if (!a || !from.trim()) return;
    const { language, target } = base.value?.input ?? {};
    const input =
      info.value?.family === 'encoder-decoder'
        ? {
            source: from.trim(),
            ...(language ? { language } : {}),
            ...(a.stack === 'decoder' && target ? { target } : {}),
          }
        : { text: from.trim() };
    change({
      edits: [
        ...r.edits.filter(
          (e) => e.kind !== 'patch' || e.site !== `${a.stack}.${a.layer}.output` || e.row !== r.at.query,
        ),
        { kind: 'patch', site: `${a.stack}.${a.layer}.output`, row: r.at.query, from: input },
      ],
    });
  };
  return (
    <details class="patch-box">
      <summary>{t('room.patch.title')}</summary>
      <p class="faint">
        <Rich text={t('room.patch.note', a ? `\`${a.stack}.${a.layer}.output\`` : '', r.at.query)} />
      </p>
      <div class="figure-tools">
        <input
          type="text"
          class="text-field"
          dir="auto"
          value={from}
          aria-label={t('room.patch.from')}
          placeholder={t('room.patch.from')}
          onInput={(event) => {
            otherText.value = event.currentTarget.value;
          }}
        />
        <Button small label={t('room.patch')} disabled={!from.trim()} onClick={patch} />
      </div>
    </details>
  );
}

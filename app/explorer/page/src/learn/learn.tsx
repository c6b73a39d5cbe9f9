import { useEffect, useRef, useState } from 'preact/hooks';
import type { Bench } from '../bench/state';
import { abc, bench, linkState } from '../bench/state';
import { hashOf, route } from '../link';
import { later } from '../pending';
import { explain, hush, isGone, say } from '../shared';
import { Button, Icon, Rich, Symbols } from '../ui';
import { t, type Key } from '../words';
import { lessons, type Lesson, type Verdict } from './lessons';
import { MiniRow, useMini } from './mini';
import { SelfTest } from './selftest';

function readDone(): Set<string> {
  try {
    return new Set(JSON.parse(localStorage.getItem('attend.lessons') ?? '[]') as string[]);
  } catch {
    return new Set();
  }
}

export function LearnScreen() {
  const [done, setDone] = useState(readDone);
  const mark = (key: string) =>
    setDone((old) => {
      const next = new Set([...old, key]);
      try {
        localStorage.setItem('attend.lessons', JSON.stringify([...next]));
      } catch {
        /* closed storage: kept as long as the page */
      }
      return next;
    });
  const [name, step] = route.value.path;
  const lesson = lessons.find((l) => l.id === name);
  const finished = (l: Lesson) => l.steps.every((s) => done.has(s.key));
  const open = lesson || name === 'self-test';
  // On a phone the list is a strip: the lesson one is in stands in its middle.
  useEffect(() => {
    const here = document.querySelector<HTMLElement>('.lesson-list [aria-current]'),
      strip = here?.closest<HTMLElement>('.lesson-list');
    if (here && strip)
      strip.scrollLeft = here.offsetLeft - strip.offsetLeft - (strip.clientWidth - here.offsetWidth) / 2;
  }, [name]);
  useEffect(() => {
    if (name && !open) say(t('link.unknown', location.hash.slice(0, 60)), 'error');
  }, [name]);
  return (
    <div class={`learn ${open ? 'inside' : ''}`}>
      <aside class="lesson-list">
        <nav aria-label={t('learn.lessons')}>
          <ol>
            {lessons.map((l, i) => (
              <li>
                <a href={`#/learn/${l.id}`} aria-current={l.id === name ? 'page' : undefined}>
                  <span class="lesson-n">
                    {finished(l) ? (
                      <>
                        <Icon name="check" />
                        <span class="sr">{t('learn.done')}</span>
                      </>
                    ) : (
                      i + 1
                    )}
                  </span>
                  <span>
                    <Symbols text={t(l.title)} />
                  </span>
                </a>
              </li>
            ))}
            <li>
              <a href="#/learn/self-test" aria-current={name === 'self-test' ? 'page' : undefined}>
                <span class="lesson-n">?</span>
                <span>{t('learn.selftest')}</span>
              </a>
            </li>
          </ol>
        </nav>
      </aside>
      <div class="lesson-main">
        {name === 'self-test' ? (
          <SelfTest />
        ) : lesson ? (
          <LessonView
            key={`${lesson.id}/${step ?? 1}`}
            lesson={lesson}
            step={Math.max(0, Math.min(lesson.steps.length - 1, Number(step ?? 1) - 1 || 0))}
            done={done}
            mark={mark}
          />
        ) : (
          <Home done={done} finished={finished} />
        )}
      </div>
    </div>
  );
}

function Home({ done, finished }: { done: Set<string>; finished: (l: Lesson) => boolean }) {
  const total = lessons.reduce((sum, l) => sum + l.steps.length, 0);
  const next = lessons.find((l) => !finished(l)) ?? lessons[0];
  const complete = lessons.reduce((sum, l) => sum + l.steps.filter((s) => done.has(s.key)).length, 0);
  return (
    <div class="home">
      <div class="home-top">
        <div class="home-words">
          <h1>{t('learn.title')}</h1>
          <p class="lead">{t('learn.lead')}</p>
          <p class="home-go">
            <a class="button primary" href={`#/learn/${next.id}`}>
              {complete ? t('learn.go.on') : t('learn.begin')}
              <Icon name="right" />
            </a>
            {complete > 0 && <span class="faint">{t('learn.progress', complete, total)}</span>}
          </p>
        </div>
        <FirstRow />
      </div>
      <ol class="cards">
        {lessons.map((l, i) => (
          <li>
            <a href={`#/learn/${l.id}`} class={finished(l) ? 'finished' : ''}>
              <small>{finished(l) ? <Icon name="check" /> : i + 1}</small>
              <b>
                <Symbols text={t(l.title)} />
              </b>
            </a>
          </li>
        ))}
        <li class="selftest-card">
          <a href="#/learn/self-test">
            <small>?</small>
            <b>{t('learn.selftest')}</b>
            <span>{t('learn.selftest.note')}</span>
          </a>
        </li>
      </ol>
    </div>
  );
}

// One row of attention to drag, before the first word of the first lesson.
const first: Bench = { ...abc, chosen: { head: 0, query: 2, key: 0 } };
function FirstRow() {
  const mini = useMini(first);
  return (
    <figure class="home-row">
      <MiniRow mini={mini} canLock={false} canForbid={false} hint={t('bench.hint')} />
    </figure>
  );
}

function LessonView({
  lesson,
  step,
  done,
  mark,
}: {
  lesson: Lesson;
  step: number;
  done: Set<string>;
  mark: (key: string) => void;
}) {
  const [verdict, setVerdict] = useState<{ right: boolean; text: () => string } | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.getElementById('main')?.scrollTo?.(0, 0);
    scrollTo(0, 0);
  }, [lesson.id, step]);
  // A verdict speaks of the figure as it is: once that was changed, "right" that no longer holds goes, and so does "not yet".
  const watching = useRef(0);
  const recheck = () => {
    if (!verdict) return;
    const mine = ++watching.current;
    later(() => {
      latest
        .current()
        .then((reply) => {
          if (mine !== watching.current) return;
          setVerdict((old) => {
            if (!old || old.right !== (reply === true)) return null;
            if (reply === true) return old;
            const text = () => t('learn.wrong') + reply();
            return text() === old.text() ? old : { right: false, text };
          });
        })
        .catch(() => {
          /* said where it is asked for */
        });
    }, 300);
  };
  const { key, view: View } = lesson.steps[step];
  const index = lessons.indexOf(lesson);
  const latest = useRef<() => Promise<Verdict>>(async () => true);
  const run = async () => {
    setBusy(true);
    try {
      const reply = await latest.current();
      hush('engine');
      setVerdict(
        reply === true
          ? { right: true, text: () => t(`${key}.done` as Key) }
          : { right: false, text: () => t('learn.wrong') + reply() },
      );
      if (reply === true) mark(key);
    } catch (error) {
      setVerdict(isGone(error) ? null : { right: false, text: () => explain(error) });
    }
    setBusy(false);
  };
  // What was once passed stays passed; the box says what was tried last.
  const fine = verdict ? verdict.right : done.has(key);
  const next =
    step + 1 < lesson.steps.length
      ? `#/learn/${lesson.id}/${step + 2}`
      : index + 1 < lessons.length
        ? `#/learn/${lessons[index + 1].id}`
        : '#/learn/self-test';
  const back = step > 0 ? `#/learn/${lesson.id}/${step}` : index > 0 ? `#/learn/${lessons[index - 1].id}` : '#/learn';
  const onward =
      step + 1 < lesson.steps.length
        ? 'learn.next'
        : index + 1 < lessons.length
          ? 'learn.next.lesson'
          : 'learn.selftest',
    backward = step > 0 ? 'learn.back' : index > 0 ? 'learn.back.lesson' : 'learn.lessons';
  const toBench = async (b: Partial<Bench>) => {
    location.hash = await hashOf('bench', [], linkState({ ...bench.value, ...b }));
  };
  return (
    <article class="lesson">
      <header>
        <p class="lesson-place">
          {index + 1} / {lessons.length}
          {lesson.steps.length > 1 && <> · {t('learn.step', step + 1, lesson.steps.length)}</>}
        </p>
        <h1>
          <Symbols text={t(lesson.title)} />
        </h1>
      </header>
      <div class="lesson-body" onInput={recheck} onPointerUp={recheck} onKeyUp={recheck}>
        <View
          text={(...values) =>
            t(key as Key, ...values)
              .split('\n\n')
              .map((paragraph) => (
                <p>
                  <Rich text={paragraph} />
                </p>
              ))
          }
          task={(check, opens, answer) => {
            latest.current = check;
            return (
              <form
                class={`act ${fine ? 'finished' : ''}`}
                aria-label={t('learn.act')}
                onSubmit={(event) => {
                  // An answer that Enter has just ended is the page's after the next drawing.
                  event.preventDefault();
                  setTimeout(() => void run());
                }}
              >
                <h2>
                  {fine ? <Icon name="check" /> : null}
                  {t('learn.act')}
                </h2>
                <p>
                  <Rich text={t(`${key}.act` as Key)} />
                </p>
                {answer}
                <div class="act-tools">
                  <Button primary id="check" label={t('learn.check')} disabled={busy} onClick={() => void run()} />
                  {opens && <Button small label={t('learn.in.bench')} onClick={() => void toBench(opens)} />}
                </div>
                {verdict && (
                  <p class={verdict.right ? 'good' : 'bad'} role="status" id="verdict">
                    {verdict.text()}
                  </p>
                )}
              </form>
            );
          }}
        />
      </div>
      <footer>
        <a class="button" href={back}>
          <Icon name="left" />
          {t(backward)}
        </a>
        <a class={`button ${verdict?.right || done.has(key) ? 'primary' : ''}`} href={next}>
          {t(onward)}
          <Icon name="right" />
        </a>
      </footer>
    </article>
  );
}

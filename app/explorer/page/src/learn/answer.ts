// What the engine answers to the state of a figure.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { Lane } from '../engine';
import { complain, hush, returned } from '../shared';

// Asks whenever `inputs` change, one question at a time and the newest next; answers come in the order of the questions. `problem`: why
// the newest question has no answer. Unless the figure shows it itself (`shown`), the page says it.
export function useAnswer<T>(
  compute: () => Promise<T>,
  inputs: unknown[],
  shown = false,
): { answer: T | null; problem: unknown } {
  const [reply, setReply] = useState<{ answer: T | null; problem: unknown }>({ answer: null, problem: null });
  const lane = useMemo(() => new Lane((ask: () => Promise<T>) => ask()), []);
  useEffect(() => {
    lane
      .ask(compute)
      .then((answer) => {
        if (answer === null) return;
        if (!shown) hush('engine');
        setReply({ answer, problem: null });
      })
      .catch((problem) => {
        if (!shown) complain(problem);
        setReply((old) => ({ answer: shown ? null : old.answer, problem }));
      });
  }, [...inputs, returned.value]);
  return reply;
}

// How much is still to come: answers of the engine, and what a timer will do. The page says the number on itself
// (<html data-pending>), for tests and for whoever drives the page.
let count = 0;
function add(by: number): void {
  count += by;
  if (typeof document !== 'undefined') document.documentElement.dataset.pending = String(count);
}

export async function counted<T>(work: Promise<T>): Promise<T> {
  add(1);
  try {
    return await work;
  } finally {
    add(-1);
  }
}

// Does `act` after so many milliseconds; the answer calls it off as long as it has not begun.
export function later(act: () => void | Promise<void>, milliseconds: number): () => void {
  let waiting = true;
  add(1);
  const timer = setTimeout(() => {
    waiting = false;
    void Promise.resolve(act()).finally(() => add(-1));
  }, milliseconds);
  return () => {
    if (!waiting) return;
    waiting = false;
    clearTimeout(timer);
    add(-1);
  };
}

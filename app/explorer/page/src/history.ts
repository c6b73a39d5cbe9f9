// Steps that can be taken back. Changes with the same word, close together, are one step (a drag, a run of arrow keys).
import { signal } from '@preact/signals';

const mostSteps = 200;
const together = 600; // milliseconds: a key held down or pressed again, not a number typed after another

export class History<State> {
  readonly past = signal<State[]>([]);
  readonly future = signal<State[]>([]);
  private merging: string | null = null;
  private mergedAt = 0;

  // `before`: the state that a change is about to replace.
  record(before: State, merge: string | null = null): void {
    const now = performance.now();
    if (merge === null || merge !== this.merging || now - this.mergedAt >= together) {
      this.past.value = [...this.past.value.slice(1 - mostSteps), before];
    }
    this.merging = merge;
    this.mergedAt = now;
    this.future.value = [];
  }

  // What stands a step before `now`; null where there is none.
  back(now: State): State | null {
    const before = this.past.value.at(-1);
    if (before === undefined) return null;
    this.past.value = this.past.value.slice(0, -1);
    this.future.value = [now, ...this.future.value];
    this.merging = null;
    return before;
  }

  forward(now: State): State | null {
    const after = this.future.value[0];
    if (after === undefined) return null;
    this.future.value = this.future.value.slice(1);
    this.past.value = [...this.past.value, now];
    this.merging = null;
    return after;
  }

  clear(): void {
    this.past.value = [];
    this.future.value = [];
    this.merging = null;
  }
}

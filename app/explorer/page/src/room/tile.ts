// A tile as a view shows it.
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Tile } from '../engine';
import { returned } from '../shared';
import { base, tile, type Room } from './state';

// The weights of an attention in this state of the room; null while they are computed, or where none are wanted. A tile that was
// asked for before something changed and comes afterwards is not shown.
export function useTile(
  r: Room,
  attention: string | null,
  heads: number[] | 'all',
  queries: [number, number] | undefined,
  keys: [number, number] | undefined,
  reduce: number,
): Tile | null {
  const [got, setGot] = useState<{ of: object; tile: Tile } | null>(null);
  const wanted = base.value !== null && attention !== null;
  const of = useMemo(
    () => ({}),
    [
      base.value,
      r.model,
      r.input,
      r.edits,
      attention,
      String(heads),
      String(queries),
      String(keys),
      reduce,
      returned.value,
    ],
  );
  useEffect(() => {
    if (!wanted) return;
    let alive = true;
    const coming = tile(r, attention, heads, 'weights', queries, keys, reduce);
    if (coming instanceof Promise)
      coming
        .then((ready) => {
          if (alive) setGot({ of, tile: ready });
        })
        .catch(() => undefined);
    else setGot({ of, tile: coming });
    return () => {
      alive = false;
    };
  }, [of]);
  return wanted && got?.of === of ? got.tile : null;
}

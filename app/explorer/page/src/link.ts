// The link is the state: #/room?v=1&s=... where s is deflated JSON. Nothing is lost by a reload, and a link from another version
// is told so instead of being half understood.
import { signal } from '@preact/signals';

export const linkVersion = 1;
export type RoomName = 'learn' | 'bench' | 'model';
export interface Route {
  room: RoomName;
  path: string[]; // what follows the room: the lesson's name
  state: unknown; // null: none given
  stale: string | null; // version of a link that we cannot read
  lost?: 'damaged' | 'unknown'; // a link that was cut off; an address where nothing is
}

const rooms: Record<string, RoomName> = { learn: 'learn', workbench: 'bench', model: 'model' };
export const pathOf: Record<RoomName, string> = { learn: 'learn', bench: 'workbench', model: 'model' };

async function squeeze(text: string): Promise<string> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream('deflate-raw'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

async function unsqueeze(text: string): Promise<string> {
  const binary = atob(text.replace(/-/g, '+').replace(/_/g, '/'));
  const bytes = Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
  // A few kilobytes can be written to unfold to gigabytes; nothing we make comes near the bound.
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw')).getReader();
  const parts: BlobPart[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > 4_000_000) throw new Error('too large');
    parts.push(value as BlobPart);
  }
  return new Blob(parts).text();
}

export async function readHash(hash: string): Promise<Route> {
  const match = /^#\/([a-z]+)((?:\/[a-z0-9-]+)*)(?:\?(.*))?$/.exec(hash);
  const room = match ? rooms[match[1]] : undefined;
  if (!match || !room)
    return {
      room: 'learn',
      path: [],
      state: null,
      stale: null,
      ...(/^#?\/?$/.test(hash) ? {} : { lost: 'unknown' as const }),
    };
  const path = match[2].split('/').filter(Boolean);
  const query = new URLSearchParams(match[3] ?? '');
  const packed = query.get('s');
  if (!packed) return { room, path, state: null, stale: null };
  const version = query.get('v');
  if (version !== null && version !== String(linkVersion)) return { room, path, state: null, stale: version };
  try {
    return { room, path, state: JSON.parse(await unsqueeze(packed)), stale: null };
  } catch {
    return { room, path, state: null, stale: null, lost: 'damaged' };
  }
}

export async function hashOf(room: RoomName, path: string[], state: unknown): Promise<string> {
  const place = `#/${[pathOf[room], ...path].join('/')}`;
  return state === null ? place : `${place}?v=${linkVersion}&s=${await squeeze(JSON.stringify(state))}`;
}

export const route = signal<Route>({ room: 'learn', path: [], state: null, stale: null });

let known = ''; // the address that `route` was read from, or that a room wrote since
let following = false; // an address is being read
let writing = 0,
  reading = 0;

// Puts a room's state into the address without a history entry a keystroke. Where the reader is on the way to another address, that
// one stands.
export async function writeState(room: RoomName, path: string[], state: unknown): Promise<void> {
  const mine = ++writing;
  const here = () => mine === writing && !following && location.hash === known && route.value.room === room;
  if (!here()) return;
  const hash = await hashOf(room, path, state);
  if (!here()) return;
  known = hash;
  if (location.hash !== hash) history.replaceState(null, '', hash);
}

export async function followHash(): Promise<void> {
  if (location.hash === known && known !== '') return;
  known = location.hash;
  following = true;
  const mine = ++reading;
  const next = await readHash(location.hash);
  // A link with much state takes longer to read than an address that was chosen after it.
  if (mine !== reading) return;
  following = false;
  route.value = next;
}

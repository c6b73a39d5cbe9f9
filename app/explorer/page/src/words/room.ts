import type { Words } from '../words';

export const room = {
} as const satisfies Words;

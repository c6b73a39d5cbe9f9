import type { Words } from '../words';

export const learn = {
} as const satisfies Words;

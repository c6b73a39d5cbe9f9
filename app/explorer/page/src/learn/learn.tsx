export function LearnScreen() { return null; }

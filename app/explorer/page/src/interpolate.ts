const channels = (hex: string) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

export function interpolateRgb(from: string, to: string, share: number): string {
  const a = channels(from),
    b = channels(to);
  return (
    '#' +
    a
      .map((value, i) =>
        Math.round(value + (b[i] - value) * share)
          .toString(16)
          .padStart(2, '0'),
      )
      .join('')
  );
}

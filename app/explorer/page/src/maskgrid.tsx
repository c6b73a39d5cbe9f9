// A mask to be clicked: one button a score, in rows and columns named like those of the scores it hides.
import { t } from './words';

export const maskCells = 256;

export function MaskGrid({
  allowed,
  queries,
  keys,
  onFlip,
  small = false,
}: {
  allowed: number[][];
  queries: string[];
  keys: string[];
  onFlip: (row: number, column: number) => void;
  small?: boolean;
}) {
  return (
    <figure class={`matrix mask-grid ${small ? 'small' : ''}`}>
      <figcaption>
        <span class="matrix-title">{t('masks.mask')}</span>
      </figcaption>
      {allowed.length * (allowed[0]?.length ?? 0) > maskCells ? (
        <p class="note">{t('masks.mask.many')}</p>
      ) : (
        <div class="matrix-scroll">
          <table class="cells" aria-label={t('masks.mask')}>
            <thead>
              <tr>
                <td />
                {keys.map((key) => (
                  <th scope="col" class="hue-k">
                    {key}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {allowed.map((row, i) => (
                <tr>
                  <th scope="row" class="hue-q">
                    {queries[i]}
                  </th>
                  {row.map((open, j) => (
                    <td>
                      <button
                        type="button"
                        data-mask={`${i},${j}`}
                        aria-pressed={!open}
                        aria-label={`${queries[i]} ← ${keys[j]}: ${open ? '0' : t('masked')}`}
                        class={open ? '' : 'masked'}
                        onClick={() => onFlip(i, j)}
                      >
                        {open ? '0' : '−∞'}
                      </button>
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </figure>
  );
}
